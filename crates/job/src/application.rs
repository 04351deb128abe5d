//! The two halves of an application.
//!
//! A *job* is one run of an application: a data set labelled, or twenty rounds of an average. It
//! has one *session* or many, one after the other. A session is one run of a protocol, with one
//! party for each of its members. Clients may leave after one session and come back for a later
//! one. The two halves keep the state between sessions.
//!
//! A [`Simulation`](crate::Simulation) drives both halves in memory. `undertone-node` drives them
//! on a network.

use std::path::Path;

use undertone_kernel::Prg;
use undertone_party::{Abort, Aborted, PartyId, Phase, Script};

#[cfg(doc)]
use crate::Record;
use crate::checkpoint::Checkpoint;
use crate::session::{Next, SessionContext, Unwilling};
use crate::settle::{Entries, Job};
use crate::state_file::StateError;
use crate::terms::Terms;

/// The server's half of an application: makes the server's party of each session.
pub trait Application: Send + 'static {
    /// The job.
    type Job: Job;

    /// The result of the server's party in a session.
    type Report: Send + 'static;

    /// The job that clients are offered.
    fn job(&self) -> &Self::Job;

    /// The phases of a session, in the order in which the server enters them.
    fn phases(&self) -> Vec<Phase>;

    /// Keeps the state of the job in the file `path`, and continues the job in that file. The file
    /// is removed when the job is done.
    ///
    /// # Errors
    /// A [`StateError`] when the file cannot be used, or jobs keep no state.
    fn restore(&mut self, path: &Path) -> Result<(), StateError> {
        Err(Checkpoint::none(path, Self::Job::NAME))
    }

    /// Checks, before a job begins, that its state can be kept.
    ///
    /// # Errors
    /// Why not, and what to do. The server then ends.
    fn ready(&self) -> Result<(), StateError> {
        Ok(())
    }

    /// The fewest clients with which the next session begins, of a roster of `roster` clients.
    fn needed(&self, roster: usize) -> usize;

    /// Whether the next session can begin with the clients that are `present`, of which there are
    /// enough.
    fn can_begin(&mut self, present: &[PartyId]) -> bool {
        let _ = present;
        true
    }

    /// A new job begins. Resets the state of the last one.
    fn begin(&mut self) {}

    /// Number of the next session, from 0. It is more than 0 at the start of a job that an earlier
    /// process did not finish.
    fn number(&self) -> u32 {
        0
    }

    /// The clients that can take part in the next session, if not all can.
    fn eligible(&self) -> Option<Vec<PartyId>> {
        None
    }

    /// The clients that take part in the next session, of those that are `present`, in ascending
    /// order. `draws` is for chance.
    fn members(&mut self, present: &[PartyId], draws: &mut Prg) -> Vec<PartyId> {
        let _ = draws;
        present.to_vec()
    }

    /// The server's party in a session with `clients`.
    ///
    /// # Errors
    /// An [`Abort`] when the session cannot begin.
    fn server(
        &mut self,
        at: SessionContext,
        clients: Vec<PartyId>,
    ) -> Result<Script<'static, Self::Report>, Abort>;

    /// A session has ended.
    fn ended(&mut self, report: Result<&Self::Report, &Aborted>) -> Next;

    /// The results of the job so far, for the status page and reports.
    fn results(&self) -> Entries {
        Entries::new()
    }
}

/// The client's half of an application: holds the client's data and its terms.
///
/// [`Agreed`](crate::Agreed) is such a client at any door. It checks the terms, keeps to one job,
/// and gives sessions the client's record.
pub trait Participant: Send + 'static {
    /// The job.
    type Job: Job;

    /// What the client agrees to.
    type Terms: Terms<Self::Job>;

    /// The result of the client's party in a session.
    type Output: Send + 'static;

    /// The client's terms.
    fn terms(&self) -> &Self::Terms;

    /// Makes what the client needs for `job`, such as its rows. The job meets the terms. It is
    /// called once if it succeeds.
    ///
    /// # Errors
    /// Why what the client has does not fit the job. The text stays at the client.
    fn prepare(&mut self, job: &Self::Job) -> Result<(), String>;

    /// The digests by which the record knows the client's rows, as they were loaded. None where
    /// whoever loads them [says so](Record::bring).
    fn rows(&self) -> Option<Vec<[u8; 32]>> {
        None
    }

    /// The client's party in a session of `job`, for which it is prepared.
    ///
    /// # Errors
    /// An [`Unwilling`] when the client takes no part.
    fn client(
        &mut self,
        job: &Self::Job,
        at: SessionContext,
    ) -> Result<Script<'static, Self::Output>, Unwilling>;

    /// Whether a session may be repeated any number of times, because repetitions reveal nothing
    /// more.
    fn may_repeat(&self) -> bool {
        false
    }

    /// A session has ended with this result.
    fn ended(&mut self, output: &Self::Output) -> Next;
}
