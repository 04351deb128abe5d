//! The parameter classes.

/// Columns that may be answered under one masked row, all key owners together.
pub const MAX_COLUMNS: usize = 8192;

/// The longest row in bits.
pub const MAX_BITS: usize = CLASSES[CLASSES.len() - 1].bits;

/// Bytes of key columns that an evaluator holds at most.
const COLUMN_BYTES: usize = 256 << 20;

/// The parameters of a class: fixed numbers, which every party knows.
///
/// `docs/spec/lwe.md` gives the rules behind them. Deviations are standard deviations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Params {
    /// L, the length of a row in bits. Shorter rows are filled up with zeros.
    pub bits: usize,
    /// t, the odd modulus of masked distances, L/2 + 1: a distance modulo t and its parity give the
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
    /// h, the bits of a number of a header.
    pub h: u32,
    /// v, the bits of an answer.
    pub v: u32,
}

const fn class(bits: usize, q: u32, n: usize, deviations: [u64; 3], h: u32, v: u32) -> Params {
    let [row_deviation, header_deviation, answer_deviation] = deviations;
    Params {
        bits,
        t: bits as u64 / 2 + 1,
        q,
        n,
        row_deviation,
        header_deviation,
        answer_deviation,
        h,
        v,
    }
}

/// All classes, the smallest first.
pub const CLASSES: [Params; 5] = [
    class(1024, 32, 1792, [2355, 2048, 397_056], 20, 16),
    class(2048, 34, 1792, [4737, 128, 728_576], 21, 16),
    class(4096, 36, 1792, [9530, 128, 1_621_760], 22, 16),
    class(8192, 39, 2048, [19_179, 128, 3_740_416], 23, 16),
    class(16_384, 41, 2048, [38_597, 128, 8_929_024], 24, 17),
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

    /// Bits of a number modulo t.
    pub fn width(&self) -> u32 {
        u64::BITS - self.t.leading_zeros()
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
        self.bits * self.q as usize / 8
    }

    /// Bytes of the header of a row.
    pub fn header_len(&self) -> usize {
        self.n * self.h as usize / 8
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
            4_161_011_201,
            16_107_174_913,
            60_133_734_401,
            481_053_110_273,
            1_649_334_542_337,
        ];
        for (class, (tau, minus_q)) in CLASSES.iter().zip(inverses.iter().zip([32, 16, 8, 8, 4])) {
            assert_eq!((class.tau(), class.minus_q()), (*tau, minus_q));
            assert_eq!(class.tau().wrapping_mul(class.t) & class.mask(), 1);
            assert_eq!(class.t, class.bits as u64 / 2 + 1);
            assert_eq!(class.width(), class.bits.ilog2());
            assert!(class.q <= 41);
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

    /// The rules behind the deviations, in floating point.
    #[test]
    fn deviations_follow_their_rules() {
        for class in &CLASSES {
            let (l, n, columns) = (class.bits as f64, class.n as f64, MAX_COLUMNS as f64);
            let t = class.t as f64;
            let pi = std::f64::consts::PI;
            let kappa = ((2.0 * l * (1.0 + 2f64.powi(64))).ln() / (2.0 * pi * pi)).sqrt();
            assert_eq!(class.row_deviation, (8f64.sqrt() * kappa * t).ceil() as u64);
            let keys = l.sqrt() + columns.sqrt() + 10.0 + 2.0 / t * (l * columns).sqrt();
            let secrets = 0.5f64.sqrt() * (n.sqrt() + columns.sqrt() + 10.0);
            let hint =
                (class.row_deviation as f64 * keys).hypot(class.header_deviation as f64 * secrets);
            assert!(class.answer_deviation as f64 >= hint, "{class:?}: {hint}");
            assert!(
                (class.answer_deviation as f64) < 1.001 * hint,
                "{class:?}: {hint}"
            );
        }
    }
}
