//! What server and clients of a training job share, and the server's half.

use std::path::{Path, PathBuf};

use undertone::data::Kind as Columns;
use undertone::kdf::Seed;
use undertone::label;
use undertone::nets::{Kind, Net};
use undertone::node::Facts;
use undertone::node::train::{Job, Spec, Train};
use undertone::train::{Model, Rows};
use undertone_lab::output::Output;
use undertone_lab::{Failure, input};

/// The network that a job names.
pub(super) fn kind(spec: &Spec) -> Result<Kind, String> {
    let kind = Kind::named(&spec.model, spec.features, spec.classes);
    kind.map_err(|error| error.to_string())
}

/// A network with random parameters.
pub(super) fn net(kind: Kind, seed: &Seed, teacher: bool) -> Result<Net, String> {
    let net = Net::new(kind, seed).map_err(|error| error.to_string())?;
    Ok(if teacher { net.with_teacher() } else { net })
}

/// The number of parameters of the model that a job names.
pub(super) fn parameters(spec: &Spec) -> Result<usize, String> {
    let copies = if spec.mean_teacher { 2 } else { 1 };
    Ok(copies * kind(spec)?.params())
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
        if features.dim() != job.training.features {
            return Err(unusable(format!(
                "rows have {} features, those of the job {}",
                features.dim(),
                job.training.features
            )));
        }
        let values = features.values().iter();
        Ok(Self {
            values: values
                .map(|value| (value / job.training.scale) as f32)
                .collect(),
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

/// The server's half of `job`, from a model that `seed` gives on. It writes each model to the file
/// `model`, and tests it with the rows of `test`.
pub(super) fn application(
    job: Job,
    seed: &Seed,
    model: Option<PathBuf>,
    test: Option<&Path>,
) -> Result<Train, Failure> {
    let kind = kind(&job.spec()).map_err(Failure::usage)?;
    let mut net = net(kind, seed, job.training.mean_teacher).map_err(Failure::usage)?;
    let test = test.map(|path| Test::load(path, &job)).transpose()?;
    if let Some(path) = &model {
        Output::create(path).map_err(|failure| failure.of("--model"))?;
    }
    let first = net.params();
    Ok(Train::new(job, first).on_round(move |progress| {
        let mut facts = Facts::new();
        if net.set_params(progress.model).is_err() {
            return facts;
        }
        let accuracy = test.as_ref().and_then(|test| test.accuracy(&mut net));
        if let Some(accuracy) = accuracy {
            facts.insert("accuracy".to_owned(), accuracy.into());
        }
        let ids = progress.contributors.iter().map(ToString::to_string);
        tracing::info!(
            round = progress.number,
            of = progress.rounds,
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

fn write(net: &Net, path: &Path) -> Result<(), Failure> {
    let bytes = net.to_bytes().map_err(Failure::data)?;
    Output::create(path)?.write(|w| w.write_all(&bytes))
}
