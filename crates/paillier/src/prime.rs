//! Primes p for which the factors of p − 1 are known. Eight candidates are tested at once.
//!
//! p = 2·k·r + 1 with r prime and k odd, below 2^16 (k = 1 for a safe prime). The factors of p − 1
//! tell a generator of the whole group modulo p from other residues, and powers of a generator are
//! uniform. r is nearly as long as p, so p − 1 has no other large factor that would help an
//! attacker factor N.
//!
//! None of this takes constant time. The owner does it once for a key.

use undertone_kernel::mont::{LANES, Modulus, Number, Ring, Row, number, power};
use undertone_kernel::{Cpu, Prg};
use zeroize::Zeroizing;

use super::natural::Natural;

/// Bits of k.
const COFACTOR_BITS: u32 = 16;

/// Number of candidates that are sieved together, and the bound of the primes that sieve them.
const SIEVED: u64 = 1 << 12;
const SIEVE: u64 = 1 << 13;

/// Eights of random bases that a prime is tested with. A composite passes with probability at most
/// 4^−64.
const EIGHTS: usize = 8;

/// The kind of primes of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Primes {
    /// p = 2·k·r + 1 with a prime r and an odd k below 2^16.
    #[default]
    Structured,
    /// p = 2·r + 1 with a prime r, as some protocols require. They take several times as long to
    /// find.
    Safe,
}

/// A prime p, and the prime factors of p − 1.
#[derive(Clone)]
pub(super) struct Prime {
    pub(super) value: Natural,
    /// The largest prime factor r of p − 1.
    large: Natural,
    /// The other prime factors, and (p − 1) / r.
    small: Vec<u64>,
    rest: u64,
}

impl std::fmt::Debug for Prime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Prime(..)")
    }
}

impl Prime {
    /// A random prime of `bits` bits, with the two highest bits set.
    pub(super) fn random(bits: usize, kind: Primes, rng: &mut Prg) -> Self {
        let cofactor_bits = match kind {
            Primes::Structured => COFACTOR_BITS as usize,
            Primes::Safe => 0,
        };
        loop {
            let found = match kind {
                Primes::Safe => {
                    let start = Natural::random_odd(bits - 1, rng);
                    let step = Natural::from_bytes(&[2]);
                    search(&start, &step, SIEVED, true, rng).map(|r| (r.times(2, 1), r))
                }
                Primes::Structured => {
                    let r = Self::large(bits - cofactor_bits - 1, rng);
                    let first = (7 << (COFACTOR_BITS - 3)) + 1 + 2 * (rng.next_u64() >> 54);
                    let start = r.times(2 * first, 1);
                    let tries = ((1 << COFACTOR_BITS) - first) / 2;
                    search(&start, &r.times(4, 0), tries.min(SIEVED), false, rng).map(|p| (p, r))
                }
            };
            if let Some((value, large)) = found
                && value.bits() == bits
                && value.bit(bits - 2)
                && let Some(prime) = Self::with(&value, large)
            {
                return prime;
            }
        }
    }

    fn large(bits: usize, rng: &mut Prg) -> Natural {
        let step = Natural::from_bytes(&[2]);
        loop {
            let start = Natural::random_odd(bits, rng);
            if let Some(r) = search(&start, &step, SIEVED, false, rng) {
                return r;
            }
        }
    }

    /// The prime `value`, if its p − 1 is `large` times primes below 2^16.
    fn with(value: &Natural, large: Natural) -> Option<Self> {
        let mut rest = value.less_one();
        let mut small = Vec::new();
        let mut product = 1u64;
        for prime in small_primes() {
            while rest.modulo(prime) == 0 && rest.bits() > large.bits() {
                rest = rest.divided_by(prime).0;
                product *= prime;
                small.push(prime);
            }
        }
        small.dedup();
        let same = rest.minus(&large).0.bits() == 0;
        same.then(|| Self {
            value: value.trimmed(),
            large: large.trimmed(),
            small,
            rest: product,
        })
    }

    /// The structure of a prime from elsewhere, if it has this one: p − 1 without its factors below
    /// 2^16 is a prime.
    pub(super) fn of(value: &Natural, rng: &mut Prg) -> Option<Self> {
        let mut large = value.less_one();
        let mut removed = 0;
        for prime in small_primes() {
            while large.modulo(prime) == 0 {
                large = large.divided_by(prime).0;
                removed += prime.ilog2();
                if removed > 2 * COFACTOR_BITS {
                    return None;
                }
            }
        }
        is_prime(&large, rng)
            .then(|| Self::with(value, large))
            .flatten()
    }

