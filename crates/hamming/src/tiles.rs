//! All pairs of rows, tile by tile. A tile bounds memory; the number of pairs does not matter.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use rayon::prelude::*;
use undertone_kernel::{BitMatrix, Cpu, Wiped, hamming};
use undertone_party::Progress;

use crate::cells::Cells;

/// Rows and columns of a tile. A tile holds 128 KiB of distances.
pub const SIDE: usize = 256;

/// Tiles that a party computes in one step.
pub const PER_STEP: usize = 1024;

/// Consecutive rows of one client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    /// The client's index in the roster.
    pub client: usize,
    /// The rows.
    pub rows: Range<usize>,
}

/// Distances between two blocks.
#[derive(Debug)]
pub struct Tile<'a> {
    /// The block of the tile's rows.
    pub left: &'a Block,
    /// The block of the tile's columns. If it equals `left`, the tile is symmetric.
    pub right: &'a Block,
    /// The distances, row after row: `left.rows.len()` × `right.rows.len()`.
    pub distances: &'a [u16],
}

/// Takes distances as they arrive: in any order, each pair of rows once. Rows are those of the
/// backend: a row that is in several [cells](crate::Cells) counts as several rows.
pub trait Sink: Send + Sync + 'static {
    /// An empty sink of the same shape, for another thread.
    #[must_use]
    fn fork(&self) -> Self;
    /// An empty sink for tiles of two clients only, given by their indices. It may be smaller.
    #[must_use]
    fn between(&self, left: usize, right: usize) -> Self
    where
        Self: Sized,
    {
        let _ = (left, right);
        self.fork()
    }
    /// Adds what `other` has taken. `other` comes from [`fork`](Self::fork) or
    /// [`between`](Self::between).
    fn join(&mut self, other: Self);
    /// Takes a tile.
    fn tile(&mut self, tile: &Tile<'_>);
}

/// A sink that counts the distances that another one takes.
#[derive(Debug)]
pub(crate) struct Counting<S> {
    sink: S,
    progress: Progress,
}

impl<S> Counting<S> {
    pub(crate) fn new(sink: S, progress: Progress) -> Self {
        Self { sink, progress }
    }

    pub(crate) fn into_inner(self) -> S {
        self.sink
    }
}

impl<S: Sink> Sink for Counting<S> {
    fn fork(&self) -> Self {
        Self::new(self.sink.fork(), self.progress.clone())
    }

    fn between(&self, left: usize, right: usize) -> Self {
        Self::new(self.sink.between(left, right), self.progress.clone())
    }

    fn join(&mut self, other: Self) {
        self.sink.join(other.sink);
    }

    fn tile(&mut self, tile: &Tile<'_>) {
        self.sink.tile(tile);
        self.progress.add(tile.distances.len() as u64);
    }
}

/// A sink that drops all distances. It serves to time the backends.
#[derive(Debug, Clone, Copy)]
pub struct Discard;

impl Sink for Discard {
    fn fork(&self) -> Self {
        Self
    }

    fn join(&mut self, _: Self) {}

    fn tile(&mut self, tile: &Tile<'_>) {
        std::hint::black_box(tile.distances);
    }
}

/// Pairs of blocks that cover a set of pairs of rows, each once. Memory is linear in the rows.
#[derive(Debug)]
pub struct Pairs {
    blocks: Vec<Block>,
    /// The first block with which block `b` is paired; the others follow it.
    firsts: Vec<usize>,
    /// Entry `b` is the number of pairs of blocks `0..=b` with those before them.
    ends: Vec<usize>,
}

impl Pairs {
    /// All pairs of rows of one client, with the diagonal. `client` is its index.
    pub fn own(client: usize, rows: usize) -> Self {
        let blocks: Vec<Block> = blocks(client, 0..rows).collect();
        let partners = (0..blocks.len()).map(|index| 0..index + 1).collect();
        Self::new(blocks, partners)
    }

    /// All pairs of rows of different clients. Client `j` has `rows[j]` rows.
    pub fn cross(rows: &[usize]) -> Self {
        Self::within(&Cells::one(rows.iter().copied()), rows.len())
    }

    /// All pairs of rows of different clients, of which there are `clients`, in the same cell.
    ///
    /// # Panics
    /// When `cells` has fewer clients.
    pub fn within(cells: &Cells, clients: usize) -> Self {
        let (mut all, mut partners) = (Vec::new(), Vec::new());
        for cell in 0..cells.len() {
            let first = all.len();
            for client in 0..clients {
                let before = first..all.len();
                all.extend(blocks(client, cells.range(client, cell)));
                partners.resize(all.len(), before);
            }
        }
        Self::new(all, partners)
    }

