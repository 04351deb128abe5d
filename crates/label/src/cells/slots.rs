//! Which rows are in which cells: what a client tells the server, and what the server tells
//! clients.

use std::ops::Range;

use undertone_kernel::{BitMatrix, Prg, Wiped};
use undertone_party::frame::TILE_BYTES;
use undertone_party::{Abort, PartyId, Reader, Writer};

use super::noise::gaussian;
use super::{Budget, Cells};

const SERVER: PartyId = PartyId::SERVER;

/// A client's rows in the order of cells. A row comes once in each of its cells. In each cell
/// dummies follow the rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Slots {
    /// The row of each slot, or none of a dummy.
    rows: Vec<Option<u32>>,
    /// The number of slots of each cell.
    sizes: Vec<usize>,
}

impl Slots {
    /// The slots of a client whose rows name `cells`, `probes` each, and whose cells have these
    /// sizes. `None` if a cell has more rows than slots.
    fn new(cells: &[u16], probes: usize, sizes: Vec<usize>) -> Option<Self> {
        let mut at = 0;
        let mut ends: Vec<Range<usize>> = Vec::with_capacity(sizes.len());
        for size in &sizes {
            ends.push(at..at + size);
            at += size;
        }
        let mut rows = vec![None; at];
        for (row, cells) in cells.chunks_exact(probes).enumerate() {
            for cell in cells {
                let slot = ends[usize::from(*cell)].next()?;
                rows[slot] = Some(row as u32);
            }
        }
        Some(Self { rows, sizes })
    }

    /// The slots of a client, with dummies that hide how many rows are in each cell.
    pub(crate) fn noisy(shape: &Cells, budget: &Budget, cells: &[u16], prg: &mut Prg) -> Self {
        let mut sizes = vec![0; shape.cells];
        cells.iter().for_each(|cell| sizes[usize::from(*cell)] += 1);
        let more = budget.more as i64;
        for size in &mut sizes {
            *size += (more + gaussian(prg, budget.size_sigma).clamp(-more, more)) as usize;
        }
        let slots = Self::new(cells, shape.probes, sizes);
        slots.unwrap_or_else(|| unreachable!("no size falls"))
    }

    /// The number of slots of each cell.
    pub(crate) fn sizes(&self) -> &[usize] {
        &self.sizes
    }

    /// The row of each slot.
    pub(crate) fn rows(&self) -> &[Option<u32>] {
        &self.rows
    }

    /// The codes of the slots. Dummies are random.
    pub(crate) fn codes(&self, codes: &BitMatrix, prg: &mut Prg) -> BitMatrix {
        let mut words = Wiped::with_capacity(self.rows.len() * codes.stride());
        for row in &self.rows {
            match row {
                Some(row) => words.extend_from_slice(codes.row(*row as usize)),
                None => {
                    let dummy: Vec<u64> = (0..codes.stride()).map(|_| prg.next_u64()).collect();
                    words.extend_from_slice(&dummy);
                }
            }
        }
        BitMatrix::from_words(self.rows.len(), codes.columns(), words.into_inner())
    }
}

/// The message *named cells*: the sizes of a client's cells, then the cells of its rows.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Named {
    rows: usize,
    shape: Cells,
    /// Most dummies of a cell.
    most: usize,
}

impl Named {
    pub(crate) fn new(rows: usize, shape: Cells, budget: &Budget) -> Self {
        Self {
            rows,
            shape,
            most: 2 * budget.more,
        }
    }

    /// The rows of the message that starts with row `first`.
    fn window(&self, first: usize) -> Range<usize> {
        let each = TILE_BYTES / (2 * self.shape.probes);
        first..self.rows.min(first + each)
    }

    /// The messages of a client: sizes, then tiles of rows.
    pub(crate) fn write(&self, slots: &Slots, cells: &[u16]) -> Vec<Vec<u8>> {
        let mut messages = vec![write_sizes(slots.sizes())];
        let mut sent = 0;
        while sent < self.rows {
            let window = self.window(sent);
            sent = window.end;
            let mut w = Writer::with_capacity(2 * self.shape.probes * window.len());
            let cells = &cells[window.start * self.shape.probes..window.end * self.shape.probes];
            cells.iter().for_each(|cell| w.u16(*cell));
            messages.push(w.finish());
        }
        messages
    }
}

fn write_sizes(sizes: &[usize]) -> Vec<u8> {
    let mut w = Writer::with_capacity(4 * sizes.len());
    sizes.iter().for_each(|size| w.u32(*size as u32));
    w.finish()
}

/// What the server has received of a client's cells.
pub(crate) struct Upload {
    from: PartyId,
    named: Named,
    sizes: Option<Vec<usize>>,
    cells: Vec<u16>,
}

