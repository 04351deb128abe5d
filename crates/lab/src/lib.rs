//! The laboratory: benchmarks, the costs of every level of trust, experiments on one labelled data set.
//!
//! The `undertone` command is its only user: commands are [`clap`] arguments with a `run`. Its interface follows the
//! command and is not stable.
//!
//! | module | command | what it does |
//! |---|---|---|
//! | [`bench`] | `bench …`, `paillier bench` | times stages, backends, primitives, sums and jobs on a network |
//! | [`costs`] | `costs` | runs every backend over a grid of sizes and writes a report |
//! | [`sum`] | `sum` | adds up random words of many clients |
//! | [`ot`] | `ot` | makes oblivious transfers between two parties |
//! | [`experiment`], [`split`] | `label FILE`, `deal` | deals one labelled data set out to clients, most labels hidden |
//! | [`report`], [`output`] | all | cost tables, files that appear whole or not at all, progress |
#![forbid(unsafe_code)]
#![allow(missing_docs)] // The help texts of the command are the documentation of its arguments.

pub mod bench;
mod clouds;
pub mod costs;
pub mod experiment;
pub mod keys;
pub mod masks;
pub mod ot;
pub mod output;
pub mod report;
pub mod split;
pub mod sum;

use std::fmt::Display;
use std::path::Path;

use undertone::data::DataError;
use undertone::simulate::SimulationError;

/// How results are shown.
#[derive(Debug, Clone, Copy)]
pub struct Show {
    /// Results only.
    pub quiet: bool,
    /// As one JSON object.
    pub json: bool,
}

/// Why the command fails: a message and an exit code.
#[derive(Debug)]
pub struct Failure {
    /// The exit code.
    pub code: u8,
    /// What happened, where, and what to do.
    pub message: String,
}

impl Failure {
    /// Wrong arguments: exit code 2.
    pub fn usage(message: impl Into<String>) -> Self {
        Self {
            code: 2,
            message: message.into(),
        }
    }

    /// Unusable data: exit code 65.
    pub fn data(message: impl Into<String>) -> Self {
        Self {
            code: 65,
            message: message.into(),
        }
    }

    /// An input file that cannot be read, 66, or used, 65.
    pub fn file(path: &Path, error: &DataError) -> Self {
        Self {
            code: if matches!(error, DataError::Unreadable(_)) {
                66
            } else {
                65
            },
            message: format!("{}: {error}", path.display()),
        }
    }

    /// An output that cannot be written: exit code 73.
    pub fn unwritable(path: &Path, error: &dyn Display) -> Self {
        Self {
            code: 73,
            message: format!("cannot write {}: {error}", path.display()),
        }
    }
}

impl From<SimulationError> for Failure {
    fn from(error: SimulationError) -> Self {
        Self {
            code: 70,
            message: error.to_string(),
        }
    }
}
