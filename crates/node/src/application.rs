//! The interface between the network and an application.
//!
//! The server's half of an application implements [`Application`], the client's half
//! [`Participant`]. This crate moves their messages and enforces deadlines. It does not know what
//! they compute.
//!
//! A *job* is one run of an application: a data set labelled, or twenty rounds of an average. It
//! has one *session* or many, one after the other. A session is one run of a protocol, with one
//! party for each of its members. Clients may leave after one session and come back for a later
//! one. The two halves keep the state between sessions.

use std::fmt;
use std::sync::Arc;

use undertone_job::record::Peers;
use undertone_job::{Agreed, Entries, Job, SessionContext};
use undertone_kdf::Seed;
use undertone_party::{Abort, Aborted, Party, PartyId, Phase, SessionId};
use undertone_setup::identity::Credentials;

pub use undertone_job::{Decline, Next, Unwilling};

/// Named values for status pages and reports, in order.
pub type Facts = Entries;

/// A party's place in a session.
#[derive(Debug)]
pub struct Seat {
    /// The session.
    pub id: SessionId,
    /// The party's id.
    pub me: PartyId,
    /// The party's randomness in this session.
    pub seed: Seed,
    /// Number of the job, from 1.
    pub job: u32,
    /// Number of the session in the job, from 0. A session that is repeated keeps its number.
    pub session: u32,
    /// The clients of the party's own roster, if it has one. The record of a client compares
    /// clients by them.
    pub peers: Option<Arc<Peers>>,
}

impl Seat {
    fn context(self, credentials: Option<Credentials>) -> SessionContext {
        SessionContext {
            job: self.job,
            number: self.session,
            credentials,
            peers: self.peers,
            ..SessionContext::new(self.id, self.me, self.seed)
        }
    }
}

/// The server's half of an application: makes the server's party of each session.
///
/// It keeps its own state from session to session. With a
/// [`Checkpoint`](undertone_job::Checkpoint) the state survives a restart of the server.
pub trait Application: Send + 'static {
    /// The application's name, in job files and in offers to clients.
    const NAME: &'static str;

    /// The result of the server's party in a session.
    type Report: Send + 'static;

    /// The phases of a session, in the order in which the server enters them.
    fn phases(&self) -> Vec<Phase>;

    /// The job as it is offered to clients. [`Participant::agree`] reads it.
    fn offer(&self) -> Vec<u8>;

    /// The job's parameters, for the status page and reports.
    fn describe(&self) -> Facts;

    /// The fewest clients with which the next session begins, of a roster of `roster` clients.
    fn needed(&self, roster: usize) -> usize;

    /// Whether the next session can begin with the clients that are `present`, of which there are
    /// enough. If not, the server waits for others as it waits for missing clients.
    fn can_begin(&mut self, present: &[PartyId]) -> bool {
        let _ = present;
        true
    }

    /// Checks, before a job begins, that what it needs is there, such as a file for its state.
    ///
    /// # Errors
    /// What is not, and what to do. The server then ends.
    fn ready(&self) -> Result<(), String> {
        Ok(())
    }

    /// A new job begins. Resets the state of the last one.
    fn begin(&mut self) {}

    /// Number of the next session, from 0. It is more than 0 at the start of a job that an earlier
    /// process did not finish.
    fn session(&self) -> u32 {
        0
    }

    /// The clients that can take part in the next session, if not all can. The others wait for the
    /// next job.
    fn eligible(&self) -> Option<Vec<PartyId>> {
        None
    }

    /// The clients that take part in the next session, of those that are `present`, in ascending
    /// order. The others wait for a later session.
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

    /// A session has ended. A session that failed because clients were caught cheating is first
    /// repeated without them.
    fn ended(&mut self, session: Result<Self::Report, &Aborted>) -> Next;

    /// The results of the job so far, for the status page and reports.
    fn results(&self) -> Facts {
        Facts::new()
    }
}

/// The client's half of an application: holds the client's data and its terms.
pub trait Participant: Send {
    /// The name of the application. A client declines jobs of other applications.
    const NAME: &'static str;

    /// The result of the client's party in a session.
    type Output: Send + 'static;

    /// The parameters of the job that the server offers. The client logs them before it agrees.
    ///
    /// # Errors
    /// The part of the job that cannot be read.
    fn describe(&self, job: &[u8]) -> Result<Facts, String>;

    /// Agrees to the job that the server offers. `signed` says whether the client knows a key of
    /// every client on the roster.
    ///
    /// # Errors
    /// Why the client declines the job, and which option would change that.
    fn agree(&mut self, job: &[u8], signed: bool) -> Result<(), Decline>;

