//! Whole runs of a graph network over clients.

use std::sync::Mutex;

use schemars::JsonSchema;
use serde::Serialize;
use sha2::{Digest, Sha256};
use undertone::fedgraph::{Checkpoint, Clustering, Cut, Inputs, Job, Matrix, Predict};
use undertone::job::Job as _;
use undertone::kernel::Prg;
use undertone::party::{Abort, Aborted, Network, PartyId};
use undertone::sum::Suite;
use undertone_tests::fedgraph::{Session, World};

use crate::graph_network::{Rows, labels, random, rows_of};
use crate::jobs::DescribedJob;
use crate::labels::RunFrame;
use crate::refused::{Change, Refused, refused};
use crate::{Double, Error, File, Hex, double, hex};

const SERVER: PartyId = PartyId::SERVER;

/// A sender and a receiver.
type Link = (PartyId, PartyId);

/// A checkpoint that a party kept.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct KeptState {
    step: u32,
    /// SHA-256 of its bytes.
    sha256: Hex,
}

/// What a party had kept before the run, and has kept after it.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct States {
    /// Its checkpoints before the run, the newest first.
    saved: Vec<Hex>,
    /// Its last checkpoints after the run, the newest first, two at most.
    kept: Vec<KeptState>,
}

impl States {
    fn new(saved: &[Checkpoint], kept: &[Checkpoint]) -> Self {
        let state = |kept: &Checkpoint| KeptState {
            step: kept.step(),
            sha256: hex(&Sha256::digest(kept.write())),
        };
        Self {
            saved: saved.iter().map(|saved| hex(&saved.write())).collect(),
            kept: kept.iter().map(state).collect(),
        }
    }
}

/// A client of a run: what it brings, and what it has at the end.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct GraphClient {
    /// Its randomness.
    seed: Hex,
    /// The names of its features.
    features: Vec<String>,
    embeddings: Rows,
    probabilities: Rows,
    /// The embeddings of the rows to predict.
    queries: Rows,
    states: States,
    /// The means of all clients' probabilities; null without rows to predict.
    votes: Option<Rows>,
    /// The graph network's probabilities; null if it does not predict.
    predicted: Option<Rows>,
    /// The mean cross entropy before the last step; null where the client cannot compute it.
    loss: Option<Double>,
    /// Its neighbours in the network.
    neighbours: Vec<usize>,
}

/// A whole run.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct GraphRun {
    comment: &'static str,
    session: Hex,
    job: DescribedJob,
    /// The context of the run.
    context: Hex,
    labels: Vec<u16>,
    /// The randomness of the server.
    server_seed: Hex,
    server_states: States,
    clients: Vec<GraphClient>,
    /// All frames, in the order in which they were sent.
    frames: Vec<RunFrame>,
    /// The number of clusters that the server was told.
    clusters: usize,
    /// The loss that the server computed before the last step.
    loss: Option<Double>,
    /// The probabilities that the server computed.
    predicted: Option<Rows>,
}

/// The names of the features of four clients that are all neighbours.
const NEIGHBOURS: [&[&str]; 4] = [
    &["age", "Größe"],
    &["Größe", "blood pressure"],
    &["blood pressure", "age"],
    &["sleep", "age"],
];
/// The same, but the last client has one neighbour.
const ONE_NEIGHBOUR: [&[&str]; 4] = [
    &["age", "Größe", "sleep"],
    &["Größe", "blood pressure"],
    &["blood pressure", "age"],
    &["sleep"],
];

struct Case {
    comment: &'static str,
    world: World,
    /// Whether all frames have payloads.
    payloads: bool,
}

