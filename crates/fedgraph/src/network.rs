//! The graph network: two layers over the clients, the mean over clients, and a linear layer.
//!
//! Client m has the embeddings H_m, a matrix of clusters × width, and the shares e_m of features
//! that it has in common with its neighbours. *mean* is over m's neighbours.
//!
//! - S_m = H_m W₁ + mean(H) W₂ + e_m W₃ + b; G_m is its positive part
//! - Z_m = G_m V₁ + mean(G) V₂ + e_m V₃ + c; Q_m is its positive part
//! - logits = the mean of Q_m over all clients, times O, plus p
//!
//! The paper's Equations 3 and 4 with one line each. Slopes are those of the mean cross entropy of
//! clusters, times clusters × clients: so they have about the size of values, and one factor
//! remains for the weights.

use std::ops::Range;

use undertone_kdf::Seed;
use undertone_kernel::Wiped;

use crate::adam::Adam;
use crate::graph::Graph;
use crate::job::{Cut, Job};
use crate::matrix::Matrix;

/// The number of arrays of weights: W₁ W₂ W₃ b V₁ V₂ V₃ c O p.
pub(crate) const ARRAYS: usize = 10;
const W1: usize = 0;
const W2: usize = 1;
const W3: usize = 2;
const B: usize = 3;
const V1: usize = 4;
const V2: usize = 5;
const C: usize = 7;
const O: usize = 8;
const P: usize = 9;

/// The arrays that clients have.
pub(crate) fn of_clients(cut: Cut) -> Range<usize> {
    match cut {
        Cut::Embeddings => 0..0,
        Cut::Server => W1..W3,
        Cut::Client => 0..ARRAYS,
    }
}

/// The arrays that the server has.
pub(crate) fn of_server(cut: Cut) -> Range<usize> {
    of_clients(cut).end..ARRAYS
}

/// Rows and columns of the arrays.
fn shapes(job: &Job, features: usize) -> [(usize, usize); ARRAYS] {
    let (width, classes) = (job.width, job.classes);
    let layer = [
        (width, width),
        (width, width),
        (features, width),
        (1, width),
    ];
    let [own, mean, edges, bias] = layer;
    let out = [(width, classes), (1, classes)];
    [
        own, mean, edges, bias, own, mean, edges, bias, out[0], out[1],
    ]
}

/// The number of weights in these arrays.
pub(crate) fn count(job: &Job, features: usize, arrays: Range<usize>) -> usize {
    let shapes = shapes(job, features);
    let sizes = shapes[arrays].iter();
    sizes.map(|(rows, columns)| rows * columns).sum()
}

/// The weights of the network. A party that has some of them only has zeros in place of the
/// others.
#[derive(Debug, Clone, PartialEq)]
pub struct Weights(Vec<Matrix>);

impl Weights {
    /// Uniform between ±1/√n for arrays with n inputs; biases are 0.
    pub(crate) fn random(job: &Job, features: usize, arrays: Range<usize>, seed: &Seed) -> Self {
        let mut prg = seed.prg();
        let shapes = shapes(job, features);
        let array = |(index, (rows, columns)): (usize, (usize, usize))| {
            let mut array = Matrix::zeros(rows, columns);
            let is_bias = matches!(index, B | C | P);
            if arrays.contains(&index) && !is_bias {
                let most = 1.0 / (rows as f64).sqrt();
                let values = array.values_mut().iter_mut();
                values.for_each(|value| *value = most * (2.0 * prg.unit() - 1.0));
            }
            array
        };
        Self(shapes.into_iter().enumerate().map(array).collect())
    }

    /// The arrays W₁ W₂ W₃ b V₁ V₂ V₃ c O p.
    pub fn arrays(&self) -> &[Matrix] {
        &self.0
    }

    /// Takes the arrays `theirs` from `clients`, and the others from `server`.
    pub(crate) fn join(&mut self, clients: &Self, server: &Self, theirs: Range<usize>) {
        for (index, array) in self.0.iter_mut().enumerate() {
            let from = if theirs.contains(&index) {
                clients
            } else {
                server
            };
            *array = from.0[index].clone();
        }
    }

    fn flat(&self, arrays: Range<usize>) -> Wiped<f64> {
        let arrays = &self.0[arrays];
        let mut out = Wiped::with_capacity(arrays.iter().map(|a| a.values().len()).sum());
        arrays
            .iter()
            .for_each(|a| out.extend_from_slice(a.values()));
        out
    }

    fn set(&mut self, arrays: Range<usize>, flat: &[f64]) {
        let mut rest = flat;
        for array in &mut self.0[arrays] {
            let values = array.values_mut();
            let (now, after) = rest.split_at(values.len());
            values.copy_from_slice(now);
            rest = after;
        }
    }
}

