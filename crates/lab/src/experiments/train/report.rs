//! What `train` reports.

use serde::Serialize;
use undertone::job::{Entries, entries};
use undertone::train::Job;

use super::arm::Arm;
use super::curves;
use super::deal::Table;
use super::options::Train;
use super::trial::Trialled;
use crate::Failure;
use crate::experiments::driver;
use crate::output::Output;
use crate::report::{Spread, bytes, spread, table};

/// The report of all arms.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    pub(super) file: String,
    pub(super) rows_training: usize,
    pub(super) rows_test: usize,
    pub(super) clients: usize,
    pub(super) split: String,
    pub(super) labelled: usize,
    pub(super) labelled_clients: usize,
    pub(super) model: String,
    pub(super) parameters: usize,
    /// The number of all rounds.
    #[serde(skip)]
    pub(super) last: u32,
    /// The job, apart from what the arms say.
    pub(super) job: Entries,
    pub(super) label_epsilon: Option<f64>,
    pub(super) seed: u64,
    pub(super) seeds: u32,
    pub(super) arms: Vec<ArmReport>,
}

/// The report of one arm.
#[derive(Debug, Serialize)]
pub(super) struct ArmReport {
    pub(super) arm: String,
    /// Accuracy on the test rows in per cent: mean of the last ten rounds, mean over the seeds.
    pub(super) accuracy_mean: f64,
    pub(super) accuracy_sd: f64,
    /// The accuracy of each seed.
    pub(super) accuracies: Vec<f64>,
    /// Seconds of computation of all parties together in a round.
    pub(super) round_seconds: f64,
    /// The share of these seconds in phases with cryptography.
    pub(super) share_of_cryptography: f64,
    /// Bytes that all parties send in a round.
    pub(super) bytes_per_round: f64,
    /// Updates that diverged, over all rounds and seeds.
    pub(super) diverged: usize,
    /// Mean accuracy after each round, those on labels alone first.
    pub(super) curve: Vec<f64>,
}

impl ArmReport {
    pub(super) fn new<'a>(arm: Arm, trials: impl Iterator<Item = &'a Trialled>) -> Self {
        let trials: Vec<&Trialled> = trials.collect();
        let mean = |of: &dyn Fn(&Trialled) -> f64| {
            trials.iter().map(|trial| of(trial)).sum::<f64>() / trials.len() as f64
        };
        let accuracies: Vec<f64> = trials.iter().map(|trial| trial.accuracy).collect();
        let accuracy = Spread::of(&accuracies);
        let rounds = trials.iter().map(|trial| trial.curve.len()).min();
        Self {
            arm: arm.to_string(),
            accuracy_mean: accuracy.mean,
            accuracy_sd: accuracy.sd,
            accuracies,
            round_seconds: mean(&|trial| trial.round_seconds),
            share_of_cryptography: mean(&|trial| trial.share),
            bytes_per_round: mean(&|trial| trial.bytes),
            diverged: trials.iter().map(|trial| trial.diverged).sum(),
            curve: (0..rounds.unwrap_or(0))
                .map(|round| mean(&|trial| trial.curve[round]))
                .collect(),
        }
    }
}

impl Report {
    pub(super) fn new(options: &Train, table: &Table, job: &Job, arms: Vec<ArmReport>) -> Self {
        Self {
            file: options.file.display().to_string(),
            rows_training: table.training.len(),
            rows_test: table.testing.len(),
            clients: options.clients,
            split: options.split.to_string(),
            labelled: options.labelled,
            labelled_clients: options.labelled_clients.unwrap_or(options.clients),
            model: table.describe_model(),
            parameters: table.parameters(false),
            last: job.last(),
            job: entries(job),
            label_epsilon: options.label_epsilon,
            seed: options.common.seed,
            seeds: options.seeds,
            arms,
        }
    }
}

impl driver::Report for Report {
    /// A table of the arms.
    fn text(&self) -> String {
        let line = |arm: &ArmReport| {
            [
                arm.arm.clone(),
                spread(arm.accuracy_mean, arm.accuracy_sd, self.seeds, 1),
                format!("{:.3} s", arm.round_seconds),
                format!("{:.0} %", 100.0 * arm.share_of_cryptography),
                bytes(arm.bytes_per_round as u64),
            ]
        };
        let header = [
            "labels from",
            "accuracy, %",
            "round",
            "cryptography",
            "sent a round",
        ];
        let lines = self.arms.iter().map(line).collect();
        let mut text = table(header, lines, 4);
        text.push('\n');
        let diverged: usize = self.arms.iter().map(|arm| arm.diverged).sum();
        if diverged > 0 {
            text += &format!(
                "note: {diverged} updates diverged and were left out; try a smaller \
                 learning_rate\n"
            );
        }
        text
    }

    /// The learning curves.
    fn plot(&self, file: Output) -> Result<(), Failure> {
        curves::write(self, file)
    }
}
