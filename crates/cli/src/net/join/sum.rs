//! `undertone join`, secure sums and weighted means.

use std::fs::File;
use std::io::{BufReader, Cursor};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use clap::Args;
use serde::Serialize;
use undertone::arrays::Arrays;
use undertone::data::{DataError, arrays_from_npz, arrays_to_npz};
use undertone::job::Agreed;
use undertone::node::client::{Config, Joined};
use undertone::rounds::{Client, Contribution, Mean, Round, Source};

use super::super::credentials::Warnings;
use super::each::Each;
use super::part::{Costs, own_output, take_part};
use super::{Application, Given, Join};
use undertone_lab::output::{self, Output};
use undertone_lab::{Failure, Show};

#[derive(Debug, Args)]
#[command(next_help_heading = "Sums and weighted means")]
pub(super) struct SumOptions {
    /// Weight of this client's arrays in the mean, 0 or more [default: 1]
    #[arg(long, value_name = "W")]
    pub(super) weight: Option<f64>,
    /// Shell command that writes the file of --data before each round. Whatever it has started ends
    /// with it, and it ends when the client leaves. Environment variables of the command:
    /// UNDERTONE_ROUND is the number of the round; UNDERTONE_ATTEMPT counts the requests for this
    /// round, and the command must write other values for each; UNDERTONE_MEAN is the file with the
    /// last mean, if there is one
    #[arg(long, value_name = "COMMAND")]
    pub(super) each: Option<String>,
}

impl SumOptions {
    pub(super) fn given(&self) -> [Given; 2] {
        const SUM: &[Application] = &[Application::Sum];
        [
            Given::new("--weight", self.weight.is_some(), SUM),
            Given::new("--each", self.each.is_some(), SUM),
        ]
    }
}

/// The placeholder for the number of the round in the name of a file.
const ROUND: &str = "{round}";

/// Time between two checks for the file of a round.
const LOOK: Duration = Duration::from_millis(100);

/// The JSON object of `join`.
#[derive(Debug, Serialize)]
struct Report {
    rounds: u32,
    values: usize,
    weight: f64,
    contributors: usize,
    /// What one step of the last bit is worth in the last mean.
    resolution: f64,
    #[serde(flatten)]
    costs: Costs,
}

/// Reads contributions from files, and writes means to files.
struct Files {
    data: String,
    out: String,
    weight: f64,
    each: Option<Arc<Each>>,
    /// The file with the last mean.
    written: Option<PathBuf>,
    /// The arrays of a job in which every round would read the same file.
    only: Option<Arrays>,
    last: Arc<Mutex<Option<Arc<Mean>>>>,
}

/// The file of a round.
fn of_round(pattern: &str, round: u32) -> PathBuf {
    PathBuf::from(pattern.replace(ROUND, &round.to_string()))
}

fn load(path: &Path) -> Result<Arrays, DataError> {
    let file = File::open(path)?;
    if !path.is_file() {
        return Err(DataError::Unreadable(std::io::Error::other(
            "it is not a file",
        )));
    }
    arrays_from_npz(BufReader::new(file))
}

impl Source for Files {
    fn contribute(&mut self, round: &Round) -> Result<Contribution, String> {
        tracing::info!(round = round.number, of = round.rounds, "round");
        if let Some(each) = &self.each {
            each.run(round, self.written.as_deref())?;
        }
        // What cannot take the mean is found before values leave this client.
        let out = of_round(&self.out, round.number);
        Output::create_own(&out).map_err(|failure| failure.message)?;
        let weight = self.weight;
        let is_last = round.number == round.rounds;
        let only = if is_last {
            self.only.take()
        } else {
            self.only.clone()
        };
        if let Some(arrays) = only {
            return Ok(Contribution { arrays, weight });
        }
        let path = of_round(&self.data, round.number);
        if self.each.is_none() && !path.exists() {
            tracing::info!("waiting for {}", path.display());
            while !path.exists() {
                std::thread::sleep(LOOK);
            }
        }
        let arrays = load(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(Contribution { arrays, weight })
    }

    fn mean(&mut self, mean: &Arc<Mean>) -> Result<(), String> {
        let path = of_round(&self.out, mean.round);
        let write = || {
            let mut bytes = Cursor::new(Vec::new());
            arrays_to_npz(&mut bytes, &mean.arrays)
                .map_err(|error| Failure::unwritable(&path, error))?;
            Output::create_own(&path)?.write(|w| w.write_all(bytes.get_ref()))
        };
        write().map_err(|failure| failure.message)?;
        tracing::info!(
            round = mean.round,
            weight = mean.weight,
            "written to {}",
            path.display()
        );
        self.written = Some(path);
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(mean));
        Ok(())
    }

