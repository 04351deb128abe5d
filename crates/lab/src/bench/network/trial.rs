//! The jobs that `bench network` runs.

use std::path::Path;
use std::pin::Pin;
use std::time::Instant;

use undertone::arrays::{Arrays, MAX_VALUES};
use undertone::data::{self, Kind};
use undertone::job::{Agreed, Participant, Record, Terms as _};
use undertone::label::{self, Labelling, Params, Rows};
use undertone::node::client::{Config, JoinError, join};
use undertone::party::Network as Memory;
use undertone::rounds::{self, Client, Contribution, Job, Server, Terms};
use undertone::sum::Trust;

use super::{Network, broken};
use crate::clouds;
use crate::experiments::label::trial::{Experiment, Stored};
use crate::experiments::split::Split;
use crate::given::Given;
use crate::keys::Keys;
use crate::ledgers::{together, total};
use crate::{Failure, input, seed};

/// A job that runs on a network and in one process.
pub(super) enum Trial {
    Labels {
        params: Params,
        clients: Vec<(Rows, Labelling)>,
    },
    Means {
        job: Job,
        clients: Vec<Contribution>,
    },
}

impl Trial {
    /// The job that the options of the command state.
    pub(super) fn new(network: &Network) -> Result<Self, Failure> {
        match (&network.file, network.rows, network.values) {
            (Some(file), ..) => Self::labels(network, |params| dealt(network, file, params)),
            (_, Some(rows), _) => Self::labels(network, |_| {
                let all = network.clients.saturating_mul(rows);
                let fewest = 2 * clouds::CLASSES;
                if !(fewest..=label::MAX_ROWS).contains(&all) {
                    return Err(Failure::usage(format!(
                        "--rows: all clients together must have {fewest} to {} rows",
                        label::MAX_ROWS
                    )));
                }
                let dealt = clouds::deal(network.clients, rows, clouds::FEATURES);
                Ok(dealt.map_err(Failure::data)?.0)
            }),
            (.., Some(values)) => Self::means(network, values),
            _ => Err(Failure::usage(
                "name a data set, or give --rows or --values",
            )),
        }
    }

    fn labels(
        network: &Network,
        clients: impl FnOnce(Params) -> Result<Vec<(Rows, Labelling)>, Failure>,
    ) -> Result<Self, Failure> {
        let params = Params {
            bits: network.bits,
            backend: network.backend,
            phe: network.keys.phe(network.backend)?,
            trust: network.trust(),
            ..Params::default()
        };
        params.check().map_err(Failure::usage)?;
        let clients = clients(params)?;
        Ok(Self::Labels { params, clients })
    }

    fn means(network: &Network, values: usize) -> Result<Self, Failure> {
        if !(1..=MAX_VALUES).contains(&values) {
            return Err(Failure::usage(format!(
                "--values must be from 1 to {MAX_VALUES}"
            )));
        }
        // Refuses --key-bits, which means nothing here.
        network.keys.phe(network.backend)?;
        let mut prg = seed(0).prg();
        let mut contribution = |_| {
            let values = (0..values).map(|_| (prg.next_u64() % 2048) as f64 - 1024.0);
            Contribution {
                arrays: Arrays::from(values.collect::<Vec<f64>>()),
                weight: 100.0,
            }
        };
        Ok(Self::Means {
            clients: (0..network.clients).map(&mut contribution).collect(),
            job: Job {
                clients: network.clients,
                trust: network.trust(),
                ..Job::default()
            },
        })
    }

    /// A description of the job, for people.
    pub(super) fn describe(&self) -> String {
        match self {
            Self::Labels { params, clients } => {
                let rows: usize = clients.iter().map(|(rows, _)| rows.len()).sum();
                format!("{rows} rows, {} bits, {}", params.bits, params.backend)
            }
            Self::Means { clients, .. } => {
                let values = clients.first().map_or(0, |client| client.arrays.len());
                format!("mean of {values} values")
            }
        }
    }

    fn trust(&self) -> Trust {
        match self {
            Self::Labels { params, .. } => params.trust,
            Self::Means { job, .. } => job.trust,
        }
    }

    /// The job file.
    pub(super) fn job(&self, keys: &Keys) -> String {
        let what = match self {
            Self::Labels { params, .. } => format!(
                "backend = \"{}\"\nbits = {}\nkey_bits = {}\n",
                params.backend,
                params.bits,
                keys.bits()
            ),
            Self::Means { .. } => "application = \"sum\"\n".to_owned(),
        };
        let signed = self.trust() == Trust::MaliciousServer;
        format!("{what}malicious_server = {signed}\n")
    }

