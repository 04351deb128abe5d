//! `undertone train`: trains a model on one labelled data set that is dealt to clients, with
//! several sources of labels, and compares how accurate the models become.

mod arm;
mod curves;
mod deal;
mod options;
mod report;
mod trial;

use undertone::data::Kind;

use crate::output::Output;
use crate::trials::run_all;
use crate::{Failure, Show, input, output};

pub use options::Train;

use deal::Table;
use report::{ArmReport, Report};
use trial::Trial;

impl Train {
    /// Runs every arm with every seed, and reports.
    pub fn run(self, show: Show) -> Result<(), Failure> {
        let classes = self.classes.as_ref();
        let loaded = input::load_labelled(&self.file, Kind::Table, classes, input::EVERY_LABEL)?;
        let (data, labels) = loaded;
        let about_labels = data.describe_labels();
        let table = Table::new(&self, data, labels)?;
        let plot = self.plot.as_deref().map(Output::create).transpose()?;
        let file = self.report.as_deref().map(Output::create).transpose()?;
        let out = self.out.as_deref().map(Output::create).transpose()?;
        let job = self.base(&table)?;
        self.check_traffic(&job, table.training.len())?;
        let trials = self.trials(&table)?;
        if show.details() {
            output::print(&(about_labels + &self.introduction(&table, &job)))?;
        }
        let steps: u64 = trials.iter().map(Trial::sessions).sum();
        let bar = output::progress(steps, show);
        let done = run_all(&trials, |trial| trial.run(&table, &bar))?;
        bar.finish_and_clear();

        let arms: Vec<ArmReport> = self
            .arms
            .iter()
            .map(|arm| {
                let own = trials
                    .iter()
                    .zip(&done)
                    .filter(|(trial, _)| trial.arm == *arm);
                ArmReport::new(*arm, own.map(|(_, done)| done))
            })
            .collect();
        let report = Report::new(&self, &table, &job, arms);
        let written = [
            plot.map_or(Ok(()), |file| curves::write(&report, file)),
            file.map_or(Ok(()), |file| file.json(&report)),
            match (out, trials.first(), done.first()) {
                (Some(file), Some(trial), Some(done)) => trial.save(&table, done, file),
                _ => Ok(()),
            },
        ];
        output::print_report(show, &report, || report.table())?;
        written.into_iter().collect()
    }

    fn trials(&self, table: &Table) -> Result<Vec<Trial>, Failure> {
        let mut trials = Vec::new();
        for seed in 0..u64::from(self.seeds) {
            for arm in &self.arms {
                trials.push(Trial::new(self, table, *arm, self.seed + seed)?);
            }
        }
        Ok(trials)
    }
}