impl Case {
    fn new(
        comment: &'static str,
        features: &[&[&str]],
        cut: Cut,
        change: impl Fn(&mut Job),
    ) -> Result<Self, Error> {
        let mut world = World::new(features.len(), cut);
        world.seed = [120 + comment.len() as u8; 32];
        let mut job = Job {
            width: 2,
            cluster: 3,
            steps: 3,
            rate: 0.01,
            every: 2,
            cut,
            ..Job::new(features.len(), 13, 2, 2)
        };
        change(&mut job);
        let mut prg = Prg::new(&[comment.len() as u8; 32]);
        let labels = labels(&mut prg, job.rows, job.classes);
        let (rows, queries, width) = (job.rows, job.queries, job.width);
        let mut inputs = Vec::new();
        for columns in features {
            let mut shares = Vec::new();
            for _ in 0..queries {
                let row: Vec<f64> = (0..job.classes).map(|_| prg.unit()).collect();
                let sum: f64 = row.iter().sum();
                shares.extend(row.iter().map(|value| value / sum));
            }
            let shares = Matrix::new(queries, job.classes, shares);
            inputs.push(Inputs {
                columns: columns.iter().map(|name| (*name).into()).collect(),
                labels: labels.clone(),
                embeddings: random(&mut prg, rows, width, false)?,
                probabilities: shares.ok_or(Error::Missing("probabilities"))?,
                queries: random(&mut prg, queries, width, false)?,
            });
        }
        world.jobs = (job.clone(), vec![job; features.len()]);
        world.inputs = inputs;
        Ok(Self {
            comment,
            world,
            payloads: false,
        })
    }

    fn with_payloads(self) -> Self {
        Self {
            payloads: true,
            ..self
        }
    }

    /// The same parties in another session, with what `keep` leaves of their checkpoints.
    fn again(
        &self,
        comment: &'static str,
        keep: impl Fn(PartyId, &Checkpoint) -> bool,
    ) -> Result<Self, Error> {
        self.after(comment, Network::new(), keep)
    }

    /// The same, of a run over `network`.
    fn after(
        &self,
        comment: &'static str,
        network: Network<'_>,
        keep: impl Fn(PartyId, &Checkpoint) -> bool,
    ) -> Result<Self, Error> {
        let mut saved = self.run_over(network)?.saved;
        for (place, saved) in saved.iter_mut().enumerate() {
            let party = place.checked_sub(1).map_or(SERVER, PartyId::client);
            saved.retain(|saved| keep(party, saved));
        }
        Ok(Self {
            comment,
            world: self.world.again(saved, self.world.seed[0] + 1),
            payloads: false,
        })
    }

    fn run_over(&self, network: Network<'_>) -> Result<Session, Error> {
        let ran = self.world.run(network);
        ran.map_err(|_| Error::Missing("a party"))
    }

    /// The first party that refuses a message over `network`.
    fn refusal(&self, network: Network<'_>) -> Result<Option<Aborted>, Error> {
        let ran = self.run_over(network)?;
        let aborts = ran.clients.into_iter().filter_map(Result::err);
        let mut aborts = ran.server.err().into_iter().chain(aborts);
        Ok(aborts.find(|aborted| !matches!(aborted.cause, Abort::Left { .. })))
    }

    fn case(&self) -> Result<GraphRun, Error> {
        let sent = Mutex::new(Vec::new());
        let network = Network::new().intercept(|_, _, frame| {
            if let Ok(mut sent) = sent.lock() {
                sent.push(RunFrame::new(frame, self.payloads));
            }
        });
        let ran = self.run_over(network)?;
        let frames = sent
            .into_inner()
            .map_err(|_| Error::Missing("the frames"))?;
        let (world, report) = (&self.world, ran.server?);
        let states = |place: usize| States::new(&self.world.saved[place], &ran.saved[place]);
        let mut clients = Vec::new();
        for (place, outcome) in ran.clients.into_iter().enumerate() {
            let (outcome, inputs) = (outcome?, &world.inputs[place]);
            clients.push(GraphClient {
                seed: hex(world.party_seed(world.ids[place]).expose()),
                features: inputs.columns.clone(),
                embeddings: rows_of(&inputs.embeddings),
                probabilities: rows_of(&inputs.probabilities),
                queries: rows_of(&inputs.queries),
                states: states(place + 1),
                votes: outcome.votes.as_ref().map(rows_of),
                predicted: outcome.graph.as_ref().map(rows_of),
                loss: outcome.loss.map(double),
                neighbours: outcome.clients.neighbours(place).to_vec(),
            });
        }
        let (job, session) = (&world.jobs.0, world.session());
        Ok(GraphRun {
            comment: self.comment,
            session: hex(&session.0),
            job: DescribedJob::new("fedgraph", &job.fields()),
            context: hex(&job.context(session).0),
            labels: world.inputs[0].labels.clone(),
            server_seed: hex(world.party_seed(SERVER).expose()),
            server_states: states(0),
            clients,
            frames: frames.into_iter().collect::<Result<_, _>>()?,
            clusters: report.clusters,
            loss: report.loss.map(double),
            predicted: report.predicted.as_ref().map(rows_of),
        })
    }
}

