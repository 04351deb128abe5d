//! Jobs in files, for applications that have one type for their job.

use undertone_job::{Job, Known, settle};
use undertone_node::{JobError, deadlines};

/// Reads a job file. What it leaves out is usual, or follows from what it says. `signed` says
/// whether all clients of the roster have keys.
///
/// # Errors
/// A [`JobError`] that says what is wrong. It names the key if one key is wrong.
pub fn parse<J: Job>(text: &str, signed: bool) -> Result<J, JobError> {
    settle(deadlines::entries(text)?, Known { signed }).map_err(JobError::new)
}
