//! Paillier's cryptosystem (EUROCRYPT 1999), eight ciphertexts at a time.
//!
//! A ciphertext of m modulo N is `(1 + mN)·r^N mod N²`. Anybody with the public key N encrypts,
//! adds, multiplies by known numbers and re-randomises. The owner of the key, who has the factors
//! of N, decrypts. The scheme is semantically secure if N-th residues modulo N² cannot be told from
//! other residues. It is malleable by design: nothing here authenticates. The specification is
//! `docs/spec/paillier.md`.
//!
//! All operations are on batches, [`Ciphertexts`]. One ciphertext is a batch of one, and costs as
//! much as eight. From [`decode`](PublicKey::decode) or an encryption to
//! [`encode`](PublicKey::encode) or decryption, ciphertexts stay in Montgomery form modulo N², as
//! pairs modulo N ([`undertone_kernel::mont`]).
//!
//! Operations of the owner:
//!
//! | operation | how |
//! |---|---|
//! | [`SecretKey::encrypt`] | tables of N-th residues modulo p² and q² (1) |
//! | [`SecretKey::zeros`] | the encryption of zero that is a given number modulo N (2) |
//! | [`SecretKey::decrypt`] | c^{p−1} modulo p², c^{q−1} modulo q², Chinese remainders |
//!
//! Operations of anybody:
//!
//! | operation | how |
//! |---|---|
//! | [`PublicKey::encrypt`], [`Noise::Full`] | noise r^N |
//! | [`PublicKey::encrypt`], [`Noise::Short`] | noise (r₀^N)^e with a short e, from a table (3) |
//! | [`PublicKey::add`] | adds plaintexts under encryption |
//! | [`PublicKey::add_plain`] | adds known numbers |
//! | [`PublicKey::multiply_plain`] | multiplies by known numbers |
//! | [`PublicKey::subset_sums`] | adds the plaintexts that rows of bits select |
//! | [`PublicKey::rerandomise`] | multiplies by fresh encryptions of zero |
//!
//! 1. Powers of generators of the N-th residues: the noise is exactly uniform.
//! 2. Subset sums of many such encryptions re-randomise, statistically.
//! 3. This needs one more assumption and hides nothing from the owner: see [`NoiseTable`].
//!
//! *Constant time*: encryption, decryption, and all operations on ciphertexts, in keys, noise,
//! plaintexts (of a given length) and rows of bits. *Not constant time*: making keys, and turning
//! plaintexts to and from `BigUint`s. `BigUint`s and copies on the stack are not zeroized.
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

/// Sizes of keys that [`SecretKey::generate`] makes, in bits of N: about 112, 128 and 152 bits of
/// security.
pub const GENERATED: [usize; 3] = [2048, 3072, 4096];

/// Default key size, in bits.
pub const DEFAULT_BITS: usize = 3072;

/// Ciphertexts of one key.
#[derive(Clone)]
pub struct Ciphertexts {
    key: PublicKey,
    len: usize,
    /// Groups of eight ciphertexts, the last filled up.
    rows: Number,
}

impl Ciphertexts {
    /// Number of ciphertexts.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the batch is empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Appends `other`. The length before that must be a multiple of eight.
    ///
    /// # Errors
    /// [`PaillierError`] when `other` belongs to another key, or the length is no multiple of
    /// eight.
    pub fn append(&mut self, other: Self) -> Result<(), PaillierError> {
        self.key.check(&other)?;
        public::same_length(self.len.next_multiple_of(LANES), self.len)?;
        self.rows.extend_from_slice(&other.rows);
        self.len += other.len;
        Ok(())
    }

    /// Applies `one` to every eight, each with its `rows` rows of `with`.
    fn change(&mut self, with: &[Row], rows: usize, one: impl Fn(&mut [Row], &[Row]) + Sync) {
        let eights = self.rows.par_chunks_exact_mut(self.key.ring().rows());
        eights
            .zip(with.par_chunks_exact(rows))
            .for_each(|(eight, with)| one(eight, with));
    }

    /// The key that they belong to.
    pub fn key(&self) -> &PublicKey {
        &self.key
    }
}

impl std::fmt::Debug for Ciphertexts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Ciphertexts({})", self.len)
    }
}

/// Errors of this crate.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PaillierError {
    /// A modulus, or primes, that do not make a key.
    #[error("not a Paillier modulus: {0}")]
    Modulus(String),
    /// A plaintext is not below N.
    #[error("plaintext number {0} is not below N")]
    TooLarge(usize),
    /// Ciphertexts or a table of another key.
    #[error("ciphertexts or a table of another key")]
    OtherKey,
    /// Batches of different lengths.
    #[error("a batch of {have}, {due} are due")]
    Length {
        /// The length given.
        have: usize,
        /// The length expected.
        due: usize,
    },
    /// Bytes that are not ciphertexts.
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
