//! The experiment with a graph between pairs of clients.

use super::{assert_fails, data, json, undertone};

/// The command with a few small clients, and `more`.
fn run(more: &[&str]) -> std::process::Output {
    let digits = data("digits");
    let mut arguments = vec!["pssl", &digits, "--classes", "1,2,3,4", "--clients", "4"];
    arguments.extend(["--runs", "2", "--rounds", "5", "--asked", "6"]);
    arguments.extend(more);
    undertone(&arguments)
}

#[test]
fn clients_with_a_joint_graph_do_better_than_alone() {
    let folder = tempfile::TempDir::new().unwrap();
    let plot = folder.path().join("plot.svg");
    let object = json(&run(&["--json", "--plot", plot.to_str().unwrap()]));
    let number = |key: &str| object[key].as_f64().unwrap();
    assert!(number("cssl_mean") > number("pssl_mean"), "{object}");
    assert!(number("pssl_mean") > number("lssl_mean") + 0.05, "{object}");
    assert!(number("edges_per_pair") > 20.0 && number("edges_per_pair") <= 48.0);
    assert!(number("same_class_share") > 0.5);
    let phases = object["phases"].as_array().unwrap();
    let names: Vec<&str> = phases
        .iter()
        .map(|p| p["phase"].as_str().unwrap())
        .collect();
    assert_eq!(names.len(), 7, "{names:?}");
    assert!(
        names.contains(&"edges") && names.contains(&"slots"),
        "{names:?}"
    );
    assert!(std::fs::read_to_string(&plot).unwrap().contains("<svg"));
    // The estimate that is printed before a run holds, but for messages of fixed size.
    let text = String::from_utf8(run(&[]).stdout).unwrap();
    assert!(
        text.contains("a pair of clients sends from about"),
        "{text}"
    );
}

#[test]
fn a_seed_fixes_the_experiment() {
    let fixed = || {
        let object = json(&run(&["--json", "--reveal", "accept", "--local-start"]));
        ["pssl_mean", "cssl_mean", "edges_per_pair"].map(|key| object[key].to_string())
    };
    assert_eq!(fixed(), fixed());
}

#[test]
fn a_pair_is_measured() {
    let arguments = [
        "bench",
        "pairs",
        "--rows",
        "30",
        "--features",
        "9",
        "--repeat",
        "1",
    ];
    let object = json(&undertone(&[&arguments[..], &["--json"]].concat()));
    assert_eq!(object["exact"], true);
    let number = |key: &str| object[key].as_f64().unwrap();
    // Base transfers and proofs are not in the estimate.
    assert!(
        number("bytes") < number("bytes_at_most") + 200e3,
        "{object}"
    );
}

#[test]
fn what_is_not_possible_is_refused() {
    let digits = data("digits");
    let refused = |more: &[&str], code: i32, expected: &str| {
        assert_fails(&[&["pssl", &digits[..]], more].concat(), code, expected);
    };
    refused(&["--lambda", "2"], 2, "82 of 100");
    refused(&["--d-min", "3", "--d-max", "2"], 2, "d_min");
    refused(&["--clients", "2"], 2, "three or more");
    refused(&["--labelled", "1"], 2, "--labelled");
    refused(&["--classes", "1,1"], 2, "twice");
    refused(&["--classes", "1,x"], 65, "no class 'x'");
    refused(&["--reveal", "all"], 2, "bucket, distance, accept");
}
