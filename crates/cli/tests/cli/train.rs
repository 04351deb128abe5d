//! Training jobs as processes, with clients and a server that are killed.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use undertone::job::{Entries, Known, Terms as _};
use undertone::kdf::{Seed, simulated};
use undertone::label::Rows;
use undertone::nets::{Kind, Net};
use undertone::node::jobs;
use undertone::party::{Network, PartyId, SessionId};
use undertone::train::{Client, Data, Inputs, Job, Model, Server, Simulation, Terms};

use super::network::{LONG, Process, Trial};
use super::*;

/// The number that `--insecure-seed` has in a trial.
const SEED: u64 = 4;

const JOB: &str = "application = \"train\"\nmodel = \"conv\"\nfeatures = 64\nclasses = 10\n\
                   scale = 4.0\nlabel_rounds = 8\nrounds = 12\nepochs = 2\nbits = 512\n\
                   backend = \"psm\"\n";

struct Training {
    trial: Trial,
    clients: usize,
}

impl Training {
    fn new(clients: usize, more: &str) -> Self {
        Self {
            trial: Trial::with_clients(clients, "digits", &format!("{JOB}{more}")),
            clients,
        }
    }

    fn serve(&self, log: &str) -> Process {
        let (state, model) = (
            self.trial.path("state"),
            self.trial.path("model.safetensors"),
        );
        let test = data("digits");
        let more = [
            "--jobs",
            "1",
            "--wait",
            "20",
            "--grace",
            "3",
            "--checkpoint",
            &state,
        ];
        self.trial.serve(
            log,
            &[&more[..], &["--model", &model, "--test", &test]].concat(),
        )
    }

    fn out(&self, client: usize) -> String {
        self.trial.path(&format!("{client}.safetensors"))
    }

    fn join(&self, client: usize, log: &str) -> Process {
        let server = format!("localhost:{}", self.trial.port);
        let keys = self.trial.path(&format!("keys/client-{client}"));
        let data = self.trial.path(&format!("data/client-{client}.npz"));
        let (out, seed) = (self.out(client), SEED.to_string());
        let arguments = [
            "join",
            "--accept",
            "volatile-record",
            "--server",
            &server,
            "--keys",
            &keys,
            "--application",
            "train",
            "--data",
            &data,
            "--out",
            &out,
            "--insecure-seed",
            &seed,
            "--json",
            "--retry",
            "120",
            "--accept",
            "allow_free_sampling=true",
            "--semi-honest",
            "--backends",
            "psm",
        ];
        self.trial.spawn(log, &arguments)
    }

