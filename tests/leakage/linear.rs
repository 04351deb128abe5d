//! Linear equations, as whoever sees many sums solves them.

/// The unknowns of linear equations by least squares. If there are too few equations, the solution
/// of the smallest norm.
pub(crate) fn least_squares(rows: &[Vec<f64>], sums: &[Vec<f64>]) -> Vec<Vec<f64>> {
    let (unknowns, width) = (rows[0].len(), sums[0].len());
    let mut found = vec![vec![0.0; width]; unknowns];
    for column in 0..width {
        // Conjugate gradients on the normal equations, from zero.
        let mut x = vec![0.0; unknowns];
        let mut rest: Vec<f64> = sums.iter().map(|sum| sum[column]).collect();
        let back = |rest: &[f64]| -> Vec<f64> {
            let entry = |at| {
                rows.iter()
                    .zip(rest)
                    .map(|(row, r): (&Vec<f64>, _)| row[at] * r)
                    .sum()
            };
            (0..unknowns).map(entry).collect()
        };
        let norm = |v: &[f64]| v.iter().map(|v| v * v).sum::<f64>();
        let mut step = back(&rest);
        let mut gradient = norm(&step);
        for _ in 0..50 {
            if gradient < 1e-20 {
                break;
            }
            let image: Vec<f64> = rows
                .iter()
                .map(|row| row.iter().zip(&step).map(|(a, b)| a * b).sum())
                .collect();
            let length = gradient / norm(&image);
            x.iter_mut().zip(&step).for_each(|(x, s)| *x += length * s);
            rest.iter_mut()
                .zip(&image)
                .for_each(|(r, i)| *r -= length * i);
            let next = back(&rest);
            let ratio = norm(&next) / gradient;
            gradient = norm(&next);
            step.iter_mut()
                .zip(next)
                .for_each(|(s, n)| *s = n + ratio * *s);
        }
        found
            .iter_mut()
            .zip(x)
            .for_each(|(found, x)| found[column] = x);
    }
    found
}

/// The number of linearly independent rows.
pub(crate) fn rank(mut rows: Vec<Vec<f64>>) -> usize {
    let mut rank = 0;
    for column in 0..rows[0].len() {
        let Some(pivot) = (rank..rows.len()).find(|row| rows[*row][column].abs() > 1e-9) else {
            continue;
        };
        rows.swap(rank, pivot);
        let top = rows[rank].clone();
        for row in &mut rows[rank + 1..] {
            let factor = row[column] / top[column];
            row.iter_mut().zip(&top).for_each(|(a, b)| *a -= factor * b);
        }
        rank += 1;
    }
    rank
}
