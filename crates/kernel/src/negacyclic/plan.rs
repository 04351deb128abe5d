//! The two primes, their tables, and the portable transforms.

use std::sync::OnceLock;

use super::{BLOCK, DEGREE, Eight, LANES, MASK, quarters};

/// The two largest primes below 2⁵⁰ that are 1 modulo 512.
pub(super) const PRIMES: [u64; 2] = [1_125_899_906_826_241, 1_125_899_906_822_657];

/// Roots of unity of order 512 modulo the primes.
const ROOTS: [u64; 2] = [793_218_081_992_636, 1_067_900_756_849_591];

/// A factor modulo p with its quotient `⌊factor·2⁵²/p⌋`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(super) struct Factor {
    pub(super) value: u64,
    pub(super) quotient: u64,
}

/// Tables for a prime.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) p: u64,
    /// Powers of the root in bit-reversed order.
    pub(super) powers: [Factor; DEGREE],
    /// Powers of its inverse in bit-reversed order.
    pub(super) inverses: [Factor; DEGREE],
    /// The inverse of 256.
    pub(super) shrink: Factor,
    /// 1, 2⁵² and 2¹⁰⁴.
    pub(super) carries: [Factor; 3],
}

impl Factor {
    fn new(value: u64, p: u64) -> Self {
        let quotient = (u128::from(value) << 52) / u128::from(p);
        Self {
            value,
            quotient: quotient as u64,
        }
    }

    /// A number below 2⁵² times the factor, below 2p.
    #[inline(always)]
    fn times(self, a: u64, p: u64) -> u64 {
        let quotient = high(a, self.quotient);
        a.wrapping_mul(self.value)
            .wrapping_sub(quotient.wrapping_mul(p))
            & MASK
    }
}

/// The high 52 bits of a product of numbers of 52 bits: where the second does not change, one
/// multiplication gives them.
#[inline(always)]
fn high(a: u64, b: u64) -> u64 {
    ((u128::from(a) * u128::from(b << 12)) >> 64) as u64
}

impl Plan {
    pub(super) fn both() -> [&'static Self; 2] {
        static PLANS: OnceLock<[Plan; 2]> = OnceLock::new();
        PLANS
            .get_or_init(|| {
                [
                    Self::new(PRIMES[0], ROOTS[0]),
                    Self::new(PRIMES[1], ROOTS[1]),
                ]
            })
            .each_ref()
    }

    fn new(p: u64, root: u64) -> Self {
        let factor = |value| Factor::new(value, p);
        let inverse = power(root, 511, p);
        let reversed = |root: u64| {
            std::array::from_fn(|at| factor(power(root, u64::from((at as u8).reverse_bits()), p)))
        };
        Self {
            p,
            powers: reversed(root),
            inverses: reversed(inverse),
            shrink: factor(power(DEGREE as u64, p - 2, p)),
            carries: [0, 52, 104].map(|bits| factor(power(2, bits, p))),
        }
    }

    /// A number below 4p, modulo p.
    pub(super) fn reduce(&self, a: u64) -> u64 {
        let a = a.min(a.wrapping_sub(2 * self.p));
        a.min(a.wrapping_sub(self.p))
    }

    /// A step of the transform.
    #[inline(always)]
    fn split(&self, x: &mut u64, y: &mut u64, factor: Factor) {
        let p2 = 2 * self.p;
        let a = (*x).min(x.wrapping_sub(p2));
        let b = factor.times(*y, self.p);
        (*x, *y) = (a + b, a + p2 - b);
    }

    /// A step of the inverse transform.
    #[inline(always)]
    fn merge(&self, x: &mut u64, y: &mut u64, factor: Factor) {
        let p2 = 2 * self.p;
        let (sum, difference) = (*x + *y, *x + p2 - *y);
        *x = sum.min(sum.wrapping_sub(p2));
        *y = factor.times(difference, self.p);
    }

    /// Two steps at a time stay in registers.
    pub(super) fn forward(&self, a: &mut [Eight]) {
        let mut size = DEGREE;
        while size > 1 {
            let groups = DEGREE / size;
            for (group, a) in a.chunks_exact_mut(size).enumerate() {
                let outer = self.powers[groups + group];
                let inner = [0, 1].map(|i| self.powers[2 * (groups + group) + i]);
                fours(a, |[x0, x1, x2, x3]| {
                    self.split(x0, x2, outer);
                    self.split(x1, x3, outer);
                    self.split(x0, x1, inner[0]);
                    self.split(x2, x3, inner[1]);
                });
            }
            size /= 4;
        }
    }

