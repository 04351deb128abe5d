//! A graph network over clients: clusters, the graph, steps in the clear, and whole runs.

use std::sync::Mutex;

use schemars::JsonSchema;
use serde::Serialize;
use sha2::{Digest, Sha256};
use undertone::fedgraph::{
    Checkpoint, Clustering, Cut, Graph, Inputs, Job, Matrix, Predict, Tag, clear, clusters,
};
use undertone::kdf::Seed;
use undertone::kernel::Prg;
use undertone::party::{Abort, Aborted, Network, PartyId};
use undertone::sum::Suite;
use undertone_tests::feature_graph::{Session, World};

use crate::labels::RunFrame;
use crate::primitives::{Nothing, SESSION};
use crate::refused::{Change, Refused, refused};
use crate::{Double, Error, File, Hex, double, doubles, hex};

const SERVER: PartyId = PartyId::SERVER;

/// A sender and a receiver.
type Link = (PartyId, PartyId);

/// A matrix, row after row.
type Rows = Vec<Vec<Double>>;

fn rows_of(matrix: &Matrix) -> Rows {
    matrix.each_row().map(doubles).collect()
}

/// A matrix of random values from −0.5 to 1.5, or their positive parts.
fn random(prg: &mut Prg, rows: usize, columns: usize, is_positive: bool) -> Result<Matrix, Error> {
    let least = if is_positive { 0.0 } else { f64::MIN };
    let values = (0..rows * columns).map(|_| (2.0 * prg.unit() - 0.5).max(least));
    Matrix::new(rows, columns, values.collect()).ok_or(Error::Missing("a matrix"))
}

fn labels(prg: &mut Prg, rows: usize, classes: usize) -> Vec<u16> {
    (0..rows).map(|_| prg.below(classes) as u16).collect()
}

/// The parameters of a job.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct GraphJob {
    clients: usize,
    rows: usize,
    queries: usize,
    classes: usize,
    width: usize,
    cluster: usize,
    /// `conditioned` or `random`.
    clustering: String,
    steps: u32,
    rate: Double,
    /// `embeddings`, `server` or `client`.
    cut: String,
    /// `vote` or `graph`.
    predict: String,
    reveal_embeddings: bool,
    every: u32,
    suite: String,
    /// The digest of the job.
    digest: Hex,
}

impl GraphJob {
    fn new(job: &Job) -> Self {
        Self {
            clients: job.clients,
            rows: job.rows,
            queries: job.queries,
            classes: job.classes,
            width: job.width,
            cluster: job.cluster,
            clustering: job.clustering.to_string(),
            steps: job.steps,
            rate: double(job.rate),
            cut: job.cut.to_string(),
            predict: job.predict.to_string(),
            reveal_embeddings: job.reveal_embeddings,
            every: job.every,
            suite: job.suite.to_string(),
            digest: hex(&job.digest()),
        }
    }
}

/// Clusters of rows.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct ClustersOf {
    labels: Vec<u16>,
    classes: usize,
    /// δ.
    size: usize,
    /// `conditioned` or `random`.
    clustering: String,
    /// The seed of the stream.
    seed: Hex,
    /// The rows of each cluster.
    clusters: Vec<Vec<usize>>,
    /// The shares of classes in each cluster.
    targets: Rows,
}

fn clusters_of(nth: usize, count: usize, size: usize, clustering: Clustering) -> ClustersOf {
    let classes = 2 + nth % 4;
    let mut prg = Prg::new(&[70 + nth as u8; 32]);
    let labels = labels(&mut prg, count, classes);
    let job = Job {
        cluster: size,
        clustering,
        ..Job::new(3, count, 0, classes)
    };
    let seed = Seed::from_bytes([90 + nth as u8; 32]);
    let made = clusters(&job, &labels, &seed);
    ClustersOf {
        labels,
        classes,
        size,
        clustering: clustering.to_string(),
        seed: hex(seed.expose()),
        clusters: made.rows,
        targets: rows_of(&made.targets),
    }
}

