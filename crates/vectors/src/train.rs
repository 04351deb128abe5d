//! Training: whole jobs of a model that does what the file says, with every frame, and the numbers
//! that follow from a job.

use std::sync::{Arc, Mutex, PoisonError};

use schemars::JsonSchema;
use serde::Serialize;
use undertone::job::Terms as _;
use undertone::job::simulation::{Ran, SimulationError};
use undertone::kdf::{Seed, simulated};
use undertone::label::{Labelling, Params};
use undertone::party::{Aborted, Network, PartyId};
use undertone::sum::Trust;
use undertone::train::{
    Client, Data, Embeddings, Examples, Inputs, Job, Model, ModelError, PseudoLabels, Report, Rows,
    Sampling, Schedule, Server, Simulation, Terms,
};

use crate::jobs::DescribedJob;
use crate::labels::RunFrame;
use crate::refused::{Change, refused};
use crate::{Double, Error, File, Hex, double, hex};

/// A client's data, and its model. The embedding of a row is the row.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct TrainingClient {
    /// Its Ed25519 secret key, if it signs.
    identity: Option<Hex>,
    /// For each row its class, or null.
    labels: Vec<Option<u16>>,
    /// The class that the model predicts for each row, with certainty.
    predictions: Vec<u16>,
    /// What an update adds to each parameter: singles, in their encoding on the wire.
    change: Hex,
}

/// What a client's update was told.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Update {
    client: u32,
    learning_rate: Double,
    consistency: Double,
    /// The rows of each batch, those with labels first.
    batches: Vec<Vec<usize>>,
}

/// A session.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct TrainingSession {
    session: Hex,
    server_seed: Hex,
    /// The clients of the session.
    members: Vec<u32>,
    /// The randomness of each of them.
    seeds: Vec<Hex>,
    /// All frames, in the order in which they were sent.
    frames: Vec<RunFrame>,
    /// In rounds: what the update of each client was told, in the order of clients.
    updates: Vec<Update>,
    /// The model after the session.
    model: Hex,
}

/// A whole job.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct TrainingCase {
    comment: String,
    job: DescribedJob,
    clients: Vec<TrainingClient>,
    /// The first model: singles, in their encoding on the wire.
    model: Hex,
    sessions: Vec<TrainingSession>,
    groups: Vec<Vec<u32>>,
    /// The state of the server at the end.
    state: Hex,
}

const SEED: [u8; 32] = [61; 32];
const FEATURES: usize = 2;
const CLASSES: usize = 3;
const PARAMETERS: usize = 7;
const ROWS: usize = 6;

/// A model that does what the file says.
struct Told {
    client: usize,
    params: Vec<f32>,
    updates: Arc<Mutex<Vec<Update>>>,
}

fn change(client: usize) -> Vec<f32> {
    let value = |at: usize| ((client * 7 + at * 3) % 11) as f32 / 8.0 - 0.625;
    let mut change: Vec<f32> = (0..PARAMETERS).map(value).collect();
    if client == 1 {
        // Beyond the range, and finer than the fixed point.
        (change[0], change[1]) = (-5.0, 1e-9);
    }
    change
}

fn prediction(client: usize, row: usize) -> u16 {
    ((client + row) % CLASSES) as u16
}

fn labels(client: usize) -> Vec<Option<u16>> {
    let label =
        |row: usize| (client.is_multiple_of(2) && row < 2).then_some(((client + row) % 3) as u16);
    (0..ROWS).map(label).collect()
}

fn singles(values: &[f32]) -> Hex {
    let bytes: Vec<u8> = values
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect();
    hex(&bytes)
}

impl Model for Told {
    fn params(&self) -> Vec<f32> {
        self.params.clone()
    }

    fn set_params(&mut self, params: &[f32]) -> Result<(), ModelError> {
        self.params = params.to_vec();
        Ok(())
    }

    fn embed(&mut self, rows: Rows<'_>) -> Result<Embeddings, ModelError> {
        Ok(Embeddings {
            dim: rows.dim,
            values: rows.values.to_vec(),
        })
    }

    fn predict(&mut self, rows: Rows<'_>) -> Result<Vec<f32>, ModelError> {
        let certain = |row: usize| {
            let class = usize::from(prediction(self.client, row));
            (0..CLASSES).map(move |other| if other == class { 1.0 } else { 0.0 })
        };
        Ok((0..rows.len()).flat_map(certain).collect())
    }

