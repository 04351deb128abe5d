//! Job files of the application `train`.

use serde::{Deserialize, Serialize};
use undertone_hamming::{Backend, Phe};
use undertone_label::{Params, Variant};
use undertone_node::{Facts, JobError, deadlines};
use undertone_sum::{Suite, Trust};
use undertone_train::{self as train, PseudoLabels, Sampling};

use crate::node::label::trust;

/// A job of a model that the parties know by name.
#[derive(Debug, Clone, PartialEq)]
pub struct Job {
    /// The parameters.
    pub training: train::Job,
}

/// The model of a job, by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spec {
    /// The name of the architecture.
    pub model: String,
    /// Whether it has a mean teacher.
    pub mean_teacher: bool,
    /// The number of features of a row.
    pub features: usize,
    /// The number of classes.
    pub classes: usize,
}

/// The fields of a job file and of an offer.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct File {
    model: String,
    features: usize,
    classes: usize,
    parameters: Option<usize>,
    scale: f64,
    labels_from: String,
    mean_teacher: bool,
    consistency: f32,
    label_rounds: u32,
    rounds: u32,
    epochs: u32,
    learning_rate: Option<f32>,
    weight_decay: f32,
    clip: f32,
    sampled: usize,
    groups: usize,
    free_sampling: bool,
    backend: String,
    bits: usize,
    neighbours: usize,
    alpha: f64,
    variant: String,
    key_bits: usize,
    min_clients: usize,
    suite: String,
    malicious_server: Option<bool>,
}

impl Default for File {
    fn default() -> Self {
        let job = train::Job {
            model: Some("mlp".into()),
            features: 0,
            classes: 0,
            ..train::Job::default()
        };
        Self {
            parameters: None,
            malicious_server: None,
            consistency: 20.0,
            ..Self::of(&job)
        }
    }
}

impl File {
    fn of(training: &train::Job) -> Self {
        let params = &training.propagation;
        let (groups, free_sampling) = match training.sampling {
            Sampling::Groups(least) => (least, false),
            Sampling::Free => (train::job::MIN_GROUP, true),
        };
        Self {
            model: training.model.clone().unwrap_or_default(),
            features: training.features,
            classes: training.classes,
            parameters: Some(training.parameters),
            scale: training.scale,
            labels_from: training.pseudo.to_string(),
            mean_teacher: training.mean_teacher,
            consistency: training.consistency,
            label_rounds: training.label_rounds,
            rounds: training.rounds,
            epochs: training.epochs,
            learning_rate: training.learning_rate,
            weight_decay: training.weight_decay,
            clip: training.clip,
            sampled: training.sampled,
            groups,
            free_sampling,
            backend: params.backend.to_string(),
            bits: params.bits,
            neighbours: params.neighbours,
            alpha: params.alpha,
            variant: params.variant.to_string(),
            key_bits: params.phe.key_bits(),
            min_clients: params.min_clients,
            suite: params.suite.to_string(),
            malicious_server: Some(params.trust == Trust::MaliciousServer),
        }
    }

    /// The job. `parameters` gives the number of parameters of a model.
    fn job(
        &self,
        signed: bool,
        parameters: impl FnOnce(&Spec) -> Result<usize, String>,
    ) -> Result<Job, JobError> {
        let spec = Spec {
            model: self.model.clone(),
            mean_teacher: self.mean_teacher,
            features: self.features,
            classes: self.classes,
        };
        for (name, value) in [("features", spec.features), ("classes", spec.classes)] {
            if value == 0 {
                return Err(JobError::new(format!("{name} is missing")));
            }
        }
        let phe = Phe::new(self.key_bits);
        let propagation = Params {
            bits: self.bits,
            neighbours: self.neighbours,
            alpha: self.alpha,
            variant: self.variant.parse::<Variant>().map_err(JobError::new)?,
            backend: self.backend.parse::<Backend>().map_err(JobError::new)?,
            phe: phe.map_err(|_| JobError::new("key_bits must be 2048, 3072 or 4096"))?,
            min_clients: self.min_clients,
            trust: if self.malicious_server.unwrap_or(signed) {
                Trust::MaliciousServer
            } else {
                Trust::SemiHonest
            },
            suite: self.suite.parse::<Suite>().map_err(JobError::new)?,
            job: None,
        };
        let training = train::Job {
            model: Some(self.model.clone()),
            mean_teacher: self.mean_teacher,
            scale: self.scale,
            label_rounds: self.label_rounds,
            rounds: self.rounds,
            pseudo: self
                .labels_from
                .parse::<PseudoLabels>()
                .map_err(JobError::new)?,
            propagation,
            sampled: self.sampled,
            sampling: if self.free_sampling {
                Sampling::Free
            } else {
                Sampling::Groups(self.groups)
            },
            epochs: self.epochs,
            learning_rate: self.learning_rate,
            weight_decay: self.weight_decay,
            consistency: if self.mean_teacher {
                self.consistency
            } else {
                0.0
            },
            clip: self.clip,
            // Each client decides on the noise on its own labels.
            label_epsilon: None,
            features: self.features,
            classes: self.classes,
            parameters: match self.parameters {
                Some(parameters) => parameters,
                None => parameters(&spec).map_err(JobError::new)?,
            },
        };
        training.check().map_err(JobError)?;
        Ok(Job { training })
    }
}

