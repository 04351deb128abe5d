//! `undertone plan` says what runs take.

use super::*;

fn plan(arguments: &[&str]) -> Value {
    let fixed = ["plan", "--no-times", "--json"];
    json(&undertone(&[&fixed, arguments].concat()))
}

/// The way of this name.
fn way<'a>(plan: &'a Value, name: &str) -> &'a Value {
    let ways = plan["ways"].as_array().unwrap();
    ways.iter().find(|way| way["name"] == name).unwrap()
}

/// What the server of a run received or sent.
fn of_the_server(run: &Value, key: &str) -> f64 {
    let costs = run["phases"].as_array().unwrap();
    let own = costs.iter().filter(|cost| cost["party"] == "server");
    own.map(|cost| cost[key].as_f64().unwrap()).sum()
}

fn near(have: f64, due: f64, share: f64) {
    assert!((have - due).abs() <= share * due, "{have}, due are {due}");
}

/// Bytes within 1 % of label propagation on real data.
#[test]
fn bytes_are_those_of_runs() {
    for backend in ["clear", "psm", "lwe", "shade"] {
        let file = data("wine");
        let run = [
            "label",
            &file,
            "--json",
            "--clients",
            "3",
            "--runs",
            "1",
            "--labelled",
            "0.2",
            "--backend",
            backend,
            "--set",
            "bits=1000",
        ];
        let run = json(&undertone(&run));
        let planned = plan(&[
            "--clients",
            "3",
            "--rows",
            "178",
            "--features",
            "13",
            "--classes",
            "3",
            "--labelled",
            "0.2",
            "--set",
            "bits=1000",
            "--backends",
            backend,
        ]);
        let way = way(&planned, backend);
        for key in ["bytes_sent", "bytes_received"] {
            near(
                of_the_server(&run, key),
                way["server"][key].as_f64().unwrap(),
                0.01,
            );
        }
        assert_eq!(way["rounds_are_exact"], matches!(backend, "clear" | "psm"));
    }
}

/// With cells, plans take all cells to have the same number of rows.
#[test]
fn bytes_with_cells_are_near_those_of_runs() {
    let file = data("digits");
    for backend in ["clear", "psm", "lwe"] {
        let options = ["--cells", "6", "--set", "probes=2", "--set", "bits=256"];
        let run = [
            "label",
            &file,
            "--json",
            "--runs",
            "1",
            "--backend",
            backend,
        ];
        let run = json(&undertone(&[&run[..], &options].concat()));
        let sizes = [
            "--rows",
            "1797",
            "--features",
            "64",
            "--classes",
            "10",
            "--backends",
            backend,
        ];
        let options = ["--set", "cells=6", "--set", "probes=2", "--set", "bits=256"];
        let planned = plan(&[&sizes[..], &options].concat());
        let way = way(&planned, backend);
        assert_eq!(way["cells_are_even"], true);
        let received = of_the_server(&run, "bytes_received");
        let due = way["server"]["bytes_received"].as_f64().unwrap();
        assert!(
            (0.97..1.35).contains(&(received / due)),
            "{received}, {due}"
        );
    }
}

/// What a run in cells accepts is planned, also where all rows at once would be too many.
#[test]
fn in_cells_more_rows_can_be_planned() {
    let sizes = ["--rows", "500000", "--features", "64", "--classes", "10"];
    let cells = ["--set", "cells=1000", "--clients", "100"];
    let planned = plan(&[&sizes[..], &cells].concat());
    let what = planned["what"].as_str().unwrap();
    assert!(what.contains("1000 cells, 5 of a row"), "{what}");
    for name in ["lwe", "shade", "phe"] {
        assert_eq!(way(&planned, name)["cells_are_even"], true);
    }
}

