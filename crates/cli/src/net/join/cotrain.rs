//! `undertone join`, co-training.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use clap::Args;
use serde::Serialize;
use undertone::cotrain::{Data, Job, Labels, Rows, Scaler, Step};
use undertone::data;
use undertone::data::parts::check_names;
use undertone::job::Record;
use undertone::label::{Features, Rows as Loaded};
use undertone::learners::{Classifier, Kind, TREES};
use undertone::node::client::Config;
use undertone::node::cotrain::{Cotrainee, Made};
use undertone::party::{PartyId, SessionId};

use super::super::cotraining::{features, public, write_labels};
use super::super::credentials::Warnings;
use super::super::randomness;
use super::Join;
use super::label::Input;
use super::part::{Costs, own_output, take_part};
use undertone_lab::output;
use undertone_lab::{Failure, Show};

#[derive(Debug, Args)]
#[command(next_help_heading = "Co-training")]
pub(super) struct CotrainOptions {
    /// File with the public rows, the same for all clients (.npz or CSV). Labels in it do not count
    #[arg(long, value_name = "FILE")]
    pub(super) public: Option<PathBuf>,
    /// What this client trains: tree, forest, boosted, logistic or mlp
    #[arg(
        long,
        value_name = "LEARNER",
        default_value = "forest",
        value_parser = undertone_lab::cotrain::learner
    )]
    learner: Kind,
    /// Number of trees of a forest
    #[arg(long, value_name = "N", default_value_t = TREES)]
    trees: u16,
    /// File with rows that the final learner labels. OUT has their labels, instead of those of the
    /// public rows
    #[arg(long, value_name = "FILE")]
    predict: Option<PathBuf>,
}

/// The JSON object of `join`.
#[derive(Debug, Serialize)]
struct Report {
    rows: usize,
    public_rows: usize,
    learner: &'static str,
    /// Exchanges in which this client voted.
    exchanges: u32,
    /// Public rows with a consensus at the end.
    covered: usize,
    /// Rows that the learner labelled.
    labelled: usize,
    #[serde(flatten)]
    costs: Costs,
}

/// What happened so far.
#[derive(Debug, Default)]
struct Progress {
    exchanges: u32,
    consensus: Option<Labels>,
    is_over: bool,
}

/// The rows of a client, all with labels.
struct Own {
    features: Features,
    labels: Vec<u16>,
    columns: Vec<String>,
}

impl Own {
    fn load(options: &Join, record: &Record) -> Result<Self, Failure> {
        let unusable = |what: &str| Failure::in_file(&options.data, what);
        let input = Input::load(options, data::Kind::Table, record)?;
        let Loaded::Features(features) = input.rows else {
            return Err(unusable("co-training needs features, not codes"));
        };
        let labels = input.labelling.labels();
        let labelled: Vec<usize> = (0..labels.len())
            .filter(|row| labels[*row].is_some())
            .collect();
        if labelled.is_empty() {
            return Err(unusable(
                "no row has a label; co-training learns from labels",
            ));
        }
        let dim = features.dim();
        let row = |row: &usize| &features.values()[row * dim..(row + 1) * dim];
        let values = labelled.iter().flat_map(row).copied().collect();
        Ok(Self {
            features: Features::table(dim, values).map_err(|error| unusable(&error.to_string()))?,
            labels: labels.iter().flatten().copied().collect(),
            columns: input.columns,
        })
    }
}

/// Rows, prepared as the public ones.
fn prepare(features: &Features, scaler: Option<&Scaler>) -> Vec<f32> {
    match scaler {
        Some(scaler) => scaler.apply(features.values()),
        None => features
            .values()
            .iter()
            .map(|value| *value as f32)
            .collect(),
    }
}

