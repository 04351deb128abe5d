//! The `k` smallest distances of each row, selected from a stream of all distances.

use undertone_hamming::tiles::{Sink, Tile};

const EMPTY: u64 = u64::MAX;
const CHUNK: usize = 32;

/// For each row its `k` nearest rows so far. Ties go to the smaller id. Memory grows with `n·k`,
/// never with `n²`.
///
/// Rows have global ids, which count the rows of all clients in roster order.
#[derive(Clone, PartialEq, Eq)]
pub struct Distances {
    k: usize,
    /// Global id of each client's first row, then the number of rows.
    offsets: Vec<usize>,
    /// `k` keys for each row, ascending: the distance in the high half, the id in the low half.
    /// `EMPTY` fills the rest.
    near: Vec<u64>,
    /// For each row the largest distance that could still enter its list.
    limit: Vec<u16>,
}

impl std::fmt::Debug for Distances {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Distances({} x {}, ..)", self.rows(), self.k)
    }
}

impl Distances {
    /// Empty lists, for `rows[j]` rows of client `j`.
    pub fn new(rows: &[usize], k: usize) -> Self {
        let mut offsets = vec![0];
        for (client, rows) in rows.iter().enumerate() {
            offsets.push(offsets[client] + rows);
        }
        let n = offsets[rows.len()];
        Self {
            k,
            offsets,
            near: vec![EMPTY; n * k],
            limit: vec![u16::MAX; n],
        }
    }

    /// Number of rows of all clients.
    pub fn rows(&self) -> usize {
        self.limit.len()
    }

    /// Number of neighbours kept for a row.
    pub fn k(&self) -> usize {
        self.k
    }

    /// The global id of the first row of client `client`.
    ///
    /// # Panics
    /// When there is no such client.
    pub fn offset(&self, client: usize) -> usize {
        self.offsets[client]
    }

    /// The nearest rows of `row` as (distance, global id), nearest first.
    ///
    /// # Panics
    /// When there is no such row.
    pub fn nearest(&self, row: usize) -> impl Iterator<Item = (u16, usize)> + '_ {
        let near = &self.near[row * self.k..(row + 1) * self.k];
        let taken = near.iter().take_while(|key| **key != EMPTY);
        taken.map(|key| ((key >> 32) as u16, *key as u32 as usize))
    }

    /// Offers row `id` at `distance` from `row`. To offer the same again changes nothing.
    ///
    /// # Panics
    /// When there is no such row.
    pub fn offer(&mut self, row: usize, distance: u16, id: usize) {
        let key = u64::from(distance) << 32 | id as u64;
        let near = &mut self.near[row * self.k..(row + 1) * self.k];
        let mut at = near.len();
        while at > 0 && near[at - 1] > key {
            at -= 1;
        }
        if at > 0 && near[at - 1] == key {
            return;
        }
        if at < near.len() {
            near.copy_within(at..self.k - 1, at + 1);
            near[at] = key;
            let farthest = (near[self.k - 1] >> 32).min(u64::from(u16::MAX)) as u16;
            self.limit[row] = self.limit[row].min(farthest);
        }
    }

    /// Keeps the rows of the clients that remain. Rows of the others must never have been offered
    /// to them. Global ids become those of the smaller roster.
    #[must_use]
    pub fn retain(self, remains: &[bool]) -> Self {
        let mut rows = Vec::new();
        let mut moved = vec![0; self.rows()];
        let mut kept = Vec::new();
        for (client, _) in remains.iter().enumerate().filter(|(_, remains)| **remains) {
            let range = self.offsets[client]..self.offsets[client + 1];
            rows.push(range.len());
            for row in range {
                moved[row] = kept.len();
                kept.push(row);
            }
        }
        let mut out = Self::new(&rows, self.k);
        for (row, old) in kept.iter().enumerate() {
            for (distance, id) in self.nearest(*old) {
                out.offer(row, distance, moved[id]);
            }
        }
        out
    }

    /// Offers the distances between global row `row` and rows `first..` to both.
    fn take_row(&mut self, row: usize, first: usize, distances: &[u16]) {
        for (chunk, values) in distances.chunks(CHUNK).enumerate() {
            let base = first + chunk * CHUNK;
            let limits = &self.limit[base..base + values.len()];
            if any_near(values, limits, self.limit[row]) {
                for (lane, distance) in values.iter().enumerate() {
                    self.offer_both(row, base + lane, *distance);
                }
            }
        }
    }

    fn offer_both(&mut self, row: usize, other: usize, distance: u16) {
        if distance <= self.limit[row] {
            self.offer(row, distance, other);
        }
        if distance <= self.limit[other] {
            self.offer(other, distance, row);
        }
    }

    /// Offers the distances between the global rows `left` and `right`, row after row, without
    /// those of `nobody`. A pair may come again, at the same distance.
    pub(crate) fn take_rows(
        &mut self,
        left: &[u32],
        right: &[u32],
        nobody: u32,
        distances: &[u16],
    ) {
        // Limits only fall. So what is above an old one is above a new one.
        let limit = |row: &u32| self.limit.get(*row as usize).copied().unwrap_or(0);
        let limits: Vec<u16> = right.iter().map(limit).collect();
        let rows = left.iter().zip(distances.chunks_exact(right.len().max(1)));
        for (row, distances) in rows.filter(|(row, _)| **row != nobody) {
            let row = *row as usize;
            let chunks = distances.chunks(CHUNK).zip(limits.chunks(CHUNK));
            for ((values, limits), others) in chunks.zip(right.chunks(CHUNK)) {
                if !any_near(values, limits, self.limit[row]) {
                    continue;
                }
                for (distance, other) in values.iter().zip(others) {
                    if *other != nobody {
                        self.offer_both(row, *other as usize, *distance);
                    }
                }
            }
        }
    }
}

