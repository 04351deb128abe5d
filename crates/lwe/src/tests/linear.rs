//! Linear algebra in double precision, as far as the tests need it.

use undertone_kernel::Prg;

/// A matrix, row after row.
#[derive(Debug, Clone)]
pub(super) struct Matrix {
    pub(super) columns: usize,
    pub(super) entries: Vec<f64>,
}

impl Matrix {
    pub(super) fn zero(rows: usize, columns: usize) -> Self {
        let entries = vec![0.0; rows * columns];
        Self { columns, entries }
    }

    pub(super) fn rows(&self) -> usize {
        self.entries.len() / self.columns
    }

    pub(super) fn row(&self, row: usize) -> &[f64] {
        &self.entries[row * self.columns..][..self.columns]
    }

    pub(super) fn at(&mut self, row: usize, column: usize) -> &mut f64 {
        &mut self.entries[row * self.columns + column]
    }

    pub(super) fn transpose(&self) -> Self {
        let mut out = Self::zero(self.columns, self.rows());
        for row in 0..self.rows() {
            for (column, value) in self.row(row).iter().enumerate() {
                *out.at(column, row) = *value;
            }
        }
        out
    }

    /// `self·other`.
    pub(super) fn times(&self, other: &Self) -> Self {
        assert_eq!(self.columns, other.rows());
        let mut out = Self::zero(self.rows(), other.columns);
        for (out, row) in out
            .entries
            .chunks_exact_mut(other.columns)
            .zip(self.entries.chunks_exact(self.columns))
        {
            for (factor, other) in row.iter().zip(other.entries.chunks_exact(other.columns)) {
                for (out, other) in out.iter_mut().zip(other) {
                    *out += factor * other;
                }
            }
        }
        out
    }

    /// `a·self + b·other`.
    pub(super) fn plus(&self, a: f64, other: &Self, b: f64) -> Self {
        assert_eq!(self.entries.len(), other.entries.len());
        let pairs = self.entries.iter().zip(&other.entries);
        Self {
            columns: self.columns,
            entries: pairs.map(|(x, y)| a * x + b * y).collect(),
        }
    }

    /// The diagonal matrix.
    pub(super) fn diagonal(diagonal: &[f64]) -> Self {
        let mut out = Self::zero(diagonal.len(), diagonal.len());
        for (at, value) in diagonal.iter().enumerate() {
            *out.at(at, at) = *value;
        }
        out
    }

    /// The lower triangular `C` with `C·Cᵀ` = self. `None` if the symmetric matrix is not positive
    /// definite.
    pub(super) fn cholesky(&self) -> Option<Self> {
        let size = self.columns;
        assert_eq!(self.rows(), size);
        let mut out = Self::zero(size, size);
        for i in 0..size {
            for j in 0..=i {
                let (a, b) = (&out.row(i)[..j], &out.row(j)[..j]);
                let sum: f64 = a.iter().zip(b).map(|(a, b)| a * b).sum();
                let rest = self.row(i)[j] - sum;
                if i > j {
                    let pivot = *out.at(j, j);
                    *out.at(i, j) = rest / pivot;
                } else if rest > 0.0 {
                    *out.at(i, i) = rest.sqrt();
                } else {
                    return None;
                }
            }
        }
        Some(out)
    }

    /// The inverse of a symmetric positive definite matrix.
    pub(super) fn inverse(&self) -> Self {
        let size = self.columns;
        let lower = self.cholesky().expect("positive definite");
        // Rows of the inverse of the triangle, by forward substitution.
        let mut inverse = Self::zero(size, size);
        for i in 0..size {
            let pivot = 1.0 / lower.row(i)[i];
            for j in 0..=i {
                let unit = if i == j { 1.0 } else { 0.0 };
                let sum: f64 = (j..i).map(|k| lower.row(i)[k] * inverse.row(k)[j]).sum();
                *inverse.at(i, j) = (unit - sum) * pivot;
            }
        }
        inverse.transpose().times(&inverse)
    }
}

/// The norm of a linear map, from below, by power iteration: `forward` and `backward` apply it and
/// its transpose.
pub(super) fn norm(
    width: usize,
    rounds: usize,
    mut forward: impl FnMut(&[f64]) -> Vec<f64>,
    mut backward: impl FnMut(&[f64]) -> Vec<f64>,
) -> f64 {
    let mut prg = Prg::new(&[77; 32]);
    let mut vector: Vec<f64> = (0..width)
        .map(|_| (prg.next_u64() >> 11) as f64 / 2f64.powi(52) - 1.0)
        .collect();
    let mut found = 0.0;
    for _ in 0..rounds {
        let length = vector.iter().map(|x| x * x).sum::<f64>().sqrt();
        vector.iter_mut().for_each(|x| *x /= length);
        let image = forward(&vector);
        found = image.iter().map(|x| x * x).sum::<f64>().sqrt();
        vector = backward(&image);
    }
    found
}

#[test]
fn an_inverse_is_one() {
    let matrix = Matrix {
        columns: 3,
        entries: vec![4.0, 1.0, -1.0, 1.0, 3.0, 0.5, -1.0, 0.5, 2.0],
    };
    let one = matrix.times(&matrix.inverse());
    let rest = one.plus(1.0, &Matrix::diagonal(&[1.0; 3]), -1.0);
    assert!(rest.entries.iter().all(|entry| entry.abs() < 1e-12));
    assert!(Matrix::diagonal(&[1.0, -1e-9]).cholesky().is_none());
    let forward = |x: &[f64]| vec![3.0 * x[0], -5.0 * x[1]];
    assert!((norm(2, 60, forward, forward) - 5.0).abs() < 1e-9);
}