pub(super) fn run(
    options: &Join,
    config: &Config,
    warnings: &Warnings,
    show: Show,
) -> Result<(), Failure> {
    let record = options.record(config)?;
    let own = Own::load(options, &record)?;
    let rows = own.labels.len();
    let mine = &options.cotrain;
    let Some(shared) = &mine.public else {
        return Err(Failure::usage(
            "co-training needs the public rows: --public FILE",
        ));
    };
    let (public_rows, public_columns) = features(shared)?;
    let (count, dim) = (public_rows.rows(), public_rows.dim());
    let (predict, predict_columns) = match mine.predict.as_deref().map(features).transpose()? {
        Some((rows, columns)) => (Some(rows), columns),
        None => (None, Vec::new()),
    };
    let mut inputs = vec![&options.data, shared];
    inputs.extend(&mine.predict);
    // The learner is trained on the one, and votes on the others.
    let columns = [&own.columns, &public_columns, &predict_columns];
    let named = inputs.iter().map(|path| path.display()).zip(columns);
    check_names(named).map_err(|(path, why)| Failure::data(format!("{path}: {why}")))?;
    let config = config.clone().with_columns(&own.columns);
    let inputs: Vec<&Path> = inputs.into_iter().map(PathBuf::as_path).collect();
    let out = own_output(&options.out, &inputs)?;
    options.log(warnings, show);
    let terms = options.terms()?;
    let seed = randomness(options.link.insecure_seed)
        .party(SessionId([0; 32]), PartyId::client(0))
        .map_err(|error| Failure::new(71, format!("randomness: {error}")))?;
    // The final learner labels these rows.
    let asked = Arc::new(Mutex::new(Vec::new()));
    let (told, kind, trees) = (Arc::clone(&asked), mine.learner, mine.trees);
    let make = move |job: &Job| {
        let (public, scaler) = public(&public_rows, job.standardise)?;
        let values = prepare(&own.features, scaler.as_ref());
        let classes = job.classes;
        let data = Data::new(own.features.dim(), values, own.labels.clone(), classes);
        let data = data.map_err(|error| error.to_string())?;
        if let Some(rows) = &predict
            && rows.dim() != public_rows.dim()
        {
            return Err(format!(
                "the rows of --predict have {} features, the public ones {}",
                rows.dim(),
                public_rows.dim()
            ));
        }
        let rows = predict.as_ref().unwrap_or(&public_rows);
        *told.lock().unwrap_or_else(PoisonError::into_inner) = prepare(rows, scaler.as_ref());
        Ok(Made {
            learner: Box::new(Classifier::new(kind, classes, &seed).with_trees(trees)),
            data,
            public: Arc::new(public),
        })
    };
    let progress = Arc::new(Mutex::new(Progress::default()));
    let noted = Arc::clone(&progress);
    let on_step = move |step: &Step| {
        let mut progress = noted.lock().unwrap_or_else(PoisonError::into_inner);
        match step {
            Step::Voted { number, labels } => {
                progress.exchanges += 1;
                let covered = labels.iter().flatten().count();
                tracing::info!(exchange = number, covered, "voted");
            }
            Step::Over(labels) => {
                progress.consensus.clone_from(labels);
                progress.is_over = true;
            }
        }
        Ok(())
    };
    let mut trainee = Cotrainee::new(terms, make, record.clone()).on_step(on_step);
    let joined = take_part(&config, &mut trainee, &record)?;
    let progress = std::mem::take(&mut *progress.lock().unwrap_or_else(PoisonError::into_inner));
    let client = trainee.client().filter(|_| progress.is_over);
    let client = client.ok_or_else(|| Failure::aborted("the job ended without a consensus"))?;
    let values = std::mem::take(&mut *asked.lock().unwrap_or_else(PoisonError::into_inner));
    let asked = Rows {
        dim,
        values: &values,
    };
    let predicted = client.with_learner(|learner| learner.predict(asked));
    let predicted = predicted.map_err(Failure::data)?;
    let labels: Labels = predicted.into_iter().map(Some).collect();
    let labelled = labels.len();
    write_labels(out, &labels)?;
    let consensus = progress.consensus.unwrap_or_default();
    let report = Report {
        rows,
        public_rows: count,
        learner: mine.learner.name(),
        exchanges: progress.exchanges,
        covered: consensus.iter().flatten().count(),
        labelled,
        costs: Costs::of(&joined),
    };
    output::print_report(show, &report, || {
        format!(
            "voted in {} exchanges; {} of {count} public rows have a consensus; the learner \
             labelled {labelled} rows, written to {}\n",
            report.exchanges,
            report.covered,
            options.out.display()
        )
    })
}
