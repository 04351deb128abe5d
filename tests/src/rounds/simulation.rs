//! A round with all parties in one process, over any network.

use std::sync::Arc;

use undertone::job::simulation::{SimulationError, drive};
use undertone::job::{Record, SessionContext};
use undertone::kdf::Seed;
use undertone::kdf::simulated::{party as party_seed, session};
use undertone::party::{Aborted, Ledger, Network, PartyId, SessionId};
use undertone::rounds::{Contributor, Job, Kept, Report, Session, Source, Step};

use crate::identities;

/// The inputs of a round.
#[derive(Debug)]
pub struct Simulation<S> {
    /// The parameters.
    pub job: Job,
    /// What the server keeps from earlier rounds.
    pub kept: Arc<Kept>,
    /// The clients, with what they keep from earlier rounds, and their records.
    pub clients: Vec<(Contributor<S>, Record)>,
    /// Fixes the whole transcript.
    pub seed: Seed,
}

/// The results of a round.
#[derive(Debug)]
pub struct Run {
    /// What each client learns, or why it does not.
    pub clients: Vec<Result<Step, Aborted>>,
    /// What the server learns.
    pub report: Report,
    /// What the server keeps for the next round.
    pub kept: Arc<Kept>,
    /// What each party spent.
    pub ledgers: Vec<(PartyId, Ledger)>,
}

impl<S: Source> Simulation<S> {
    /// Runs all parties over `network`, which may reorder frames, tamper with them, and make
    /// clients drop out. If the job names a malicious server, every client has an identity and pins
    /// those of the others.
    ///
    /// # Errors
    /// The server's [`Aborted`], or [`Stalled`](undertone::party::Stalled).
    pub fn run_over(self, network: Network<'_>) -> Result<Run, SimulationError> {
        let Self {
            job,
            kept,
            clients,
            seed,
        } = self;
        let finished = kept.finished();
        let session = seed.derive(session(&seed), "round", &[finished]);
        let session = SessionId(*session.expose());
        let ids: Vec<PartyId> = (0..clients.len()).map(PartyId::client).collect();
        let mut identities = identities(job.trust, &seed, session, &ids)?;
        let mut parties = Vec::with_capacity(ids.len());
        for (me, (client, record)) in ids.iter().copied().zip(clients) {
            let at = SessionContext {
                number: finished,
                credentials: identities.next(),
                record,
                ..SessionContext::new(session, me, party_seed(&seed, session, me))
            };
            parties.push((me, client.party(job, at)));
        }
        let server = Session {
            job,
            session,
            clients: ids,
            kept: Arc::clone(&kept),
            needed: job.min_clients,
        };
        let (tell, told) = std::sync::mpsc::channel();
        let server = server.party(move |now| {
            let _ = tell.send(now);
            Ok(())
        });
        let driven = drive(network, session, server, parties).ran()?;
        Ok(Run {
            clients: driven.clients,
            report: driven.report,
            kept: told.try_recv().map_or(kept, Arc::new),
            ledgers: driven.ledgers,
        })
    }
}
