//! Cells: the sums that make them, and who names which.

use undertone_label::cells::{Budget, Cells, ROUNDS};
use undertone_label::phases;
use undertone_party::{Abort, PartyId};

use super::{Book, SERVER};

/// The shape of the cells of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slots {
    /// Features of a row.
    pub features: usize,
    /// The number of cells that a row names.
    pub probes: usize,
    /// The slots of each client in a cell, which are rows that name it and dummies, and the number
    /// of such cells.
    pub cells: Vec<(Vec<usize>, usize)>,
}

impl Slots {
    /// The slots of clients with so many rows, if all cells had the same number of rows and of
    /// dummies.
    ///
    /// # Errors
    /// [`Abort::Misuse`] when there are too few rows for the cells, or for the noise.
    pub fn even(cells: &Cells, rows: &[usize], features: usize) -> Result<Self, Abort> {
        let count = cells.cells;
        let budget = Budget::new(cells, rows.len(), rows.iter().sum(), features)?;
        let named: Vec<usize> = rows.iter().map(|rows| rows * cells.probes).collect();
        // The first cells have a slot more, of each client as many as its rows leave over.
        let mut ends: Vec<usize> = named.iter().map(|named| named % count).collect();
        ends.push(count);
        ends.sort_unstable();
        ends.dedup();
        let mut first = 0;
        let alike = ends.into_iter().filter(|end| *end > 0).map(|end| {
            let size = |named: &usize| named / count + usize::from(first < named % count);
            let sizes = named.iter().map(|named| size(named) + budget.more);
            let alike = (sizes.collect(), end - first);
            first = end;
            alike
        });
        Ok(Self {
            features,
            probes: cells.probes,
            cells: alike.collect(),
        })
    }

    /// The number of cells.
    pub fn count(&self) -> usize {
        self.cells.iter().map(|(_, count)| count).sum()
    }

    /// The slots of each client in all cells.
    pub fn totals(&self) -> Vec<usize> {
        let clients = self.cells.first().map_or(0, |(sizes, _)| sizes.len());
        let of = |place: usize| {
            let each = self.cells.iter();
            each.map(|(sizes, count)| sizes[place] * count).sum()
        };
        (0..clients).map(of).collect()
    }
}

/// The messages before distances, of clients with so many rows.
pub(super) fn cells(book: &mut Book<'_>, slots: &Slots, rows: &[usize]) {
    let (count, clients) = (slots.count(), rows.len());
    for (me, rows) in rows.iter().copied().enumerate() {
        let (up, down) = (
            (PartyId::client(me), SERVER, phases::CELLS),
            (SERVER, PartyId::client(me), phases::CELLS),
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
        book.add(down, 4 * clients);
        book.many(down, 4 * count, clients);
    }
}
