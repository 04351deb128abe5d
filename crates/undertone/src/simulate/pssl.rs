//! A graph between pairs of clients, and propagation over it, with all parties in one process.

use std::sync::Arc;

use undertone_job::record::Record;
use undertone_kdf::Seed;
use undertone_party::{Abort, Aborted, Ledger, Network, PartyId, SessionId};
use undertone_pssl::{Data, Job, Outcome, Place, Report, clear, client, server};
use undertone_setup::group;
use undertone_sum::Trust;

use super::{SimulationError, credentials, drive, party_seed, session};

/// A run with all parties in one process.
#[derive(Debug)]
pub struct PairwiseSimulation {
    job: Job,
    clients: Vec<Arc<Data>>,
    seed: Seed,
}

/// The results of a run.
#[derive(Debug)]
pub struct PairwiseRun {
    /// What each client has, or why it has nothing, in the order of their ids.
    pub clients: Vec<Result<Outcome, Aborted>>,
    /// What the server has.
    pub report: Report,
    /// What each party spent.
    pub ledgers: Vec<(PartyId, Ledger)>,
}

impl PairwiseSimulation {
    /// The `job` of these clients, in the order of their ids. `seed` fixes the whole transcript. If
    /// the job names a malicious server, every client has an identity and pins those of the others.
    pub fn new(job: Job, clients: Vec<Arc<Data>>, seed: Seed) -> Self {
        Self { job, clients, seed }
    }

    /// The job.
    pub fn job(&self) -> &Job {
        &self.job
    }

    /// The session.
    pub fn session(&self) -> SessionId {
        session(&self.seed)
    }

    fn ids(&self) -> Vec<PartyId> {
        (0..self.clients.len()).map(PartyId::client).collect()
    }

    /// Runs it.
    ///
    /// # Errors
    /// As [`run_over`](Self::run_over).
    pub fn run(&self) -> Result<PairwiseRun, SimulationError> {
        self.run_over(Network::new())
    }

    /// Runs it over `network`.
    ///
    /// # Errors
    /// The server's [`Aborted`], or [`Stalled`](undertone_party::Stalled).
    pub fn run_over(&self, network: Network<'_>) -> Result<PairwiseRun, SimulationError> {
        let (id, ids) = (self.session(), self.ids());
        let identities = match self.job.trust {
            Trust::SemiHonest => Vec::new(),
            Trust::MaliciousServer => credentials(&self.seed, id, &ids)
                .map_err(|error| aborted(error.who, Abort::Misuse(error.to_string())))?,
        };
        let own = party_seed(&self.seed, id, PartyId::SERVER);
        let server = server(self.job.clone(), id, ids.clone(), own)
            .map_err(|cause| aborted(PartyId::SERVER, cause))?;
        let mut parties = Vec::with_capacity(ids.len());
        for (index, me) in ids.into_iter().enumerate() {
            let place = Place {
                session: id,
                me,
                seed: party_seed(&self.seed, id, me),
                credentials: identities.get(index).cloned(),
                record: Record::simulated(),
            };
            let party = client(self.job.clone(), Arc::clone(&self.clients[index]), place);
            parties.push((me, party.map_err(|cause| aborted(me, cause))?));
        }
        let driven = drive(network, id, server, parties)?;
        Ok(PairwiseRun {
            clients: driven.clients,
            report: driven.server,
            ledgers: driven.ledgers,
        })
    }

    /// The same run in the clear: the same edges, and the same scores up to rounding.
    pub fn clear(&self) -> clear::Outcome {
        let id = self.session();
        let seeds: Vec<Seed> = self
            .ids()
            .into_iter()
            .map(|me| party_seed(&self.seed, id, me))
            .collect();
        let clients = self.ids().into_iter().zip(&self.clients).zip(&seeds);
        let clients: Vec<clear::Client<'_>> = clients
            .map(|((me, data), seed)| clear::Client { me, data, seed })
            .collect();
        clear::run(&self.job, id, &clients)
    }
}

fn aborted(party: PartyId, cause: Abort) -> Aborted {
    Aborted {
        party,
        phase: group::PHASE,
        cause,
    }
}