/// Weights that learn.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Learner {
    pub(crate) weights: Weights,
    /// The arrays that this party has.
    pub(crate) arrays: Range<usize>,
    pub(crate) adam: Adam,
}

impl Learner {
    pub(crate) fn new(job: &Job, features: usize, arrays: Range<usize>, seed: &Seed) -> Self {
        Self {
            weights: Weights::random(job, features, arrays.clone(), seed),
            adam: Adam::new(count(job, features, arrays.clone())),
            arrays,
        }
    }

    /// The learner with these weights, of the arrays that it has.
    pub(crate) fn resumed(
        job: &Job,
        features: usize,
        arrays: Range<usize>,
        (flat, adam): (&[f64], Adam),
    ) -> Option<Self> {
        let mut learner = Self::new(job, features, arrays.clone(), &Seed::from_bytes([0; 32]));
        let fits = [flat.len(), adam.moments[0].len(), adam.moments[1].len()];
        if fits != [learner.adam.moments[0].len(); 3] {
            return None;
        }
        learner.weights.set(arrays, flat);
        learner.adam = adam;
        Some(learner)
    }

    /// The weights that this party has, one after the other.
    pub(crate) fn flat(&self) -> Wiped<f64> {
        self.weights.flat(self.arrays.clone())
    }

    /// A step of Adam with these slopes of the weights that this party has.
    pub(crate) fn step(&mut self, rate: f64, slopes: &[f64]) {
        let mut flat = self.flat();
        self.adam.step(rate, &mut flat, slopes);
        self.weights.set(self.arrays.clone(), &flat);
    }
}

/// What a client adds to the sums S of itself, and of each neighbour before that one's share.
pub(crate) fn first_terms(weights: &Weights, embeddings: &Matrix) -> [Matrix; 2] {
    [W1, W2].map(|array| embeddings.times(&weights.0[array]))
}

/// Adds what depends on no embedding to a sum S or Z: e W + bias.
fn complete(weights: &Weights, layer: usize, edges: &[f64], sum: &mut Matrix) {
    let edges = Matrix::new(1, edges.len(), edges.to_vec());
    let mut line = weights.0[layer + B].clone();
    if let Some(edges) = edges {
        line.add(1.0, &edges.times(&weights.0[layer + W3]));
    }
    sum.add_to_rows(line.values());
}

/// Slopes of W₁ and W₂ from a client's embeddings: of S_m, and of the sums that the client went
/// into as a neighbour.
pub(crate) fn first_slopes(embeddings: &Matrix, own: &Matrix, spread: &Matrix) -> [Matrix; 2] {
    [own, spread].map(|slopes| embeddings.transposed_times(slopes))
}

/// The network at one client.
#[derive(Debug, Clone)]
pub(crate) struct Node {
    edges: Vec<f64>,
    /// S.
    pub(crate) sum: Matrix,
    /// G.
    pub(crate) gained: Matrix,
    /// The mean of the neighbours' G.
    mean: Matrix,
    /// Z, and its positive part Q.
    second: Matrix,
    out: Matrix,
}

impl Node {
    /// The node of `client`, from the terms of S that depend on embeddings.
    pub(crate) fn new(weights: &Weights, graph: &Graph, client: usize, terms: Matrix) -> Self {
        let edges = graph.edges(client).to_vec();
        let mut sum = terms;
        complete(weights, W1, &edges, &mut sum);
        let none = Matrix::zeros(0, 0);
        Self {
            edges,
            gained: sum.positive(),
            sum,
            mean: none.clone(),
            second: none.clone(),
            out: none,
        }
    }

    /// The node of a client that knows its own embeddings, and the mean of its neighbours'.
    pub(crate) fn of(
        weights: &Weights,
        graph: &Graph,
        client: usize,
        (own, mean): (&Matrix, &Matrix),
    ) -> Self {
        let mut terms = own.times(&weights.0[W1]);
        terms.add(1.0, &mean.times(&weights.0[W2]));
        Self::new(weights, graph, client, terms)
    }

    /// The second layer, from the mean of the neighbours' G. Returns Q O.
    pub(crate) fn forward(&mut self, weights: &Weights, mean: Matrix) -> Matrix {
        let mut second = self.gained.times(&weights.0[V1]);
        second.add(1.0, &mean.times(&weights.0[V2]));
        complete(weights, V1, &self.edges, &mut second);
        self.mean = mean;
        self.out = second.positive();
        self.second = second;
        self.out.times(&weights.0[O])
    }

    /// Slopes of Z, from those of the logits.
    pub(crate) fn slopes(&self, weights: &Weights, logits: &Matrix) -> Matrix {
        let slopes = logits.times_transposed(&weights.0[O]);
        slopes.where_positive(&self.second)
    }

