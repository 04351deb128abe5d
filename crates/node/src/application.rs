//! The seam between the network and what runs on it: an application and its participants.
//!
//! The server's half of an application implements [`Application`], the client's half
//! [`Participant`]. This crate moves their messages, holds them to their deadlines, and knows
//! nothing of what they compute.
//!
//! A *job* is what an application is for: a data set labelled, or twenty rounds of an average. It
//! is one *session* or many, one after the other. A session is one run of a protocol, with one
//! party for each of its members. Clients may leave after one session and come to a later one. What
//! is kept from session to session is the state of the two halves.

use indexmap::IndexMap;
use serde_json::Value;
use undertone_kdf::Seed;
use undertone_party::{Abort, Aborted, Party, PartyId, Phase, SessionId};
use undertone_setup::identity::Credentials;

/// Named values for people and reports, in order.
pub type Facts = IndexMap<String, Value>;

/// A party's place in a session.
#[derive(Debug)]
pub struct Seat {
    /// The session.
    pub id: SessionId,
    /// Who the party is.
    pub me: PartyId,
    /// The party's randomness in this session.
    pub seed: Seed,
    /// Number of the job, from 1.
    pub job: u32,
    /// Number of the session in the job, from 0. A session that is repeated keeps its number.
    pub session: u32,
}

/// What follows a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Another session of the same job.
    Again,
    /// Nothing: the job is over.
    Done,
}

/// The server's half of an application: runs the server's side of its sessions.
///
/// It keeps its own state from session to session. To survive the server's end, it writes a
/// [`Checkpoint`](crate::Checkpoint).
pub trait Application: Send + 'static {
    /// The application's name, in job files and in what clients are offered.
    const NAME: &'static str;

    /// What the server's party comes to in a session.
    type Report: Send + 'static;

    /// The phases of a session, in the order in which the server enters them.
    fn phases(&self) -> Vec<Phase>;

    /// The job as clients are offered it. [`Participant::agree`] reads it.
    fn offer(&self) -> Vec<u8>;

    /// The job's parameters, for the status page and reports.
    fn describe(&self) -> Facts;

    /// Fewest clients with which the next session begins, of a roster of so many.
    fn needed(&self, roster: usize) -> usize;

    /// A new job begins. It forgets the last one.
    fn begin(&mut self) {}

    /// Number of the next session, from 0. More than 0 where a job begins that an earlier process
    /// has not finished.
    fn session(&self) -> u32 {
        0
    }

    /// Who takes part in the next session, of the clients that are `present`, in ascending order.
    /// The others wait for the next session.
    fn members(&mut self, present: &[PartyId]) -> Vec<PartyId> {
        present.to_vec()
    }

    /// The server's party in a session with `clients`.
    ///
    /// # Errors
    /// An [`Abort`] when the session cannot begin.
    fn server(
        &mut self,
        seat: Seat,
        clients: Vec<PartyId>,
    ) -> Result<impl Party<Output = Self::Report> + 'static + use<Self>, Abort>;

    /// A session has ended. Sessions that failed because of clients that were caught cheating are
    /// repeated first, without them.
    fn ended(&mut self, session: Result<Self::Report, &Aborted>) -> Next;

    /// What the job has come to so far, for the status page and reports.
    fn results(&self) -> Facts {
        Facts::new()
    }
}

/// The client's half of an application: holds the client's data and its terms.
pub trait Participant: Send {
    /// The name of the application. A client declines the jobs of all others.
    const NAME: &'static str;

    /// What the client's party comes to in a session.
    type Output: Send + 'static;

    /// The parameters of the job that the server offers, for people to read before the client
    /// agrees.
    ///
    /// # Errors
    /// What cannot be read.
    fn describe(&self, job: &[u8]) -> Result<Facts, String>;

    /// Agrees to the job that the server offers, or says why not. `signed` says whether the client
    /// knows a key of every client on the roster.
    ///
    /// # Errors
    /// What the client does not agree to, and what changes that.
    fn agree(&mut self, job: &[u8], signed: bool) -> Result<(), String>;

    /// The client's party in a session. With `credentials` it signs what it exchanges in the setup.
    ///
    /// # Errors
    /// An [`Unwilling`] when the client takes no part.
    fn client(
        &mut self,
        seat: Seat,
        credentials: Option<Credentials>,
    ) -> Result<impl Party<Output = Self::Output> + 'static + use<Self>, Unwilling>;

    /// Whether a session may be repeated any number of times, because that tells others nothing
    /// more. If not, the client begins it as often as its configuration says.
    fn may_repeat(&self) -> bool {
        false
    }

    /// A session has ended, and this is what it came to.
    fn ended(&mut self, output: Self::Output) -> Next;
}

/// Why a client takes no part in a session.
#[derive(Debug)]
pub enum Unwilling {
    /// It does without this session, and waits for the next one. The server and the other clients
    /// are told why.
    Skips(String),
    /// It leaves the job.
    Leaves(Abort),
}

impl From<Abort> for Unwilling {
    fn from(cause: Abort) -> Self {
        Self::Leaves(cause)
    }
}
