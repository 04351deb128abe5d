//! Why a command fails.

use std::fmt::Display;
use std::path::Path;

use undertone::data::DataError;
use undertone::job::simulation::SimulationError;
use undertone::label::RunError;
use undertone::party::Aborted;

/// Why the command fails: a message and an exit code.
#[derive(Debug)]
pub struct Failure {
    /// The exit code.
    pub code: u8,
    /// What happened, where, and what to do.
    pub message: String,
}

impl Failure {
    /// A failure with this exit code.
    pub fn new(code: u8, message: impl Display) -> Self {
        Self {
            code,
            message: message.to_string(),
        }
    }

    /// Wrong arguments: exit code 2.
    pub fn usage(message: impl Display) -> Self {
        Self::new(2, message)
    }

    /// Unusable data: exit code 65.
    pub fn data(message: impl Display) -> Self {
        Self::new(65, message)
    }

    /// Unusable data in the file `path`: exit code 65.
    pub fn in_file(path: &Path, error: impl Display) -> Self {
        Self::data(format!("{}: {error}", path.display()))
    }

    /// An input file: exit code 66 if it cannot be read, 65 if it cannot be used.
    pub fn file(path: &Path, error: &DataError) -> Self {
        let code = if matches!(error, DataError::Unreadable(_)) {
            66
        } else {
            65
        };
        Self::new(code, format!("{}: {error}", path.display()))
    }

    /// An aborted protocol: exit code 70.
    pub fn aborted(message: impl Display) -> Self {
        Self::new(70, message)
    }

    /// What this side does not agree to: exit code 77.
    pub fn declined(message: impl Display) -> Self {
        Self::new(77, message)
    }

    /// An output that cannot be written: exit code 73.
    pub fn unwritable(path: &Path, error: impl Display) -> Self {
        Self::new(73, format!("cannot write {}: {error}", path.display()))
    }

    /// The failure, with the option that named the file.
    #[must_use]
    pub fn of(self, option: &str) -> Self {
        Self {
            message: format!("{option}: {}", self.message),
            ..self
        }
    }
}

impl From<SimulationError> for Failure {
    fn from(error: SimulationError) -> Self {
        Self::aborted(error)
    }
}

impl From<RunError> for Failure {
    fn from(error: RunError) -> Self {
        match error {
            RunError::Input { .. } => Self::data(error),
            _ => Self::aborted(error),
        }
    }
}

impl From<Aborted> for Failure {
    fn from(error: Aborted) -> Self {
        Self::aborted(error)
    }
}

/// Fails with `message` unless a computed result is `right`.
pub(crate) fn verify(right: bool, message: &str) -> Result<(), Failure> {
    if right {
        Ok(())
    } else {
        Err(Failure::data(message))
    }
}
