//! Commands besides `label`, benchmarks, and backends on the command line.

use serde_json::Value;
use tempfile::TempDir;

use super::{PROGRAM, assert_fails, data, json, undertone};

#[test]
fn completions_and_benchmarks_run() {
    let completions = undertone(&["completions", "bash"]);
    assert!(String::from_utf8_lossy(&completions.stdout).contains("_undertone"));
    let arguments = [
        "bench",
        "pipeline",
        "--json",
        "--rows",
        "60",
        "--features",
        "5",
        "--bits",
        "100",
        "--labelled",
        "10",
        "--repeat",
        "1",
    ];
    let object = json(&undertone(&arguments));
    assert_eq!(object["stages"].as_array().unwrap().len(), 5);
}

/// Clients that share a process, of a job without signatures.
#[test]
fn a_network_has_clients_in_one_process() {
    let fixed = [
        "bench",
        "network",
        "--clients",
        "4",
        "--repeat",
        "1",
        "--json",
    ];
    let run = |more: &[&str]| json(&undertone(&[&fixed[..], more].concat()));
    let means = run(&["--values", "10", "--processes", "0", "--semi-honest"]);
    assert_eq!(means["rounds"], 12);
    let labels = ["--rows", "10", "--processes", "1", "--only-network"];
    let labels = run(&[&labels[..], &["--bits", "64", "--backend", "psm"]].concat());
    assert_eq!(labels["processes"], 1);
    assert_eq!(labels["ratio"], Value::Null);
    let received: Option<u64> = labels["phases"].as_array().map(|phases| {
        let received = phases.iter().map(|phase| phase["bytes_received"].as_u64());
        received.map(Option::unwrap).sum()
    });
    assert!(received.unwrap() > 0);
}

/// Keys of many clients are made with few open files.
#[cfg(unix)]
#[test]
fn keys_need_few_open_files() {
    let folder = TempDir::new().unwrap();
    let keys = "ulimit -n 32; exec \"$0\" keys --quiet --clients 40 --out \"$1\"";
    let mut command = std::process::Command::new("sh");
    command.args(["-c", keys, PROGRAM]);
    let made = command.arg(folder.path().join("keys")).output().unwrap();
    let errors = String::from_utf8_lossy(&made.stderr);
    assert!(made.status.success(), "{errors}");
    assert!(folder.path().join("keys/client-39/client.key").exists());
}

#[test]
fn sums_run() {
    let arguments = [
        "sum",
        "--clients",
        "7",
        "--entries",
        "50",
        "--drop",
        "0.15",
        "--json",
    ];
    let object = json(&undertone(&arguments));
    assert_eq!(object["exact"], true);
    assert_eq!(object["contributors"], 6);
    // Seven parties are in four phases, and the dropped client in two.
    assert_eq!(object["phases"].as_array().unwrap().len(), 7 * 4 + 2);
    let arguments = [
        "bench",
        "sums",
        "--clients",
        "60",
        "--entries",
        "40",
        "--drop",
        "0.1",
        "--width",
        "32",
        "--suite",
        "chacha20",
        "--malicious-server",
        "--repeat",
        "1",
        "--json",
    ];
    let object = json(&undertone(&arguments));
    assert_eq!(object["exact"], true);
    assert_eq!(
        (&object["neighbours"], &object["rounds"]),
        (&20.into(), &9.into())
    );
    // At most eight bytes an entry and 20 kB more.
    assert!(object["upload_bytes_per_client"].as_f64().unwrap() < 40.0 * 8.0 + 20e3);
    let text = undertone(&["sum", "--clients", "5", "--entries", "3"]);
    let text = String::from_utf8_lossy(&text.stdout).into_owned();
    assert!(text.contains("it equals the sum in the clear"), "{text}");
    assert_fails(&["sum", "--clients", "2"], 2, "3 or more");
    assert_fails(&["sum", "--drop", "1"], 2, "--drop");
    assert_fails(&["sum", "--clients", "9", "--neighbours", "3"], 2, "even");
    assert_fails(&["sum", "--suite", "rot13"], 2, "rot13");
    assert_fails(
        &["sum", "--clients", "5", "--entries", "9", "--drop", "0.8"],
        70,
        "too few clients: 1 left, 3 needed",
    );
}

