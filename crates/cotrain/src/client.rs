//! A client of a job, between sessions.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use undertone_job::record::{Record, RecordError};
use undertone_kdf::Seed;
use undertone_party::{Abort, PartyId, Script, SessionId};
use undertone_setup::identity::Credentials;
use undertone_sum::Trust;

use crate::CONSENSUS;
use crate::ballots::Labels;
use crate::data::{Data, Public};
use crate::job::Job;
use crate::learner::{Learner, LearnerError};
use crate::session::Session;

/// A client of a job: its learner, its data, and the record of what they have answered.
#[derive(Debug, Clone)]
pub struct Client(Arc<Shared>);

/// The state that the parties of a client's sessions share. A party of an earlier session may still
/// run when the next one begins.
#[derive(Debug)]
struct Shared {
    desk: Mutex<Desk>,
    record: Record,
    /// The number of parties created. Only the last one may use the desk.
    parties: AtomicU64,
}

pub(crate) struct Desk {
    pub(crate) learner: Box<dyn Learner>,
    data: Data,
    pub(crate) public: Arc<Public>,
    /// The last two exchanges whose consensus the client has, and the consensus.
    pub(crate) known: Vec<(u32, Labels)>,
}

impl fmt::Debug for Desk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Desk")
            .field("data", &self.data)
            .field("public", &self.public)
            .finish_non_exhaustive()
    }
}

/// A client's place in a session.
#[derive(Debug)]
pub struct Place {
    /// The session.
    pub session: SessionId,
    /// The client.
    pub me: PartyId,
    /// The client's randomness.
    pub seed: Seed,
    /// With credentials the client signs its keys and checks all signatures.
    pub credentials: Option<Credentials>,
    /// Whether the client takes part where a consensus needs all votes and so tells them.
    pub allow_unanimous: bool,
}

/// The result of a session for a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// An exchange is finished.
    Voted {
        /// Its number, from 1.
        number: u32,
        /// The consensus.
        labels: Labels,
    },
    /// The job is over. The learner has learned from the client's rows and from this consensus.
    Over(Option<Labels>),
}

impl Client {
    /// A client with this learner and these rows, whose answers are in `record`.
    pub fn new(learner: Box<dyn Learner>, data: Data, public: Arc<Public>, record: Record) -> Self {
        let desk = Desk {
            learner,
            data,
            public,
            known: Vec::new(),
        };
        Self(Arc::new(Shared {
            desk: Mutex::new(desk),
            record,
            parties: AtomicU64::new(0),
        }))
    }

    /// Checks that the client's rows and the public rows fit a job.
    ///
    /// # Errors
    /// What differs, and what to do.
    pub fn check(&self, job: &Job) -> Result<(), String> {
        lock(&self.0.desk).fits(job)
    }

    /// The number of the last exchange in which the client voted.
    ///
    /// # Errors
    /// The record cannot be read.
    pub fn last(&self) -> Result<u32, RecordError> {
        self.0.record.last_vote()
    }

    pub(crate) fn record(&self) -> &Record {
        &self.0.record
    }

    /// Uses the learner. Waits while a session uses it.
    pub fn with_learner<T>(&self, use_it: impl FnOnce(&mut dyn Learner) -> T) -> T {
        use_it(&mut *lock(&self.0.desk).learner)
    }

    /// The client's party in a session of `job`. Parties of earlier sessions can do nothing more.
    ///
    /// # Errors
    /// [`Abort::Misuse`] when the job is impossible, or the client's rows do not fit it.
    pub fn party(&self, job: Job, place: Place) -> Result<Script<'static, Step>, Abort> {
        job.check().map_err(Abort::Misuse)?;
        if job.trust == Trust::MaliciousServer && place.credentials.is_none() {
            return Err(Abort::Misuse(
                "a job against a malicious server needs clients with credentials".into(),
            ));
        }
        let party = self.0.parties.fetch_add(1, Ordering::SeqCst) + 1;
        self.desk(party)?.fits(&job).map_err(Abort::Misuse)?;
        // Boxed: a future that moves leaves no copies of the secrets behind.
        let session = Box::new(Session {
            client: self.clone(),
            party,
            job,
            place,
        });
        Ok(Script::new(CONSENSUS, move |io| session.run(io)))
    }

    /// The desk, for party number `party`.
    pub(crate) fn desk(&self, party: u64) -> Result<MutexGuard<'_, Desk>, Abort> {
        let desk = lock(&self.0.desk);
        if self.0.parties.load(Ordering::SeqCst) == party {
            Ok(desk)
        } else {
            Err(Abort::Misuse("another session has begun".into()))
        }
    }
}

impl Desk {
    fn fits(&self, job: &Job) -> Result<(), String> {
        let (own, public) = (self.data.rows(), self.public.rows());
        let pairs = [
            ("features of the client's rows", own.dim, job.features),
            ("features of the public rows", public.dim, job.features),
            ("public rows", public.len(), job.rows),
        ];
        for (what, have, due) in pairs {
            if have != due {
                return Err(format!("{what}: {have}, the job has {due}"));
            }
        }
        if self.public.digest() != job.public {
            return Err(
                "the public rows differ from the job's, or their order does; ask for the job's \
                 file"
                    .into(),
            );
        }
        Ok(())
    }

    /// Learns from the client's rows and the consensus.
    pub(crate) fn learn(&mut self, labels: Option<&Labels>) -> Result<(), LearnerError> {
        let none = Vec::new();
        let (values, classes) = self.data.with(&self.public, labels.unwrap_or(&none));
        let rows = crate::Rows {
            dim: self.public.rows().dim,
            values: &values,
        };
        self.learner.fit(rows, &classes)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