    /// The client's party in a session. With `credentials` it signs its messages of the setup.
    ///
    /// # Errors
    /// An [`Unwilling`] when the client takes no part.
    fn client(
        &mut self,
        seat: Seat,
        credentials: Option<Credentials>,
    ) -> Result<impl Party<Output = Self::Output> + 'static + use<Self>, Unwilling>;

    /// Whether a session may be repeated any number of times, because repetitions reveal nothing
    /// more. If not, [`client::Config::attempts`](crate::client::Config::attempts) limits them.
    fn may_repeat(&self) -> bool {
        false
    }

    /// A session has ended with this result.
    fn ended(&mut self, output: Self::Output) -> Next;
}

/// What somebody sees of each result of the server, and what it adds to the results of the job.
type Observe<A> = Box<dyn FnMut(&<A as undertone_job::Application>::Report) -> Facts + Send>;

/// The server's half of an application whose [job has a type](undertone_job::Application).
pub struct Served<A: undertone_job::Application> {
    application: A,
    observe: Option<Observe<A>>,
    observed: Facts,
}

impl<A: undertone_job::Application + fmt::Debug> fmt::Debug for Served<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Served").field(&self.application).finish()
    }
}

impl<A: undertone_job::Application> Served<A> {
    /// The server's half `application`.
    pub fn new(application: A) -> Self {
        Self {
            application,
            observe: None,
            observed: Facts::new(),
        }
    }

    /// Shows `observe` the result of each session. What it returns is added to the results of the
    /// job.
    #[must_use]
    pub fn observe(self, observe: impl FnMut(&A::Report) -> Facts + Send + 'static) -> Self {
        Self {
            observe: Some(Box::new(observe)),
            ..self
        }
    }
}

impl<A: undertone_job::Application> Application for Served<A> {
    const NAME: &'static str = A::Job::NAME;

    type Report = A::Report;

    fn phases(&self) -> Vec<Phase> {
        self.application.phases()
    }

    fn offer(&self) -> Vec<u8> {
        undertone_job::offer(self.application.job())
    }

    fn describe(&self) -> Facts {
        undertone_job::entries(self.application.job())
    }

    fn needed(&self, roster: usize) -> usize {
        self.application.needed(roster)
    }

    fn can_begin(&mut self, present: &[PartyId]) -> bool {
        self.application.can_begin(present)
    }

    fn ready(&self) -> Result<(), String> {
        let ready = self.application.ready();
        ready.map_err(|error| error.to_string())
    }

    fn begin(&mut self) {
        self.observed.clear();
        self.application.begin();
    }

    fn session(&self) -> u32 {
        self.application.number()
    }

    fn eligible(&self) -> Option<Vec<PartyId>> {
        self.application.eligible()
    }

    /// None if the system has no randomness.
    fn members(&mut self, present: &[PartyId]) -> Vec<PartyId> {
        match Seed::from_os() {
            Ok(seed) => self.application.members(present, &mut seed.prg()),
            Err(_) => Vec::new(),
        }
    }

    fn server(
        &mut self,
        seat: Seat,
        clients: Vec<PartyId>,
    ) -> Result<impl Party<Output = A::Report> + 'static + use<A>, Abort> {
        self.application.server(seat.context(None), clients)
    }

    fn ended(&mut self, session: Result<A::Report, &Aborted>) -> Next {
        let next = self
            .application
            .ended(session.as_ref().map_err(|aborted| *aborted));
        if let (Ok(report), Some(observe)) = (&session, &mut self.observe) {
            self.observed.extend(observe(report));
        }
        next
    }

    fn results(&self) -> Facts {
        let mut results = self.application.results();
        results.extend(self.observed.clone());
        results
    }
}

impl<P: undertone_job::Participant> Participant for Agreed<P> {
    const NAME: &'static str = P::Job::NAME;

    type Output = P::Output;

    fn describe(&self, job: &[u8]) -> Result<Facts, String> {
        self.describe(job)
    }

    fn agree(&mut self, job: &[u8], signed: bool) -> Result<(), Decline> {
        self.agree(job, signed)
    }

    fn client(
        &mut self,
        seat: Seat,
        credentials: Option<Credentials>,
    ) -> Result<impl Party<Output = P::Output> + 'static + use<P>, Unwilling> {
        self.client(seat.context(credentials))
    }

    fn may_repeat(&self) -> bool {
        self.may_repeat()
    }

    fn ended(&mut self, output: P::Output) -> Next {
        self.ended(output)
    }
}
