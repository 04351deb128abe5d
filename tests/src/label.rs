//! Label propagation with all parties in one process, over any network.

use std::sync::Arc;

use undertone::job::Record;
use undertone::job::simulation::{SimulationError, drive};
use undertone::kdf::Seed;
use undertone::kdf::simulated::{party as party_seed, session};
use undertone::label::{
    Input, Labelling, Outcome, Params, Report, Rows, Together, client, phases, server,
};
use undertone::party::{Aborted, At, Ledger, Network, PartyId};

use crate::identities;

/// The inputs of a run.
#[derive(Debug)]
pub struct Simulation {
    /// Parameters, the same for all.
    pub params: Params,
    /// Rows and labels of each client.
    pub clients: Vec<(Rows, Labelling)>,
    /// Fixes the whole transcript.
    pub seed: Seed,
}

/// The results of a run.
#[derive(Debug)]
pub struct Run {
    /// The result of each client, or why it has none.
    pub clients: Vec<Result<Outcome, Aborted>>,
    /// What the server learns.
    pub report: Report,
    /// What each party spent.
    pub ledgers: Vec<(PartyId, Ledger)>,
}

impl Simulation {
    /// Runs all parties over a network that delivers frames in order. Calls `observer` after every
    /// slice of work of a party. Clients [hash their rows together](Together): the first to need
    /// codes spends the time for all.
    ///
    /// # Errors
    /// The first [`Aborted`] by its own fault, or [`Stalled`](undertone::party::Stalled).
    pub fn run(self, observer: impl FnMut(&At)) -> Result<Run, SimulationError> {
        let together = Arc::new(Together::default());
        for (rows, _) in &self.clients {
            if let Rows::Features(features) = rows {
                together.expect(features.clone());
            }
        }
        let run = self.drive(Network::new().observe(observer), Some(together))?;
        match run
            .clients
            .iter()
            .find_map(|outcome| outcome.as_ref().err())
        {
            Some(aborted) => Err(aborted.clone().into()),
            None => Ok(run),
        }
    }

    /// Runs all parties over `network`, which may reorder frames, tamper with them, and make
    /// clients drop out. Each client hashes its own rows. So ledgers are those of processes apart.
    ///
    /// # Errors
    /// The server's [`Aborted`], or [`Stalled`](undertone::party::Stalled).
    pub fn run_over(self, network: Network<'_>) -> Result<Run, SimulationError> {
        self.drive(network, None)
    }

    fn drive(
        self,
        network: Network<'_>,
        together: Option<Arc<Together>>,
    ) -> Result<Run, SimulationError> {
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
        let server = server(session, params, ids.clone(), for_server)
            .map_err(|cause| setup(PartyId::SERVER, cause))?;
        let mut identities = identities(params.trust, &seed, session, &ids)?;
        let mut parties = Vec::with_capacity(ids.len());
        for (id, (rows, labelling)) in ids.into_iter().zip(clients) {
            let seed = party_seed(&seed, session, id);
            let input = Input {
                credentials: identities.next(),
                together: together.clone(),
                ..Input::new(rows, labelling, Record::simulated())
            };
            let client =
                client(id, session, params, input, seed).map_err(|cause| setup(id, cause))?;
            parties.push((id, client));
        }
        let driven = drive(network, session, server, parties).ran()?;
        Ok(Run {
            clients: driven.clients,
            report: driven.report,
            ledgers: driven.ledgers,
        })
    }
}
