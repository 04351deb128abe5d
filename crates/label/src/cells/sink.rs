//! Distances between slots become distances between rows.

use std::sync::Arc;

use undertone_hamming::tiles::{Block, Sink, Tile};

use super::Slots;
use crate::distances::Distances;

/// The nearest rows, from distances between slots.
#[derive(Clone)]
pub(crate) struct Gathered {
    near: Distances,
    /// The slots of each client.
    slots: Arc<Vec<Slots>>,
}

/// The row of a dummy.
const DUMMY: u32 = u32::MAX;

impl Gathered {
    /// `near` has the nearest rows within each client. Client `j` has `slots[j]`.
    pub(crate) fn new(near: Distances, slots: Vec<Slots>) -> Self {
        let slots = Arc::new(slots);
        Self { near, slots }
    }

    /// The nearest rows of all.
    pub(crate) fn into_distances(self) -> Distances {
        self.near
    }

    /// The global id of the row of each slot of a block.
    fn rows(&self, block: &Block) -> Vec<u32> {
        let first = self.near.offset(block.client) as u32;
        let slots = self.slots[block.client].rows()[block.rows.clone()].iter();
        slots
            .map(|row| row.map_or(DUMMY, |row| first + row))
            .collect()
    }
}

impl Sink for Gathered {
    fn fork(&self) -> Self {
        Self {
            near: self.near.fork(),
            slots: Arc::clone(&self.slots),
        }
    }

    fn between(&self, left: usize, right: usize) -> Self {
        Self {
            near: self.near.between(left, right),
            slots: Arc::clone(&self.slots),
        }
    }

    fn join(&mut self, other: Self) {
        self.near.join(other.near);
    }

    fn tile(&mut self, tile: &Tile<'_>) {
        let (left, right) = (self.rows(tile.left), self.rows(tile.right));
        self.near.take_rows(&left, &right, DUMMY, tile.distances);
    }
}
