//! Files as people have them, and what the command says about them.

use std::io::Write;

use serde_json::Value;
use tempfile::TempDir;
use undertone_tests::root;

use super::{assert_fails, json, undertone, write};

/// Two clouds; every third row has a label. `labels` writes the two classes, and no label.
fn table(separator: char, labels: [&str; 3]) -> String {
    let mut text = ["a", "b", "label\n"].join(&separator.to_string());
    for row in 0..30 {
        let class = row % 2;
        let near = f64::from(row) / 100.0;
        let (x, y) = if class == 0 {
            (1.0 + near, near)
        } else {
            (near, 1.0)
        };
        let label = if row % 3 == 0 {
            labels[class as usize]
        } else {
            labels[2]
        };
        let fields = [x.to_string(), y.to_string(), label.to_owned()];
        text += &(fields.join(&separator.to_string()) + "\n");
    }
    text
}

/// Labels three clients' files and returns the JSON object and the labels of the first client.
fn label(folder: &TempDir, files: &[String; 3], options: &[&str]) -> (Value, Vec<Vec<String>>) {
    let out = folder.path().join("out");
    let mut arguments = vec!["label", "--json", "--bits", "512", "--neighbours", "4"];
    arguments.extend(files.iter().flat_map(|file| ["--client", file]));
    arguments.extend(["--out", out.to_str().unwrap()]);
    arguments.extend(options);
    let report = json(&undertone(&arguments));
    let name = files[0]
        .rsplit('/')
        .next()
        .unwrap()
        .split('.')
        .next()
        .unwrap();
    let csv = std::fs::read_dir(&out).unwrap();
    let path = csv.map(|entry| entry.unwrap().path());
    let mut path = path.filter(|path| {
        path.file_name()
            .unwrap()
            .to_str()
            .unwrap()
            .starts_with(name)
    });
    let text = std::fs::read_to_string(path.next().unwrap()).unwrap();
    let lines = text
        .lines()
        .map(|line| line.split(',').map(str::to_owned).collect());
    (report, lines.collect())
}

/// The label column of every row is that of its cloud.
fn assert_right(lines: &[Vec<String>], column: usize, classes: [&str; 2]) {
    assert_eq!(lines.len(), 31);
    for (row, line) in lines[1..].iter().enumerate() {
        assert_eq!(line[column], classes[row % 2], "row {row}");
    }
}

#[test]
fn labels_are_numbers_or_names_and_have_holes() {
    for (labels, column, classes, names) in [
        (["0", "1", "-1"], "label", ["0", "1"], vec![]),
        (["0.0", "1.0", "NA"], "label", ["0", "1"], vec![]),
        (
            ["benign", "malignant", ""],
            "name",
            ["benign", "malignant"],
            vec!["benign", "malignant"],
        ),
        (["wet", "dry", "?"], "label", ["1", "0"], vec!["dry", "wet"]),
    ] {
        let folder = TempDir::new().unwrap();
        let file = |name: &str| write(folder.path(), name, &table(',', labels));
        let files = [file("a.csv"), file("b.csv"), file("c.csv")];
        let (report, lines) = label(&folder, &files, &[]);
        let place = lines[0].iter().position(|name| name == column).unwrap();
        assert_right(&lines, place, classes);
        assert_eq!(report["class_names"], Value::from(names));
        assert_eq!(report["classes"], 2);
    }
}

/// A client that lacks a class numbers the others as everybody does.
#[test]
fn files_share_one_table_of_names() {
    let folder = TempDir::new().unwrap();
    let both = table(',', ["ill", "well", ""]);
    let one: String = both.replace("ill\n", "\n");
    let files = [
        write(folder.path(), "a.csv", &both),
        write(folder.path(), "b.csv", &one),
        write(folder.path(), "c.csv", &table(',', ["", "", ""])),
    ];
    let (_, lines) = label(&folder, &files, &[]);
    assert_right(&lines, 2, ["ill", "well"]);
    let (_, lines) = label(&folder, &files, &["--classes", "well,ill,dead"]);
    assert_right(&lines, 1, ["1", "0"]);
    let arguments = |classes| {
        let mut all = vec!["label", "--classes", classes];
        all.extend(files.iter().flat_map(|file| ["--client", file.as_str()]));
        all
    };
    assert_fails(
        &arguments("well,dead"),
        65,
        "'ill', which is not among the classes",
    );
    assert_fails(&arguments("1"), 2, "2 to 65536 classes");
}

