//! Centres of cells: spherical k-means, of which clients know noisy sums.

use rayon::prelude::*;
use undertone_kernel::dense::{self, View};
use undertone_kernel::{Cpu, Prg, Wiped};

use crate::input::Features;

/// A row of norm 1 in fixed point. A little below 2¹⁶, so that no rounding takes a row above it.
const ONE: f64 = 65_535.0;

/// Rows whose cells are looked for at a time.
const ROWS: usize = 256;

/// How far apart the two halves of a cell begin.
const APART: f64 = 0.3;

/// Directions, and what to take off the product with each.
#[derive(Clone, PartialEq)]
pub(crate) struct Centres {
    dim: usize,
    /// One after another.
    values: Wiped<f64>,
    off: Wiped<f64>,
}

impl std::fmt::Debug for Centres {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Centres({} x {}, ..)", self.len(), self.dim)
    }
}

fn norm(values: &[f64]) -> f64 {
    values.iter().map(|value| value * value).sum::<f64>().sqrt()
}

/// A random vector of norm `length`.
fn direction(prg: &mut Prg, length: f64, out: &mut [f64]) {
    out.iter_mut()
        .for_each(|value| *value = 2.0 * prg.unit() - 1.0);
    let norm = norm(out);
    if norm > 0.0 {
        out.iter_mut().for_each(|value| *value *= length / norm);
    }
}

/// Rows of norm 1.
pub(crate) fn unit_rows(features: &Features) -> Wiped<f64> {
    let mut rows = Wiped::from(features.values().to_vec());
    rows.par_chunks_mut(features.dim()).for_each(|row| {
        let most = row
            .iter()
            .fold(0.0, |most: f64, value| most.max(value.abs()));
        row.iter_mut().for_each(|value| *value /= most);
        let norm = norm(row);
        row.iter_mut().for_each(|value| *value /= norm);
    });
    rows
}

/// A sum as vectors of real numbers.
fn real(words: &[u64]) -> Wiped<f64> {
    let value = |word: &u64| (*word as i64) as f64 / ONE;
    Wiped::from(words.iter().map(value).collect::<Vec<f64>>())
}

impl Centres {
    /// Random directions from the mean of all rows, of which `sum` is the noisy sum in fixed point.
    pub(crate) fn start(sum: &[u64], rows: usize, cells: usize, prg: &mut Prg) -> Self {
        let dim = sum.len();
        let mut mean = real(sum);
        mean.iter_mut().for_each(|value| *value /= rows as f64);
        let mut values = Wiped::from(vec![0.0; cells * dim]);
        values
            .chunks_exact_mut(dim)
            .for_each(|centre| direction(prg, 1.0, centre));
        let product = |centre: &[f64]| centre.iter().zip(mean.iter()).map(|(a, b)| a * b).sum();
        let off: Vec<f64> = values.chunks_exact(dim).map(product).collect();
        Self {
            dim,
            values,
            off: off.into(),
        }
    }

    /// The directions of the noisy sums of all cells. A cell whose sum is shorter than `least`, or
    /// than a fifth of the median, takes half of the longest one instead; not in the `last` round.
    pub(crate) fn next(&self, sums: &[u64], least: f64, last: bool, prg: &mut Prg) -> Self {
        let mut values = real(sums);
        let mut norms: Vec<f64> = values.chunks_exact(self.dim).map(norm).collect();
        for (centre, norm) in values.chunks_exact_mut(self.dim).zip(&norms) {
            if *norm > 0.0 {
                centre.iter_mut().for_each(|value| *value /= norm);
            }
        }
        if !last {
            self.split(&mut values, &mut norms, least, prg);
        }
        Self {
            dim: self.dim,
            values,
            off: vec![0.0; norms.len()].into(),
        }
    }

    fn split(&self, values: &mut [f64], norms: &mut [f64], least: f64, prg: &mut Prg) {
        let dim = self.dim;
        let mut sorted = norms.to_vec();
        sorted.sort_by(f64::total_cmp);
        let least = least.max(sorted[sorted.len() / 2] / 5.0);
        let short: Vec<usize> = (0..norms.len()).filter(|c| norms[*c] < least).collect();
        let mut step = Wiped::from(vec![0.0; dim]);
        for cell in short {
            let first = |best: usize, c: usize| if norms[c] > norms[best] { c } else { best };
            let longest = (0..norms.len()).fold(0, first);
            if longest == cell {
                continue;
            }
            direction(prg, APART, &mut step);
            for column in 0..dim {
                let (value, step) = (values[longest * dim + column], step[column]);
                values[longest * dim + column] = value + step;
                values[cell * dim + column] = value - step;
            }
            norms[longest] /= 2.0;
            norms[cell] = norms[longest];
            for half in [longest, cell] {
                let centre = &mut values[half * dim..(half + 1) * dim];
                let norm = norm(centre);
                centre.iter_mut().for_each(|value| *value /= norm);
            }
        }
    }

    /// The centre of a cell.
    #[cfg(test)]
    pub(super) fn centre(&self, cell: usize) -> &[f64] {
        &self.values[cell * self.dim..(cell + 1) * self.dim]
    }

    /// The number of cells.
    pub(crate) fn len(&self) -> usize {
        self.off.len()
    }

