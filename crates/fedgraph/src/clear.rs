//! The graph network in the clear, with all embeddings in one place: for tests and experiments.

use undertone_kdf::Seed;
use undertone_kernel::Wiped;

use crate::clusters::{Clusters, clusters};
use crate::data::Inputs;
use crate::graph::{Graph, Tag};
use crate::job::{Cut, Job};
use crate::matrix::Matrix;
use crate::network::{self, Head, Learner, Node, Weights};

/// The network of all clients, in the clear.
#[derive(Debug)]
pub struct Network {
    job: Job,
    graph: Graph,
    members: Vec<usize>,
    embeddings: Vec<Matrix>,
    means: Vec<Matrix>,
    clusters: Clusters,
    learner: Learner,
}

/// The seeds of a run.
#[derive(Debug)]
pub struct Seeds<'a> {
    /// Of the clusters.
    pub clusters: &'a Seed,
    /// Of the weights that clients have.
    pub clients: &'a Seed,
    /// Of those that the server has.
    pub server: &'a Seed,
}

impl Network {
    /// The network of these clients before its first step. With the cut `client`, clients with
    /// fewer than two neighbours sit out.
    pub fn new(job: &Job, inputs: &[&Inputs], seeds: &Seeds<'_>) -> Self {
        let mut names: Vec<&String> = inputs.iter().flat_map(|own| &own.columns).collect();
        names.sort_unstable();
        names.dedup();
        let tag = |name: &String| -> Tag {
            (names.partition_point(|other| *other < name) as u64).to_be_bytes()
        };
        let tags: Vec<Vec<Tag>> = inputs
            .iter()
            .map(|own| {
                let mut tags: Vec<Tag> = own.columns.iter().map(tag).collect();
                tags.sort_unstable();
                tags
            })
            .collect();
        let graph = Graph::new(&tags);
        let embeddings = inputs.iter().map(|own| &own.embeddings).collect();
        Self::over(job, graph, embeddings, &inputs[0].labels, seeds)
    }

    /// The network over the graph of a run, which has the features in the order of their tags.
    pub fn over(
        job: &Job,
        graph: Graph,
        embeddings: Vec<&Matrix>,
        labels: &[u16],
        seeds: &Seeds<'_>,
    ) -> Self {
        let graph = if job.cut == Cut::Client {
            graph.with_pairs()
        } else {
            graph
        };
        let clusters = clusters(job, labels, seeds.clusters);
        let features = graph.features();
        let all = 0..network::ARRAYS;
        let mut learner = Learner::new(job, features, all.clone(), seeds.server);
        let theirs = network::of_clients(job.cut);
        let clients = Weights::random(job, features, theirs.clone(), seeds.clients);
        let server = Weights::random(job, features, network::of_server(job.cut), seeds.server);
        learner.weights.join(&clients, &server, theirs);
        let embeddings: Vec<Matrix> = embeddings
            .iter()
            .map(|own| own.means(&clusters.rows))
            .collect();
        Self {
            means: (0..graph.clients())
                .map(|client| graph.mean(client, &embeddings))
                .collect(),
            members: graph.members().collect(),
            job: job.clone(),
            graph,
            embeddings,
            clusters,
            learner,
        }
    }

    fn head<'a>(&'a self, embeddings: &[Matrix], means: &[Matrix]) -> Head<'a> {
        let weights = &self.learner.weights;
        let node = |client| {
            let own = (&embeddings[client], &means[client]);
            Node::of(weights, &self.graph, client, own)
        };
        Head {
            weights,
            graph: &self.graph,
            nodes: (0..self.graph.clients()).map(node).collect(),
            members: &self.members,
        }
    }

    /// The loss, and the slopes of all weights: W₁ W₂ W₃ b V₁ V₂ V₃ c O p.
    pub fn slopes(&self) -> (f64, Wiped<f64>) {
        let stepped = self
            .head(&self.embeddings, &self.means)
            .step(&self.clusters.targets);
        let rows = self.clusters.rows.len();
        let factor = network::slope_factor(rows, self.members.len());
        let mut first: Option<[Matrix; 2]> = None;
        for (place, client) in self.members.iter().enumerate() {
            let slopes = &stepped.first[place];
            let parts =
                [&self.embeddings, &self.means].map(|all| all[*client].transposed_times(slopes));
            match &mut first {
                None => first = Some(parts),
                Some(sums) => {
                    let pairs = sums.iter_mut().zip(&parts);
                    pairs.for_each(|(sum, part)| sum.add(1.0, part));
                }
            }
        }
        let mut slopes: Vec<Matrix> = first.into_iter().flatten().collect();
        slopes.extend(stepped.weights);
        (stepped.loss, network::flatten(&slopes, factor))
    }

    /// The slopes of S of each client in the network, in the order of the clients.
    pub fn first_slopes(&self) -> Vec<Matrix> {
        let mut head = self.head(&self.embeddings, &self.means);
        head.step(&self.clusters.targets).first
    }

    /// Takes a step. Returns the loss before it.
    pub fn step(&mut self) -> f64 {
        let (loss, slopes) = self.slopes();
        self.learner.step(self.job.rate, &slopes);
        loss
    }

    /// The sums S of the first layer of each client, for its clusters.
    pub fn sums(&self) -> Vec<Matrix> {
        let head = self.head(&self.embeddings, &self.means);
        head.nodes.into_iter().map(|node| node.sum).collect()
    }

    /// The class probabilities of rows with these embeddings, one matrix for each client.
    pub fn predict(&self, embeddings: &[Matrix]) -> Matrix {
        let clients = 0..self.graph.clients();
        let means: Vec<Matrix> = clients.map(|m| self.graph.mean(m, embeddings)).collect();
        self.head(embeddings, &means).forward().softmax()
    }

    /// The weights.
    pub fn weights(&self) -> &Weights {
        &self.learner.weights
    }

    /// The graph.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// The clusters.
    pub fn clusters(&self) -> &Clusters {
        &self.clusters
    }
}
