//! Job files of the application `cotrain`.

use serde::{Deserialize, Serialize};
use undertone_cotrain::{self as cotrain, Consensus, Noise, Public, Votes};
use undertone_node::roster::{hex, unhex};
use undertone_node::{Facts, JobError, deadlines};
use undertone_sum::{Suite, Trust};

use crate::node::label::trust;

/// A job.
#[derive(Debug, Clone, PartialEq)]
pub struct Job {
    /// The parameters.
    pub cotraining: cotrain::Job,
}

/// The fields of a job file and of an offer.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct File {
    classes: usize,
    rows: Option<usize>,
    features: Option<usize>,
    public: Option<String>,
    standardise: bool,
    consensus: String,
    votes: String,
    noise: String,
    exchanges: u32,
    min_clients: usize,
    suite: String,
    malicious_server: Option<bool>,
}

impl Default for File {
    fn default() -> Self {
        let job = cotrain::Job {
            standardise: true,
            ..cotrain::Job::new(0, 0, 0, [0; 32])
        };
        Self {
            rows: None,
            features: None,
            public: None,
            malicious_server: None,
            ..Self::of(&job)
        }
    }
}

impl File {
    fn of(cotraining: &cotrain::Job) -> Self {
        Self {
            classes: cotraining.classes,
            rows: Some(cotraining.rows),
            features: Some(cotraining.features),
            public: Some(hex(&cotraining.public)),
            standardise: cotraining.standardise,
            consensus: cotraining.consensus.to_string(),
            votes: cotraining.votes.to_string(),
            noise: cotraining.noise.to_string(),
            exchanges: cotraining.exchanges,
            min_clients: cotraining.min_clients,
            suite: cotraining.suite.to_string(),
            malicious_server: Some(cotraining.trust == Trust::MaliciousServer),
        }
    }

    /// The rows, the features and the digest of the public rows that the file states.
    fn stated(&self) -> Result<Option<(usize, usize, [u8; 32])>, JobError> {
        match (self.rows, self.features, &self.public) {
            (None, None, None) => Ok(None),
            (Some(rows), Some(features), Some(digest)) => {
                let digest = unhex(digest);
                let digest = digest
                    .ok_or_else(|| JobError::new("public must have 64 hexadecimal digits"))?;
                Ok(Some((rows, features, digest)))
            }
            _ => Err(JobError::new(
                "rows, features and public belong together: state all of them, or none",
            )),
        }
    }

    fn job(
        &self,
        signed: bool,
        public: impl FnOnce(bool) -> Result<Public, String>,
    ) -> Result<Job, JobError> {
        if self.classes == 0 {
            return Err(JobError::new("classes is missing"));
        }
        let named = |name: &str, why: String| JobError(format!("{name}: {why}"));
        let (rows, features, digest) = match self.stated()? {
            Some(stated) => stated,
            None => {
                let public = public(self.standardise).map_err(JobError)?;
                (public.rows().len(), public.rows().dim, public.digest())
            }
        };
        let cotraining = cotrain::Job {
            standardise: self.standardise,
            consensus: self
                .consensus
                .parse::<Consensus>()
                .map_err(|why| named("consensus", why))?,
            votes: self
                .votes
                .parse::<Votes>()
                .map_err(|why| named("votes", why))?,
            noise: self
                .noise
                .parse::<Noise>()
                .map_err(|why| named("noise", why))?,
            exchanges: self.exchanges,
            min_clients: self.min_clients,
            trust: if self.malicious_server.unwrap_or(signed) {
                Trust::MaliciousServer
            } else {
                Trust::SemiHonest
            },
            suite: self.suite.parse::<Suite>().map_err(JobError::new)?,
            ..cotrain::Job::new(rows, features, self.classes, digest)
        };
        cotraining.check().map_err(JobError)?;
        Ok(Job { cotraining })
    }
}

impl Job {
    /// Reads a job file. What it leaves out has its default. `signed` says whether all clients of
    /// the roster have keys. `public` gives the public rows, standardised if it is told so, if the
    /// file does not state their digest.
    ///
    /// # Errors
    /// A [`JobError`] that says what is wrong, and where.
    pub fn parse(
        text: &str,
        signed: bool,
        public: impl FnOnce(bool) -> Result<Public, String>,
    ) -> Result<Self, JobError> {
        deadlines::parameters::<File>(text)?.job(signed, public)
    }

    /// The offer to clients: a job file with every setting.
    pub fn to_offer(&self) -> Vec<u8> {
        toml::to_string(&File::of(&self.cotraining))
            .unwrap_or_default()
            .into()
    }

    /// Reads what [`Job::to_offer`] writes.
    ///
    /// # Errors
    /// A [`JobError`] that says what is wrong.
    pub fn from_offer(bytes: &[u8]) -> Result<Self, JobError> {
        let text = std::str::from_utf8(bytes).map_err(JobError::new)?;
        Self::parse(text, false, |_| Err("public is missing".into()))
    }

    /// The parameters, for display.
    pub fn facts(&self) -> Facts {
        let job = &self.cotraining;
        Facts::from_iter([
            ("public_rows".to_owned(), job.rows.into()),
            ("features".to_owned(), job.features.into()),
            ("classes".to_owned(), job.classes.into()),
            ("public".to_owned(), hex(&job.public).into()),
            ("standardise".to_owned(), job.standardise.into()),
            ("consensus".to_owned(), job.consensus.to_string().into()),
            ("votes".to_owned(), job.votes.to_string().into()),
            ("noise".to_owned(), job.noise.to_string().into()),
            ("exchanges".to_owned(), job.exchanges.into()),
            ("suite".to_owned(), job.suite.to_string().into()),
            ("trust".to_owned(), trust(job.trust).into()),
            ("min_clients".to_owned(), job.min_clients.into()),
        ])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "application = \"cotrain\"\nclasses = 3\n";

    fn public(_: bool) -> Result<Public, String> {
        Public::new(2, vec![1.0, 2.0, 3.0, 4.0]).map_err(|error| error.to_string())
    }

    #[test]
    fn offers_are_job_files() {
        let job = Job::parse(TEXT, true, public).unwrap();
        assert_eq!((job.cotraining.rows, job.cotraining.features), (2, 2));
        assert_eq!(job.cotraining.trust, Trust::MaliciousServer);
        assert_eq!(Job::from_offer(&job.to_offer()).unwrap(), job);
    }

    #[test]
    fn wrong_files_are_refused() {
        let refused = |more: &str| {
            let text = format!("{TEXT}{more}\n");
            Job::parse(&text, false, public).unwrap_err().to_string()
        };
        assert!(refused("consensus = \"qualified:2\"").contains("consensus"));
        assert!(refused("noise = \"krr:-1\"").contains("epsilon of the noise"));
        assert!(refused("votes = \"all\"").contains("votes"));
        assert!(refused("rows = 5").contains("belong together"));
        assert!(refused("exchange = 2").contains("exchange"));
        let missing = Job::parse("application = \"cotrain\"", false, public);
        assert!(missing.unwrap_err().to_string().contains("classes"));
    }
}
