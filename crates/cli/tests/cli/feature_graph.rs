//! A graph network over clients: the experiment and its benchmark.

use super::{assert_fails, data, json, undertone};

/// The command with a few small networks, and `more`.
fn run(more: &[&str]) -> std::process::Output {
    let digits = data("digits");
    let mut arguments = vec!["fedgraph", &digits, "--clients", "5", "--features", "0.2"];
    arguments.extend([
        "--runs", "1", "--epochs", "5", "--steps", "20", "--width", "16",
    ]);
    arguments.extend(more);
    undertone(&arguments)
}

#[test]
fn clients_vote_better_than_alone() {
    let folder = tempfile::TempDir::new().unwrap();
    let plot = folder.path().join("plot.svg");
    let more = [
        "--json",
        "--clusters-only",
        "--plot",
        plot.to_str().unwrap(),
    ];
    let object = json(&run(&more));
    let number = |key: &str| object[key].as_f64().unwrap();
    assert!(
        number("soft_vote") > number("client_mean") + 0.1,
        "{object}"
    );
    assert!(
        number("gcn_crc") > 0.1 && number("gcn_random") > 0.05,
        "{object}"
    );
    assert!(object["gcn_unclustered"].is_null());
    assert!(number("client_bytes_training") > number("client_bytes_vote"));
    let phases = object["phases"].as_array().unwrap();
    let names: Vec<&str> = phases
        .iter()
        .map(|p| p["phase"].as_str().unwrap())
        .collect();
    let due = [
        "setup",
        "features",
        "soft vote",
        "graph network",
        "prediction",
    ];
    assert_eq!(names, due);
    assert!(std::fs::read_to_string(&plot).unwrap().contains("<svg"));
}

#[test]
fn cuts_and_layers_are_options_and_a_seed_fixes_the_experiment() {
    let accuracies = |more: &[&str]| {
        let arguments = [&["--json", "--clusters-only", "--layer", "1"], more].concat();
        let object = json(&run(&arguments));
        assert_eq!(object["layer"], 1);
        let recommended = object["recommended_layers"].as_array().unwrap();
        assert_eq!(
            recommended.iter().map(|n| n.as_u64().unwrap()).sum::<u64>(),
            5
        );
        ["client_mean", "soft_vote", "gcn_crc"].map(|key| object[key].to_string())
    };
    let server = accuracies(&["--cut", "server"]);
    assert_eq!(server, accuracies(&["--cut", "server"]));
    let embeddings = accuracies(&["--cut", "embeddings"]);
    assert_eq!(server[..2], embeddings[..2]);
    let text = String::from_utf8(run(&["--clusters-only", "--cut", "server"]).stdout).unwrap();
    assert!(text.contains("soft vote of all clients"), "{text}");
}

#[test]
fn a_graph_network_is_measured() {
    let arguments = [
        "bench",
        "graph",
        "--clients",
        "4",
        "--clusters",
        "6",
        "--width",
        "8",
    ];
    let object = json(&undertone(
        &[&arguments[..], &["--steps", "3", "--json"]].concat(),
    ));
    assert_eq!(object["exact"], true);
    let cuts = object["cuts"].as_array().unwrap();
    assert_eq!(cuts.len(), 3);
    let rounds = |cut: usize| cuts[cut]["rounds"].as_u64().unwrap();
    // A step has two sums with the cut `server`, four with the cut `client`.
    assert!(rounds(0) < rounds(1) && rounds(1) < rounds(2), "{object}");
}

#[test]
fn what_is_not_possible_is_refused() {
    let digits = data("digits");
    let refused = |more: &[&str], code: i32, expected: &str| {
        assert_fails(&[&["fedgraph", &digits[..]], more].concat(), code, expected);
    };
    refused(&["--clients", "2"], 2, "clients: 2; from 3");
    refused(&["--features", "0"], 2, "--features");
    refused(&["--cluster", "0"], 2, "cluster");
    refused(&["--layer", "4"], 2, "--layer");
    refused(&["--cut", "middle"], 2, "embeddings, server, client");
}
