//! Products of dense matrices in double precision.
//!
//! Every entry is a sum in the order of the inner index, without fused multiply-add. So the bits
//! are the same on every path and platform. One body serves every path.

use crate::Wiped;
use crate::cpu::Cpu;
#[cfg(target_arch = "x86_64")]
use crate::cpu::Level;

/// Rows of a register tile.
const ROWS: usize = 4;
/// Columns of a register tile.
const COLUMNS: usize = 16;

/// A matrix of `rows` × `columns`, row after row, or what a transposed one looks like.
#[derive(Debug, Clone, Copy)]
pub struct View<'a> {
    values: &'a [f64],
    rows: usize,
    columns: usize,
    /// The distance of the values of neighbouring rows, and of neighbouring columns.
    strides: [usize; 2],
}

impl<'a> View<'a> {
    /// A matrix of these values, row after row.
    ///
    /// # Panics
    /// When `values` has not `rows` · `columns` values.
    pub fn new(values: &'a [f64], rows: usize, columns: usize) -> Self {
        assert_eq!(values.len(), rows * columns, "values of a matrix");
        Self {
            values,
            rows,
            columns,
            strides: [columns, 1],
        }
    }

    /// Its transpose. No value is moved.
    #[must_use]
    pub fn transposed(self) -> Self {
        Self {
            rows: self.columns,
            columns: self.rows,
            strides: [self.strides[1], self.strides[0]],
            ..self
        }
    }

    /// The number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// The number of columns.
    pub fn columns(&self) -> usize {
        self.columns
    }

    #[inline(always)]
    fn at(&self, row: usize, column: usize) -> f64 {
        self.values[row * self.strides[0] + column * self.strides[1]]
    }
}

/// Adds the product of `a` and `b` to `c`, row after row.
///
/// # Panics
/// When the sizes do not fit.
pub fn add_product(cpu: Cpu, a: View<'_>, b: View<'_>, c: &mut [f64]) {
    assert_eq!(a.columns, b.rows, "inner sizes");
    assert_eq!(c.len(), a.rows * b.columns, "values of the product");
    #[cfg(target_arch = "x86_64")]
    {
        #[target_feature(enable = "avx512f,avx512dq,avx512vl")]
        fn avx512(a: View<'_>, b: View<'_>, c: &mut [f64]) {
            body(a, b, c);
        }
        #[target_feature(enable = "avx2")]
        fn avx2(a: View<'_>, b: View<'_>, c: &mut [f64]) {
            body(a, b, c);
        }
        match cpu.level() {
            // SAFETY: a `Cpu` of this level exists only where these instructions do.
            Level::Avx512 => return unsafe { avx512(a, b, c) },
            // SAFETY: as above.
            Level::Avx2 => return unsafe { avx2(a, b, c) },
            _ => {}
        }
    }
    let _ = cpu;
    body(a, b, c);
}

/// Copies of what is multiplied lie side by side, so that the inner loop stays in registers.
#[inline(always)]
#[allow(clippy::needless_range_loop)] // a loop over columns is one instruction
fn body(a: View<'_>, b: View<'_>, c: &mut [f64]) {
    // Some columns of `b` and some rows of `a`, with zeros and repetitions beyond the last.
    let mut panel = Wiped::from(vec![[0.0; COLUMNS]; b.rows]);
    let mut strip = Wiped::from(vec![[0.0; ROWS]; b.rows]);
    for first in (0..b.columns).step_by(COLUMNS) {
        let width = COLUMNS.min(b.columns - first);
        for (row, line) in panel.iter_mut().enumerate() {
            for (column, value) in line.iter_mut().enumerate() {
                *value = if column < width {
                    b.at(row, first + column)
                } else {
                    0.0
                };
            }
        }
        for top in (0..a.rows).step_by(ROWS) {
            let height = ROWS.min(a.rows - top);
            for (inner, line) in strip.iter_mut().enumerate() {
                for (row, value) in line.iter_mut().enumerate() {
                    *value = a.at(top + row.min(height - 1), inner);
                }
            }
            let mut tile = [[0.0; COLUMNS]; ROWS];
            for (row, tile) in tile.iter_mut().enumerate().take(height) {
                let from = (top + row) * b.columns + first;
                tile[..width].copy_from_slice(&c[from..from + width]);
            }
            // Four arrays by name stay in registers. One array of arrays does not.
            let [mut one, mut two, mut three, mut four] = tile;
            for (line, factors) in panel.iter().zip(strip.iter()) {
                for column in 0..COLUMNS {
                    one[column] += factors[0] * line[column];
                }
                for column in 0..COLUMNS {
                    two[column] += factors[1] * line[column];
                }
                for column in 0..COLUMNS {
                    three[column] += factors[2] * line[column];
                }
                for column in 0..COLUMNS {
                    four[column] += factors[3] * line[column];
                }
            }
            for (row, tile) in [one, two, three, four].iter().enumerate().take(height) {
                let to = (top + row) * b.columns + first;
                c[to..to + width].copy_from_slice(&tile[..width]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn naive(a: View<'_>, b: View<'_>, c: &[f64]) -> Vec<f64> {
        let mut c = c.to_vec();
        for row in 0..a.rows {
            for column in 0..b.columns {
                for inner in 0..a.columns {
                    c[row * b.columns + column] += a.at(row, inner) * b.at(inner, column);
                }
            }
        }
        c
    }

    proptest! {
        #[test]
        fn every_path_is_the_definition(
            (m, k, n) in (1usize..11, 0usize..9, 1usize..40),
            seed in any::<[u8; 32]>(),
            flips in any::<[bool; 2]>(),
        ) {
            let mut prg = crate::Prg::new(&seed);
            let mut values = |count: usize| -> Vec<f64> {
                (0..count).map(|_| prg.unit() - 0.5).collect()
            };
            let (a, b, c) = (values(m * k), values(k * n), values(m * n));
            let view = |values, rows, columns, flip: bool| {
                if flip {
                    View::new(values, columns, rows).transposed()
                } else {
                    View::new(values, rows, columns)
                }
            };
            let (a, b) = (view(&a, m, k, flips[0]), view(&b, k, n, flips[1]));
            let due: Vec<u64> = naive(a, b, &c).into_iter().map(f64::to_bits).collect();
            for cpu in Cpu::all() {
                let mut c = c.clone();
                add_product(cpu, a, b, &mut c);
                prop_assert_eq!(&due, &c.into_iter().map(f64::to_bits).collect::<Vec<_>>());
            }
        }
    }
}
