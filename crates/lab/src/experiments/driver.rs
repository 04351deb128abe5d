//! What experiments on one labelled file have in common: options, outputs, trials side by side.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use clap::Args;
use serde::Serialize;
use undertone::job::{Entries, Job};

use super::course::{Course, Lap};
use crate::output::Output;
use crate::{Failure, Show, output, stated};

/// The options of every experiment.
#[derive(Debug, Args)]
#[group(skip)]
pub(crate) struct Common {
    /// A key of the job and its value, such as min_clients=5. The keys are those of a job file of
    /// this application
    #[arg(long, value_name = "KEY=VALUE", value_parser = stated::pair)]
    pub(crate) set: Vec<stated::Pair>,
    /// The first seed, from which everything random follows
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) seed: u64,
    /// File for a picture of the results (SVG)
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    /// File for the JSON object that --json prints
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
}

/// The outputs of an experiment, which are opened before anything runs.
pub(crate) struct Outputs {
    plot: Option<Output>,
    json: Option<Output>,
}

/// What an experiment reports.
pub(crate) trait Report: Serialize {
    /// As tables.
    fn text(&self) -> String;
    /// As a picture.
    fn plot(&self, file: Output) -> Result<(), Failure>;
}

impl Common {
    /// The job of an experiment: what `--set` states, and what follows from the options and the
    /// file.
    pub(crate) fn job<J: Job>(&self, own: Entries) -> Result<J, Failure> {
        stated::job(&self.set, own)
    }

    /// The seeds of `count` trials.
    pub(crate) fn seeds(&self, count: u32) -> impl Iterator<Item = u64> {
        let first = self.seed;
        (0..u64::from(count)).map(move |number| first.wrapping_add(number))
    }

    /// Opens the outputs. Refuses to write one file twice, or over an input. `others` are the
    /// files that the experiment writes besides.
    pub(crate) fn outputs(&self, others: &[&Output], inputs: &[&Path]) -> Result<Outputs, Failure> {
        let plot = self.plot.as_deref().map(Output::create).transpose()?;
        let json = self.report.as_deref().map(Output::create).transpose()?;
        let own = plot.iter().chain(&json);
        let all: Vec<&Output> = others.iter().copied().chain(own).collect();
        for (place, output) in all.iter().enumerate() {
            let mut earlier = all[..place].iter();
            let what = if earlier.any(|other| other.is(output.path())) {
                "the target of two outputs"
            } else if inputs.iter().any(|input| output.is(input)) {
                "an input"
            } else {
                continue;
            };
            let path = output.path().display();
            return Err(Failure::usage(format!(
                "{path} is {what}; name another file"
            )));
        }
        Ok(Outputs { plot, json })
    }

    /// Whether there will be a picture.
    pub(crate) fn draws(&self) -> bool {
        self.plot.is_some()
    }
}

impl Outputs {
    /// Prints the report, and writes it. What is computed is printed, also if an output cannot be
    /// written.
    pub(crate) fn conclude(self, report: &impl Report, show: Show) -> Result<(), Failure> {
        let written = [
            self.plot.map_or(Ok(()), |file| report.plot(file)),
            self.json.map_or(Ok(()), |file| file.json(report)),
        ];
        output::print_report(show, report, || report.text())?;
        written.into_iter().collect()
    }
}

/// Runs trials side by side, with a progress bar. Says how long they will take if that is more
/// than a minute.
pub(crate) fn run_trials<T: Sync, R: Send>(
    trials: &[T],
    show: Show,
    run: impl Fn(&T, &Lap<'_>) -> Result<R, Failure> + Sync,
) -> Result<Vec<R>, Failure> {
    let course = Course::new(trials.len(), show);
    let numbered: Vec<(usize, &T)> = trials.iter().enumerate().collect();
    let done = run_all(&numbered, |(place, trial)| {
        let lap = course.trial(*place);
        let done = run(trial, &lap)?;
        lap.reach(1.0);
        Ok(done)
    })?;
    course.finish();
    Ok(done)
}

/// Runs trials side by side, each on one thread. So results do not depend on the number of threads.
fn run_all<T: Sync, R: Send>(
    trials: &[T],
    run: impl Fn(&T) -> Result<R, Failure> + Sync,
) -> Result<Vec<R>, Failure> {
    let next = AtomicUsize::new(0);
    let done: Mutex<Vec<Option<Result<R, Failure>>>> =
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
            let result = pool.install(|| run(trial));
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
