//! Public keys: the operations that need no secret.

use std::ops::Range;
use std::sync::Arc;

use num_bigint::BigUint;
use rayon::prelude::*;
use undertone_kernel::mont::{
    FixedBase, LANES, Modulus, Number, Ring, Row, Squared, number, power, products,
};
use undertone_kernel::{BitMatrix, Cpu, Prg};
use zeroize::Zeroizing;

use super::natural::Natural;
use super::{Ciphertexts, PaillierError, prime};

/// Key sizes that are accepted, in bits.
pub(super) const SIZES: Range<usize> = 2048..4097;

/// Eights of ciphertexts that a thread makes together, reading the tables once.
pub(super) const SLAB: usize = 8;

/// A modulus N that has passed the checks of [`PublicKey::new`]. Cloning is cheap.
#[derive(Clone)]
pub struct PublicKey(Arc<Inner>);

struct Inner {
    n: BigUint,
    bits: usize,
    ring: Squared,
}

impl std::fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PublicKey({} bits)", self.0.bits)
    }
}

impl PartialEq for PublicKey {
    fn eq(&self, other: &Self) -> bool {
        self.0.n == other.0.n
    }
}

impl Eq for PublicKey {}

/// The source of the noise r^N of a ciphertext.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum Noise<'a> {
    /// r uniform modulo N, as in Paillier's paper. No further assumption.
    Full,
    /// A power of a fixed N-th residue, by a short exponent. It hides plaintexts from parties
    /// without the key, and nothing from the owner: see [`NoiseTable`].
    Short(&'a NoiseTable),
}

/// Powers of `h = r₀^N` for a random r₀, by exponents with half as many bits as N.
///
/// *Assumption*, beyond Paillier's that N-th residues cannot be told from others: without the
/// factors of N, such a power hides a plaintext as well as a random N-th residue does (after
/// Damgård, Jurik and Nielsen 2010, section 4.2).
///
/// **Not against the owner.** Powers of h are a cyclic group, N-th residues are not. The owner can
/// compute quadratic characters modulo p and q; they are the same for all powers of h, or follow
/// from the exponent's last bit. If a ciphertext is computed from others and re-randomised like
/// this, it tells the owner some bits about which others. [`Noise::Full`] does not, nor do subset
/// sums of [`SecretKey::zeros`](super::SecretKey::zeros).
#[derive(Debug, Clone)]
pub struct NoiseTable {
    key: PublicKey,
    powers: FixedBase,
    bits: usize,
}

impl PublicKey {
    /// Checks a modulus, and makes a key of it.
    ///
    /// Checked (PAI-1 to PAI-3): the size, that no prime below 2^16 divides N, and that N is
    /// neither a prime nor a power of one. *Not* checked: that N has two prime factors of half its
    /// length, and that gcd(N, φ(N)) = 1. With another N, r^N does not hide from the maker of N
    /// which ciphertexts a sum was made from. To rule that out takes a proof by the owner.
    ///
    /// # Errors
    /// [`PaillierError::Modulus`], with the check that failed.
    pub fn new(n: &BigUint) -> Result<Self, PaillierError> {
        let bits = n.bits() as usize;
        // PAI-1
        if !SIZES.contains(&bits) {
            return Err(PaillierError::Modulus(format!(
                "{bits} bits; from {} to {} are possible",
                SIZES.start,
                SIZES.end - 1
            )));
        }
        Self::checked(n)
    }

    /// As [`new`](Self::new), for any size. For tests, with the feature `insecure`.
    ///
    /// # Errors
    /// [`PaillierError::Modulus`], with the check that failed.
    #[cfg(any(test, feature = "insecure"))]
    pub fn insecure(n: &BigUint) -> Result<Self, PaillierError> {
        Self::checked(n)
    }

    fn checked(n: &BigUint) -> Result<Self, PaillierError> {
        let bits = n.bits() as usize;
        let natural = Natural::from_bytes(&n.to_bytes_le());
        // PAI-2
        if let Some(factor) = prime::small_primes().find(|prime| natural.modulo(*prime) == 0) {
            return Err(PaillierError::Modulus(format!("divisible by {factor}")));
        }
        let out = Self::unchecked(n);
        // PAI-3: every prime factor of a power of a prime divides 2^N − 2.
        let base = out.0.ring.base();
        let rows = base.rows();
        let two = base.enter(&number::splat(&[2], rows));
        let mut residue = power(base, &two, &natural.splat(rows));
        let mut negated = two;
        base.negate(&mut negated);
        base.add(&mut residue, &negated);
        let residue = read(&base.leave(&residue), 0, bits);
        if residue.modinv(n).is_none() {
            return Err(PaillierError::Modulus("a prime, or a power of one".into()));
        }
        Ok(out)
    }