    /// Writes the data of the first `processes` clients into `folder`.
    pub(super) fn write(&self, folder: &Path, processes: usize) -> Result<(), Failure> {
        let create = |client: usize| {
            std::fs::File::create(folder.join(format!("{client}.npz"))).map_err(broken)
        };
        match self {
            Self::Labels { clients, .. } => {
                for (client, (rows, labelling)) in clients.iter().take(processes).enumerate() {
                    let Rows::Features(features) = rows else {
                        return Err(broken("features are needed"));
                    };
                    data::to_npz(create(client)?, features, labelling).map_err(broken)?;
                }
            }
            Self::Means { clients, .. } => {
                for (client, own) in clients.iter().take(processes).enumerate() {
                    data::arrays_to_npz(create(client)?, &own.arrays).map_err(broken)?;
                }
            }
        }
        Ok(())
    }

    /// The options of `join` besides those that name the server and files.
    pub(super) fn options(&self) -> Vec<&'static str> {
        let mut options = match self {
            Self::Labels { .. } => vec![
                "--backends",
                "clear,sketch,psm,lwe,shade,phe",
                "--accept",
                "max_bits=65535",
            ],
            Self::Means { .. } => vec!["--application", "sum", "--weight", "100"],
        };
        if self.trust() == Trust::SemiHonest {
            options.push("--semi-honest");
        }
        options
    }

    /// The file that a client writes.
    pub(super) fn out(&self, client: usize) -> String {
        match self {
            Self::Labels { .. } => format!("{client}.csv"),
            Self::Means { .. } => format!("{client}-mean.npz"),
        }
    }

    /// Takes part as the client `place`, in this process.
    pub(super) fn join(&self, place: usize, config: Config) -> Joining {
        match self {
            Self::Labels { clients, .. } => {
                let (rows, labelling) = clients[place].clone();
                let terms = label::Terms::anything();
                joining(label::Client::new(terms, rows, labelling), config)
            }
            Self::Means { clients, .. } => {
                let given = Given(clients[place].clone());
                joining(Client::new(Terms::anything(), given), config)
            }
        }
    }

    /// Runs all parties in one process. Returns the time that this takes, and the rounds.
    pub(super) fn run(&self) -> Result<(f64, usize), Failure> {
        let (start, ledgers) = match self {
            Self::Labels { params, clients } => {
                let job = label::Job {
                    params: *params,
                    ..label::Job::default()
                };
                // As on a network, each client hashes its own rows.
                let mut simulation = label::simulation(job, clients.iter().cloned(), seed(0))?;
                let start = Instant::now();
                let run = simulation.run(Memory::new())?;
                for outcome in &run.clients {
                    outcome.as_ref().map_err(Failure::data)?;
                }
                (start, run.ledgers)
            }
            Self::Means { job, clients } => {
                let client =
                    |own: &Contribution| Client::new(Terms::anything(), Given(own.clone()));
                let clients = clients.iter().map(client).collect();
                let mut simulation = rounds::Simulation::new(Server::new(*job), clients, seed(0))?;
                let start = Instant::now();
                (start, simulation.run(Memory::new())?.ledgers)
            }
        };
        let time = start.elapsed().as_secs_f64();
        Ok((time, total(&together(&ledgers)).rounds()))
    }
}

/// A client that takes part.
pub(super) type Joining = Pin<Box<dyn Future<Output = Result<(), JoinError>> + Send>>;

fn joining(part: impl Participant + 'static, config: Config) -> Joining {
    let mut part = Agreed::new(part, Record::simulated());
    Box::pin(async move {
        let joined = join(&config, &mut part, std::future::pending()).await;
        joined.map(drop)
    })
}

/// The rows of a file, dealt out evenly. One in ten is labelled.
fn dealt(
    network: &Network,
    file: &Path,
    params: Params,
) -> Result<Vec<(Rows, Labelling)>, Failure> {
    let (dataset, labels) = input::load_labelled(file, Kind::Features, None, input::EVERY_LABEL)?;
    let dealt = Experiment {
        classes: dataset.class_count(),
        rows: Stored::new(dataset.rows),
        labels,
        clients: network.clients,
        split: Split::Iid,
        labelled: 0.1,
        job: label::Job {
            params,
            ..label::Job::default()
        },
        class_names: Vec::new(),
        label_epsilon: None,
    }
    .deal(&seed(0))?;
    Ok(dealt.clients)
}
