//! A co-training job with all parties in one process.

use undertone_cotrain::{CONSENSUS, Client, Job, Place, Report, Server, State, Step};
use undertone_kdf::Seed;
use undertone_party::{Abort, Aborted, Ledger, Network, PartyId, SessionId};
use undertone_setup::identity::Credentials;
use undertone_sum::Trust;

use super::{SimulationError, credentials, drive, party_seed, session};

/// A job, between two sessions.
#[derive(Debug)]
pub struct CotrainingSimulation {
    job: Job,
    /// The clients, in the order of their ids.
    clients: Vec<Client>,
    identities: Vec<Credentials>,
    /// Whether all clients allow for consensuses that tell all votes.
    allow_unanimous: bool,
    state: State,
    seed: Seed,
}

/// The results of a session.
#[derive(Debug)]
pub struct CotrainingRun {
    /// What each client of the session did, or why it did nothing.
    pub clients: Vec<(PartyId, Result<Step, Aborted>)>,
    /// What the server learns.
    pub report: Report,
    /// What each party spent.
    pub ledgers: Vec<(PartyId, Ledger)>,
}

impl CotrainingSimulation {
    /// The `job` of these clients. `seed` fixes the whole transcript. If the job names a malicious
    /// server, every client has an identity and pins those of the others.
    ///
    /// # Errors
    /// An [`Aborted`] that says what is impossible.
    pub fn new(job: Job, clients: Vec<Client>, seed: Seed) -> Result<Self, SimulationError> {
        let ids: Vec<PartyId> = (0..clients.len()).map(PartyId::client).collect();
        let identities = match job.trust {
            Trust::SemiHonest => Vec::new(),
            Trust::MaliciousServer => credentials(&seed, session(&seed), &ids)
                .map_err(|error| aborted(error.who, Abort::Misuse(error.to_string())))?,
        };
        Ok(Self {
            job,
            clients,
            identities,
            allow_unanimous: false,
            state: State::default(),
            seed,
        })
    }

    /// The same, with clients that allow for a consensus that tells all votes.
    #[must_use]
    pub fn allow_unanimous(mut self) -> Self {
        self.allow_unanimous = true;
        self
    }

    /// The job.
    pub fn job(&self) -> &Job {
        &self.job
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
        match self.state.begun {
            0 => first,
            begun => SessionId(
                *self
                    .seed
                    .derive(first, "later session", &[1, begun])
                    .expose(),
            ),
        }
    }

    /// All clients.
    pub fn members(&self) -> Vec<PartyId> {
        (0..self.clients.len()).map(PartyId::client).collect()
    }

    /// Skips the next exchange, as a server does that was killed in it.
    pub fn skip(&mut self) {
        self.state.begin(&self.job);
    }

    /// Ends the job: all `members` get the last consensus.
    ///
    /// # Errors
    /// As [`run_over`](Self::run_over).
    pub fn finish(
        &mut self,
        network: Network<'_>,
        members: Vec<PartyId>,
    ) -> Result<CotrainingRun, SimulationError> {
        self.session_over(network, members, true)
    }

    /// Runs the next session with `members`: an exchange, or the end of the job.
    ///
    /// # Errors
    /// The server's [`Aborted`], or [`Stalled`](undertone_party::Stalled).
    pub fn run_over(
        &mut self,
        network: Network<'_>,
        members: Vec<PartyId>,
    ) -> Result<CotrainingRun, SimulationError> {
        let is_over = self.state.is_over(&self.job);
        self.session_over(network, members, is_over)
    }

    fn session_over(
        &mut self,
        network: Network<'_>,
        members: Vec<PartyId>,
        is_over: bool,
    ) -> Result<CotrainingRun, SimulationError> {
        let id = self.session();
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
                allow_unanimous: self.allow_unanimous,
            };
            let party = self.clients[place].party(self.job.clone(), seat);
            parties.push((*me, party.map_err(|cause| aborted(*me, cause))?));
        }
        let driven = drive(network, id, server, parties)?;
        self.state.take(&driven.report);
        Ok(CotrainingRun {
            clients: members.into_iter().zip(driven.clients).collect(),
            report: driven.report,
            ledgers: driven.ledgers,
        })
    }
}

fn aborted(party: PartyId, cause: Abort) -> Aborted {
    Aborted {
        party,
        phase: CONSENSUS,
        cause,
    }
}
