//! Distances between slots become distances between rows.

use std::sync::Arc;

use undertone_hamming::tiles::{Sink, Tile};

use super::Slots;
use crate::distances::Distances;

/// The nearest rows, from distances between slots.
#[derive(Clone)]
pub(crate) struct Gathered {
    near: Distances,
    /// The global id of the row of each slot of each client, or [`DUMMY`].
    rows: Arc<Vec<Vec<u32>>>,
}

const DUMMY: u32 = u32::MAX;

impl Gathered {
    /// `near` has the nearest rows within each client. Client `j` has `slots[j]`.
    pub(crate) fn new(near: Distances, slots: &[Slots]) -> Self {
        let client = |(client, slots): (usize, &Slots)| {
            let first = near.offset(client) as u32;
            let rows = slots.rows().iter();
            rows.map(|row| row.map_or(DUMMY, |row| first + row))
                .collect()
        };
        Self {
            rows: Arc::new(slots.iter().enumerate().map(client).collect()),
            near,
        }
    }

    /// The nearest rows of all.
    pub(crate) fn into_distances(self) -> Distances {
        self.near
    }
}

impl Sink for Gathered {
    fn fork(&self) -> Self {
        Self {
            near: self.near.fork(),
            rows: Arc::clone(&self.rows),
        }
    }

    fn join(&mut self, other: Self) {
        self.near.join(other.near);
    }

    fn tile(&mut self, tile: &Tile<'_>) {
        let rows = Arc::clone(&self.rows);
        let left = &rows[tile.left.client][tile.left.rows.clone()];
        let right = &rows[tile.right.client][tile.right.rows.clone()];
        self.near.take_rows(left, right, DUMMY, tile.distances);
    }
}
