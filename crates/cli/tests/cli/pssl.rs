//! A graph between pairs of clients: the experiment, and jobs as processes.

use std::path::Path;
use std::sync::Arc;

use undertone::data::Kind;
use undertone::job::Known;
use undertone::kdf::Seed;
use undertone::label::Rows;
use undertone::node::jobs;
use undertone::party::Network;
use undertone::pssl::{Data, Job, quantise, simulation};

use super::network::{LONG, Process, Trial};
use super::{assert_fails, data, json, undertone};

const CLIENTS: usize = 4;

/// The command with a few small clients, and `more`.
fn run(more: &[&str]) -> std::process::Output {
    let digits = data("digits");
    let mut arguments = vec!["pssl", &digits, "--classes", "1,2,3,4", "--clients", "4"];
    arguments.extend(["--runs", "2", "--set", "rounds=5", "--set", "asked=6"]);
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
        let object = json(&run(&[
            "--json",
            "--set",
            "reveal=accept",
            "--set",
            "local_start=true",
        ]));
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
    let refused_job = |set: &[&str], expected: &str| {
        let more: Vec<&str> = set.iter().flat_map(|pair| ["--set", pair]).collect();
        refused(&more, 2, expected);
    };
    refused_job(&["lambda=2"], "82 of 100");
    refused_job(&["d_min=3", "d_max=2"], "d_min");
    refused_job(&["reveal=all"], "bucket, distance, accept");
    refused_job(&["rounds=1", "rounds=2"], "--set states rounds twice");
    refused_job(&["features=64"], "features: it follows from the data");
    refused_job(&["rounds"], "'rounds' is not KEY=VALUE");
    refused_job(
        &["round=5"],
        "round: is no key of the job; its keys are features,",
    );
    refused(&["--clients", "2"], 2, "three or more");
    refused(&["--labelled", "1"], 2, "--labelled");
    refused(&["--classes", "1,1"], 2, "twice");
    refused(&["--classes", "1,x"], 65, "no class 'x'");
}

const JOB: &str = "application = \"pssl\"\nfeatures = 64\nclasses = 10\nscale = 16\nasked = 8\n\
                   clusters = 4\nrounds = 4\n";

/// The labels of the same clients in one process.
fn in_one_process(trial: &Trial) -> Vec<Vec<Option<u16>>> {
    let text = trial.text("keys/job.toml");
    let job: Job = jobs::parse(&text, Known::new(true)).unwrap();
    let client = |client: usize| {
        let path = trial.path(&format!("data/client-{client}.npz"));
        let data = undertone::data::load(Path::new(&path), Kind::Features, None).unwrap();
        let Rows::Features(features) = data.rows else {
            panic!("features");
        };
        let values = quantise(features.values(), job.range, job.scale).unwrap();
        Arc::new(Data::new(features.dim(), values, data.labels).unwrap())
    };
    let mut seed = [0; 32];
    seed[..8].copy_from_slice(&4u64.to_le_bytes());
    let clients: Vec<_> = (0..CLIENTS).map(client).collect();
    let simulation = simulation(job, clients, Seed::from_bytes(seed));
    let run = simulation.unwrap().run(Network::new()).unwrap();
    run.clients
        .into_iter()
        .map(|client| client.unwrap().labels)
        .collect()
}

fn labels(trial: &Trial, client: usize) -> Vec<Option<u16>> {
    let text = trial.text(&format!("{client}.csv"));
    let label = |line: &str| line.split(',').nth(1).unwrap().parse::<u16>().ok();
    text.lines().skip(1).map(label).collect()
}

#[test]
fn processes_label_as_one_does() {
    let trial = Trial::with_clients(CLIENTS, "digits", JOB);
    let mut server = trial.serve("serve", &["--jobs", "1"]);
    let join = |client| trial.join(client, &["--application", "pssl"]);
    let mut clients: Vec<Process> = (0..CLIENTS).map(join).collect();
    trial.come_home(&mut clients);
    assert_eq!(server.ends(LONG), Some(0), "{}", trial.text("serve.err"));
    assert_eq!(trial.report()["results"]["contributors"], CLIENTS);
    for (client, due) in in_one_process(&trial).into_iter().enumerate() {
        assert_eq!(labels(&trial, client), due, "client {client}");
        let report: serde_json::Value =
            serde_json::from_str(&trial.text(&format!("join-{client}.out"))).unwrap();
        assert_eq!(report["edges"].as_array().unwrap().len(), CLIENTS - 1);
    }
}

#[test]
fn a_client_that_is_killed_is_left_out() {
    let trial = Trial::with_clients(
        CLIENTS,
        "digits",
        &format!("{JOB}malicious_server = false\n"),
    );
    let mut server = trial.serve("serve", &["--jobs", "1", "--grace", "1"]);
    let join = |client| trial.join(client, &["--application", "pssl", "--semi-honest"]);
    let mut clients: Vec<Process> = (0..CLIENTS).map(join).collect();
    trial.until(|status| status["phase"] == "edges");
    drop(clients.pop());
    trial.come_home(&mut clients);
    assert_eq!(server.ends(LONG), Some(0), "{}", trial.text("serve.err"));
    for client in 0..CLIENTS - 1 {
        assert!(labels(&trial, client).iter().flatten().count() > 100);
    }
}

#[test]
fn terms_that_are_not_met_are_refused() {
    let job = format!("{JOB}reveal = \"distance\"\nallow_single = true\nd_min = 0.1\n");
    let trial = Trial::with_clients(3, "digits", &job);
    let _server = trial.serve("serve", &[]);
    let refused = |client: usize, more: &[&str], expected: &str| {
        let arguments = [&["--application", "pssl"], more].concat();
        let mut process = trial.join(client, &arguments);
        assert_eq!(process.ends(LONG), Some(77));
        let log = trial.text(&format!("join-{client}.err"));
        assert!(log.contains(expected), "{log}");
    };
    refused(
        0,
        &[],
        "(term reveal); --accept reveal=VALUE states another term",
    );
    refused(1, &["--accept", "reveal=distance"], "(term d_min)");
    let more = ["--accept", "reveal=distance", "--accept", "d_min=0"];
    refused(2, &more, "(term allow_single)");
    let more = [&more[..], &["--accept", "allow_single=true"]].concat();
    refused(
        0,
        &[&more[..], &["--accept", "max_rounds=3"]].concat(),
        "(term max_rounds)",
    );
    let wrong = |more: &[&str], expected: &str| {
        let arguments = [&["--application", "pssl"], more].concat();
        let mut process = trial.join(1, &arguments);
        assert_eq!(process.ends(LONG), Some(2));
        let log = trial.text("join-1.err");
        assert!(log.contains(expected), "{log}");
    };
    wrong(
        &["--accept", "d_max=1"],
        "--accept d_max: is none of the terms, which are min_clients,",
    );
    wrong(
        &["--accept", "min_clients=3", "--min-clients", "4"],
        "--min-clients and --accept",
    );
}
