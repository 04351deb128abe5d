//! All pairs of rows, tile by tile: memory is bounded by the tile, never by the number of pairs.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use rayon::prelude::*;
use undertone_kernel::{BitMatrix, Cpu, hamming};

/// Rows and columns of a tile: 128 KiB of distances.
pub const SIDE: usize = 256;

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
pub trait Sink: Send + Sync {
    /// An empty sink of the same shape, for another thread.
    #[must_use]
    fn fork(&self) -> Self;
    /// Takes in what another thread's sink has taken.
    fn join(&mut self, other: Self);
    /// Takes a tile.
    fn tile(&mut self, tile: &Tile<'_>);
}

fn blocks(client: usize, rows: usize) -> impl Iterator<Item = Block> + Clone {
    (0..rows).step_by(SIDE).map(move |first| Block {
        client,
        rows: first..rows.min(first + SIDE),
    })
}

/// The tiles that hold every pair of rows of one client once (with the diagonal).
pub fn own(client: usize, rows: usize) -> Vec<(Block, Block)> {
    let all: Vec<Block> = blocks(client, rows).collect();
    let pair = |(i, left): (usize, &Block)| -> Vec<_> {
        let pairs = all[i..].iter().map(|right| (left.clone(), right.clone()));
        pairs.collect()
    };
    all.iter().enumerate().flat_map(pair).collect()
}

/// The tiles that hold every pair of rows of different clients once; `rows[j]` rows of client `j`.
pub fn cross(rows: &[usize]) -> Vec<(Block, Block)> {
    let mut out = Vec::new();
    for right in 0..rows.len() {
        for left in 0..right {
            for a in blocks(left, rows[left]) {
                out.extend(blocks(right, rows[right]).map(|b| (a.clone(), b)));
            }
        }
    }
    out
}

/// Computes the distances of `pairs` from the clients' `codes` and hands them to `sink`, on all
/// threads of the ambient pool. Each takes the next tile when it is done with one.
pub fn sweep<S: Sink>(cpu: Cpu, codes: &[BitMatrix], pairs: &[(Block, Block)], sink: &mut S) {
    let next = AtomicUsize::new(0);
    let work = |sink: &mut S| {
        let mut buffer = vec![0; SIDE * SIDE];
        while let Some((left, right)) = pairs.get(next.fetch_add(1, Ordering::Relaxed)) {
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
    let threads = rayon::current_num_threads().min(pairs.len());
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
        sweep(Cpu::detect(), &codes, &cross(&rows), &mut count);
        for (client, rows) in rows.iter().enumerate() {
            sweep(Cpu::detect(), &codes, &own(client, *rows), &mut count);
        }
        for a in 0..n {
            for b in 0..n {
                assert_eq!(count.times[a * n + b], u32::from(a < b), "pair {a}, {b}");
            }
        }
    }
}
