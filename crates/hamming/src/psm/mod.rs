//! `psm`: private simultaneous messages (Feige, Kilian, Naor 1994) with masked products (Beaver
//! 1997; Du, Atallah 2001).
//!
//! `docs/spec/psm.md` specifies masks, messages and steps. In short, modulo 2^w: the clients share
//! a seed that the server does not have. From it they expand a mask `A_j` for the codes of each
//! client and a mask `C_jk` for the distances of each pair `j < k`. `|x|` is the number of ones of
//! a row.
//!
//! - client j → server: `X'_j = X_j + A_j`;
//! - client j → server, for each k > j: `U[a,i] = 2⟨x_a, A_k[i]⟩ + |x_a| + C_jk[a,i]`;
//! - client k → server, for each j < k: `V[a,i] = 2⟨A_j[a], y'_i⟩ + |y_i| − C_jk[a,i]`, where
//!   `y' = y + A_k`;
//! - server: `h(a,i) = U + V − 2⟨x'_a, y'_i⟩ = |x_a| + |y_i| − 2⟨x_a, y_i⟩`.
//!
//! `X'` and `U` are uniform to the server, and `V` follows from the distance. So the server could
//! make up all it sees from the distances alone. All messages to the server are sealed, because any
//! other client could remove the masks.
//!
//! If a client drops out, everything starts again without it, with fresh masks.

mod client;
mod server;

use std::ops::Range;

use rayon::prelude::*;
use undertone_kernel::mask::{Op, Stream, Suite};
use undertone_kernel::{BitMatrix, Cpu, Matrix16, Wiped, pack, product};
use undertone_party::frame::TILE_BYTES;
use undertone_party::{PartyId, SessionId};

pub(super) use client::Client;
pub(super) use server::Server;

use crate::cells::Cells;
use crate::tiles::Block;
use undertone_kdf::Seed;
use undertone_setup::seal::TAG_LEN;

/// Rows and columns of a tile.
const SIDE: usize = 512;

const SERVER: PartyId = PartyId::SERVER;

/// What client and server both know.
#[derive(Debug)]
struct Shape {
    /// Bits of a code.
    bits: usize,
    /// The clients and their numbers of rows: at the server the roster, at a client those of this
    /// attempt.
    clients: Vec<(PartyId, usize)>,
    /// The cells of their rows.
    cells: Cells,
}

impl Shape {
    /// Bits of a number, w. Distances are 0 to L.
    fn width(&self) -> u32 {
        usize::BITS - self.bits.leading_zeros()
    }

    fn row_len(&self) -> usize {
        pack::packed_len(self.width(), self.bits)
    }

    /// The rows of the message that starts with row `first` of those that end with `end`.
    fn window(&self, first: usize, end: usize) -> Range<usize> {
        first..end.min(first + ((TILE_BYTES - TAG_LEN) / self.row_len()).max(1))
    }
}

/// The tiles of all pairs of participants in a cell, in order. If `of` names a client, only its
/// pairs.
#[derive(Debug, Default)]
struct Tiles {
    cell: usize,
    pairs: Vec<(usize, usize)>,
    at: usize,
    /// Rows of the cell that have been paired.
    left: usize,
    right: usize,
}

impl Tiles {
    fn new(cell: usize, set: &[bool], of: Option<usize>) -> Self {
        let places = || (0..set.len()).filter(|place| set[*place]);
        let pair = |j: usize| places().filter(move |k| *k > j).map(move |k| (j, k));
        let mine = |(j, k): &(usize, usize)| of.is_none_or(|me| me == *j || me == *k);
        Self {
            cell,
            pairs: places().flat_map(pair).filter(mine).collect(),
            ..Self::default()
        }
    }

    /// The next tile. Where one of a pair has no rows there is none.
    fn next(&mut self, cells: &Cells) -> Option<(Block, Block)> {
        loop {
            let (j, k) = *self.pairs.get(self.at)?;
            let (rows, columns) = (cells.range(j, self.cell), cells.range(k, self.cell));
            if self.left >= rows.len() || columns.is_empty() {
                (self.at, self.left, self.right) = (self.at + 1, 0, 0);
                continue;
            }
            let block = |client, done: usize, rows: &Range<usize>| Block {
                client,
                rows: rows.start + done..rows.end.min(rows.start + done + SIDE),
            };
            let tile = (block(j, self.left, &rows), block(k, self.right, &columns));
            self.right += SIDE;
            if self.right >= columns.len() {
                (self.left, self.right) = (self.left + SIDE, 0);
            }
            return Some(tile);
        }
    }
}