/// Both parties run on threads of their own, also if the pool has one thread.
#[test]
fn transfers_run() {
    for against in ["semi-honest", "malicious"] {
        for threads in ["1", "3"] {
            let arguments = [
                "ot",
                "--count",
                "2^15",
                "--field",
                "3",
                "--against",
                against,
                "--threads",
                threads,
                "--json",
            ];
            let object = json(&undertone(&arguments));
            assert_eq!(object["exact"], true);
            assert_eq!(object["count"], 1 << 15);
            assert_eq!(object["against"], against);
            assert!(object["bytes_per_transfer"].as_f64().unwrap() < 7.0);
        }
    }
    let arguments = [
        "bench", "ot", "--count", "1000", "--field", "1,8", "--repeat", "1", "--json",
    ];
    let object = json(&undertone(&arguments));
    assert_eq!(object["extensions"].as_array().unwrap().len(), 4);
    let text = undertone(&["ot", "--count", "70"]);
    let text = String::from_utf8_lossy(&text.stdout).into_owned();
    assert!(text.contains("keys right"), "{text}");
    for count in ["0", "2^99", "2^41", "x"] {
        assert_fails(&["ot", "--count", count], 2, "a number from 1 to 2^40");
    }
    assert_fails(&["ot", "--field", "9"], 2, "from 1 to 8");
}

