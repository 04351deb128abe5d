//! The graph of clients: neighbours have a feature in common.

use std::collections::{BTreeMap, BTreeSet};

use crate::matrix::Matrix;

/// The tag of a feature's name. Equal names have equal tags, and the server cannot tell the name.
pub type Tag = [u8; 8];

/// The clients, in order, and who has features in common with whom.
#[derive(Debug, Clone, PartialEq)]
pub struct Graph {
    /// The neighbours of each client.
    neighbours: Vec<Vec<usize>>,
    /// Which clients are in the network.
    is_in: Vec<bool>,
    /// For each client and feature: with what share of its neighbours it has the feature in common.
    edges: Matrix,
}

impl Graph {
    /// The graph of clients with these features: for each client the tags.
    pub fn new(tags: &[Vec<Tag>]) -> Self {
        // The clients that have each tag, in order.
        let mut holders: BTreeMap<&Tag, BTreeSet<usize>> = BTreeMap::new();
        for (client, tags) in tags.iter().enumerate() {
            for tag in tags {
                holders.entry(tag).or_default().insert(client);
            }
        }
        let mut is_edge = vec![vec![false; tags.len()]; tags.len()];
        for holders in holders.values() {
            for m in holders {
                holders.iter().for_each(|l| is_edge[*m][*l] = m != l);
            }
        }
        let neighbours: Vec<Vec<usize>> = is_edge
            .iter()
            .map(|line| (0..line.len()).filter(|l| line[*l]).collect())
            .collect();
        let count = holders.len();
        let mut edges = Matrix::zeros(tags.len(), count);
        for (column, holders) in holders.values().enumerate() {
            for m in holders {
                // All others that have the tag are neighbours.
                let common = (holders.len() - 1) as f64;
                let share = common / neighbours[*m].len().max(1) as f64;
                edges.values_mut()[*m * count + column] = share;
            }
        }
        Self {
            is_in: vec![true; tags.len()],
            neighbours,
            edges,
        }
    }

    /// The graph of the clients with two neighbours or more, which again count only such
    /// neighbours. The others sit out: with one neighbour a client would see that neighbour's
    /// values.
    #[must_use]
    pub fn with_pairs(mut self) -> Self {
        let (mut before, clients) = (usize::MAX, self.neighbours.len());
        loop {
            for m in 0..clients {
                self.is_in[m] &= self.neighbours[m].len() >= 2;
            }
            let count = self.members().count();
            if count == before {
                return self;
            }
            before = count;
            let is_in = self.is_in.clone();
            for (m, neighbours) in self.neighbours.iter_mut().enumerate() {
                neighbours.retain(|l| is_in[m] && is_in[*l]);
            }
        }
    }

    /// The number of clients.
    pub fn clients(&self) -> usize {
        self.neighbours.len()
    }

    /// The number of different features of all clients.
    pub fn features(&self) -> usize {
        self.edges.columns()
    }

    /// The clients in the network.
    pub fn members(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.is_in.len()).filter(|m| self.is_in[*m])
    }

    /// Whether a client is in the network.
    pub fn is_in(&self, client: usize) -> bool {
        self.is_in[client]
    }

    /// The neighbours of a client.
    pub fn neighbours(&self, client: usize) -> &[usize] {
        &self.neighbours[client]
    }

    /// How many clients a network has, all of them neighbours, in which a client learns as much as
    /// `client` does here: that of `client`, of its neighbours, and of what else goes into their
    /// means, as far as it differs from neighbour to neighbour (docs/spec/fedgraph.md, *Graph*).
    pub fn size_around(&self, client: usize) -> usize {
        let around = self.around(client);
        let beyond = |neighbour: &usize| -> Vec<u64> {
            let its = &self.neighbours[*neighbour];
            let is_beyond = |other| its.contains(&other) && !around.contains(&other);
            (0..self.clients())
                .map(|other| is_beyond(other).into())
                .collect()
        };
        around.len() + rank(self.neighbours[client].iter().map(beyond).collect())
    }

    /// The clients whose values go into the sums of `client`: itself and its neighbours, in order.
    pub(crate) fn around(&self, client: usize) -> Vec<usize> {
        let mut around = self.neighbours[client].clone();
        if self.is_in[client] {
            around.push(client);
        }
        around.sort_unstable();
        around
    }

    /// The weight of a neighbour in the mean of `client`.
    pub(crate) fn share(&self, client: usize) -> f64 {
        1.0 / self.neighbours[client].len().max(1) as f64
    }

    /// For each feature, in the order of tags: with what share of its neighbours a client has it in
    /// common.
    pub fn edges(&self, client: usize) -> &[f64] {
        let features = self.features();
        &self.edges.values()[client * features..(client + 1) * features]
    }

    /// The mean over the neighbours of `client` of `values`, one matrix for each client.
    pub(crate) fn mean(&self, client: usize, values: &[Matrix]) -> Matrix {
        let mut sum = Matrix::zeros(values[client].rows(), values[client].columns());
        for other in self.neighbours(client) {
            sum.add(self.share(client), &values[*other]);
        }
        sum
    }

    /// What [`mean`](Self::mean) does, transposed: the sum over clients that have `client` as a
    /// neighbour, each with its own share.
    pub(crate) fn spread(&self, client: usize, values: &[Matrix]) -> Matrix {
        let mut sum = Matrix::zeros(values[client].rows(), values[client].columns());
        for other in self.neighbours(client) {
            sum.add(self.share(*other), &values[*other]);
        }
        sum
    }
}

