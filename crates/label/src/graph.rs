//! The joint neighbour graph: `W = B + Bᵀ`, normalised to `D^{-1/2} W D^{-1/2}`.

use undertone_kernel::sparse;

use crate::distances::Distances;
use crate::params::Variant;

/// A symmetric sparse matrix, the normalised adjacency of all rows. A row of degree 0 stays
/// isolated.
#[derive(Debug, Clone, PartialEq)]
pub struct Graph {
    starts: Vec<usize>,
    middles: Vec<usize>,
    columns: Vec<u32>,
    values: Vec<f64>,
}

impl Graph {
    /// Joins every row to its nearest rows. `variant` gives the weight of a distance between codes
    /// of `bits` bits. Rows without positive similarity are not joined. See `docs/spec/labels.md`,
    /// steps 10 to 12.
    pub fn new(distances: &Distances, bits: usize, variant: Variant) -> Self {
        let n = distances.rows();
        let mut edges: Vec<(u32, u32, f64)> = Vec::with_capacity(2 * n * distances.k());
        for row in 0..n {
            for (distance, other) in distances.nearest(row) {
                let weight = variant.weight(distance, bits);
                if weight > 0.0 {
                    edges.push((row as u32, other as u32, weight));
                    edges.push((other as u32, row as u32, weight));
                }
            }
        }
        let mut graph = Self::from_edges(n, &edges);
        graph.normalise();
        graph
    }

    /// Sorts `edges` (row, column, weight) into rows, and adds up edges that occur twice.
    fn from_edges(n: usize, edges: &[(u32, u32, f64)]) -> Self {
        let mut ends = vec![0; n + 1];
        for (row, _, _) in edges {
            ends[*row as usize + 1] += 1;
        }
        for row in 0..n {
            ends[row + 1] += ends[row];
        }
        let mut sorted = vec![(0, 0.0); edges.len()];
        let mut next = ends.clone();
        for (row, column, weight) in edges {
            sorted[next[*row as usize]] = (*column, *weight);
            next[*row as usize] += 1;
        }
        let mut graph = Self {
            starts: vec![0],
            middles: Vec::with_capacity(n),
            columns: Vec::with_capacity(edges.len()),
            values: Vec::with_capacity(edges.len()),
        };
        for row in 0..n {
            let entries = &mut sorted[ends[row]..ends[row + 1]];
            entries.sort_unstable_by_key(|(column, _)| *column);
            for same in entries.chunk_by(|a, b| a.0 == b.0) {
                graph.columns.push(same[0].0);
                graph
                    .values
                    .push(same.iter().map(|(_, weight)| weight).sum());
            }
            let start = graph.starts[row];
            let below = graph.columns[start..].partition_point(|column| (*column as usize) < row);
            graph.middles.push(start + below);
            graph.starts.push(graph.columns.len());
        }
        graph
    }

    fn normalise(&mut self) {
        let scale: Vec<f64> = self
            .starts
            .windows(2)
            .map(|row| self.values[row[0]..row[1]].iter().sum::<f64>())
            .map(|degree| {
                if degree > 0.0 {
                    degree.sqrt().recip()
                } else {
                    0.0
                }
            })
            .collect();
        for row in 0..scale.len() {
            for entry in self.starts[row]..self.starts[row + 1] {
                self.values[entry] *= scale[row] * scale[self.columns[entry] as usize];
            }
        }
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.starts.len() - 1
    }

    /// Number of entries: twice the number of edges.
    pub fn entries(&self) -> usize {
        self.columns.len()
    }

    /// The entries as a sparse matrix.
    pub fn matrix(&self) -> sparse::Rows<'_, f64> {
        sparse::Rows {
            starts: &self.starts,
            middles: &self.middles,
            columns: &self.columns,
            values: &self.values,
        }
    }

    /// The entries of a row, as (column, value).
    ///
    /// # Panics
    /// When there is no such row.
    pub fn row(&self, row: usize) -> impl Iterator<Item = (usize, f64)> + '_ {
        let entries = self.starts[row]..self.starts[row + 1];
        let columns = self.columns[entries.clone()].iter();
        columns
            .zip(&self.values[entries])
            .map(|(column, value)| (*column as usize, *value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_the_definition() {
        // 0 and 1 choose each other, 2 chooses 0, 3 chooses 1 but too far; 4 chooses nobody.
        let mut distances = Distances::new(&[5], 1);
        for (row, distance, other) in [(0, 10, 1), (1, 10, 0), (2, 20, 0), (3, 50, 1)] {
            distances.offer(row, distance, other);
        }
        for variant in [Variant::Paper, Variant::Balanced] {
            let graph = Graph::new(&distances, 100, variant);
            let (a, b) = (2.0 * variant.weight(10, 100), variant.weight(20, 100));
            let row = |i| graph.row(i).collect::<Vec<_>>();
            let close =
                |(i, x): (usize, f64), (j, y): (usize, f64)| i == j && (x - y).abs() < 1e-15;
            assert!(close(row(0)[0], (1, a / ((a + b) * a).sqrt())));
            assert!(close(row(0)[1], (2, b / ((a + b) * b).sqrt())));
            assert_eq!(row(1).len(), 1);
            assert!(close(row(1)[0], (0, row(0)[0].1)));
            assert!(close(row(2)[0], (0, row(0)[1].1)));
            assert!(row(3).is_empty() && row(4).is_empty());
        }
    }
}
