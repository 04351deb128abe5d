//! The arguments of `label` and their checks.

use std::path::PathBuf;

use clap::{ArgGroup, Args};
use undertone::data::Kind;
use undertone::hamming::Backend;
use undertone::xclp::{Params, Rows, Variant};
use undertone_lab::classes::Classes;
use undertone_lab::keys::Keys;
use undertone_lab::masks::Masks;
use undertone_lab::noise;
use undertone_lab::split::{Split, check_labelled};
use undertone_lab::{Failure, runs};

use super::input::columns;
use crate::files;

const DEFAULT_BITS: usize = 4096;
const DEFAULT_RUNS: u32 = 10;

#[derive(Debug, Args)]
#[command(group(ArgGroup::new("input").args(["file", "client"]).required(true)))]
pub(crate) struct Label {
    /// A data set in which every row is labelled (.npz or CSV); most labels are hidden
    pub(super) file: Option<PathBuf>,
    /// One client's rows; label -1 means unlabelled. Give it once for each client
    #[arg(long, value_name = "FILE")]
    pub(super) client: Vec<PathBuf>,
    /// Clients the rows are dealt out to
    #[arg(long, value_name = "P", default_value_t = 5, conflicts_with = "client")]
    pub(super) clients: usize,
    /// How: iid, or dirichlet:A
    #[arg(long, default_value = "iid", conflicts_with = "client")]
    pub(super) split: Split,
    /// Share of each client's rows that keep their label
    #[arg(
        long,
        value_name = "FRACTION",
        default_value_t = 0.1,
        allow_negative_numbers = true,
        conflicts_with = "client"
    )]
    pub(super) labelled: f64,
    /// Code length L in bits [default: 4096; with --codes the files']
    #[arg(long, value_name = "L")]
    pub(super) bits: Option<usize>,
    /// Neighbours k of a row
    #[arg(long, value_name = "K", default_value_t = 10)]
    pub(super) neighbours: usize,
    /// How much of a score comes from neighbours, from 0.001 to 0.9999
    #[arg(long, default_value_t = 0.99, allow_negative_numbers = true)]
    pub(super) alpha: f64,
    /// balanced (cos³, scores divided by class counts) or paper (cos)
    #[arg(long, default_value = "balanced")]
    pub(super) variant: Variant,
    /// How distances reach the server: psm, shade, phe, sketch or clear
    #[arg(long, default_value = "psm")]
    pub(super) backend: Backend,
    /// Noise on each client's labels, from 0.001 to 20: local differential privacy of each label with
    /// this epsilon. The smaller it is, the fewer labels are kept. Features are not covered, nor is
    /// which rows have a label. Rows that come with a label keep it in the results
    #[arg(long, value_name = "E", value_parser = noise::epsilon, allow_negative_numbers = true)]
    pub(super) label_epsilon: Option<f64>,
    /// Seed of the first run; everything random follows from it
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(super) seed: u64,
    /// Runs, with seeds N, N+1, … [default: 10]
    #[arg(long, value_name = "R", conflicts_with = "client")]
    runs: Option<u32>,
    /// The former name of --runs
    #[arg(long, hide = true, conflicts_with_all = ["client", "runs"])]
    rounds: Option<u32>,
    /// Bring every feature to mean 0 and deviation 1 first. Means and deviations over all clients
    /// come from a secure sum: clients learn them, the server does not
    #[arg(long, conflicts_with = "codes")]
    pub(super) standardise: bool,
    /// How many classes there are, or their names in order, as in benign,malignant [default: what
    /// the files say]
    #[arg(long, value_name = "C")]
    pub(super) classes: Option<Classes>,
    #[command(flatten)]
    pub(super) masks: Masks,
    #[command(flatten)]
    pub(super) keys: Keys,
    /// Go on with two clients, though a sum tells each the other's part
    #[arg(long)]
    pub(super) allow_two_clients: bool,
    /// The files hold codes and bits instead of features; hashing is skipped
    #[arg(long)]
    pub(super) codes: bool,
    /// Labels of the first run, as CSV; with --client the folder for one CSV a client
    /// [default with --client: beside each file]
    #[arg(long, value_name = "PATH")]
    pub(super) out: Option<PathBuf>,
    /// A picture of the results, SVG: accuracy of an experiment, and the rows of the first run in
    /// the plane in which they differ most, by class and correctness
    #[arg(long, value_name = "FILE", conflicts_with = "codes")]
    pub(super) plot: Option<PathBuf>,
    /// The JSON object, in a file
    #[arg(long, value_name = "FILE")]
    pub(super) report: Option<PathBuf>,
    /// Folder for neighbours.npy, scores.npy, labels.npy and rows.npy of the first run
    #[arg(long, value_name = "DIR")]
    pub(super) trace: Option<PathBuf>,
}

impl Label {
    /// What the files hold.
    pub(super) fn kind(&self) -> Kind {
        files::kind(self.codes)
    }

    /// How often an experiment is run.
    pub(super) fn runs(&self) -> Result<u32, Failure> {
        check_labelled(self.labelled)?;
        runs::number(self.runs, self.rounds, DEFAULT_RUNS)
    }

    /// The parameters of a run of `clients` clients with rows like `rows`.
    pub(super) fn params(&self, rows: &Rows, clients: usize) -> Result<Params, Failure> {
        let bits = self.code_length(rows)?;
        if clients < 2 {
            return Err(Failure::usage(format!(
                "--clients {clients}; two or more are needed"
            )));
        }
        if clients == 2 && !self.allow_two_clients {
            return Err(Failure::usage(
                "with two clients each learns the other's part of every sum; \
                 pass --allow-two-clients if that is acceptable",
            ));
        }
        let params = Params {
            bits,
            neighbours: self.neighbours,
            alpha: self.alpha,
            variant: self.variant,
            backend: self.backend,
            phe: self.keys.phe(self.backend)?,
            min_clients: if self.allow_two_clients { 2 } else { 3 },
            trust: self.masks.trust(),
            suite: self.masks.suite,
        };
        params.check().map_err(Failure::usage)?;
        Ok(params)
    }

    fn code_length(&self, rows: &Rows) -> Result<usize, Failure> {
        if matches!(rows, Rows::Features(_)) {
            return Ok(self.bits.unwrap_or(DEFAULT_BITS));
        }
        let held = columns(rows);
        if let Some(bits) = self.bits.filter(|bits| *bits != held) {
            return Err(Failure::usage(format!(
                "--bits {bits}, but the codes have {held}; leave --bits out"
            )));
        }
        Ok(held)
    }

    /// Refuses to look for more neighbours than there are other rows.
    pub(super) fn check_neighbours(&self, rows: usize) -> Result<(), Failure> {
        if self.neighbours >= rows {
            return Err(Failure::data(format!(
                "{} neighbours for {rows} rows; --neighbours must be below the number of rows",
                self.neighbours
            )));
        }
        Ok(())
    }
}