/// The rank of rows of integers, modulo a prime: never more than the rank in the rationals.
fn rank(mut rows: Vec<Vec<u64>>) -> usize {
    const PRIME: u64 = (1 << 31) - 1;
    let power = |base: u64, exponent: u64| {
        (0..31).rev().fold(1, |out, bit| {
            let square = out * out % PRIME;
            if exponent >> bit & 1 == 1 {
                square * base % PRIME
            } else {
                square
            }
        })
    };
    let mut rank = 0;
    for column in 0..rows.first().map_or(0, Vec::len) {
        let Some(pivot) = (rank..rows.len()).find(|row| rows[*row][column] != 0) else {
            continue;
        };
        rows.swap(rank, pivot);
        let (done, rest) = rows.split_at_mut(rank + 1);
        let pivot = &done[rank];
        let inverse = power(pivot[column], PRIME - 2);
        for row in rest {
            let factor = PRIME - row[column] * inverse % PRIME;
            for (value, from) in row.iter_mut().zip(pivot) {
                *value = (*value + factor * from) % PRIME;
            }
        }
        rank += 1;
    }
    rank
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(features: &[&[u8]]) -> Graph {
        let tags = |client: &&[u8]| client.iter().map(|name| [*name; 8]).collect();
        Graph::new(&features.iter().map(tags).collect::<Vec<_>>())
    }

    #[test]
    fn clients_with_a_common_feature_are_neighbours() {
        let graph = graph(&[&[1, 2, 3], &[2, 3], &[3, 4], &[5]]);
        assert_eq!(graph.features(), 5);
        assert_eq!(graph.neighbours(0), [1, 2]);
        assert_eq!(graph.neighbours(2), [0, 1]);
        assert!(graph.neighbours(3).is_empty());
        assert_eq!(graph.edges(0), [0.0, 0.5, 1.0, 0.0, 0.0]);
        assert_eq!(graph.edges(3), [0.0; 5]);
        assert_eq!(graph.around(1), [0, 1, 2]);
    }

    /// Every pair of clients and every feature, one by one.
    #[test]
    fn shares_of_neighbours_are_those_of_the_definition() {
        let mut prg = undertone_kdf::Seed::from_bytes([5; 32]).prg();
        for _ in 0..20 {
            let own: Vec<Vec<u8>> = (0..7)
                .map(|_| (0..9).filter(|_| prg.below(4) == 0).collect())
                .collect();
            let graph = graph(&own.iter().map(Vec::as_slice).collect::<Vec<_>>());
            let mut all = own.concat();
            all.sort_unstable();
            all.dedup();
            assert_eq!(graph.features(), all.len());
            let has = |client: usize, name: &u8| own[client].contains(name);
            for m in 0..7 {
                let common = |l: &usize| *l != m && own[*l].iter().any(|name| has(m, name));
                let due: Vec<usize> = (0..7).filter(common).collect();
                assert_eq!(graph.neighbours(m), due);
                let shares = all.iter().map(|name| {
                    let count = due
                        .iter()
                        .filter(|l| has(m, name) && has(**l, name))
                        .count();
                    count as f64 / due.len().max(1) as f64
                });
                assert_eq!(graph.edges(m), shares.collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn the_size_around_a_client_is_that_of_what_it_does_not_know() {
        let size = |features: &[&[u8]], client| graph(features).with_pairs().size_around(client);
        // All are neighbours.
        for clients in 3..7 {
            assert_eq!(size(&vec![&[1][..]; clients], 0), clients);
        }
        // Circles of four, five and seven.
        assert_eq!(size(&[&[1, 2], &[2, 3], &[3, 4], &[4, 1]], 0), 4);
        assert_eq!(size(&[&[1, 2], &[2, 3], &[3, 4], &[4, 5], &[5, 1]], 0), 5);
        let seven = [[1, 2], [2, 3], [3, 4], [4, 5], [5, 6], [6, 7], [7, 1]];
        assert_eq!(size(&seven.each_ref().map(|own| &own[..]), 0), 5);
        // Two clients, each a neighbour of three others: these see one sum of the others.
        let two: [&[u8]; 5] = [&[1, 2, 3], &[4, 5, 6], &[1, 4], &[2, 5], &[3, 6]];
        assert_eq!((size(&two, 0), size(&two, 2)), (5, 4));
        // Two triangles with a client in common.
        let common: [&[u8]; 5] = [&[1, 2], &[1], &[1], &[2], &[2]];
        assert_eq!((size(&common, 0), size(&common, 1)), (5, 4));
        assert_eq!(size(&[&[1], &[1], &[1], &[2]], 3), 0);
    }

    #[test]
    fn clients_with_one_neighbour_sit_out_and_then_their_neighbours_may() {
        // A triangle with a tail of two.
        let tailed = graph(&[&[1, 2], &[1], &[1], &[2, 3], &[3]]).with_pairs();
        assert_eq!(tailed.members().collect::<Vec<_>>(), [0, 1, 2]);
        assert_eq!(tailed.neighbours(0), [1, 2]);
        assert!(tailed.around(4).is_empty());
        // A path has none left.
        let path = graph(&[&[1], &[1, 2], &[2]]).with_pairs();
        assert_eq!(path.members().count(), 0);
    }
}
