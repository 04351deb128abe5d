//! The arguments of `pssl` and their checks.

use std::path::PathBuf;

use clap::Args;
use serde_json::Value;
use undertone::job::Entries;
use undertone::pssl::{Job, Reveal, asked};

use super::deal::Table;
use crate::experiments::driver::Common;
use crate::experiments::split::{self, Split};
use crate::report::{self, counted};
use crate::{Failure, stated};

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
    /// Number of runs, each with rows dealt anew
    #[arg(long, value_name = "R", default_value_t = 5)]
    pub(super) runs: u32,
    #[command(flatten)]
    pub(super) common: Common,
}

impl Pssl {
    pub(super) fn job(&self, table: &Table) -> Result<Job, Failure> {
        split::check_labelled(self.labelled)?;
        if self.clients < 3 || self.runs == 0 {
            return Err(Failure::usage(
                "--clients: three or more are needed; --runs: one or more",
            ));
        }
        let set = stated::entries("--set", &self.common.set)?;
        let of = |key: &str| {
            set.get(key)
                .and_then(Value::as_u64)
                .map(|value| value as usize)
        };
        let classes = table.classes.len();
        let rows = table.labels.len() / self.clients;
        let mut own = Entries::from_iter([
            ("features".to_owned(), table.features.into()),
            ("classes".to_owned(), classes.into()),
            ("scale".to_owned(), table.scale.into()),
        ]);
        if !set.contains_key("asked") {
            let asked = asked(rows, of("clusters").unwrap_or(classes));
            own.insert("asked".to_owned(), asked.into());
        }
        self.common.job(own)
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
            self.common.seed,
            match job.reveal {
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
