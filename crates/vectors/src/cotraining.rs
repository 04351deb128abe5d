//! Co-training: layouts of votes, quorums, noise, and whole jobs of learners that vote as the file
//! says, with every frame.

use std::sync::{Arc, Mutex, PoisonError};

use schemars::JsonSchema;
use serde::Serialize;
use undertone::fedct::ballots::write_labels;
use undertone::fedct::{
    Client, Consensus, Data, Job, Labels, Learner, LearnerError, Memory, Noise, Public, Report,
    Rows, Votes,
};
use undertone::garble::index_bits;
use undertone::kdf::{Seed, simulated};
use undertone::party::frame::HEADER_LEN;
use undertone::party::{Abort, Aborted, Network, PartyId};
use undertone::simulate::{CotrainingRun, CotrainingSimulation, SimulationError};
use undertone::sum::{Suite, Trust};

use crate::labels::RunFrame;
use crate::primitives::Nothing;
use crate::refused::{Change, refused};
use crate::{Double, Error, File, Hex, double, hex};

/// The noise on votes.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct NoiseOnVotes {
    /// `none`, `krr` or `xor`.
    kind: &'static str,
    /// 0 if there is none.
    epsilon: Double,
    /// 0 except with `xor`.
    sensitivity: Double,
}

impl From<Noise> for NoiseOnVotes {
    fn from(noise: Noise) -> Self {
        let (kind, epsilon, sensitivity) = match noise {
            Noise::None => ("none", 0.0, 0.0),
            Noise::Krr { epsilon } => ("krr", epsilon, 0.0),
            Noise::Xor {
                epsilon,
                sensitivity,
            } => ("xor", epsilon, sensitivity),
        };
        Self {
            kind,
            epsilon: double(epsilon),
            sensitivity: double(sensitivity),
        }
    }
}

/// The quorum in millionths; 0 for a majority.
fn quorum(consensus: Consensus) -> u32 {
    match consensus {
        Consensus::Majority => 0,
        Consensus::Qualified(quorum) => quorum,
    }
}

/// How the votes of a job are counted.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Ballots {
    rows: usize,
    classes: usize,
    clients: usize,
    /// Bits of a counter.
    bits: usize,
    blocks: usize,
    /// Words of a block.
    block_words: usize,
    /// Words of all blocks.
    words: usize,
    /// A vote for each row, and the words of these votes, 8 bytes each.
    votes: Vec<u16>,
    encoded: Hex,
    /// The labels of these votes alone: −1 where there are fewer votes than needed. Then as they
    /// travel.
    needed: usize,
    labels: Vec<i32>,
    written: Hex,
    /// The circuit of a block with this number of needed votes.
    inputs: usize,
    ands: usize,
    outputs: usize,
    digest: Hex,
}

/// Labels with −1 for none.
fn numbers(labels: &[Option<u16>]) -> Vec<i32> {
    let number = |label: &Option<u16>| label.map_or(-1, i32::from);
    labels.iter().map(number).collect()
}

fn bytes(words: &[u64]) -> Hex {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    hex(&bytes)
}

fn ballots((rows, classes, clients): (usize, usize, usize), needed: usize) -> Ballots {
    let layout = Job::new(rows, 1, classes, [0; 32]).layout(clients);
    let votes: Vec<u16> = (0..rows)
        .map(|row| ((5 * row + 2) % classes) as u16)
        .collect();
    let ballots = Noise::None.ballots(&votes, classes, &Seed::from_bytes([0; 32]));
    let words = layout.encode(&ballots);
    let labels = layout.labels(&words, needed);
    let circuit = layout.circuit(needed);
    Ballots {
        rows,
        classes,
        clients,
        bits: index_bits(clients + 1),
        blocks: layout.blocks(),
        block_words: layout.block_words(),
        words: layout.words(),
        votes,
        encoded: bytes(&words),
        needed,
        written: hex(&write_labels(&labels, classes)),
        labels: numbers(&labels),
        inputs: circuit.garbler_inputs(),
        ands: circuit.ands(),
        outputs: circuit.outputs().len(),
        digest: hex(&circuit.digest()),
    }
}

