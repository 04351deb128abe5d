//! What a client answers once, it answers once: in all jobs, processes and restarts.

use std::path::Path;

use undertone::arrays::Arrays;
use undertone::data::arrays_to_npz;

#[cfg(feature = "train")]
use super::fedgraph;
use super::network::{LONG, Process, Trial};
use super::{data, undertone};

const CLIENTS: usize = 5;

/// A trial whose processes draw fresh randomness, and the name of the file of a client's rows.
struct Owners(Trial, fn(usize) -> String);

impl Owners {
    fn new(dataset: &str) -> Self {
        let trial = Trial::with_clients(CLIENTS, dataset, "");
        Self(trial, |client| format!("data/client-{client}.npz"))
    }

    /// The server of the job `job`.
    fn serve(&self, job: &str) -> Process {
        std::fs::write(self.0.path("keys/job.toml"), job).unwrap();
        let (listen, roster) = (
            format!("127.0.0.1:{}", self.0.port),
            self.0.path("keys/roster.toml"),
        );
        let mut arguments = vec!["serve", "--roster", &roster, "--listen", &listen];
        arguments.extend(["--jobs", "1", "--wait", "5", "--grace", "1", "--json"]);
        let public = data("wine");
        if job.contains("cotrain") {
            arguments.extend(["--public", &public]);
        }
        self.0.spawn("serve", &arguments)
    }

    fn join(&self, client: usize, out: &str, more: &[&str]) -> Process {
        let server = format!("localhost:{}", self.0.port);
        let keys = self.0.path(&format!("keys/client-{client}"));
        let rows = self.0.path(&(self.1)(client));
        let out = self.0.path(&format!("{client}.{out}"));
        let mut arguments = vec![
            "join",
            "--accept",
            "volatile-record",
            "--server",
            &server,
            "--keys",
            &keys,
        ];
        arguments.extend(["--data", &rows, "--out", &out]);
        arguments.extend(more);
        self.0.spawn(&format!("join-{client}"), &arguments)
    }

    /// Runs a job with these clients. Returns exit codes and logs.
    fn run(&self, job: &str, who: &[usize], out: &str, more: &[&str]) -> Vec<(i32, String)> {
        let mut server = self.serve(job);
        let join = |client: &usize| self.join(*client, out, more);
        let mut clients: Vec<Process> = who.iter().map(join).collect();
        let codes = clients.iter_mut().map(|client| client.ends(LONG));
        let codes: Vec<i32> = codes.map(|code| code.unwrap_or(-1)).collect();
        server.ends(LONG);
        let log = |client: &usize| self.0.text(&format!("join-{client}.err"));
        codes.into_iter().zip(who.iter().map(log)).collect()
    }

    fn record(&self, client: usize, what: &[&str]) -> String {
        let name = format!("client-{client}");
        let records = self.0.path(&format!("keys/{name}/records"));
        let mut arguments = vec!["record", what[0], &name];
        arguments.extend(&what[1..]);
        arguments.extend(["--records", &records, "--accept", "volatile-record"]);
        let output = undertone(&arguments);
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{errors}");
        String::from_utf8(output.stdout).unwrap()
    }
}

fn all_done(owners: &Owners, ended: &[(i32, String)]) {
    for (code, log) in ended {
        assert_eq!(*code, 0, "{log}{}", owners.0.text("serve.err"));
    }
}

/// Clients refuse by themselves, and say why. The server does not read it. Who has not refused when
/// too few are left has answered nothing either.
fn all_refuse(owners: &Owners, ended: &[(i32, String)], why: &str) {
    let refused = ended.iter().filter(|(_, log)| log.contains(why));
    assert!(refused.count() >= 2, "{ended:?}");
    assert!(
        ended
            .iter()
            .all(|(_, log)| !log.contains(" voted exchange")),
        "{ended:?}"
    );
    let told = owners.0.text("serve.err");
    assert!(
        !told.contains(why) && !told.contains("record allow"),
        "{told}"
    );
}

/// LABEL-2 over processes: with one owner missing, the class counts of a second job would be those
/// of the first without it.
#[test]
fn label_propagation_with_an_owner_missing_needs_an_allowance() {
    let job = "bits = 256\nmin_clients = 3\n";
    let owners = Owners::new("wine");
    let all = [0, 1, 2, 3, 4];
    all_done(&owners, &owners.run(job, &all, "csv", &[]));
    let ended = owners.run(job, &all[..4], "csv", &[]);
    all_refuse(&owners, &ended, "this job lacks client-4");
    let allow = ["allow", "contributors", "--reason", "ward 4 is closed"];
    all[..4].iter().for_each(|client| {
        owners.record(*client, &allow);
    });
    all_done(&owners, &owners.run(job, &all[..4], "csv", &[]));
    let shown = owners.record(0, &["show"]);
    assert!(
        shown.contains("ward 4 is closed") && shown.contains("client-4"),
        "{shown}"
    );
    // All again: the third session. The fourth is refused.
    all_done(&owners, &owners.run(job, &all[..4], "csv", &[]));
    let ended = owners.run(job, &all[..4], "csv", &[]);
    all_refuse(
        &owners,
        &ended,
        "these rows were in 3 jobs of label propagation",
    );
}