/// Where one of the names is a number, labels that are numbers go by name in every file.
#[test]
fn names_that_are_numbers() {
    let folder = TempDir::new().unwrap();
    let files = [
        write(folder.path(), "a.csv", &table(',', ["1", "2", ""])),
        write(folder.path(), "b.csv", &table(',', ["1", "2", ""])),
        write(folder.path(), "c.csv", &table(',', ["1", "3A", ""])),
    ];
    let all: Vec<&str> = files.iter().flat_map(|file| ["--client", file]).collect();
    assert_fails(
        &[&["label"], &all[..]].concat(),
        65,
        "has the label '3A', other labels are numbers",
    );
    let (report, lines) = label(&folder, &files, &["--classes", "1,2,3A"]);
    assert_eq!(report["class_names"], Value::from(vec!["1", "2", "3A"]));
    assert_eq!(lines[1][2], "1");
    // A file of names only, beside files of numbers.
    let named = write(folder.path(), "e.csv", &table(',', ["1A", "3A", ""]));
    let third = [files[0].clone(), files[1].clone(), named];
    let (report, _) = label(&folder, &third, &["--classes", "1,2,1A,3A"]);
    assert_eq!(report["classes"], 4);
    let (_, lines) = label(&folder, &files, &["--classes", "3A,2,1"]);
    assert_eq!((lines[1][1].as_str(), lines[1][2].as_str()), ("2", "1"));
    let one = write(folder.path(), "d.csv", "1,2,1\n2,1,2\n");
    assert_fails(
        &["label", &one, "--classes", "benign,malignant"],
        65,
        "'2', which is not",
    );
}

#[test]
fn an_input_is_not_dealt_over() {
    let folder = TempDir::new().unwrap();
    let text = table(',', ["0", "1", "1"]);
    let file = write(folder.path(), "client-0.csv", &text);
    let out = folder.path().to_str().unwrap();
    let arguments = ["deal", &file, "--clients", "3", "--out", out];
    assert_fails(&arguments, 2, "is the input");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), text);
}

/// With `--features` all clients have all rows and the same labels.
#[test]
fn columns_are_dealt_with_their_names() {
    let folder = TempDir::new().unwrap();
    let out = folder.path().to_str().unwrap();
    let wine = super::data("wine");
    let share = ["--features", "0.4", "--labelled", "0.8"];
    let deal = ["deal", &wine, "--out", out, "--clients", "4"];
    undertone(&[&deal[..], &share].concat());
    let file = |client: usize| {
        let text = std::fs::read_to_string(folder.path().join(format!("client-{client}.csv")));
        text.unwrap()
    };
    let labels = |text: &str| -> Vec<String> {
        let last = |line: &str| line.rsplit_once(',').unwrap().1.to_owned();
        text.lines().map(last).collect()
    };
    let first = labels(&file(0));
    assert_eq!(first.len(), 179);
    assert_eq!(first.iter().filter(|label| label.is_empty()).count(), 36);
    for client in 0..4 {
        let text = file(client);
        assert_eq!(labels(&text), first);
        assert!(text.starts_with("feature "), "{text}");
    }
    assert_ne!(file(0).lines().next(), file(1).lines().next());
    assert_fails(
        &[&deal[..], &["--features", "0"]].concat(),
        2,
        "--features 0",
    );
    let both = ["--features", "0.5", "--split", "iid"];
    assert_fails(&[&deal[..], &both].concat(), 2, "cannot be used with");
}

/// A client with a single row has no scale of its own.
#[test]
fn small_clients_are_standardised_with_the_others() {
    let health = root("data/health.csv");
    let arguments = [
        "label",
        health.to_str().unwrap(),
        "--standardise",
        "--split",
        "dirichlet:0.05",
        "--clients",
        "8",
        "--runs",
        "5",
        "--bits",
        "64",
        "--json",
    ];
    json(&undertone(&arguments));
}

#[test]
fn semicolons_tabs_and_gzip_are_read() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("c.csv.gz");
    let file = std::fs::File::create(&path).unwrap();
    let mut gzip = flate2::write::GzEncoder::new(file, flate2::Compression::default());
    gzip.write_all(table(',', ["0", "1", ""]).as_bytes())
        .unwrap();
    gzip.finish().unwrap();
    let files = [
        write(folder.path(), "a.csv", &table(';', ["0", "1", ""])),
        write(folder.path(), "b.csv", &table('\t', ["0", "1", ""])),
        path.to_str().unwrap().to_owned(),
    ];
    let (report, lines) = label(&folder, &files, &[]);
    assert_right(&lines, 1, ["0", "1"]);
    assert_eq!(report["rows"], 90);
}

