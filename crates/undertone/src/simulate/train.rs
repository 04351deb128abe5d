//! A training job with all parties in one process.

use undertone_kdf::Seed;
use undertone_kernel::Prg;
use undertone_party::{Abort, Aborted, Ledger, Network, PartyId, SessionId};
use undertone_setup::identity::Credentials;
use undertone_sum::Trust;
use undertone_train::{Client, Job, MODEL, Place, Report, Server, State, Step};

use super::{SimulationError, credentials, drive, party_seed, session};

/// A job, between two sessions.
#[derive(Debug)]
pub struct TrainingSimulation {
    job: Job,
    /// The clients, in the order of their ids.
    clients: Vec<Client>,
    identities: Vec<Credentials>,
    state: State,
    seed: Seed,
    /// The randomness of the server's draws.
    draws: Prg,
}

/// The results of a session.
#[derive(Debug)]
pub struct TrainingRun {
    /// What each client of the session did, or why it did nothing.
    pub clients: Vec<(PartyId, Result<Step, Aborted>)>,
    /// What the server learns.
    pub report: Report,
    /// What each party spent.
    pub ledgers: Vec<(PartyId, Ledger)>,
}

impl TrainingSimulation {
    /// The `job` of these clients, from a first model on. `seed` fixes the whole transcript. If the
    /// job names a malicious server, every client has an identity and pins those of the others.
    ///
    /// # Errors
    /// An [`Aborted`] that says what is impossible.
    pub fn new(
        job: Job,
        clients: Vec<Client>,
        model: Vec<f32>,
        seed: Seed,
    ) -> Result<Self, SimulationError> {
        let first = session(&seed);
        let ids: Vec<PartyId> = (0..clients.len()).map(PartyId::client).collect();
        let identities = match job.propagation.trust {
            Trust::SemiHonest => Vec::new(),
            Trust::MaliciousServer => credentials(&seed, first, &ids)
                .map_err(|error| aborted(error.who, Abort::Misuse(error.to_string())))?,
        };
        Ok(Self {
            job,
            clients,
            identities,
            state: State::new(model),
            draws: seed.derive(first, "training draws", &[]).prg(),
            seed,
        })
    }

    /// The server's state.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// The clients, in the order of their ids.
    pub fn clients(&self) -> &[Client] {
        &self.clients
    }

    /// The id of the next session: that of a job on a network with this seed.
    pub fn session(&self) -> SessionId {
        let first = session(&self.seed);
        match self.state.census {
            None => first,
            Some(_) => {
                let ids = [1, self.state.begun + 1];
                SessionId(*self.seed.derive(first, "later session", &ids).expose())
            }
        }
    }

    /// Skips the next round, as a server does that was killed in it.
    pub fn skip(&mut self) {
        self.state.begin(&self.job);
    }

    /// The clients of the next session if all are present.
    pub fn members(&mut self) -> Vec<PartyId> {
        let all: Vec<PartyId> = (0..self.clients.len()).map(PartyId::client).collect();
        self.state.members(&self.job, &all, &mut self.draws)
    }

    /// Runs the next session with `members`: the census, a round, or the end of the job. A round
    /// that fails is over, and leaves the model as it was.
    ///
    /// # Errors
    /// The server's [`Aborted`], or [`Stalled`](undertone_party::Stalled).
    pub fn run_over(
        &mut self,
        network: Network<'_>,
        members: Vec<PartyId>,
    ) -> Result<TrainingRun, SimulationError> {
        let id = self.session();
        let is_over = self.state.is_over(&self.job);
        self.state.begin(&self.job);
        let server = Server {
            job: self.job.clone(),
            session: id,
            members: members.clone(),
            seed: party_seed(&self.seed, id, PartyId::SERVER),
        };
        let server = server
            .party(&self.state, is_over)
            .map_err(|cause| aborted(PartyId::SERVER, cause))?;
        let mut parties = Vec::with_capacity(members.len());
        for me in &members {
            let place = me.index().filter(|place| *place < self.clients.len());
            let Some(place) = place else {
                let cause = Abort::Misuse(format!("{me} is not a client of the simulation"));
                return Err(aborted(*me, cause).into());
            };
            let seat = Place {
                session: id,
                me: *me,
                seed: party_seed(&self.seed, id, *me),
                credentials: self.identities.get(place).cloned(),
                max_peer_rows: None,
            };
            let party = self.clients[place].party(self.job.clone(), seat);
            parties.push((*me, party.map_err(|cause| aborted(*me, cause))?));
        }
        let driven = drive(network, id, server, parties)?;
        self.state.take(&driven.report);
        Ok(TrainingRun {
            clients: members.into_iter().zip(driven.clients).collect(),
            report: driven.report,
            ledgers: driven.ledgers,
        })
    }
}

fn aborted(party: PartyId, cause: Abort) -> Aborted {
    Aborted {
        party,
        phase: MODEL,
        cause,
    }
}
