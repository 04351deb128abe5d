//! `undertone join`, a graph network over clients.

use std::sync::Arc;

use clap::Args;
use serde::Serialize;
use undertone::fedgraph::{Client, Inputs, Job, Matrix, Train};
use undertone::job::{Agreed, Record};
use undertone::kdf::Seed;
use undertone::label::Rows as Loaded;
use undertone::nets::{Local, LocalSettings, unit_scale};
use undertone::node::client::Config;
use undertone::party::{PartyId, SessionId};
use undertone::train::Rows;

use super::super::credentials::Warnings;
use super::super::randomness;
use super::label::Input;
use super::part::{Costs, own_output, take_part};
use super::{Application, Given, Join, pssl};
use undertone_lab::output::{self, Output};
use undertone_lab::{Failure, Show};

#[derive(Debug, Args)]
#[command(next_help_heading = "Graph network over clients")]
pub(super) struct FedGraphOptions {
    /// The names of this client's features, as in age,weight, if the data file has none. Clients
    /// that have a name in common are neighbours
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    columns: Vec<String>,
    #[arg(
        long,
        value_name = "N",
        hide_short_help = true,
        help = format!(
            "Passes over the rows in the training of this client's own network [default: {}]",
            LocalSettings::new(2).epochs
        )
    )]
    epochs: Option<usize>,
}

impl FedGraphOptions {
    pub(super) fn given(&self) -> [Given; 2] {
        const FEDGRAPH: &[Application] = &[Application::Fedgraph];
        [
            Given::new("--columns", !self.columns.is_empty(), FEDGRAPH),
            Given::new("--epochs", self.epochs.is_some(), FEDGRAPH),
        ]
    }
}

/// The JSON object of `join`.
#[derive(Debug, Serialize)]
struct Report {
    rows: usize,
    predicted_rows: usize,
    /// Clients in the graph network. The others have too few neighbours.
    clients_in_network: usize,
    /// Whether the graph network predicted the rows. Otherwise the soft vote did.
    by_graph: bool,
    #[serde(flatten)]
    costs: Costs,
}

/// The rows of a client.
struct Own {
    columns: Vec<String>,
    values: Vec<f32>,
    dim: usize,
    labels: Vec<Option<u16>>,
}

impl Own {
    /// The values of the rows with a label, or of those without.
    fn values(&self, labelled: bool) -> Vec<f32> {
        let rows = self.values.chunks_exact(self.dim).zip(&self.labels);
        let chosen = rows.filter(|(_, label)| label.is_some() == labelled);
        chosen.flat_map(|(row, _)| row).copied().collect()
    }

    /// What trains this client's network for a job.
    fn train(self: Arc<Self>, job: &Job, epochs: usize) -> Result<Train, String> {
        let job = job.clone();
        let known = self.labels.iter().flatten().count();
        let queries = self.labels.len() - known;
        if (known, queries) != (job.rows, job.queries) {
            return Err(format!(
                "{known} rows have a label and {queries} have none; the job has {} and {}",
                job.rows, job.queries
            ));
        }
        Ok(Box::new(move |seed| {
            self.inputs(&job, epochs, seed).map(Arc::new)
        }))
    }

    /// Trains this client's network. Returns what it brings to the job.
    fn inputs(&self, job: &Job, epochs: usize, seed: &Seed) -> Result<Inputs, String> {
        let labels: Vec<u16> = self.labels.iter().flatten().copied().collect();
        let queries = job.queries;
        let settings = LocalSettings {
            width: job.width,
            epochs,
            ..LocalSettings::new(job.classes)
        };
        let [known, asked] = [true, false].map(|labelled| self.values(labelled));
        let rows = |values| Rows {
            values,
            dim: self.dim,
        };
        let text = |error: undertone::train::ModelError| error.0;
        let local = Local::fit(rows(&known), &labels, settings, seed).map_err(text)?;
        let matrix = |count: usize, columns: usize, values: Vec<f32>| {
            let values = values.into_iter().map(f64::from).collect();
            Matrix::new(count, columns, values).ok_or_else(|| "values were counted".to_owned())
        };
        let layer = settings.layers;
        let embeddings = local.embeddings(rows(&known), layer).map_err(text)?;
        let asked_embeddings = local.embeddings(rows(&asked), layer).map_err(text)?;
        let shares = local.probabilities(rows(&asked)).map_err(text)?;
        Ok(Inputs {
            columns: self.columns.clone(),
            embeddings: matrix(labels.len(), job.width, embeddings)?,
            queries: matrix(queries, job.width, asked_embeddings)?,
            probabilities: matrix(queries, job.classes, shares)?,
            labels,
        })
    }

