//! Co-training: layouts of votes, quorums, noise, and whole jobs of learners that vote as the file
//! says, with every frame.

mod refusals;
mod votes;

use std::sync::{Arc, Mutex, PoisonError};

use schemars::JsonSchema;
use serde::Serialize;
use undertone::cotrain::{
    Client, Consensus, Data, Inputs, Job, Labels, Learner, LearnerError, Noise, Public, Report,
    Rows, Server, Simulation, Terms, Votes,
};
use undertone::job::simulation::{Ran, SimulationError};
use undertone::job::{Application as _, Terms as _};
use undertone::kdf::{Seed, simulated};
use undertone::party::frame::HEADER_LEN;
use undertone::party::{Abort, Aborted, Network, PartyId};
use undertone::sum::{Suite, Trust};

use self::refusals::refusals;
use self::votes::numbers;
use crate::jobs::DescribedJob;
use crate::labels::RunFrame;
use crate::{Error, File, Hex, hex};

/// A client's rows, and its votes.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct CotrainingClient {
    /// Its Ed25519 secret key, if it signs.
    identity: Option<Hex>,
    /// Its rows: singles, in their encoding on the wire.
    values: Hex,
    labels: Vec<u16>,
    /// For each exchange the class that its learner predicts for each public row.
    votes: Vec<Vec<u16>>,
}

/// What a client's learner learned from.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Learned {
    client: u32,
    /// Singles, in their encoding on the wire.
    values: Hex,
    labels: Vec<u16>,
}

/// A client that drops out.
#[derive(Debug, Clone, Copy, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Dropped {
    client: usize,
    /// The number of frames that it sends.
    frames: usize,
}

/// A session: an exchange, or the end of the job.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct CotrainingSession {
    session: Hex,
    server_seed: Hex,
    /// The randomness of each client.
    seeds: Vec<Hex>,
    dropped: Option<Dropped>,
    /// All frames, in the order in which they were sent. Long payloads are null.
    frames: Vec<RunFrame>,
    /// What each client learned from, in the order of clients.
    learned: Vec<Learned>,
    /// The consensus: −1 where there is none; null at the end of the job.
    labels: Option<Vec<i32>>,
    /// The clients whose votes were counted.
    contributors: Vec<u32>,
    /// The number of rows that lost their helper.
    lost: usize,
}

/// A whole job.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct CotrainingCase {
    comment: String,
    job: DescribedJob,
    /// The public rows: singles, in their encoding on the wire.
    values: Hex,
    clients: Vec<CotrainingClient>,
    sessions: Vec<CotrainingSession>,
}

const SEED: [u8; 32] = [82; 32];
const FEATURES: usize = 2;
const OWN: usize = 3;
/// Longest payload in the file.
const LONGEST: usize = 300;

fn vote(client: usize, exchange: usize, row: usize, classes: usize) -> u16 {
    let mixed = 31 * client + 17 * row + 7 * exchange.min(1) + 5 * client * row;
    let class = row + [0, 0, 0, 1, 1, 2, client, 3][mixed % 8];
    (class % classes) as u16
}

fn votes(client: usize, exchange: usize, job: &Job) -> Vec<u16> {
    (0..job.rows)
        .map(|row| vote(client, exchange, row, job.classes))
        .collect()
}

fn own_values(client: usize) -> Vec<f32> {
    let value = |at: usize| ((client * 5 + at * 3) % 7) as f32 / 2.0 - 1.0;
    (0..OWN * FEATURES).map(value).collect()
}

fn own_labels(client: usize, classes: usize) -> Vec<u16> {
    (0..OWN)
        .map(|row| ((client + row) % classes) as u16)
        .collect()
}

fn public(rows: usize) -> Result<Public, Error> {
    let value = |at: usize| (at * 3 % 11) as f32 / 4.0 - 1.0;
    Public::new(FEATURES, (0..rows * FEATURES).map(value).collect())
        .map_err(|_| Error::Missing("the public rows"))
}

fn singles(values: &[f32]) -> Hex {
    let bytes: Vec<u8> = values
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect();
    hex(&bytes)
}

/// A learner that votes as the file says.
struct Told {
    client: usize,
    votes: Vec<Vec<u16>>,
    fits: usize,
    learned: Arc<Mutex<Vec<Learned>>>,
}

