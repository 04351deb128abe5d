//! Where a node's randomness comes from.

use std::sync::Arc;

use undertone_kdf::{Seed, simulated};
use undertone_party::{PartyId, SessionId};

/// The operating system, or a seed from which everything follows.
#[derive(Debug, Clone, Default)]
pub enum Randomness {
    /// Fresh bytes of the operating system's: the only choice for data that matters.
    #[default]
    Os,
    /// For tests and simulations: the same seed gives the same run, in one process or in many.
    Fixed(Arc<Seed>),
}

impl Randomness {
    /// The id of a new session.
    ///
    /// # Errors
    /// When the operating system has no randomness to give.
    pub fn session(&self) -> Result<SessionId, getrandom::Error> {
        match self {
            Self::Os => SessionId::random(),
            Self::Fixed(seed) => Ok(simulated::session(seed)),
        }
    }

    /// What party `id` of `session` draws from.
    ///
    /// # Errors
    /// When the operating system has no randomness to give.
    pub fn party(&self, session: SessionId, id: PartyId) -> Result<Seed, getrandom::Error> {
        match self {
            Self::Os => Seed::from_os(),
            Self::Fixed(seed) => Ok(simulated::party(seed, session, id)),
        }
    }
}
