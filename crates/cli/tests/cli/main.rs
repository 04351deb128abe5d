//! The command as a user runs it: its output, files, refusals and exit codes.
#![allow(missing_docs, clippy::unwrap_used)]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;
use undertone_tests::{reference, root};

mod arguments;
mod columns;
mod costs;
#[cfg(feature = "train")]
mod cotrain;
mod credentials;
mod deploy;
#[cfg(target_os = "linux")]
mod documents;
#[cfg(feature = "train")]
mod fedgraph;
mod files;
#[cfg(target_os = "linux")]
mod interrupt;
mod label_noise;
mod measures;
mod network;
mod once;
mod page;
mod plan;
mod pssl;
mod record;
mod rounds;
#[cfg(feature = "train")]
mod train;

/// The program that tests run.
const PROGRAM: &str = env!("CARGO_BIN_EXE_undertone");

fn undertone(arguments: &[&str]) -> Output {
    Command::new(PROGRAM).args(arguments).output().unwrap()
}

fn data(name: &str) -> String {
    root(&format!("data/{name}.npz"))
        .to_str()
        .unwrap()
        .to_owned()
}

fn json(output: &Output) -> Value {
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    serde_json::from_slice(&output.stdout).unwrap()
}

fn assert_fails(arguments: &[&str], code: i32, expected: &str) {
    let output = undertone(arguments);
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {message}");
    assert!(
        message.contains(expected),
        "{arguments:?}: '{message}' lacks '{expected}'"
    );
    assert!(output.stdout.is_empty(), "{arguments:?}");
}

