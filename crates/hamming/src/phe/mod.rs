//! `phe`: distances from Paillier ciphertexts with packed slots (after the XCLP paper's PHE variant, corrected and packed).
//!
//! Of every two clients that have rows, the one with fewer is the *owner* (of two with as many the first), the other the *evaluator*: ciphertexts
//! are paid for by rows of the owner, and an owner's go to all its evaluators. Slots have w bits, a plaintext s of them;
//! rows of the owner go in blocks of s.
//!
//! 1. Owner → evaluator, for every block β: `E_l = Enc(Σ_q −2·x_q[l]·2^{wq} mod N)` for every bit l, and `F = Enc(Σ_q |x_q|·2^{wq})`.
//! 2. Evaluator, for each of its rows y: `F · (1+N)^{|y|·1⃗} · Π_{l: y_l = 1} E_l`, with `1⃗ = Σ_q 2^{wq}`: an encryption of
//!    `Σ_q h(x_q, y)·2^{wq}`, as h = |x| + |y| − 2⟨x,y⟩. Sums in between are negative modulo N; slots of the last are in [0, L] and do not carry.
//!    F goes as one more E, of a bit that all rows have.
//! 3. Evaluator → owner: that times `(1+N)^ρ`, ρ uniform modulo N, and times noise: encryptions of zero to the power of random bytes; they, their
//!    squares, 4th, … and 128th powers are more E's, of random bits.
//! 4. Owner → server: `τ`, decrypted, is packed + ρ mod N. Evaluator → server: a seed, of which all ρ come. Server: `τ − ρ`, unpacked.
//!
//! *Noise.* Without it the owner, who knows its ciphertexts, could tell from a result modulo N which E were multiplied; and a power of one fixed
//! r₀^N leaves it the quadratic characters ([`NoiseTable`](undertone_paillier::NoiseTable)). So the noise is made of m encryptions of zero, 8m ≥ bits(N) + 256. What
//! they are modulo N comes of the clients' common seed and of N; the owner sends the rest ([`SecretKey::zeros`](undertone_paillier::SecretKey::zeros)). A result is then uniform among all numbers prime to N, but for 2^−64, whatever the owner's N and
//! ciphertexts: modulo N by the noise (leftover hash lemma: two choices of exponents collide with probability 1/|G^g|, g the greatest common divisor of their
//! differences, and there are more than twice as many as the group G modulo N can have generators), and of those that are the same modulo N by ρ.
//! The numbers must be out of reach until N is fixed: hence they come of N. The seed's expansion is a random oracle here.
//!
//! The server learns h; τ and ρ say no more, as ρ is uniform and h follows from both. Together with the owner it has ρ and so h. Together
//! with the evaluator it has ciphertexts of the owner's rows.
//!
//! *Offline*: keys, and the encryptions of zero.
//!
//! Messages, all sealed for whom they are for:
//!
//! | phase | from | what |
//! |---|---|---|
//! | offline | owner, to the evaluator | N |
//! | offline | owner, to the evaluator | (c − a)/N of the encryption of zero c that is a modulo N, 512 a message |
//! | online | owner, to the evaluator | for each block: E of every bit, then F, as many as fit 2²⁰ bytes; two blocks ahead of what it has got back |
//! | online | evaluator, to the owner | for each block, for every 1024 rows: a masked ciphertext a row |
//! | online | owner, to the server | the peer's number (4), then N |
//! | online | evaluator, to the server | the peer's number (4), then 32 bytes: the seed |
//! | online | owner, to the server | the peer's number (4), then a block's τ of 1024 rows |
//! | online | both, to the server | 2³² − 1 (4): that was all |
//!
//! A client that leaves is missing in its own pairs alone. Whether enough are left is for the server to say.

mod client;
mod evaluator;
mod offline;
mod owner;
mod server;

use std::ops::Range;

use num_bigint::BigUint;
use undertone_kernel::mont::LANES;
use undertone_kernel::{Prg, Wiped};
use undertone_party::frame::TILE_BYTES;
use undertone_party::{Abort, PartyId};

pub(super) use client::Client;
pub(super) use offline::{Preparation, Prepared};
pub(super) use server::{Meeting, Shape};

use undertone_kdf::Seed;
use undertone_paillier::{
    DEFAULT_BITS, GENERATED, PaillierError, Primes, PublicKey, SecretKey, Slots,
};
use undertone_setup::seal::Channel;

/// Rows of the evaluator in a message.
const TILE_ROWS: usize = 1024;

/// Encryptions of zero in a message.
const BASES: usize = 512;

/// Bits of their exponents.
const EXPONENT: usize = 8;

/// Blocks an owner sends before it has the results of the first of them.
const WINDOW: usize = 2;

const SERVER: PartyId = PartyId::SERVER;

/// How `phe` encrypts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Phe {
    key_bits: usize,
}

impl Default for Phe {
    fn default() -> Self {
        Self {
            key_bits: DEFAULT_BITS,
        }
    }
}

impl Phe {
    /// With keys of so many bits.
    ///
    /// # Errors
    /// [`PaillierError::Modulus`] when keys are not made of this size.
    pub fn new(key_bits: usize) -> Result<Self, PaillierError> {
        if GENERATED.contains(&key_bits) {
            Ok(Self { key_bits })
        } else {
            Err(PaillierError::Modulus(format!(
                "{key_bits} bits; keys are made of 2048, 3072 and 4096"
            )))
        }
    }

    /// With keys of 128 to 4096 bits, an even number, which anybody may factor. For tests of what
    /// surrounds the keys: it is there with the feature `insecure` alone.
    #[cfg(any(test, feature = "insecure"))]
    #[must_use]
    pub fn insecure(key_bits: usize) -> Self {
        Self {
            key_bits: key_bits.clamp(128, 4096).next_multiple_of(2),
        }
    }

