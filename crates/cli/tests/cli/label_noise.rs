//! Noise on labels: `--label-epsilon`.

use super::network::Trial;
use super::*;

/// The label and whether it was given, of each row of a CSV of `label`.
fn given(csv: &str) -> Vec<(bool, i64)> {
    let line = |line: &str| {
        let fields: Vec<&str> = line.split(',').collect();
        (fields[2] == "1", fields[3].parse().unwrap())
    };
    csv.lines().skip(1).map(line).collect()
}

#[test]
fn noise_costs_accuracy_and_rows_keep_their_own_labels() {
    let folder = TempDir::new().unwrap();
    let out = folder.path().join("out.csv");
    let (wine, out) = (data("wine"), out.to_str().unwrap());
    let run = |more: &[&str]| {
        let common = ["label", &wine, "--backend", "clear", "--runs", "3"];
        let common = [&common[..], &["--labelled", "0.3", "--json", "--out", out]].concat();
        let object = json(&undertone(&[&common[..], more].concat()));
        (object, given(&std::fs::read_to_string(out).unwrap()))
    };
    let (clear, labels) = run(&[]);
    let (noisy, drawn) = run(&["--label-epsilon", "0.2"]);
    assert!(clear["label_epsilon"].is_null());
    assert_eq!(noisy["label_epsilon"], 0.2);
    let accuracy = |object: &Value| object["accuracy_mean"].as_f64().unwrap();
    assert!(accuracy(&noisy) < accuracy(&clear) - 5.0, "{noisy}");
    assert_eq!(noisy["local_accuracy_mean"], clear["local_accuracy_mean"]);
    assert_ne!(labels, drawn);
    for (own, drawn) in labels.iter().zip(&drawn) {
        assert!(if own.0 { own == drawn } else { !drawn.0 });
    }
    assert_eq!(run(&["--label-epsilon", "0.2"]).1, drawn);
    // An epsilon this large changes no label.
    let (none, same) = run(&["--label-epsilon", "20"]);
    assert_eq!((accuracy(&none), same), (accuracy(&clear), labels));
}

#[test]
fn the_noise_is_described() {
    let file = data("wine");
    let arguments = ["label", &file, "--runs", "1", "--label-epsilon", "1"];
    let text = undertone(&arguments).stdout;
    let text = String::from_utf8_lossy(&text);
    let expected = "noise on labels, epsilon 1: 57.6 % of them are kept";
    assert!(text.contains(expected), "{text}");
}

#[test]
fn an_epsilon_that_cannot_be_is_refused() {
    let wine = data("wine");
    for wrong in ["0", "-1", "nan", "inf", "20.5"] {
        let arguments = ["label", &wine, "--label-epsilon", wrong];
        assert_fails(&arguments, 2, "must be a number from 0.001 to 20");
    }
    assert_fails(
        &["label", &wine, "--label-epsilon", "much"],
        2,
        "is not a number",
    );
}

/// Arguments of `join` for client 0 with the rows in this file.
fn join(trial: &Trial, rows: &str, more: &[&str]) -> Vec<String> {
    let server = format!("localhost:{}", trial.port);
    let (keys, out) = (trial.path("keys/client-0"), trial.path("0.csv"));
    let mut arguments = vec![
        "join",
        "--accept",
        "volatile-record",
        "--server",
        &server,
        "--keys",
        &keys,
        "--data",
        rows,
    ];
    arguments.extend(["--out", &out, "--label-epsilon", "1"]);
    arguments.extend(more);
    arguments.into_iter().map(str::to_owned).collect()
}

#[test]
fn what_join_refuses() {
    let trial = Trial::new("wine", "");
    let fails = |rows: &str, more: &[&str], code, expected: &str| {
        let arguments = join(&trial, rows, more);
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        assert_fails(&arguments, code, expected);
    };
    let csv = trial.path("rows.csv");
    std::fs::write(&csv, "1,2,0\n2,1,1\n3,1,\n").unwrap();
    fails(&csv, &[], 2, "--label-epsilon needs --classes");
    let rows = trial.path("data/client-0.npz");
    let only = "--label-epsilon is only for --application label, train";
    fails(&rows, &["--application", "sum"], 2, only);
    let secret = trial.path("keys/client-0/label.secret");
    assert!(!Path::new(&secret).exists());
    std::fs::write(&secret, "short").unwrap();
    fails(&rows, &[], 65, "label.secret: it has 5 bytes");
    // What is left of a state file is never taken for a secret of 32 bytes.
    for zeros in [16, 104] {
        let cut = [&b"undertone noise1"[..], &vec![0; zeros]].concat();
        std::fs::write(&secret, cut).unwrap();
        fails(&rows, &[], 65, "label.secret: it is damaged");
    }
    fails(
        &rows,
        &["--label-secret", "/nowhere/secret"],
        73,
        "/nowhere/secret",
    );
}

