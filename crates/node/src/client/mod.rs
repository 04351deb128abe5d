//! The client: connects, agrees to a job, takes part in it, and returns after a lost connection.

mod connection;
mod line;
mod member;
mod reach;
mod session;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use undertone_job::{Agreed, Participant};
use undertone_party::{Aborted, Ledger, PartyId, Phase};
use undertone_setup::identity::Identity;

use crate::application::Decline;
use crate::erased::AnyParticipant;
use crate::randomness::Randomness;
use crate::roster::Roster;
use crate::server::{Boxed, lock};
use crate::tls::Certificate;
use crate::wire::{self, ClientSays, Goodbye};
use member::Member;

#[cfg(feature = "testing")]
pub(crate) use reach::reach;

/// The phase of a client before its first step.
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
    /// The clients that may take part, from another source than the server. If all clients of the
    /// roster have keys, they sign their messages of the setup. Then the server cannot pose as a
    /// client.
    pub roster: Option<Roster>,
    /// How long the client tries to reach the server before it gives up.
    pub retry: Duration,
    /// How long the client waits for progress in a session before it gives up. Where the server's
    /// deadline is longer, the client waits as long as the server.
    pub patience: Duration,
    /// Most sessions of the same number that the client begins, if each one reveals more of its
    /// data ([`Participant::may_repeat`]).
    pub attempts: u32,
    /// How long a connection may be silent before the client pings it. If no answer comes in the
    /// same time again, the connection is lost.
    pub keep_alive: Duration,
    /// The names of the columns of this client's data, in order, if they have names and all clients
    /// need the same. The server learns their [digest](undertone_job::columns), and refuses clients
    /// whose columns are not those of most others.
    pub columns: Vec<String>,
    /// The source of randomness.
    pub randomness: Randomness,
    /// Called when the client enters a phase. The client continues when the call returns.
    pub observer: Option<Observer>,
}

/// A function that a client calls with each phase that it enters.
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
            columns: Vec::new(),
            randomness: Randomness::Os,
            observer: None,
        }
    }

    /// Says which columns this client's data have.
    #[must_use]
    pub fn with_columns(self, columns: &[String]) -> Self {
        Self {
            columns: columns.to_vec(),
            ..self
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

/// The costs of a job for a client. Its [`Participant`] has the results.
#[derive(Debug, Clone, Default)]
pub struct Joined {
    /// The costs of the sessions that the client finished, counted in frames.
    pub ledger: Ledger,
    /// Bytes that its sockets received and sent, including TLS.
    pub socket: (u64, u64),
    /// The number of sessions that it began.
    pub sessions: u32,
    /// How often it returned to the last session after it lost its connection.
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
    #[error("cannot reach the server at {server}; gave up after {} s: {why}", .time.as_secs())]
    Unreachable {
        /// The server's address.
        server: String,
        /// How long the client tried.
        time: Duration,
        /// Why the last attempt failed.
        why: String,
    },
    /// The server's certificate cannot be trusted.
    #[error("the server at {server} is not trusted: {why}")]
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
    #[error("this client declines the job: {0}")]
    Declined(Decline),
    /// The job ended without a result after it had begun.
    #[error("the job ended without a result: {0}")]
    Abandoned(String),
    /// The protocol ended without a result.
    #[error("{0}")]
    Aborted(#[from] Aborted),
    /// The session made no progress for too long.
    #[error(
        "no progress for {} s in phase {phase}; still waiting for {waits_for:?}; \
         check these machines, or wait longer (--patience)",
        .time.as_secs()
    )]
    Stalled {
        /// The phase.
        phase: Phase,
        /// The parties that the client waited for.
        waits_for: Vec<PartyId>,
        /// How long the client waited.
        time: Duration,
    },
    /// The client was asked to stop.
    #[error("stopped")]
    Stopped,
}

/// Takes part in a job as the client `participant`, until the job ends or `stop` resolves.
///
/// # Errors
/// A [`JoinError`].
pub async fn join<P: Participant>(
    config: &Config,
    participant: &mut Agreed<P>,
    stop: impl Future<Output = ()> + Send,
) -> Result<Joined, JoinError> {
    join_any(config, participant, Box::pin(stop)).await
}

fn join_any<'a>(
    config: &'a Config,
    participant: &'a mut dyn AnyParticipant,
    stop: Boxed<'a, ()>,
) -> Boxed<'a, Result<Joined, JoinError>> {
    Box::pin(take_part(config, participant, stop))
}

async fn take_part(
    config: &Config,
    participant: &mut dyn AnyParticipant,
    stop: Boxed<'_, ()>,
) -> Result<Joined, JoinError> {
    let member = Member::new(config, participant)?;
    let leaving = Arc::clone(&member.leaving);
    let run = member.run();
    tokio::pin!(stop, run);
    tokio::select! {
        result = &mut run => return result,
        () = stop => {}
    }
    // With a goodbye, others do not wait for this client.
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