    /// A generator of the group modulo p, not in Montgomery form.
    pub(super) fn generator(&self, rng: &mut Prg) -> Natural {
        let rows = Modulus::rows_for(self.value.bits());
        let modulus = modulus(&vec![self.value.clone(); LANES]);
        // (p − 1)/f for every prime factor f.
        let mut exponents = vec![Natural::from_bytes(&self.rest.to_le_bytes())];
        let parts = self
            .small
            .iter()
            .map(|f| self.large.times(self.rest / f, 0));
        exponents.extend(parts);
        let one = modulus.one();
        loop {
            let candidate = self.value.random_below(rng);
            let base = modulus.enter(&candidate.splat(rows));
            let generates = exponents.chunks(LANES).all(|some| {
                let exponent = lanes(some, rows + 1);
                let mut out = power(&modulus, &base, &exponent);
                modulus.settle(&mut out);
                let nonzero = number::differs(&base, &vec![Row::ZERO; rows]);
                let differs = number::differs(&out, &one);
                (0..some.len()).all(|lane| differs.0[lane] & nonzero.0[lane] == 1)
            });
            if generates {
                return candidate;
            }
        }
    }
}

/// The first prime among `start + i·step`, i < count. With `safe`, the first prime x for which 2x +
/// 1 is prime, too.
fn search(
    start: &Natural,
    step: &Natural,
    count: u64,
    safe: bool,
    rng: &mut Prg,
) -> Option<Natural> {
    let mut left = Vec::new();
    let mut at = start.clone();
    for composite in sieve(start, step, count, safe) {
        if !composite {
            left.push(at.clone());
        }
        at = at.plus(step);
    }
    for some in left.chunks(LANES) {
        let passed = passes(some);
        let likely = some.iter().zip(passed).filter(|(_, passed)| *passed);
        let mut likely: Vec<Natural> = likely.map(|(x, _)| x.clone()).collect();
        if safe && !likely.is_empty() {
            let twice: Vec<Natural> = likely.iter().map(|x| x.times(2, 1)).collect();
            let mut passed = passes(&twice).into_iter();
            likely.retain(|_| passed.next().unwrap_or(false));
        }
        for x in likely {
            if is_prime(&x, rng) && (!safe || is_prime(&x.times(2, 1), rng)) {
                return Some(x);
            }
        }
    }
    None
}

/// Which of `start + i·step` have a small factor; with `safe`, also those x for which 2x + 1 has
/// one.
fn sieve(start: &Natural, step: &Natural, count: u64, safe: bool) -> Vec<bool> {
    let mut composite = vec![false; count as usize];
    for prime in small_primes().skip(1).take_while(|prime| *prime < SIEVE) {
        let (first, step) = (start.modulo(prime), step.modulo(prime));
        if step == 0 {
            continue;
        }
        let (mut inverse, mut power, mut left) = (1, step, prime - 2);
        while left > 0 {
            if left & 1 == 1 {
                inverse = inverse * power % prime;
            }
            power = power * power % prime;
            left >>= 1;
        }
        let bad = [Some(0), safe.then_some((prime - 1) / 2)];
        for bad in bad.into_iter().flatten() {
            let at = (bad + prime - first) * inverse % prime;
            let hits = (at..count).step_by(prime as usize);
            hits.for_each(|i| composite[i as usize] = true);
        }
    }
    composite
}

/// The primes below 2^16, which may divide k.
pub(super) fn small_primes() -> impl Iterator<Item = u64> {
    let top = 1 << COFACTOR_BITS;
    let mut composite = vec![false; top];
    (2..top).filter_map(move |n| {
        if composite[n] {
            return None;
        }
        (n * n..top).step_by(n).for_each(|i| composite[i] = true);
        Some(n as u64)
    })
}

/// Whether an odd number is prime.
pub(super) fn is_prime(value: &Natural, rng: &mut Prg) -> bool {
    if !value.is_odd() || value.bits() < 32 {
        return false;
    }
    let all = vec![value.clone(); LANES];
    (0..EIGHTS).all(|_| {
        let bases: Vec<Natural> = (0..LANES).map(|_| value.random_below(rng)).collect();
        strong(&all, &bases).into_iter().all(|passed| passed)
    })
}

/// Which of up to eight odd numbers are strong probable primes to base 2.
fn passes(values: &[Natural]) -> Vec<bool> {
    let mut out = strong(values, &vec![Natural::from_bytes(&[2]); LANES]);
    out.truncate(values.len());
    out
}