    /// Waits until the server's log tells of this round.
    fn until(&self, log: &str, round: u32) {
        let start = Instant::now();
        while start.elapsed() < LONG {
            if self.taken(&[log]).keys().any(|number| *number >= round) {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        panic!("{}", self.trial.text(&format!("{log}.err")));
    }

    /// The clients of each round that was finished, from the logs of servers.
    fn taken(&self, logs: &[&str]) -> BTreeMap<u32, Vec<PartyId>> {
        let text: String = logs
            .iter()
            .map(|log| self.trial.text(&format!("{log}.err")))
            .collect();
        let mut taken = BTreeMap::new();
        for line in text.lines().filter(|line| line.contains(" trained ")) {
            let after = |name: &str| line.split(name).nth(1).unwrap_or_default().to_owned();
            let number = after(" round=");
            let number = number.split(' ').next().unwrap().parse().unwrap();
            let clients = after(" clients=\"");
            let clients = clients.split('"').next().unwrap().split(", ");
            let id = |client: &str| {
                let index = client.strip_prefix("client ").unwrap().parse().unwrap();
                PartyId::client(index)
            };
            taken.insert(number, clients.map(id).collect());
        }
        taken
    }

    /// The model of the same job in one process, with the same clients in each round.
    fn in_one_process(&self, taken: &BTreeMap<u32, Vec<PartyId>>) -> Vec<f32> {
        let kind = Kind::named("conv", 64, 10).unwrap();
        let job = std::fs::read_to_string(self.trial.path("keys/job.toml")).unwrap();
        let count = Entries::from([("parameters".to_owned(), kind.params().into())]);
        let parameters = |_: &str, _: &Entries| Ok(count.clone());
        let known = Known {
            ask: Some(&parameters),
            ..Known::new(true)
        };
        let job: Job = jobs::parse(&job, known).unwrap();
        let seed = || {
            let mut bytes = [0; 32];
            bytes[..8].copy_from_slice(&SEED.to_le_bytes());
            Seed::from_bytes(bytes)
        };
        let net = |seed: &Seed| Net::new(kind, seed).unwrap();
        let client = |client: usize| {
            let path = self.trial.path(&format!("data/client-{client}.npz"));
            let data =
                undertone::data::load(Path::new(&path), undertone::data::Kind::Features, None);
            let data = data.unwrap();
            let Rows::Features(features) = &data.rows else {
                panic!("features");
            };
            let values = features.values().iter();
            let values = values.map(|value| (value / job.scale) as f32).collect();
            let labelling = data.labelling(10).unwrap();
            let data = Data::new(64, values, labelling).unwrap();
            let any = net(&Seed::from_bytes([0; 32]));
            let model = Box::new(any);
            Client::of(Terms::anything(), Inputs { model, data })
        };
        let first = simulated::party(&seed(), SessionId([0; 32]), PartyId::SERVER);
        let clients = (0..self.clients).map(client).collect();
        let server = Server::new(job.clone(), net(&first).params());
        let mut simulation = Simulation::new(server, clients, seed()).unwrap();
        simulation.run(Network::new()).unwrap();
        for number in 1..=job.last() {
            match taken.get(&number) {
                // A server that is killed in a round has spent its number.
                None => drop(simulation.parties(&simulation.all()).unwrap()),
                Some(members) => {
                    simulation.run_with(Network::new(), members).unwrap();
                }
            }
        }
        simulation.server().state().model.clone()
    }

    fn model(&self, path: &str) -> Vec<f32> {
        Net::load(Path::new(path)).unwrap().params()
    }
}

/// Ten clients in two groups, and a server. Two clients are killed, and one of them returns. The
/// server is killed and starts again. The model is that of one process, bit for bit.
#[test]
fn killed_processes_leave_the_model_of_the_rounds_that_were_finished() {
    let training = Training::new(10, "");
    let mut server = training.serve("serve");
    let mut clients: Vec<Option<Process>> = (0..10)
        .map(|client| Some(training.join(client, &format!("join-{client}"))))
        .collect();
    training.until("serve", 3);
    drop((clients[2].take(), clients[7].take()));
    clients[7] = Some(training.join(7, "join-7-again"));
    training.until("serve", 9);
    drop(server);
    server = training.serve("serve-again");
    assert_eq!(
        server.ends(LONG),
        Some(0),
        "{}",
        training.trial.text("serve-again.err")
    );
    let taken = training.taken(&["serve", "serve-again"]);
    assert!(taken.len() >= 12, "{taken:?}");
    assert!(
        taken.values().all(|members| members.len() == 5),
        "{taken:?}"
    );
    let expected = training.in_one_process(&taken);
    assert_eq!(
        training.model(&training.trial.path("model.safetensors")),
        expected
    );
    for (client, process) in clients.iter_mut().enumerate() {
        if let Some(process) = process {
            assert_eq!(process.ends(LONG), Some(0), "client {client}");
            assert_eq!(
                training.model(&training.out(client)),
                expected,
                "client {client}"
            );
        }
    }
    let report = training.trial.text("serve-again.out");
    let report: Value = serde_json::from_str(&report).unwrap();
    let accuracy = report["results"]["accuracy"].as_f64().unwrap();
    assert!(accuracy > 50.0, "{accuracy}");
}

/// Six processes, with free sampling: a round goes on without a client that is killed.
#[test]
fn with_free_sampling_rounds_go_on_without_killed_clients() {
    let training = Training::new(5, "free_sampling = true\nmalicious_server = false\n");
    let mut server = training.serve("serve");
    let mut clients: Vec<Option<Process>> = (0..5)
        .map(|client| Some(training.join(client, &format!("join-{client}"))))
        .collect();
    training.until("serve", 4);
    drop((clients[1].take(), clients[3].take()));
    clients[3] = Some(training.join(3, "join-3-again"));
    training.until("serve", 10);
    drop(server);
    server = training.serve("serve-again");
    assert_eq!(
        server.ends(LONG),
        Some(0),
        "{}",
        training.trial.text("serve-again.err")
    );
    let taken = training.taken(&["serve", "serve-again"]);
    assert!(taken.len() >= 15, "{taken:?}");
    let last = training.model(&training.trial.path("model.safetensors"));
    for client in [0, 2, 3, 4] {
        let process = clients[client].as_mut().unwrap();
        assert_eq!(process.ends(LONG), Some(0), "client {client}");
        assert_eq!(
            training.model(&training.out(client)),
            last,
            "client {client}"
        );
    }
    assert!(
        taken.values().any(|members| members.len() == 5),
        "{taken:?}"
    );
    assert!(!taken.values().last().unwrap().contains(&PartyId::client(1)));
}
