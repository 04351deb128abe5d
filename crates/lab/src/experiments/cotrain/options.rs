//! The arguments of `cotrain` and their checks.

use std::path::PathBuf;

use clap::Args;
use undertone::cotrain::{Job, Votes};
use undertone::job::settle::hex;
use undertone::learners::{Kind, TREES};

use super::deal::Table;
use crate::Failure;
use crate::experiments::driver::Common;
use crate::experiments::split::Split;
use crate::report::counted;
use undertone::data::Classes;

/// Parses the name of a learner.
///
/// # Errors
/// The names that there are.
pub fn learner(name: &str) -> Result<Kind, String> {
    Kind::named(name).ok_or_else(|| {
        let names: Vec<&str> = Kind::ALL.iter().map(|kind| kind.name()).collect();
        format!("expected one of {}", names.join(", "))
    })
}

/// Co-train learners.
#[derive(Debug, Args)]
#[group(skip)]
pub struct Cotrain {
    /// A data set in which every row has a label (.npz or CSV)
    pub(super) file: PathBuf,
    /// Number of clients to which the private rows are dealt
    #[arg(long, value_name = "P", default_value_t = 5)]
    pub(super) clients: usize,
    /// How the private rows are dealt: iid (at random), shards (four classes for each client at
    /// most), or dirichlet:A (each class in random proportions). Clients with less than half an
    /// equal share get rows from the others
    #[arg(long, default_value = "iid")]
    pub(super) split: Split,
    /// Number of public rows, without labels [default: 65 per cent of the rows]
    #[arg(long, value_name = "N")]
    pub(super) public: Option<usize>,
    /// Number of rows with which the clients are tested. Nobody learns from them [default: 20 per
    /// cent of the rows]
    #[arg(long, value_name = "N")]
    pub(super) test: Option<usize>,
    /// The clients' learners, in turn: tree, forest, boosted, logistic or mlp
    #[arg(
        long,
        value_name = "LEARNER,…",
        value_delimiter = ',',
        default_value = "forest",
        value_parser = learner
    )]
    pub(super) learners: Vec<Kind>,
    /// Number of trees of a forest
    #[arg(long, value_name = "N", default_value_t = TREES)]
    pub(super) trees: u16,
    /// Number of runs, each with rows dealt anew
    #[arg(long, value_name = "R", default_value_t = 5)]
    pub(super) runs: u32,
    /// Number of classes, or their names in order, as in benign,malignant [default: what the file
    /// states, or else the labels that occur]
    #[arg(long, value_name = "C")]
    pub(super) classes: Option<Classes>,
    #[command(flatten)]
    pub(super) common: Common,
}

impl Cotrain {
    /// The numbers of test rows, public rows and private rows of a file with `rows` rows.
    pub(super) fn sizes(&self, rows: usize) -> Result<[usize; 3], Failure> {
        let share = |per_cent: usize| (rows * per_cent + 50) / 100;
        let test = self.test.unwrap_or(share(20));
        let public = self.public.unwrap_or(share(65));
        let left = rows
            .checked_sub(test)
            .and_then(|rows| rows.checked_sub(public));
        let refuse = |what: String| Err(Failure::usage(what));
        match left {
            _ if test == 0 => refuse("--test 0; at least one row is needed".into()),
            _ if public == 0 => refuse("--public 0; at least one row is needed".into()),
            Some(private) if private >= self.clients => Ok([test, public, private]),
            _ => refuse(format!(
                "--test {test} and --public {public} leave too few of {rows} rows for {} clients",
                self.clients
            )),
        }
    }

    /// Refuses what no job can do.
    pub(super) fn check(&self) -> Result<(), Failure> {
        let refuse = |what: &str| Err(Failure::usage(what));
        if self.clients < 3 {
            return refuse("--clients: three or more are needed");
        }
        if self.runs == 0 || self.trees == 0 {
            return refuse("--runs and --trees: one is the least");
        }
        Ok(())
    }

    /// The job of public rows with this digest, which are used as they are.
    pub(super) fn job(&self, table: &Table, public: [u8; 32]) -> Result<Job, Failure> {
        let own = [
            ("classes", table.classes.into()),
            ("rows", table.sizes[1].into()),
            ("features", table.features.into()),
            ("public", hex::write(&public).into()),
            ("standardise", false.into()),
        ];
        let own = own.map(|(key, value)| (key.to_owned(), value));
        self.common.job(own.into_iter().collect())
    }

    pub(super) fn introduction(&self, table: &Table, job: &Job) -> String {
        let [test, public, private] = table.sizes;
        let learners: Vec<&str> = self.learners.iter().map(|kind| kind.name()).collect();
        let mut text = format!(
            "{}: {public} public rows, {private} private rows, {test} for tests, {} features, {} \
             classes\n{} clients ({}), learners {}, consensus {}, noise {}; {} from seed {}\n\
             votes {}: {}\n",
            self.file.display(),
            table.features,
            table.classes,
            self.clients,
            self.split,
            learners.join(", "),
            job.consensus,
            job.noise,
            counted(self.runs, "run"),
            self.common.seed,
            job.votes,
            match job.votes {
                Votes::Clear => "the server sees every client's votes",
                Votes::Counts => {
                    "the server sees how many votes each class has: everybody's where all agree"
                }
                Votes::Winners => {
                    "nobody sees more than the consensus; the server and a helper together see \
                     the counts of the helper's slice"
                }
            },
        );
        if job.needs_all(self.clients) {
            text += "note: this quorum is all clients: each row with a consensus tells every \
                     vote; on a network clients refuse it\n";
        }
        if let Some(epsilon) = job.noise.per_vote() {
            let bound = job.noise.per_record(public, job.exchanges);
            text += &format!(
                "epsilon of a vote in one exchange: {:.3}; of a private row in the whole job: \
                 {:.0} at most\n",
                epsilon,
                bound.unwrap_or(f64::INFINITY),
            );
        }
        text
    }
}
