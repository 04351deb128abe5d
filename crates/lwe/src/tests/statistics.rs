//! Tests of fit.

/// Bins with less than this are joined with their neighbours.
const LEAST: f64 = 20.0;

/// How many of its deviations chi-square exceeds its mean by, for `counts` of bins with
/// probabilities proportional to `weights`.
pub(super) fn chi_square(counts: &[u64], weights: &[f64]) -> f64 {
    assert_eq!(counts.len(), weights.len());
    let total = counts.iter().sum::<u64>() as f64;
    let scale = total / weights.iter().sum::<f64>();
    let (mut sum, mut bins) = (0.0, 0.0);
    let (mut have, mut due) = (0.0, 0.0);
    let mut left: f64 = total;
    for (count, weight) in counts.iter().zip(weights) {
        have += *count as f64;
        due += weight * scale;
        if due >= LEAST && left - due >= LEAST {
            sum += (have - due) * (have - due) / due;
            bins += 1.0;
            left -= due;
            (have, due) = (0.0, 0.0);
        }
    }
    sum += (have - due) * (have - due) / due;
    // The last bin leaves as many degrees of freedom as there were bins before it.
    (sum - bins) / (2.0f64 * bins).sqrt()
}

/// How many deviations of the mean `values` are off `due`.
pub(super) fn mean_is(values: &[f64], due: f64) -> f64 {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (mean - due) / (squares / count / count).sqrt()
}

/// The deviation of `values` around zero.
pub(super) fn deviation(values: &[f64]) -> f64 {
    let squares: f64 = values.iter().map(|value| value * value).sum();
    (squares / values.len() as f64).sqrt()
}

/// The largest distance of the distribution functions of two samples, in units of `√(1/m + 1/n)`.
/// For equal distributions it is above 1.95 with probability 1/1000 (Kolmogorov, Smirnov).
pub(super) fn two_samples(first: &mut [f64], second: &mut [f64]) -> f64 {
    first.sort_by(f64::total_cmp);
    second.sort_by(f64::total_cmp);
    let (m, n) = (first.len(), second.len());
    let (mut i, mut j, mut most) = (0, 0, 0f64);
    while i < m && j < n {
        let value = first[i].min(second[j]);
        while i < m && first[i] <= value {
            i += 1;
        }
        while j < n && second[j] <= value {
            j += 1;
        }
        most = most.max((i as f64 / m as f64 - j as f64 / n as f64).abs());
    }
    most / (1.0 / m as f64 + 1.0 / n as f64).sqrt()
}

/// The probability of a standard Gaussian between `from` and `to`, by Simpson's rule.
pub(super) fn normal(from: f64, to: f64) -> f64 {
    let (from, to) = (from.clamp(-9.0, 9.0), to.clamp(-9.0, 9.0));
    let steps = 2 * ((to - from) * 40.0).ceil().max(4.0) as usize;
    let width = (to - from) / steps as f64;
    let density = |x: f64| (-x * x / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt();
    let inner: f64 = (1..steps)
        .map(|step| density(from + step as f64 * width) * if step % 2 == 1 { 4.0 } else { 2.0 })
        .sum();
    (density(from) + inner + density(to)) * width / 3.0
}

#[test]
fn probabilities_are_those_of_tables() {
    assert!((normal(-1.0, 1.0) - 0.682_689_492_137).abs() < 1e-9);
    assert!((normal(-9.0, 1.5) - 0.933_192_798_731).abs() < 1e-9);
    assert!(chi_square(&[2500, 5000, 2500], &[1.0, 2.0, 1.0]) < 0.0);
    assert!(chi_square(&[2300, 5000, 2700], &[1.0, 2.0, 1.0]) > 10.0);
    let mut first: Vec<f64> = (0..100).map(f64::from).collect();
    assert!(two_samples(&mut first.clone(), &mut first) == 0.0);
    let mut second: Vec<f64> = (40..140).map(f64::from).collect();
    assert!((two_samples(&mut first, &mut second) - 0.4 * 50f64.sqrt()).abs() < 1e-9);
}
