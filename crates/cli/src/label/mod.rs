//! `undertone label`: an experiment on one labelled file, or one file for each client.

mod clients;
mod experiment;
mod options;
mod plot;
mod report;
mod trace;
mod write;

use undertone_lab::{Failure, Show};

pub(crate) use options::Label;

impl Label {
    pub(crate) fn run(self, show: Show) -> Result<(), Failure> {
        match &self.file {
            Some(file) => experiment::run(&self, file, show),
            None => clients::run(&self, show),
        }
    }
}
