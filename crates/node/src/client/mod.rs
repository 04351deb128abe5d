//! The client: connects, agrees to a job, takes part in it, and returns when it was cut off.

mod connection;
mod line;
mod member;
mod reach;
mod session;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use undertone_party::{Aborted, Ledger, PartyId, Phase};
use undertone_setup::identity::Identity;

use crate::application::Participant;
use crate::randomness::Randomness;
use crate::roster::Roster;
use crate::server::lock;
use crate::tls::Certificate;
use crate::wire::{self, ClientSays, Goodbye};
use member::Member;

#[cfg(feature = "testing")]
pub(crate) use reach::reach;

/// Where a client is that has not taken its first step.
const START: Phase = Phase {
    id: 0,
    name: "start",
};

/// The settings of a client.
#[derive(Clone)]
pub struct Config {
    /// `host:port` of the server.
    pub server: String,
    /// The name that the server's certificate must have. `None` for the host in `server`.
    pub server_name: Option<String>,
    /// Certificates (PEM) of authorities, one of which must have signed the server's certificate.
    pub authorities: String,
    /// This client's name on the roster.
    pub name: String,
    /// The key with which the client proves who it is.
    pub identity: Option<Identity>,
    /// A certificate that proves who the client is, instead of the key or as well.
    pub certificate: Option<Certificate>,
    /// Who may take part, from another source than the server. If all clients of the roster have
    /// keys, they sign what they exchange in the setup, and the server cannot pose as a client.
    pub roster: Option<Roster>,
    /// How long the client tries to reach the server before it gives up.
    pub retry: Duration,
    /// How long the client waits for progress in a session before it gives up.
    pub patience: Duration,
    /// How often the client begins a session of the same number, if each time tells others more.
    pub attempts: u32,
    /// How long a connection may be silent before the client pings it. Without an answer in the
    /// same time again, it is lost.
    pub keep_alive: Duration,
    /// The source of randomness.
    pub randomness: Randomness,
    /// Is called when the client enters a phase. The client continues when the call returns.
    pub observer: Option<Observer>,
}

/// Is called with each phase that a client enters.
pub type Observer = Arc<dyn Fn(Phase) + Send + Sync>;

impl std::fmt::Debug for Config {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Config({} at {}, ..)", self.name, self.server)
    }
}

impl Config {
    /// The client `name` of the server at `server`. One of `authorities` (PEM) must have signed the
    /// server's certificate. Everything else has its default.
    pub fn new(server: String, authorities: String, name: String) -> Self {
        Self {
            server,
            server_name: None,
            authorities,
            name,
            identity: None,
            certificate: None,
            roster: None,
            retry: Duration::from_secs(60),
            patience: Duration::from_secs(900),
            attempts: 3,
            keep_alive: Duration::from_secs(10),
            randomness: Randomness::Os,
            observer: None,
        }
    }

    /// Adds a roster from another source than the server.
    #[must_use]
    pub fn with_roster(self, roster: Roster) -> Self {
        Self {
            roster: Some(roster),
            ..self
        }
    }
}

/// What taking part in a job has cost a client. What the job has come to, its participant knows.
#[derive(Debug, Clone, Default)]
pub struct Joined {
    /// What the sessions that the client finished cost, counted in frames.
    pub ledger: Ledger,
    /// Bytes that its sockets received and sent, including TLS.
    pub socket: (u64, u64),
    /// How many sessions it began.
    pub sessions: u32,
    /// How often it lost its connection and returned in the last session.
    pub returned: u32,
    /// Time from the start of the last session to its end.
    pub time: Duration,
}

/// Why a client has no result.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum JoinError {
    /// The configuration cannot be used.
    #[error("{0}")]
    Config(String),
    /// The server cannot be reached.
    #[error("cannot reach {server} for {} s: {why}", .time.as_secs())]
    Unreachable {
        /// The server's address.
        server: String,
        /// How long the client tried.
        time: Duration,
        /// What went wrong at the last attempt.
        why: String,
    },
    /// The server cannot prove that it is the right one.
    #[error("{server} is not trusted: {why}")]
    Untrusted {
        /// The server's address.
        server: String,
        /// What is wrong with its certificate.
        why: String,
    },
    /// The server refuses this client, or does something that this client refuses.
    #[error("refused: {0}")]
    Refused(String),
    /// The job does not meet this client's terms.
    #[error("the job was declined: {0}")]
    Declined(String),
    /// The server gave up the job after it had begun.
    #[error("the job was given up: {0}")]
    Abandoned(String),
    /// The protocol ended without a result.
    #[error("{0}")]
    Aborted(#[from] Aborted),
    /// The session made no progress for too long.
    #[error(
        "no progress for {} s in phase {phase}; still waiting for {waits_for:?}",
        .time.as_secs()
    )]
    Stalled {
        /// The phase.
        phase: Phase,
        /// The parties it waited for.
        waits_for: Vec<PartyId>,
        /// How long it waited.
        time: Duration,
    },
    /// The client was asked to stop.
    #[error("stopped")]
    Stopped,
}

/// Takes part in a job as `participant`, until the job ends or `stop` resolves.
///
/// # Errors
/// A [`JoinError`].
pub async fn join<P: Participant>(
    config: &Config,
    participant: &mut P,
    stop: impl Future<Output = ()> + Send,
) -> Result<Joined, JoinError> {
    let member = Member::new(config, participant)?;
    let leaving = Arc::clone(&member.leaving);
    let run = member.run();
    tokio::pin!(stop, run);
    tokio::select! {
        result = &mut run => return result,
        () = stop => {}
    }
    // Others need not wait for a client that says goodbye.
    leaving.flag.store(true, Ordering::Relaxed);
    let sender = lock(&leaving.outlet).take();
    if let Some(sender) = sender {
        let _ = sender.send(wire::from_client(ClientSays::Goodbye(Goodbye {
            why: "it was asked to stop".into(),
            ..Goodbye::default()
        })));
        // The goodbye follows what is already on its way.
        let _ = tokio::time::timeout(Duration::from_secs(5), run).await;
    }
    Err(JoinError::Stopped)
}
