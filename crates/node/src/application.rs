//! What runs on the network: the server's half of an application, and a client that agrees.
//!
//! Both halves are those of [`undertone_job`]: [`Application`] and [`undertone_job::Participant`].
//! This crate moves their messages and enforces deadlines. It does not know what they compute.

use std::fmt;

use undertone_job::{Application, Entries, offer};
use undertone_party::Phase;

pub use undertone_job::{Decline, Next, Unwilling};

/// Named values for status pages and reports, in order.
pub type Facts = Entries;

/// What somebody sees of each result of the server, and what it adds to the results of the job.
type Observe<A> = Box<dyn FnMut(&<A as Application>::Report) -> Facts + Send>;

/// The server's half of an application, for a network.
pub struct Served<A: Application> {
    pub(crate) application: A,
    pub(crate) observe: Option<Observe<A>>,
    pub(crate) observed: Facts,
}

impl<A: Application + fmt::Debug> fmt::Debug for Served<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Served").field(&self.application).finish()
    }
}

impl<A: Application> Served<A> {
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

    /// The phases of a session, in the order in which the server enters them.
    pub fn phases(&self) -> Vec<Phase> {
        self.application.phases()
    }

    /// The job as it is offered to clients.
    pub fn offer(&self) -> Vec<u8> {
        offer(self.application.job())
    }
}
