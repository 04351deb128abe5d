//! `undertone cotrain`: deals one labelled data set to clients and to the public, and compares
//! clients on their own with clients that are co-trained.

mod deal;
mod options;
mod report;
mod trial;

use undertone::data::Kind;

use crate::output::Output;
use crate::trials::run_all;
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
        let plot = self.plot.as_deref().map(Output::create).transpose()?;
        let file = self.report.as_deref().map(Output::create).transpose()?;
        if show.details() {
            output::print(&(about_labels + &self.introduction(&table, &job)))?;
        }
        let trials: Vec<Trial> = (0..u64::from(self.runs))
            .map(|run| Trial::new(self.seed + run))
            .collect();
        let bar = output::progress(trials.len() as u64, show);
        let done = run_all(&trials, |trial| trial.run(&self, &table, &bar))?;
        bar.finish_and_clear();
        let report = Report::new(&self, &table, &job, &done);
        let written = [
            plot.map_or(Ok(()), |file| report.plot(file)),
            file.map_or(Ok(()), |file| file.json(&report)),
        ];
        output::print_report(show, &report, || report.text())?;
        written.into_iter().collect()
    }
}