    /// For each row its `probes` nearest cells, nearest first. Ties go to the smaller number.
    /// `rows` have norm 1.
    pub(crate) fn nearest(&self, rows: &[f64], probes: usize) -> Vec<u16> {
        let cells = self.len();
        let mut out = vec![0; rows.len() / self.dim * probes];
        let chunks = out.par_chunks_mut(ROWS * probes);
        chunks
            .zip(rows.par_chunks(ROWS * self.dim))
            .for_each(|(out, rows)| {
                let count = rows.len() / self.dim;
                let mut products = Wiped::from(vec![0.0; count * cells]);
                let rows = View::new(rows, count, self.dim);
                let centres = View::new(&self.values, cells, self.dim).transposed();
                dense::add_product(Cpu::detect(), rows, centres, &mut products);
                let rows = out
                    .chunks_exact_mut(probes)
                    .zip(products.chunks_exact_mut(cells));
                for (out, products) in rows {
                    products
                        .iter_mut()
                        .zip(self.off.iter())
                        .for_each(|(value, off)| *value -= off);
                    best(products, out);
                }
            });
        out
    }

    /// The sum of the rows of each cell, in fixed point. `nearest` is the cell of each row.
    pub(crate) fn sums(&self, rows: &[f64], nearest: &[u16]) -> Vec<u64> {
        let mut sums = vec![0u64; self.values.len()];
        for (row, cell) in rows.chunks_exact(self.dim).zip(nearest) {
            add(row, &mut sums[usize::from(*cell) * self.dim..]);
        }
        sums
    }
}

/// Adds a row of norm 1 in fixed point. Rounding is towards zero, so no row becomes longer.
pub(crate) fn add(row: &[f64], sum: &mut [u64]) {
    for (value, sum) in row.iter().zip(sum) {
        *sum = sum.wrapping_add((value * ONE) as i64 as u64);
    }
}

/// The places of the largest values, largest first.
fn best(values: &[f64], out: &mut [u16]) {
    let mut found = 0;
    for (place, value) in values.iter().enumerate() {
        if found == out.len() && *value <= values[usize::from(out[found - 1])] {
            continue;
        }
        let mut at = found.min(out.len() - 1);
        while at > 0 && values[usize::from(out[at - 1])] < *value {
            out[at] = out[at - 1];
            at -= 1;
        }
        out[at] = place as u16;
        found = (found + 1).min(out.len());
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn best_is_sorting(values in prop::collection::vec(0u8..6, 1..30), probes in 1usize..8) {
            let values: Vec<f64> = values.into_iter().map(f64::from).collect();
            let probes = probes.min(values.len());
            let mut places: Vec<u16> = (0..values.len() as u16).collect();
            places.sort_by(|a, b| {
                let value = |place: &u16| values[usize::from(*place)];
                value(b).total_cmp(&value(a)).then(a.cmp(b))
            });
            let mut out = vec![0; probes];
            best(&values, &mut out);
            prop_assert_eq!(&out[..], &places[..probes]);
        }
    }

    /// Rows about `centres` directions.
    pub(crate) fn clouds(rows: usize, dim: usize, centres: usize, seed: u8) -> Features {
        let mut prg = Prg::new(&[seed; 32]);
        let mut all = vec![0.0; centres * dim];
        all.chunks_exact_mut(dim)
            .for_each(|centre| direction(&mut prg, 1.0, centre));
        let mut values = vec![0.0; rows * dim];
        for (row, values) in values.chunks_exact_mut(dim).enumerate() {
            direction(&mut prg, 0.4, values);
            let centre = &all[row % centres * dim..];
            values
                .iter_mut()
                .zip(centre)
                .for_each(|(value, centre)| *value += centre);
        }
        Features::new(dim, values).unwrap()
    }

    /// Without noise four rounds find separated clouds: each is cut into cells of its own.
    #[test]
    fn cells_are_those_of_clouds() {
        let features = clouds(4000, 16, 5, 1);
        let rows = unit_rows(&features);
        let mut prg = Prg::new(&[2; 32]);
        let mut sum = vec![0; 16];
        rows.chunks_exact(16).for_each(|row| add(row, &mut sum));
        let mut centres = Centres::start(&sum, 4000, 20, &mut prg);
        for round in 1..=4 {
            let nearest = centres.nearest(&rows, 1);
            let sums = centres.sums(&rows, &nearest);
            centres = centres.next(&sums, 0.0, round == 4, &mut prg);
        }
        let nearest = centres.nearest(&rows, 1);
        let mut clouds = vec![std::collections::BTreeSet::new(); 20];
        for (row, cell) in nearest.iter().enumerate() {
            clouds[usize::from(*cell)].insert(row % 5);
        }
        assert!(clouds.iter().all(|clouds| clouds.len() <= 1), "{clouds:?}");
        let sizes = |cell| nearest.iter().filter(|near| **near == cell).count();
        let used = (0..20).filter(|cell| sizes(*cell) > 0).count();
        assert!(used >= 18, "{used} of 20 cells have rows");
    }

    #[test]
    fn no_row_is_longer_than_one() {
        let features = Features::new(3, vec![1e150, -1e150, 1e149, 5e-324, 0.0, 0.0]).unwrap();
        for row in unit_rows(&features).chunks_exact(3) {
            assert!((norm(row) - 1.0).abs() < 1e-12);
            let mut sum = vec![0; 3];
            add(row, &mut sum);
            let length: f64 = sum.iter().map(|word| (*word as i64 as f64).powi(2)).sum();
            assert!(length.sqrt() <= 65_536.0);
        }
    }
}
