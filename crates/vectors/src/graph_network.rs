//! A graph network over clients, at one party: clusters, the graph, and steps in the clear.

use schemars::JsonSchema;
use serde::Serialize;
use undertone::fedgraph::{Clustering, Cut, Graph, Job, Matrix, Predict, Tag, clear, clusters};
use undertone::job::Job as _;
use undertone::kdf::Seed;
use undertone::kernel::Prg;
use undertone::sum::Suite;

use crate::jobs::DescribedJob;
use crate::primitives::{Nothing, SESSION};
use crate::{Double, Error, File, Hex, double, doubles, hex};

/// A matrix, row after row.
pub(crate) type Rows = Vec<Vec<Double>>;

pub(crate) fn rows_of(matrix: &Matrix) -> Rows {
    matrix.each_row().map(doubles).collect()
}

/// A matrix of random values from −0.5 to 1.5, or their positive parts.
pub(crate) fn random(
    prg: &mut Prg,
    rows: usize,
    columns: usize,
    is_positive: bool,
) -> Result<Matrix, Error> {
    let least = if is_positive { 0.0 } else { f64::MIN };
    let values = (0..rows * columns).map(|_| (2.0 * prg.unit() - 0.5).max(least));
    Matrix::new(rows, columns, values.collect()).ok_or(Error::Missing("a matrix"))
}

pub(crate) fn labels(prg: &mut Prg, rows: usize, classes: usize) -> Vec<u16> {
    (0..rows).map(|_| prg.below(classes) as u16).collect()
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
    job: DescribedJob,
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
        job: DescribedJob::new("fedgraph", &job.fields()),
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
    Ok(all)
}