/// The graph of some clients.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct ClientGraph {
    /// The tags of each client's features, ascending.
    tags: Vec<Vec<Hex>>,
    /// The neighbours of each client.
    neighbours: Vec<Vec<usize>>,
    /// e: for each client and each tag of all clients, ascending, the share of its neighbours with
    /// which it has the tag in common.
    edges: Rows,
    /// The clients that the cut `client` leaves in the network.
    members: Vec<usize>,
    /// The neighbours of each client with this cut.
    neighbours_in: Vec<Vec<usize>>,
    /// e with this cut.
    edges_in: Rows,
}

/// Tags from one byte each, such that their order is not that of these bytes.
fn tags(features: &[&[u8]]) -> Vec<Vec<Tag>> {
    let tag = |feature: &u8| [feature.wrapping_mul(77), *feature, 0, 0, 0, 0, 0, 255];
    let of_client = |features: &&[u8]| {
        let mut tags: Vec<Tag> = features.iter().map(tag).collect();
        tags.sort_unstable();
        tags
    };
    features.iter().map(of_client).collect()
}

fn written(tags: &[Vec<Tag>]) -> Vec<Vec<Hex>> {
    let own = |tags: &Vec<Tag>| tags.iter().map(|tag| hex(tag)).collect();
    tags.iter().map(own).collect()
}

fn neighbours(graph: &Graph) -> Vec<Vec<usize>> {
    let clients = 0..graph.clients();
    clients
        .map(|client| graph.neighbours(client).to_vec())
        .collect()
}

fn edges(graph: &Graph) -> Rows {
    let clients = 0..graph.clients();
    clients.map(|client| doubles(graph.edges(client))).collect()
}

fn graph_of(features: &[&[u8]]) -> ClientGraph {
    let tags = tags(features);
    let graph = Graph::new(&tags);
    let pairs = graph.clone().with_pairs();
    ClientGraph {
        tags: written(&tags),
        neighbours: neighbours(&graph),
        edges: edges(&graph),
        members: pairs.members().collect(),
        neighbours_in: neighbours(&pairs),
        edges_in: edges(&pairs),
    }
}

/// Steps of the network, with all embeddings in one place.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct NetworkSteps {
    job: GraphJob,
    session: Hex,
    /// The context of a run of this job.
    context: Hex,
    /// The tags of each client's features, ascending.
    tags: Vec<Vec<Hex>>,
    labels: Vec<u16>,
    /// The embeddings of each client.
    embeddings: Vec<Rows>,
    /// The seed of the clusters.
    cluster_seed: Hex,
    /// The seed of the clients' first weights.
    client_seed: Hex,
    /// The seed of the server's first weights.
    server_seed: Hex,
    clusters: Vec<Vec<usize>>,
    /// W₁ W₂ W₃ b V₁ V₂ V₃ c O p before the first step.
    weights: Vec<Rows>,
    steps: Vec<NetworkStep>,
    /// The embeddings of rows to predict, of each client.
    queries: Vec<Rows>,
    /// Their class probabilities after the last step.
    predicted: Rows,
}

/// One step.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct NetworkStep {
    /// S of each client in the network before the step.
    sums: Vec<Rows>,
    /// The mean cross entropy before the step.
    loss: Double,
    /// The slopes of all weights, in their order.
    slopes: Vec<Double>,
    /// The weights after the step, in their order.
    weights: Vec<Double>,
}