    pub(super) fn unchecked(n: &BigUint) -> Self {
        let bits = n.bits() as usize;
        let rows = number::splat(&n.to_bytes_le(), Modulus::rows_for(bits));
        let ring = Squared::new(Modulus::new(Cpu::detect(), bits, &rows));
        let n = n.clone();
        Self(Arc::new(Inner { n, bits, ring }))
    }

    /// N.
    pub fn modulus(&self) -> &BigUint {
        &self.0.n
    }

    /// Bits of N.
    pub fn bits(&self) -> usize {
        self.0.bits
    }

    /// Bytes of a ciphertext.
    pub fn ciphertext_len(&self) -> usize {
        (2 * self.0.bits).div_ceil(8)
    }

    pub(super) fn ring(&self) -> &Squared {
        &self.0.ring
    }

    /// A table for [`Noise::Short`]. Making it takes as long as about twenty full encryptions.
    pub fn noise_table(&self, rng: &mut Prg) -> NoiseTable {
        let residue = number::spread(&self.full_noise(1, rng), 0);
        let bits = self.0.bits.div_ceil(2);
        NoiseTable {
            key: self.clone(),
            powers: FixedBase::new(self.ring(), &residue, bits),
            bits,
        }
    }

    /// Encrypts numbers below N.
    ///
    /// # Errors
    /// [`PaillierError::TooLarge`]; [`PaillierError::OtherKey`] when the table belongs to another
    /// key.
    pub fn encrypt(
        &self,
        plain: &[BigUint],
        noise: Noise<'_>,
        rng: &mut Prg,
    ) -> Result<Ciphertexts, PaillierError> {
        let mut out = Ciphertexts {
            key: self.clone(),
            len: plain.len(),
            rows: self.noise(plain.len(), noise, rng)?,
        };
        self.add_plain(&mut out, plain)?;
        Ok(out)
    }

    /// Multiplies by fresh encryptions of zero. With [`Noise::Full`] the owner does not learn how
    /// the ciphertexts were made, if N is a product of two primes as it should be.
    ///
    /// # Errors
    /// [`PaillierError::OtherKey`].
    pub fn rerandomise(
        &self,
        ciphertexts: &mut Ciphertexts,
        noise: Noise<'_>,
        rng: &mut Prg,
    ) -> Result<(), PaillierError> {
        let fresh = Ciphertexts {
            key: self.clone(),
            len: ciphertexts.len,
            rows: self.noise(ciphertexts.len, noise, rng)?,
        };
        self.add(ciphertexts, &fresh)
    }

    /// Adds plaintext by plaintext modulo N: `a` becomes the sums. This does not re-randomise.
    ///
    /// # Errors
    /// [`PaillierError::OtherKey`], [`PaillierError::Length`].
    pub fn add(&self, a: &mut Ciphertexts, b: &Ciphertexts) -> Result<(), PaillierError> {
        self.check(a)?;
        self.check(b)?;
        same_length(b.len, a.len)?;
        let len = self.ring().rows();
        a.change(&b.rows, len, |a, b| {
            let mut out = Zeroizing::new(vec![Row::ZERO; len]);
            self.ring().multiply(a, b, &mut out);
            a.copy_from_slice(&out);
        });
        Ok(())
    }

    /// Adds numbers below N to the plaintexts. A party that saw the ciphertexts before sees which
    /// numbers were added, unless you [`rerandomise`](Self::rerandomise).
    ///
    /// # Errors
    /// [`PaillierError::OtherKey`], [`PaillierError::Length`], [`PaillierError::TooLarge`].
    pub fn add_plain(&self, a: &mut Ciphertexts, plain: &[BigUint]) -> Result<(), PaillierError> {
        self.check(a)?;
        same_length(plain.len(), a.len)?;
        let rows = self.ring().base().rows();
        a.change(&self.plain_rows(plain)?, rows, |a, plain| {
            let plain = self.ring().base().enter(plain);
            self.ring().multiply_by_one_plus(a, &plain);
        });
        Ok(())
    }

