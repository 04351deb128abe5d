//! Co-training jobs as processes, with clients and a server that are killed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use undertone::cotrain::{
    Client, Data, Inputs, Job, Labels, Public, Report, Server, Simulation, Terms,
};
use undertone::data::Kind as Columns;
use undertone::job::Known;
use undertone::kdf::{Seed, simulated};
use undertone::label::{Features, Rows};
use undertone::learners::{Classifier, Kind};
use undertone::node::jobs;
use undertone::party::{Network, PartyId, SessionId};

use super::network::{LONG, Process, Trial};
use super::*;

const CLIENTS: usize = 5;

/// Trees that take a moment, so that there is time to kill processes.
const TREES: u16 = 1500;

const JOB: &str = "application = \"cotrain\"\nclasses = 3\nconsensus = \"qualified:0.75\"\n\
                   exchanges = 8\n";

fn features(path: &str) -> (Features, Vec<Option<u16>>) {
    let data = undertone::data::load(Path::new(path), Columns::Features, None).unwrap();
    let Rows::Features(features) = data.rows else {
        panic!("features");
    };
    (features, data.labels)
}

struct Cotraining(Trial);

impl Cotraining {
    fn serve(&self, log: &str) -> Process {
        let (state, labels) = (self.0.path("state"), self.0.path("labels.csv"));
        let public = data("wine");
        let more = [
            "--jobs",
            "1",
            "--wait",
            "20",
            "--grace",
            "1",
            "--checkpoint",
            &state,
            "--public",
            &public,
            "--labels",
            &labels,
        ];
        self.0.serve(log, &more)
    }

    fn join(&self, client: usize) -> Process {
        let (public, trees) = (data("wine"), TREES.to_string());
        let more = [
            "--application",
            "cotrain",
            "--public",
            &public,
            "--learner",
            "forest",
            "--trees",
            &trees,
            "--retry",
            "120",
        ];
        self.0.join(client, &more)
    }

