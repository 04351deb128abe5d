//! The influence of labelled rows: columns of `(I − α𝒲)^{-1}`. The inverse is never computed.
//!
//! `I − α𝒲` is symmetric positive definite for `0 < α < 1`. A sparse Cholesky factorisation solves
//! for all labelled columns. If its fill-in makes it more expensive than iteration, preconditioned
//! conjugate gradients solve 16 columns at a time.

use rayon::prelude::*;
use undertone_cholesky::{Cost, Factor, Lower, Ordered};
use undertone_kernel::sparse::LANES;

use crate::graph::Graph;
use crate::iterate::{Iteration, TOLERANCE};

/// Number of columns that one thread solves together. It does not depend on the number of threads,
/// so results do not either.
pub const COLUMNS: usize = 32;

/// Largest number of entries in a Cholesky factor, eight bytes each.
const MOST_FACTOR: usize = 1 << 27;

/// The method that solves for columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Method {
    /// Sparse Cholesky.
    Cholesky,
    /// Conjugate gradients.
    ConjugateGradients,
}

/// A graph with all that it takes to solve for columns of the influence.
#[derive(Debug)]
pub struct Influence {
    graph: Graph,
    factor: Option<Factor>,
    iteration: Iteration,
}

impl Influence {
    /// Prepares to solve for about `columns` columns of `(I − α·graph)^{-1}`.
    pub fn new(graph: Graph, alpha: f64, columns: usize) -> Self {
        let ordered = ordered(&graph, alpha);
        let pays = |ordered: &Ordered| factor_pays(ordered.cost(), &graph, columns);
        let factor = ordered.filter(pays).and_then(Ordered::factor);
        Self::of(graph, alpha, factor)
    }

    /// As [`new`](Self::new), with the method given. Falls back on conjugate gradients if there is
    /// no factor.
    pub fn with_method(graph: Graph, alpha: f64, method: Method) -> Self {
        let factor = match method {
            Method::Cholesky => ordered(&graph, alpha).and_then(Ordered::factor),
            Method::ConjugateGradients => None,
        };
        Self::of(graph, alpha, factor)
    }

    fn of(graph: Graph, alpha: f64, factor: Option<Factor>) -> Self {
        Self {
            iteration: Iteration::new(&graph, alpha),
            graph,
            factor,
        }
    }

    /// The method in use.
    pub fn method(&self) -> Method {
        match self.factor {
            Some(_) => Method::Cholesky,
            None => Method::ConjugateGradients,
        }
    }

    /// The graph.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// The reach: the sum of the columns of `rows`, which is the total influence on each row of the
    /// graph. An entry is zero if it is too small for the iteration to tell from zero.
    /// See `docs/spec/labels.md`, step 15.
    ///
    /// # Panics
    /// When one of `rows` is not a row of the graph.
    pub fn reach(&self, rows: &[usize]) -> Vec<f64> {
        let mut out = vec![0.0; self.graph.rows()];
        if rows.is_empty() {
            return out;
        }
        let (mut scale, mut faint) = (1.0, 0.0);
        match &self.factor {
            Some(factor) => {
                rows.iter().for_each(|row| out[*row] = 1.0);
                factor.solve(1, &mut out);
            }
            None => {
                self.iteration.solve(&self.graph, &[rows], &mut out);
                scale = (rows.len() as f64).sqrt();
                // A residual of norm 1 causes an error of at most 1/(1 − α).
                faint = 16.0 * TOLERANCE / (1.0 - self.iteration.alpha());
            }
        }
        for value in &mut out {
            *value = if *value > faint { scale * *value } else { 0.0 };
        }
        out
    }