/// Whether a value is at most `limit`, or at most the limit in its place.
fn any_near(values: &[u16], limits: &[u16], limit: u16) -> bool {
    let near = |(value, other): (&u16, &u16)| u16::from(*value <= (*other).max(limit));
    values.iter().zip(limits).map(near).fold(0, |a, b| a | b) != 0
}

impl Sink for Distances {
    fn fork(&self) -> Self {
        Self {
            k: self.k,
            offsets: self.offsets.clone(),
            near: vec![EMPTY; self.near.len()],
            // A distance that is too large for this list is too large for the joined one.
            limit: self.limit.clone(),
        }
    }

    fn between(&self, left: usize, right: usize) -> Self {
        let rows = |client: usize| self.offsets[client + 1] - self.offsets[client];
        let clients = 0..self.offsets.len() - 1;
        let rows: Vec<usize> = clients
            .map(|client| {
                if client == left || client == right {
                    rows(client)
                } else {
                    0
                }
            })
            .collect();
        Self::new(&rows, self.k)
    }

    /// Each client of `other` has as many rows as here, or none.
    fn join(&mut self, other: Self) {
        // Global ids in `other`, and what to add to them for ids in `self`.
        let shifts: Vec<(usize, usize)> = self
            .offsets
            .iter()
            .zip(other.offsets.windows(2))
            .filter(|(_, theirs)| theirs[0] < theirs[1])
            .map(|(ours, theirs)| (theirs[0], ours - theirs[0]))
            .collect();
        let here = |id: usize| {
            let client = shifts.partition_point(|(first, _)| *first <= id);
            id + shifts[client - 1].1
        };
        for row in 0..other.rows() {
            let to = here(row);
            for (distance, id) in other.nearest(row) {
                if distance <= self.limit[to] {
                    self.offer(to, distance, here(id));
                }
            }
        }
    }