/// All parties of a run hold about the memory that was planned: within a factor of two.
#[test]
fn memory_is_that_of_runs() {
    const IDLE: f64 = 12.0;
    for (backend, rows, clients) in [("psm", 1000, 3), ("lwe", 700, 3), ("shade", 200, 3)] {
        let (each, count) = (rows.to_string(), clients.to_string());
        let run = [
            "bench",
            "clients",
            "--json",
            "--threads",
            "2",
            "--clients",
            &count,
            "--rows",
            &each,
            "--backend",
            backend,
            "--bits",
            "4096",
        ];
        let run = json(&undertone(&run));
        let peak = run["runs"][0]["peak_mib"].as_f64().unwrap() - IDLE;
        let all = (rows * clients).to_string();
        let planned = plan(&[
            "--clients",
            &count,
            "--rows",
            &all,
            "--features",
            "64",
            "--classes",
            "10",
            "--backends",
            backend,
        ]);
        let way = way(&planned, backend);
        let of = |party: &str| way[party]["memory"].as_f64().unwrap() / f64::from(1 << 20);
        let most = of("server") + f64::from(clients) * of("client");
        assert!(
            peak < 2.0 * most && most < 2.0 * peak,
            "{backend}: {peak}, {most}"
        );
    }
}

/// Each application has a plan, also from the file of a job.
#[test]
fn all_applications_have_plans() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("job.toml");
    let file = file.to_str().unwrap();
    for (job, more) in [
        ("classes = 3", vec!["--rows", "300", "--features", "5"]),
        (
            "application = \"sum\"\nrounds = 3",
            vec!["--values", "1000"],
        ),
        (
            "application = \"train\"\nmodel = \"own\"\nfeatures = 6\nclasses = 3\nparameters = 100",
            vec!["--rows", "300"],
        ),
        (
            "application = \"cotrain\"\nclasses = 3\nrows = 50\nfeatures = 4\npublic = \
             \"0000000000000000000000000000000000000000000000000000000000000000\"",
            vec![],
        ),
        (
            "application = \"pssl\"\nfeatures = 6\nclasses = 3\n[deadlines]\ndefault = 5",
            vec!["--rows", "300"],
        ),
        (
            "application = \"fedgraph\"\nrows = 30\nqueries = 40\nclasses = 3",
            vec!["--features", "4"],
        ),
    ] {
        std::fs::write(file, job).unwrap();
        let mut arguments = vec![file, "--link", "10Mbit/s,20ms", "--link", "1Gbit/s,1ms"];
        arguments.extend(more);
        let planned = plan(&arguments);
        for way in planned["ways"].as_array().unwrap() {
            let over = way["over"].as_array().unwrap();
            let seconds = |at: usize| over[at]["seconds"].as_f64().unwrap();
            assert!(seconds(0) > seconds(1) && seconds(1) > 0.0, "{job}");
            assert!(way["client"]["bytes_sent"].as_u64() > Some(0), "{job}");
            assert!(way["rounds"].as_u64() > Some(0), "{job}");
        }
        let text = undertone(&[&["plan", "--no-times"], &arguments[..]].concat());
        assert!(text.status.success() && !text.stdout.is_empty());
    }
}

/// What is measured once is kept in the user's cache folder.
#[test]
fn costs_are_measured_once() {
    let folder = TempDir::new().unwrap();
    let run = |more: &[&str]| {
        let fixed = ["plan", "--application", "sum", "--values", "1000", "--json"];
        let arguments = [&fixed, more].concat();
        let mut command = Command::new(PROGRAM);
        command.env("XDG_CACHE_HOME", folder.path());
        json(&command.args(arguments).output().unwrap())
    };
    let seconds = |run: &Value| run["ways"][0]["client"]["seconds"].as_f64().unwrap();
    let first = run(&[]);
    assert!(seconds(&first) > 0.0);
    let file = folder.path().join("undertone/calibration.json");
    let kept = std::fs::read(&file).unwrap();
    let near = |have: f64, due: f64| (have - due).abs() <= 1e-9 * due;
    assert!(near(seconds(&run(&[])), seconds(&first)));
    assert_eq!(std::fs::read(&file).unwrap(), kept);
    run(&["--calibrate"]);
    assert_ne!(std::fs::read(&file).unwrap(), kept);
}