    /// Solves for the columns of `rows`. Each thread of the ambient pool solves [`COLUMNS`] at a
    /// time. Returns `rows.len()` vectors, one after the other. Each has an entry for each row of
    /// the graph, and none is negative.
    ///
    /// # Panics
    /// When one of `rows` is not a row of the graph.
    pub fn columns(&self, rows: &[usize]) -> Vec<f64> {
        let n = self.graph.rows();
        let mut out = vec![0.0; rows.len() * n];
        out.par_chunks_mut((COLUMNS * n).max(1))
            .zip(rows.par_chunks(COLUMNS))
            .for_each(|(out, rows)| {
                match &self.factor {
                    Some(factor) => {
                        for (row, column) in rows.iter().zip(out.chunks_exact_mut(n)) {
                            column[*row] = 1.0;
                        }
                        factor.solve(rows.len(), out);
                    }
                    None => {
                        let columns = out.chunks_mut(LANES * n);
                        for (rows, columns) in rows.chunks(LANES).zip(columns) {
                            let sides: Vec<&[usize]> = rows.chunks(1).collect();
                            self.iteration.solve(&self.graph, &sides, columns);
                        }
                    }
                }
                out.iter_mut().for_each(|value| *value = value.max(0.0));
            });
        out
    }
}

/// Whether a factorisation of this cost is cheaper than conjugate gradients. The unit is a
/// multiplication of an iteration. Multiplications of the dense kernels are cheaper (measured): by
/// a factor of 10 in the factorisation, of 4.5 in the triangular solves. Graphs of one cloud of
/// rows take 12 iterations, graphs of loosely joined clouds 30. Clouds further apart take fewer
/// again, but there fill-in is low, and the factorisation wins anyway.
fn factor_pays(cost: Cost, graph: &Graph, columns: usize) -> bool {
    const ITERATIONS: f64 = 20.0;
    let columns = columns as f64;
    let factor = cost.flops / 10.0 + 2.0 * cost.entries as f64 * columns / 4.5;
    let sweep = (graph.entries() + 6 * graph.rows()) as f64;
    cost.entries <= MOST_FACTOR && factor < ITERATIONS * sweep * columns
}

/// `I − α·graph` in an order that keeps its factor sparse, unless it has too many entries.
fn ordered(graph: &Graph, alpha: f64) -> Option<Ordered> {
    // What is refused is not built.
    i32::try_from(graph.rows() + graph.entries()).ok()?;
    Ordered::new(lower_triangle(graph, alpha))
}

