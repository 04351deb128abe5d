//! Oblivious transfer: few by public keys, many by extension.
//!
//! | module | what | source | against |
//! |---|---|---|---|
//! | [`base`] | 128 random transfers in one round trip | Masny, Rindal 2019 (endemic), on Ristretto | malicious |
//! | [`tree`] | all-but-one transfers from them | Goldreich, Goldwasser, Micali 1986; Boyle et al. 2019; Roy 2022 | both |
//! | [`extend`] | any number of correlated and random transfers | Roy 2022, *SoftSpokenOT* | both |
//! | [`chosen`] | messages and choices of one's own | Beaver 1995 | both |
//! | [`punctured`] | all-but-one transfers by choice, and vectors shared out to a chosen class | Goldreich, Goldwasser, Micali 1986 | both |
//! | [`party`] | all of it as a pair of parties | | both |
//!
//! In transfer t of an extension the sender has `K₀ = w` and `K₁ = w ⊕ Δ`, the receiver a random
//! choice c and `K_c`, 128 bits each: *correlated* transfers. Hashed they are *random* transfers:
//! independent keys, of which the receiver has one. Vectors over Z_{2^w} are correlated in
//! [`undertone_kernel::expand`].
//!
//! | on what | hash | because |
//! |---|---|---|
//! | keys, semi-honest | MMO | both parties' inputs are as they should be: w is random, Δ is not known. That is correlation robustness |
//! | keys, malicious receiver | TMMO, tweak: number of the transfer | a receiver that cheats can make inputs repeat; tweaks keep them apart |
//! | vectors of correlated transfers | TMMO, tweak: transfer and block | one key gives many blocks |
//!
//! *f* trades bytes for computation: 128/f bits a transfer on the wire, 2^f/f·128 bits of AES a
//! transfer at either side. f = 1 is IKNP (Ishai, Kilian, Nissim, Petrank 2003).
#![forbid(unsafe_code)]

pub mod base;
pub mod chosen;
pub mod extend;
pub mod party;
pub mod punctured;
pub mod tree;

use std::ops::Range;

use sha2::{Digest, Sha256};
use undertone_kernel::Cpu;
use undertone_kernel::aes::Permutation;
use undertone_party::{Abort, PartyId, SessionId};

use undertone_kdf::Seed;

/// Bits of Δ: base transfers, and computational security.
pub const KAPPA: usize = 128;

/// The parameter f of an extension, 1 to 8.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field(usize);

impl Field {
    /// Largest f.
    pub const MAX: usize = 8;

    /// GF(2^f), for f from 1 to 8.
    pub fn new(f: usize) -> Option<Self> {
        (1..=Self::MAX).contains(&f).then_some(Self(f))
    }

    /// f.
    pub fn bits(self) -> usize {
        self.0
    }

    /// The bits of Δ that each block has: f each, the last maybe fewer.
    pub fn blocks(self) -> impl ExactSizeIterator<Item = Range<usize>> {
        (0..KAPPA)
            .step_by(self.0)
            .map(move |start| start..KAPPA.min(start + self.0))
    }
}

/// What the other party may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Security {
    /// It follows the protocol.
    SemiHonest,
    /// It does what it likes.
    Malicious,
}

/// Whose transfers these are. No key, hash or stream serves two contexts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Context {
    /// The session.
    pub session: SessionId,
    digest: [u8; 32],
}

impl Context {
    /// Transfers of `session` for one `purpose`, from `sender` to `receiver`, as the extension
    /// names them. Two protocols of one session take two purposes.
    pub fn new(session: SessionId, purpose: &str, sender: PartyId, receiver: PartyId) -> Self {
        let hash = Sha256::new()
            .chain_update(b"undertone/v1/transfers ")
            .chain_update(purpose)
            .chain_update(session.0)
            .chain_update(sender.to_wire().to_le_bytes())
            .chain_update(receiver.to_wire().to_le_bytes());
        Self {
            session,
            digest: hash.finalize().into(),
        }
    }

    /// Randomness of `seed` for these transfers alone.
    fn derive(&self, seed: &Seed, purpose: &str) -> Seed {
        seed.expand(self.session, purpose, &self.digest)
    }

    fn digest(&self) -> &[u8; 32] {
        &self.digest
    }

    /// A permutation of this context's own. Its key is public.
    pub fn permutation(&self, cpu: Cpu, purpose: &str, index: u8) -> Permutation {
        let hash = Sha256::new()
            .chain_update(b"undertone/v1/permutation ")
            .chain_update(purpose)
            .chain_update([index])
            .chain_update(self.digest);
        let hash: [u8; 32] = hash.finalize().into();
        let mut key = [0; 16];
        key.copy_from_slice(&hash[..16]);
        Permutation::new(cpu, u128::from_le_bytes(key))
    }
}

/// Why transfers end.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OtError {
    /// A message has the wrong length.
    #[error("{what} of {have} bytes, {due} are due")]
    Length {
        /// The message.
        what: &'static str,
        /// Its length.
        have: usize,
        /// What it should be.
        due: usize,
    },
    /// Bytes are not a point, or a forbidden one.
    #[error("{what} is not a point that may be used")]
    Point {
        /// The field.
        what: &'static str,
    },
    /// The receiver's trees do not fit what the sender has of them.
    #[error("the trees of seeds are inconsistent")]
    Tree,
    /// The receiver's corrections are not those of one choice for all blocks.
    #[error("the corrections of two blocks have different choices")]
    Corrections,
    /// A batch that needs a proof is used without.
    #[error("the keys of a batch were asked for before its proof was checked")]
    Unproved,
}

impl OtError {
    fn check_len(what: &'static str, bytes: &[u8], due: usize) -> Result<(), Self> {
        if bytes.len() == due {
            Ok(())
        } else {
            Err(Self::Length {
                what,
                have: bytes.len(),
                due,
            })
        }
    }

    /// The abort that blames `from`.
    pub fn blame(from: PartyId) -> impl Fn(Self) -> Abort {
        move |error| match error {
            Self::Length { .. } | Self::Point { .. } => Abort::Malformed {
                from,
                what: error.to_string(),
            },
            Self::Tree | Self::Corrections => Abort::Cheated {
                culprit: from,
                fault: error.to_string(),
            },
            Self::Unproved => Abort::Internal(error.to_string()),
        }
    }
}

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