    fn tile(&mut self, tile: &Tile<'_>) {
        let left = self.offsets[tile.left.client] + tile.left.rows.start;
        let right = self.offsets[tile.right.client] + tile.right.rows.start;
        let width = tile.right.rows.len();
        let symmetric = tile.left == tile.right;
        for (i, distances) in tile.distances.chunks_exact(width.max(1)).enumerate() {
            let skip = if symmetric { i + 1 } else { 0 };
            self.take_row(left + i, right + skip, &distances[skip..]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use undertone_hamming::tiles::{Pairs, sweep};
    use undertone_kernel::{BitMatrix, Cpu, Prg};

    fn codes(rows: &[usize], bits: usize, seed: u8) -> Vec<BitMatrix> {
        let mut prg = Prg::new(&[seed; 32]);
        let mut random = |rows: &usize| {
            let words = (0..rows * bits.div_ceil(64))
                .map(|_| prg.next_u64())
                .collect();
            BitMatrix::from_words(*rows, bits, words)
        };
        rows.iter().map(&mut random).collect()
    }

    fn all(codes: &[BitMatrix], pairs: &Pairs, out: &mut Distances) {
        sweep(Cpu::detect(), codes, pairs, 0..pairs.len(), out);
    }

    /// Sorts all distances of every row.
    fn naive(codes: &[BitMatrix], k: usize) -> Vec<Vec<(u16, usize)>> {
        let all: Vec<&[u64]> = codes
            .iter()
            .flat_map(|c| (0..c.rows()).map(|r| c.row(r)))
            .collect();
        let row = |i: usize| {
            let distance = |j: usize| {
                all[i]
                    .iter()
                    .zip(all[j])
                    .map(|(a, b)| (a ^ b).count_ones())
                    .sum::<u32>() as u16
            };
            let mut near: Vec<_> = (0..all.len())
                .filter(|j| *j != i)
                .map(|j| (distance(j), j))
                .collect();
            near.sort_unstable();
            near.truncate(k);
            near
        };
        (0..all.len()).map(row).collect()
    }

    fn streamed(codes: &[BitMatrix], k: usize) -> Distances {
        let rows: Vec<usize> = codes.iter().map(BitMatrix::rows).collect();
        let mut out = Distances::new(&rows, k);
        for (client, rows) in rows.iter().enumerate() {
            all(codes, &Pairs::own(client, *rows), &mut out);
        }
        all(codes, &Pairs::cross(&rows), &mut out);
        out
    }

    fn lists(distances: &Distances) -> Vec<Vec<(u16, usize)>> {
        (0..distances.rows())
            .map(|row| distances.nearest(row).collect())
            .collect()
    }

    proptest! {
        // Few bits make many ties.
        #[test]
        fn streaming_is_sorting(
            rows in prop::collection::vec(0usize..40, 1..5),
            bits in 1usize..70,
            k in 1usize..20,
            seed: u8,
        ) {
            let codes = codes(&rows, bits, seed);
            prop_assert_eq!(lists(&streamed(&codes, k)), naive(&codes, k));
        }

        #[test]
        fn leaving_out_a_client_is_never_having_had_it(
            rows in prop::collection::vec(0usize..20, 2..5), gone: prop::sample::Index, seed: u8,
        ) {
            let codes = codes(&rows, 20, seed);
            let gone = gone.index(rows.len());
            let mut out = Distances::new(&rows, 4);
            for (client, rows) in rows.iter().enumerate() {
                all(&codes, &Pairs::own(client, *rows), &mut out);
            }
            let mut without = rows.clone();
            without[gone] = 0;
            all(&codes, &Pairs::cross(&without), &mut out);
            let remains: Vec<bool> = (0..rows.len()).map(|client| client != gone).collect();
            let mut fewer = codes.clone();
            fewer.remove(gone);
            prop_assert_eq!(out.retain(&remains), streamed(&fewer, 4));
        }
    }

    #[test]
    fn many_tiles_and_threads() {
        let codes = codes(&[700, 300], 128, 5);
        assert_eq!(lists(&streamed(&codes, 10)), naive(&codes, 10));
    }
}
