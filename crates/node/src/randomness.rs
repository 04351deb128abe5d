//! The source of a node's randomness.

use std::sync::Arc;

use undertone_kdf::{Seed, simulated};
use undertone_party::{PartyId, SessionId};

/// The operating system, or a seed that fixes all randomness.
#[derive(Debug, Clone, Default)]
pub enum Randomness {
    /// Fresh bytes from the operating system. Use nothing else for real data.
    #[default]
    Os,
    /// For tests and simulations only. The same seed gives the same run, in one process or in many.
    Fixed(Arc<Seed>),
}

impl Randomness {
    /// The id of session `number` of `job`. With a fixed seed the first session of the first job
    /// has the id that it has in a simulation.
    ///
    /// # Errors
    /// When the operating system provides no randomness.
    pub fn session(&self, job: u32, number: u32) -> Result<SessionId, getrandom::Error> {
        match self {
            Self::Os => SessionId::random(),
            Self::Fixed(seed) => {
                let first = simulated::session(seed);
                if (job, number) == (1, 0) {
                    return Ok(first);
                }
                let own = seed.derive(first, "later session", &[job, number]);
                Ok(SessionId(*own.expose()))
            }
        }
    }

    /// The seed of party `id` in `session`.
    ///
    /// # Errors
    /// When the operating system provides no randomness.
    pub fn party(&self, session: SessionId, id: PartyId) -> Result<Seed, getrandom::Error> {
        match self {
            Self::Os => Seed::from_os(),
            Self::Fixed(seed) => Ok(simulated::party(seed, session, id)),
        }
    }
}
