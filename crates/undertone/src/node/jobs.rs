//! Jobs in files and in offers, for applications that have one type for their job.

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

/// Reads an [`offer`](undertone_job::offer).
///
/// # Errors
/// A [`JobError`], as of [`parse`], and for an offer that is longer than a job file may be.
pub fn from_offer<J: Job>(bytes: &[u8]) -> Result<J, JobError> {
    if bytes.len() > deadlines::MAX_FILE {
        return Err(JobError::new(format!(
            "the offer is longer than {} bytes",
            deadlines::MAX_FILE
        )));
    }
    undertone_job::from_offer(bytes).map_err(JobError::new)
}

#[cfg(test)]
mod tests {
    use undertone_job::offer;
    use undertone_pssl::Job;

    use super::*;

    #[test]
    fn offers_are_no_longer_than_job_files() {
        let mut bytes = offer(&Job::new(8, 16, 3, 70));
        assert!(from_offer::<Job>(&bytes).is_ok());
        bytes.resize(deadlines::MAX_FILE, b'\n');
        assert!(from_offer::<Job>(&bytes).is_ok());
        bytes.push(b'\n');
        let error = from_offer::<Job>(&bytes).unwrap_err().to_string();
        assert!(error.contains("longer than 65536 bytes"), "{error}");
    }
}