/// The times of graphs come from short runs with smaller sizes. Those of a job without steps say
/// nothing about steps.
#[test]
fn graphs_have_times() {
    let folder = TempDir::new().unwrap();
    let run = |arguments: &str| {
        let mut command = Command::new(PROGRAM);
        command.env("XDG_CACHE_HOME", folder.path());
        command.args(["plan", "--json"]);
        let plan = json(&command.args(arguments.split(' ')).output().unwrap());
        let way = &plan["ways"][0];
        ["client", "server"].map(|side| way[side]["seconds"].as_f64().unwrap())
    };
    let network = "--application fedgraph --clients 3 --features 2 --set rows=30 --set queries=9 \
                   --set classes=3 --set width=8 --set steps=";
    let [none, few, many] = [0, 20, 2000].map(|steps| run(&format!("{network}{steps}"))[0]);
    assert!(
        0.0 < none && none < few && 10.0 * few < many,
        "{none} {few} {many}"
    );
    let embeddings = run(&format!("{network}2000 --set cut=embeddings"));
    assert!(embeddings[0] < many && embeddings[1] > embeddings[0]);
    let pairs = "--application pssl --clients 3 --rows 90 --set features=3 --set classes=2";
    for more in ["", " --set scale=1", " --set clusters=1"] {
        assert!(run(&format!("{pairs}{more}"))[0] > 0.0, "{more}");
    }
}

#[test]
fn what_a_plan_lacks_is_named() {
    for (arguments, expected) in [
        (&["plan"][..], "--rows"),
        (&["plan", "--rows", "100"], "--features"),
        (&["plan", "--rows", "100", "--features", "3"], "--classes"),
        (&["plan", "--application", "sum"], "--values"),
        (&["plan", "--application", "sums"], "there are label, sum"),
        (&["plan", "--rows", "9", "--clients", "2"], "--clients"),
        (&["plan", "--rows", "9", "--clients", "0"], "--clients"),
        (&["plan", "--set", "bots=3"], "bots"),
        (&["plan", "--link", "fast"], "100Mbit/s,40ms"),
        (&["plan", "--rows", "99", "--labelled", "2"], "--labelled"),
        (&["plan", "--rows", "99", "--values", "2"], "--values"),
        (
            &[
                "plan",
                "--rows",
                "99",
                "--set",
                "classes=3",
                "--classes",
                "2",
            ],
            "--classes is 2",
        ),
        (&["plan", "--clients", "99999999999999999"], "--clients"),
        (&["plan", "--clients", "10001"], "--clients"),
    ] {
        assert_fails(arguments, 2, expected);
    }
}

/// Sizes that no run accepts. Of the usual backends those that can run are compared.
#[test]
fn what_no_run_accepts_is_refused() {
    let label = ["plan", "--no-times", "--json", "--classes", "3"];
    let refused = |more: &[&str], expected: &str| {
        assert_fails(&[&label, more].concat(), 2, expected);
    };
    refused(&["--rows", "100", "--features", "0"], "--features");
    refused(&["--rows", "9", "--features", "3"], "neighbours");
    let cells = ["--rows", "600", "--features", "3", "--set", "cells=30"];
    refused(&cells, "take at most 3 cells");
    refused(&["--rows", "99999999999", "--features", "3"], "--rows");
    let many = ["--rows", "500000", "--features", "3", "--backends"];
    refused(&[&many[..], &["lwe"]].concat(), "lwe");
    refused(&[&many[..], &["shade"]].concat(), "shade");
    let names = |more: &[&str]| -> Vec<String> {
        let plan = json(&undertone(&[&label, more].concat()));
        let ways = plan["ways"].as_array().unwrap();
        ways.iter()
            .map(|way| way["name"].as_str().unwrap().to_owned())
            .collect()
    };
    let sizes = ["--rows", "600", "--features", "3"];
    assert_eq!(names(&sizes), ["lwe", "shade", "phe"]);
    let psm = ["--set", "backend=psm", "--set", "bits=20000"];
    assert_eq!(names(&[&sizes[..], &psm].concat()), ["psm", "shade", "phe"]);
    assert_eq!(names(&many[..4]), ["phe"]);
}