    /// The labels of all rows: those that the file has, and the likeliest for the others.
    fn labels(&self, shares: &Matrix) -> Vec<Option<u16>> {
        let mut shares = shares.each_row();
        let best = |row: &[f64]| {
            let best = (0..row.len()).fold(
                0,
                |best, class| {
                    if row[class] > row[best] { class } else { best }
                },
            );
            best as u16
        };
        let label = |label: &Option<u16>| label.or_else(|| shares.next().map(best));
        self.labels.iter().map(label).collect()
    }
}

fn load(options: &Join, record: &Record) -> Result<(Own, Vec<String>), Failure> {
    let unusable = |what: String| Failure::in_file(&options.data, what);
    let input = Input::numbered(options, record)?;
    let Loaded::Features(features) = input.rows else {
        return Err(unusable("fedgraph needs features, not codes".into()));
    };
    let columns = match &options.fedgraph.columns[..] {
        [] => input.columns,
        given => given.to_vec(),
    };
    if columns.len() != features.dim() {
        return Err(unusable(format!(
            "{} names for {} features; name each with --columns, or use a CSV file with a header",
            columns.len(),
            features.dim()
        )));
    }
    let names = input.labelling.names().to_vec();
    let own = Own {
        columns,
        values: unit_scale(features.values(), features.dim()),
        dim: features.dim(),
        labels: input.labelling.labels().to_vec(),
    };
    Ok((own, names))
}

pub(super) fn run(
    options: &Join,
    config: &Config,
    warnings: &Warnings,
    show: Show,
) -> Result<(), Failure> {
    let record = options.record(config)?;
    let (own, names) = load(options, &record)?;
    let own = Arc::new(own);
    let out = own_output(&options.out, &[&options.data])?;
    options.log(warnings, show);
    let mine = &options.fedgraph;
    let terms = options.terms()?;
    let seed = randomness(options.link.insecure_seed)
        .party(SessionId([0; 32]), PartyId::client(0))
        .map_err(|error| Failure::new(71, format!("randomness: {error}")))?;
    let epochs = mine.epochs.unwrap_or(LocalSettings::new(2).epochs);
    let rows = Arc::clone(&own);
    let make = move |job: &Job| Arc::clone(&rows).train(job, epochs);
    // Votes are final, also if the training ends early, or this process does.
    let (rows, target, classes) = (Arc::clone(&own), options.out.clone(), names.clone());
    let on_votes = move |votes: &Matrix| {
        let out = Output::create_own(&target);
        let written = out.and_then(|out| pssl::write(out, &rows.labels(votes), &classes));
        written.map_err(|failure| {
            tracing::error!("{}", failure.message);
            // Peers receive this text. It does not name the file.
            "the votes cannot be written".to_owned()
        })
    };
    let mut client = Client::new(terms, seed, make).on_votes(on_votes);
    if let Some(folder) = record.folder() {
        client = client.with_checkpoint(&folder.join("fedgraph"));
    }
    let mut client = Agreed::new(client, record.clone());
    let joined = take_part(config, &mut client, &record);
    let votes = client.part().votes();
    let outcome = client.into_output();
    let by_graph = outcome.as_ref().and_then(|outcome| outcome.graph.clone());
    let is_by_graph = by_graph.is_some();
    let Some(shares) = by_graph.or(votes) else {
        joined?;
        return Err(Failure::aborted("the job ended without predictions"));
    };
    let predicted = shares.rows();
    pssl::write(out, &own.labels(&shares), &names)?;
    let joined = joined.map_err(|failure| Failure {
        message: format!(
            "{}; the soft vote had been taken, its labels are in {}",
            failure.message,
            options.out.display()
        ),
        ..failure
    })?;
    let report = Report {
        rows: own.labels.len(),
        predicted_rows: predicted,
        clients_in_network: outcome.map_or(0, |outcome| outcome.clients.members().count()),
        by_graph: is_by_graph,
        costs: Costs::of(&joined),
    };
    output::print_report(show, &report, || {
        format!(
            "{predicted} of {} rows are predicted by {}; written to {}\n",
            report.rows,
            if is_by_graph {
                "the graph network"
            } else {
                "the soft vote"
            },
            options.out.display()
        )
    })
}