    /// Multiplies the plaintexts by numbers below N. The time depends on the longest of these. This
    /// does not re-randomise: a product by 0 is the number 1.
    ///
    /// # Errors
    /// [`PaillierError::OtherKey`], [`PaillierError::Length`], [`PaillierError::TooLarge`].
    pub fn multiply_plain(
        &self,
        a: &mut Ciphertexts,
        plain: &[BigUint],
    ) -> Result<(), PaillierError> {
        self.check(a)?;
        same_length(plain.len(), a.len)?;
        let longest = plain.iter().map(BigUint::bits).max().unwrap_or(0) as usize;
        let digits = longest.div_ceil(undertone_kernel::mont::RADIX as usize);
        let rows = self.ring().base().rows();
        a.change(&self.plain_rows(plain)?, rows, |a, plain| {
            let out = power(self.ring(), a, &plain[..digits]);
            a.copy_from_slice(&out);
        });
        Ok(())
    }

    /// For each row of bits, the sum of the plaintexts whose bit is set: multi-products, in
    /// constant time. This does not re-randomise.
    ///
    /// # Errors
    /// [`PaillierError::OtherKey`]; [`PaillierError::Length`] when the numbers of ciphertexts and
    /// of columns differ, or `rows` goes beyond the last row.
    pub fn subset_sums(
        &self,
        terms: &Ciphertexts,
        codes: &BitMatrix,
        rows: Range<usize>,
    ) -> Result<Ciphertexts, PaillierError> {
        self.check(terms)?;
        same_length(codes.columns(), terms.len)?;
        if rows.end > codes.rows() {
            return Err(PaillierError::Length {
                have: codes.rows(),
                due: rows.end,
            });
        }
        Ok(Ciphertexts {
            key: self.clone(),
            len: rows.len(),
            rows: products::products(self.ring(), &terms.rows, codes, rows),
        })
    }

    /// Appends ciphertexts to `out` as numbers below N², little-endian,
    /// [`ciphertext_len`](Self::ciphertext_len) bytes each.
    ///
    /// # Errors
    /// [`PaillierError::OtherKey`].
    pub fn encode(&self, a: &Ciphertexts, out: &mut Vec<u8>) -> Result<(), PaillierError> {
        self.check(a)?;
        let (len, bytes) = (self.ring().rows(), self.ciphertext_len());
        let first = out.len();
        out.resize(first + bytes * a.len, 0);
        let eights = out[first..].par_chunks_mut(LANES * bytes);
        eights
            .zip(a.rows.par_chunks_exact(len))
            .for_each(|(out, rows)| {
                let plain = self.ring().leave(rows);
                let each = out.chunks_exact_mut(bytes).enumerate();
                each.for_each(|(lane, out)| number::get(&plain, lane, out));
            });
        Ok(())
    }

    /// Reads ciphertexts as [`encode`](Self::encode) writes them.
    ///
    /// # Errors
    /// [`PaillierError::Ciphertext`] when the bytes are not a whole number of ciphertexts, or a
    /// ciphertext is not below N² or shares a factor with N.
    pub fn decode(&self, bytes: &[u8]) -> Result<Ciphertexts, PaillierError> {
        let each = self.ciphertext_len();
        // PAI-4
        if !bytes.len().is_multiple_of(each) {
            let what = format!("{} bytes, not a multiple of {each}", bytes.len());
            return Err(PaillierError::Ciphertext(what));
        }
        // PAI-5
        let mut square = (&self.0.n * &self.0.n).to_bytes_le();
        square.resize(each, 0);
        let is_below = |bytes: &[u8]| bytes.iter().rev().lt(square.iter().rev());
        if let Some(at) = bytes.chunks_exact(each).position(|x| !is_below(x)) {
            let what = format!("number {at} is not below N²");
            return Err(PaillierError::Ciphertext(what));
        }
        let len = self.ring().rows();
        let eights: Vec<Number> = bytes
            .par_chunks(LANES * each)
            .map(|some| {
                let mut rows = vec![Row::ZERO; len];
                let one = [1];
                let missing = std::iter::repeat(&one[..]);
                let all = some.chunks_exact(each).chain(missing).take(LANES);
                all.enumerate()
                    .for_each(|(lane, x)| number::set(&mut rows, lane, x));
                self.ring().enter(&rows)
            })
            .collect();
        let rows = joined(&eights);
        // PAI-6
        if !self.are_units(&rows) {
            let what = "one shares a factor with N".into();
            return Err(PaillierError::Ciphertext(what));
        }
        Ok(Ciphertexts {
            key: self.clone(),
            len: bytes.len() / each,
            rows,
        })
    }

    /// Whether no lane has a factor in common with N: their product has none.
    fn are_units(&self, rows: &[Row]) -> bool {
        let base = self.ring().base();
        let len = self.ring().rows();
        let mut product = base.one();
        let mut next = product.clone();
        for residue in rows.chunks_exact(len) {
            base.multiply(&product, &residue[..len / 2], &mut next);
            std::mem::swap(&mut product, &mut next);
        }
        let plain = base.leave(&product);
        let lanes = (0..LANES).map(|lane| read(&plain, lane, self.0.bits));
        let product = lanes.fold(BigUint::from(1u8), |all, x| all * x % &self.0.n);
        product.modinv(&self.0.n).is_some()
    }

