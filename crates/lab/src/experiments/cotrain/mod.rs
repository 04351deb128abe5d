//! `undertone cotrain`: deals one labelled data set to clients and to the public, and compares
//! clients on their own with clients that are co-trained.

mod deal;
mod options;
mod report;
mod trial;

use undertone::data::Kind;

use crate::experiments::driver::run_trials;
use crate::{Failure, Show, input, output};

pub use options::{Cotrain, learner};

use deal::Table;
use report::Report;
use trial::Trial;

impl Cotrain {
    /// Runs all runs, and reports.
    pub fn run(self, show: Show) -> Result<(), Failure> {
        let classes = self.classes.as_ref();
        let loaded = input::load_labelled(&self.file, Kind::Table, classes, input::EVERY_LABEL)?;
        let (data, labels) = loaded;
        let about_labels = data.describe_labels();
        let table = Table::new(&self, data, labels)?;
        let job = self.job(&table, [0; 32])?;
        let outputs = self.common.outputs(&[], &[&self.file])?;
        if show.details() {
            output::print(&(about_labels + &self.introduction(&table, &job)))?;
        }
        let trials: Vec<Trial> = self.common.seeds(self.runs).map(Trial::new).collect();
        let done = run_trials(&trials, show, |trial, lap| trial.run(&self, &table, lap))?;
        let report = Report::new(&self, &table, &job, &done);
        outputs.conclude(&report, show)
    }
}
