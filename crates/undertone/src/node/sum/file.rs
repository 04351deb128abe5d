//! Job files of the application `sum`.

use serde::{Deserialize, Serialize};
use undertone_node::{Facts, JobError, deadlines};
use undertone_sum::fixed::resolution::least_weight;
use undertone_sum::{Suite, Trust};

use super::Job;
use crate::node::label::trust;
use crate::rounds::MIN_GROUP;

/// The fields of a job file and of an offer.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct File {
    rounds: u32,
    mean: bool,
    bound: f64,
    max_weight: f64,
    clip: bool,
    min_clients: usize,
    sample: Option<usize>,
    groups: usize,
    free_sampling: bool,
    pub(super) clients: Option<usize>,
    suite: String,
    malicious_server: Option<bool>,
}

impl Default for File {
    fn default() -> Self {
        let mut file = Self::of(&Job::default());
        (file.clients, file.malicious_server) = (None, None);
        file
    }
}

impl File {
    fn of(job: &Job) -> Self {
        Self {
            rounds: job.rounds,
            mean: job.mean,
            bound: job.bound,
            max_weight: job.max_weight,
            clip: job.clip,
            min_clients: job.min_clients,
            sample: job.sample,
            groups: job.groups.unwrap_or(MIN_GROUP),
            free_sampling: job.groups.is_none(),
            clients: Some(job.clients),
            suite: job.suite.to_string(),
            malicious_server: Some(job.trust == Trust::MaliciousServer),
        }
    }

    /// The job for a roster of `clients` clients.
    pub(super) fn job(&self, clients: usize, signed: bool) -> Result<Job, JobError> {
        let job = Job {
            rounds: self.rounds,
            mean: self.mean,
            bound: self.bound,
            max_weight: self.max_weight,
            clip: self.clip,
            min_clients: self.min_clients,
            clients: self.clients.unwrap_or(clients),
            sample: self.sample,
            groups: (!self.free_sampling).then_some(self.groups),
            trust: if self.malicious_server.unwrap_or(signed) {
                Trust::MaliciousServer
            } else {
                Trust::SemiHonest
            },
            suite: self.suite.parse::<Suite>().map_err(JobError::new)?,
        };
        job.check().map_err(JobError)?;
        let least = job.trust.needed(job.min_clients, job.clients);
        if let Some(sample) = self.sample.filter(|sample| *sample < least) {
            return Err(JobError::new(format!(
                "sample is {sample}; it must be {least} or more. Values that stay private if the \
                 server cheats need nearly all clients of the roster (malicious_server)"
            )));
        }
        Ok(job)
    }
}

/// The offer of a job to clients: a job file with all fields.
pub fn to_offer(job: &Job) -> Vec<u8> {
    toml::to_string(&File::of(job)).unwrap_or_default().into()
}

/// Reads what [`to_offer`] writes.
///
/// # Errors
/// A [`JobError`] that says what is wrong.
pub fn from_offer(offer: &[u8]) -> Result<Job, JobError> {
    let text = std::str::from_utf8(offer).map_err(JobError::new)?;
    deadlines::parameters::<File>(text)?.job(1, false)
}

/// The parameters, for display.
pub(super) fn facts(job: &Job) -> Facts {
    let kind = if job.mean { "weighted mean" } else { "sum" };
    let mut facts = Facts::from_iter([
        ("rounds".to_owned(), job.rounds.into()),
        ("result".to_owned(), kind.into()),
        ("bound".to_owned(), job.bound.into()),
        ("max_weight".to_owned(), job.max_weight.into()),
        ("clip".to_owned(), job.clip.into()),
        ("suite".to_owned(), job.suite.to_string().into()),
        ("trust".to_owned(), trust(job.trust).into()),
        ("min_clients".to_owned(), job.min_clients.into()),
    ]);
    if !job.mean {
        facts.shift_remove("max_weight");
    }
    let weight = least_weight(job.max_weight);
    if let Ok(unit) = job.unit(weight) {
        let at = if job.mean {
            format!(" at total weight {weight}")
        } else {
            String::new()
        };
        let told = format!("{unit:.1e}{at}, {:.1e} of bound", unit / job.bound);
        facts.insert("resolution".to_owned(), told.into());
    }
    if job.rounds > 1 {
        let told = match job.groups {
            Some(least) => format!("{least} clients or more"),
            None => "none: weights, and what hardly changes, follow from many rounds".to_owned(),
        };
        facts.insert("groups".to_owned(), told.into());
    }
    if let Some(sample) = job.sample {
        facts.insert("sample".to_owned(), sample.into());
    }
    facts
}
