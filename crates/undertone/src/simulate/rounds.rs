//! A round with all parties in one process.

use std::sync::Arc;

use undertone_kdf::Seed;
use undertone_party::{Aborted, Ledger, Network, PartyId};
use undertone_sum::Trust;

use super::{SimulationError, credentials, drive, party_seed, session};
use crate::rounds::{Contributor, Job, Kept, ROUND, Report, Session, Source, Step};
use undertone_job::{Record, SessionContext};

/// The inputs of a round.
#[derive(Debug)]
pub struct RoundSimulation<S> {
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
pub struct RoundRun {
    /// What each client learns, or why it does not.
    pub clients: Vec<Result<Step, Aborted>>,
    /// What the server learns.
    pub report: Report,
    /// What the server keeps for the next round.
    pub kept: Arc<Kept>,
    /// What each party spent.
    pub ledgers: Vec<(PartyId, Ledger)>,
}

impl<S: Source> RoundSimulation<S> {
    /// Runs all parties over `network`, which may reorder frames, tamper with them, and make
    /// clients drop out. If the job names a malicious server, every client has an identity and pins
    /// those of the others.
    ///
    /// # Errors
    /// The server's [`Aborted`], or [`Stalled`](undertone_party::Stalled).
    pub fn run_over(self, network: Network<'_>) -> Result<RoundRun, SimulationError> {
        let Self {
            job,
            kept,
            clients,
            seed,
        } = self;
        let finished = kept.finished();
        let session = seed.derive(session(&seed), "round", &[finished]);
        let session = undertone_party::SessionId(*session.expose());
        let ids: Vec<PartyId> = (0..clients.len()).map(PartyId::client).collect();
        let mut identities = match job.trust {
            Trust::SemiHonest => Vec::new(),
            Trust::MaliciousServer => {
                credentials(&seed, session, &ids).map_err(|error| Aborted {
                    party: error.who,
                    phase: ROUND,
                    cause: undertone_party::Abort::Misuse(error.to_string()),
                })?
            }
        }
        .into_iter();
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
        let driven = drive(network, session, server, parties)?;
        Ok(RoundRun {
            clients: driven.clients,
            report: driven.report,
            kept: told.try_recv().map_or(kept, Arc::new),
            ledgers: driven.ledgers,
        })
    }
}
