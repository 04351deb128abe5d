//! The tables of cumulative probabilities, computed with integers.
//!
//! A threshold is the floor of 2¹²⁸ times a cumulative probability. `vectors/checks/lwe` computes
//! all of them again.

use std::sync::OnceLock;

use num_bigint::BigUint;
use undertone_kernel::cdt::{THRESHOLDS, Tables};
use undertone_kernel::gaussian::Scale;

use crate::params::{CLASSES, KEY_QUARTERS, Params};

/// Bits after the point.
const PRECISION: u64 = 384;

/// Largest w′ of a masked row.
pub(crate) const MAX_STEP: i64 = THRESHOLDS as i64 / 2;

/// Thresholds of the table of a rounded-down half Gaussian.
const HALF: usize = 63;

/// `⌊2^PRECISION·exp(−numerator/denominator)⌋`, short by less than `2^(PRECISION − 300)`.
fn exp(numerator: &BigUint, denominator: &BigUint) -> BigUint {
    let one = BigUint::from(1u32) << PRECISION;
    // e^−x = (e^(−x/2^16))^(2^16), where x < 2^11.
    let x = ((numerator << PRECISION) / denominator) >> 16;
    let (mut sum, mut term, mut negative) = (one.clone(), one, false);
    for k in 1u32.. {
        term = ((term * &x) >> PRECISION) / k;
        if term == BigUint::ZERO {
            break;
        }
        negative = !negative;
        if negative {
            sum -= &term;
        } else {
            sum += &term;
        }
    }
    for _ in 0..16 {
        sum = (&sum * &sum) >> PRECISION;
    }
    sum
}

/// `⌊2^bits·ln 2⌋`.
fn ln2(bits: u64) -> BigUint {
    let guarded = bits + 64;
    let terms = (1..=guarded).map(|k| (BigUint::from(1u32) << (guarded - k)) / k);
    terms.sum::<BigUint>() >> 64
}

/// The thresholds of the distribution with these weights: all cumulative sums but the last.
fn thresholds(weights: &[BigUint]) -> Vec<u128> {
    let total: BigUint = weights.iter().sum();
    let mut sum = BigUint::ZERO;
    let mut out = Vec::with_capacity(weights.len() - 1);
    for weight in &weights[..weights.len() - 1] {
        sum += weight;
        let shifted: BigUint = &sum << 128u32;
        // A threshold of 2¹²⁸ would never be reached.
        out.push(u128::try_from(shifted / &total).unwrap_or(u128::MAX));
    }
    out
}

/// How candidates of a wide Gaussian of `deviation` are made and accepted, for centres that are
/// multiples of 1/`t`. σ/K is from 2 to 4.
pub fn scale(deviation: u64, t: u64) -> Scale {
    // log₂ e = 1/ln 2, with 256 bits after the point.
    let log2_e = (BigUint::from(1u32) << 512) / ln2(256);
    let double = BigUint::from(2 * (t * deviation)) * (t * deviation);
    let shift = 63 + double.bits() as u32 - 1;
    let scaled = |shift: u32| -> BigUint { ((&log2_e << shift) / &double) >> 256u32 };
    let shift = match scaled(shift).bits() {
        64 => shift,
        65 => shift - 1,
        _ => shift + 1,
    };
    let factor = u64::try_from(scaled(shift)).unwrap_or_else(|_| unreachable!("64 bits"));
    Scale {
        t,
        log_k: deviation.ilog2() - 1,
        factor,
        shift,
    }
}

/// A discrete Gaussian of a large deviation.
#[derive(Debug)]
pub(crate) struct Wide {
    /// The half Gaussian of deviation σ/K.
    pub(crate) table: Tables,
    pub(crate) scale: Scale,
}

impl Wide {
    /// For deviation `deviation`, and centres that are multiples of 1/`t`.
    pub(crate) fn new(deviation: u64, t: u64) -> Self {
        let table = half_thresholds(deviation);
        Self {
            table: Tables::new([&table, &table]),
            scale: scale(deviation, t),
        }
    }
}

/// The thresholds of the half Gaussian of deviation σ/K.
pub fn half_thresholds(deviation: u64) -> Vec<u128> {
    let square = BigUint::from(deviation) * deviation * 2u32;
    let k = 1u64 << (deviation.ilog2() - 1);
    let weights: Vec<BigUint> = (0..=HALF as u64)
        .map(|y| exp(&(BigUint::from(y * k) * (y * k)), &square))
        .collect();
    thresholds(&weights)
}

/// The thresholds of the numbers u from −64 to 64 with weights `exp(−c(u)²·numerator/denominator)`.
fn signed_thresholds(centred: impl Fn(i64) -> i64, numerator: u64, denominator: u64) -> Vec<u128> {
    let weight = |step: i64| {
        let value = centred(step).unsigned_abs();
        let square = BigUint::from(value) * value * numerator;
        exp(&square, &BigUint::from(denominator))
    };
    thresholds(&(-MAX_STEP..=MAX_STEP).map(weight).collect::<Vec<_>>())
}

/// The thresholds of w′ for a bit `x`, from −64 on.
pub fn coset_thresholds(params: &Params, x: u8) -> Vec<u128> {
    let centred = |step| step * params.t as i64 + i64::from(x);
    signed_thresholds(centred, 1, 2 * params.row_deviation * params.row_deviation)
}

