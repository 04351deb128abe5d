//! What a client trains. The engine knows no learning library: a library implements [`Learner`].

pub use undertone_kernel::rows::Rows;

/// Why a learner refuses a request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("learner: {0}")]
pub struct LearnerError(pub String);

/// A classifier that learns in batches.
pub trait Learner: Send {
    /// Forgets what it learned, and learns from these rows. Labels are classes, counted from 0. A
    /// class may be missing among them.
    ///
    /// # Errors
    /// [`LearnerError`] when it cannot learn from these rows.
    fn fit(&mut self, rows: Rows<'_>, labels: &[u16]) -> Result<(), LearnerError>;

    /// The class of each row.
    ///
    /// # Errors
    /// [`LearnerError`] when it has not learned anything, or the rows have another dimension.
    fn predict(&self, rows: Rows<'_>) -> Result<Vec<u16>, LearnerError>;
}
