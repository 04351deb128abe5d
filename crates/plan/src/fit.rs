//! Costs that are sums of a few kinds of work, from measurements.

/// What each kind of work costs: a number for each, none below zero, such that sums of work and
/// costs come closest to what was measured, in relation to it.
///
/// Each measurement is the amounts of work and what they took together. All have as many kinds.
pub fn fit(measured: &[(Vec<f64>, f64)]) -> Vec<f64> {
    let kinds = measured.first().map_or(0, |(work, _)| work.len());
    // Work in units of its mean, and relative to the measurement.
    let unit: Vec<f64> = (0..kinds)
        .map(|kind| measured.iter().map(|(work, _)| work[kind]).sum::<f64>())
        .map(|sum| if sum > 0.0 { sum } else { 1.0 })
        .collect();
    let lines: Vec<Vec<f64>> = measured
        .iter()
        .filter(|(_, took)| *took > 0.0)
        .map(|(work, took)| {
            (0..kinds)
                .map(|kind| work[kind] / unit[kind] / took)
                .collect()
        })
        .collect();
    let mut best = (f64::INFINITY, vec![0.0; kinds]);
    // There are few kinds, so each set of those that cost something is tried.
    for set in 1usize..1 << kinds {
        let used: Vec<usize> = (0..kinds).filter(|kind| set >> kind & 1 == 1).collect();
        let Some(costs) = least_squares(&lines, &used) else {
            continue;
        };
        if costs.iter().any(|cost| *cost < 0.0) {
            continue;
        }
        let of = |line: &Vec<f64>| -> f64 {
            let terms = used.iter().zip(&costs);
            (terms.map(|(kind, cost)| line[*kind] * cost).sum::<f64>() - 1.0).powi(2)
        };
        let error = lines.iter().map(of).sum::<f64>();
        // A kind more must be worth it.
        if error < 0.98 * best.0 {
            let mut all = vec![0.0; kinds];
            for (kind, cost) in used.iter().zip(costs) {
                all[*kind] = cost / unit[*kind];
            }
            best = (error, all);
        }
    }
    best.1
}

/// The costs of the used kinds with which all lines come closest to 1.
fn least_squares(lines: &[Vec<f64>], used: &[usize]) -> Option<Vec<f64>> {
    let n = used.len();
    // The normal equations, with the right side in the last column.
    let mut rows = vec![vec![0.0; n + 1]; n];
    for line in lines {
        for (i, a) in used.iter().enumerate() {
            for (j, b) in used.iter().enumerate() {
                rows[i][j] += line[*a] * line[*b];
            }
            rows[i][n] += line[*a];
        }
    }
    for column in 0..n {
        let largest = (column..n).max_by(|a, b| {
            let [a, b] = [a, b].map(|row| rows[*row][column].abs());
            a.total_cmp(&b)
        })?;
        rows.swap(column, largest);
        let scale = rows[column]
            .iter()
            .take(n)
            .fold(0.0f64, |m, x| m.max(x.abs()));
        let pivot = rows[column][column];
        if pivot.abs() <= 1e-9 * scale || pivot == 0.0 {
            return None;
        }
        for row in 0..n {
            if row != column {
                let factor = rows[row][column] / pivot;
                let source = rows[column].clone();
                for (to, from) in rows[row].iter_mut().zip(source) {
                    *to -= factor * from;
                }
            }
        }
    }
    let costs: Vec<f64> = (0..n).map(|row| rows[row][n] / rows[row][row]).collect();
    costs.iter().all(|cost| cost.is_finite()).then_some(costs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_of_sums_are_found() {
        let work = [
            [1.0, 10.0, 0.0],
            [1.0, 100.0, 5.0],
            [1.0, 400.0, 9.0],
            [1.0, 50.0, 100.0],
        ];
        let of = |costs: [f64; 3]| {
            let line = |work: &[f64; 3]| {
                let took = work.iter().zip(costs).map(|(work, cost)| work * cost).sum();
                (work.to_vec(), took)
            };
            fit(&work.iter().map(line).collect::<Vec<_>>())
        };
        for costs in [
            [3.0, 0.2, 0.0],
            [0.5, 0.0, 2.0],
            [0.0, 1e-6, 1e3],
            [1.0, 1.0, 1.0],
        ] {
            for (found, cost) in of(costs).into_iter().zip(costs) {
                assert!(
                    (found - cost).abs() <= 1e-6 * (1.0 + cost),
                    "{found} {cost}"
                );
            }
        }
    }

    #[test]
    fn nothing_costs_less_than_nothing() {
        let falling = [
            (vec![1.0, 1.0], 3.0),
            (vec![1.0, 2.0], 2.0),
            (vec![1.0, 3.0], 1.0),
        ];
        let found = fit(&falling);
        assert!(
            found.iter().all(|cost| *cost >= 0.0) && found[0] > 0.5,
            "{found:?}"
        );
        assert_eq!(fit(&[]), Vec::<f64>::new());
        assert_eq!(fit(&[(vec![0.0, 0.0], 1.0)]), [0.0, 0.0]);
        assert_eq!(fit(&[(vec![1.0], 0.0)]), [0.0]);
    }
}
