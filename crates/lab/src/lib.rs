//! Benchmarks, the cost report, and experiments on one labelled data set.
//!
//! Only the `undertone` command uses this crate. Each command is a struct of [`clap`] arguments
//! with a `run`. The interface changes with the command and is not stable.
//!
//! | module | command | what it does |
//! |---|---|---|
//! | [`mod@bench`] | `bench …`, `paillier bench` | measures stages, backends, primitives, jobs |
//! | [`connections`] | `serve` | raises the limit of open files |
//! | [`costs`] | `costs` | runs every backend over a grid of sizes and writes a report |
//! | [`sum`] | `sum` | adds up random words of many clients |
//! | [`ot`] | `ot` | makes oblivious transfers between two parties |
//! | [`experiments`] | `label`, `train`, … | deals one data set to clients, runs, compares |
//! | [`experiments::deal`] | `deal` | deals one data set to files of clients |
//! | [`keys`], [`masks`], [`noise`], [`stated`] | several | options that commands share |
//! | [`input`], [`output`] | all | reads data sets; writes files whole or not at all |
//! | [`interrupt`] | all | removes temporary files and child processes after a signal |
//! | [`labels`] | `label`, `join` | writes labels of rows |
//! | [`mod@plan`] | `plan` | what a run will cost |
//! | [`plot`] | `label` | draws accuracy, and rows by class |
//! | [`ports`] | `bench network` | finds a free port |
//! | [`report`] | all | cost tables |
#![forbid(unsafe_code)]
#![allow(missing_docs)] // The help texts of the command are the documentation of its arguments.
#![allow(clippy::missing_errors_doc)] // Every error is a message for the user.

pub mod bench;
mod clouds;
pub mod connections;
pub mod costs;
pub mod experiments;
mod failure;
mod given;
pub mod input;
pub mod interrupt;
pub mod keys;
pub mod labels;
mod ledgers;
mod lines;
mod machine;
pub mod masks;
pub mod noise;
pub mod ot;
pub mod output;
mod phase_costs;
pub mod plan;
pub mod plot;
pub mod ports;
pub mod program;
pub mod report;
pub mod stated;
pub mod sum;

pub use failure::Failure;
use undertone::kdf::Seed;

/// How results are shown.
#[derive(Debug, Clone, Copy, Default)]
pub struct Show {
    /// Print results only.
    pub quiet: bool,
    /// Print one JSON object.
    pub json: bool,
}

impl Show {
    /// Whether to print more than the results, for people.
    pub fn details(self) -> bool {
        !self.quiet && !self.json
    }
}

/// The seed that `--seed N` stands for.
pub fn seed(number: u64) -> Seed {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    Seed::from_bytes(bytes)
}
