//! The arguments of `train` and their checks.

use std::path::PathBuf;
use std::str::FromStr;

use clap::Args;
use undertone::hamming::Backend;
use undertone::label::Params;
use undertone::train::{Job, Sampling};

use super::arm::Arm;
use super::deal::Table;
use crate::experiments::driver::Common;
use crate::experiments::split::Split;
use crate::report::{bytes, counted};
use crate::{Failure, noise};
use undertone::data::Classes;

/// The network that is trained.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    /// Two convolutions and two layers, for square images.
    Conv,
    /// Two hidden layers.
    Mlp,
}

impl FromStr for Shape {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        match name {
            "conv" => Ok(Self::Conv),
            "mlp" => Ok(Self::Mlp),
            _ => Err("expected conv or mlp".into()),
        }
    }
}

/// Train a model.
#[derive(Debug, Args)]
#[group(skip)]
pub struct Train {
    /// A data set in which every row has a label (.npz or CSV)
    pub(super) file: PathBuf,
    /// Number of clients to which the rows are dealt
    #[arg(long, value_name = "P", default_value_t = 10)]
    pub(super) clients: usize,
    /// How the rows are dealt: iid (at random), shards (four classes for each client at most), or
    /// dirichlet:A (each class in random proportions)
    #[arg(long, default_value = "iid")]
    pub(super) split: Split,
    /// Number of rows that keep their label, in all
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub(super) labelled: usize,
    /// Number of clients that have labels [default: all]
    #[arg(long, value_name = "P")]
    pub(super) labelled_clients: Option<usize>,
    /// Fraction of the rows with which models are tested. No client has them
    #[arg(long, value_name = "FRACTION", default_value_t = 0.2)]
    pub(super) test: f64,
    /// Rounds on labels alone, from which every arm starts [default: 100]
    #[arg(long, value_name = "R")]
    label_rounds: Option<u32>,
    /// Rounds after these [default: 50]
    #[arg(long, value_name = "R")]
    rounds: Option<u32>,
    /// The network: conv (square images) or mlp (tables) [default: conv for a square number of
    /// features from 64 on]
    #[arg(long)]
    pub(super) model: Option<Shape>,
    /// Divide all features by this number [default: an eighth of the largest magnitude in FILE]
    #[arg(long, value_name = "S")]
    pub(super) scale: Option<f64>,
    /// Sources of labels for unlabelled rows, to be compared: labels (none), network (the model's
    /// predictions), local (label propagation in each client), xclp (across clients), paper (the
    /// same as published, alpha 0.99); each also with +mt, a mean teacher
    #[arg(
        long,
        value_name = "ARM,…",
        value_delimiter = ',',
        default_value = "labels,network,local,xclp,xclp+mt"
    )]
    pub(super) arms: Vec<Arm>,
    /// Protocol by which distances reach the server: lwe, shade, phe, psm, sketch or clear
    /// [default: lwe]
    #[arg(long)]
    backend: Option<Backend>,
    /// Randomise the labels that clients bring to label propagation, once for all rounds. Epsilon E
    /// is from 0.001 to 20 [default: no noise]
    #[arg(long, value_name = "E", value_parser = noise::epsilon, allow_negative_numbers = true)]
    pub(super) label_epsilon: Option<f64>,
    /// Number of seeds; every arm is run with each
    #[arg(long, value_name = "R", default_value_t = 3)]
    pub(super) seeds: u32,
    /// Number of classes, or their names in order, as in benign,malignant [default: what the file
    /// states, or else the labels that occur]
    #[arg(long, value_name = "C")]
    pub(super) classes: Option<Classes>,
    /// Run a job even if its rounds move more than 64 GiB in all
    #[arg(long)]
    pub(super) allow_traffic: bool,
    /// File for the final model of the first arm and seed (.safetensors)
    #[arg(long, value_name = "FILE")]
    pub(super) out: Option<PathBuf>,
    #[command(flatten)]
    pub(super) common: Common,
}

/// Most bytes of a job that is not asked for with --allow-traffic.
const MOST_BYTES: f64 = (64u64 << 30) as f64;

impl Train {
    /// The job without what differs from arm to arm.
    pub(super) fn base(&self, table: &Table) -> Result<Job, Failure> {
        let mut own = vec![
            ("features", table.features.into()),
            ("classes", table.classes.into()),
            ("parameters", table.parameters(false).into()),
            // The experiment divides the features itself.
            ("scale", 1.0.into()),
            ("model", "".into()),
        ];
        let of_arms = Job::default();
        own.push(("labels_from", of_arms.pseudo.to_string().into()));
        own.push(("mean_teacher", of_arms.mean_teacher.into()));
        own.push(("variant", of_arms.propagation.variant.to_string().into()));
        let is_set = |key: &str| self.common.set.iter().any(|(other, _)| other == key);
        let backend = self.backend.map(|backend| backend.to_string().into());
        let of_options = [
            ("label_rounds", self.label_rounds.map(Into::into), Some(100)),
            ("rounds", self.rounds.map(Into::into), Some(50)),
            ("backend", backend, None),
        ];
        for (key, given, usual) in of_options {
            let usual = usual.filter(|_| !is_set(key)).map(Into::into);
            own.extend(given.or(usual).map(|value| (key, value)));
        }
        let own = own.into_iter().map(|(key, value)| (key.to_owned(), value));
        self.common.job(own.collect())
    }

