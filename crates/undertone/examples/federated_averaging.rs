//! Federated averaging over TLS. Five clients train a linear model of handwritten digits in ten
//! rounds. Only the client itself sees its model.
//!
//! Each client has its own connection and runtime, like a process of its own. One client leaves
//! after the second round and comes back in the fifth; it first gets the mean that it has missed.
//! Another is killed in the eighth round. The server learns the mean of each round and tests it.
//!
//! `cargo run --release -p undertone --features net,files --example federated_averaging`

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use undertone::arrays::Arrays;
use undertone::data::{self, Kind};
use undertone::job::Record;
use undertone::label::{Features, Rows};
use undertone::node::keys::{Trial, trial};
use undertone::node::server::{self, Server};
use undertone::node::{Certificate, JoinError, Served, client, membership};
use undertone::rounds::{Job, Sampling, Server as Sums, Terms};
use undertone::setup::identity::Identity;
use undertone::sum::{SamplingTerms, Trust};

type Failure = Box<dyn std::error::Error + Send + Sync>;

const CLIENTS: usize = 5;
const ROUNDS: u32 = 10;
const CLASSES: usize = 10;
const KILLED: usize = 3;
const RETURNING: usize = 4;

// ---- The model. Any training code can stand here. ----

/// Rows and their classes.
#[derive(Clone)]
struct Examples {
    features: Features,
    classes: Vec<u16>,
}

impl Examples {
    /// The rows `first`, `first + step`, …
    fn every(&self, first: usize, step: usize) -> Self {
        let rows: Vec<usize> = (first..self.classes.len()).step_by(step).collect();
        Self {
            features: self.features.select(&rows),
            classes: rows.iter().map(|row| self.classes[*row]).collect(),
        }
    }

    fn rows(&self) -> impl Iterator<Item = (&[f64], usize)> {
        let rows = self.features.values().chunks(self.features.dim());
        rows.zip(self.classes.iter().map(|class| usize::from(*class)))
    }
}

/// Softmax regression: for each class a weight for each feature, and a bias.
#[derive(Clone)]
struct Model(Vec<f64>);

impl Model {
    fn new(features: usize) -> Self {
        Self(vec![0.0; CLASSES * (features + 1)])
    }

    /// The probability of each class.
    fn predict(&self, row: &[f64]) -> Vec<f64> {
        let score = |weights: &[f64]| {
            let products = weights
                .iter()
                .zip(row)
                .map(|(weight, value)| weight * value);
            products.sum::<f64>() + weights[row.len()]
        };
        let scores: Vec<f64> = self.0.chunks(row.len() + 1).map(score).collect();
        let most = scores.iter().copied().fold(f64::MIN, f64::max);
        let odds: Vec<f64> = scores.iter().map(|score| (score - most).exp()).collect();
        let sum: f64 = odds.iter().sum();
        odds.into_iter().map(|odds| odds / sum).collect()
    }

    /// One pass over the examples.
    fn train(&mut self, examples: &Examples) {
        for (row, class) in examples.rows() {
            let predicted = self.predict(row);
            for (of, weights) in self.0.chunks_mut(row.len() + 1).enumerate() {
                let error = predicted[of] - f64::from(u8::from(of == class));
                for (weight, value) in weights.iter_mut().zip(row.iter().chain([&1.0])) {
                    *weight -= 0.05 * error * value;
                }
            }
        }
    }

    /// The share of examples whose class has the highest probability.
    fn accuracy(&self, examples: &Examples) -> f64 {
        let is_right = |(row, class): &(&[f64], usize)| {
            let predicted = self.predict(row);
            (0..CLASSES).max_by(|a, b| predicted[*a].total_cmp(&predicted[*b])) == Some(*class)
        };
        examples.rows().filter(is_right).count() as f64 / examples.classes.len() as f64
    }
}

// ---- A client. This part embeds Undertone. ----

/// Takes part until the job is done. Leaves before the first round for which `leaves` is true.
async fn take_part(
    config: client::Config,
    examples: Examples,
    leaves: impl Fn(u32) -> bool,
) -> Result<(), JoinError> {
    let mut model = Model::new(examples.features.dim());
    // All clients are in this process. Elsewhere: Record::open.
    let terms = Terms {
        sampling: SamplingTerms {
            allow_free_sampling: true, // see the job
            ..SamplingTerms::default()
        },
        ..Terms::default()
    };
    let mut member = membership::join(config, terms, Record::simulated());
    while let Some(round) = member.next_round().await? {
        if leaves(round.number) {
            return member.leave().await;
        }
        if let Some(mean) = &round.mean {
            model = Model(mean.arrays.to_doubles().to_vec());
        }
        model.train(&examples);
        let arrays = Arrays::from(model.0.clone());
        let _ = round
            .contribute(arrays, examples.classes.len() as f64)
            .await;
    }
    Ok(())
}

// ---- All of them in one program. ----

