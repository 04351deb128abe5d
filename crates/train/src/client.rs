//! What a client of a job keeps between sessions.

use std::fmt;
use std::sync::Arc;

use crate::data::Data;
use crate::job::Job;
use crate::model::Model;

/// What a client brings to a job.
pub struct Inputs {
    /// The model. Its parameters are those of the server in each round.
    pub model: Box<dyn Model>,
    /// Rows, divided by the job's scale, and labels.
    pub data: Data,
}

impl fmt::Debug for Inputs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inputs")
            .field("data", &self.data)
            .finish_non_exhaustive()
    }
}

impl Inputs {
    /// Checks that the rows and the model fit a job.
    ///
    /// # Errors
    /// What differs.
    pub fn check(&self, job: &Job) -> Result<(), String> {
        check(&*self.model, &self.data, job)
    }
}

fn check(model: &dyn Model, data: &Data, job: &Job) -> Result<(), String> {
    let pairs = [
        ("features", data.rows().dim, job.features),
        ("classes", data.labelling().classes(), job.classes),
        ("model parameters", model.params().len(), job.parameters),
    ];
    for (what, have, due) in pairs {
        if have != due {
            return Err(format!("{what}: {have}, the job has {due}"));
        }
    }
    Ok(())
}

/// What a client keeps between sessions.
pub(crate) struct ClientState {
    pub(crate) model: Box<dyn Model>,
    pub(crate) data: Arc<Data>,
}

impl fmt::Debug for ClientState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientState")
            .field("data", &self.data)
            .finish_non_exhaustive()
    }
}

impl From<Inputs> for ClientState {
    fn from(Inputs { model, data }: Inputs) -> Self {
        let data = Arc::new(data);
        Self { model, data }
    }
}

impl ClientState {
    pub(crate) fn check(&self, job: &Job) -> Result<(), String> {
        check(&*self.model, &self.data, job)
    }
}

/// The result of a session for a client.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// The job has begun.
    Counted,
    /// A round is finished.
    Trained(Trained),
    /// The job is over. The client has the final model.
    Over(Vec<f32>),
}

/// What a client did in a round.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trained {
    /// The number of the round.
    pub number: u32,
    /// The number of rows with a pseudo-label.
    pub pseudo: usize,
    /// The number of changes that were clipped.
    pub clipped: usize,
    /// Whether the update had values that are no numbers. The client then contributed no change: to
    /// leave the round would tell the server.
    pub diverged: bool,
    /// What another client's number of rows means for this client's embeddings: see
    /// [`rows_warning`](undertone_label::rows_warning).
    pub warning: Option<String>,
}
