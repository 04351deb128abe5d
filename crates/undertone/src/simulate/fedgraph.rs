//! A graph network over clients with different features, with all parties in one process.

use std::sync::{Arc, Mutex, PoisonError};

use undertone_fedgraph::{
    Checkpoint, Inputs, Job, Keep, Kept, Matrix, Outcome, Place, Report, client, server,
};
use undertone_job::record::Record;
use undertone_kdf::Seed;
use undertone_party::{Abort, Aborted, Ledger, Network, PartyId, SessionId};
use undertone_setup::group;

use super::{SimulationError, drive, party_seed, session};

/// A run with all parties in one process.
#[derive(Debug)]
pub struct GraphSimulation {
    job: Job,
    clients: Vec<Arc<Inputs>>,
    seed: Seed,
    /// The last two checkpoints of each party, the newest first: those of the server, then of each
    /// client.
    saved: Vec<Arc<Mutex<Vec<Checkpoint>>>>,
    /// The votes that each client kept.
    votes: Vec<Arc<Mutex<Option<Matrix>>>>,
    /// What each client has answered.
    records: Vec<Record>,
}

/// The results of a run.
#[derive(Debug)]
pub struct GraphRun {
    /// What each client has, or why it has nothing, in the order of their ids.
    pub clients: Vec<Result<Outcome, Aborted>>,
    /// What the server has.
    pub report: Report,
    /// What each party spent.
    pub ledgers: Vec<(PartyId, Ledger)>,
}

impl GraphSimulation {
    /// The `job` of these clients, in the order of their ids. `seed` fixes the whole transcript.
    pub fn new(job: Job, clients: Vec<Arc<Inputs>>, seed: Seed) -> Self {
        Self {
            saved: (0..=clients.len()).map(|_| Arc::default()).collect(),
            votes: clients.iter().map(|_| Arc::default()).collect(),
            records: clients.iter().map(|_| Record::simulated()).collect(),
            job,
            clients,
            seed,
        }
    }

    /// The checkpoints that a party kept, the newest first: of the server, or of a client.
    pub fn saved(&self, party: PartyId) -> Vec<Checkpoint> {
        let place = party.index().map_or(0, |client| client + 1);
        lock(&self.saved[place]).clone()
    }

    /// Gives a party these checkpoints in place of its own.
    pub fn replace(&self, party: PartyId, saved: Vec<Checkpoint>) {
        let place = party.index().map_or(0, |client| client + 1);
        *lock(&self.saved[place]) = saved;
    }

    /// The votes that a client kept, also if its run ended early.
    pub fn votes(&self, client: usize) -> Option<Matrix> {
        lock(&self.votes[client]).clone()
    }

    /// The same parties with their checkpoints, in another session.
    #[must_use]
    pub fn again(self, seed: Seed) -> Self {
        Self { seed, ..self }
    }

    /// The session.
    pub fn session(&self) -> SessionId {
        session(&self.seed)
    }

    /// Runs it.
    ///
    /// # Errors
    /// As [`run_over`](Self::run_over).
    pub fn run(&self) -> Result<GraphRun, SimulationError> {
        self.run_over(Network::new())
    }

    /// Runs it over `network`. With checkpoints it continues.
    ///
    /// # Errors
    /// The server's [`Aborted`], or [`Stalled`](undertone_party::Stalled).
    pub fn run_over(&self, network: Network<'_>) -> Result<GraphRun, SimulationError> {
        let id = self.session();
        let ids: Vec<PartyId> = (0..self.clients.len()).map(PartyId::client).collect();
        let own = party_seed(&self.seed, id, PartyId::SERVER);
        let saved = self.saved(PartyId::SERVER);
        let server = server(self.job.clone(), id, ids.clone(), own, saved, self.keep(0))
            .map_err(|cause| aborted(PartyId::SERVER, cause))?;
        let mut parties = Vec::with_capacity(ids.len());
        for (index, me) in ids.into_iter().enumerate() {
            let place = Place {
                session: id,
                me,
                seed: party_seed(&self.seed, id, me),
                credentials: None,
                record: self.records[index].clone(),
                saved: self.saved(me),
                // All parties are in one process: nobody learns anything.
                min_network: 0,
                show_embeddings: true,
                keep: self.keep(index + 1),
            };
            let party = client(self.job.clone(), Arc::clone(&self.clients[index]), place);
            parties.push((me, party.map_err(|cause| aborted(me, cause))?));
        }
        let driven = drive(network, id, server, parties)?;
        Ok(GraphRun {
            clients: driven.clients,
            report: driven.report,
            ledgers: driven.ledgers,
        })
    }

    fn keep(&self, place: usize) -> Keep {
        let saved = Arc::clone(&self.saved[place]);
        let votes = place
            .checked_sub(1)
            .map(|client| Arc::clone(&self.votes[client]));
        Box::new(move |kept| {
            match (kept, &votes) {
                (Kept::Votes(matrix), Some(votes)) => *lock(votes) = Some(matrix.clone()),
                (Kept::Checkpoint(checkpoint), _) => {
                    let mut saved = lock(&saved);
                    saved.retain(|held| held.step() < checkpoint.step());
                    saved.insert(0, checkpoint.clone());
                    saved.truncate(2);
                }
                _ => {}
            }
            Ok(())
        })
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn aborted(party: PartyId, cause: Abort) -> Aborted {
    Aborted {
        party,
        phase: group::PHASE,
        cause,
    }
}