    /// Bits of N.
    pub fn key_bits(self) -> usize {
        self.key_bits
    }

    /// Encryptions of zero of which the noise of results is made.
    fn bases(self) -> usize {
        (self.key_bits + 256)
            .div_ceil(EXPONENT)
            .next_multiple_of(LANES)
    }
}

/// Whether `me`, with its rows, is the owner to `other`, with its.
fn owns(me: (PartyId, usize), other: (PartyId, usize)) -> bool {
    (me.1, me.0) < (other.1, other.0)
}

/// What both ends of a pair and the server know.
#[derive(Debug, Clone, Copy)]
struct Pair {
    /// Bits of a code.
    bits: usize,
    key_bits: usize,
    /// Rows of the owner and of the evaluator.
    owned: usize,
    rows: usize,
    slots: Slots,
}

impl Pair {
    /// The pair of two clients, or nothing where there is nothing to do.
    fn new(bits: usize, key_bits: usize, rows: [usize; 2]) -> Result<Option<Self>, Abort> {
        let width = usize::BITS - bits.leading_zeros();
        let slots = Slots::new(key_bits, width);
        let pair = Self {
            bits,
            key_bits,
            owned: rows[0].min(rows[1]),
            rows: rows[0].max(rows[1]),
            slots: slots.map_err(|error| Abort::Misuse(error.to_string()))?,
        };
        Ok((pair.owned > 0).then_some(pair))
    }

    fn blocks(&self) -> usize {
        self.owned.div_ceil(self.slots.count())
    }

    /// Rows of the owner in a block.
    fn block(&self, number: usize) -> Range<usize> {
        let first = number * self.slots.count();
        first.min(self.owned)..self.owned.min(first + self.slots.count())
    }

    fn tiles(&self) -> usize {
        self.rows.div_ceil(TILE_ROWS)
    }

    /// Rows of the evaluator in a message.
    fn tile(&self, number: usize) -> Range<usize> {
        let first = number * TILE_ROWS;
        first.min(self.rows)..self.rows.min(first + TILE_ROWS)
    }

    /// Block and tile of the message of results, or of τ, that comes after `number` others.
    fn message(&self, number: usize) -> (Range<usize>, Range<usize>) {
        let (block, tile) = (number / self.tiles(), number % self.tiles());
        (self.block(block), self.tile(tile))
    }

    fn messages(&self) -> usize {
        self.blocks() * self.tiles()
    }

    fn ciphertext_len(&self) -> usize {
        (2 * self.key_bits).div_ceil(8)
    }

    fn plaintext_len(&self) -> usize {
        self.key_bits.div_ceil(8)
    }

    /// Ciphertexts of the owner's message that comes after `sent` others of the block.
    fn chunk(&self, sent: usize) -> Range<usize> {
        // Whole eights.
        let most = (TILE_BYTES / self.ciphertext_len() / LANES * LANES).max(LANES);
        sent..(self.bits + 1).min(sent + most)
    }
}

/// Uniform numbers modulo N, one after the other, of a seed.
struct Uniform {
    prg: Prg,
    n: BigUint,
    len: usize,
    top: u8,
}

impl std::fmt::Debug for Uniform {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Uniform(..)")
    }
}

impl Uniform {
    fn new(seed: &Seed, n: &BigUint) -> Self {
        let bits = n.bits() as usize;
        Self {
            prg: seed.prg(),
            n: n.clone(),
            len: bits.div_ceil(8),
            top: u8::MAX >> (bits.wrapping_neg() % 8),
        }
    }

    /// The next: as many bits as N has, again and again until they are a number below N.
    fn next(&mut self) -> BigUint {
        let mut bytes = Wiped::from(vec![0; self.len]);
        loop {
            self.prg.fill(&mut bytes);
            if let Some(last) = bytes.last_mut() {
                *last &= self.top;
            }
            let number = BigUint::from_bytes_le(&bytes);
            if number < self.n {
                return number;
            }
        }
    }
}

/// The other end of a pair.
#[derive(Debug)]
struct Peer {
    id: PartyId,
    pair: Pair,
    channel: Channel,
}

impl Peer {
    fn open(&mut self, sealed: &[u8]) -> Result<Vec<u8>, Abort> {
        let opened = self.channel.open(sealed);
        opened.map_err(|error| self.malformed(error.to_string()))
    }

    fn seal(&mut self, text: &[u8]) -> Result<(PartyId, Vec<u8>), Abort> {
        let sealed = self.channel.seal(text);
        let sealed = sealed.map_err(|error| Abort::Internal(error.to_string()))?;
        Ok((self.id, sealed))
    }

    fn malformed(&self, what: String) -> Abort {
        Abort::Malformed {
            from: self.id,
            what,
        }
    }
}

/// For our own mistakes, where what came from others is checked.
fn internal(error: PaillierError) -> Abort {
    Abort::Internal(error.to_string())
}

/// A new key of a run with keys of so many bits.
fn secret_key(bits: usize, rng: &mut Prg) -> Result<SecretKey, PaillierError> {
    #[cfg(any(test, feature = "insecure"))]
    if !GENERATED.contains(&bits) {
        return Ok(SecretKey::insecure(bits, Primes::Structured, rng));
    }
    SecretKey::generate(bits, Primes::Structured, rng)
}

/// The key of the modulus that an owner sent. It has the length of the run's keys.
fn public_key(n: &BigUint) -> Result<PublicKey, PaillierError> {
    #[cfg(any(test, feature = "insecure"))]
    if n.bits() < GENERATED[0] as u64 {
        return PublicKey::insecure(n);
    }
    PublicKey::new(n)
}