    /// `partners[b]` are the blocks with which block `b` is paired.
    fn new(blocks: Vec<Block>, partners: Vec<Range<usize>>) -> Self {
        let mut end = 0;
        let ends = partners.iter().map(|partners| {
            end += partners.len();
            end
        });
        Self {
            ends: ends.collect(),
            firsts: partners.iter().map(|partners| partners.start).collect(),
            blocks,
        }
    }

    /// The number of pairs of blocks.
    pub fn len(&self) -> usize {
        self.ends.last().copied().unwrap_or(0)
    }

    /// Whether there are no pairs.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The left and the right block of pair `index`.
    fn get(&self, index: usize) -> (&Block, &Block) {
        let right = self.ends.partition_point(|end| *end <= index);
        let start = right.checked_sub(1).map_or(0, |before| self.ends[before]);
        let left = self.firsts[right] + index - start;
        (&self.blocks[left], &self.blocks[right])
    }
}

fn blocks(client: usize, rows: Range<usize>) -> impl Iterator<Item = Block> {
    let end = rows.end;
    rows.step_by(SIDE).map(move |first| Block {
        client,
        rows: first..end.min(first + SIDE),
    })
}

/// Computes the distances of the pairs `range` of `pairs` and hands them to `sink`.
///
/// It runs on all threads of the current rayon pool. A thread that has finished a tile takes the
/// next one.
///
/// # Panics
/// When `range` ends after the last pair, or `codes` has other numbers of rows than `pairs` was
/// made for.
pub fn sweep<S: Sink>(
    cpu: Cpu,
    codes: &[BitMatrix],
    pairs: &Pairs,
    range: Range<usize>,
    sink: &mut S,
) {
    assert!(
        range.end <= pairs.len(),
        "pairs {range:?} of {}",
        pairs.len()
    );
    let next = AtomicUsize::new(range.start);
    let work = |sink: &mut S| {
        let mut buffer = Wiped::from(vec![0; SIDE * SIDE]);
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            if index >= range.end {
                break;
            }
            let (left, right) = pairs.get(index);
            let distances = &mut buffer[..left.rows.len() * right.rows.len()];
            let (a, b) = (&codes[left.client], &codes[right.client]);
            hamming::distances(cpu, a, left.rows.clone(), b, right.rows.clone(), distances);
            sink.tile(&Tile {
                left,
                right,
                distances,
            });
        }
    };
    let threads = rayon::current_num_threads().min(range.len());
    if threads <= 1 {
        return work(sink);
    }
    let forks: Vec<S> = (0..threads)
        .into_par_iter()
        .with_max_len(1)
        .map(|_| {
            let mut fork = sink.fork();
            work(&mut fork);
            fork
        })
        .collect();
    for fork in forks {
        sink.join(fork);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts how often each pair of rows comes.
    #[derive(Clone)]
    struct Count {
        offsets: Vec<usize>,
        n: usize,
        times: Vec<u32>,
    }

    impl Sink for Count {
        fn fork(&self) -> Self {
            let times = vec![0; self.times.len()];
            Self {
                times,
                ..self.clone()
            }
        }
        fn join(&mut self, other: Self) {
            self.times
                .iter_mut()
                .zip(other.times)
                .for_each(|(a, b)| *a += b);
        }
        fn tile(&mut self, tile: &Tile<'_>) {
            let mut values = tile.distances.iter();
            for a in tile.left.rows.clone() {
                for b in tile.right.rows.clone() {
                    assert!(values.next().is_some());
                    let a = self.offsets[tile.left.client] + a;
                    let b = self.offsets[tile.right.client] + b;
                    if tile.left != tile.right || a < b {
                        self.times[a.min(b) * self.n + a.max(b)] += 1;
                    }
                }
            }
        }
    }

    #[test]
    fn every_pair_comes_once() {
        let rows = [300, 0, 1, 257];
        let codes: Vec<BitMatrix> = rows.iter().map(|n| BitMatrix::zero(*n, 64)).collect();
        let offsets = vec![0, 300, 300, 301];
        let n = 558;
        let mut count = Count {
            offsets,
            n,
            times: vec![0; n * n],
        };
        let pairs = Pairs::cross(&rows);
        sweep(Cpu::detect(), &codes, &pairs, 0..pairs.len(), &mut count);
        for (client, rows) in rows.iter().enumerate() {
            let pairs = Pairs::own(client, *rows);
            sweep(Cpu::detect(), &codes, &pairs, 0..pairs.len(), &mut count);
        }
        for a in 0..n {
            for b in 0..n {
                assert_eq!(count.times[a * n + b], u32::from(a < b), "pair {a}, {b}");
            }
        }
    }
}
