//! What a client of a job keeps between sessions.

use std::fmt;
use std::sync::Arc;

use crate::ballots::Labels;
use crate::data::{Data, Public};
use crate::job::Job;
use crate::learner::{Learner, LearnerError};

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

/// What a client keeps between sessions.
#[derive(Debug)]
pub(crate) struct ClientState {
    pub(crate) inputs: Inputs,
    /// The last two exchanges whose consensus the client has, and the consensus.
    pub(crate) known: Vec<(u32, Labels)>,
}

impl From<Inputs> for ClientState {
    fn from(inputs: Inputs) -> Self {
        let known = Vec::new();
        Self { inputs, known }
    }
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
