//! Cells: the sums that make them, and who names which.

use undertone_label::cells::{Budget, Cells, PHASE, ROUNDS};
use undertone_party::{Abort, PartyId};

use super::{Book, SERVER};

/// The shape of the cells of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slots {
    /// Features of a row.
    pub features: usize,
    /// The number of cells that a row names.
    pub probes: usize,
    /// The slots of each cell, for each client: rows that name it, and dummies.
    pub sizes: Vec<Vec<usize>>,
}

impl Slots {
    /// The slots of clients with so many rows, if all cells had the same number of rows and of
    /// dummies.
    ///
    /// # Errors
    /// [`Abort::Misuse`] when there are too few rows for the cells, or for the noise.
    pub fn even(cells: &Cells, rows: &[usize], features: usize) -> Result<Self, Abort> {
        let budget = Budget::new(cells, rows.len(), rows.iter().sum(), features)?;
        let of = |rows: &usize| {
            let named = rows * cells.probes;
            let size = |cell| (named + cells.cells - 1 - cell) / cells.cells + budget.more;
            (0..cells.cells).map(size).collect()
        };
        Ok(Self {
            features,
            probes: cells.probes,
            sizes: rows.iter().map(of).collect(),
        })
    }

    /// The number of cells.
    pub fn cells(&self) -> usize {
        self.sizes.first().map_or(0, Vec::len)
    }

    /// The slots of each client in a cell.
    pub fn of(&self, cell: usize) -> Vec<usize> {
        self.sizes.iter().map(|sizes| sizes[cell]).collect()
    }

    /// The slots of each client in all cells.
    pub fn totals(&self) -> Vec<usize> {
        self.sizes.iter().map(|sizes| sizes.iter().sum()).collect()
    }
}

/// The messages before distances, of clients with so many rows.
pub(super) fn cells(book: &mut Book<'_>, slots: &Slots, rows: impl Iterator<Item = usize>) {
    let count = slots.cells();
    for (me, rows) in rows.enumerate() {
        let (up, down) = (
            (PartyId::client(me), SERVER, PHASE),
            (SERVER, PartyId::client(me), PHASE),
        );
        for round in 0..=ROUNDS {
            let vectors = if round == 0 { 1 } else { count };
            for link in [up, down] {
                book.numbered(link, vectors * slots.features, 8);
            }
        }
        book.add(up, 4 * count);
        if rows > 0 {
            book.words(up, rows, 2 * slots.probes);
        }
        book.add(down, 4 * slots.sizes.len());
        book.many(down, 4 * count, slots.sizes.len());
    }
}
