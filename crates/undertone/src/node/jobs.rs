//! Jobs in files and in offers, for applications that have one type for their job.

use undertone_job::{Job, Known, settle};
use undertone_node::{JobError, deadlines};

/// Reads a job file. What it leaves out is usual, or follows from what it says. `signed` says
/// whether all clients of the roster have keys.
///
/// # Errors
/// A [`JobError`] that names the key.
pub fn parse<J: Job>(text: &str, signed: bool) -> Result<J, JobError> {
    settle(deadlines::entries(text)?, Known { signed }).map_err(JobError::new)
}

/// Reads an [`offer`](undertone_job::offer).
///
/// # Errors
/// A [`JobError`] that names the key.
pub fn from_offer<J: Job>(bytes: &[u8]) -> Result<J, JobError> {
    undertone_job::from_offer(bytes).map_err(JobError::new)
}
