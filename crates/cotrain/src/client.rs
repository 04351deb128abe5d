//! What a client of a job keeps between sessions.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use undertone_job::SessionContext;
use undertone_party::{Abort, Script};
use undertone_sum::Trust;

use crate::CONSENSUS;
use crate::ballots::Labels;
use crate::data::{Data, Public};
use crate::job::Job;
use crate::learner::{Learner, LearnerError};
use crate::session::Session;

/// What a client brings to a job.
pub struct Inputs {
    /// The learner.
    pub learner: Box<dyn Learner>,
    /// The client's own rows, prepared as the job says.
    pub data: Data,
    /// The public rows, prepared as the job says.
    pub public: Arc<Public>,
}

impl fmt::Debug for Inputs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inputs")
            .field("data", &self.data)
            .field("public", &self.public)
            .finish_non_exhaustive()
    }
}

impl Inputs {
    /// Checks that the rows fit a job.
    ///
    /// # Errors
    /// What differs, and what to do.
    pub fn check(&self, job: &Job) -> Result<(), String> {
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

    /// The learner's votes: a class for each public row.
    pub(crate) fn predict(&self) -> Result<Vec<u16>, LearnerError> {
        self.learner.predict(self.public.rows())
    }
}

/// The state that the parties of a client's sessions share. A party of an earlier session may still
/// run when the next one begins.
#[derive(Debug)]
pub(crate) struct Shared {
    state: Mutex<ClientState>,
    /// The number of parties created. Only the last one may use the state.
    parties: AtomicU64,
}

#[derive(Debug)]
pub(crate) struct ClientState {
    pub(crate) inputs: Inputs,
    /// The last two exchanges whose consensus the client has, and the consensus.
    pub(crate) known: Vec<(u32, Labels)>,
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

impl Shared {
    pub(crate) fn new(inputs: Inputs) -> Self {
        Self {
            state: Mutex::new(ClientState {
                inputs,
                known: Vec::new(),
            }),
            parties: AtomicU64::new(0),
        }
    }

    pub(crate) fn check(&self, job: &Job) -> Result<(), String> {
        self.lock().inputs.check(job)
    }

    fn lock(&self) -> MutexGuard<'_, ClientState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn with_learner<T>(&self, use_it: impl FnOnce(&mut dyn Learner) -> T) -> T {
        use_it(&mut *self.lock().inputs.learner)
    }

    /// The state, for party number `party`.
    pub(crate) fn state(&self, party: u64) -> Result<MutexGuard<'_, ClientState>, Abort> {
        let state = self.lock();
        if self.parties.load(Ordering::SeqCst) == party {
            Ok(state)
        } else {
            Err(Abort::Misuse("another session has begun".into()))
        }
    }

    /// The client's party in a session of `job`. Parties of earlier sessions can do nothing more.
    /// `allow_unanimous` says whether the client takes part where a consensus needs all votes and
    /// so tells them.
    pub(crate) fn party(
        self: &Arc<Self>,
        job: &Job,
        at: SessionContext,
        allow_unanimous: bool,
    ) -> Result<Script<'static, Step>, Abort> {
        job.check().map_err(Abort::Misuse)?;
        if job.trust == Trust::MaliciousServer && at.credentials.is_none() {
            return Err(Abort::Misuse(
                "a job against a malicious server needs clients with credentials".into(),
            ));
        }
        let party = self.parties.fetch_add(1, Ordering::SeqCst) + 1;
        self.check(job).map_err(Abort::Misuse)?;
        // Boxed: a future that moves leaves no copies of the secrets behind.
        let session = Box::new(Session {
            client: Arc::clone(self),
            party,
            job: job.clone(),
            at,
            allow_unanimous,
        });
        Ok(Script::new(CONSENSUS, move |io| session.run(io)))
    }
}
