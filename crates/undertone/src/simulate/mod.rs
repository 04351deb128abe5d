//! All parties of a single protocol in one process, exchanging the real messages.

mod distances;
mod duplex;
pub mod garble;
mod sum;
pub mod transfers;

use undertone_job::simulation::{self, Ran, SimulationError, credentials};
use undertone_party::{Network, Party, PartyId, SessionId};

use undertone_kdf::simulated::party as party_seed;
pub(crate) use undertone_kdf::simulated::session;

pub use distances::{DistanceRun, DistanceSimulation};
pub use garble::GarbleSimulation;
pub use sum::{SumRun, SumSimulation};
pub use transfers::TransferSimulation;

/// Drives `server` and `clients` over `network` until all have ended.
fn drive<S: Party, C: Party>(
    network: Network<'_>,
    session: SessionId,
    server: S,
    clients: Vec<(PartyId, C)>,
) -> Result<Ran<S::Output, C::Output>, SimulationError> {
    simulation::drive(network, session, server, clients).ran()
}