    /// Waits until the server's log tells of this exchange.
    fn until(&self, log: &str, exchange: u32) {
        let start = Instant::now();
        while start.elapsed() < LONG {
            if self.voted(&[log]).keys().any(|number| *number >= exchange) {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        panic!("{}", self.0.text(&format!("{log}.err")));
    }

    /// The clients of each exchange that was finished, from the logs of servers.
    fn voted(&self, logs: &[&str]) -> BTreeMap<u32, Vec<PartyId>> {
        let text = logs.iter().map(|log| self.0.text(&format!("{log}.err")));
        let text: String = text.collect();
        assert!(!text.contains("helpers dropped out"), "{text}");
        let mut voted = BTreeMap::new();
        for line in text.lines().filter(|line| line.contains(" voted ")) {
            let after = |name: &str| line.split(name).nth(1).unwrap_or_default().to_owned();
            let number = after(" exchange=");
            let number = number.split(' ').next().unwrap().parse().unwrap();
            let clients = after(" clients=\"");
            let id = |client: &str| {
                let index = client.strip_prefix("client ").unwrap().parse().unwrap();
                PartyId::client(index)
            };
            let clients = clients.split('"').next().unwrap().split(", ");
            voted.insert(number, clients.map(id).collect());
        }
        voted
    }

    /// The last consensus of the same job in one process, with the same clients in each exchange,
    /// and the labels that each client's learner gives the public rows.
    fn in_one_process(&self, voted: &BTreeMap<u32, Vec<PartyId>>) -> (Labels, Vec<Labels>) {
        let (public, _) = features(&data("wine"));
        let made = Public::standardised(public.dim(), public.values()).unwrap();
        let (public, scaler) = (Arc::new(made.0), made.1);
        let job = std::fs::read_to_string(self.0.path("keys/job.toml")).unwrap();
        let rows = |_: &str, _: &_| Ok(public.entries());
        let known = Known {
            ask: Some(&rows),
            ..Known::new(true)
        };
        let job: Job = jobs::parse(&job, known).unwrap();
        let seed = || {
            let mut bytes = [0; 32];
            bytes[..8].copy_from_slice(&4u64.to_le_bytes());
            Seed::from_bytes(bytes)
        };
        let client = |client: usize| {
            let (own, labels) = features(&self.0.path(&format!("data/client-{client}.npz")));
            let rows = own.values().chunks(own.dim()).zip(&labels);
            let labelled = rows.filter(|(_, label)| label.is_some());
            let values: Vec<f64> = labelled.flat_map(|(row, _)| row).copied().collect();
            let labels = labels.iter().flatten().copied().collect();
            let data = Data::new(own.dim(), scaler.apply(&values), labels, 3).unwrap();
            let own = simulated::party(&seed(), SessionId([0; 32]), PartyId::client(0));
            let learner = Classifier::new(Kind::Forest, 3, &own).with_trees(TREES);
            let inputs = Inputs {
                learner: Box::new(learner),
                data,
                public: Arc::clone(&public),
            };
            Client::of(Terms::default(), inputs)
        };
        let clients = (0..CLIENTS).map(client).collect();
        let mut simulation = Simulation::new(Server::new(job), clients, seed()).unwrap();
        let last = *voted.keys().last().unwrap();
        for number in 1..=last {
            match voted.get(&number) {
                // A server that is killed in an exchange has spent its number.
                None => drop(simulation.parties(&[]).unwrap()),
                Some(members) => {
                    simulation.run_with(Network::new(), members).unwrap();
                }
            }
        }
        let end = simulation.run(Network::new()).unwrap();
        assert_eq!(end.report, Report::Over);
        let predict = |client: &Client| {
            let labels = client.with_learner(|learner| learner.predict(public.rows()));
            labels.unwrap().unwrap().into_iter().map(Some).collect()
        };
        let predicted = simulation.clients().map(predict).collect();
        (
            simulation.server().state().labels.clone().unwrap(),
            predicted,
        )
    }

    fn labels(&self, name: &str) -> Labels {
        let text = std::fs::read_to_string(self.0.path(name)).unwrap();
        let label = |line: &str| line.split(',').nth(1).unwrap().parse::<u16>().ok();
        text.lines().skip(1).map(label).collect()
    }
}

/// Five clients and a server. A client is killed, and the server is killed and starts again. The
/// consensus and the learners are those of one process.
#[test]
fn killed_processes_leave_the_consensus_of_the_exchanges_that_were_finished() {
    let cotraining = Cotraining(Trial::with_clients(CLIENTS, "wine", JOB));
    let mut server = cotraining.serve("serve");
    let mut clients: Vec<Option<Process>> = (0..CLIENTS)
        .map(|client| Some(cotraining.join(client)))
        .collect();
    cotraining.until("serve", 1);
    drop(clients[2].take());
    cotraining.until("serve", 2);
    drop(server);
    server = cotraining.serve("serve-again");
    let text = || cotraining.0.text("serve-again.err");
    assert_eq!(server.ends(LONG), Some(0), "{}", text());
    let voted = cotraining.voted(&["serve", "serve-again"]);
    assert_eq!(voted[&1].len(), CLIENTS, "{voted:?}");
    assert_eq!(voted.values().last().unwrap().len(), CLIENTS - 1);
    let (consensus, learned) = cotraining.in_one_process(&voted);
    assert_eq!(cotraining.labels("labels.csv"), consensus);
    for (client, process) in clients.iter_mut().enumerate() {
        if let Some(process) = process {
            assert_eq!(process.ends(LONG), Some(0), "client {client}");
            let labels = cotraining.labels(&format!("{client}.csv"));
            assert_eq!(labels, learned[client], "client {client}");
        }
    }
}

#[test]
fn terms_and_files_that_do_not_fit_are_refused() {
    let trial = Trial::with_clients(3, "wine", &format!("{JOB}votes = \"counts\"\n"));
    let cotraining = Cotraining(trial);
    let _server = cotraining.serve("serve");
    let (public, other) = (data("wine"), data("breast_cancer"));
    let refused = |client: usize, more: &[&str]| {
        let mut process = cotraining.0.join(client, more);
        let code = process.ends(LONG);
        (code, cotraining.0.text(&format!("join-{client}.err")))
    };
    let (code, text) = refused(0, &["--application", "cotrain", "--public", &public]);
    assert_eq!(code, Some(77), "{text}");
    assert!(
        text.contains("shows the server counts of the votes"),
        "{text}"
    );
    let join = ["--application", "cotrain", "--accept", "votes=counts"];
    let more = [&join[..], &["--public", &public]].concat();
    let (code, text) = refused(1, &[&more[..], &["--accept", "max_epsilon=2"]].concat());
    assert_eq!(code, Some(77), "{text}");
    assert!(text.contains("a vote has no noise"), "{text}");
    let more = [&join[..], &["--public", &other]].concat();
    let (code, text) = refused(2, &more);
    assert_ne!(code, Some(0), "{text}");
    assert!(text.contains("public rows"), "{text}");
}

/// Winners give the accuracies of clear votes, and learners gain from the votes of others.
#[test]
fn the_experiment_compares_clients_alone_with_co_trained_ones() {
    let folder = TempDir::new().unwrap();
    let plot = folder.path().join("accuracy.svg");
    let file = data("breast_cancer");
    let run = |more: &[&str]| {
        let sizes = ["--public", "370", "--test", "114", "--runs", "2", "--json"];
        let learners = ["--learners", "tree,forest,logistic", "--trees", "10"];
        let arguments = [&["cotrain", &file][..], &sizes, &learners, more].concat();
        json(&undertone(&arguments))
    };
    let winners = run(&["--plot", plot.to_str().unwrap()]);
    let number = |report: &Value, name: &str| report[name].as_f64().unwrap();
    let (local, together) = (
        number(&winners, "local_mean"),
        number(&winners, "fedct_mean"),
    );
    assert!((0.75..together).contains(&local), "{winners}");
    assert!((0.85..1.0).contains(&together), "{winners}");
    assert_eq!(number(&winners, "covered"), 1.0);
    assert!(
        number(&winners, "pseudo_label_accuracy") > 0.85,
        "{winners}"
    );
    assert!(number(&winners, "circuit_bytes_per_exchange") > 0.0);
    assert_eq!(winners["learners"].as_array().unwrap().len(), 3);
    let picture = std::fs::read_to_string(&plot).unwrap();
    assert!(picture.starts_with("<svg"));
    let clear = run(&["--set", "votes=clear"]);
    for name in ["fedct_mean", "exchanges", "pseudo_label_accuracy", "curve"] {
        assert_eq!(winners[name], clear[name], "{name}");
    }
    let noisy = run(&["--set", "noise=krr:0.1", "--set", "exchanges=2"]);
    assert!(number(&noisy, "pseudo_label_accuracy") < 0.75, "{noisy}");
    let quorum = run(&["--set", "consensus=qualified:0.9", "--set", "exchanges=2"]);
    assert!(number(&quorum, "covered") < 1.0, "{quorum}");
}

#[test]
fn benchmarks_of_circuits_and_votes_are_exact() {
    let garble = [
        "bench", "garble", "--rows", "200", "--repeat", "1", "--json",
    ];
    let report = json(&undertone(&garble));
    assert_eq!(report["exact"], true);
    assert_eq!(report["ands_per_row"], 96.5);
    assert_eq!(report["bytes_per_and"], 32.0);
    let votes = ["bench", "votes", "--rows", "200", "--repeat", "1", "--json"];
    let report = json(&undertone(&votes));
    assert_eq!(report["exact"], true);
    assert_eq!(report["votes"].as_array().unwrap().len(), 3);
}
