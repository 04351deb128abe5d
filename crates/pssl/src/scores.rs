//! Scores of a client's rows, and a round of their propagation.

use undertone_party::PartyId;

use crate::data::Data;
use crate::job::Job;
use crate::local::Graph;
use crate::pair::Edge;

/// Scores of rows × classes, row after row.
pub type Scores = Vec<f64>;

/// One-hot labels; zeros for rows without one.
pub(crate) fn one_hot(job: &Job, data: &Data) -> Scores {
    let mut scores = vec![0.0; data.len() * job.classes];
    for (row, label) in data.labels().iter().enumerate() {
        if let Some(label) = label {
            scores[row * job.classes + usize::from(*label)] = 1.0;
        }
    }
    scores
}

/// A round: A ← α D⁻¹(W A + `sums`) + (1 − α) Y. D has the weights of the graph and, for each row,
/// `outside`: the weights of its other edges.
pub(crate) fn propagate(
    job: &Job,
    graph: &Graph,
    labels: &[f64],
    scores: &[f64],
    (sums, outside): (&[f64], &[f64]),
) -> Scores {
    let classes = job.classes;
    let mut next = Vec::with_capacity(scores.len());
    for (row, neighbours) in graph.iter().enumerate() {
        let mut mean = sums[row * classes..(row + 1) * classes].to_vec();
        let mut degree = outside[row];
        for (other, weight) in neighbours {
            degree += weight;
            let scores = &scores[other * classes..(other + 1) * classes];
            let pairs = mean.iter_mut().zip(scores);
            pairs.for_each(|(sum, score)| *sum += weight * score);
        }
        let share = if degree > 0.0 {
            job.alpha / degree
        } else {
            0.0
        };
        let labels = &labels[row * classes..(row + 1) * classes];
        let pairs = mean.iter().zip(labels);
        next.extend(pairs.map(|(sum, label)| share * sum + (1.0 - job.alpha) * label));
    }
    next
}

/// Propagation at a client alone.
pub(crate) fn alone(job: &Job, graph: &Graph, labels: &[f64]) -> Scores {
    let rows = graph.len();
    let nothing = (vec![0.0; labels.len()], vec![0.0; rows]);
    let round = |scores: Scores, _| {
        let outside = (&nothing.0[..], &nothing.1[..]);
        propagate(job, graph, labels, &scores, outside)
    };
    (0..job.rounds).fold(labels.to_vec(), round)
}

/// The class with the highest score for each row, the first of several. None where all are 0.
pub fn decide(scores: &[f64], classes: usize) -> Vec<Option<u16>> {
    let best = |scores: &[f64]| {
        let best = scores
            .iter()
            .enumerate()
            .fold((0, 0.0), |best, (class, score)| {
                if *score > best.1 {
                    (class as u16, *score)
                } else {
                    best
                }
            });
        (best.1 > 0.0).then_some(best.0)
    };
    scores.chunks_exact(classes.max(1)).map(best).collect()
}

/// The clients with edges to each row of this one, and the weights of the edges.
pub(crate) struct Partners(Vec<Vec<(PartyId, f64)>>);

impl Partners {
    pub(crate) fn new(rows: usize, pairs: &[(PartyId, Vec<Edge>)]) -> Self {
        let mut partners = vec![Vec::new(); rows];
        for (peer, edges) in pairs {
            for edge in edges {
                partners[edge.row].push((*peer, edge.weight));
            }
        }
        Self(partners)
    }

    /// The total weight of each row's edges to `contributors`, or 0 if its owner may not look at
    /// its slot.
    pub(crate) fn outside(&self, job: &Job, contributors: &[PartyId]) -> Vec<f64> {
        let is_there = |who: &PartyId| contributors.binary_search(who).is_ok();
        self.0
            .iter()
            .map(|partners| {
                let there = partners.iter().filter(|(who, _)| is_there(who));
                let fewest = if job.allow_single { 1 } else { 2 };
                if there.clone().count() < fewest {
                    return 0.0;
                }
                there.map(|(_, weight)| weight).sum()
            })
            .collect()
    }
}