    /// Slopes of S, from those of Z here and of the second layers that this node went into.
    pub(crate) fn back(&self, weights: &Weights, own: &Matrix, spread: &Matrix) -> Matrix {
        let mut slopes = own.times_transposed(&weights.0[V1]);
        slopes.add(1.0, &spread.times_transposed(&weights.0[V2]));
        slopes.where_positive(&self.sum)
    }

    /// This node's part of the slopes of all arrays but W₁ and W₂, from those of S, Z, logits.
    pub(crate) fn weight_slopes(
        &self,
        first: &Matrix,
        second: &Matrix,
        logits: &Matrix,
    ) -> Vec<Matrix> {
        let edges = |line: &Matrix| {
            let edges = Matrix::new(self.edges.len(), 1, self.edges.clone());
            edges.map_or_else(|| Matrix::zeros(0, 0), |edges| edges.times(line))
        };
        let lines = [first, second, logits].map(Matrix::row_sum);
        let [first_line, second_line, logits_line] = lines;
        vec![
            edges(&first_line),
            first_line,
            self.gained.transposed_times(second),
            self.mean.transposed_times(second),
            edges(&second_line),
            second_line,
            self.out.transposed_times(logits),
            logits_line,
        ]
    }
}

/// Adds the last bias to the mean of Q O.
pub(crate) fn logits(weights: &Weights, mut mean: Matrix) -> Matrix {
    mean.add_to_rows(weights.0[P].values());
    mean
}

/// The mean cross entropy, and the slopes of the logits: probabilities less targets.
pub(crate) fn loss(logits: &Matrix, targets: &Matrix) -> (f64, Matrix) {
    let mut slopes = logits.softmax();
    let pairs = slopes.values().iter().zip(targets.values());
    let loss: f64 = pairs
        .map(|(p, target)| -target * libm::log(p.max(f64::MIN_POSITIVE)))
        .sum();
    slopes.add(-1.0, targets);
    (loss / logits.rows().max(1) as f64, slopes)
}

/// The factor from slopes to those of the mean cross entropy.
pub(crate) fn slope_factor(clusters: usize, members: usize) -> f64 {
    1.0 / (clusters * members).max(1) as f64
}

/// One after the other, times `factor`.
pub(crate) fn flatten(arrays: &[Matrix], factor: f64) -> Wiped<f64> {
    let mut out = Wiped::with_capacity(arrays.iter().map(|a| a.values().len()).sum());
    for array in arrays {
        out.extend(array.values().iter().map(|value| value * factor));
    }
    out
}

/// All of the network but the first sums, at a party that has all nodes.
pub(crate) struct Head<'a> {
    pub(crate) weights: &'a Weights,
    pub(crate) graph: &'a Graph,
    /// The nodes of all clients.
    pub(crate) nodes: Vec<Node>,
    /// The clients that are in the network.
    pub(crate) members: &'a [usize],
}

/// What a step of a [`Head`] gives.
pub(crate) struct Stepped {
    pub(crate) loss: f64,
    /// Slopes of S of each client in the network.
    pub(crate) first: Vec<Matrix>,
    /// Slopes of all arrays but W₁ and W₂.
    pub(crate) weights: Vec<Matrix>,
}

impl Head<'_> {
    /// The logits.
    pub(crate) fn forward(&mut self) -> Matrix {
        let gained: Vec<Matrix> = self.nodes.iter().map(|node| node.gained.clone()).collect();
        let share = 1.0 / self.members.len().max(1) as f64;
        let mut sum: Option<Matrix> = None;
        for client in self.members {
            let mean = self.graph.mean(*client, &gained);
            let term = self.nodes[*client]
                .forward(self.weights, mean)
                .scaled(share);
            match &mut sum {
                None => sum = Some(term),
                Some(sum) => sum.add(1.0, &term),
            }
        }
        logits(self.weights, sum.unwrap_or_else(|| Matrix::zeros(0, 0)))
    }

    /// The slopes.
    pub(crate) fn step(&mut self, targets: &Matrix) -> Stepped {
        let (loss, logits) = loss(&self.forward(), targets);
        let mut second = vec![Matrix::zeros(0, 0); self.nodes.len()];
        for client in self.members {
            second[*client] = self.nodes[*client].slopes(self.weights, &logits);
        }
        let mut weights: Vec<Matrix> = Vec::new();
        let mut first = Vec::with_capacity(self.members.len());
        for client in self.members {
            let (node, slopes) = (&self.nodes[*client], &second[*client]);
            let spread = self.graph.spread(*client, &second);
            let own = node.back(self.weights, slopes, &spread);
            let parts = node.weight_slopes(&own, slopes, &logits);
            if weights.is_empty() {
                weights = parts;
            } else {
                let pairs = weights.iter_mut().zip(&parts);
                pairs.for_each(|(sum, part)| sum.add(1.0, part));
            }
            first.push(own);
        }
        Stepped {
            loss,
            first,
            weights,
        }
    }
}
