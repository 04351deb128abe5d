//! The parameter classes.

use undertone_kernel::pack;

/// Columns that may be answered under one masked row, all key owners together.
pub const MAX_COLUMNS: usize = 8192;

/// Rows of all evaluators of a key owner together: R_max. The noise of openings is made for them.
pub const MAX_EVALUATED: usize = 1 << 17;

/// The deviation of secrets and of errors of keys, in quarters.
pub(crate) const KEY_QUARTERS: u64 = 19;

/// The longest row in bits.
pub const MAX_BITS: usize = CLASSES[CLASSES.len() - 1].bits;

/// Bytes of key columns that an evaluator holds at most.
const COLUMN_BYTES: usize = 256 << 20;

/// The parameters of a class: fixed numbers, which every party knows.
///
/// `docs/spec/lwe.md` gives the rules behind them. Deviations are standard deviations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Params {
    /// L, the longest code of the class in bits.
    pub bits: usize,
    /// l, the entries of a code, filled up with zeros.
    pub length: usize,
    /// t, the odd modulus of distances, L/2 + 1: a distance modulo t and its parity give the
    /// distance.
    pub t: u64,
    /// q: Q = 2^q is the modulus of keys.
    pub q: u32,
    /// n, the dimension of secrets.
    pub n: usize,
    /// The deviation of a masked row.
    pub row_deviation: u64,
    /// The deviation of the noise of headers.
    pub header_deviation: u64,
    /// The deviation of the noise of answers.
    pub answer_deviation: u64,
    /// The deviation of the noise of openings.
    pub opening_deviation: u64,
    /// h, the bits of a number of a header.
    pub h: u32,
    /// v, the bits of an answer and of an opening.
    pub v: u32,
}

/// A class: L and l; q and n; the deviations of masked rows, headers, answers and openings; h and
/// v.
const fn class(
    [bits, length]: [usize; 2],
    q: u32,
    n: usize,
    deviations: [u64; 4],
    h: u32,
    v: u32,
) -> Params {
    let [
        row_deviation,
        header_deviation,
        answer_deviation,
        opening_deviation,
    ] = deviations;
    Params {
        bits,
        length,
        t: bits as u64 / 2 + 1,
        q,
        n,
        row_deviation,
        header_deviation,
        answer_deviation,
        opening_deviation,
        h,
        v,
    }
}

/// All classes, the smallest first.
#[rustfmt::skip]
pub const CLASSES: [Params; 5] = [
    class([1024, 1280], 37, 1792, [2360, 3072, 2_665_491, 11_730_961], 24, 15),
    class([2048, 2048], 38, 1792, [4737, 128, 3_384_041, 10_887_510], 25, 15),
    class([4096, 4096], 40, 2048, [9530, 128, 7_681_452, 22_561_005], 26, 15),
    class([8192, 8192], 42, 2048, [19_179, 128, 15_457_908, 44_562_025], 28, 16),
    class([16_384, 16_384], 44, 2048, [38_597, 128, 34_652_770, 96_499_842], 29, 18),
];