#[test]
fn errors_say_the_line_and_what_mends_it() {
    let folder = TempDir::new().unwrap();
    let good = table(',', ["0", "1", ""]);
    let other = write(folder.path(), "good.csv", &good);
    let fails = |name: &str, text: &[u8], expected: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        let path = path.to_str().unwrap();
        let arguments = [
            "label", "--client", &other, "--client", path, "--client", &other,
        ];
        assert_fails(&arguments, 65, expected);
    };
    fails(
        "x.csv",
        b"a,b,label\n1,x,0\n",
        "x.csv: line 2, column 2 (b): 'x' is not a number",
    );
    fails(
        "x.csv",
        b"a;b;label\n1;2,5;0\n",
        "write decimals with a point",
    );
    fails("x.csv", b"a,b,label\n1,2,gr\xfcn\n", "not UTF-8");
    fails("x.csv", b"\xff\xfea\0", "UTF-16");
    fails("x.csv.gz", b"\x1f\x8bnonsense", "gzip");
    fails("x.csv", b"a,b,label\n1,2,0\n1,3,9999\n", "--classes 10000");
    fails("x.csv", b"a,c,label\n1,2,0\n1,3,1\n", "feature 2 is \"c\"");
    fails(
        "x.csv",
        b"a,b,label\n1,2,ill\n1,3,well\n",
        "labels are numbers, those of other clients",
    );
    assert_fails(
        &["label", &super::data("wine"), "--alpha", "0.0001"],
        2,
        "from 0.001 to 0.9999",
    );
    let dealt = folder.path().join("dealt");
    let dealt = dealt.to_str().unwrap();
    let deal = undertone(&["deal", &super::data("wine"), "--out", dealt]);
    assert!(deal.status.success());
    let stated = format!("{dealt}/client-0.npz");
    let arguments = ["label", "--client", &stated, "--classes", "5"];
    assert_fails(&arguments, 65, "the file states 3 classes, --classes 5");
    assert_fails(
        &["label", &other, "--classes", "2", "--codes"],
        65,
        "codes are read from .npz",
    );
}

#[test]
fn columns_of_different_scale_are_noticed_and_brought_to_one() {
    let health = root("data/health.csv");
    let health = health.to_str().unwrap();
    let raw = undertone(&["label", health, "--json", "--runs", "3"]);
    let warning = String::from_utf8_lossy(&raw.stderr).into_owned();
    for expected in [
        "'income' has 100.0 %",
        "that of 'weight' is",
        "--standardise",
    ] {
        assert!(warning.contains(expected), "{warning}");
    }
    let scaled = undertone(&["label", health, "--json", "--runs", "3", "--standardise"]);
    assert!(scaled.stderr.is_empty());
    let (raw, scaled) = (json(&raw), json(&scaled));
    let accuracy = |report: &Value| report["accuracy_mean"].as_f64().unwrap().round();
    assert_eq!((accuracy(&raw), accuracy(&scaled)), (47.0, 85.0));
    assert_eq!(scaled["job"]["standardise"], true);
    let phase = |report: &Value| report["phases"][0]["phase"].clone();
    assert_eq!(
        (phase(&raw), phase(&scaled)),
        ("setup".into(), "standardise".into())
    );
    // Columns on one scale, and codes, are not warned of.
    let quiet = undertone(&[
        "label",
        &super::data("digits"),
        "--runs",
        "1",
        "--bits",
        "256",
    ]);
    assert!(
        quiet.stderr.is_empty(),
        "{}",
        String::from_utf8_lossy(&quiet.stderr)
    );
}

