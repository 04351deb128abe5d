//! Label propagation with all parties in one process.

use undertone_kdf::Seed;
use undertone_party::{Abort, Aborted, Ledger, Network, PartyId, Phase};
use undertone_sum::Trust;
use undertone_xclp::{Input, Labelling, Outcome, Params, Report, Rows, client, server};

use super::{SimulationError, credentials, drive, party_seed, session};

/// What a run needs.
#[derive(Debug)]
pub struct Simulation {
    /// Parameters, the same for all.
    pub params: Params,
    /// Rows and labels of each client.
    pub clients: Vec<(Rows, Labelling)>,
    /// Fixes the whole transcript.
    pub seed: Seed,
}

/// What a run gives.
#[derive(Debug)]
pub struct Run {
    /// What each client takes home, or why it does not.
    pub clients: Vec<Result<Outcome, Aborted>>,
    /// What the server knows.
    pub report: Report,
    /// What each party spent.
    pub ledgers: Vec<(PartyId, Ledger)>,
}

impl Simulation {
    /// Runs all parties over a network that delivers in order; `observer` is called with a party
    /// and its phase after every slice of work.
    ///
    /// # Errors
    /// The first [`Aborted`] by its own fault, or [`Stalled`](undertone_party::Stalled).
    pub fn run(self, observer: impl FnMut(PartyId, Phase)) -> Result<Run, SimulationError> {
        let run = self.run_over(Network::new().observe(observer))?;
        match run
            .clients
            .iter()
            .find_map(|outcome| outcome.as_ref().err())
        {
            Some(aborted) => Err(aborted.clone().into()),
            None => Ok(run),
        }
    }

    /// Runs all parties over `network`, which may reorder, tamper, and make clients leave.
    ///
    /// # Errors
    /// The server's [`Aborted`], or [`Stalled`](undertone_party::Stalled).
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
            phase: undertone_xclp::phases::SETUP,
            cause,
        };
        let for_server = party_seed(&seed, session, PartyId::SERVER);
        let server = server(session, params, ids.clone(), for_server)
            .map_err(|cause| setup(PartyId::SERVER, cause))?;
        let mut identities = match params.trust {
            Trust::SemiHonest => Vec::new(),
            Trust::MaliciousServer => credentials(&seed, session, &ids)
                .map_err(|error| setup(error.who, Abort::Misuse(error.to_string())))?,
        }
        .into_iter();
        let mut parties = Vec::with_capacity(ids.len());
        for (id, (rows, labelling)) in ids.into_iter().zip(clients) {
            let seed = party_seed(&seed, session, id);
            let input = Input {
                credentials: identities.next(),
                ..Input::new(rows, labelling)
            };
            let client =
                client(id, session, params, input, seed).map_err(|cause| setup(id, cause))?;
            parties.push((id, client));
        }
        let driven = drive(network, session, server, parties)?;
        Ok(Run {
            clients: driven.clients,
            report: driven.server,
            ledgers: driven.ledgers,
        })
    }
}