impl Params {
    /// The smallest class for rows of `bits` bits. `None` when `bits` is 0 or more than 16,384.
    pub fn of(bits: usize) -> Option<&'static Self> {
        let mut classes = CLASSES.iter().filter(|_| bits > 0);
        classes.find(|class| class.bits >= bits)
    }

    /// τ, the inverse of t modulo Q.
    pub fn tau(&self) -> u64 {
        // Newton's iteration doubles the number of correct bits.
        let mut inverse = self.t;
        for _ in 0..5 {
            let rest = 2u64.wrapping_sub(self.t.wrapping_mul(inverse));
            inverse = inverse.wrapping_mul(rest);
        }
        inverse & self.mask()
    }

    /// −Q modulo t.
    pub fn minus_q(&self) -> u64 {
        self.t - (1 << self.q) % self.t
    }

    /// Q − 1.
    pub fn mask(&self) -> u64 {
        (1 << self.q) - 1
    }

    /// A number below 2t, modulo t. In constant time.
    pub(crate) fn below_t(&self, a: u64) -> u64 {
        a.min(a.wrapping_sub(self.t))
    }

    /// A number below 2²⁴, modulo t. In constant time.
    pub(crate) fn modulo_t(&self, a: u64) -> u64 {
        let quotient = (a * ((1 << 39) / self.t)) >> 39;
        self.below_t(a - quotient * self.t)
    }

    /// Bytes of the key column of a row.
    pub fn key_len(&self) -> usize {
        self.length * self.q as usize / 8
    }

    /// Bytes of the header of a row.
    pub fn header_len(&self) -> usize {
        self.n * self.h as usize / 8
    }

    /// Bytes of the answers, or of the openings, of a row of the evaluator to `columns` rows of the
    /// key owner.
    pub fn answer_len(&self, columns: usize) -> usize {
        pack::packed_len(self.v, columns)
    }

    /// Most key columns that are answered under one masked row.
    pub fn max_columns(&self) -> usize {
        MAX_COLUMNS.min(COLUMN_BYTES / (8 * self.bits))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_those_of_the_specification() {
        let inverses = [
            68_585_520_641,
            273_805_212_673,
            1_090_925_885_441,
            4_329_343_807_489,
            17_042_497_331_201,
        ];
        let residues = [511, 256, 128, 64, 32];
        for (class, (tau, minus_q)) in CLASSES.iter().zip(inverses.iter().zip(residues)) {
            assert_eq!((class.tau(), class.minus_q()), (*tau, minus_q));
            assert_eq!(class.tau().wrapping_mul(class.t) & class.mask(), 1);
            assert_eq!(class.t, class.bits as u64 / 2 + 1);
            assert!(class.length >= class.bits && class.length.is_multiple_of(256));
            assert!(class.q <= 49 && class.h <= 32 && class.v <= class.h);
            // Numbers modulo t times −Q, in `modulo_t`.
            assert!(minus_q * (class.t - 1) < 1 << 24);
        }
    }

    #[test]
    fn the_smallest_class_is_taken() {
        let class = |bits| Params::of(bits).map(|class| class.bits);
        assert_eq!(class(0), None);
        assert_eq!(class(1), Some(1024));
        assert_eq!(class(1024), Some(1024));
        assert_eq!(class(1025), Some(2048));
        assert_eq!(class(16_384), Some(16_384));
        assert_eq!(class(16_385), None);
    }

    #[test]
    fn remainders_are_right() {
        for class in &CLASSES {
            for a in (0..1 << 24).step_by(997).chain([(1 << 24) - 1]) {
                assert_eq!(class.modulo_t(a), a % class.t);
            }
            for a in 0..2 * class.t {
                assert_eq!(class.below_t(a), a % class.t);
            }
        }
    }

    /// κ(m): what smooths ℤ^m up to 2⁻⁶⁴.
    fn kappa(m: usize) -> f64 {
        let inside = 2.0 * m as f64 * (1.0 + 2f64.powi(64));
        (inside.ln() / 2.0).sqrt() / std::f64::consts::PI
    }

    /// The norm of a matrix of independent entries of deviation 1.
    fn norm(rows: usize, columns: usize) -> f64 {
        (rows as f64).sqrt() + (columns as f64).sqrt() + 10.0
    }

    /// What a discrete Gaussian's norm is wider than a continuous one's.
    fn wider(deviation: f64) -> f64 {
        (1.0 + 1.44 / (deviation * deviation)).sqrt()
    }

    /// The rules behind the deviations, in floating point: *Parameters* of the specification.
    #[test]
    fn deviations_follow_their_rules() {
        let near = |given: u64, due: f64| {
            assert!(
                given as f64 >= due && given as f64 <= due * 1.0001 + 1.0,
                "{given}, {due}"
            );
        };
        for class in &CLASSES {
            let (l, n, t) = (class.length, class.n, class.t as f64);
            let columns = class.max_columns();
            let key = KEY_QUARTERS as f64 / 4.0;
            let [row, header] = [class.row_deviation, class.header_deviation].map(|d| d as f64);
            near(class.row_deviation, 8f64.sqrt() * kappa(l) * t);
            assert!(key >= 8f64.sqrt() * kappa(l + n));
            let of_keys = (row * norm(l, columns)).hypot(header * norm(n, columns));
            near(class.answer_deviation, key * wider(key) * of_keys);
            // The deviation of what rounding takes off a header.
            let cut = 2f64.powi((class.q - class.h) as i32) / 12f64.sqrt();
            let of_rows = wider(row / t) * row * norm(l, MAX_EVALUATED);
            let rounded = (wider(header) * header + cut) * norm(n, MAX_EVALUATED);
            let mean = ((n * MAX_EVALUATED) as f64).sqrt() / 2.0;
            near(class.opening_deviation, key * of_rows.hypot(rounded + mean));
        }
    }

    /// The noise of a distance, against the most that still gives the distance: the table of the
    /// specification. It takes the largest norms of a key.
    #[test]
    fn noise_stays_far_below_its_limit() {
        let margins = [10.98, 11.18, 9.67, 9.69, 9.82];
        for (class, due) in CLASSES.iter().zip(margins) {
            let key = KEY_QUARTERS as f64 / 4.0;
            // Of the error, and of the secret.
            let [error, secret] = [class.length, class.n]
                .map(|count| key * wider(key) * ((count as f64).sqrt() + 10.0));
            let cut = |bits: u32| 2f64.powi((class.q - bits) as i32) / 12f64.sqrt();
            let terms = [
                class.row_deviation as f64 * error,
                class.header_deviation as f64 * secret,
                cut(class.h) * secret,
                class.answer_deviation as f64,
                class.opening_deviation as f64,
                cut(class.v),
                cut(class.v),
            ];
            let noise = terms.iter().fold(0f64, |sum, term| sum.hypot(*term));
            let limit = 2f64.powi(class.q as i32) / (2.0 * class.t as f64);
            let margin = limit / noise;
            assert!((margin - due).abs() < 0.0051, "{class:?}: {margin}");
        }
    }
}
