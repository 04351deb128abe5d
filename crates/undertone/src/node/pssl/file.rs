//! Job files of the application `pssl`.

use serde::{Deserialize, Serialize};
use undertone_node::{Facts, JobError, deadlines};
use undertone_pssl::{self as pssl, Reveal};
use undertone_sum::{Suite, Trust};

use crate::node::label::trust;

/// A job.
#[derive(Debug, Clone, PartialEq)]
pub struct Job {
    /// The parameters.
    pub pssl: pssl::Job,
}

/// The fields of a job file and of an offer.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct File {
    features: usize,
    classes: usize,
    asked: usize,
    scale: u8,
    range: Option<f64>,
    clusters: Option<usize>,
    neighbours: usize,
    iterations: u32,
    lambda: u32,
    d_min: f64,
    d_max: f64,
    epsilon: Option<f64>,
    reveal: String,
    rounds: u32,
    alpha: f64,
    local_start: bool,
    allow_single: bool,
    min_clients: usize,
    suite: String,
    malicious_server: Option<bool>,
}

impl Default for File {
    fn default() -> Self {
        let job = pssl::Job::new(0, 255, 0, 0);
        Self {
            asked: 0,
            range: None,
            clusters: None,
            epsilon: None,
            malicious_server: None,
            ..Self::of(&job)
        }
    }
}

impl File {
    fn of(pssl: &pssl::Job) -> Self {
        Self {
            features: pssl.features,
            classes: pssl.classes,
            asked: pssl.asked,
            scale: pssl.scale,
            range: Some(pssl.range),
            clusters: Some(pssl.clusters),
            neighbours: pssl.neighbours,
            iterations: pssl.iterations,
            lambda: pssl.lambda,
            d_min: pssl.d_min,
            d_max: pssl.d_max,
            epsilon: Some(pssl.epsilon),
            reveal: pssl.reveal.to_string(),
            rounds: pssl.rounds,
            alpha: pssl.alpha,
            local_start: pssl.local_start,
            allow_single: pssl.allow_single,
            min_clients: pssl.min_clients,
            suite: pssl.suite.to_string(),
            malicious_server: Some(pssl.trust == Trust::MaliciousServer),
        }
    }

    fn job(&self, signed: bool) -> Result<Job, JobError> {
        for (name, value) in [
            ("features", self.features),
            ("classes", self.classes),
            ("asked", self.asked),
        ] {
            if value == 0 {
                return Err(JobError::new(format!("{name} is missing")));
            }
        }
        let job = pssl::Job::new(self.features, self.scale, self.classes, 0);
        let job = job.with_range(self.d_min, self.d_max);
        let named = |name: &str, why: String| JobError(format!("{name}: {why}"));
        let job = pssl::Job {
            asked: self.asked,
            range: self.range.unwrap_or(job.range),
            clusters: self.clusters.unwrap_or(self.classes),
            neighbours: self.neighbours,
            iterations: self.iterations,
            lambda: self.lambda,
            epsilon: self.epsilon.unwrap_or(job.epsilon),
            reveal: self
                .reveal
                .parse::<Reveal>()
                .map_err(|why| named("reveal", why))?,
            rounds: self.rounds,
            alpha: self.alpha,
            local_start: self.local_start,
            allow_single: self.allow_single,
            min_clients: self.min_clients,
            trust: if self.malicious_server.unwrap_or(signed) {
                Trust::MaliciousServer
            } else {
                Trust::SemiHonest
            },
            suite: self.suite.parse::<Suite>().map_err(JobError::new)?,
            ..job
        };
        job.check().map_err(JobError)?;
        Ok(Job { pssl: job })
    }
}

impl Job {
    /// Reads a job file. What it leaves out has its default. `signed` says whether all clients of
    /// the roster have keys.
    ///
    /// # Errors
    /// A [`JobError`] that says what is wrong, and where.
    pub fn parse(text: &str, signed: bool) -> Result<Self, JobError> {
        deadlines::parameters::<File>(text)?.job(signed)
    }

    /// The offer to clients: a job file with every setting.
    pub fn to_offer(&self) -> Vec<u8> {
        toml::to_string(&File::of(&self.pssl))
            .unwrap_or_default()
            .into()
    }

    /// Reads what [`Job::to_offer`] writes.
    ///
    /// # Errors
    /// A [`JobError`] that says what is wrong.
    pub fn from_offer(bytes: &[u8]) -> Result<Self, JobError> {
        let text = std::str::from_utf8(bytes).map_err(JobError::new)?;
        Self::parse(text, false)
    }

    /// The parameters, for display.
    pub fn facts(&self) -> Facts {
        let job = &self.pssl;
        Facts::from_iter([
            ("features".to_owned(), job.features.into()),
            ("scale".to_owned(), job.scale.into()),
            ("range".to_owned(), job.range.into()),
            ("classes".to_owned(), job.classes.into()),
            ("clusters".to_owned(), job.clusters.into()),
            ("asked".to_owned(), job.asked.into()),
            ("d_min".to_owned(), job.d_min.into()),
            ("d_max".to_owned(), job.d_max.into()),
            ("reveal".to_owned(), job.reveal.to_string().into()),
            ("rounds".to_owned(), job.rounds.into()),
            ("alpha".to_owned(), job.alpha.into()),
            ("local_start".to_owned(), job.local_start.into()),
            ("allow_single".to_owned(), job.allow_single.into()),
            ("suite".to_owned(), job.suite.to_string().into()),
            ("trust".to_owned(), trust(job.trust).into()),
            ("min_clients".to_owned(), job.min_clients.into()),
        ])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "application = \"pssl\"\nfeatures = 8\nclasses = 3\nasked = 5\n";

    #[test]
    fn offers_are_job_files() {
        let job = Job::parse(&format!("{TEXT}scale = 16\n"), true).unwrap();
        assert_eq!((job.pssl.clusters, job.pssl.range), (3, 16.0));
        assert_eq!(job.pssl.trust, Trust::MaliciousServer);
        assert_eq!(Job::from_offer(&job.to_offer()).unwrap(), job);
    }

    #[test]
    fn wrong_files_are_refused() {
        let refused = |more: &str| {
            let text = format!("{TEXT}{more}\n");
            Job::parse(&text, false).unwrap_err().to_string()
        };
        assert!(refused("lambda = 2").contains("82 of 100"));
        assert!(refused("reveal = \"all\"").contains("reveal"));
        assert!(refused("d_max = 1").contains("d_max"));
        assert!(refused("range = 0").contains("range"));
        assert!(refused("round = 2").contains("round"));
        let missing = Job::parse("application = \"pssl\"\nclasses = 3", false);
        assert!(missing.unwrap_err().to_string().contains("features"));
    }
}