/// The labels of all clients after a job in which each puts noise on its labels.
fn noisy_job(trial: &Trial, epsilon: &str) -> Vec<String> {
    let mut server = trial.serve("serve", &["--jobs", "1"]);
    let more = ["--label-epsilon", epsilon];
    let mut clients: Vec<_> = (0..5).map(|client| trial.join(client, &more)).collect();
    trial.come_home(&mut clients);
    assert_eq!(server.ends(super::network::LONG), Some(0));
    let mine: Value = serde_json::from_str(&trial.text("join-2.out")).unwrap();
    assert_eq!(mine["label_epsilon"], epsilon.parse::<f64>().unwrap());
    (0..5).map(|c| trial.text(&format!("{c}.csv"))).collect()
}

#[test]
fn draws_stay_as_long_as_the_secret_does() {
    let trial = Trial::new("wine", "");
    let first = noisy_job(&trial, "0.5");
    let secrets: Vec<String> = (0..5)
        .map(|client| trial.path(&format!("keys/client-{client}/label.secret")))
        .collect();
    let read = |path: &String| std::fs::read(path).unwrap();
    let kept: Vec<Vec<u8>> = secrets.iter().map(read).collect();
    // A state file: its head, the secret, a digest.
    assert!(kept.iter().all(|secret| secret.len() == 56 + 32 + 32));
    assert_ne!(kept[0], kept[1]);
    #[cfg(unix)]
    for path in &secrets {
        use std::os::unix::fs::PermissionsExt;
        let mode = std::fs::metadata(path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
    // Everything else follows from a fixed seed.
    assert_eq!(noisy_job(&trial, "0.5"), first);
    assert_eq!(secrets.iter().map(read).collect::<Vec<_>>(), kept);
    // A secret of an earlier version is 32 bytes, and the same one.
    std::fs::write(&secrets[0], &kept[0][56..56 + 32]).unwrap();
    assert_eq!(noisy_job(&trial, "0.5"), first);
    secrets
        .iter()
        .for_each(|path| std::fs::remove_file(path).unwrap());
    // The records know the secret, and refuse another.
    let server = trial.serve("serve", &["--jobs", "1"]);
    let mut client = trial.join(0, &["--label-epsilon", "0.5"]);
    assert_eq!(client.ends(super::network::LONG), Some(77));
    let log = trial.text("join-0.err");
    assert!(log.contains("was drawn from another secret"), "{log}");
    drop(server);
    for client in 0..5 {
        let records = trial.path(&format!("keys/client-{client}/records"));
        std::fs::remove_dir_all(&records).unwrap();
        let name = format!("client-{client}");
        let made = super::undertone(&[
            "record",
            "new",
            &name,
            "--records",
            &records,
            "--accept",
            "volatile-record",
        ]);
        assert!(made.status.success());
    }
    assert_ne!(noisy_job(&trial, "0.5"), first);
}

#[test]
fn the_table_has_every_cell() {
    let wine = data("wine");
    let command = [
        "bench",
        "label-privacy",
        &wine,
        "--runs",
        "3",
        "--bits",
        "512",
    ];
    let object = json(&undertone(&[&command[..], &["--json"]].concat()));
    let cells = object["cells"].as_array().unwrap();
    assert_eq!(cells.len(), 6 * 2 * 2);
    for cells in cells.chunks(6) {
        let accuracy = |cell: &Value| cell["accuracy"]["mean"].as_f64().unwrap();
        assert!(cells[5]["epsilon"].is_null());
        assert!(accuracy(&cells[0]) < accuracy(&cells[5]), "{cells:?}");
    }
    let text = undertone(&command).stdout;
    let text = String::from_utf8_lossy(&text);
    assert!(text.contains("none") && text.contains("±"), "{text}");
    assert_fails(
        &["bench", "label-privacy", &wine, "--runs", "0"],
        2,
        "--runs",
    );
}