impl Learner for Told {
    fn fit(&mut self, rows: Rows<'_>, labels: &[u16]) -> Result<(), LearnerError> {
        self.fits += 1;
        let mut learned = self.learned.lock().unwrap_or_else(PoisonError::into_inner);
        learned.push(Learned {
            client: self.client as u32,
            values: singles(rows.values),
            labels: labels.to_vec(),
        });
        Ok(())
    }

    fn predict(&self, _: Rows<'_>) -> Result<Vec<u16>, LearnerError> {
        let votes = self.fits.checked_sub(1).and_then(|at| self.votes.get(at));
        let nothing = || LearnerError("it has no votes".into());
        votes.cloned().ok_or_else(nothing)
    }
}

struct Case {
    comment: &'static str,
    /// Without the digest of the public rows.
    job: Job,
    clients: usize,
    /// The sessions to run.
    sessions: usize,
    /// Who drops out in the first session.
    dropped: Option<Dropped>,
}

/// A job that runs.
struct Running {
    simulation: Simulation,
    learned: Arc<Mutex<Vec<Learned>>>,
}

impl Case {
    fn start(&self) -> Result<Running, Error> {
        let learned = Arc::<Mutex<Vec<Learned>>>::default();
        let public = Arc::new(public(self.job.rows)?);
        let job = Job {
            public: public.digest(),
            ..self.job.clone()
        };
        let client = |client: usize| {
            let data = Data::new(
                FEATURES,
                own_values(client),
                own_labels(client, job.classes),
                job.classes,
            );
            let told = Told {
                client,
                votes: (0..self.sessions)
                    .map(|exchange| votes(client, exchange, &job))
                    .collect(),
                fits: 0,
                learned: Arc::clone(&learned),
            };
            let data = data.map_err(|_| Error::Missing("the client's rows"))?;
            let public = Arc::clone(&public);
            let inputs = Inputs {
                learner: Box::new(told),
                data,
                public,
            };
            let terms = Terms {
                allow_unanimous: false,
                ..Terms::anything()
            };
            Ok(Client::of(terms, inputs))
        };
        let clients = (0..self.clients)
            .map(client)
            .collect::<Result<_, Error>>()?;
        let simulation = Simulation::new(Server::new(job), clients, Seed::from_bytes(SEED))?;
        Ok(Running {
            simulation,
            learned,
        })
    }

    fn session(
        &self,
        running: &mut Running,
        dropped: Option<Dropped>,
    ) -> Result<CotrainingSession, Error> {
        let simulation = &mut running.simulation;
        let (seed, members) = (Seed::from_bytes(SEED), simulation.all());
        let session = simulation.session();
        let frames = Mutex::new(Vec::new());
        let mut network = Network::new().intercept(|_, _, frame| {
            let mut frames = frames.lock().unwrap_or_else(PoisonError::into_inner);
            let kept = frame.len() - HEADER_LEN <= LONGEST;
            frames.push(RunFrame::new(frame, kept));
        });
        if let Some(Dropped { client, frames }) = dropped {
            network = network.leave(PartyId::client(client), frames);
        }
        let run = simulation.run(network)?;
        for (who, step) in members.iter().zip(run.clients) {
            if dropped.is_none_or(|dropped| PartyId::client(dropped.client) != *who) {
                step?;
            }
        }
        let (labels, contributors, lost): (Option<Labels>, _, _) = match run.report {
            Report::Voted(exchange, labels) => (Some(labels), exchange.contributors, exchange.lost),
            Report::Over => (None, Vec::new(), 0),
        };
        let seed_of = |id| hex(simulated::party(&seed, session, id).expose());
        let frames = frames.into_inner().unwrap_or_else(PoisonError::into_inner);
        let mut learned = running
            .learned
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        learned.sort_by_key(|learned| learned.client);
        Ok(CotrainingSession {
            session: hex(&session.0),
            server_seed: seed_of(PartyId::SERVER),
            seeds: members.iter().map(|id| seed_of(*id)).collect(),
            dropped,
            frames: frames.into_iter().collect::<Result<_, _>>()?,
            learned: std::mem::take(&mut *learned),
            labels: labels.as_deref().map(numbers),
            contributors: contributors.iter().map(|id| id.to_wire()).collect(),
            lost,
        })
    }