    pub(super) fn check(&self, of: &Ciphertexts) -> Result<(), PaillierError> {
        if Arc::ptr_eq(&self.0, &of.key.0) || *self == of.key {
            Ok(())
        } else {
            Err(PaillierError::OtherKey)
        }
    }

    /// Plaintexts, eight after eight, each with as many rows as N has.
    pub(super) fn plain_rows(&self, plain: &[BigUint]) -> Result<Number, PaillierError> {
        // PAI-9
        if let Some(at) = plain.iter().position(|x| *x >= self.0.n) {
            return Err(PaillierError::TooLarge(at));
        }
        let rows = self.ring().base().rows();
        let mut out = Zeroizing::new(vec![Row::ZERO; plain.len().div_ceil(LANES) * rows]);
        let eights = out.par_chunks_exact_mut(rows).zip(plain.par_chunks(LANES));
        eights.for_each(|(out, some)| {
            for (lane, x) in some.iter().enumerate() {
                number::set(out, lane, &Zeroizing::new(x.to_bytes_le()));
            }
        });
        Ok(out)
    }

    /// Encryptions of zero, filled up to eights.
    fn noise(
        &self,
        count: usize,
        noise: Noise<'_>,
        rng: &mut Prg,
    ) -> Result<Number, PaillierError> {
        let table = match noise {
            Noise::Full => return Ok(self.full_noise(count, rng)),
            Noise::Short(table) => table,
        };
        if table.key != *self {
            return Err(PaillierError::OtherKey);
        }
        let rows = number::rows(table.bits);
        let exponents = random(count, rows, table.bits, rng);
        let slabs = exponents.par_chunks(SLAB * rows);
        let made = slabs.map(|some| table.powers.power(self.ring(), some, rows));
        Ok(joined(&made.collect::<Vec<_>>()))
    }

    /// N-th powers of numbers of [0, N).
    fn full_noise(&self, count: usize, rng: &mut Prg) -> Number {
        let ring = self.ring();
        let rows = ring.base().rows();
        let n = Natural::from_bytes(&self.0.n.to_bytes_le());
        let bases = random_below(&n, count, rows, rng);
        let exponent = n.splat(rows);
        let eights = bases.par_chunks_exact(rows);
        let powers = eights.map(|base| power(ring, &ring.enter(base), &exponent));
        joined(&powers.collect::<Vec<_>>())
    }
}

/// Eights one after the other.
pub(super) fn joined(eights: &[Number]) -> Number {
    let len = eights.iter().map(|eight| eight.len()).sum();
    let mut out = Zeroizing::new(Vec::with_capacity(len));
    eights.iter().for_each(|eight| out.extend_from_slice(eight));
    out
}

/// Uniform numbers of `bits` bits, eight after eight.
fn random(count: usize, rows: usize, bits: usize, rng: &mut Prg) -> Number {
    let mut out = Zeroizing::new(vec![Row::ZERO; count.div_ceil(LANES) * rows]);
    let mut bytes = Zeroizing::new(vec![0; bits.div_ceil(8)]);
    for eight in out.chunks_exact_mut(rows) {
        for lane in 0..LANES {
            rng.fill(&mut bytes);
            if let Some(last) = bytes.last_mut() {
                *last &= u8::MAX >> (bits.wrapping_neg() % 8);
            }
            number::set(eight, lane, &bytes);
        }
    }
    out
}

/// Uniform numbers below `bound`, eight after eight.
pub(super) fn random_below(bound: &Natural, count: usize, rows: usize, rng: &mut Prg) -> Number {
    let mut out = Zeroizing::new(vec![Row::ZERO; count.div_ceil(LANES) * rows]);
    for eight in out.chunks_exact_mut(rows) {
        (0..LANES).for_each(|lane| bound.random_below(rng).set(eight, lane));
    }
    out
}

/// The number in one lane.
pub(super) fn read(rows: &[Row], lane: usize, bits: usize) -> BigUint {
    let mut bytes = Zeroizing::new(vec![0; bits.div_ceil(8)]);
    number::get(rows, lane, &mut bytes);
    BigUint::from_bytes_le(&bytes)
}

pub(super) fn same_length(have: usize, due: usize) -> Result<(), PaillierError> {
    if have == due {
        Ok(())
    } else {
        Err(PaillierError::Length { have, due })
    }
}