fn cases() -> Result<Vec<Case>, Error> {
    let client = Case::new(
        "cut client; client 3 has one neighbour and sits out",
        &ONE_NEIGHBOUR,
        Cut::Client,
        |_| (),
    )?;
    let server = Case::new("cut server", &NEIGHBOURS, Cut::Server, |job| {
        (job.classes, job.width) = (3, 3);
    })?;
    let embeddings = Case::new(
        "cut embeddings, predictions by the network",
        &NEIGHBOURS[..3],
        Cut::Embeddings,
        |job| (job.predict, job.reveal_embeddings) = (Predict::Graph, true),
    )?;
    let clients_predict = Case::new(
        "cut client, random clusters, predictions by the network, ChaCha20",
        &ONE_NEIGHBOUR,
        Cut::Client,
        |job| {
            (job.predict, job.clustering) = (Predict::Graph, Clustering::Random);
            job.suite = Suite::ChaCha20;
        },
    )?;
    let server_predicts = Case::new(
        "cut server, clusters of one row, predictions by the network",
        &NEIGHBOURS,
        Cut::Server,
        |job| {
            (job.predict, job.reveal_embeddings) = (Predict::Graph, true);
            (job.rows, job.cluster, job.steps) = (5, 1, 2);
        },
    )?;
    let votes = Case::new("votes alone", &NEIGHBOURS, Cut::Client, |job| job.steps = 0)?;
    let no_votes = Case::new(
        "no rows to predict; client 3 is alone",
        &[NEIGHBOURS[0], NEIGHBOURS[1], NEIGHBOURS[2], &["sleep"]],
        Cut::Server,
        |job| job.queries = 0,
    )?;
    // Client 0 has one more checkpoint than the others.
    let client_again = client.again("cut client, after step 2", |party, saved| {
        party == PartyId::client(0) || saved.step() == 2
    })?;
    let server_again = server.again("cut server, after step 2", |_, saved| saved.step() == 2)?;
    let embeddings_again = embeddings.again("cut embeddings, after step 2", |party, saved| {
        party != SERVER || saved.step() == 2
    })?;
    // The server's frames to each of four clients before it says that all have a checkpoint: two of
    // the setup, the start, and the sum of the votes.
    let before = 4 * 4;
    let begun_in_part = server.after(
        "cut server, anew and broken off when two clients had begun",
        Network::new().leave(SERVER, before + 2),
        |_, _| true,
    )?;
    let not_begun = client.after(
        "cut client, anew and broken off before a client began",
        Network::new().leave(SERVER, before),
        |party, _| party != PartyId::client(2),
    )?;
    Ok(vec![
        client.with_payloads(),
        server.with_payloads(),
        embeddings,
        clients_predict,
        server_predicts,
        votes,
        no_votes,
        client_again,
        server_again,
        embeddings_again,
        begun_in_part,
        not_begun,
    ])
}

/// The place of the entry of client 1 in the server's first message to a client: its `Hello`.
const HELLO: usize = 32 + 4 + (4 + 32 + 1 + 33 + 1) + (4 + 32 + 1);