/// The cells of these clients: one if none are given.
fn cells(cells: Option<Cells>, clients: &[(PartyId, usize)]) -> Cells {
    cells.unwrap_or_else(|| Cells::one(clients.iter().map(|(_, rows)| *rows)))
}

/// The masks, from the seed that only clients have.
#[derive(Debug)]
struct Masks {
    session: SessionId,
    seed: Seed,
    suite: Suite,
    attempt: u32,
}

impl Masks {
    /// Adds rows `rows` of `A_client` to `to`, which has the same number of rows.
    fn add_code_mask(&self, client: PartyId, rows: Range<usize>, to: &mut Matrix16) {
        let ids = [self.attempt, client.to_wire()];
        let seed = self.seed.derive(self.session, "code mask", &ids);
        let columns = to.columns();
        let mut all: Vec<&mut [u16]> = to.rows_mut().collect();
        let part = part(all.len());
        all.par_chunks_mut(part)
            .enumerate()
            .for_each(|(index, some)| {
                let mut stream = Stream::new(self.suite, seed.expose());
                for (row, values) in (rows.start + index * part..).zip(some) {
                    stream.apply(row * columns, Op::Add, values);
                }
            });
    }

    fn code_mask(&self, client: PartyId, rows: Range<usize>, bits: usize) -> Matrix16 {
        let mut out = Matrix16::zero(rows.len(), bits);
        self.add_code_mask(client, rows, &mut out);
        out
    }

    /// Adds a tile of `C_jk` to `values`, or subtracts it. `C_jk` has `columns` columns.
    fn distance_mask(
        &self,
        (j, k): (PartyId, PartyId),
        columns: usize,
        tile: (&Range<usize>, &Range<usize>),
        op: Op,
        values: &mut [u16],
    ) {
        let ids = [self.attempt, j.to_wire(), k.to_wire()];
        let seed = self.seed.derive(self.session, "distance mask", &ids);
        let (rows, right) = tile;
        let part = part(rows.len());
        let parts = values.par_chunks_mut(part * right.len()).enumerate();
        parts.for_each(|(index, values)| {
            let mut stream = Stream::new(self.suite, seed.expose());
            let values = values.chunks_exact_mut(right.len());
            for (row, values) in (rows.start + index * part..).zip(values) {
                stream.apply(row * columns + right.start, op, values);
            }
        });
    }
}

/// Rows of a part of a tile, so that there is at most one for each thread. A multiple of eight:
/// parts are whole bytes when they are packed.
fn part(rows: usize) -> usize {
    let threads = rayon::current_num_threads();
    rows.div_ceil(threads).next_multiple_of(8).max(8)
}

/// Packs rows of `columns` numbers as one, on all threads.
fn packed(width: u32, columns: usize, values: &[u16]) -> Wiped<u8> {
    let rows = values.len() / columns;
    let parts: Vec<Wiped<u8>> = values
        .par_chunks(part(rows) * columns)
        .map(|values| {
            let len = pack::packed_len(width, values.len());
            let mut packed = Wiped::with_capacity(len + pack::SLACK);
            pack::pack(width, values, &mut packed);
            packed
        })
        .collect();
    joined(parts)
}

/// The parts one after another.
fn joined(mut parts: Vec<Wiped<u8>>) -> Wiped<u8> {
    if let [_] = parts[..] {
        return parts.remove(0);
    }
    let mut out = Wiped::with_capacity(parts.iter().map(|part| part.len()).sum());
    parts.iter().for_each(|part| out.extend_from_slice(part));
    out
}

/// All products of rows of `a`, of bits, and of `b`, on all threads. Neither may be empty.
fn bit_products(a: &BitMatrix, left: Range<usize>, b: &Matrix16) -> Wiped<u16> {
    let width = b.rows();
    let mut out = Wiped::from(vec![0; left.len() * width]);
    let part = left.len().div_ceil(rayon::current_num_threads());
    out.par_chunks_mut(part * width)
        .enumerate()
        .for_each(|(index, out)| {
            let first = left.start + index * part;
            let rows = first..first + out.len() / width;
            product::bit_products(Cpu::detect(), a, rows, b, 0..width, out);
        });
    out
}

/// All products of rows of `a` and `b`, on all threads. Neither range may be empty.
fn products(a: &Matrix16, left: Range<usize>, b: &Matrix16, right: Range<usize>) -> Wiped<u16> {
    let width = right.len();
    let mut out = Wiped::from(vec![0; left.len() * width]);
    let part = left.len().div_ceil(rayon::current_num_threads());
    out.par_chunks_mut(part * width)
        .enumerate()
        .for_each(|(index, out)| {
            let first = left.start + index * part;
            let rows = first..first + out.len() / width;
            product::products(Cpu::detect(), a, rows, b, right.clone(), out);
        });
    out
}
