//! Paillier's cryptosystem (EUROCRYPT 1999), eight ciphertexts at a time.
//!
//! A ciphertext of m modulo N is `(1 + mN)·r^N mod N²`. Whoever has the public key N encrypts,
//! adds, multiplies by known numbers and re-randomises; the owner, who has its factors, decrypts.
//! Security: semantically secure if N-th residues modulo N² cannot be told from other residues.
//! Malleable by design: nothing here authenticates.
//!
//! All operations are on batches, [`Ciphertexts`]; one ciphertext is a batch of one, and costs as
//! much as eight. Ciphertexts stay in Montgomery form modulo N², as pairs modulo N
//! ([`undertone_kernel::mont`]), from [`decode`](PublicKey::decode) or an encryption to
//! [`encode`](PublicKey::encode) or decryption.
//!
//! | operation | who | how |
//! |---|---|---|
//! | [`SecretKey::encrypt`] | owner | powers of generators of the N-th residues modulo p² and q², from tables; exactly uniform |
//! | [`PublicKey::encrypt`], [`Noise::Full`] | anybody | r^N |
//! | [`PublicKey::encrypt`], [`Noise::Short`] | anybody | a power of r₀^N by a short exponent, from a table: one more assumption, and nothing against the owner ([`NoiseTable`]) |
//! | [`SecretKey::zeros`] | owner | the encryption of zero that is a given number modulo N: subset sums of many re-randomise, statistically |
//! | [`SecretKey::decrypt`] | owner | c^{p−1} modulo p², c^{q−1} modulo q², Chinese remainders |
//! | [`PublicKey::add`], [`add_plain`](PublicKey::add_plain), [`multiply_plain`](PublicKey::multiply_plain), [`subset_sums`](PublicKey::subset_sums), [`rerandomise`](PublicKey::rerandomise) | anybody | |
//!
//! *Constant time*: encryption, decryption, and all operations on ciphertexts, in keys, noise,
//! plaintexts (of a given length) and rows of bits. Not so: making keys, and turning plaintexts to
//! and from `BigUint`s, which are not zeroized either. Copies on the stack are not zeroized.
//!
//! ```
//! use undertone_kdf::Seed;
//! use undertone_paillier::{BigUint, Noise, Primes, SecretKey};
//!
//! let mut rng = Seed::from_os()?.prg();
//! let secret = SecretKey::generate(2048, Primes::Structured, &mut rng)?;
//! let public = secret.public();
//!
//! let numbers = |of: [u32; 2]| of.map(BigUint::from);
//! let mut sum = public.encrypt(&numbers([1, 2]), Noise::Full, &mut rng)?;
//! let other = secret.encrypt(&numbers([40, 50]), &mut rng)?;
//! public.add(&mut sum, &other)?;
//! assert_eq!(secret.decrypt(&sum)?, numbers([41, 52]));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod natural;
mod pack;
mod prime;
mod public;
mod secret;

use rayon::prelude::*;
use undertone_kernel::mont::{LANES, Number, Ring, Row};

pub use num_bigint::BigUint;
pub use pack::Slots;
pub use prime::Primes;
pub use public::{Noise, NoiseTable, PublicKey};
pub use secret::SecretKey;

/// Sizes of keys that are made, in bits of N: about 112, 128 and 152 bits of security.
pub const GENERATED: [usize; 3] = [2048, 3072, 4096];

/// The size where nothing else is asked for.
pub const DEFAULT_BITS: usize = 3072;

/// Ciphertexts of one key.
#[derive(Clone)]
pub struct Ciphertexts {
    key: PublicKey,
    len: usize,
    /// Eights, filled up.
    rows: Number,
}

impl Ciphertexts {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Appends `other`; there is a whole number of eights already.
    ///
    /// # Errors
    /// [`PaillierError`] when `other` is of another key, or the last eight is not full.
    pub fn append(&mut self, other: Self) -> Result<(), PaillierError> {
        self.key.check(&other)?;
        public::same_length(self.len.next_multiple_of(LANES), self.len)?;
        self.rows.extend_from_slice(&other.rows);
        self.len += other.len;
        Ok(())
    }

    /// Changes all eights, each with `rows` rows of `with`.
    fn change(&mut self, with: &[Row], rows: usize, one: impl Fn(&mut [Row], &[Row]) + Sync) {
        let eights = self.rows.par_chunks_exact_mut(self.key.ring().rows());
        eights
            .zip(with.par_chunks_exact(rows))
            .for_each(|(eight, with)| one(eight, with));
    }

    /// Whose they are.
    pub fn key(&self) -> &PublicKey {
        &self.key
    }
}

impl std::fmt::Debug for Ciphertexts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Ciphertexts({})", self.len)
    }
}

/// What can go wrong.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PaillierError {
    /// A modulus, or primes, that make no key.
    #[error("not a Paillier modulus: {0}")]
    Modulus(String),
    /// A plaintext is not below N.
    #[error("plaintext number {0} is not below N")]
    TooLarge(usize),
    /// Ciphertexts, or a table, of another key.
    #[error("of another key")]
    OtherKey,
    /// Batches of different lengths.
    #[error("{have} where {due} are due")]
    Length {
        /// How many there are.
        have: usize,
        /// How many there should be.
        due: usize,
    },
    /// Bytes that are no ciphertexts.
    #[error("not a ciphertext: {0}")]
    Ciphertext(String),
    /// Values that do not fit slots.
    #[error("slots: {0}")]
    Slots(String),
}

#[cfg(test)]
mod tests;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
