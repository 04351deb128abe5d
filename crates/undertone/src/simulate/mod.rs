//! All parties of a run in one process, exchanging the real messages.

mod distances;
mod duplex;
pub mod garble;
mod label;
mod rounds;
mod scaling;
mod sum;
pub mod transfers;

use undertone_job::Decline;
use undertone_job::simulation::{self, Ran, credentials};
use undertone_label::InputError;
use undertone_party::{Aborted, Network, Party, PartyId, SessionId, Stalled};

use undertone_kdf::simulated::party as party_seed;
pub(crate) use undertone_kdf::simulated::session;

pub use distances::{DistanceRun, DistanceSimulation};
pub use garble::GarbleSimulation;
pub use label::{Run, Simulation};
pub use rounds::{RoundRun, RoundSimulation};
pub use scaling::{ScalingRun, ScalingSimulation, standardise};
pub use sum::{SumRun, SumSimulation};
pub use transfers::TransferSimulation;

/// Why there is no result.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SimulationError {
    /// A party aborted.
    #[error(transparent)]
    Aborted(#[from] Aborted),
    /// A client's input is refused.
    #[error("client {client}: {error}")]
    Input {
        /// The client, from 0.
        client: usize,
        /// Why.
        error: InputError,
    },
    /// A client declines the job.
    #[error("{client} declines the job: {why}")]
    Declined {
        /// The client.
        client: PartyId,
        /// Why.
        why: Decline,
    },
    /// No party could continue.
    #[error(transparent)]
    Stalled(#[from] Stalled),
}

impl From<simulation::SimulationError> for SimulationError {
    fn from(error: simulation::SimulationError) -> Self {
        match error {
            simulation::SimulationError::Aborted(aborted) => aborted.into(),
            simulation::SimulationError::Declined { client, why } => Self::Declined { client, why },
            simulation::SimulationError::Stalled(stalled) => stalled.into(),
        }
    }
}

/// Drives `server` and `clients` over `network` until all have ended.
fn drive<S: Party, C: Party>(
    network: Network<'_>,
    session: SessionId,
    server: S,
    clients: Vec<(PartyId, C)>,
) -> Result<Ran<S::Output, C::Output>, SimulationError> {
    Ok(simulation::drive(network, session, server, clients).ran()?)
}
