//! Label propagation.

use undertone_hamming::Backend;
use undertone_label::{Job, Params, Variant, phases};
use undertone_party::frame::TILE_BYTES;
use undertone_party::{Abort, PartyId};
use undertone_sum::{UNMASK, UPLOAD};

use super::cells::{Slots, cells};
use super::garble::{batches, checked_transfers};
use super::sum::{Group, SEALED, setup};
use super::{Book, SERVER, Take, distances};

/// The public shape of a run.
#[derive(Debug, Clone)]
pub struct Shape {
    /// Rows of each client, and how many of them are labelled.
    pub rows: Vec<(usize, usize)>,
    /// Number of classes.
    pub classes: usize,
    /// The cells within which rows are compared, if there are any.
    pub slots: Option<Slots>,
}

impl Shape {
    /// Clients with such rows, all of which are compared.
    pub fn new(rows: Vec<(usize, usize)>, classes: usize) -> Self {
        Self {
            rows,
            classes,
            slots: None,
        }
    }

    /// The same in a run of `job` over rows of so many features. If it has cells, all are taken to
    /// have the same number of rows.
    ///
    /// # Errors
    /// [`Abort::Misuse`] when there are too few rows for the cells, or for the noise.
    pub fn of(self, job: &Job, features: usize) -> Result<Self, Abort> {
        let cells = job.agreed().cells;
        let slots = cells.map(|cells| Slots::even(&cells, &self.all(), features));
        Ok(Self {
            slots: slots.transpose()?,
            ..self
        })
    }

    /// The rows of each client, labelled or not.
    pub fn all(&self) -> Vec<usize> {
        self.rows.iter().map(|(rows, _)| *rows).collect()
    }

    /// Rows without a label.
    pub fn unlabelled(&self) -> usize {
        let each = self.rows.iter().map(|(rows, labelled)| rows - labelled);
        each.sum()
    }
}

/// A run of label propagation.
pub fn label<'a>(params: &Params, shape: &Shape, take: &'a mut Take<'a>) {
    let book = &mut Book::new(take);
    let clients = shape.rows.len();
    let sealed = match (params.backend, &shape.slots) {
        (Backend::Clear, None) => 0,
        _ => SEALED,
    };
    setup(book, &vec![60; clients], params.trust, sealed);
    if let Some(slots) = &shape.slots {
        cells(book, slots, &shape.all());
    }
    for (me, (rows, labelled)) in (0..clients).map(PartyId::client).zip(&shape.rows) {
        // 128 points; then a reply, and 32 trees of four levels with their checks.
        book.add((SERVER, me, phases::OFFLINE), 128 * 64);
        let reply = 4 + 32 + 32 * (3 * 32 + 64);
        book.add((me, SERVER, phases::OFFLINE), reply);
        trees(book, me, shape.classes, *labelled);
        let near = params.neighbours.min(rows.saturating_sub(1));
        book.words((me, SERVER, phases::DISTANCES), *rows, 1 + 6 * near);
    }
    match &shape.slots {
        None => distances::distances(book, params, &[(shape.all(), 1)]),
        Some(slots) => distances::distances(book, params, &slots.cells),
    }
    let group = Group::new(params.trust, clients);
    for (me, (rows, labelled)) in (0..clients).map(PartyId::client).zip(&shape.rows) {
        influence_and_labels(
            book,
            params,
            shape,
            &group,
            (me, rows - labelled, *labelled),
        );
    }
}

/// Messages of the trees. A client gets all leaves but those of its labels.
fn trees(book: &mut Book<'_>, me: PartyId, classes: usize, labelled: usize) {
    let depth = classes.next_power_of_two().ilog2() as usize;
    let (up, down) = ((me, SERVER, phases::OFFLINE), (SERVER, me, phases::OFFLINE));
    let count = labelled * depth;
    for [corrections, _, _] in checked_transfers(4, count) {
        book.add(up, corrections);
    }
    if labelled > 0 {
        let batches = batches(count).count();
        book.add(down, 8 * batches);
        book.add(up, 40 * batches + 8 * count.div_ceil(64));
        if depth > 1 {
            book.words(down, labelled, 32 * (depth - 1));
        }
    }
}

fn influence_and_labels(
    book: &mut Book<'_>,
    params: &Params,
    shape: &Shape,
    group: &Group,
    (me, own, labelled): (PartyId, usize, usize),
) {
    let all = shape.unlabelled();
    let shared = match params.variant {
        Variant::Balanced => shape.classes,
        _ => 0,
    };
    book.add((SERVER, me, phases::INFLUENCE), 8);
    columns(book, me, labelled, all);
    group.keys(book, me);
    let words = shape.classes * (all - own) + shared;
    book.words((me, SERVER, UPLOAD), words, 4);
    group.unmasking(book, me);
    let back = shape.classes * own + shared;
    if back > 0 {
        book.words((SERVER, me, UNMASK), back, 4);
    }
}

/// Messages of whole columns, or of parts of one column if a column is longer than a tile.
fn columns(book: &mut Book<'_>, me: PartyId, columns: usize, height: usize) {
    if columns * height == 0 {
        return;
    }
    let link = (SERVER, me, phases::INFLUENCE);
    if 4 * height <= TILE_BYTES {
        book.words(link, columns, 4 * height);
    } else {
        (0..columns).for_each(|_| book.words(link, height, 4));
    }
}
