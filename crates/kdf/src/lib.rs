//! Seeds and the keys derived from them.
//!
//! ```
//! use undertone_kdf::Seed;
//! use undertone_party::SessionId;
//!
//! let session = SessionId::random()?;
//! let seed = Seed::from_os()?;
//! let masks = seed.derive(session, "masks", &[0, 1]);
//! let noise = seed.derive(session, "noise", &[0, 1]);
//! assert_ne!(masks.expose(), noise.expose());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

use std::fmt;

use hkdf::Hkdf;
use sha2::Sha256;
use undertone_kernel::Prg;
use undertone_party::SessionId;
use zeroize::{Zeroize, ZeroizeOnDrop};

/// 32 secret bytes from which keys or a party's randomness are derived.
///
/// The same seed gives the same transcript. So protocols take their seed by value, and a seed
/// cannot be cloned.
#[derive(Zeroize, ZeroizeOnDrop)]
pub struct Seed([u8; 32]);

impl Seed {
    /// A seed chosen by the caller, for tests and simulations.
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// A fresh seed from the operating system.
    ///
    /// # Errors
    /// When the operating system has no randomness.
    pub fn from_os() -> Result<Self, getrandom::Error> {
        let mut bytes = [0; 32];
        getrandom::fill(&mut bytes)?;
        Ok(Self(bytes))
    }

    /// HKDF-SHA256 of `material`, with the session as salt.
    pub fn extract(session: SessionId, purpose: &str, material: &[u8]) -> Self {
        expand(
            &Hkdf::new(Some(&session.0), material),
            session,
            purpose,
            &[],
        )
    }

    /// The key for `purpose` among the parties `ids` of `session`:
    /// HKDF-Expand with info `undertone/v1/<purpose>` ‖ session ‖ ids.
    #[must_use]
    pub fn derive(&self, session: SessionId, purpose: &str, ids: &[u32]) -> Self {
        let context: Vec<u8> = ids.iter().flat_map(|id| id.to_le_bytes()).collect();
        self.expand(session, purpose, &context)
    }

    /// Like [`derive`](Self::derive), with any bytes in place of the ids.
    #[must_use]
    pub fn expand(&self, session: SessionId, purpose: &str, context: &[u8]) -> Self {
        expand(&Hkdf::new(None, &self.0), session, purpose, context)
    }

    /// The stream of this seed: ChaCha20's key stream, nonce and counter zero.
    pub fn prg(&self) -> Prg {
        Prg::new(&self.0)
    }

    /// The bytes, as the key of a primitive.
    pub fn expose(&self) -> &[u8; 32] {
        &self.0
    }
}

fn expand(hkdf: &Hkdf<Sha256>, session: SessionId, purpose: &str, context: &[u8]) -> Seed {
    let mut out = Seed([0; 32]);
    let info: [&[u8]; 4] = [b"undertone/v1/", purpose.as_bytes(), &session.0, context];
    let expanded = hkdf.expand_multi_info(&info, &mut out.0);
    debug_assert!(expanded.is_ok(), "32 bytes are within HKDF's bound");
    out
}

impl fmt::Debug for Seed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Seed(..)")
    }
}

/// Randomness for simulations, all of it from one seed. For tests only: it protects nothing.
pub mod simulated {
    use undertone_party::{PartyId, SessionId};

    use super::Seed;

    /// The session of a simulation from `seed`.
    pub fn session(seed: &Seed) -> SessionId {
        let id = seed.derive(SessionId([0; 32]), "simulated session", &[]);
        SessionId(*id.expose())
    }

    /// The seed of party `id` in a simulation from `seed`.
    pub fn party(seed: &Seed, session: SessionId, id: PartyId) -> Seed {
        seed.derive(session, "simulated client", &[id.to_wire()])
    }
}

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