/// The same values in a second sum, from a new process.
#[test]
fn values_are_added_up_once() {
    let job = "application = \"sum\"\nmean = false\nbound = 1e6\n";
    let owners = Owners::new("wine");
    for client in 0..CLIENTS {
        let mut values = Arrays::new();
        let own = vec![client as f64 + 1.0, 2.0];
        values.push("a", vec![2], own).unwrap();
        let path = owners.0.path(&format!("data/client-{client}.npz"));
        let file = std::fs::File::create(path).unwrap();
        arrays_to_npz(file, &values).unwrap();
    }
    let more = ["--application", "sum", "--accept", "max_bound=1e6"];
    all_done(&owners, &owners.run(job, &[0, 1, 2, 3, 4], "npz", &more));
    let ended = owners.run(job, &[0, 1, 2, 3], "npz", &more);
    all_refuse(&owners, &ended, "exactly these values were sent on");
}

/// A second graph over the same rows, from a new process.
#[test]
fn rows_are_compared_with_other_clients_once() {
    let job = "application = \"pssl\"\nfeatures = 64\nclasses = 10\nscale = 16\nasked = 4\n\
               clusters = 4\nrounds = 2\n";
    let owners = Owners::new("digits");
    let more = ["--application", "pssl"];
    all_done(&owners, &owners.run(job, &[0, 1, 2, 3, 4], "csv", &more));
    let ended = owners.run(job, &[0, 1, 2, 3, 4], "csv", &more);
    all_refuse(&owners, &ended, "record allow client-");
}

/// Another run of a graph network, and one without a client.
#[cfg(feature = "train")]
#[test]
fn a_graph_network_is_trained_once_among_the_same_clients() {
    let job = fedgraph::job("steps = 6\n");
    let owners = Owners(fedgraph::trial(""), fedgraph::file);
    let terms = ["--application", "fedgraph", "--epochs", "400"];
    let more = [
        &terms[..],
        &[
            "--accept",
            "show_embeddings=true",
            "--accept",
            "min_network=3",
        ],
    ]
    .concat();
    let all = [0, 1, 2, 3];
    all_done(&owners, &owners.run(&job, &all, "csv", &more));
    let forget = || {
        for client in all {
            let _ = std::fs::remove_file(fedgraph::kept(&owners.0, client));
        }
    };
    forget();
    let ended = owners.run(&job, &all, "csv", &more);
    all_refuse(&owners, &ended, "a graph network over these rows was begun");
    forget();
    fedgraph::without_the_last(&owners.0);
    let ended = owners.run(&job, &all[..3], "csv", &more);
    all_refuse(&owners, &ended, "a graph network with other clients");
}

/// Another job of training, and of co-training, on the same rows.
#[cfg(feature = "train")]
#[test]
fn another_job_on_the_same_rows_needs_an_allowance() {
    let train = "application = \"train\"\nfeatures = 13\nclasses = 3\nrounds = 1\n\
                 label_rounds = 0\nlabels_from = \"labels\"\n";
    let owners = Owners::new("wine");
    let all = [0, 1, 2, 3, 4];
    all_done(
        &owners,
        &owners.run(train, &all, "safetensors", &["--application", "train"]),
    );
    let ended = owners.run(train, &all, "safetensors", &["--application", "train"]);
    all_refuse(
        &owners,
        &ended,
        "these rows were in round 1 of a training job",
    );
    // The record of the same rows still has its sessions of label propagation.
    all_done(&owners, &owners.run("bits = 256\n", &all, "csv", &[]));

    let cotrain = |exchanges: u32| {
        format!("application = \"cotrain\"\nclasses = 3\nexchanges = {exchanges}\n")
    };
    let public = data("wine");
    let more = [
        "--application",
        "cotrain",
        "--public",
        &public,
        "--learner",
        "tree",
    ];
    all_done(&owners, &owners.run(&cotrain(1), &all, "csv", &more));
    let ended = owners.run(&cotrain(2), &all, "csv", &more);
    all_refuse(
        &owners,
        &ended,
        "these rows voted in another co-training job",
    );
}

/// Without a record nothing begins, and nothing is made in silence.
#[test]
fn a_client_without_a_record_does_not_join() {
    let owners = Owners::new("wine");
    let records = owners.0.path("keys/client-1/records");
    std::fs::remove_dir_all(&records).unwrap();
    let state = owners.0.path("state");
    let elsewhere = ["--records", &state];
    let mut client = owners.join(1, "csv", &elsewhere);
    assert_eq!(client.ends(LONG), Some(77));
    let log = owners.0.text("join-1.err");
    assert!(
        log.contains("`undertone record new client-1 --records "),
        "{log}"
    );
    assert!(!Path::new(&state).exists());
    // Another client's data.
    let mut client = owners.join_rows(2, 3);
    assert_eq!(client.ends(LONG), Some(69));
}

impl Owners {
    /// Client `client` with the rows of another one. Nobody serves.
    fn join_rows(&self, client: usize, other: usize) -> Process {
        let from = self.0.path(&format!("data/client-{other}.npz"));
        let to = self.0.path(&format!("data/client-{client}.npz"));
        std::fs::copy(from, to).unwrap();
        self.join(client, "csv", &["--retry", "0"])
    }
}