impl Job {
    /// Reads a job file. What it leaves out has its default. `signed` says whether all clients of
    /// the roster have keys. `parameters` gives the number of parameters of a model, if the file
    /// does not state it.
    ///
    /// # Errors
    /// A [`JobError`] that says what is wrong, and where.
    pub fn parse(
        text: &str,
        signed: bool,
        parameters: impl FnOnce(&Spec) -> Result<usize, String>,
    ) -> Result<Self, JobError> {
        deadlines::parameters::<File>(text)?.job(signed, parameters)
    }

    /// The offer to clients: a job file with every setting.
    pub fn to_offer(&self) -> Vec<u8> {
        toml::to_string(&File::of(&self.training))
            .unwrap_or_default()
            .into()
    }

    /// Reads what [`Job::to_offer`] writes.
    ///
    /// # Errors
    /// A [`JobError`] that says what is wrong.
    pub fn from_offer(bytes: &[u8]) -> Result<Self, JobError> {
        let text = std::str::from_utf8(bytes).map_err(JobError::new)?;
        Self::parse(text, false, |_| Err("parameters is missing".into()))
    }

    /// The model.
    pub fn spec(&self) -> Spec {
        let job = &self.training;
        Spec {
            model: job.model.clone().unwrap_or_default(),
            mean_teacher: job.mean_teacher,
            features: job.features,
            classes: job.classes,
        }
    }

    /// The parameters, for display.
    pub fn facts(&self) -> Facts {
        let job = &self.training;
        let params = &job.propagation;
        let mut facts = Facts::from_iter([
            ("model".to_owned(), self.spec().model.into()),
            ("parameters".to_owned(), job.parameters.into()),
            ("features".to_owned(), job.features.into()),
            ("classes".to_owned(), job.classes.into()),
            ("scale".to_owned(), job.scale.into()),
            ("labels_from".to_owned(), job.pseudo.to_string().into()),
            ("mean_teacher".to_owned(), job.mean_teacher.into()),
            ("label_rounds".to_owned(), job.label_rounds.into()),
            ("rounds".to_owned(), job.rounds.into()),
            ("epochs".to_owned(), job.epochs.into()),
            ("sampled".to_owned(), job.sampled.into()),
            (
                "groups".to_owned(),
                match job.sampling {
                    Sampling::Groups(least) => least.into(),
                    Sampling::Free => "none".into(),
                },
            ),
            ("suite".to_owned(), params.suite.to_string().into()),
            ("trust".to_owned(), trust(params.trust).into()),
            ("min_clients".to_owned(), params.min_clients.into()),
        ]);
        if job.pseudo == PseudoLabels::Joint {
            facts.extend([
                ("backend".to_owned(), params.backend.to_string().into()),
                ("bits".to_owned(), params.bits.into()),
                ("neighbours".to_owned(), params.neighbours.into()),
                ("alpha".to_owned(), params.alpha.into()),
                ("variant".to_owned(), params.variant.to_string().into()),
            ]);
        }
        facts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "application = \"train\"\nmodel = \"conv\"\nfeatures = 64\nclasses = 10\n";

    #[test]
    fn offers_are_job_files() {
        let job = Job::parse(TEXT, true, |spec| {
            assert_eq!(spec.model, "conv");
            Ok(13_706)
        });
        let job = job.unwrap();
        assert_eq!(job.training.parameters, 13_706);
        assert_eq!(job.training.propagation.trust, Trust::MaliciousServer);
        assert_eq!(Job::from_offer(&job.to_offer()).unwrap(), job);
    }

    #[test]
    fn wrong_files_are_refused() {
        let refused = |more: &str| {
            let text = format!("{TEXT}{more}\n");
            Job::parse(&text, false, |_| Ok(5)).unwrap_err().to_string()
        };
        assert!(refused("groups = 2").contains("groups is 2"));
        assert!(refused("scale = 0.0").contains("scale is 0"));
        assert!(refused("labels_from = \"me\"").contains("unknown arm"));
        assert!(refused("epoch = 2").contains("epoch"));
        let missing = Job::parse("application = \"train\"", false, |_| Ok(5));
        assert!(
            missing
                .unwrap_err()
                .to_string()
                .contains("features is missing")
        );
    }
}