    fn update(&mut self, examples: &Examples<'_>, schedule: &Schedule) -> Result<(), ModelError> {
        let batches = schedule.batches(examples);
        let rows =
            |batch: Vec<undertone::train::Target>| batch.iter().map(|target| target.row).collect();
        let mut updates = self.updates.lock().unwrap_or_else(PoisonError::into_inner);
        updates.push(Update {
            client: self.client as u32,
            learning_rate: double(schedule.learning_rate.into()),
            consistency: double(schedule.consistency.into()),
            batches: batches.map(rows).collect(),
        });
        for (value, change) in self.params.iter_mut().zip(change(self.client)) {
            *value += change;
        }
        Ok(())
    }
}

struct Case {
    comment: &'static str,
    job: Job,
    clients: usize,
    /// The sessions to run.
    sessions: usize,
}

/// A job that runs.
struct Running {
    simulation: Simulation,
    updates: Arc<Mutex<Vec<Update>>>,
}

impl Case {
    fn start(&self) -> Result<Running, Error> {
        let updates = Arc::<Mutex<Vec<Update>>>::default();
        let client = |client: usize| {
            let value = |at: usize| ((client * 5 + at * 3) % 7) as f32 - 3.5;
            let rows = (0..ROWS * FEATURES).map(value).collect();
            let data = Data::new(FEATURES, rows, Labelling::new(CLASSES, labels(client))?)?;
            let told = Told {
                client,
                params: vec![0.0; PARAMETERS],
                updates: Arc::clone(&updates),
            };
            let model = Box::new(told);
            Ok(Client::of(Terms::anything(), Inputs { model, data }))
        };
        let clients = (0..self.clients)
            .map(client)
            .collect::<Result<_, Error>>()?;
        let seed = Seed::from_bytes(SEED);
        let server = Server::new(self.job.clone(), model());
        let simulation = Simulation::new(server, clients, seed)?;
        Ok(Running {
            simulation,
            updates,
        })
    }

    fn case(&self) -> Result<TrainingCase, Error> {
        let mut running = self.start()?;
        let seed = Seed::from_bytes(SEED);
        let first = simulated::session(&seed);
        let mut sessions = Vec::new();
        for number in 0..self.sessions {
            let members = running.simulation.members();
            let session = running.simulation.session();
            let frames = Mutex::new(Vec::new());
            let network = Network::new().intercept(|_, _, frame| {
                if let Ok(mut frames) = frames.lock() {
                    frames.push(RunFrame::new(frame, true));
                }
            });
            let run = running.simulation.run_with(network, &members)?;
            let is_due = matches!(
                (&run.report, number),
                (Report::Counted(_), 0) | (Report::Trained(_) | Report::Over, 1..)
            );
            if !is_due {
                return Err(Error::Missing("the session"));
            }
            let frames = frames.into_inner().unwrap_or_else(PoisonError::into_inner);
            let seed_of = |id| hex(simulated::party(&seed, session, id).expose());
            let mut updates = running
                .updates
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            updates.sort_by_key(|update| update.client);
            sessions.push(TrainingSession {
                session: hex(&session.0),
                server_seed: seed_of(PartyId::SERVER),
                members: members.iter().map(|id| id.to_wire()).collect(),
                seeds: members.iter().map(|id| seed_of(*id)).collect(),
                frames: frames.into_iter().collect::<Result<_, _>>()?,
                updates: std::mem::take(&mut *updates),
                model: singles(&running.simulation.server().state().model),
            });
        }
        let client = |client: usize| {
            let ids = [client as u32];
            let identity = seed.derive(first, "simulated identity", &ids);
            let signs = self.job.propagation.trust == Trust::MaliciousServer;
            TrainingClient {
                identity: signs.then(|| hex(identity.expose())),
                labels: labels(client),
                predictions: (0..ROWS).map(|row| prediction(client, row)).collect(),
                change: singles(&change(client)),
            }
        };
        let state = running.simulation.server().state();
        let census = state.census.as_ref().ok_or(Error::Missing("the census"))?;
        let wire = |group: &Vec<PartyId>| group.iter().map(|id| id.to_wire()).collect();
        Ok(TrainingCase {
            comment: self.comment.into(),
            job: DescribedJob::new("train", &self.job.fields()),
            clients: (0..self.clients).map(client).collect(),
            model: singles(&model()),
            sessions,
            groups: census.groups.iter().map(wire).collect(),
            state: hex(&state.write()),
        })
    }

