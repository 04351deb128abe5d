//! The client: connects, agrees to a job, takes part in it, and returns when its connection is lost.

mod connection;
mod line;
mod member;
mod reach;
mod session;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use undertone_mpc::identity::Identity;
use undertone_party::{Aborted, Ledger, PartyId, Phase};
use undertone_xclp::{Labelling, Outcome, Rows};

use crate::job::{Job, Terms};
use crate::randomness::Randomness;
use crate::roster::Roster;
use crate::server::lock;
use crate::tls::Certificate;
use crate::wire::{self, ClientSays, Goodbye};
use member::Member;

#[cfg(test)]
pub(crate) use reach::reach;

/// What a client is told.
#[derive(Clone)]
pub struct Config {
    /// `host:port` of the server.
    pub server: String,
    /// The name its certificate must bear; the host if `None`.
    pub server_name: Option<String>,
    /// Certificates (PEM) of the authorities one of which must have signed it.
    pub authorities: String,
    /// This client's name on the roster.
    pub name: String,
    /// The key by which it proves who it is.
    pub identity: Option<Identity>,
    /// A certificate by which it does, or besides.
    pub certificate: Option<Certificate>,
    /// Whether the number of classes is known, and a job that states another is declined.
    pub classes_stated: bool,
    /// Who may take part, got by another way than from the server. Where all of them have keys, clients sign what they
    /// exchange in the setup, and the server cannot take a client's place.
    pub roster: Option<Roster>,
    /// What it agrees to.
    pub terms: Terms,
    /// How long it tries to reach the server before it gives up.
    pub retry: Duration,
    /// How long it waits, once it takes part, for anything to happen.
    pub patience: Duration,
    /// Sessions it begins: each tells the server the distances anew.
    pub attempts: u32,
    /// How often a silent connection is tried; it is lost when no answer comes in twice that.
    pub keep_alive: Duration,
    /// Where randomness comes from.
    pub randomness: Randomness,
    /// Is called when the client turns to another phase, before it goes on.
    pub observer: Option<Observer>,
}

/// Is told of phases.
pub type Observer = Arc<dyn Fn(Phase) + Send + Sync>;

impl std::fmt::Debug for Config {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Config({} at {}, ..)", self.name, self.server)
    }
}

impl Config {
    /// The client `name` of the server at `server`, whose certificate one of `authorities` (PEM) has signed; everything
    /// else as is usual.
    pub fn new(server: String, authorities: String, name: String) -> Self {
        Self {
            server,
            server_name: None,
            authorities,
            name,
            identity: None,
            certificate: None,
            classes_stated: true,
            roster: None,
            terms: Terms::default(),
            retry: Duration::from_secs(60),
            patience: Duration::from_secs(900),
            attempts: 3,
            keep_alive: Duration::from_secs(10),
            randomness: Randomness::Os,
            observer: None,
        }
    }

    /// With a roster got by another way than from the server.
    #[must_use]
    pub fn with_roster(self, roster: Roster) -> Self {
        Self {
            roster: Some(roster),
            ..self
        }
    }
}

/// What a client takes home.
#[derive(Debug, Clone)]
pub struct Joined {
    /// Labels and scores.
    pub outcome: Outcome,
    /// The job it took part in.
    pub job: Job,
    /// What it cost, by frames.
    pub ledger: Ledger,
    /// Bytes that came and went by its socket, TLS and all.
    pub socket: (u64, u64),
    /// Sessions it began.
    pub sessions: u32,
    /// Connections it lost and made again in the last of them.
    pub returned: u32,
    /// From the start of the last session to its end.
    pub time: Duration,
}

/// Why a client comes home with nothing.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum JoinError {
    /// The configuration cannot be used.
    #[error("{0}")]
    Config(String),
    /// The server cannot be reached.
    #[error("cannot reach {server} for {} s: {why}", .time.as_secs())]
    Unreachable {
        /// Its address.
        server: String,
        /// For how long it was tried.
        time: Duration,
        /// What went wrong the last time.
        why: String,
    },
    /// The server is not the one that was meant.
    #[error("{server} is not trusted: {why}")]
    Untrusted {
        /// Its address.
        server: String,
        /// What is wrong with its certificate.
        why: String,
    },
    /// The server refuses this client, or does something that this client refuses.
    #[error("refused: {0}")]
    Refused(String),
    /// The job asks for more than this client allows.
    #[error("the job was declined: {0}")]
    Declined(String),
    /// The server gave up the job after it had begun.
    #[error("the job was given up: {0}")]
    Abandoned(String),
    /// The protocol ended without a result.
    #[error("{0}")]
    Aborted(#[from] Aborted),
    /// Nothing happened for too long.
    #[error("nothing happened for {} s in phase {phase}; waited for {waits_for:?}", .time.as_secs())]
    Stalled {
        /// The phase.
        phase: Phase,
        /// Whom it waited for.
        waits_for: Vec<PartyId>,
        /// For how long.
        time: Duration,
    },
    /// It was asked to stop.
    #[error("stopped")]
    Stopped,
}

/// Takes part in a job with `rows` and their labels, until it ends or `stop` comes.
///
/// # Errors
/// A [`JoinError`].
pub async fn join(
    config: &Config,
    rows: Rows,
    labelling: Labelling,
    stop: impl Future<Output = ()> + Send,
) -> Result<Joined, JoinError> {
    let member = Member::new(config, rows, labelling)?;
    let leaving = Arc::clone(&member.leaving);
    let run = member.run();
    tokio::pin!(stop, run);
    tokio::select! {
        result = &mut run => return result,
        () = stop => {}
    }
    // The others need not wait for one that says goodbye.
    leaving.flag.store(true, Ordering::Relaxed);
    let sender = lock(&leaving.outlet).take();
    if let Some(sender) = sender {
        let _ = sender.send(wire::from_client(ClientSays::Goodbye(Goodbye::default())));
        // It comes after what is on its way.
        let _ = tokio::time::timeout(Duration::from_secs(5), run).await;
    }
    Err(JoinError::Stopped)
}
