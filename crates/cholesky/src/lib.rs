#![doc = include_str!("../README.md")]

use faer::dyn_stack::{MemBuffer, MemStack};
use faer::linalg::cholesky::llt::factor::LltRegularization;
use faer::sparse::linalg::SupernodalThreshold;
use faer::sparse::linalg::cholesky::{
    CholeskySymbolicParams, LltRef, SymbolicCholesky, SymbolicCholeskyRaw, SymmetricOrdering,
    factorize_symbolic_cholesky,
};
use faer::sparse::{SparseColMat, SymbolicSparseColMat};
use faer::{Conj, MatMut, Par, Side};

/// The lower triangle of a symmetric matrix, column after column.
#[derive(Debug, Clone, PartialEq)]
pub struct Lower {
    /// Where each column starts in `rows` and `values`, and where the last one ends.
    pub starts: Vec<u32>,
    /// The rows of the entries, ascending in each column, from its diagonal on.
    pub rows: Vec<u32>,
    /// The entries.
    pub values: Vec<f64>,
}

/// What a factor costs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cost {
    /// Its number of entries, of eight bytes each.
    pub entries: usize,
    /// Multiplications of the factorisation.
    pub flops: f64,
}

impl Cost {
    fn of(symbolic: &SymbolicCholesky<u32>) -> Self {
        let mut flops = 0.0;
        if let SymbolicCholeskyRaw::Supernodal(raw) = symbolic.raw() {
            for s in 0..raw.n_supernodes() {
                let width = raw.supernode_end()[s] - raw.supernode_begin()[s];
                let below = raw.supernode(s).pattern().len();
                for column in 0..width as usize {
                    flops += ((width as usize - column + below) as f64).powi(2);
                }
            }
        }
        Self {
            entries: symbolic.len_val(),
            flops,
        }
    }
}

/// A matrix with the order of its rows that keeps its factor sparse.
#[derive(Debug)]
pub struct Ordered {
    matrix: SparseColMat<u32, f64>,
    symbolic: SymbolicCholesky<u32>,
}

impl Ordered {
    /// Orders the rows of `matrix` (AMD). Returns `None` if it has too many entries to number, or
    /// the factor would have.
    ///
    /// # Panics
    /// When `matrix` is not a lower triangle as [`Lower`] describes it.
    pub fn new(matrix: Lower) -> Option<Self> {
        let n = matrix.starts.len() - 1;
        i32::try_from((2 * matrix.rows.len()).saturating_sub(n)).ok()?;
        let Lower {
            starts,
            rows,
            values,
        } = matrix;
        let matrix = SparseColMat::new(
            SymbolicSparseColMat::new_checked(n, n, starts, None, rows),
            values,
        );
        let symbolic = factorize_symbolic_cholesky(
            matrix.symbolic(),
            Side::Lower,
            SymmetricOrdering::Amd,
            CholeskySymbolicParams {
                supernodal_flop_ratio_threshold: SupernodalThreshold::FORCE_SUPERNODAL,
                ..Default::default()
            },
        )
        .ok()?;
        Some(Self { matrix, symbolic })
    }

    /// What the factor costs.
    pub fn cost(&self) -> Cost {
        Cost::of(&self.symbolic)
    }

    /// The factor. Returns `None` if it is too large to hold, or if the matrix is not positive
    /// definite in floating point. Uses one thread, so the result does not depend on the number of
    /// threads.
    pub fn factor(self) -> Option<Factor> {
        let Self { matrix, symbolic } = self;
        let mut values = Vec::new();
        values.try_reserve_exact(symbolic.len_val()).ok()?;
        values.resize(symbolic.len_val(), 0.0);
        let scratch = symbolic.factorize_numeric_llt_scratch::<f64>(Par::Seq, Default::default());
        let mut memory = MemBuffer::try_new(scratch).ok()?;
        symbolic
            .factorize_numeric_llt(
                &mut values,
                matrix.as_ref(),
                Side::Lower,
                LltRegularization::default(),
                Par::Seq,
                MemStack::new(&mut memory),
                Default::default(),
            )
            .ok()?;
        Some(Factor { symbolic, values })
    }
}

/// A factor: `L` of `L·Lᵀ`.
#[derive(Debug)]
pub struct Factor {
    symbolic: SymbolicCholesky<u32>,
    values: Vec<f64>,
}

impl Factor {
    /// Solves for `count` right-hand sides, one after the other, in place.
    ///
    /// # Panics
    /// When `count` is 0, or `sides` has not `count` times as many values as the matrix has rows.
    pub fn solve(&self, count: usize, sides: &mut [f64]) {
        let llt = LltRef::new(&self.symbolic, &self.values);
        let scratch = self.symbolic.solve_in_place_scratch::<f64>(count, Par::Seq);
        let mut memory = MemBuffer::new(scratch);
        llt.solve_in_place_with_conj(
            Conj::No,
            MatMut::from_column_major_slice_mut(sides, sides.len() / count, count),
            Par::Seq,
            MemStack::new(&mut memory),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A symmetric matrix whose entries at some places below the diagonal are −1, and whose
    /// diagonal is `above` more than the sum of its row's magnitudes.
    fn laplacian(n: usize, places: &[(usize, usize)], above: f64) -> Lower {
        let mut below = vec![std::collections::BTreeSet::new(); n];
        let mut degree = vec![0.0; n];
        for (a, b) in places.iter().map(|(a, b)| (a % n, b % n)) {
            if a != b && below[a.min(b)].insert(a.max(b)) {
                degree[a] += 1.0;
                degree[b] += 1.0;
            }
        }
        let mut lower = Lower {
            starts: vec![0],
            rows: Vec::new(),
            values: Vec::new(),
        };
        for column in 0..n {
            lower.rows.push(column as u32);
            lower.values.push(degree[column] + above);
            for row in &below[column] {
                lower.rows.push(*row as u32);
                lower.values.push(-1.0);
            }
            lower.starts.push(lower.rows.len() as u32);
        }
        lower
    }

    fn times(matrix: &Lower, x: &[f64]) -> Vec<f64> {
        let mut out = vec![0.0; x.len()];
        for column in 0..x.len() {
            for at in matrix.starts[column] as usize..matrix.starts[column + 1] as usize {
                let (row, value) = (matrix.rows[at] as usize, matrix.values[at]);
                out[row] += value * x[column];
                if row != column {
                    out[column] += value * x[row];
                }
            }
        }
        out
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn solutions_solve(
            n in 1usize..40, places: Vec<(usize, usize)>, above in 0.01f64..2.0, count in 1usize..4,
        ) {
            let matrix = laplacian(n, &places, above);
            let ordered = Ordered::new(matrix.clone()).unwrap();
            let cost = ordered.cost();
            prop_assert!(cost.entries >= matrix.rows.len());
            let is_diagonal = matrix.rows.len() == n;
            prop_assert!(is_diagonal || cost.flops >= n as f64);
            let factor = ordered.factor().unwrap();
            let x: Vec<f64> = (0..count * n).map(|at| (at % 7) as f64 - 3.0).collect();
            let mut sides: Vec<f64> = x.chunks(n).flat_map(|x| times(&matrix, x)).collect();
            factor.solve(count, &mut sides);
            for (value, due) in sides.iter().zip(&x) {
                prop_assert!((value - due).abs() < 1e-8 / above, "{} for {}", value, due);
            }
        }
    }

    #[test]
    fn what_is_not_definite_has_no_factor() {
        let matrix = laplacian(3, &[(0, 1), (1, 2)], -1.5);
        assert!(Ordered::new(matrix).unwrap().factor().is_none());
    }
}
