//! The arguments of `pssl` and their checks.

use std::path::PathBuf;

use clap::Args;
use undertone::pssl::{Job, Reveal, asked};

use super::deal::Table;
use crate::Failure;
use crate::masks::Masks;
use crate::report::{self, counted};
use crate::split::{self, Split};

/// Label rows over a graph between pairs of clients.
#[derive(Debug, Args)]
#[group(skip)]
pub struct Pssl {
    /// A data set in which every row has a label (.npz or CSV). Values that are not whole numbers
    /// from 0 to 255 are scaled to these, feature by feature
    pub(super) file: PathBuf,
    /// The names of the classes to use, as in 1,2,3,4; rows of other classes are left out [default:
    /// all]
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    pub(super) classes: Vec<String>,
    /// Number of clients to which the rows are dealt
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub(super) clients: usize,
    /// How the rows are dealt: iid (at random), shards (four classes for each client at most), or
    /// dirichlet:A (each class in random proportions)
    #[arg(long, default_value = "iid")]
    pub(super) split: Split,
    /// Share of each client's rows that keep their label, above 0 and below 1
    #[arg(long, value_name = "R", default_value_t = 0.05)]
    pub(super) labelled: f64,
    /// Least length of an edge between clients, in units of the largest value of a feature
    #[arg(long, value_name = "D", default_value_t = 1.5)]
    pub(super) d_min: f64,
    /// Greatest length of an edge between clients
    #[arg(long, value_name = "D", default_value_t = 2.75)]
    pub(super) d_max: f64,
    /// What an edge tells its ends about its length: bucket (which quarter of the range), distance
    /// (its square), or accept (nothing more)
    #[arg(long, default_value = "bucket")]
    pub(super) reveal: Reveal,
    /// Number of clusters of each client [default: the number of classes]
    #[arg(long, value_name = "L")]
    pub(super) clusters: Option<usize>,
    /// Edges asked for per pair of clusters [default: 0.64 times the rows of a cluster]
    #[arg(long, value_name = "R")]
    pub(super) asked: Option<usize>,
    /// Neighbours of a row in its client's own graph
    #[arg(long, value_name = "K", default_value_t = 10)]
    pub(super) neighbours: usize,
    /// Rounds of propagation
    #[arg(long, value_name = "T", default_value_t = 20)]
    pub(super) rounds: u32,
    /// Edges of a row with one other client: only 1 is possible
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(super) lambda: u32,
    /// Begin with the result of propagation at each client alone, which blurs labels
    #[arg(long)]
    pub(super) local_start: bool,
    /// Use rows with edges to one client only: their owner sees scores of single rows
    #[arg(long)]
    pub(super) allow_single: bool,
    /// Number of runs, each with rows dealt anew
    #[arg(long, value_name = "R", default_value_t = 5)]
    pub(super) runs: u32,
    /// The first seed, from which everything random follows
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(super) seed: u64,
    #[command(flatten)]
    pub(super) masks: Masks,
    /// File for a picture of the accuracies of all runs (SVG)
    #[arg(long, value_name = "FILE")]
    pub(super) plot: Option<PathBuf>,
    /// File for the JSON object that --json prints
    #[arg(long, value_name = "FILE")]
    pub(super) report: Option<PathBuf>,
}

impl Pssl {
    pub(super) fn job(&self, table: &Table) -> Result<Job, Failure> {
        split::check_labelled(self.labelled)?;
        if self.clients < 3 || self.runs == 0 {
            return Err(Failure::usage(
                "--clients: three or more are needed; --runs: one or more",
            ));
        }
        let clusters = self.clusters.unwrap_or(table.classes.len());
        let rows = table.labels.len() / self.clients;
        let job = Job::new(table.features, table.scale, table.classes.len(), rows);
        let job = Job {
            clusters,
            neighbours: self.neighbours,
            asked: self.asked.unwrap_or(asked(rows, clusters)),
            lambda: self.lambda,
            reveal: self.reveal,
            rounds: self.rounds,
            local_start: self.local_start,
            allow_single: self.allow_single,
            trust: self.masks.trust(),
            suite: self.masks.suite,
            ..job.with_range(self.d_min, self.d_max)
        };
        job.check().map_err(Failure::usage)?;
        Ok(job)
    }

    pub(super) fn introduction(&self, table: &Table, job: &Job) -> String {
        let pairs = self.clients * (self.clients - 1) / 2;
        let most = job.pair_bytes(job.most_comparisons());
        let least = job.pair_bytes(2 * job.clusters * job.asked);
        let bytes = |count: usize| report::bytes(count as u64);
        format!(
            "{}: {} rows of {} features from 0 to {}{}, {} classes\n\
             {} clients ({}), {} % of the rows of each labelled, {} clusters, {} edges asked for \
             per pair of clusters, from {} to {}; {} from seed {}\n\
             both ends of an edge learn: {}\n\
             a pair of clients sends from about {} to {} at worst; all {pairs} pairs from {} to \
             {}, through the server\n",
            self.file.display(),
            table.labels.len(),
            table.features,
            table.scale,
            if table.is_scaled { " (scaled)" } else { "" },
            table.classes.len(),
            self.clients,
            self.split,
            100.0 * self.labelled,
            job.clusters,
            job.asked,
            job.d_min,
            job.d_max,
            counted(self.runs, "run"),
            self.seed,
            match self.reveal {
                Reveal::Bucket => "its quarter of the range",
                Reveal::Distance => "the square of its length",
                _ => "that it is there",
            },
            bytes(least),
            bytes(most),
            bytes(pairs * least),
            bytes(pairs * most),
        )
    }
}