    /// Two steps at a time stay in registers.
    pub(super) fn inverse(&self, a: &mut [Eight]) {
        let mut size = 4;
        while size <= DEGREE {
            let groups = DEGREE / size;
            for (group, a) in a.chunks_exact_mut(size).enumerate() {
                let outer = self.inverses[groups + group];
                let inner = [0, 1].map(|i| self.inverses[2 * (groups + group) + i]);
                fours(a, |[x0, x1, x2, x3]| {
                    self.merge(x0, x1, inner[0]);
                    self.merge(x2, x3, inner[1]);
                    self.merge(x0, x2, outer);
                    self.merge(x1, x3, outer);
                });
            }
            size *= 4;
        }
        for a in a {
            a.0 = a.0.map(|a| {
                let a = self.shrink.times(a, self.p);
                a.min(a.wrapping_sub(self.p))
            });
        }
    }

    pub(super) fn multiply(&self, hat: &[u64], x: &[Eight], out: [&mut Eight; BLOCK]) {
        for (at, out) in out.into_iter().enumerate() {
            // Below 2⁶·2⁵⁰·2⁵².
            let mut sums = [0u128; LANES];
            for (hat, x) in hat.chunks_exact(BLOCK).zip(x.chunks_exact(BLOCK)) {
                for (sum, x) in sums.iter_mut().zip(x[at].0) {
                    *sum += u128::from(hat[at]) * u128::from(x);
                }
            }
            out.0 = sums.map(|sum| self.carry(sum));
        }
    }

    /// A number below 2¹⁰⁸ modulo p, below 2p.
    fn carry(&self, sum: u128) -> u64 {
        let high = (sum >> 52) as u64;
        let parts = [sum as u64 & MASK, high & MASK, high >> 52];
        let parts = parts.iter().zip(self.carries);
        let sum: u64 = parts
            .map(|(part, factor)| factor.times(*part, self.p))
            .sum();
        let sum = sum.min(sum.wrapping_sub(4 * self.p));
        sum.min(sum.wrapping_sub(2 * self.p))
    }
}

/// Calls `step` with the numbers at a place of the four quarters of `a`, for all places and lanes.
#[inline(always)]
fn fours(a: &mut [Eight], step: impl Fn([&mut u64; 4])) {
    let [first, second, third, fourth] = quarters(a);
    let low = first.iter_mut().zip(second);
    for ((a0, a1), (a2, a3)) in low.zip(third.iter_mut().zip(fourth)) {
        for lane in 0..LANES {
            step([
                &mut a0.0[lane],
                &mut a1.0[lane],
                &mut a2.0[lane],
                &mut a3.0[lane],
            ]);
        }
    }
}

fn power(base: u64, mut exponent: u64, p: u64) -> u64 {
    let (mut base, mut out) = (u128::from(base), 1);
    while exponent > 0 {
        if exponent & 1 == 1 {
            out = out * base % u128::from(p);
        }
        base = base * base % u128::from(p);
        exponent >>= 1;
    }
    out as u64
}

/// What joins the residues modulo both primes.
#[derive(Debug)]
pub(super) struct Join {
    /// The first prime, and the second, which is smaller.
    pub(super) primes: [u64; 2],
    /// The inverse of the first prime modulo the second.
    pub(super) inverse: Factor,
}

impl Join {
    pub(super) fn new() -> &'static Self {
        static JOIN: OnceLock<Join> = OnceLock::new();
        JOIN.get_or_init(|| {
            let value = power(PRIMES[0] % PRIMES[1], PRIMES[1] - 2, PRIMES[1]);
            Self {
                primes: PRIMES,
                inverse: Factor::new(value, PRIMES[1]),
            }
        })
    }

    /// The numbers between −½P₁P₂ and ½P₁P₂ with these residues, modulo 2⁵².
    pub(super) fn join(&self, first: &[Eight], second: &[Eight], out: &mut [Eight]) {
        let [one, two] = self.primes;
        let whole = one.wrapping_mul(two);
        for ((first, second), out) in first.iter().zip(second).zip(out) {
            let pairs = first.0.iter().zip(second.0);
            for ((a, b), out) in pairs.zip(&mut out.0) {
                // Below 3p < 2⁵².
                let digit = self.inverse.times(b + 2 * two - a, two);
                let digit = digit.min(digit.wrapping_sub(two));
                let negative = (two / 2).wrapping_sub(digit) as i64 >> 63;
                let value = a.wrapping_add(one.wrapping_mul(digit));
                *out = value.wrapping_sub(whole & negative as u64) & MASK;
            }
        }
    }
}