/// The votes that a class needs.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Quorum {
    /// The quorum in millionths; 0 for a majority.
    quorum: u32,
    noise: NoiseOnVotes,
    classes: usize,
    /// The probabilities that the class of a vote keeps its vote, and that another class gets one;
    /// null without noise.
    rates: Option<[Double; 2]>,
    /// For each number of contributors, from 1: the votes needed, and whether a consensus then
    /// tells every vote.
    needed: Vec<(usize, bool)>,
}

fn quorum_case(consensus: Consensus, noise: Noise, classes: usize) -> Quorum {
    let job = Job {
        consensus,
        noise,
        ..Job::new(1, 1, classes, [0; 32])
    };
    let needed = |contributors| {
        let needed = consensus.needed(contributors, noise, classes);
        (needed, job.needs_all(contributors))
    };
    Quorum {
        quorum: quorum(consensus),
        noise: noise.into(),
        classes,
        rates: noise.rates(classes).map(|(a, b)| [double(a), double(b)]),
        needed: (1..=12).map(needed).collect(),
    }
}

/// Votes with noise.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct NoisyVotes {
    noise: NoiseOnVotes,
    classes: usize,
    /// The randomness.
    seed: Hex,
    votes: Vec<u16>,
    /// For each row the classes that get a vote.
    ballots: Vec<Vec<usize>>,
}

fn noisy_votes(noise: Noise, classes: usize) -> NoisyVotes {
    let votes: Vec<u16> = (0..24).map(|row| (row % classes) as u16).collect();
    let seed = Seed::from_bytes([81; 32]);
    let ballots = noise.ballots(&votes, classes, &seed);
    let row = |row| {
        (0..classes)
            .filter(|class| ballots.get(row, *class))
            .collect()
    };
    NoisyVotes {
        noise: noise.into(),
        classes,
        seed: hex(seed.expose()),
        ballots: (0..votes.len()).map(row).collect(),
        votes,
    }
}

/// The parameters of a job.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct CotrainingJob {
    rows: usize,
    features: usize,
    classes: usize,
    /// The digest of the public rows.
    public: Hex,
    /// The quorum in millionths; 0 for a majority.
    quorum: u32,
    /// `clear`, `counts` or `winners`.
    votes: String,
    noise: NoiseOnVotes,
    exchanges: u32,
    min_clients: usize,
    malicious_server: bool,
    suite: String,
    digest: Hex,
}

fn described(job: &Job) -> CotrainingJob {
    CotrainingJob {
        rows: job.rows,
        features: job.features,
        classes: job.classes,
        public: hex(&job.public),
        quorum: quorum(job.consensus),
        votes: job.votes.to_string(),
        noise: job.noise.into(),
        exchanges: job.exchanges,
        min_clients: job.min_clients,
        malicious_server: job.trust == Trust::MaliciousServer,
        suite: job.suite.to_string(),
        digest: hex(&job.digest()),
    }
}

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
    job: CotrainingJob,
    /// The public rows: singles, in their encoding on the wire.
    values: Hex,
    clients: Vec<CotrainingClient>,
    sessions: Vec<CotrainingSession>,
    /// The memory of client 0 at the end.
    memory: Hex,
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
    simulation: CotrainingSimulation,
    learned: Arc<Mutex<Vec<Learned>>>,
    memory: Arc<Mutex<Memory>>,
}

