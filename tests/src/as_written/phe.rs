//! Distances under additively homomorphic encryption, with Paillier (1999) at toy size. The result
//! is correct; the key can be broken in seconds.
//!
//! Corrections to the published protocol:
//!
//! - The sum is that of x + y − 2xy, not of the agreements.
//! - The evaluator's mask is uniform modulo N, not below L.
//! - The evaluator re-randomises.
//! - The evaluator sends its mask to the server, and the key owner sends what it decrypts.

use num_bigint::BigUint;
use undertone::kernel::{BitMatrix, Prg};

use super::Outcome;

/// A key of about 60 bits.
#[derive(Debug)]
pub struct Key {
    /// The modulus.
    pub n: BigUint,
    squared: BigUint,
    lambda: BigUint,
    inverse: BigUint,
}

fn big(value: u64) -> BigUint {
    BigUint::from(value)
}

/// A number below `bound`, uniform to within 2⁻¹⁰⁰.
pub fn below(bound: &BigUint, prg: &mut Prg) -> BigUint {
    let mut bytes = vec![0; bound.to_bytes_le().len() + 16];
    prg.fill(&mut bytes);
    BigUint::from_bytes_le(&bytes) % bound
}

impl Key {
    /// A key with two primes of 30 bits.
    ///
    /// # Panics
    /// Never, for these primes.
    #[allow(clippy::unwrap_used)]
    pub fn toy() -> Self {
        let (p, q) = (1_073_741_789u64, 1_073_741_783u64);
        let n = big(p) * big(q);
        let lambda = big(p - 1) * big(q - 1);
        Self {
            squared: &n * &n,
            inverse: lambda.modinv(&n).unwrap(),
            lambda,
            n,
        }
    }

    /// Enc(m) = (1 + N)^m · r^N mod N².
    pub fn encrypt(&self, m: &BigUint, prg: &mut Prg) -> BigUint {
        let r = below(&self.n, prg).modpow(&self.n, &self.squared);
        (big(1) + m * &self.n) * r % &self.squared
    }

    /// Dec(c) = ((c^λ mod N²) − 1)/N · λ⁻¹ mod N.
    pub fn decrypt(&self, c: &BigUint) -> BigUint {
        let power = c.modpow(&self.lambda, &self.squared);
        (power - 1u32) / &self.n * &self.inverse % &self.n
    }

    fn add(&self, a: &BigUint, b: &BigUint) -> BigUint {
        a * b % &self.squared
    }
}

/// How the evaluator masks a distance before the key owner decrypts it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mask {
    /// Below L, as published. The sum never reaches the modulus, so the key owner sees the size of
    /// the distance.
    BelowL,
    /// Uniform modulo N.
    Uniform,
}

impl Mask {
    /// A mask for codes of `bits` bits under a modulus `n`.
    pub fn draw(self, bits: usize, n: &BigUint, prg: &mut Prg) -> BigUint {
        match self {
            Self::BelowL => below(&big(bits as u64), prg),
            Self::Uniform => below(n, prg),
        }
    }
}

/// Distances between the rows of a key owner and those of an evaluator, and the numbers that the
/// key owner decrypts.
pub fn run(
    x: &BitMatrix,
    y: &BitMatrix,
    mask: Mask,
    prg: &mut Prg,
) -> (Outcome, Vec<Vec<BigUint>>) {
    let key = Key::toy();
    let ciphertext = 2 * key.n.bits();
    let mut bits = 0;
    let mut distances = Vec::new();
    let mut decrypted = Vec::new();
    for a in 0..x.rows() {
        // Key owner → evaluator: one ciphertext for each bit.
        let row: Vec<BigUint> = (0..x.columns())
            .map(|l| key.encrypt(&big(x.get(a, l).into()), prg))
            .collect();
        bits += ciphertext * x.columns() as u64;
        let (mut line, mut seen) = (Vec::new(), Vec::new());
        for i in 0..y.rows() {
            // Evaluator: Σ y + (1 − 2y)·x, plus the mask and a fresh encryption of zero.
            let r = mask.draw(x.columns(), &key.n, prg);
            let mut sum = key.encrypt(&r, prg);
            for (l, bit) in row.iter().enumerate() {
                let term = if y.get(i, l) {
                    let minus = bit.modpow(&(&key.n - 1u32), &key.squared);
                    key.add(&minus, &key.encrypt(&big(1), prg))
                } else {
                    bit.clone()
                };
                sum = key.add(&sum, &term);
            }
            // Evaluator → key owner; key owner → server: τ; evaluator → server: r.
            let tau = key.decrypt(&sum);
            bits += ciphertext + 2 * key.n.bits();
            let distance = (&tau + &key.n - &r) % &key.n;
            line.push(distance.iter_u64_digits().next().unwrap_or(0));
            seen.push(tau);
        }
        distances.push(line);
        decrypted.push(seen);
    }
    (Outcome { distances, bits }, decrypted)
}