impl Upload {
    pub(crate) fn new(from: PartyId, named: Named) -> Self {
        Self {
            from,
            named,
            sizes: None,
            cells: Vec::new(),
        }
    }

    pub(crate) fn is_due(&self) -> bool {
        self.sizes.is_none() || self.cells.len() < self.named.rows * self.named.shape.probes
    }

    /// Takes the next message.
    pub(crate) fn take(&mut self, bytes: &[u8]) -> Result<(), Abort> {
        let malformed = Abort::malformed(self.from);
        let (cells, probes) = (self.named.shape.cells, self.named.shape.probes);
        let mut r = Reader::new(bytes);
        if self.sizes.is_none() {
            // CELLS-1
            let most = self.named.rows + self.named.most;
            let sizes = (0..cells).map(|_| r.index(most + 1, "size of a cell"));
            self.sizes = Some(sizes.collect::<Result<_, _>>().map_err(&malformed)?);
            return r.finish().map_err(&malformed);
        }
        for row in self.named.window(self.cells.len() / probes) {
            let start = self.cells.len();
            for _ in 0..probes {
                // CELLS-2
                let cell = r.u16("cell").map_err(&malformed)?;
                let repeats = self.cells[start..].contains(&cell);
                if usize::from(cell) >= cells || repeats {
                    return Err(Abort::cheated(
                        self.from,
                        format!("its row {row} names a cell twice, or one that does not exist"),
                    ));
                }
                self.cells.push(cell);
            }
        }
        r.finish().map_err(&malformed)
    }

    /// The slots of the client, once everything is there.
    pub(crate) fn finish(self) -> Result<Slots, Abort> {
        let Named { shape, most, .. } = self.named;
        let sizes = self.sizes.unwrap_or_default();
        let mut dummies = sizes.clone();
        let mut fits = sizes.len() == shape.cells;
        for cell in &self.cells {
            let left = dummies.get_mut(usize::from(*cell));
            match left.and_then(|left| left.checked_sub(1).map(|less| *left = less)) {
                Some(()) => {}
                None => fits = false,
            }
        }
        // CELLS-3
        fits &= dummies.iter().all(|dummies| *dummies <= most);
        let slots = fits.then(|| Slots::new(&self.cells, shape.probes, sizes));
        slots.flatten().ok_or_else(|| {
            Abort::cheated(
                self.from,
                "the sizes of its cells are not those of its rows and of its dummies",
            )
        })
    }
}

/// The messages *sizes*, the same to every client: who remains, then the sizes of each one's cells.
pub(crate) fn write_all<'a>(
    clients: &[PartyId],
    sizes: impl Iterator<Item = &'a [usize]>,
) -> impl Iterator<Item = Vec<u8>> {
    let mut w = Writer::with_capacity(4 * clients.len());
    clients.iter().for_each(|id| w.u32(id.to_wire()));
    std::iter::once(w.finish()).chain(sizes.map(write_sizes))
}

/// The clients that remain, of `all` of the setup.
pub(crate) fn read_clients(
    bytes: &[u8],
    all: &[PartyId],
    me: PartyId,
) -> Result<Vec<PartyId>, Abort> {
    let mut r = Reader::new(bytes);
    let mut clients: Vec<PartyId> = Vec::new();
    while r.remaining() > 0 {
        let id = r.u32("client").map_err(Abort::malformed(SERVER))?;
        let id = PartyId::from_wire(id);
        // CELLS-4
        if !all.contains(&id) || clients.last().is_some_and(|last| *last >= id) {
            return Err(Abort::cheated(
                SERVER,
                "its list of clients with cells names one that is not on the roster, or is out of \
                 order",
            ));
        }
        clients.push(id);
    }
    // CELLS-4
    if !clients.contains(&me) {
        let why = "its list of clients with cells leaves this client out";
        return Err(Abort::cheated(SERVER, why));
    }
    Ok(clients)
}

/// The sizes of the cells of a client that sends `named`.
pub(crate) fn read_sizes(bytes: &[u8], named: &Named) -> Result<Vec<usize>, Abort> {
    let mut r = Reader::new(bytes);
    let most = named.rows + named.most;
    let sizes = (0..named.shape.cells).map(|_| r.index(most + 1, "size of a cell"));
    // CELLS-5
    let sizes: Vec<usize> = sizes
        .collect::<Result<_, _>>()
        .map_err(Abort::malformed(SERVER))?;
    r.finish().map_err(Abort::malformed(SERVER))?;
    let total: usize = sizes.iter().sum();
    let least = named.rows * named.shape.probes;
    if !(least..=least + named.shape.cells * named.most).contains(&total) {
        let why = "it gives a client sizes of cells that its rows cannot have";
        return Err(Abort::cheated(SERVER, why));
    }
    Ok(sizes)
}
