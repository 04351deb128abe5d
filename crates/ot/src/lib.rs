//! Oblivious transfer: few by public keys, many by extension.
//!
//! | module | what | source |
//! |---|---|---|
//! | [`base`] | 128 random transfers in one round trip | Masny, Rindal 2019 |
//! | [`tree`] | all-but-one transfers from base transfers | Roy 2022 |
//! | [`extend`] | correlated and random transfers, any number | Roy 2022, *SoftSpokenOT* |
//! | [`chosen`] | transfers of chosen messages | Beaver 1995 |
//! | [`punctured`] | all-but-one transfers by choice; shared vectors | Goldreich et al. 1986 |
//! | [`party`] | an extension as a pair of parties | |
//!
//! [`base`] withstands malicious parties. The other modules withstand what the extension
//! withstands: see [`Security`]. The specification is `docs/spec/transfers.md` and, for
//! [`punctured`], `docs/spec/punctured.md`.
//!
//! In transfer t of an extension the sender has `K₀ = w` and `K₁ = w ⊕ Δ`. The receiver has a
//! random choice c and `K_c`. Keys have 128 bits. These are *correlated* transfers. Hashing the
//! keys gives *random* transfers: two independent keys, one of which the receiver has.
//! [`undertone_kernel::expand`] correlates vectors over Z_{2^w}.
//!
//! | input | hash |
//! |---|---|
//! | keys, semi-honest receiver | MMO |
//! | keys, malicious receiver | TMMO, tweak: number of the transfer |
//! | vectors of correlated transfers | TMMO, tweak: transfer and block |
//!
//! MMO needs correlation robustness only: with a semi-honest receiver w is random and Δ unknown. A
//! receiver that cheats can make inputs repeat; tweaks keep them apart. For vectors one key gives
//! many blocks.
//!
//! *f* trades bytes for computation. A transfer takes about 128/f bits on the wire and 2^f/f·128
//! bits of AES at each party. f = 1 is IKNP (Ishai, Kilian, Nissim, Petrank 2003).
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

/// Bits of Δ. Also the number of base transfers and the computational security in bits.
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

    /// The bits of Δ in each part: f bits, the last part maybe fewer.
    pub fn blocks(self) -> impl ExactSizeIterator<Item = Range<usize>> {
        (0..KAPPA)
            .step_by(self.0)
            .map(move |start| start..KAPPA.min(start + self.0))
    }
}

/// What the receiver may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Security {
    /// It follows the protocol.
    SemiHonest,
    /// It may deviate from the protocol in any way.
    Malicious,
}

/// The kind of Δ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delta {
    /// 128 random bits.
    Any,
    /// The lowest bit is 1, the others are random. Labels of garbled circuits need it.
    Odd,
}

/// The transfers of one session, purpose, sender and receiver. No key, hash or stream serves two
/// contexts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Context {
    /// The session.
    pub session: SessionId,
    digest: [u8; 32],
}

impl Context {
    /// The transfers of `session` for one `purpose`, from `sender` to `receiver` of the extension.
    /// Two protocols of one session take two purposes.
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

    /// Randomness of `seed` for this context.
    fn derive(&self, seed: &Seed, purpose: &str) -> Seed {
        seed.expand(self.session, purpose, &self.digest)
    }

    fn digest(&self) -> &[u8; 32] {
        &self.digest
    }

    /// The permutation (`purpose`, `index`) of this context. Its key is public.
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

/// Errors of transfers.
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
        /// The length expected.
        due: usize,
    },
    /// A field does not decode to a point, or is the identity where that is refused.
    #[error("{what} is not an acceptable Ristretto point")]
    Point {
        /// The field.
        what: &'static str,
    },
    /// The receiver's trees do not match their digests.
    #[error("the trees of seeds are inconsistent")]
    Tree,
    /// The receiver's corrections do not give one choice for all parts of Δ.
    #[error("the corrections of two parts of Δ have different choices")]
    Corrections,
    /// A batch that needs a proof was used without it.
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

    /// Converts an error about a message of `from` into the abort that blames it.
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
