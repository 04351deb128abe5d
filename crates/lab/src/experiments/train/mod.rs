//! `undertone train`: trains a model on one labelled data set that is dealt to clients, with
//! several sources of labels, and compares how accurate the models become.

mod arm;
mod curves;
mod deal;
mod options;
mod report;
mod trial;

use undertone::data::Kind;

use crate::experiments::driver::run_trials;
use crate::output::Output;
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
        let out = self.out.as_deref().map(Output::create).transpose()?;
        let outputs = self
            .common
            .outputs(&out.iter().collect::<Vec<_>>(), &[&self.file])?;
        let job = self.base(&table)?;
        self.check_traffic(&job, table.training.len())?;
        let trials = self.trials(&table)?;
        if show.details() {
            output::print(&(about_labels + &self.introduction(&table, &job)))?;
        }
        let done = run_trials(&trials, show, |trial, lap| trial.run(&table, lap))?;

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
        let saved = match (out, trials.first(), done.first()) {
            (Some(file), Some(trial), Some(done)) => trial.save(&table, done, file),
            _ => Ok(()),
        };
        outputs.conclude(&report, show).and(saved)
    }

    fn trials(&self, table: &Table) -> Result<Vec<Trial>, Failure> {
        let mut trials = Vec::new();
        for seed in self.common.seeds(self.seeds) {
            for arm in &self.arms {
                trials.push(Trial::new(self, table, *arm, seed)?);
            }
        }
        Ok(trials)
    }
}