fn write(folder: &Path, name: &str, text: &str) -> String {
    let path = folder.join(name);
    std::fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

/// Lines without times and the width of columns.
fn timeless(text: &str) -> Vec<String> {
    let line = |line: &str| {
        let mut words: Vec<&str> = Vec::new();
        for word in line.split_whitespace() {
            match word {
                "ms" | "s" => drop(words.pop()),
                _ => words.push(word),
            }
        }
        words.join(" ")
    };
    text.lines().map(line).collect()
}

/// Output that documents show is output of the command: the whole of it, or its beginning.
#[test]
#[ignore = "takes a minute; .ci/run runs it"]
fn what_the_documents_show_is_what_is_printed() {
    for (command, documents) in [
        ("label data/digits.npz", &["README.md", "docs/guide.md"][..]),
        (
            "sum --clients 100 --entries 100000 --drop 0.1",
            &["docs/embedding.md"],
        ),
    ] {
        let output = Command::new(PROGRAM)
            .args(command.split(' '))
            .current_dir(root("."))
            .output()
            .unwrap();
        let printed = timeless(&String::from_utf8_lossy(&output.stdout));
        for document in documents {
            let text = std::fs::read_to_string(root(document)).unwrap();
            let (_, after) = text.split_once(&format!(" {command}\n")).unwrap();
            let (_, block) = after.split_once("```text\n").unwrap();
            let (shown, _) = block.split_once("```").unwrap();
            let shown = timeless(shown);
            if *document == "README.md" {
                assert_eq!(printed[..shown.len()], shown, "{document}: {command}");
            } else {
                assert_eq!(printed, shown, "{document}: {command}");
            }
        }
    }
}

#[test]
fn an_experiment_prints_accuracy_and_costs() {
    let output = undertone(&["label", &data("wine"), "--runs", "2"]);
    let text = String::from_utf8_lossy(&output.stdout);
    for expected in [
        "178 rows",
        "together",
        "each client alone",
        "distances",
        "total",
        "backend lwe",
    ] {
        assert!(text.contains(expected), "'{text}' lacks '{expected}'");
    }
    assert!(!text.contains('\u{1b}'), "no colour when not a terminal");
    let quiet = undertone(&["label", &data("wine"), "--runs", "2", "--quiet"]);
    assert!(quiet.stdout.len() < output.stdout.len() && !quiet.stdout.is_empty());
}

#[test]
fn json_has_every_field_and_seeds_fix_it() {
    let run = |seed: &str, threads: &str| {
        let file = data("breast_cancer");
        let arguments = [
            "label",
            &file,
            "--json",
            "--runs",
            "3",
            "--seed",
            seed,
            "--threads",
            threads,
            "--split",
            "dirichlet:0.5",
            "--backend",
            "clear",
            "--variant",
            "paper",
        ];
        let mut object = json(&undertone(&arguments));
        for phase in object["phases"].as_array_mut().unwrap() {
            phase["compute_ms"].take();
        }
        assert!(object["outside_ms"].take().as_f64() > Some(0.0));
        object
    };
    let object = run("3", "1");
    assert_eq!(object, run("3", "2"), "the same on any number of threads");
    assert_ne!(object["phases"], run("4", "1")["phases"]);
    for field in [
        "accuracy_mean",
        "accuracy_sd",
        "local_accuracy_mean",
        "local_accuracy_sd",
    ] {
        assert!(object[field].is_f64(), "{field}");
    }
    assert!(object["accuracy_mean"].as_f64() > Some(85.0));
    let expected = [("rows", 569), ("clients", 5), ("classes", 2)];
    for (field, value) in expected {
        assert_eq!(object[field], value, "{field}");
    }
    assert_eq!(
        (&object["job"]["backend"], &object["job"]["variant"]),
        (&"clear".into(), &"paper".into())
    );
    let phases = object["phases"].as_array().unwrap();
    for field in [
        "phase",
        "party",
        "bytes_sent",
        "bytes_received",
        "messages",
        "rounds",
    ] {
        assert!(
            phases.iter().all(|phase| !phase[field].is_null()),
            "{field}"
        );
    }
    let sum = |field: &str| {
        phases
            .iter()
            .map(|p| p[field].as_u64().unwrap())
            .sum::<u64>()
    };
    assert_eq!(sum("bytes_sent"), sum("bytes_received"));
}

#[test]
fn labels_and_report_are_written() {
    let folder = TempDir::new().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (out, report, trace) = (path("labels.csv"), path("report.json"), path("trace"));
    let file = data("wine");
    let arguments = [
        "label", &file, "--runs", "1", "--out", &out, "--report", &report, "--trace", &trace,
    ];
    assert!(undertone(&arguments).status.success());
    let labels = std::fs::read_to_string(&out).unwrap();
    let lines: Vec<&str> = labels.lines().collect();
    assert_eq!(lines[0], "row,client,given,label,confidence");
    assert_eq!(lines.len(), 1 + 178);
    for (row, line) in lines[1..].iter().enumerate() {
        assert!(line.starts_with(&format!("{row},")), "{line}");
    }
    let report: Value = serde_json::from_slice(&std::fs::read(&report).unwrap()).unwrap();
    assert_eq!(report["rows"], 178);
    for name in ["neighbours.npy", "scores.npy", "labels.npy", "rows.npy"] {
        assert!(folder.path().join("trace").join(name).is_file(), "{name}");
    }
}

/// Writes an archive of `codes`, `bits` and `labels`.
fn write_codes(path: &Path, rows: &[reference::Row]) {
    use npyz::WriterBuilder;
    fn array<T: npyz::AutoSerialize>(shape: &[u64], values: &[T]) -> Vec<u8> {
        let mut bytes = Vec::new();
        let options = npyz::WriteOptions::new().default_dtype().shape(shape);
        let mut writer = options.writer(&mut bytes).begin_nd().unwrap();
        writer.extend(values).unwrap();
        writer.finish().unwrap();
        bytes
    }
    let n = rows.len() as u64;
    let codes: Vec<u8> = rows.iter().flat_map(|row| row.code.clone()).collect();
    let labels: Vec<i64> = rows
        .iter()
        .map(|row| row.label.map_or(-1, i64::from))
        .collect();
    let mut zip = zip::ZipWriter::new(std::fs::File::create(path).unwrap());
    for (name, bytes) in [
        ("codes.npy", array(&[n, 32], &codes)),
        ("bits.npy", array(&[], &[256i64])),
        ("labels.npy", array(&[n], &labels)),
    ] {
        zip.start_file(name, zip::write::SimpleFileOptions::default())
            .unwrap();
        std::io::Write::write_all(&mut zip, &bytes).unwrap();
    }
    zip.finish().unwrap();
}

fn npy<T: npyz::Deserialize>(path: PathBuf) -> (Vec<u64>, Vec<T>) {
    let file = npyz::NpyFile::new(std::fs::File::open(path).unwrap()).unwrap();
    (file.shape().to_vec(), file.into_vec().unwrap())
}

#[test]
fn clients_files_with_codes_give_the_reference() {
    let rows = reference::read(&root("vectors/xclp/wine_5clients_iid_k10_paper.csv")).unwrap();
    let folder = TempDir::new().unwrap();
    let mut arguments = vec!["label".to_owned(), "--codes".into(), "--json".into()];
    for (client, rows) in rows.chunk_by(|a, b| a.client == b.client).enumerate() {
        let path = folder.path().join(format!("c{client}.npz"));
        write_codes(&path, rows);
        arguments.extend(["--client".into(), path.to_str().unwrap().into()]);
    }
    let out = folder.path().join("out");
    for (name, value) in [
        ("--variant", "paper"),
        ("--trace", "trace"),
        ("--out", "out"),
    ] {
        let value = if name == "--variant" {
            value.to_owned()
        } else {
            folder.path().join(value).to_str().unwrap().to_owned()
        };
        arguments.extend([name.to_owned(), value]);
    }
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let object = json(&undertone(&arguments));
    assert!(object["accuracy_mean"].is_null());
    assert_eq!(
        (&object["rows"], &object["job"]["bits"]),
        (&178.into(), &256.into())
    );

    let trace = folder.path().join("trace");
    let (shape, near) = npy::<i64>(trace.join("neighbours.npy"));
    assert_eq!(shape, [178, 10]);
    let expected: Vec<i64> = rows
        .iter()
        .flat_map(|r| r.neighbours.iter().map(|n| *n as i64))
        .collect();
    assert_eq!(near, expected);
    let (shape, scores) = npy::<f64>(trace.join("scores.npy"));
    assert_eq!(shape, [178, 3]);
    for (row, scores) in rows.iter().zip(scores.chunks(3)) {
        if row.label.is_some() {
            assert!(scores.iter().all(|score| score.is_nan()));
            continue;
        }
        // The reference does not divide a row's influences by their sum.
        let scale = scores.iter().sum::<f64>() / row.scores.iter().sum::<f64>();
        for (score, expected) in scores.iter().zip(&row.scores) {
            assert!((score - scale * expected).abs() < 2e-8);
        }
    }
    let (_, labels) = npy::<i64>(trace.join("labels.npy"));
    for (row, label) in rows.iter().zip(labels) {
        assert_eq!(label, i64::from(row.label.unwrap_or(row.prediction)));
    }
    let (_, order) = npy::<i64>(trace.join("rows.npy"));
    assert_eq!(order[..2], [0, 1]);
    let csv = std::fs::read_to_string(out.join("c0.labels.csv")).unwrap();
    assert_eq!(csv.lines().next(), Some("row,label,confidence"));
    assert_eq!(
        csv.lines().count(),
        1 + rows.iter().filter(|row| row.client == 0).count()
    );
}

#[test]
fn wrong_arguments() {
    let wine = data("wine");
    for (arguments, expected) in [
        (vec!["label"], "--client"),
        (
            vec!["label", &wine, "--client", &wine],
            "cannot be used with",
        ),
        (
            vec!["label", &wine, "--backend", "best"],
            "unknown backend best",
        ),
        (
            vec!["label", &wine, "--split", "dirichlet:0"],
            "dirichlet:0.3",
        ),
        (vec!["label", &wine, "--labelled", "1"], "below 1"),
        (vec!["label", &wine, "--labelled", "nan"], "below 1"),
        (vec!["label", &wine, "--runs", "0"], "--runs"),
        (vec!["label", &wine, "--alpha", "1"], "alpha is 1"),
        (vec!["label", &wine, "--alpha", "0.99999"], "to 0.9999"),
        (vec!["label", &wine, "--bits", "65536"], "--backend psm"),
        (vec!["label", &wine, "--neighbours", "0"], "neighbours is 0"),
        (vec!["label", &wine, "--clients", "1"], "two or more"),
        (
            vec!["label", &wine, "--clients", "2"],
            "--set min_clients=2",
        ),
        (vec!["label", &wine, "--threads", "0"], "--threads"),
        (vec!["bench", "pipeline", "--rows", "5"], "--neighbours"),
    ] {
        assert_fails(&arguments, 2, expected);
    }
    let two = [
        "label",
        &wine,
        "--clients",
        "2",
        "--set",
        "min_clients=2",
        "--runs",
        "1",
    ];
    assert!(undertone(&two).status.success());
}

#[test]
fn unusable_data() {
    let folder = TempDir::new().unwrap();
    let file = |name: &str, text: &str| write(folder.path(), name, text);
    let good = file("good.csv", "1,2,0\n2,1,1\n3,3,0\n4,1,\n");
    let wine = data("wine");
    let cut = folder.path().join("cut.npz");
    let bytes = std::fs::read(&wine).unwrap();
    std::fs::write(&cut, &bytes[..bytes.len() / 2]).unwrap();
    let cut = cut.to_str().unwrap();
    let k = ["--neighbours", "2"];
    let label = |files: &[&str], expected: &str| {
        let mut arguments = vec!["label"];
        arguments.extend(files);
        arguments.extend(k);
        assert_fails(&arguments, 65, expected);
    };
    label(&[cut], "is the file complete?");
    label(&[&wine, "--codes"], "array 'bits' is missing");
    label(
        &[&file("nan.csv", "1,2,0\n1,nan,1\n")],
        "line 2, column 2: 'nan' is no number",
    );
    label(
        &[&file("inf.csv", "inf,2,0\n1,2,1\n")],
        "line 1, column 1 is 'inf'",
    );
    label(
        &[&file("zero.csv", "0,0,0\n1,2,1\n")],
        "line 1: all features are 0",
    );
    label(&[&file("empty.csv", "")], "empty");
    label(
        &[&file("one.csv", "1,2,0\n1,1,0\n2,2,0\n")],
        "two classes are needed",
    );
    label(
        &[&file("none.csv", "1,2,-1\n1,1,-1\n")],
        "no row is labelled",
    );
    label(&[&good], "line 4, column 3 is empty: the label is unknown");
    label(&[&wine, "--clients", "200"], "cannot be dealt out");
    let twice = [
        "--client",
        good.as_str(),
        "--client",
        good.as_str(),
        "--client",
    ];
    let with = |third: &str, expected: &str| {
        let mut files = twice.to_vec();
        files.push(third);
        label(&files, expected);
    };
    with(
        &file("wide.csv", "1,2,3,0\n"),
        "rows have 3 features, those of",
    );
    with(cut, "is the file complete?");
    assert_fails(
        &["label", &wine, "--neighbours", "178"],
        65,
        "below the number of rows",
    );
    let unlabelled = file("u.csv", "1,2,\n2,1,\n");
    let (v, w) = (file("v.csv", "1,2,\n2,1,\n"), file("w.csv", "1,2,\n2,1,\n"));
    label(
        &["--client", &unlabelled, "--client", &v, "--client", &w],
        "no row of any client",
    );
}

#[test]
fn files_that_cannot_be_read_or_written() {
    let wine = data("wine");
    assert_fails(&["label", "nowhere.npz"], 66, "nowhere.npz");
    for option in ["--out", "--report"] {
        assert_fails(
            &["label", &wine, option, "/nowhere/file"],
            73,
            "cannot write /nowhere/file",
        );
    }
    let folder = TempDir::new().unwrap();
    let file = write(folder.path(), "file", "");
    let below = format!("{file}/trace");
    assert_fails(&["label", &wine, "--trace", &below], 73, "cannot write");
    assert_fails(
        &["label", &wine, "--out", folder.path().to_str().unwrap()],
        73,
        "folder",
    );
}

#[test]
fn inputs_and_other_outputs_are_not_overwritten() {
    let folder = TempDir::new().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let text: String = (0..30)
        .map(|i| format!("{},{},{}\n", i % 2 + 1, 1 + i % 7, i % 2))
        .collect();
    let files = ["a.csv", "b.csv", "c.csv"].map(|name| write(folder.path(), name, &text));
    let wine = data("wine");
    let copy = path("copy.npz");
    std::fs::copy(&wine, &copy).unwrap();
    let same = path("same");
    let dotted = format!("{}/./a.csv", folder.path().to_str().unwrap());
    for arguments in [
        vec!["label", &copy, "--out", &copy],
        vec!["label", &wine, "--out", &same, "--report", &same],
        vec![
            "label", "--client", &files[0], "--client", &dotted, "--client", &files[1],
        ],
        vec![
            "label", "--client", &files[0], "--client", &files[1], "--client", &files[2],
            "--report", &files[1],
        ],
    ] {
        assert_fails(&arguments, 2, "name another file");
    }
    assert_eq!(std::fs::read(&copy).unwrap(), std::fs::read(&wine).unwrap());
    assert_fails(&["label", &wine, "--out", "/dev/null"], 73, "device");
    assert_fails(&["label", folder.path().to_str().unwrap()], 66, "folder");
}

#[test]
fn rows_that_are_all_revealed_are_no_experiment() {
    let wine = data("wine");
    assert_fails(
        &["label", &wine, "--labelled", "0.9999", "-q"],
        65,
        "no row is left to hide",
    );
    assert_fails(&["label", &wine, "--threads", "100000"], 2, "--threads");
}
