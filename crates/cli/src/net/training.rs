//! What server and clients of a training job share, and the server's half.

use std::path::{Path, PathBuf};

use serde_json::Value;
use undertone::data::Kind as Columns;
use undertone::job::{Entries, Fault, Known};
use undertone::kdf::Seed;
use undertone::label;
use undertone::nets::{Kind, Net};
use undertone::node::{Facts, JobError, Served, jobs};
use undertone::train::{Job, Model, Report, Rows, Server};
use undertone_lab::output::Output;
use undertone_lab::{Failure, input};

/// The network that a job names.
pub(super) fn kind(job: &Job) -> Result<Kind, String> {
    let kind = Kind::named(&job.model, job.features, job.classes);
    kind.map_err(|error| error.to_string())
}

/// A network with random parameters.
pub(super) fn net(kind: Kind, seed: &Seed, teacher: bool) -> Result<Net, String> {
    let net = Net::new(kind, seed).map_err(|error| error.to_string())?;
    Ok(if teacher { net.with_teacher() } else { net })
}

/// Reads a job file. The number of parameters follows from the model that it names.
pub(super) fn parse(text: &str, signed: bool) -> Result<Job, JobError> {
    let parameters = |_: &str, all: &Entries| {
        let number = |key: &str| {
            let value = all.get(key).and_then(Value::as_u64);
            let value = value.ok_or_else(|| Fault::of(key, "is no whole number"))?;
            Ok::<_, Fault>(value as usize)
        };
        let name = all.get("model").and_then(Value::as_str);
        let name = name.ok_or_else(|| Fault::of("model", "is no text"))?;
        let name = if name.is_empty() { "mlp" } else { name };
        let kind = Kind::named(name, number("features")?, number("classes")?);
        let kind = kind.map_err(|error| Fault::of("model", error))?;
        let teacher = all.get("mean_teacher").and_then(Value::as_bool);
        let copies = if teacher == Some(true) { 2 } else { 1 };
        let count = copies * kind.params();
        Ok(Entries::from([
            ("model".to_owned(), name.into()),
            ("parameters".to_owned(), count.into()),
        ]))
    };
    let known = Known {
        ask: Some(&parameters),
        ..Known::new(signed)
    };
    jobs::parse(text, known)
}

/// Rows whose labels the server knows, to test models with.
struct Test {
    values: Vec<f32>,
    features: usize,
    labels: Vec<u16>,
}

impl Test {
    fn load(path: &Path, job: &Job) -> Result<Self, Failure> {
        let unusable = |why: String| Failure::in_file(path, why);
        let why = "a test compares every label";
        let (data, labels) = input::load_labelled(path, Columns::Features, None, why)?;
        let label::Rows::Features(features) = &data.rows else {
            return Err(unusable("features are needed, not codes".into()));
        };
        if features.dim() != job.features {
            return Err(unusable(format!(
                "rows have {} features, those of the job {}",
                features.dim(),
                job.features
            )));
        }
        let values = features.values().iter();
        Ok(Self {
            values: values.map(|value| (value / job.scale) as f32).collect(),
            features: features.dim(),
            labels,
        })
    }

    /// Per cent of the rows that the model predicts right.
    fn accuracy(&self, net: &mut Net) -> Option<f64> {
        let rows = Rows {
            dim: self.features,
            values: &self.values,
        };
        let classes = net.kind().classes();
        let probabilities = net.predict(rows).ok()?;
        let right = probabilities.chunks_exact(classes).zip(&self.labels);
        let right = right.filter(|(p, label)| {
            let best = (0..classes).max_by(|a, b| p[*a].total_cmp(&p[*b]));
            best == Some(usize::from(**label))
        });
        Some(100.0 * right.count() as f64 / self.labels.len() as f64)
    }
}

/// A job, and its first model.
pub(super) struct New {
    job: Job,
    net: Net,
}

impl New {
    /// `job`, with a first model that follows from `seed`.
    pub(super) fn of(job: Job, seed: &Seed) -> Result<Self, Failure> {
        let kind = kind(&job).map_err(Failure::usage)?;
        let net = net(kind, seed, job.mean_teacher).map_err(Failure::usage)?;
        Ok(Self { job, net })
    }

    /// The server's half.
    pub(super) fn server(&self) -> Server {
        Server::new(self.job.clone(), self.net.params())
    }

    /// The half `server` on a network. It writes each model to the file `model`, and tests it with
    /// the rows of `test`.
    pub(super) fn served(
        self,
        server: Server,
        model: Option<PathBuf>,
        test: Option<&Path>,
    ) -> Result<Served<Server>, Failure> {
        let Self { job, mut net } = self;
        let test = test.map(|path| Test::load(path, &job)).transpose()?;
        if let Some(path) = &model {
            Output::create(path).map_err(|failure| failure.of("--model"))?;
        }
        let mut warned = false;
        Ok(Served::new(server).observe(move |report| {
            let mut facts = Facts::new();
            let Report::Trained(round) = report else {
                // The next job may have other clients.
                warned = false;
                return facts;
            };
            warn_once(&mut warned, round.warning.as_ref());
            if net.set_params(&round.model).is_err() {
                return facts;
            }
            let accuracy = test.as_ref().and_then(|test| test.accuracy(&mut net));
            if let Some(accuracy) = accuracy {
                facts.insert("accuracy".to_owned(), accuracy.into());
            }
            let ids = round.taken.contributors.iter().map(ToString::to_string);
            tracing::info!(
                round = round.taken.number,
                of = job.last(),
                clients = ids.collect::<Vec<_>>().join(", "),
                accuracy,
                "trained"
            );
            if let Some(path) = &model
                && let Err(failure) = write(&net, path)
            {
                tracing::error!("{}", failure.message);
            }
            facts
        }))
    }
}

/// Logs the warning of a round, unless a round before had one.
pub(super) fn warn_once(warned: &mut bool, warning: Option<&String>) {
    if let Some(warning) = warning
        && !std::mem::replace(warned, true)
    {
        tracing::warn!("{warning}");
    }
}

fn write(net: &Net, path: &Path) -> Result<(), Failure> {
    let bytes = net.to_bytes().map_err(Failure::data)?;
    Output::create(path)?.write(|w| w.write_all(&bytes))
}