/// The thresholds of a number of a secret, from −64 on.
pub fn secret_thresholds() -> Vec<u128> {
    // 1/(2·(19/4)²) = 8/19².
    signed_thresholds(|step| step, 8, KEY_QUARTERS * KEY_QUARTERS)
}

/// The thresholds of the error of a key where the bit of the row is `y`, from −64 on. Its centre is
/// 2y/t, so that `t·e − 2y` has mean 0.
pub fn error_thresholds(params: &Params, y: u8) -> Vec<u128> {
    let centred = |step| step * params.t as i64 - 2 * i64::from(y);
    let deviation = KEY_QUARTERS * params.t;
    signed_thresholds(centred, 8, deviation * deviation)
}

/// All tables of a class.
#[derive(Debug)]
pub(crate) struct Samplers {
    /// A number of a secret.
    pub(crate) secret: Tables,
    /// A number of an error of a key, for both values of a bit.
    pub(crate) error: Tables,
    /// w′, for both values of a bit.
    pub(crate) coset: Tables,
    /// The noise of headers.
    pub(crate) header: Wide,
    /// The noise of answers.
    pub(crate) answer: Wide,
    /// The noise of openings.
    pub(crate) opening: Wide,
}

impl Samplers {
    /// The tables of `params`, which is one of [`CLASSES`].
    pub(crate) fn of(params: &Params) -> &'static Self {
        static SAMPLERS: [OnceLock<Samplers>; CLASSES.len()] =
            [const { OnceLock::new() }; CLASSES.len()];
        let place = CLASSES.iter().position(|class| class.bits >= params.bits);
        SAMPLERS[place.unwrap_or(CLASSES.len() - 1)].get_or_init(|| {
            let secret = secret_thresholds();
            let errors = [0, 1].map(|y| error_thresholds(params, y));
            let rows = [0, 1].map(|x| coset_thresholds(params, x));
            Self {
                secret: Tables::new([&secret, &secret]),
                error: Tables::new(errors.each_ref().map(Vec::as_slice)),
                coset: Tables::new(rows.each_ref().map(Vec::as_slice)),
                header: Wide::new(params.header_deviation, 1),
                answer: Wide::new(params.answer_deviation, params.t),
                opening: Wide::new(params.opening_deviation, params.t),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constants_are_right() {
        // ⌊2⁶⁴·ln 2⌋
        assert_eq!(ln2(64), BigUint::from(12_786_308_645_202_655_659u64));
        let e = exp(&BigUint::from(1u32), &BigUint::from(1u32)) >> (PRECISION - 64);
        // ⌊2⁶⁴/e⌋
        assert_eq!(e, BigUint::from(6_786_177_901_268_885_274u64));
    }

    /// `Σ value·P(value)` for the numbers from −64 on, times 2¹²⁸, from the table itself.
    fn mean(thresholds: &[u128], value: impl Fn(i64) -> i64) -> BigUint {
        assert_eq!(thresholds.len(), THRESHOLDS);
        let mut last = 0u128;
        // Positive and negative parts apart.
        let mut sums = [BigUint::ZERO, BigUint::ZERO];
        let ends = thresholds.iter().copied().chain([u128::MAX]);
        for (step, end) in (-MAX_STEP..).zip(ends) {
            let value = value(step);
            let weight = BigUint::from(end - last) * value.unsigned_abs();
            sums[usize::from(value < 0)] += weight;
            last = end;
        }
        let [above, below] = sums;
        if above > below {
            above - below
        } else {
            below - above
        }
    }

    /// A masked row, an error without the code, and a secret have mean zero for both values of a
    /// bit.
    #[test]
    fn means_are_zero() {
        for params in &CLASSES {
            let t = params.t as i64;
            for bit in [0u8, 1] {
                // Each of 129 probabilities is off by less than 2⁻¹²⁸.
                let most = BigUint::from(129 * 65 * params.t);
                let x = i64::from(bit);
                let row = coset_thresholds(params, bit);
                assert!(mean(&row, |u| t * u + x) < most, "{params:?}, {x}");
                let error = error_thresholds(params, bit);
                assert!(mean(&error, |u| t * u - 2 * x) < most, "{params:?}, {x}");
                // With the centre of the other sign they have not.
                if bit == 1 {
                    assert!(mean(&row, |u| t * u - x) > most);
                    assert!(mean(&error, |u| t * u + 2 * x) > most);
                }
            }
        }
        assert!(mean(&secret_thresholds(), |u| u) < BigUint::from(129u32 * 65));
    }

    #[test]
    fn factors_have_64_bits() {
        for params in &CLASSES {
            let samplers = Samplers::of(params);
            for (wide, deviation) in [
                (&samplers.header, params.header_deviation as f64),
                (
                    &samplers.answer,
                    (params.answer_deviation * params.t) as f64,
                ),
                (
                    &samplers.opening,
                    (params.opening_deviation * params.t) as f64,
                ),
            ] {
                let factor = std::f64::consts::LOG2_E / (2.0 * deviation * deviation);
                let Scale {
                    factor: found,
                    shift,
                    ..
                } = wide.scale;
                assert!(found >> 63 == 1 && shift >= 64);
                let found = found as f64 / 2f64.powi(shift as i32);
                assert!((found / factor - 1.0).abs() < 1e-14);
            }
        }
    }
}