impl Case {
    fn start(&self) -> Result<Running, Error> {
        let learned = Arc::<Mutex<Vec<Learned>>>::default();
        let memory = Arc::<Mutex<Memory>>::default();
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
            let memory = Arc::clone(&memory);
            let keep = Box::new(move |kept: &Memory| {
                if client == 0 {
                    *memory.lock().unwrap_or_else(PoisonError::into_inner) = kept.clone();
                }
                Ok(())
            });
            let data = data.map_err(|_| Error::Missing("the client's rows"))?;
            let public = Arc::clone(&public);
            let new = Memory::default();
            Ok(Client::new(Box::new(told), data, public, new, keep))
        };
        let clients = (0..self.clients)
            .map(client)
            .collect::<Result<_, Error>>()?;
        let simulation = CotrainingSimulation::new(job, clients, Seed::from_bytes(SEED))?;
        Ok(Running {
            simulation,
            learned,
            memory,
        })
    }

    fn session(
        &self,
        running: &mut Running,
        dropped: Option<Dropped>,
    ) -> Result<CotrainingSession, Error> {
        let simulation = &mut running.simulation;
        let (seed, members) = (Seed::from_bytes(SEED), simulation.members());
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
        let run = simulation.run_over(network, members.clone())?;
        for (who, step) in run.clients {
            if dropped.is_none_or(|dropped| PartyId::client(dropped.client) != who) {
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
        let job = running.simulation.job();
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
        let memory = running
            .memory
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        Ok(CotrainingCase {
            comment: self.comment.into(),
            job: described(job),
            values: singles(public(job.rows)?.rows().values),
            clients: (0..self.clients).map(client).collect(),
            memory: hex(&memory.write()),
            sessions,
        })
    }

    /// The first party that aborts when session `number` runs over `network`.
    fn refusal(&self, number: usize, network: Network<'_>) -> Result<Option<Aborted>, Error> {
        let mut running = self.start()?;
        for _ in 0..number {
            let members = running.simulation.members();
            running.simulation.run_over(Network::new(), members)?;
        }
        let members = running.simulation.members();
        match running.simulation.run_over(network, members) {
            Err(SimulationError::Aborted(aborted)) => Ok(Some(aborted)),
            Err(error) => Err(error.into()),
            Ok(CotrainingRun { clients, .. }) => {
                let aborts = clients.into_iter().filter_map(|(_, step)| step.err());
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
                frames: 11,
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

fn refusals(cases: &[Case]) -> Result<Vec<InSession>, Error> {
    let cut: Change = |m| m.truncate(m.len() - 1);
    let more: Change = |m| m.push(1);
    // The case, the session, whether from client 1, the number of the frame, the change.
    let bad: [(&str, usize, usize, bool, usize, Change); 27] = [
        // FEDCT-1.
        ("an opening that is cut", 0, 0, false, 0, cut),
        ("an opening of a third kind", 0, 0, false, 0, |m| m[0] = 2),
        ("members out of order", 0, 0, false, 0, |m| m[9] = 3),
        ("a consensus flag of 2", 0, 0, false, 0, |m| m[21] = 2),
        ("a label beyond the classes", 0, 1, false, 0, |m| m[22] |= 7),
        // FEDCT-2.
        ("an opening without the client", 0, 0, false, 0, |m| {
            m[5] -= 1;
            m.drain(13..17);
        }),
        // FEDCT-3.
        ("votes that are cut", 0, 0, true, 0, cut),
        ("a vote beyond the classes", 0, 0, true, 0, |m| m[0] |= 7),
        ("flipped votes with a byte too many", 1, 0, true, 0, more),
        // FEDCT-4.
        ("a message after the votes", 2, 0, true, 0, more),
        // FEDCT-5.
        ("an exchange that is over", 0, 1, false, 0, |m| m[1] = 1),
        ("an exchange too many", 0, 0, false, 0, |m| m[1] = 11),
        // FEDCT-6.
        ("a plan that is cut", 3, 0, false, 3, cut),
        ("a plan with too many slices", 3, 0, false, 3, |m| m[0] = 4),
        ("a slice twice", 3, 0, false, 3, |m| m[12] = 0),
        // FEDCT-7.
        ("a plan that lacks a slice", 3, 0, false, 3, |m| {
            m[0] = 2;
            m.truncate(20);
        }),
        ("a helper that is no client", 3, 0, false, 3, |m| m[8] = 9),
        (
            "a second plan for a client's own slice",
            3,
            0,
            false,
            7,
            |m| {
                *m = [1, 1, 2]
                    .iter()
                    .flat_map(|n: &u32| n.to_le_bytes())
                    .collect();
            },
        ),
        // FEDCT-8.
        (
            "a setup that leaves a contributor out",
            5,
            0,
            false,
            2,
            |m| {
                m[2] = 0;
                m.truncate(m.len() - 48);
            },
        ),
        // FEDCT-9.
        ("a message after the sum", 3, 0, true, 7, more),
        // FEDCT-10.
        ("a consensus that is cut", 3, 0, false, 12, cut),
        ("a consensus beyond the classes", 3, 0, false, 12, |m| {
            m[0] |= 7
        }),
        // Step 1b.
        ("an exchange of one client", 3, 0, false, 0, |m| {
            m[5] = 1;
            m.drain(17..21);
            m.drain(9..13);
        }),
        // GARBLE-1, GARBLE-3, GARBLE-4.
        ("changes that are cut", 3, 0, false, 11, cut),
        ("another circuit", 3, 0, true, 10, |m| m[0] ^= 1),
        ("a tile that is cut", 3, 0, true, 11, cut),
        // OT-10.
        ("a false proof", 3, 0, false, 10, |m| m[20] ^= 1),
    ];
    let (server, client) = (PartyId::SERVER, PartyId::client(1));
    let mut refusals = Vec::new();
    for (comment, case, session, up, nth, change) in bad {
        let link = if up {
            (client, server, nth)
        } else {
            (server, client, nth)
        };
        let refused = refused(comment, case, link, change, |network| {
            cases[case].refusal(session, network)
        });
        refusals.push(InSession {
            session,
            refused: refused?,
        });
    }
    Ok(refusals)
}

/// A refused message in one session of a case.
#[derive(Debug, Serialize, JsonSchema)]
pub struct InSession {
    /// The session, from 0.
    session: usize,
    #[serde(flatten)]
    refused: crate::refused::Refused,
}

/// The files of this module.
///
/// # Errors
/// Never.
pub fn files() -> Result<Vec<File>, Error> {
    let place = "docs/spec/cotraining.md";
    let none = Vec::<Nothing>::new;
    let layouts = [
        ((6, 2, 3), 0),
        ((13, 4, 5), 3),
        ((25, 5, 3), 2),
        ((5, 10, 5), 5),
        ((2, 35, 3), 0),
        ((3, 21, 7), 9),
        ((2, 5, 300), 151),
    ];
    let cases = layouts.map(|(size, needed)| ballots(size, needed)).into();
    let mut all = crate::files("ballots", place, cases, none())?;

    let krr = |epsilon| Noise::Krr { epsilon };
    let xor = |epsilon, sensitivity| Noise::Xor {
        epsilon,
        sensitivity,
    };
    let of = Consensus::Qualified;
    let cases = vec![
        quorum_case(Consensus::Majority, Noise::None, 3),
        quorum_case(of(1), Noise::None, 3),
        quorum_case(of(500_000), Noise::None, 3),
        quorum_case(of(666_667), Noise::None, 10),
        quorum_case(of(900_000), Noise::None, 10),
        quorum_case(of(1_000_000), Noise::None, 10),
        quorum_case(Consensus::Majority, krr(1.0), 3),
        quorum_case(of(600_000), krr(2.0), 10),
        quorum_case(of(1_000_000), krr(0.5), 4),
        quorum_case(of(600_000), xor(3.0, 1.0), 10),
        quorum_case(of(900_000), xor(0.5, 30.0), 2),
    ];
    all.extend(crate::files("quorum", place, cases, none())?);

    let cases = vec![
        noisy_votes(Noise::None, 3),
        noisy_votes(krr(1.0), 5),
        noisy_votes(krr(40.0), 2),
        noisy_votes(xor(2.0, 1.0), 4),
        noisy_votes(xor(0.1, 3000.0), 6),
    ];
    all.extend(crate::files("vote-noise", place, cases, none())?);

    let cases = jobs();
    let made: Result<Vec<CotrainingCase>, Error> = cases.iter().map(Case::case).collect();
    all.extend(crate::files("cotraining", place, made?, refusals(&cases)?)?);
    Ok(all)
}