/// Which of up to eight odd numbers are strong probable primes, each to its own base. A base of 0
/// says nothing, and the number passes.
fn strong(values: &[Natural], bases: &[Natural]) -> Vec<bool> {
    let mut all = values.to_vec();
    all.resize(LANES, values[0].clone());
    let modulus = modulus(&all);
    let rows = modulus.rows();
    let mut halvings = Vec::new();
    let odd: Vec<Natural> = all
        .iter()
        .map(|value| {
            let mut odd = value.less_one();
            halvings.push(0);
            while !odd.is_odd() {
                odd = odd.divided_by(2).0;
                *halvings.last_mut().unwrap_or(&mut 0) += 1;
            }
            odd
        })
        .collect();
    let base = modulus.enter(&lanes(bases, rows));
    let mut x = power(&modulus, &base, &lanes(&odd, rows));
    let one = modulus.one();
    let mut minus_one = one.clone();
    modulus.negate(&mut minus_one);
    let says_nothing = number::differs(&base, &vec![Row::ZERO; rows]).0;
    let mut out: Vec<bool> = says_nothing.iter().map(|differs| *differs == 0).collect();
    let mut next = x.clone();
    for turn in 0..halvings.iter().copied().max().unwrap_or(0) {
        modulus.settle(&mut x);
        let is_one = number::differs(&x, &one).0.map(|differs| differs == 0);
        let is_minus_one = number::differs(&x, &minus_one)
            .0
            .map(|differs| differs == 0);
        for lane in 0..LANES {
            out[lane] |= turn == 0 && is_one[lane] || turn < halvings[lane] && is_minus_one[lane];
        }
        modulus.square(&x, &mut next);
        std::mem::swap(&mut x, &mut next);
    }
    out
}

fn modulus(values: &[Natural]) -> Modulus {
    let bits = values.iter().map(Natural::bits).max().unwrap_or(0);
    let rows = lanes(values, Modulus::rows_for(bits));
    Modulus::new(Cpu::detect(), bits, &rows)
}

/// Up to eight numbers, one in each lane.
fn lanes(values: &[Natural], rows: usize) -> Number {
    let mut out = Zeroizing::new(vec![Row::ZERO; rows]);
    let all = values.iter().enumerate();
    all.for_each(|(lane, value)| value.set(&mut out, lane));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn natural(x: u128) -> Natural {
        Natural::from_bytes(&x.to_le_bytes())
    }

    #[test]
    fn knows_primes() {
        let mut rng = Prg::new(&[1; 32]);
        let mersenne = |bits: u32| (1u128 << bits) - 1;
        for prime in [mersenne(61), mersenne(89), mersenne(107), mersenne(127)] {
            assert!(is_prime(&natural(prime), &mut rng));
        }
        // The last two are strong pseudoprimes to base 2, the last one to all bases up to 37.
        let composites = [
            mersenne(67),
            mersenne(61) * 3,
            (1 << 64) + 1,
            4_335_207_361,
            3_825_123_056_546_413_051,
            318_665_857_834_031_151_167_461,
        ];
        for composite in composites {
            assert!(!is_prime(&natural(composite), &mut rng), "{composite}");
        }
    }

    #[test]
    fn primes_have_their_structure_and_generators_their_order() {
        let mut rng = Prg::new(&[2; 32]);
        for kind in [Primes::Structured, Primes::Safe] {
            let prime = Prime::random(128, kind, &mut rng);
            assert!(prime.value.bits() == 128 && prime.value.bit(126));
            assert!(is_prime(&prime.value, &mut rng) && is_prime(&prime.large, &mut rng));
            if kind == Primes::Safe {
                assert_eq!(prime.rest, 2);
            }
            let again = Prime::of(&prime.value, &mut rng).unwrap();
            assert!(again.large.minus(&prime.large).0.bits() == 0 && again.rest == prime.rest);
            let p = u128::from_le_bytes(prime.value.bytes()[..16].try_into().unwrap());
            let g = prime.generator(&mut rng);
            let g = num_bigint::BigUint::from_bytes_le(&g.bytes());
            let p = num_bigint::BigUint::from(p);
            for factor in &prime.small {
                let exponent = (&p - 1u8) / factor;
                assert_ne!(g.modpow(&exponent, &p), num_bigint::BigUint::from(1u8));
            }
            let exponent = num_bigint::BigUint::from(prime.rest);
            assert_ne!(g.modpow(&exponent, &p), num_bigint::BigUint::from(1u8));
        }
    }
}