fn lower_triangle(graph: &Graph, alpha: f64) -> Lower {
    let n = graph.rows();
    let mut starts = vec![0];
    let mut rows = Vec::with_capacity(n + graph.entries() / 2);
    let mut values = Vec::with_capacity(rows.capacity());
    for column in 0..n {
        rows.push(column as u32);
        values.push(1.0);
        for (row, value) in graph.row(column).filter(|(row, _)| *row > column) {
            rows.push(row as u32);
            values.push(-alpha * value);
        }
        starts.push(rows.len() as u32);
    }
    Lower {
        starts,
        rows,
        values,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::distances::Distances;
    use crate::params::Variant;
    use proptest::prelude::*;
    use undertone_kernel::Prg;

    fn random_graph(n: usize, k: usize, seed: u8) -> Graph {
        let mut prg = Prg::new(&[seed; 32]);
        let mut distances = Distances::new(&[n], k);
        for row in 0..n {
            for _ in 0..k {
                let other = prg.next_u64() as usize % n;
                if other != row && distances.nearest(row).all(|(_, id)| id != other) {
                    distances.offer(row, (prg.next_u64() % 60) as u16, other);
                }
            }
        }
        Graph::new(&distances, 100, Variant::Paper)
    }

    /// The inverse of `I − α·graph`, row after row, by elimination. Pivots are on the diagonal: the
    /// matrix is positive definite.
    fn dense_inverse(graph: &Graph, alpha: f64) -> Vec<Vec<f64>> {
        let n = graph.rows();
        let unit = |row: usize| (0..n).map(move |column| f64::from(row == column));
        let mut left: Vec<Vec<f64>> = (0..n).map(|row| unit(row).collect()).collect();
        let mut right = left.clone();
        for (row, line) in left.iter_mut().enumerate() {
            graph
                .row(row)
                .for_each(|(column, value)| line[column] -= alpha * value);
        }
        for pivot in 0..n {
            let scale = 1.0 / left[pivot][pivot];
            for matrix in [&mut left, &mut right] {
                matrix[pivot].iter_mut().for_each(|value| *value *= scale);
            }
            for row in (0..n).filter(|row| *row != pivot) {
                let factor = left[row][pivot];
                for matrix in [&mut left, &mut right] {
                    let above = matrix[pivot].clone();
                    let line = matrix[row].iter_mut();
                    line.zip(above)
                        .for_each(|(value, above)| *value -= factor * above);
                }
            }
        }
        right
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn both_methods_are_the_dense_inverse(
            n in 1usize..60, k in 1usize..5, seed: u8, alpha in 0.01f64..0.999,
        ) {
            let graph = random_graph(n, k, seed);
            let inverse = dense_inverse(&graph, alpha);
            let rows: Vec<usize> = (0..n).rev().collect();
            for method in [Method::Cholesky, Method::ConjugateGradients] {
                let influence = Influence::with_method(graph.clone(), alpha, method);
                prop_assert_eq!(influence.method(), method);
                let columns = influence.columns(&rows);
                for (row, column) in rows.iter().zip(columns.chunks(n)) {
                    for (i, value) in column.iter().enumerate() {
                        let error = (value - inverse[i][*row]).abs();
                        prop_assert!(error < 1e-7, "{:?}: {} at {}, {}", method, error, i, row);
                    }
                }
                for some in [&rows[..], &rows[..n.div_ceil(2)], &[]] {
                    for (i, value) in influence.reach(some).iter().enumerate() {
                        let due: f64 = some.iter().map(|row| inverse[i][*row]).sum();
                        prop_assert!((value - due).abs() < 1e-6, "{:?}: reach of {}", method, i);
                    }
                }
            }
        }
    }

    #[test]
    fn residuals_keep_the_tolerance() {
        let (n, alpha) = (500, 0.99);
        let graph = random_graph(n, 8, 1);
        let rows: Vec<usize> = (0..100).collect();
        for method in [Method::Cholesky, Method::ConjugateGradients] {
            let influence = Influence::with_method(graph.clone(), alpha, method);
            let columns = influence.columns(&rows);
            for (row, x) in rows.iter().zip(columns.chunks(n)) {
                let mut square = 0.0;
                for i in 0..n {
                    let product: f64 = graph.row(i).map(|(j, value)| value * x[j]).sum();
                    let due = f64::from(i == *row);
                    square += (due - x[i] + alpha * product).powi(2);
                }
                assert!(
                    square.sqrt() < 2.0 * TOLERANCE,
                    "{method:?}: {}",
                    square.sqrt()
                );
            }
        }
    }

    /// Two clouds. Only the first has labels.
    #[test]
    fn what_iterations_cannot_tell_from_nothing_is_not_reached() {
        let mut distances = Distances::new(&[40], 2);
        for row in 0..40 {
            let cloud = row / 20 * 20;
            for step in 1..3 {
                distances.offer(row, 20, cloud + (row + step) % 20);
            }
        }
        let graph = Graph::new(&distances, 100, Variant::Paper);
        let labelled: Vec<usize> = (0..20).collect();
        let influence = Influence::with_method(graph, 0.99, Method::ConjugateGradients);
        let reach = influence.reach(&labelled);
        assert!(reach[..20].iter().all(|value| *value > 1.0));
        assert!(reach[20..].iter().all(|value| *value == 0.0));
    }

    #[test]
    fn fill_in_decides() {
        let ring = |n: usize| {
            let mut distances = Distances::new(&[n], 1);
            (0..n).for_each(|row| distances.offer(row, 10, (row + 1) % n));
            Graph::new(&distances, 100, Variant::Paper)
        };
        let chosen = |graph| Influence::new(graph, 0.99, 100).method();
        assert_eq!(chosen(ring(5000)), Method::Cholesky);
        assert_eq!(
            chosen(random_graph(5000, 10, 2)),
            Method::ConjugateGradients
        );
    }
}
