//! A sink that keeps every distance.

use std::collections::BTreeMap;

use undertone::hamming::tiles::{Sink, Tile};

/// All distances, and the number that arrived more than once.
#[derive(Default, Debug, Clone, PartialEq)]
pub struct Kept {
    /// The distances by client, row, client, row. The smaller client comes first.
    pub distances: BTreeMap<[usize; 4], u16>,
    /// The number of distances that arrived more than once.
    pub twice: usize,
}

impl Sink for Kept {
    fn fork(&self) -> Self {
        Self::default()
    }

    fn join(&mut self, other: Self) {
        self.twice += other.twice;
        if self.distances.is_empty() {
            self.distances = other.distances;
            return;
        }
        for (pair, distance) in other.distances {
            self.twice += usize::from(self.distances.insert(pair, distance).is_some());
        }
    }

    fn tile(&mut self, tile: &Tile<'_>) {
        let (left, right) = (tile.left, tile.right);
        assert_eq!(tile.distances.len(), left.rows.len() * right.rows.len());
        let rows = left.rows.clone();
        let pairs = rows.flat_map(|a| right.rows.clone().map(move |b| (a, b)));
        for ((a, b), distance) in pairs.zip(tile.distances) {
            let pair = if left.client < right.client {
                [left.client, a, right.client, b]
            } else {
                [right.client, b, left.client, a]
            };
            self.twice += usize::from(self.distances.insert(pair, *distance).is_some());
        }
    }
}
