//! All parties of a run in one process, exchanging the real messages.

mod cotrain;
mod distances;
mod duplex;
mod fedgraph;
pub mod garble;
mod label;
mod pssl;
mod rounds;
mod scaling;
mod sum;
mod train;
pub mod transfers;

use undertone_kdf::Seed;
use undertone_label::InputError;
use undertone_party::{
    Abort, Aborted, Endpoint, Ledger, Limits, Network, Node, Party, PartyId, SessionId, Stalled,
};
use undertone_setup::identity::{Credentials, Identity, NotAKey, Pins};

use undertone_kdf::simulated::party as party_seed;
pub(crate) use undertone_kdf::simulated::session;

pub use cotrain::{CotrainingRun, CotrainingSimulation};
pub use distances::{DistanceRun, DistanceSimulation};
pub use fedgraph::{GraphRun, GraphSimulation};
pub use garble::GarbleSimulation;
pub use label::{Run, Simulation};
pub use pssl::{PairwiseRun, PairwiseSimulation};
pub use rounds::{RoundRun, RoundSimulation};
pub use scaling::{ScalingRun, ScalingSimulation, standardise};
pub use sum::{SumRun, SumSimulation};
pub use train::{TrainingRun, TrainingSimulation};
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
    /// No party could continue.
    #[error(transparent)]
    Stalled(#[from] Stalled),
}

/// An identity for each of `ids`. Every party pins all of them.
fn credentials(
    seed: &Seed,
    session: SessionId,
    ids: &[PartyId],
) -> Result<Vec<Credentials>, NotAKey> {
    let identity = |id: &PartyId| seed.derive(session, "simulated identity", &[id.to_wire()]);
    let identities: Vec<Identity> = ids
        .iter()
        .map(|id| Identity::from_seed(&identity(id)))
        .collect();
    let publics = ids.iter().zip(&identities);
    let pins = Pins::new(publics.map(|(id, identity)| (*id, identity.public())))?;
    let own = |identity| Credentials {
        identity,
        pins: pins.clone(),
    };
    Ok(identities.into_iter().map(own).collect())
}

/// The results of the parties of a run.
struct Driven<S, C> {
    server: S,
    clients: Vec<Result<C, Aborted>>,
    ledgers: Vec<(PartyId, Ledger)>,
}

/// Drives `server` and `clients` over `network` until all have ended.
fn drive<S: Party, C: Party>(
    mut network: Network<'_>,
    session: SessionId,
    server: S,
    clients: Vec<(PartyId, C)>,
) -> Result<Driven<S::Output, C::Output>, SimulationError> {
    let mut server = Endpoint::new(PartyId::SERVER, session, Limits::default(), server);
    let mut clients: Vec<_> = clients
        .into_iter()
        .map(|(id, client)| Endpoint::new(id, session, Limits::default(), client))
        .collect();
    let mut nodes: Vec<&mut dyn Node> = vec![&mut server];
    nodes.extend(clients.iter_mut().map(|client| client as &mut dyn Node));
    let ran = network.run(&mut nodes);
    let mut ledgers = vec![(PartyId::SERVER, server.ledger().clone())];
    ledgers.extend(clients.iter().map(|c| (c.id(), c.ledger().clone())));
    if let Some(aborted) = server.aborted() {
        return Err(cause(aborted.clone(), &clients).into());
    }
    ran?;
    let (output, _) = server.finish()?;
    let outcome = |client: Endpoint<C>| client.finish().map(|(outcome, _)| outcome);
    Ok(Driven {
        server: output,
        clients: clients.into_iter().map(outcome).collect(),
        ledgers,
    })
}

/// Why the server aborted. If too few clients were left, this is the abort of the first client.
fn cause<C: Party>(aborted: Aborted, clients: &[Endpoint<C>]) -> Aborted {
    let own_fault = |a: &&Aborted| a.cause.culprit() != Some(PartyId::SERVER);
    match aborted.cause {
        Abort::TooFew { .. } | Abort::TooFewHolders { .. } => {
            let first = clients.iter().filter_map(Endpoint::aborted).find(own_fault);
            first.cloned().unwrap_or(aborted)
        }
        _ => aborted,
    }
}
