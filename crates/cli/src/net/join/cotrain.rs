//! `undertone join`, co-training.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use serde::Serialize;
use undertone::cotrain::{Client, Data, Inputs, Job, Labels, Public, Rows, Step};
use undertone::data::parts::check_names;
use undertone::job::{Agreed, Record};
use undertone::label::{Features, Rows as Loaded};
use undertone::learners::{Classifier, Kind, TREES};
use undertone::node::client::Config;
use undertone::party::{PartyId, SessionId};

use super::super::cotraining::{features, write_labels};
use super::super::credentials::Warnings;
use super::super::randomness;
use super::label::Input;
use super::part::{Costs, own_output, take_part};
use super::{Application, Given, Join};
use undertone_lab::output;
use undertone_lab::{Failure, Show};

#[derive(Debug, Args)]
#[command(next_help_heading = "Co-training")]
pub(super) struct CotrainOptions {
    /// File with the public rows, the same for all clients (.npz or CSV). Labels in it do not count
    #[arg(long, value_name = "FILE")]
    pub(super) public: Option<PathBuf>,
    /// What this client trains: tree, forest, boosted, logistic or mlp [default: forest]
    #[arg(
        long,
        value_name = "LEARNER",
        value_parser = undertone_lab::experiments::cotrain::learner
    )]
    learner: Option<Kind>,
    #[arg(
        long,
        value_name = "N",
        hide_short_help = true,
        help = format!("Number of trees of a forest [default: {TREES}]")
    )]
    trees: Option<u16>,
    /// File with rows that the final learner labels. OUT has their labels, instead of those of the
    /// public rows
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    predict: Option<PathBuf>,
}

impl CotrainOptions {
    pub(super) fn given(&self) -> [Given; 4] {
        const COTRAIN: &[Application] = &[Application::Cotrain];
        [
            Given::new("--public", self.public.is_some(), COTRAIN),
            Given::new("--learner", self.learner.is_some(), COTRAIN),
            Given::new("--trees", self.trees.is_some(), COTRAIN),
            Given::new("--predict", self.predict.is_some(), COTRAIN),
        ]
    }
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

/// The rows of a client, all with labels.
struct Own {
    features: Features,
    labels: Vec<u16>,
    columns: Vec<String>,
}

impl Own {
    fn load(options: &Join, record: &Record) -> Result<Self, Failure> {
        let unusable = |what: &str| Failure::in_file(&options.data, what);
        let input = Input::numbered(options, record)?;
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
    let public_rows = Arc::new(public_rows);
    let (count, dim) = (public_rows.rows(), public_rows.dim());
    let (predict, predict_columns) = match mine.predict.as_deref().map(features).transpose()? {
        Some((rows, columns)) => (Some(rows), columns),
        None => (None, Vec::new()),
    };
    if let Some(rows) = predict.as_ref().filter(|rows| rows.dim() != dim) {
        return Err(Failure::data(format!(
            "the rows of --predict have {} features, the public ones {dim}",
            rows.dim()
        )));
    }
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
    let kind = mine.learner.unwrap_or(Kind::Forest);
    let trees = mine.trees.unwrap_or(TREES);
    let shared = Arc::clone(&public_rows);
    let make = move |job: &Job| {
        let public = Public::prepared(job.standardise, dim, shared.values());
        let (public, scaler) = public.map_err(|error| error.to_string())?;
        let values = scaler.apply(own.features.values());
        let data = Data::new(own.features.dim(), values, own.labels.clone(), job.classes);
        Ok(Inputs {
            learner: Box::new(Classifier::new(kind, job.classes, &seed).with_trees(trees)),
            data: data.map_err(|error| error.to_string())?,
            public: Arc::new(public),
        })
    };
    let client = Client::new(terms, make);
    let mut client = Agreed::new(client, record.clone()).observe(|step| {
        if let Step::Voted { number, labels } = step {
            let covered = labels.iter().flatten().count();
            tracing::info!(exchange = number, covered, "voted");
        }
    });
    let joined = take_part(&config, &mut client, &record)?;
    let (Some(job), Some(Step::Over(consensus))) = (client.job(), client.output()) else {
        return Err(Failure::aborted("the job ended without a consensus"));
    };
    // The final learner labels these rows.
    let public = Public::prepared(job.standardise, dim, public_rows.values());
    let (_, scaler) = public.map_err(Failure::data)?;
    let values = scaler.apply(predict.as_ref().unwrap_or(&public_rows).values());
    let asked = Rows {
        dim,
        values: &values,
    };
    let predicted = client
        .part()
        .with_learner(|learner| learner.predict(asked))
        .ok_or_else(|| Failure::aborted("the job ended before it began"))?;
    let labels: Labels = predicted
        .map_err(Failure::data)?
        .into_iter()
        .map(Some)
        .collect();
    let labelled = labels.len();
    write_labels(out, &labels)?;
    let report = Report {
        rows,
        public_rows: count,
        learner: kind.name(),
        exchanges: client.part().exchanges(),
        covered: consensus.iter().flatten().flatten().count(),
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