fn load() -> Result<Examples, Failure> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../data/digits.npz");
    let data = data::load(path.as_ref(), Kind::Features, None)?;
    let Rows::Features(features) = data.rows else {
        return Err("features are needed".into());
    };
    let values = features.values().iter().map(|value| value / 16.0).collect();
    let classes = data.labels.into_iter().map(Option::unwrap_or_default);
    Ok(Examples {
        features: Features::new(features.dim(), values)?,
        classes: classes.collect(),
    })
}

fn config(trial: &Trial, index: usize, server: SocketAddr) -> Result<client::Config, Failure> {
    let own = &trial.clients[index];
    Ok(client::Config {
        identity: Some(Identity::from_pem(&own.key)?),
        ..client::Config::new(
            server.to_string(),
            trial.authority.clone(),
            own.name.clone(),
        )
        .with_roster(trial.roster.clone())
    })
}

/// Runs a client in a runtime of its own.
fn spawn(
    config: client::Config,
    examples: Examples,
    leaves: impl Fn(u32) -> bool + Send + 'static,
) -> std::thread::JoinHandle<Result<(), Failure>> {
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Runtime::new()?;
        let name = config.name.clone();
        let ended = runtime.block_on(take_part(config, examples, leaves));
        ended.map_err(|error| format!("{name}: {error}").into())
    })
}

fn main() -> Result<(), Failure> {
    let all = load()?;
    // Every sixth row is for tests. The clients have the others.
    let (test, dealt): (Examples, Vec<Examples>) = (
        all.every(CLIENTS, CLIENTS + 1),
        (0..CLIENTS)
            .map(|client| all.every(client, CLIENTS + 1))
            .collect(),
    );

    let names: Vec<String> = (0..CLIENTS)
        .map(|client| format!("client-{client}"))
        .collect();
    let trial = trial(&["localhost".into(), "127.0.0.1".into()], &names)?;
    let runtime = tokio::runtime::Runtime::new()?;

    // The server. Here it tests the mean of each round and prints the result. Five clients would be
    // one group, and each round would need all of them. So any of them contribute. Over many rounds
    // that tells everybody their weights: with ten clients or more leave `sampling` out, on both
    // sides.
    let job = Job {
        rounds: ROUNDS,
        sampling: Sampling::Free,
        max_weight: 10_000.0,
        clients: CLIENTS,
        trust: Trust::MaliciousServer,
        ..Job::default()
    };
    let accuracy = Arc::new(Mutex::new(0.0));
    let last = Arc::clone(&accuracy);
    let application = Sums::new(job).on_mean(move |mean| {
        let model = Model(mean.arrays.to_doubles().to_vec());
        let accuracy = model.accuracy(&test);
        println!(
            "round {:2}: {:.1} % right, {} examples of {} clients",
            mean.round,
            100.0 * accuracy,
            mean.weight,
            mean.contributors.len()
        );
        *last
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner) = accuracy;
    });
    let server = server::Config {
        jobs: Some(1),
        grace: Duration::from_secs(1),
        ..server::Config::new(
            trial.roster.clone(),
            Certificate::from_pem(&trial.certificate, &trial.key)?,
        )
    };
    let server = runtime.block_on(Server::bind(
        ([127, 0, 0, 1], 0).into(),
        server,
        Served::new(application),
    ))?;
    let (address, watch) = (server.address(), server.watch());
    let server = runtime.spawn(server.run(std::future::pending(), |report| {
        println!("{} after {:.1} s", report.result, report.seconds);
    }));

    // Three clients stay. In the fifth round the first waits until the client that left is back.
    let mut clients = Vec::new();
    for (index, examples) in dealt.iter().enumerate().take(KILLED) {
        let watch = watch.clone();
        let waits = move |round: u32| {
            while index == 0 && round == 5 && watch.status().clients[RETURNING].state == "absent" {
                std::thread::sleep(Duration::from_millis(10));
            }
            false
        };
        clients.push(spawn(
            config(&trial, index, address)?,
            examples.clone(),
            waits,
        ));
    }
    // One is killed in the eighth round: its runtime ends without a goodbye.
    let killed = tokio::runtime::Runtime::new()?;
    let (tell, reached) = std::sync::mpsc::channel();
    let doomed = take_part(
        config(&trial, KILLED, address)?,
        dealt[KILLED].clone(),
        move |round| {
            if round == 8 {
                let _ = tell.send(());
                std::thread::sleep(Duration::from_secs(2));
            }
            false
        },
    );
    killed.spawn(doomed);
    // One leaves when the third round begins.
    let leaving = config(&trial, RETURNING, address)?;
    let left = spawn(leaving.clone(), dealt[RETURNING].clone(), |round| {
        round == 3
    });

    left.join().map_err(|_| "a client panicked")??;
    println!("client {RETURNING} has left, and comes back");
    clients.push(spawn(leaving, dealt[RETURNING].clone(), |_| false));
    reached.recv()?;
    killed.shutdown_background();
    println!("client {KILLED} is killed");
    for client in clients {
        client.join().map_err(|_| "a client panicked")??;
    }
    runtime.block_on(server)??;
    let accuracy = *accuracy.lock().map_err(|_| "a callback panicked")?;
    assert!(accuracy > 0.9, "{accuracy}");
    Ok(())
}
