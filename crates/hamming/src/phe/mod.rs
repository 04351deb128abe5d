//! `phe`: distances from Paillier ciphertexts with packed slots, after the PHE variant of the XCLP
//! paper, corrected and packed.
//!
//! `docs/spec/phe.md` specifies messages and steps, and says why the noise is enough. In short: of
//! each two clients that have rows, the one with fewer rows is the *owner* and the other the
//! *evaluator*. Ties go to the client with the smaller number as the owner. Ciphertexts are paid
//! for by rows of the owner, and an owner's ciphertexts go to all its evaluators. Slots have w
//! bits, a plaintext has σ slots, and rows of the owner go in blocks of σ.
//!
//! 1. Owner → evaluator, for every block: `E_l = Enc(Σ_q −2·x_q[l]·2^{wq} mod N)` for every bit l,
//!    and `F = Enc(Σ_q |x_q|·2^{wq})`.
//! 2. The evaluator computes, for each of its rows y, `F · (1+N)^{|y|·1⃗} · Π_{l: y_l = 1} E_l`
//!    with `1⃗ = Σ_q 2^{wq}`. This encrypts `Σ_q h(x_q, y)·2^{wq}`, as h = |x| + |y| − 2⟨x,y⟩. Sums
//!    on the way are negative modulo N. The slots of the final sum are in [0, L] and do not carry.
//!    The code handles F as one more E, of a bit that all rows have.
//! 3. Evaluator → owner: that result times `(1+N)^ρ`, with ρ uniform modulo N, and times noise. The
//!    noise is a product of encryptions of zero to the power of random bytes. The code handles each
//!    encryption of zero, its square, its 4th and up to its 128th power as more E's, of random
//!    bits.
//! 4. Owner → server: the decryption `τ`. Evaluator → server: the seed of all ρ. The server unpacks
//!    `τ − ρ` mod N.
//!
//! *Noise.* Without it the owner, who knows its ciphertexts, could tell from a result modulo N
//! which E were multiplied. A power of one fixed r₀^N would leave it the quadratic characters
//! ([`NoiseTable`](undertone_paillier::NoiseTable)). So the noise is made of m encryptions of zero,
//! with 8m ≥ bits(N) + 256. What they are modulo N comes from the clients' common seed and from N;
//! the owner sends the rest ([`SecretKey::zeros`](undertone_paillier::SecretKey::zeros)). They
//! depend on N so that an owner cannot choose N to fit them.
//!
//! The server learns h. τ and ρ tell no more, as ρ is uniform and h follows from both. Together
//! with the owner the server has ρ and so h. Together with the evaluator it has ciphertexts of the
//! owner's rows.
//!
//! *Offline*, clients exchange keys and encryptions of zero. If a client drops out, only its own
//! pairs end. The server decides whether enough clients remain.

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

/// Bits of the exponents of encryptions of zero.
const EXPONENT: usize = 8;

/// Blocks that an owner has sent and lacks results of, at most.
const WINDOW: usize = 2;

const SERVER: PartyId = PartyId::SERVER;

/// The parameters of `phe`.
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
    /// Keys of `key_bits` bits.
    ///
    /// # Errors
    /// [`PaillierError::Modulus`] when `key_bits` is not 2048, 3072 or 4096.
    pub fn new(key_bits: usize) -> Result<Self, PaillierError> {
        if GENERATED.contains(&key_bits) {
            Ok(Self { key_bits })
        } else {
            Err(PaillierError::Modulus(format!(
                "{key_bits} bits; keys of 2048, 3072 and 4096 bits are possible"
            )))
        }
    }

    /// Keys of an even number of bits, from 128 to 4096, which anybody may factor. For tests only:
    /// the feature `insecure` provides it.
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

    /// Number of encryptions of zero that make the noise of results.
    fn bases(self) -> usize {
        (self.key_bits + 256)
            .div_ceil(EXPONENT)
            .next_multiple_of(LANES)
    }
}

/// Whether `me` is the owner to `other`. Each comes with its number of rows.
fn owns(me: (PartyId, usize), other: (PartyId, usize)) -> bool {
    (me.1, me.0) < (other.1, other.0)
}

/// The parameters of a pair, which both ends and the server know.
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
    /// The pair of two clients. `None` if one of them has no rows.
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

    /// Rows of the owner and of the evaluator in message `number` of results or of τ.
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

    /// Ciphertexts of the owner's next message, when `sent` ciphertexts of the block are sent.
    fn chunk(&self, sent: usize) -> Range<usize> {
        // A multiple of eight.
        let most = (TILE_BYTES / self.ciphertext_len() / LANES * LANES).max(LANES);
        sent..(self.bits + 1).min(sent + most)
    }
}

/// Uniform numbers below N, from the stream of a seed.
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

    /// The next number: as many bits as N has. Numbers that are not below N are skipped.
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
        opened.map_err(|error| self.malformed(error.to_string())) // PHE-1
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

/// An error that only a bug can cause, as what peers sent was checked before.
fn internal(error: PaillierError) -> Abort {
    Abort::Internal(error.to_string())
}

/// A new key of `bits` bits.
fn secret_key(bits: usize, rng: &mut Prg) -> Result<SecretKey, PaillierError> {
    #[cfg(any(test, feature = "insecure"))]
    if !GENERATED.contains(&bits) {
        return Ok(SecretKey::insecure(bits, Primes::Structured, rng));
    }
    SecretKey::generate(bits, Primes::Structured, rng)
}

/// The public key with modulus `n`. The caller has checked its length.
fn public_key(n: &BigUint) -> Result<PublicKey, PaillierError> {
    #[cfg(any(test, feature = "insecure"))]
    if n.bits() < GENERATED[0] as u64 {
        return PublicKey::insecure(n);
    }
    PublicKey::new(n)
}
