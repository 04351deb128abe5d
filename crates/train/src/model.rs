//! The model that clients train. The engine knows no machine-learning framework: a framework
//! implements [`Model`].

use std::fmt;

use undertone_kdf::Seed;
pub use undertone_kernel::rows::Rows;

/// Why a model refuses a request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("model: {0}")]
pub struct ModelError(pub String);

/// What a row is trained towards.
#[derive(Clone, Copy, PartialEq)]
pub struct Target {
    /// The row.
    pub row: usize,
    /// Its class.
    pub class: u16,
    /// The weight of its loss: 1 for labels, the confidence for pseudo-labels.
    pub weight: f32,
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Target(row {}, ..)", self.row)
    }
}

/// A client's examples of one round.
#[derive(Debug, Clone, Copy)]
pub struct Examples<'a> {
    /// All rows of the client.
    pub rows: Rows<'a>,
    /// The rows with labels, each of weight 1.
    pub labelled: &'a [Target],
    /// The rows with pseudo-labels of a weight above 0.
    pub pseudo: &'a [Target],
}

/// How a client trains in one round.
#[derive(Debug)]
pub struct Schedule {
    /// Passes over the rows: over those with pseudo-labels if there are any, else over the labels.
    pub epochs: usize,
    /// Rows with labels in a batch.
    pub labelled: usize,
    /// Rows with pseudo-labels in a batch.
    pub pseudo: usize,
    /// The learning rate of plain stochastic gradient descent.
    pub learning_rate: f32,
    /// The decay of weights.
    pub weight_decay: f32,
    /// For models with a mean teacher: the weight of the consistency loss in this round.
    pub consistency: f32,
    /// The randomness of batches and augmentations.
    pub seed: Seed,
}

/// A model that can be trained, and whose inner layer gives each row an embedding.
///
/// The parameters travel as one vector. A model with a mean teacher has the parameters of the
/// student, then those of the teacher. Buffers of normalisation layers are parameters, too.
pub trait Model: Send {
    /// All parameters.
    fn params(&self) -> Vec<f32>;

    /// Replaces all parameters.
    ///
    /// # Errors
    /// [`ModelError`] when their number is wrong.
    fn set_params(&mut self, params: &[f32]) -> Result<(), ModelError>;

    /// The embedding of each row, without augmentation.
    ///
    /// # Errors
    /// [`ModelError`] when the rows do not fit the model.
    fn embed(&mut self, rows: Rows<'_>) -> Result<Embeddings, ModelError>;

    /// The probability of each class for each row, without augmentation: as many values for each
    /// row as there are classes. A model with a mean teacher asks the teacher.
    ///
    /// # Errors
    /// [`ModelError`] when the rows do not fit the model.
    fn predict(&mut self, rows: Rows<'_>) -> Result<Vec<f32>, ModelError>;

    /// Trains on the batches of `schedule`. The loss of a batch is the sum of each row's
    /// cross-entropy times its weight, divided by the number of rows in the batch.
    ///
    /// # Errors
    /// [`ModelError`] when the rows do not fit the model.
    fn update(&mut self, examples: &Examples<'_>, schedule: &Schedule) -> Result<(), ModelError>;
}

/// Embeddings of rows, one after the other.
#[derive(Clone, PartialEq)]
pub struct Embeddings {
    /// The number of values of an embedding.
    pub dim: usize,
    /// All values.
    pub values: Vec<f32>,
}

impl fmt::Debug for Embeddings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Embeddings({} values, dim {}, ..)",
            self.values.len(),
            self.dim
        )
    }
}