    fn case(&self) -> Result<CotrainingCase, Error> {
        let mut running = self.start()?;
        let mut sessions = Vec::new();
        for number in 0..self.sessions {
            let dropped = self.dropped.filter(|_| number == 0);
            sessions.push(self.session(&mut running, dropped)?);
        }
        let seed = Seed::from_bytes(SEED);
        let first = simulated::session(&seed);
        let job = running.simulation.server().job();
        let client = |client: usize| {
            let identity = seed.derive(first, "simulated identity", &[client as u32]);
            let signs = job.trust == Trust::MaliciousServer;
            let exchanges = sessions.iter().filter(|session| session.labels.is_some());
            CotrainingClient {
                identity: signs.then(|| hex(identity.expose())),
                values: singles(&own_values(client)),
                labels: own_labels(client, job.classes),
                votes: (0..exchanges.count())
                    .map(|exchange| votes(client, exchange, job))
                    .collect(),
            }
        };
        Ok(CotrainingCase {
            comment: self.comment.into(),
            job: DescribedJob::new("cotrain", &job.fields()),
            values: singles(public(job.rows)?.rows().values),
            clients: (0..self.clients).map(client).collect(),
            sessions,
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
            Ok(Ran { clients, .. }) => {
                let aborts = clients.into_iter().filter_map(Result::err);
                let is_refusal = |aborted: &Aborted| !matches!(aborted.cause, Abort::Left { .. });
                Ok(aborts.into_iter().find(is_refusal))
            }
        }
    }
}

fn jobs() -> [Case; 6] {
    let job = |rows, classes, votes| Job {
        votes,
        min_clients: 2,
        ..Job::new(rows, FEATURES, classes, [0; 32])
    };
    let xor = Noise::Xor {
        epsilon: 6.0,
        sensitivity: 2.0,
    };
    let case = |comment, job, clients, sessions| Case {
        comment,
        job,
        clients,
        sessions,
        dropped: None,
    };
    [
        case(
            "clear votes, majority: three exchanges until the consensus repeats, the end",
            job(9, 5, Votes::Clear),
            3,
            4,
        ),
        case(
            "clear votes with flipped bits, a quorum",
            Job {
                noise: xor,
                consensus: Consensus::Qualified(600_000),
                ..job(9, 5, Votes::Clear)
            },
            3,
            1,
        ),
        case(
            "counts of noisy votes, a quorum, a server that may lie",
            Job {
                noise: Noise::Krr { epsilon: 3.0 },
                consensus: Consensus::Qualified(750_000),
                trust: Trust::MaliciousServer,
                suite: Suite::ChaCha20,
                ..job(20, 3, Votes::Counts)
            },
            4,
            1,
        ),
        case(
            "winners with a quorum; one exchange, the end",
            Job {
                consensus: Consensus::Qualified(500_000),
                exchanges: 1,
                ..job(25, 5, Votes::Winners)
            },
            3,
            2,
        ),
        Case {
            dropped: Some(Dropped {
                client: 1,
                frames: 8,
            }),
            ..case(
                "winners, a server that may lie; a helper drops out before it is ready, so its \
                 slice has a second attempt",
                Job {
                    consensus: Consensus::Qualified(600_000),
                    trust: Trust::MaliciousServer,
                    ..job(17, 5, Votes::Winners)
                },
                4,
                1,
            )
        },
        Case {
            dropped: Some(Dropped {
                client: 1,
                frames: 15,
            }),
            ..case(
                "winners of noisy votes, a row in several words; a helper drops out when it has \
                 opened its circuits, so its row is lost",
                Job {
                    noise: xor,
                    suite: Suite::ChaCha20,
                    ..job(2, 35, Votes::Winners)
                },
                3,
                1,
            )
        },
    ]
}

/// The files of this module.
///
/// # Errors
/// Never.
pub fn files() -> Result<Vec<File>, Error> {
    let place = "docs/spec/cotraining.md";
    let mut all = votes::files(place)?;
    let cases = jobs();
    let made: Result<Vec<CotrainingCase>, Error> = cases.iter().map(Case::case).collect();
    all.extend(crate::files("cotraining", place, made?, refusals(&cases)?)?);
    Ok(all)
}
