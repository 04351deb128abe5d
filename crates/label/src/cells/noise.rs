//! Noise for differential privacy: how much, and exact samples of it.
//!
//! Noise is discrete Gaussian, sampled by rejection with integers alone (Canonne, Kamath, Steinke
//! 2020, algorithms 1 to 3). The loss is counted in zero-concentrated differential privacy
//! (Bun, Steinke 2016) and converted to (ε, δ) by proposition 12 of Canonne, Kamath, Steinke.

use undertone_kernel::Prg;

/// log δ of a mechanism with ρ-zCDP at ε, at its best order α.
fn log_delta(rho: f64, epsilon: f64) -> f64 {
    let at = |alpha: f64| {
        (alpha - 1.0) * (alpha * rho - epsilon) - libm::log(alpha - 1.0)
            + alpha * libm::log1p(-1.0 / alpha)
    };
    // The bound has one minimum. α is e^x + 1.
    let (mut low, mut high) = (libm::log(1e-4), libm::log(1e7));
    for _ in 0..200 {
        let (a, b) = (low + (high - low) / 3.0, high - (high - low) / 3.0);
        if at(libm::exp(a) + 1.0) < at(libm::exp(b) + 1.0) {
            high = b;
        } else {
            low = a;
        }
    }
    at(libm::exp(low) + 1.0)
}

/// The largest ρ that ε and δ allow, to within 10⁻¹².
pub(super) fn rho(epsilon: f64, delta: f64) -> f64 {
    let (mut low, mut high) = (0.0, epsilon);
    for _ in 0..100 {
        let middle = (low + high) / 2.0;
        if log_delta(middle, epsilon) <= libm::log(delta) {
            low = middle;
        } else {
            high = middle;
        }
        if high - low < 1e-12 {
            break;
        }
    }
    low
}

/// A number below `below`, each as likely.
fn uniform(prg: &mut Prg, below: u128) -> u128 {
    let mask = u128::MAX >> (below - 1).leading_zeros().min(127);
    loop {
        let low = u128::from(prg.next_u64());
        let high = if mask >> 64 == 0 {
            0
        } else {
            u128::from(prg.next_u64()) << 64
        };
        let value = (high | low) & mask;
        if value < below {
            return value;
        }
    }
}

/// True with probability e^(−`over`/`under`), for 0 ≤ `over` ≤ `under`.
fn bernoulli_small(prg: &mut Prg, over: u128, under: u128) -> bool {
    // k grows with probability over/(under·k). The probability that it stops at an odd k is the
    // series of the exponential.
    let mut k = 1;
    while uniform(prg, under * k) < over {
        k += 1;
    }
    k % 2 == 1
}

/// True with probability e^(−`over`/`under`).
fn bernoulli(prg: &mut Prg, mut over: u128, under: u128) -> bool {
    while over > under {
        if !bernoulli_small(prg, 1, 1) {
            return false;
        }
        over -= under;
    }
    bernoulli_small(prg, over, under)
}

/// Largest deviation: all products fit 128 bits.
pub(super) const MAX_SIGMA: u64 = 1 << 28;

/// A sample of the discrete Gaussian with this parameter σ, which is 1 to [`MAX_SIGMA`].
pub(super) fn gaussian(prg: &mut Prg, sigma: u64) -> i64 {
    let square = u128::from(sigma) * u128::from(sigma);
    let t = u128::from(sigma) + 1;
    loop {
        // A discrete Laplace number of scale t.
        let u = uniform(prg, t);
        if !bernoulli_small(prg, u, t) {
            continue;
        }
        let mut v = 0;
        while bernoulli_small(prg, 1, 1) {
            v += 1;
        }
        let size = u + t * v;
        let negative = uniform(prg, 2) == 1;
        if negative && size == 0 {
            continue;
        }
        // A Laplace number of more than 64·t has probability e⁻⁶⁴, and its square no place.
        if v >= 64 {
            continue;
        }
        let off = (size * t).abs_diff(square);
        if bernoulli(prg, off * off, 2 * square * t * t) {
            let size = size as i64;
            return if negative { -size } else { size };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prg(byte: u8) -> Prg {
        Prg::new(&[byte; 32])
    }

    /// ε, δ, and ρ by the published formula, computed with 50 digits.
    const RHO: [(f64, f64, f64); 5] = [
        (4.0, 1e-6, 0.311064954941),
        (1.0, 1e-6, 0.0243559703595),
        (4.0, 1e-8, 0.232594311142),
        (0.1, 1e-5, 0.000432993729402),
        (8.0, 1e-7, 0.919228804128),
    ];

    #[test]
    fn loss_is_that_of_the_formula() {
        for (epsilon, delta, due) in RHO {
            let rho = rho(epsilon, delta);
            assert!((rho / due - 1.0).abs() < 1e-6, "{epsilon} {delta}: {rho}");
            // The simple conversion is weaker.
            let simple = rho + 2.0 * (rho * (1.0 / delta).ln()).sqrt();
            assert!(simple > epsilon);
        }
    }

    #[test]
    fn samples_have_the_probabilities_of_the_definition() {
        let mut prg = prg(1);
        let (sigma, count) = (2u64, 200_000);
        let mut counts = std::collections::BTreeMap::new();
        for _ in 0..count {
            *counts.entry(gaussian(&mut prg, sigma)).or_insert(0u32) += 1;
        }
        let weight = |x: i64| (-((x * x) as f64) / 8.0).exp();
        let total: f64 = (-60..=60).map(weight).sum();
        let mut square = 0.0;
        for x in -6..=6 {
            let due = weight(x) / total * f64::from(count);
            let have = f64::from(counts.get(&x).copied().unwrap_or(0));
            square += (have - due) * (have - due) / due;
        }
        // Chi-squared with 12 degrees of freedom exceeds 40 with probability below 10⁻⁴.
        assert!(square < 40.0, "{square}");
    }

    #[test]
    fn wide_samples_have_their_deviation() {
        for sigma in [1000, MAX_SIGMA] {
            let mut prg = prg(2);
            let count = 20_000;
            let mut samples = (0..count).map(|_| gaussian(&mut prg, sigma) as f64 / sigma as f64);
            let (mut sum, mut square, mut far) = (0.0, 0.0, 0);
            for sample in samples.by_ref() {
                sum += sample;
                square += sample * sample;
                far += u32::from(sample.abs() > 2.0);
            }
            let (mean, square) = (sum / f64::from(count), square / f64::from(count));
            assert!(
                mean.abs() < 0.04 && (square - 1.0).abs() < 0.05,
                "{mean} {square}"
            );
            // 4.55 % of a Gaussian is beyond two deviations.
            assert!((800..1020).contains(&far), "{far}");
        }
    }

    #[test]
    fn uniform_numbers_cover_their_range() {
        let mut prg = prg(3);
        assert_eq!(uniform(&mut prg, 1), 0);
        let mut seen = [0u32; 5];
        (0..5000).for_each(|_| seen[uniform(&mut prg, 5) as usize] += 1);
        assert!(
            seen.iter().all(|times| (850..1150).contains(times)),
            "{seen:?}"
        );
        let wide = 3 << 90;
        assert!((0..100).all(|_| uniform(&mut prg, wide) < wide));
    }
}