    /// The first party that aborts when session `number` runs over `network`.
    fn refusal(&self, number: usize, network: Network<'_>) -> Result<Option<Aborted>, Error> {
        let mut running = self.start()?;
        for _ in 0..number {
            running.simulation.run(Network::new())?;
        }
        match running.simulation.run(network) {
            Err(SimulationError::Aborted(aborted)) => Ok(Some(aborted)),
            Err(error) => Err(error.into()),
            Ok(Ran { clients, .. }) => Ok(clients.into_iter().find_map(Result::err)),
        }
    }
}

fn model() -> Vec<f32> {
    (0..PARAMETERS).map(|at| at as f32 / 4.0 - 1.0).collect()
}

/// The files of this operation.
///
/// # Errors
/// Never.
pub fn files() -> Result<Vec<File>, Error> {
    let job = Job {
        label_rounds: 1,
        rounds: 2,
        pseudo: PseudoLabels::Network,
        sampled: 5,
        epochs: 2,
        consistency: 2.0,
        features: FEATURES,
        classes: CLASSES,
        parameters: PARAMETERS,
        ..Job::default()
    };
    let cases = [
        Case {
            comment: "eleven clients in two groups: census, three rounds, the end",
            job: job.clone(),
            clients: 11,
            sessions: 5,
        },
        Case {
            comment: "free sampling with class counts; a server that may lie; census, one round",
            job: Job {
                pseudo: PseudoLabels::Joint,
                sampling: Sampling::Free,
                sampled: 4,
                learning_rate: Some(0.25),
                label_epsilon: Some(3.0),
                propagation: Params {
                    trust: Trust::MaliciousServer,
                    ..Params::default()
                },
                ..job
            },
            clients: 5,
            sessions: 2,
        },
    ];
    let made: Result<Vec<TrainingCase>, Error> = cases.iter().map(Case::case).collect();
    let (server, client) = (PartyId::SERVER, PartyId::client(2));
    let cut: Change = |m| m.truncate(m.len() - 1);
    // The case, the session, whether from the client, the number of the frame, the change.
    let bad: [(&str, usize, usize, bool, usize, Change); 8] = [
        // TRAIN-1.
        ("an opening that is cut", 0, 0, false, 0, cut),
        ("an opening of a fourth kind", 0, 0, false, 0, |m| m[0] = 3),
        // TRAIN-2.
        ("an opening without the client", 0, 0, false, 0, |m| {
            m[37] -= 1;
            m.drain(41 + 8..41 + 12);
        }),
        // TRAIN-8.
        ("groups that are cut", 0, 0, true, 2, cut),
        // TRAIN-12: two clients change places.
        ("other groups", 0, 0, true, 2, |m| (m[12], m[32]) = (2, 1)),
        // TRAIN-15.
        ("groups with another client", 0, 0, true, 2, |m| {
            let last = m.len() - 4;
            m[last] = 200;
        }),
        // TRAIN-9.
        ("another census", 1, 1, false, 0, |m| m[1] ^= 1),
        // TRAIN-10.
        ("a round that the job does not have", 1, 1, false, 0, |m| {
            m[33] = 9
        }),
    ];
    let mut refusals = Vec::new();
    for (comment, case, session, up, nth, change) in bad {
        // The client of the second case's round is its first one.
        let who = if case == 0 {
            client
        } else {
            first(&cases[case])?
        };
        let link = if up {
            (who, server, nth)
        } else {
            (server, who, nth)
        };
        let refused = refused(comment, case, link, change, |network| {
            cases[case].refusal(session, network)
        });
        refusals.push(InSession {
            session,
            refused: refused?,
        });
    }
    crate::files("training", "docs/spec/training.md", made?, refusals)
}

/// A refused message in one session of a case.
#[derive(Debug, Serialize, JsonSchema)]
pub struct InSession {
    /// The session, from 0.
    session: usize,
    #[serde(flatten)]
    refused: crate::refused::Refused,
}

/// The first client of the first round of a case.
fn first(case: &Case) -> Result<PartyId, Error> {
    let mut running = case.start()?;
    running.simulation.run(Network::new())?;
    let members = running.simulation.members();
    members.first().copied().ok_or(Error::Missing("a client"))
}
