//! The arguments of `fedgraph` and their checks.

use std::path::PathBuf;

use clap::Args;
use undertone::fedgraph::{Cut, Job, Predict};
use undertone::nets::LocalSettings;

use super::deal::Table;
use crate::Failure;
use crate::experiments::driver::Common;
use crate::report::counted;

/// Predict rows whose features are at several clients.
#[derive(Debug, Args)]
#[group(skip)]
pub struct FedGraph {
    /// A data set in which every row has a label (.npz or CSV). Each feature is scaled to values
    /// from 0 to 1
    pub(super) file: PathBuf,
    /// Number of clients to which the features are dealt
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub(super) clients: usize,
    /// The share of the features that each client gets, above 0 and at most 1. Several clients may
    /// get the same feature
    #[arg(long, value_name = "P", default_value_t = 0.1)]
    pub(super) features: f64,
    /// The share of the rows that are predicted, above 0 and below 1
    #[arg(long, value_name = "R", default_value_t = 0.2)]
    pub(super) test: f64,
    /// Rows of a cluster [default: 17]
    #[arg(long, value_name = "ROWS")]
    cluster: Option<usize>,
    /// Steps of training of the graph network [default: 300]
    #[arg(long, value_name = "N")]
    steps: Option<u32>,
    /// Units of the last layer of the clients' own networks. The two layers before have twice and
    /// four times as many. The graph network has as many units as the layer of the embedding
    #[arg(long, value_name = "N", default_value_t = 64)]
    pub(super) width: usize,
    /// Passes over the rows in the training of the clients' own networks
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub(super) epochs: usize,
    /// The hidden layer of the clients' networks that is their embedding, from 1 to 3
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub(super) layer: usize,
    /// Where the graph network is cut: client (the server sees nothing), server (it sees sums of
    /// the first layer), embeddings (it sees the embeddings of clusters) [default: client]
    #[arg(long)]
    cut: Option<Cut>,
    /// Leave out the graph network over single rows, which takes most of the time
    #[arg(long)]
    pub(super) clusters_only: bool,
    /// Number of runs, each with features dealt anew
    #[arg(long, value_name = "R", default_value_t = 5)]
    pub(super) runs: u32,
    #[command(flatten)]
    pub(super) common: Common,
}

impl FedGraph {
    pub(super) fn job(&self, table: &Table) -> Result<Job, Failure> {
        let is_share = self.features > 0.0 && self.features <= 1.0;
        if !(is_share && self.test > 0.0 && self.test < 1.0) {
            return Err(Failure::usage(
                "--features must be above 0 and at most 1, --test above 0 and below 1",
            ));
        }
        if self.runs == 0 || self.epochs == 0 {
            return Err(Failure::usage("--runs and --epochs must be 1 or more"));
        }
        if !(1..=3).contains(&self.layer) {
            return Err(Failure::usage("--layer must be 1, 2 or 3"));
        }
        let queries = table.queries(self.test);
        let rows = table.labels.len() - queries;
        let own = [
            ("clients", Some(self.clients.into())),
            ("rows", Some(rows.into())),
            ("queries", Some(queries.into())),
            ("classes", Some(table.classes.len().into())),
            ("width", Some(self.local(table).units(self.layer).into())),
            ("predict", Some(Predict::Graph.to_string().into())),
            // All parties are in one process, and the rows to predict have labels.
            ("reveal_embeddings", Some(true.into())),
            ("cluster", self.cluster.map(Into::into)),
            ("steps", self.steps.map(Into::into)),
            ("cut", self.cut.map(|cut| cut.to_string().into())),
        ];
        let own = own.into_iter();
        let own = own.filter_map(|(key, value)| Some((key.to_owned(), value?)));
        let job: Job = self.common.job(own.collect())?;
        // Nobody continues the run.
        Ok(Job {
            every: job.steps.max(1),
            ..job
        })
    }

    /// How the clients' own networks are built and trained.
    pub(super) fn local(&self, table: &Table) -> LocalSettings {
        LocalSettings {
            width: self.width,
            epochs: self.epochs,
            ..LocalSettings::new(table.classes.len())
        }
    }

    pub(super) fn introduction(&self, table: &Table, job: &Job) -> String {
        format!(
            "{}: {} rows, {} features, {} classes; {} rows are predicted\n\
             {} clients, each with {} % of the features; clusters of {} rows; {} steps of the \
             graph network, cut at {}; {} from seed {}\n\
             the server sees {}\n",
            self.file.display(),
            table.labels.len(),
            table.dim,
            table.classes.len(),
            job.queries,
            job.clients,
            100.0 * self.features,
            job.cluster,
            job.steps,
            job.cut,
            counted(self.runs, "run"),
            self.common.seed,
            match job.cut {
                Cut::Client => "nothing",
                Cut::Server => {
                    "sums of the first layer, which tell the embeddings of clusters if it knows \
                     the weights"
                }
                _ => "the embeddings of clusters",
            },
        )
    }
}