fn refusals(cases: &[Case]) -> Result<Vec<Refused>, Error> {
    let [zero, one, two] = [0, 1, 2].map(PartyId::client);
    let cut: Change = |m| m.truncate(m.len() - 1);
    // The case, the link, the number of the frame, the change.
    let bad: [(&str, usize, Link, usize, Change); 23] = [
        // FEDGRAPH-3.
        ("a hello with three checkpoints", 0, (SERVER, two), 0, |m| {
            m[HELLO + 32] = 3
        }),
        // FEDGRAPH-4.
        ("a hello of another job", 0, (SERVER, two), 0, |m| {
            m[HELLO] ^= 1
        }),
        // FEDGRAPH-5.
        ("tags that are cut", 0, (one, SERVER), 2, cut),
        ("no tags", 0, (one, SERVER), 2, |m| m.truncate(16)),
        ("tags out of order", 0, (one, zero), 0, |m| {
            m[16..].rotate_left(8)
        }),
        ("a tag twice", 0, (one, two), 0, |m| {
            m.copy_within(16..24, 24)
        }),
        // FEDGRAPH-7.
        ("other labels", 0, (one, two), 0, |m| m[0] ^= 1),
        // FEDGRAPH-10.
        ("a run that starts anew", 7, (SERVER, one), 2, |m| {
            m.fill(255)
        }),
        // FEDGRAPH-11.
        ("a step that nobody has", 0, (SERVER, one), 2, |m| {
            m.copy_from_slice(&[5, 0, 0, 0])
        }),
        ("a step that not all have", 7, (SERVER, zero), 2, |m| {
            m[0] = 3
        }),
        ("a start that is cut", 7, (SERVER, one), 2, cut),
        // FEDGRAPH-14.
        ("no clusters", 0, (zero, SERVER), 5, |m| m[0] = 0),
        ("more clusters than rows allow", 0, (zero, SERVER), 5, |m| {
            m[0] = 7
        }),
        ("a count that is cut", 1, (zero, SERVER), 5, cut),
        // FEDGRAPH-6.
        ("targets that are cut", 1, (zero, SERVER), 6, cut),
        ("a target that is not finite", 1, (zero, SERVER), 6, |m| {
            m[..4].copy_from_slice(&f32::NAN.to_le_bytes())
        }),
        ("an infinite slope", 1, (SERVER, two), 5, |m| {
            m[4..8].copy_from_slice(&f32::INFINITY.to_le_bytes())
        }),
        ("slopes that are cut", 1, (SERVER, two), 5, |m| {
            m.truncate(8)
        }),
        // SERIES-2.
        ("words of another step", 0, (two, SERVER), 6, |m| m[0] ^= 1),
        // SERIES-3.
        ("sums that are cut", 0, (SERVER, one), 6, cut),
        // FEDGRAPH-16.
        ("a ready that is not empty", 0, (one, SERVER), 4, |m| {
            m.push(0)
        }),
        ("a go that is not empty", 0, (SERVER, one), 4, |m| m.push(0)),
        // FEDGRAPH-10: of a client that has begun.
        (
            "a run in part begun that starts anew",
            10,
            (SERVER, one),
            2,
            |m| m.fill(255),
        ),
    ];
    let refusal = |(comment, case, (from, to), nth, change): (&str, usize, Link, _, Change)| {
        let case_of: &Case = &cases[case];
        refused(comment, case, (from, to, nth), change, |network| {
            case_of.refusal(network)
        })
    };
    bad.into_iter().map(refusal).collect()
}

/// The files of this module.
///
/// # Errors
/// Never.
pub fn files() -> Result<Vec<File>, Error> {
    let cases = cases()?;
    let runs: Result<Vec<GraphRun>, Error> = cases.iter().map(Case::case).collect();
    let place = "docs/spec/fedgraph.md";
    crate::files("feature-graph", place, runs?, refusals(&cases)?)
}
