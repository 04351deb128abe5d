//! `undertone label`: an experiment on one labelled file, or one file for each client.

mod clients;
mod file;
mod options;
mod picture;
mod report;
mod trace;
pub(crate) mod trial;
mod write;

use crate::{Failure, Show};

pub use options::Label;

impl Label {
    /// Runs the command.
    pub fn run(self, show: Show) -> Result<(), Failure> {
        self.check()?;
        match &self.file {
            Some(file) => file::run(&self, file, show),
            None => clients::run(&self, show),
        }
    }
}
