//! `undertone train`: trains a model on one labelled data set that is dealt to clients, with
//! several sources of labels, and compares how accurate the models become.

mod arm;
mod curves;
mod deal;
mod options;
mod report;
mod trial;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use indicatif::ProgressBar;
use undertone::data::Kind;

use crate::output::Output;
use crate::{Failure, Show, classes, input, output};

pub use options::Train;

use deal::Table;
use report::{ArmReport, Report};
use trial::{Trial, Trialled};

impl Train {
    /// Runs every arm with every seed, and reports.
    pub fn run(self, show: Show) -> Result<(), Failure> {
        let mut data = input::load(&self.file, Kind::Features)?;
        classes::apply(&mut data, self.classes.as_ref())
            .map_err(|error| Failure::in_file(&self.file, error))?;
        let table = Table::new(&self, data)?;
        let plot = self.plot.as_deref().map(Output::create).transpose()?;
        let file = self.report.as_deref().map(Output::create).transpose()?;
        let out = self.out.as_deref().map(Output::create).transpose()?;
        let trials = self.trials(&table)?;
        if show.details() {
            output::print(&self.introduction(&table))?;
        }
        let steps: u64 = trials.iter().map(Trial::sessions).sum();
        let bar = output::progress(steps, show);
        let done = run_all(&trials, &table, &bar)?;
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
        let report = Report::new(&self, &table, arms);
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

/// Runs trials side by side, each on one thread. So results do not depend on the number of threads.
fn run_all(trials: &[Trial], table: &Table, bar: &ProgressBar) -> Result<Vec<Trialled>, Failure> {
    let next = AtomicUsize::new(0);
    let done: Mutex<Vec<Option<Result<Trialled, Failure>>>> =
        Mutex::new(trials.iter().map(|_| None).collect());
    let work = || -> Result<(), Failure> {
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(1)
            .build()
            .map_err(|error| Failure::new(71, format!("a thread: {error}")))?;
        loop {
            let place = next.fetch_add(1, Ordering::Relaxed);
            let Some(trial) = trials.get(place) else {
                return Ok(());
            };
            let result = pool.install(|| trial.run(table, bar));
            if result.is_err() {
                // The others need not begin.
                next.store(trials.len(), Ordering::Relaxed);
            }
            done.lock().unwrap_or_else(PoisonError::into_inner)[place] = Some(result);
        }
    };
    let workers = rayon::current_num_threads().min(trials.len());
    let worked: Result<Vec<()>, Failure> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
        let ended = threads.into_iter().map(|thread| {
            let panicked = |_| Err(Failure::new(70, "a thread panicked"));
            thread.join().unwrap_or_else(panicked)
        });
        ended.collect()
    });
    worked?;
    let done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.into_iter().flatten().collect()
}
