//! The additive shares that one party has of the scores: a word for each unlabelled row and class,
//! modulo 2³².

use rayon::prelude::*;
use undertone_kernel::leaves::{Leaves, ROW_BYTES};
use undertone_kernel::{Cpu, Wiped};
use undertone_ot::punctured::{self, Sums};

/// Number of unlabelled rows in a tile. Shares are kept tile after tile, and within a tile class
/// after class.
pub(crate) const TILE: usize = 1024;

/// Number of stream rows in a tile.
const STREAM_ROWS: u64 = (TILE * size_of::<u32>() / ROW_BYTES) as u64;

/// Shares of the scores of some rows. Wiped when dropped.
#[derive(Debug)]
pub(crate) struct Shares {
    classes: usize,
    rows: usize,
    /// Number of words of a class in a tile.
    stride: usize,
    words: Wiped<u32>,
}

impl Shares {
    /// Shares of zeros.
    pub(crate) fn new(rows: usize, classes: usize) -> Self {
        let stride = rows.min(TILE);
        Self {
            classes,
            rows,
            stride,
            words: vec![0; rows.div_ceil(TILE) * stride * classes].into(),
        }
    }

    /// Number of words in a tile; 1 if there are no tiles.
    fn tile_len(&self) -> usize {
        (self.stride * self.classes).max(1)
    }

    /// Number of rows in a tile.
    fn rows_of(&self, tile: usize) -> usize {
        TILE.min(self.rows - tile * TILE)
    }

    /// Shares out columns of influence to the classes that the client chose (`docs/spec/labels.md`,
    /// steps 17 and 18). `value` maps the place of a column, and a row, to a word of influence.
    /// Returns the masked columns for the client, one after the other.
    pub(crate) fn send(
        &mut self,
        columns: &[Leaves],
        value: impl Fn(usize, usize) -> u32 + Sync,
    ) -> Vec<u32> {
        let (rows, stride, tile) = (self.rows, self.stride, self.tile_len());
        let tiles = self.words.par_chunks_exact_mut(tile);
        let parts: Vec<Vec<u32>> = tiles
            .enumerate()
            .map(|(tile, words)| {
                let rows = tile * TILE..rows.min((tile + 1) * TILE);
                let mut out = Vec::with_capacity(columns.len() * rows.len());
                for (place, leaves) in columns.iter().enumerate() {
                    let start = out.len();
                    out.extend(rows.clone().map(|row| value(place, row)));
                    let sums = Sums {
                        words: &mut *words,
                        stride,
                    };
                    let first = tile as u64 * STREAM_ROWS;
                    punctured::send(Cpu::detect(), leaves, first, &mut out[start..], sums);
                }
                out
            })
            .collect();
        let mut out = Vec::with_capacity(columns.len() * rows);
        for place in 0..columns.len() {
            for (tile, part) in parts.iter().enumerate() {
                let rows = self.rows_of(tile);
                out.extend_from_slice(&part[place * rows..(place + 1) * rows]);
            }
        }
        out
    }

    /// Removes the shares of a column.
    pub(crate) fn withdraw(&mut self, leaves: &Leaves) {
        let (rows, stride, tile) = (self.rows, self.stride, self.tile_len());
        let tiles = self.words.par_chunks_exact_mut(tile);
        tiles.enumerate().for_each(|(tile, words)| {
            let len = TILE.min(rows - tile * TILE);
            let first = tile as u64 * STREAM_ROWS;
            punctured::withdraw(Cpu::detect(), leaves, first, len, Sums { words, stride });
        });
    }

    /// Adds a masked column, or a part of it, to the client's shares (`docs/spec/labels.md`, step
    /// 19). The part begins at row `first`, the start of a tile. Overwrites `words`.
    pub(crate) fn receive(&mut self, leaves: &Leaves, class: u16, first: usize, words: &mut [u32]) {
        let (tile, stride) = (self.tile_len(), self.stride);
        for (words, tile_at) in words.chunks_mut(TILE).zip(first / TILE..) {
            let sums = Sums {
                words: &mut self.words[tile_at * tile..(tile_at + 1) * tile],
                stride,
            };
            let first = tile_at as u64 * STREAM_ROWS;
            punctured::receive(Cpu::detect(), leaves, first, class, words, sums);
        }
    }

    /// The shares row after row, with capacity for `more` words.
    pub(crate) fn into_rows(self, more: usize) -> Wiped<u32> {
        let mut out = Wiped::with_capacity(self.rows * self.classes + more);
        for (tile, words) in self.words.chunks_exact(self.tile_len()).enumerate() {
            for row in 0..self.rows_of(tile) {
                out.extend((0..self.classes).map(|class| words[class * self.stride + row]));
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_of_columns_are_scores() {
        let (rows, classes) = (2 * TILE + 77, 3);
        let labels = [2u16, 0, 2];
        let seeds =
            |place: usize| -> Vec<u128> { (0..3).map(|c| (7 * place + c) as u128).collect() };
        let value = |place: usize, row: usize| (place * 100_000 + row) as u32;
        let columns: Vec<Leaves> = (0..3)
            .map(|at| Leaves::new(Cpu::detect(), &seeds(at)))
            .collect();
        let (mut mine, mut theirs) = (Shares::new(rows, classes), Shares::new(rows, classes));
        let mut sent = mine.send(&columns, value);
        for (place, words) in sent.chunks_exact_mut(rows).enumerate() {
            let mut known = seeds(place);
            known[usize::from(labels[place])] = 0;
            let known = Leaves::new(Cpu::detect(), &known);
            let (head, tail) = words.split_at_mut(TILE);
            theirs.receive(&known, labels[place], 0, head);
            theirs.receive(&known, labels[place], TILE, tail);
        }
        let mine_too = {
            let mut again = Shares::new(rows, classes);
            again.send(&columns, value);
            columns.iter().for_each(|column| again.withdraw(column));
            again
        };
        assert!(mine_too.into_rows(0).iter().all(|word| *word == 0));
        let (mine, theirs) = (mine.into_rows(0), theirs.into_rows(5));
        assert_eq!(mine.len(), rows * classes);
        for (at, (a, b)) in mine.iter().zip(theirs.iter()).enumerate() {
            let (row, class) = (at / classes, at % classes);
            let of = (0..3).filter(|place| usize::from(labels[*place]) == class);
            let due: u32 = of.map(|place| value(place, row)).sum();
            assert_eq!(a.wrapping_add(*b), due, "row {row}, class {class}");
        }
    }
}