fn steps_of(job: &Job, features: &[&[u8]]) -> Result<NetworkSteps, Error> {
    let mut prg = Prg::new(&[110 + job.width as u8; 32]);
    let labels = labels(&mut prg, job.rows, job.classes);
    let mut each = |rows: usize| -> Result<Vec<Matrix>, Error> {
        let clients = 0..job.clients;
        clients
            .map(|_| random(&mut prg, rows, job.width, true))
            .collect()
    };
    let (embeddings, queries) = (each(job.rows)?, each(job.queries)?);
    let (tags, seeds) = (
        tags(features),
        [1, 2, 3].map(|byte| Seed::from_bytes([byte; 32])),
    );
    let [of_clusters, of_clients, of_server] = &seeds;
    let seeds = clear::Seeds {
        clusters: of_clusters,
        clients: of_clients,
        server: of_server,
    };
    let graph = Graph::new(&tags);
    let all = embeddings.iter().collect();
    let mut network = clear::Network::over(job, graph, all, &labels, &seeds);
    let flat = |network: &clear::Network| -> Vec<Double> {
        let arrays = network.weights().arrays().iter();
        arrays.flat_map(|array| doubles(array.values())).collect()
    };
    let weights = network.weights().arrays().iter().map(rows_of).collect();
    let mut steps = Vec::new();
    for _ in 0..job.steps {
        let sums = network.sums();
        let members = network.graph().members();
        let sums = members.map(|client| rows_of(&sums[client])).collect();
        let (loss, slopes) = network.slopes();
        network.step();
        steps.push(NetworkStep {
            sums,
            loss: double(loss),
            slopes: doubles(&slopes),
            weights: flat(&network),
        });
    }
    Ok(NetworkSteps {
        job: GraphJob::new(job),
        session: hex(&SESSION.0),
        context: hex(&job.context(SESSION).0),
        tags: written(&tags),
        labels,
        embeddings: embeddings.iter().map(rows_of).collect(),
        cluster_seed: hex(of_clusters.expose()),
        client_seed: hex(of_clients.expose()),
        server_seed: hex(of_server.expose()),
        clusters: network.clusters().rows.clone(),
        weights,
        steps,
        predicted: rows_of(&network.predict(&queries)),
        queries: queries.iter().map(rows_of).collect(),
    })
}

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
    job: GraphJob,
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
            job: GraphJob::new(job),
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
    let none = Vec::<Nothing>::new;
    let (conditioned, random) = (Clustering::Conditioned, Clustering::Random);
    let made = [
        (23, 4, conditioned),
        (40, 7, conditioned),
        (11, 1, conditioned),
        (9, 9, conditioned),
        (17, 3, random),
        (5, 4, random),
        // The rows that are left make a cluster of their own.
        (14, 4, random),
        // They are too few for that.
        (13, 4, random),
        (30, 6, conditioned),
    ];
    let made = made.into_iter().enumerate();
    let made =
        made.map(|(nth, (count, size, clustering))| clusters_of(nth, count, size, clustering));
    let place = "docs/spec/fedgraph.md, Locally";
    let mut all = crate::files("clusters", place, made.collect(), none())?;
    let graphs: [&[&[u8]]; 5] = [
        &[&[1, 2, 3], &[2, 3], &[3, 4], &[5]],
        // A triangle with a tail of two.
        &[&[1, 2], &[1], &[1], &[2, 3], &[3]],
        // A path.
        &[&[1], &[1, 2], &[2, 3], &[3]],
        // Two triangles and a bridge.
        &[&[1], &[1], &[1, 7], &[2, 7], &[2], &[2]],
        &[&[9, 8, 7], &[9, 8, 7], &[9, 8], &[9, 6]],
    ];
    let graphs = graphs.map(graph_of);
    all.extend(crate::files("client-graph", place, graphs.into(), none())?);
    let job = |clients, width, cut| Job {
        width,
        cut,
        cluster: 4,
        steps: 3,
        rate: 0.02,
        ..Job::new(clients, 18, 2, 3)
    };
    let networks = [
        steps_of(&job(3, 2, Cut::Client), &[&[1, 2], &[2, 3], &[1, 3]])?,
        steps_of(
            &job(5, 3, Cut::Client),
            &[&[1, 2], &[1, 4], &[1, 4], &[2, 3], &[3]],
        )?,
        steps_of(
            &Job {
                clustering: Clustering::Random,
                suite: Suite::ChaCha20,
                ..job(4, 4, Cut::Server)
            },
            &[&[1, 2], &[2], &[2, 3, 4], &[5]],
        )?,
        steps_of(
            &Job {
                predict: Predict::Graph,
                reveal_embeddings: true,
                ..job(3, 5, Cut::Embeddings)
            },
            &[&[1], &[1, 2], &[2]],
        )?,
    ];
    all.extend(crate::files(
        "graph-network",
        place,
        networks.into(),
        none(),
    )?);
    let cases = cases()?;
    let runs: Result<Vec<GraphRun>, Error> = cases.iter().map(Case::case).collect();
    all.extend(crate::files(
        "feature-graph",
        "docs/spec/fedgraph.md",
        runs?,
        refusals(&cases)?,
    )?);
    Ok(all)
}
