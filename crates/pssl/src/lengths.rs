//! How much a pair of clients sends.

use crate::circuits::accept;
use crate::job::{COMPARISONS, Job, TRANSFER_BITS};
use crate::product::Shape;

impl Job {
    /// Most comparisons of a pair of clients, in both directions together.
    pub fn most_comparisons(&self) -> usize {
        2 * self.clusters * COMPARISONS * self.asked
    }

    /// About how many bytes a pair of clients sends for this number of comparisons: transfers,
    /// offers and circuits, without the few messages of fixed size.
    pub fn pair_bytes(&self, comparisons: usize) -> usize {
        let products = comparisons + 2 * self.clusters.pow(2);
        let labels = comparisons * (self.width() as usize + 1);
        products * Shape::new(self).bytes()
            + labels * TRANSFER_BITS / 8
            + comparisons * 32 * accept(self).ands()
    }
}