    /// The job of `arm`.
    pub(super) fn job(&self, table: &Table, arm: Arm) -> Result<Job, Failure> {
        let base = self.base(table)?;
        let job = Job {
            pseudo: arm.pseudo(),
            mean_teacher: arm.teacher,
            propagation: Params {
                alpha: arm.alpha(base.propagation.alpha),
                variant: arm.variant(),
                ..base.propagation
            },
            label_epsilon: self.label_epsilon,
            parameters: table.parameters(arm.teacher),
            ..base
        };
        job.check().map_err(Failure::usage)?;
        Ok(job)
    }

    /// Refuses what no job can do.
    pub(super) fn check(&self, rows: usize) -> Result<(), Failure> {
        let refuse = |what: String| Err(Failure::usage(what));
        if !(0.01..=0.9).contains(&self.test) {
            return refuse(format!("--test {}; it must be from 0.01 to 0.9", self.test));
        }
        if self.clients < 3 {
            return refuse(format!(
                "--clients {}; three or more are needed",
                self.clients
            ));
        }
        let holders = self.labelled_clients.unwrap_or(self.clients);
        if !(1..=self.clients).contains(&holders) {
            return refuse(format!(
                "--labelled-clients {holders}; it must be from 1 to {}",
                self.clients
            ));
        }
        if self.labelled < holders || self.labelled >= rows {
            return refuse(format!(
                "--labelled {}; it must be from {holders}, one for each client with labels, to \
                 {}",
                self.labelled,
                rows - 1
            ));
        }
        if self.arms.is_empty() || self.seeds == 0 {
            return refuse("--arms and --seeds: one is the least".into());
        }
        if self
            .arms
            .iter()
            .enumerate()
            .any(|(place, arm)| self.arms[..place].contains(arm))
        {
            return refuse("--arms: an arm is named twice".into());
        }
        Ok(())
    }

    /// Refuses a job that would move very many bytes.
    pub(super) fn check_traffic(&self, job: &Job, rows: usize) -> Result<(), Failure> {
        let params = &job.propagation;
        // The bytes of a distance, from the table of the backends.
        let per_distance = match params.backend {
            Backend::Shade => 1.63 * params.bits as f64,
            Backend::Phe => 45.0,
            Backend::Lwe => 58.0,
            _ => 30.0,
        };
        let per_client = rows as f64 / self.clients as f64;
        let pairs = (job.sampled * (job.sampled - 1) / 2) as f64 * per_client * per_client;
        let total = per_distance * pairs * f64::from(job.rounds) * f64::from(self.seeds);
        if total > MOST_BYTES && !self.allow_traffic {
            return Err(Failure::usage(format!(
                "{} would move about {} in {} rounds; choose another backend or fewer rounds, or \
                 pass --allow-traffic",
                params.backend,
                bytes(total as u64),
                job.rounds
            )));
        }
        Ok(())
    }

    pub(super) fn introduction(&self, table: &Table, job: &Job) -> String {
        let holders = self.labelled_clients.unwrap_or(self.clients);
        let members = match job.sampling {
            Sampling::Free => format!(
                "{} clients a round, drawn freely: over many rounds the server can compute each \
                 client's updates",
                job.sampled
            ),
            Sampling::Groups(least) => format!(
                "about {} clients a round, in fixed groups of at least {least}: the server sees \
                 sums over groups",
                job.sampled
            ),
        };
        format!(
            "{}: {} rows for training, {} for tests, {} features, {} classes\n\
             {} clients ({}), {} labels at {holders} clients, {} from {}\n\
             {}, {} parameters; {} + {} rounds of {} epochs\n{members}\n\
             backend {}: the server also learns each model, and\n  {}\n",
            self.file.display(),
            table.training.len(),
            table.testing.len(),
            table.features,
            table.classes,
            self.clients,
            self.split,
            self.labelled,
            counted(self.seeds, "seed"),
            self.common.seed,
            table.describe_model(),
            table.parameters(false),
            job.label_rounds,
            job.rounds,
            job.epochs,
            job.propagation.backend,
            job.propagation.backend.server_learns(),
        )
    }
}