/// One file a client, standardised together: the same as one file, standardised.
#[test]
fn files_of_clients_are_standardised_together() {
    let folder = TempDir::new().unwrap();
    let deal = folder.path().join("dealt");
    let deal = deal.to_str().unwrap();
    let health = root("data/health.csv");
    let dealt = undertone(&[
        "deal",
        health.to_str().unwrap(),
        "--clients",
        "3",
        "--out",
        deal,
    ]);
    assert!(dealt.status.success());
    let file = |client: usize| format!("{deal}/client-{client}.csv");
    let header = std::fs::read_to_string(file(0)).unwrap();
    assert!(
        header.starts_with("age,income,weight,cholesterol,label\n"),
        "{header}"
    );
    let files = [file(0), file(1), file(2)];
    let (report, lines) = label(&folder, &files, &["--standardise"]);
    assert_eq!(
        report["class_names"],
        Value::from(vec!["diabetes", "healthy", "heart"])
    );
    assert_eq!(lines[0], ["row", "label", "name", "confidence"]);
    assert_eq!(report["job"]["standardise"], true);
}

#[test]
fn a_single_run_has_no_deviation() {
    let wine = super::data("wine");
    let single = undertone(&["label", &wine, "--runs", "1"]);
    let text = String::from_utf8_lossy(&single.stdout).into_owned();
    assert!(text.contains("together") && !text.contains('±'), "{text}");
}

/// What an experiment has as an option is a key of its job, and is stated once.
#[test]
fn keys_of_the_job_are_stated_once() {
    let wine = super::data("wine");
    let run = |more: &[&str]| {
        let label = ["label", &wine, "--runs", "1", "--json"];
        json(&undertone(&[&label[..], more].concat()))
    };
    let by_option = run(&["--neighbours", "7", "--alpha", "0.9", "--standardise"]);
    let set = ["neighbours=7", "alpha=0.9", "standardise=true"];
    let by_key = run(&set.map(|pair| ["--set", pair]).concat());
    assert_eq!(by_option["job"], by_key["job"]);
    assert_eq!(by_option["accuracy_mean"], by_key["accuracy_mean"]);
    assert_eq!(by_key["job"]["standardise"], true);
    for (arguments, why) in [
        (&["--bits", "64", "--set", "bits=64"][..], "--set bits"),
        (
            &["--set", "classes=3"],
            "--set classes: the files or --classes",
        ),
        (&["--set", "bots=3"], "bots"),
        (&["--set", "alpha=2"], "alpha"),
        (&["--set", "min_clients=6"], "min_clients is 6"),
        (&["--set", "key_bits=2048"], "only for --backend phe"),
        (&["--alpha", "nan"], "alpha is NaN"),
        (&["--codes", "--plot", "out.svg"], "--codes"),
    ] {
        assert_fails(&[&["label", &wine][..], arguments].concat(), 2, why);
    }
}

/// No experiment writes one file twice, or over its data.
#[test]
fn outputs_of_experiments_are_apart() {
    let folder = TempDir::new().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let input = path("wine.npz");
    std::fs::copy(super::data("wine"), &input).unwrap();
    let same = path("same");
    for command in ["label", "pssl", "train", "cotrain", "fedgraph"] {
        if cfg!(not(feature = "train")) && !["label", "pssl"].contains(&command) {
            continue;
        }
        let twice = [command, &input, "--plot", &same, "--report", &same];
        assert_fails(&twice, 2, "two outputs");
        let over = [command, &input, "--report", &input];
        assert_fails(&over, 2, "an input");
        if ["label", "train"].contains(&command) {
            let labels = [command, &input, "--out", &same, "--report", &same];
            assert_fails(&labels, 2, "two outputs");
        }
    }
}

#[test]
fn results_are_drawn() {
    let folder = TempDir::new().unwrap();
    let picture = folder.path().join("out.svg");
    let path = picture.to_str().unwrap();
    let wine = super::data("wine");
    let run = undertone(&["label", &wine, "--runs", "2", "--plot", path]);
    assert!(
        run.status.success(),
        "{}",
        String::from_utf8_lossy(&run.stderr)
    );
    let svg = std::fs::read_to_string(&picture).unwrap();
    for expected in [
        "together",
        "±",
        "principal component",
        "class 2",
        "found, wrong",
    ] {
        assert!(svg.contains(expected), "{expected}");
    }
    // One file a client: no truth, so no accuracy and nothing wrong.
    let text = table(',', ["ill", "well", ""]);
    let files = ["a.csv", "b.csv", "c.csv"].map(|name| write(folder.path(), name, &text));
    label(&folder, &files, &["--plot", path]);
    let svg = std::fs::read_to_string(&picture).unwrap();
    assert!(svg.contains("well") && svg.contains("label given") && !svg.contains("wrong"));
}
