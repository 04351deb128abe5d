//! All pairs of rows, tile by tile: memory is bounded by the tile, never by the number of pairs.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use rayon::prelude::*;
use undertone_kernel::{BitMatrix, Cpu, Wiped, hamming};

/// Rows and columns of a tile: 128 KiB of distances.
pub const SIDE: usize = 256;

/// Tiles a party computes in one step.
pub const PER_STEP: usize = 1024;

/// Some rows of one client, by its place in the roster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    /// The client's place in the roster.
    pub client: usize,
    /// Its rows.
    pub rows: Range<usize>,
}

/// Distances between two blocks.
#[derive(Debug)]
pub struct Tile<'a> {
    /// The block the tile's rows belong to.
    pub left: &'a Block,
    /// The block the tile's columns belong to. Where it equals `left`, the tile is symmetric.
    pub right: &'a Block,
    /// The distances, row after row.
    pub distances: &'a [u16],
}

/// Takes distances as they come, in any order, each pair of rows once.
pub trait Sink: Send + Sync + 'static {
    /// An empty sink of the same shape, for another thread.
    #[must_use]
    fn fork(&self) -> Self;
    /// An empty sink for tiles of two clients alone, by their places. It may be smaller.
    #[must_use]
    fn between(&self, left: usize, right: usize) -> Self
    where
        Self: Sized,
    {
        let _ = (left, right);
        self.fork()
    }
    /// Takes in what another sink, of the same shape or [`between`](Self::between) two clients of it, has taken.
    fn join(&mut self, other: Self);
    /// Takes a tile.
    fn tile(&mut self, tile: &Tile<'_>);
}

/// Takes distances and drops them: for timing what makes them.
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

/// Pairs of blocks that hold each of some pairs of rows once. Memory is linear in the rows.
#[derive(Debug)]
pub struct Pairs {
    blocks: Vec<Block>,
    /// Block `b` is paired with blocks `0..n_b`; entry `b` is the sum of `n_0 … n_b`.
    ends: Vec<usize>,
}

impl Pairs {
    /// Every pair of rows of one client (with the diagonal); `client` is its place.
    pub fn own(client: usize, rows: usize) -> Self {
        let blocks: Vec<Block> = blocks(client, rows).collect();
        Self::new(blocks, |index, _| index + 1)
    }

    /// Every pair of rows of different clients; `rows[j]` rows of client `j`.
    pub fn cross(rows: &[usize]) -> Self {
        let all = rows.iter().enumerate();
        let blocks: Vec<Block> = all
            .flat_map(|(client, rows)| blocks(client, *rows))
            .collect();
        Self::new(blocks, |index, all| {
            all[..index].partition_point(|block| block.client < all[index].client)
        })
    }

    fn new(blocks: Vec<Block>, partners: impl Fn(usize, &[Block]) -> usize) -> Self {
        let mut end = 0;
        let counts = (0..blocks.len()).map(|index| partners(index, &blocks));
        let ends = counts
            .map(|count| {
                end += count;
                end
            })
            .collect();
        Self { blocks, ends }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.ends.last().copied().unwrap_or(0)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Pair number `index`: the left block and the right one.
    fn get(&self, index: usize) -> (&Block, &Block) {
        let right = self.ends.partition_point(|end| *end <= index);
        let start = right.checked_sub(1).map_or(0, |before| self.ends[before]);
        (&self.blocks[index - start], &self.blocks[right])
    }
}

fn blocks(client: usize, rows: usize) -> impl Iterator<Item = Block> {
    (0..rows).step_by(SIDE).map(move |first| Block {
        client,
        rows: first..rows.min(first + SIDE),
    })
}

/// Computes the distances of those `pairs` that `range` numbers from the clients' `codes` and hands
/// them to `sink`, on all threads of the ambient pool. Each takes the next tile when it is done with
/// one.
///
/// # Panics
/// When `range` goes past the last pair, or `codes` has not the rows `pairs` was made for.
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
