//! Means and deviations with all parties in one process, over any network.

use undertone::job::Record;
use undertone::job::simulation::{SimulationError, drive};
use undertone::kdf::Seed;
use undertone::kdf::simulated::{party as party_seed, session};
use undertone::label::scaling::{self, Input, Scale};
use undertone::label::{Features, Params, phases};
use undertone::party::{Aborted, Ledger, Network, PartyId};

use crate::identities;

/// The inputs of a run.
#[derive(Debug)]
pub struct Simulation {
    /// Parameters, the same for all.
    pub params: Params,
    /// The rows of each client.
    pub clients: Vec<Features>,
    /// Fixes the whole transcript.
    pub seed: Seed,
}

/// The results of a run.
#[derive(Debug)]
pub struct Run {
    /// What each client learns, or why it does not.
    pub clients: Vec<Result<Scale, Aborted>>,
    /// The clients whose rows the scale covers.
    pub contributors: Vec<PartyId>,
    /// What each party spent.
    pub ledgers: Vec<(PartyId, Ledger)>,
}

impl Simulation {
    /// Runs all parties over `network`, which may reorder frames, tamper with them, and make
    /// clients drop out.
    ///
    /// # Errors
    /// The server's [`Aborted`], or [`Stalled`](undertone::party::Stalled).
    pub fn run_over(self, network: Network<'_>) -> Result<Run, SimulationError> {
        let Self {
            params,
            clients,
            seed,
        } = self;
        let session = session(&seed);
        let ids: Vec<PartyId> = (0..clients.len()).map(PartyId::client).collect();
        let setup = |party, cause| Aborted {
            party,
            phase: phases::SETUP,
            cause,
        };
        let for_server = party_seed(&seed, session, PartyId::SERVER);
        let server = scaling::server(session, params, ids.clone(), for_server)
            .map_err(|cause| setup(PartyId::SERVER, cause))?;
        let mut identities = identities(params.trust, &seed, session, &ids)?;
        let mut parties = Vec::with_capacity(ids.len());
        for (id, features) in ids.into_iter().zip(clients) {
            let input = Input {
                credentials: identities.next(),
                ..Input::new(features, Record::simulated())
            };
            let seed = party_seed(&seed, session, id);
            let client = scaling::client(id, session, params, input, seed);
            parties.push((id, client.map_err(|cause| setup(id, cause))?));
        }
        let driven = drive(network, session, server, parties).ran()?;
        Ok(Run {
            clients: driven.clients,
            contributors: driven.report,
            ledgers: driven.ledgers,
        })
    }
}
