//! A graph network over clients: the experiment, its benchmark, and jobs as processes.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

use undertone::data::Kind;
use undertone::fedgraph::{Inputs, Job, Matrix, simulation};
use undertone::job::Known;
use undertone::kdf::{Seed, simulated};
use undertone::label::Rows as Loaded;
use undertone::nets::{Local, LocalSettings, unit_scale};
use undertone::node::jobs;
use undertone::party::{Network, PartyId, SessionId};
use undertone::train::Rows;

use super::network::{LONG, Process, Trial};
use super::{assert_fails, data, json, undertone};

/// The command with a few small networks, and `more`.
fn run(more: &[&str]) -> std::process::Output {
    let digits = data("digits");
    let mut arguments = vec!["fedgraph", &digits, "--clients", "5", "--features", "0.2"];
    arguments.extend([
        "--runs", "1", "--epochs", "15", "--steps", "150", "--width", "16",
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

const CLIENTS: usize = 4;

fn class(row: usize) -> usize {
    row * 5 % 3
}

pub(crate) fn job(more: &str) -> String {
    format!(
        "application = \"fedgraph\"\nrows = 50\nqueries = 10\nclasses = 3\nwidth = 8\n\
         cluster = 10\ncheckpoint = 5\n{more}"
    )
}

/// The rows of a client.
pub(crate) fn file(client: usize) -> String {
    format!("data/{client}.csv")
}

/// A trial whose clients have four of eight columns each: 60 rows, the last ten without a label.
pub(crate) fn trial(more: &str) -> Trial {
    let trial = Trial::with_clients(CLIENTS, "digits", &job(more));
    for client in 0..CLIENTS {
        let columns: Vec<usize> = (0..4).map(|k| (2 * client + k) % 8).collect();
        let mut text = String::new();
        for column in &columns {
            write!(text, "column {column},").unwrap();
        }
        text += "label\n";
        for row in 0..60 {
            for column in &columns {
                let noise = (row * 31 + column * 17) % 10;
                let centre = if column % 3 == class(row) { 20 } else { 4 };
                write!(text, "{},", centre + noise).unwrap();
            }
            if row < 50 {
                write!(text, "{}", class(row)).unwrap();
            }
            text += "\n";
        }
        std::fs::write(trial.path(&file(client)), text).unwrap();
    }
    trial
}

fn join(trial: &Trial, client: usize, more: &[&str]) -> Process {
    let mut arguments = vec![
        "--application",
        "fedgraph",
        "--epochs",
        "400",
        "--accept",
        "show_embeddings=true",
    ];
    if !more.iter().any(|term| term.starts_with("min_network")) {
        arguments.extend(["--accept", "min_network=4"]);
    }
    arguments.extend(more);
    trial.join_with(client, &file(client), &arguments)
}

/// The labels that a client wrote.
fn labels(trial: &Trial, client: usize) -> Vec<usize> {
    let text = trial.text(&format!("{client}.csv"));
    let label = |line: &str| line.split(',').nth(1).unwrap().parse().unwrap();
    text.lines().skip(1).map(label).collect()
}

#[test]
fn processes_vote_and_train() {
    let trial = trial("steps = 6\npredict = \"graph\"\n");
    let mut server = trial.serve("serve", &["--jobs", "1"]);
    let join = |client| join(&trial, client, &["--accept", "reveal_embeddings=true"]);
    let mut clients: Vec<Process> = (0..CLIENTS).map(join).collect();
    trial.come_home(&mut clients);
    assert_eq!(server.ends(LONG), Some(0), "{}", trial.text("serve.err"));
    let results = &trial.report()["results"];
    assert_eq!(results["clients"], CLIENTS);
    assert_eq!(
        (&results["clusters"], &results["in_network"]),
        (&5.into(), &CLIENTS.into())
    );
    let all: Vec<Vec<usize>> = (0..CLIENTS).map(|client| labels(&trial, client)).collect();
    assert!(
        all.iter()
            .all(|labels| *labels == all[0] && labels.len() == 60)
    );
    assert!((0..50).all(|row| all[0][row] == class(row)));
    let report: serde_json::Value = serde_json::from_str(&trial.text("join-1.out")).unwrap();
    assert_eq!(
        (&report["by_graph"], &report["predicted_rows"]),
        (&true.into(), &10.into())
    );
}

/// The votes of the same clients in one process: the class of each row to predict.
fn in_one_process(trial: &Trial) -> Vec<usize> {
    let known = Known {
        clients: Some(CLIENTS),
        ..Known::new(true)
    };
    let job: Job = jobs::parse(&trial.text("keys/job.toml"), known).unwrap();
    let mut seed = [0; 32];
    seed[..8].copy_from_slice(&4u64.to_le_bytes());
    let seed = Seed::from_bytes(seed);
    let own = simulated::party(&seed, SessionId([0; 32]), PartyId::client(0));
    let inputs = |client: usize| {
        let path = trial.path(&file(client));
        let data = undertone::data::load(Path::new(&path), Kind::Features, None).unwrap();
        let Loaded::Features(features) = data.rows else {
            panic!("features");
        };
        let values = unit_scale(features.values(), features.dim());
        let dim = features.dim();
        let (known, asked) = values.split_at(job.rows * dim);
        let rows = |values| Rows { values, dim };
        let settings = LocalSettings {
            width: job.width,
            epochs: 400,
            ..LocalSettings::new(job.classes)
        };
        let labels: Vec<u16> = data.labels.into_iter().flatten().collect();
        let local = Local::fit(rows(known), &labels, settings, &own).unwrap();
        let matrix = |rows: usize, columns: usize, values: Vec<f32>| {
            let values = values.into_iter().map(f64::from).collect();
            Matrix::new(rows, columns, values).unwrap()
        };
        let embeddings = |part| local.embeddings(rows(part), settings.layers).unwrap();
        let shares = local.probabilities(rows(asked)).unwrap();
        Arc::new(Inputs {
            columns: data.columns,
            labels,
            embeddings: matrix(job.rows, job.width, embeddings(known)),
            probabilities: matrix(job.queries, job.classes, shares),
            queries: matrix(job.queries, job.width, embeddings(asked)),
        })
    };
    let clients: Vec<_> = (0..CLIENTS).map(inputs).collect();
    let mut simulation = simulation(job, clients, seed).unwrap();
    let run = simulation.run(Network::new()).unwrap();
    let votes = run.clients[0].as_ref().unwrap().votes.clone().unwrap();
    let best = |row: &[f64]| {
        let classes = 0..row.len();
        classes
            .rev()
            .max_by(|a, b| row[*a].total_cmp(&row[*b]))
            .unwrap()
    };
    votes.each_row().map(best).collect()
}

/// The checkpoint of a client, in the folder of its record.
pub(crate) fn kept(trial: &Trial, client: usize) -> String {
    trial.path(&format!(
        "keys/client-{client}/records/client-{client}/fedgraph"
    ))
}

/// The last client leaves all rosters. Returns them as they were.
pub(crate) fn without_the_last(trial: &Trial) -> Vec<(String, String)> {
    let rosters = (0..CLIENTS).map(|client| format!("keys/client-{client}/roster.toml"));
    let rosters = rosters.chain(["keys/roster.toml".into()]);
    let rosters: Vec<(String, String)> = rosters
        .map(|name| (trial.path(&name), trial.text(&name)))
        .collect();
    for (path, roster) in &rosters {
        let (part, _) = roster.rsplit_once("[[client]]").unwrap();
        std::fs::write(path, part).unwrap();
    }
    rosters
}

#[test]
fn processes_vote_as_one_does() {
    let trial = trial("steps = 0\n");
    let mut server = trial.serve("serve", &["--jobs", "1"]);
    let join = |client| join(&trial, client, &[]);
    let mut clients: Vec<Process> = (0..CLIENTS).map(join).collect();
    trial.come_home(&mut clients);
    assert_eq!(server.ends(LONG), Some(0), "{}", trial.text("serve.err"));
    let due = in_one_process(&trial);
    for client in 0..CLIENTS {
        assert_eq!(labels(&trial, client)[50..], due, "client {client}");
        // A client that votes again has the same network.
        assert!(Path::new(&kept(&trial, client)).exists());
    }
}

#[test]
fn a_client_that_is_killed_ends_the_job_and_all_together_continue_it() {
    let trial = trial("steps = 250\n");
    let checkpoint = trial.path("kept");
    let serve = |log| {
        let options = ["--jobs", "1", "--grace", "1", "--checkpoint", &checkpoint];
        trial.serve(log, &options)
    };
    let start = || -> Vec<Process> {
        (0..CLIENTS)
            .map(|client| join(&trial, client, &[]))
            .collect()
    };
    let mut server = serve("serve");
    let mut clients = start();
    let files = (0..CLIENTS).map(|client| kept(&trial, client));
    let files: Vec<String> = files.chain([checkpoint.clone()]).collect();
    let begun = std::time::Instant::now();
    let wait = |until: &dyn Fn() -> bool| {
        while !until() && begun.elapsed() < LONG {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    };
    wait(&|| files.iter().all(|file| Path::new(file).exists()));
    // The first checkpoint may be from before the training.
    let first = std::fs::read(&checkpoint).unwrap();
    wait(&|| std::fs::read(&checkpoint).is_ok_and(|now| now != first));
    drop(clients.pop());
    for (client, process) in clients.iter_mut().enumerate() {
        assert_eq!(process.ends(LONG), Some(70));
        let log = trial.text(&format!("join-{client}.err"));
        assert!(log.contains("the soft vote had been taken"), "{log}");
        // The vote is right for nearly all of the last rows.
        let labels = labels(&trial, client);
        assert!((50..60).filter(|row| labels[*row] == class(*row)).count() >= 8);
    }
    assert_ne!(server.ends(LONG), Some(0));
    assert!(Path::new(&checkpoint).exists());

    // Without the checkpoints of one of them nobody continues.
    let aside = trial.path("aside");
    std::fs::rename(kept(&trial, 2), &aside).unwrap();
    let mut server = serve("serve");
    let mut clients = start();
    for process in &mut clients {
        assert_ne!(process.ends(LONG), Some(0));
    }
    assert_ne!(server.ends(LONG), Some(0));
    let log = trial.text("serve.err");
    assert!(log.contains("no checkpoint is with all parties"), "{log}");
    std::fs::rename(&aside, kept(&trial, 2)).unwrap();

    // Nor does a part of the clients.
    let rosters = without_the_last(&trial);
    assert_eq!(serve("serve").ends(LONG), Some(65));
    let log = trial.text("serve.err");
    assert!(log.contains("it belongs to another job"), "{log}");
    let server = trial.serve("serve", &["--jobs", "1"]);
    for client in 0..CLIENTS - 1 {
        let mut process = join(&trial, client, &["--accept", "min_network=3"]);
        assert_eq!(process.ends(LONG), Some(77));
        let log = trial.text(&format!("join-{client}.err"));
        assert!(log.contains("it belongs to another job"), "{log}");
    }
    drop(server);
    for (path, roster) in &rosters {
        std::fs::write(path, roster).unwrap();
    }

    // All together continue.
    let mut server = serve("serve");
    let mut clients = start();
    trial.come_home(&mut clients);
    assert_eq!(server.ends(LONG), Some(0), "{}", trial.text("serve.err"));
    assert!(Path::new(&checkpoint).exists());
}

#[test]
fn terms_and_data_that_do_not_fit_are_refused() {
    let trial = trial("cut = \"server\"\nsteps = 6\n");
    let _server = trial.serve("serve", &[]);
    let refused = |client: usize, more: &[&str], code: i32, expected: &str| {
        let mut process = join(&trial, client, more);
        assert_eq!(process.ends(LONG), Some(code));
        let log = trial.text(&format!("join-{client}.err"));
        assert!(log.contains(expected), "{log}");
    };
    refused(0, &[], 77, "--accept cuts=VALUE");
    refused(
        1,
        &["--accept", "cuts=server", "--accept", "min_cluster=11"],
        77,
        "--accept min_cluster=VALUE",
    );
    refused(2, &["--columns", "a,b"], 65, "2 names for 4 features");
    let careful = ["--application", "fedgraph", "--accept", "cuts=server"];
    let mut process = trial.join_with(3, "data/3.csv", &careful);
    assert_eq!(process.ends(LONG), Some(77));
    let log = trial.text("join-3.err");
    assert!(log.contains("--accept show_embeddings=VALUE"), "{log}");
    let trial = self::trial("steps = 6\n");
    let _server = trial.serve("serve", &[]);
    let mut process = join(&trial, 3, &["--accept", "min_network=5"]);
    assert_eq!(process.ends(LONG), Some(77));
    let log = trial.text("join-3.err");
    assert!(log.contains("a network of 5"), "{log}");
}