    fn clipped(&mut self, values: usize) {
        tracing::warn!(values, "values beyond the job's bound were moved to it");
    }

    fn coarse(&mut self, warning: &str) {
        tracing::warn!("the mean shows little of {warning}");
    }

    /// Only a command can make other values.
    fn has_others(&self) -> bool {
        self.each.is_some()
    }
}

fn utf8(path: &Path, option: &str) -> Result<String, Failure> {
    let text = path.to_str().map(str::to_owned);
    text.ok_or_else(|| Failure::usage(format!("{option}: the name is not UTF-8")))
}

pub(super) fn run(
    join: &Join,
    config: &Config,
    warnings: &Warnings,
    show: Show,
) -> Result<(), Failure> {
    let (data, out) = (utf8(&join.data, "--data")?, utf8(&join.out, "--out")?);
    let options = &join.sum;
    let weight = options.weight.unwrap_or(1.0);
    if !(weight >= 0.0 && weight.is_finite()) {
        return Err(Failure::usage(format!(
            "--weight {weight}; it must be a number, 0 or more"
        )));
    }
    let is_one_file = options.each.is_none() && !data.contains(ROUND);
    let only = if is_one_file {
        Some(load(&join.data).map_err(|error| Failure::file(&join.data, &error))?)
    } else {
        None
    };
    if let Some(arrays) = &only {
        let usable = arrays.layout().check();
        usable.map_err(|error| Failure::in_file(&join.data, error))?;
    }
    // Checks that a mean can be written and does not replace the arrays.
    own_output(&of_round(&out, 1), &[&of_round(&data, 1)])?;
    // Every round would read the same file.
    let most = is_one_file.then(|| ("max_rounds", 1.into()));
    let terms = join.terms_over(most)?;
    let record = join.record(config)?;
    join.log(warnings, show);
    let last = Arc::<Mutex<Option<Arc<Mean>>>>::default();
    let (each, stay) = Each::new(options.each.clone());
    let files = Files {
        data,
        out,
        weight,
        each,
        written: None,
        only,
        last: Arc::clone(&last),
    };
    let mut client = Agreed::new(Client::new(terms, files), record.clone());
    let joined = take_part(config, &mut client, &record);
    drop(stay);
    let joined = joined?;
    let last = last.lock().unwrap_or_else(PoisonError::into_inner).take();
    let last = last.ok_or_else(|| Failure::aborted("the job ended without a mean"))?;
    let unit = client.job().and_then(|job| job.unit(last.weight).ok());
    tell(join, &last, unit.unwrap_or(0.0), &joined, show)
}

/// Prints the result.
fn tell(
    join: &Join,
    mean: &Mean,
    resolution: f64,
    joined: &Joined,
    show: Show,
) -> Result<(), Failure> {
    let report = Report {
        rounds: mean.round,
        values: mean.arrays.len(),
        weight: mean.weight,
        contributors: mean.contributors.len(),
        resolution,
        costs: Costs::of(joined),
    };
    output::print_report(show, &report, || {
        format!(
            "round {}: {} values of {} clients, total weight {}, resolution {resolution:.1e}; \
             written to {}\n",
            mean.round,
            mean.arrays.len(),
            mean.contributors.len(),
            mean.weight,
            of_round(&join.out.to_string_lossy(), mean.round).display()
        )
    })
}
