//! Jobs in files.

use undertone_job::{Job, Known, settle};
use undertone_node::{JobError, deadlines};

/// Reads a job file. What it leaves out is usual, or follows from what it says and from what is
/// `known`.
///
/// # Errors
/// A [`JobError`] that says what is wrong. It names the key if one key is wrong.
pub fn parse<J: Job>(text: &str, known: Known<'_>) -> Result<J, JobError> {
    settle(deadlines::entries(text)?, known).map_err(JobError::new)
}
