//! Matrices of doubles, row after row. They are wiped.

use std::fmt;

use undertone_kernel::dense::{View, add_product};
use undertone_kernel::{Cpu, Wiped};

/// A matrix.
#[derive(Clone, PartialEq)]
pub struct Matrix {
    rows: usize,
    columns: usize,
    values: Wiped<f64>,
}

impl fmt::Debug for Matrix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Matrix({} x {}, ..)", self.rows, self.columns)
    }
}

impl Matrix {
    /// Zeros.
    pub fn zeros(rows: usize, columns: usize) -> Self {
        Self {
            rows,
            columns,
            values: vec![0.0; rows * columns].into(),
        }
    }

    /// A matrix of these values, row after row. None when there are not `rows` × `columns`.
    pub fn new(rows: usize, columns: usize, values: Vec<f64>) -> Option<Self> {
        let values = Wiped::from(values);
        (rows.checked_mul(columns) == Some(values.len())).then_some(Self {
            rows,
            columns,
            values,
        })
    }

    /// The number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// The number of columns.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// The values, row after row.
    pub fn values(&self) -> &[f64] {
        &self.values
    }

    pub(crate) fn values_mut(&mut self) -> &mut [f64] {
        &mut self.values
    }

    /// The rows one by one.
    pub fn each_row(&self) -> impl Iterator<Item = &[f64]> {
        self.values.chunks_exact(self.columns.max(1))
    }

    fn view(&self) -> View<'_> {
        View::new(&self.values, self.rows, self.columns)
    }

    fn product(a: View<'_>, b: View<'_>) -> Self {
        let mut out = Self::zeros(a.rows(), b.columns());
        add_product(Cpu::detect(), a, b, &mut out.values);
        out
    }

    /// self · other
    pub(crate) fn times(&self, other: &Self) -> Self {
        Self::product(self.view(), other.view())
    }

    /// selfᵀ · other
    pub(crate) fn transposed_times(&self, other: &Self) -> Self {
        Self::product(self.view().transposed(), other.view())
    }

    /// self · otherᵀ
    pub(crate) fn times_transposed(&self, other: &Self) -> Self {
        Self::product(self.view(), other.view().transposed())
    }

    /// Adds `factor` · other.
    pub(crate) fn add(&mut self, factor: f64, other: &Self) {
        let pairs = self.values.iter_mut().zip(other.values.iter());
        pairs.for_each(|(sum, value)| *sum += factor * value);
    }

    #[must_use]
    pub(crate) fn scaled(mut self, factor: f64) -> Self {
        self.values.iter_mut().for_each(|value| *value *= factor);
        self
    }

    /// Adds `line` to every row.
    pub(crate) fn add_to_rows(&mut self, line: &[f64]) {
        for row in self.values.chunks_exact_mut(self.columns.max(1)) {
            row.iter_mut()
                .zip(line)
                .for_each(|(sum, value)| *sum += value);
        }
    }

    /// The sum of all rows.
    pub(crate) fn row_sum(&self) -> Self {
        let mut sum = Self::zeros(1, self.columns);
        for row in self.each_row() {
            sum.add_to_rows(row);
        }
        sum
    }

    /// The positive part of each value.
    pub(crate) fn positive(&self) -> Self {
        let mut out = self.clone();
        out.values
            .iter_mut()
            .for_each(|value| *value = value.max(0.0));
        out
    }

    /// Keeps the values where `other` is above 0. The others become 0.
    #[must_use]
    pub(crate) fn where_positive(mut self, other: &Self) -> Self {
        for (value, other) in self.values.iter_mut().zip(other.values.iter()) {
            if *other <= 0.0 {
                *value = 0.0;
            }
        }
        self
    }

    /// The means of these rows, a row for each group.
    pub fn means(&self, groups: &[Vec<usize>]) -> Self {
        let mut out = Self::zeros(groups.len(), self.columns);
        let lines = out.values.chunks_exact_mut(self.columns.max(1));
        for (line, group) in lines.zip(groups) {
            for row in group {
                let row = &self.values[row * self.columns..(row + 1) * self.columns];
                line.iter_mut()
                    .zip(row)
                    .for_each(|(sum, value)| *sum += value);
            }
            line.iter_mut().for_each(|sum| *sum /= group.len() as f64);
        }
        out
    }

    /// The softmax of each row.
    pub(crate) fn softmax(&self) -> Self {
        let mut out = self.clone();
        for row in out.values.chunks_exact_mut(self.columns.max(1)) {
            let most = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            row.iter_mut()
                .for_each(|value| *value = libm::exp(*value - most));
            let sum: f64 = row.iter().sum();
            row.iter_mut().for_each(|value| *value /= sum);
        }
        out
    }
}
