//! `undertone pssl`: deals one labelled data set to clients, and compares all rows at one place
//! (CSSL), clients that join their graphs (PSSL), and clients alone (LSSL).

mod deal;
mod options;
mod report;
mod trial;

use undertone::data::Kind;

use crate::experiments::driver::run_trials;
use crate::{Failure, Show, input, output};

pub use options::Pssl;

use deal::Table;
use report::Report;
use trial::Trial;

impl Pssl {
    /// Runs all runs, and reports.
    pub fn run(self, show: Show) -> Result<(), Failure> {
        let (data, labels) =
            input::load_labelled(&self.file, Kind::Table, None, input::EVERY_LABEL)?;
        let about_labels = data.describe_labels();
        let table = Table::new(&self, data, labels)?;
        let job = self.job(&table)?;
        let outputs = self.common.outputs(&[], &[&self.file])?;
        if show.details() {
            output::print(&(about_labels + &self.introduction(&table, &job)))?;
        }
        let trials: Vec<Trial> = self.common.seeds(self.runs).map(Trial::new).collect();
        let done = run_trials(&trials, show, |trial, _| trial.run(&self, &table, &job))?;
        let report = Report::new(&self, &table, &job, &done);
        outputs.conclude(&report, show)
    }
}