#[test]
fn backends_say_where_they_do_not_hold() {
    let run = |backend: &str, more: &[&str]| {
        let mut arguments = vec!["label", "--backend", backend, "--runs", "1"];
        let wine = data("wine");
        arguments.extend([&wine[..]].iter().chain(more));
        let output = undertone(&arguments);
        assert!(output.status.success());
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    // Thirteen features. Five clients have 36 rows each, thirty have six.
    let few = ["--clients", "30", "--bits", "512"];
    for backend in ["psm", "lwe"] {
        assert!(run(backend, &["--bits", "512"]).contains("more than 13 features"));
        assert!(!run(backend, &few).contains("note:"));
    }
    let lying = [&few[..], &["--malicious-server"]].concat();
    assert!(!run("psm", &lying).contains("note:"));
    assert!(run("lwe", &lying).contains("lwe does not protect codes"));
    let wine = data("wine");
    let arguments = ["label", &wine, "--backend", "lwe", "--bits", "16385"];
    assert_fails(&arguments, 2, "1 to 16384 with lwe");
}

#[test]
fn phe_labels_as_psm_does() {
    let run = |backend: &str, more: &[&str]| {
        let wine = data("wine");
        let arguments = ["label", &wine, "--backend", backend, "--runs", "1"];
        let all = [&arguments[..], &["--bits", "64", "--clients", "3"], more].concat();
        json(&undertone(&[&all[..], &["--json"]].concat()))
    };
    let (phe, psm) = (run("phe", &["--set", "key_bits=2048"]), run("psm", &[]));
    assert_eq!(phe["accuracy_mean"], psm["accuracy_mean"]);
    assert_eq!(phe["job"]["backend"], "phe");
    let wine = data("wine");
    let arguments = ["label", &wine, "--backend", "phe", "--set", "key_bits=1024"];
    assert_fails(&arguments, 2, "2048, 3072 or 4096");
}

#[test]
fn keys_are_made_and_paillier_is_measured() {
    let folder = TempDir::new().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (secret, public) = (path("secret.json"), path("public.json"));
    let arguments = [
        "paillier", "keygen", "--bits", "2048", "--secret", &secret, "--public", &public,
    ];
    let printed = json(&undertone(&[&arguments[..], &["--json"]].concat()));
    let read =
        |path: &str| -> Value { serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap() };
    assert_eq!(read(&public), printed);
    let number = |object: &Value, field: &str| {
        let text = object[field].as_str().unwrap();
        num_bigint::BigUint::parse_bytes(text.as_bytes(), 16).unwrap()
    };
    let (public, held) = (read(&public), read(&secret));
    assert_eq!(
        number(&held, "p") * number(&held, "q"),
        number(&public, "n")
    );
    assert_eq!(public["bits"], 2048);
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let mode = std::fs::metadata(&secret).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
    // An existing key is not overwritten.
    assert_fails(&arguments, 73, "keys are not overwritten");
    let keygen = |more: &[&'static str]| [&["paillier", "keygen", "--secret"][..], more].concat();
    assert_fails(&keygen(&["/nowhere/x"]), 73, "its folder does not exist");
    let other = path("other.json");
    let same = ["paillier", "keygen", "--secret", &other, "--public", &other];
    assert_fails(&same, 2, "the same file");
    let small = ["paillier", "keygen", "--secret", &other, "--bits", "1024"];
    assert_fails(&small, 2, "--bits must be 2048, 3072 or 4096");

    for bench in [["bench", "paillier"], ["paillier", "bench"]] {
        let small = [
            "--key-bits",
            "2048",
            "--batch",
            "5",
            "--repeat",
            "1",
            "--json",
        ];
        let object = json(&undertone(&[&bench[..], &small].concat()));
        let line = &object["sizes"][0];
        assert_eq!(
            (&line["key_bits"], &line["exact"]),
            (&2048.into(), &true.into())
        );
        assert!(line["owner_encrypt"].as_f64().unwrap() > 0.0);
    }
    assert_fails(&["bench", "paillier", "--batch", "0"], 2, "--batch");
    assert_fails(&["bench", "paillier", "--key-bits", "100"], 2, "--key-bits");
}

#[test]
fn what_a_pair_of_clients_costs() {
    let arguments = ["bench", "clients", "--clients", "4,8", "--rows", "10"];
    let object = json(&undertone(
        &[&arguments[..], &["--bits", "100", "--json"]].concat(),
    ));
    let runs = object["runs"].as_array().unwrap();
    let pairs: Vec<_> = runs.iter().map(|run| run["pairs"].as_u64()).collect();
    assert_eq!(pairs, [Some(6), Some(28)]);
    let sent = |run: &Value, phase: &str| {
        let mut phases = run["phases"].as_array().unwrap().iter();
        let of = phases.find(|other| other["phase"] == phase).unwrap();
        of["bytes"].as_u64().unwrap()
    };
    // Each of the two clients of a pair sends 7 bits for a distance.
    assert!(sent(&runs[1], "distances") > 28 * 2 * 10 * 10 * 7 / 8);
    assert!(sent(&runs[1], "distances") < 10 * sent(&runs[0], "distances"));
    for run in runs {
        let ms = |value: &Value| value.as_f64().unwrap();
        let phases = run["phases"].as_array().unwrap().iter();
        let parts = phases.map(|phase| ms(&phase["ms"])).sum::<f64>();
        let parts = parts + ms(&run["outside_ms"]) + ms(&run["around_ms"]);
        assert!((parts - 1e3 * ms(&run["seconds"])).abs() < 1.0, "{run}");
        assert!(run["accuracy"].as_f64().unwrap() > 50.0);
    }
    assert_fails(&["bench", "clients", "--clients", "2"], 2, "3 or more");
}

#[test]
fn distances_are_measured() {
    for backend in ["psm", "sketch", "clear", "shade", "phe"] {
        let arguments = [
            "bench",
            "distances",
            "--backend",
            backend,
            "--clients",
            "3",
            "--rows",
            "20",
            "--bits",
            "100",
            "--repeat",
            "1",
            "--json",
        ];
        let keys = match backend {
            "phe" => &["--key-bits", "2048"][..],
            _ => &[],
        };
        let object = json(&undertone(&[&arguments[..], keys].concat()));
        assert_eq!(object["exact"], true);
        assert_eq!(object["distances"], 3 * 20 * 20);
        match backend {
            "shade" | "phe" => assert!(object["offline_bytes_per_distance"].as_f64() > Some(0.0)),
            _ => assert_eq!(object["rounds"], if backend == "psm" { 3 } else { 1 }),
        }
        assert!(object["cpu_us_per_distance"].as_f64().unwrap() > 0.0);
        assert!(object["bytes_per_distance"].as_f64().unwrap() > 0.0);
    }
    assert_fails(&["bench", "distances", "--bits", "65536"], 2, "--bits");
    assert_fails(&["bench", "distances", "--clients", "1"], 2, "--clients");
}
