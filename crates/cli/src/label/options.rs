//! The arguments of `label` and their checks.

use std::path::PathBuf;

use clap::{ArgGroup, Args};
use undertone::data::parts::columns;
use undertone::data::{Classes, Kind};
use undertone::hamming::Backend;
use undertone::label::{Params, Rows, Variant};
use undertone_lab::keys::Keys;
use undertone_lab::masks::Masks;
use undertone_lab::noise;
use undertone_lab::split::{Split, check_labelled};
use undertone_lab::{Failure, runs};

use crate::files;

const DEFAULT_BITS: usize = 4096;
const DEFAULT_RUNS: u32 = 10;

#[derive(Debug, Args)]
#[group(skip)]
#[command(group(ArgGroup::new("input").args(["file", "client"]).required(true)))]
pub(crate) struct Label {
    /// A data set in which every row has a label (.npz or CSV). The experiment hides most labels
    /// and reports how many it finds again
    pub(super) file: Option<PathBuf>,
    /// Rows of one client (.npz or CSV), where label -1 means unlabelled. Give this option once for
    /// each client
    #[arg(long, value_name = "FILE")]
    pub(super) client: Vec<PathBuf>,
    /// Number of clients to which the rows of FILE are dealt
    #[arg(long, value_name = "P", default_value_t = 5, conflicts_with = "client")]
    pub(super) clients: usize,
    /// How the rows of FILE are dealt: iid (at random), or dirichlet:A (each class in random
    /// proportions; clients differ more as A shrinks)
    #[arg(long, default_value = "iid", conflicts_with = "client")]
    pub(super) split: Split,
    /// Fraction of each client's rows that keep their label, above 0 and below 1. Only with FILE
    #[arg(
        long,
        value_name = "FRACTION",
        default_value_t = 0.1,
        allow_negative_numbers = true,
        conflicts_with = "client"
    )]
    pub(super) labelled: f64,
    /// Length L of a code in bits [default: 4096; with --codes what the files state]
    #[arg(long, value_name = "L")]
    pub(super) bits: Option<usize>,
    /// Number k of neighbours of a row
    #[arg(long, value_name = "K", default_value_t = 10)]
    pub(super) neighbours: usize,
    /// Part of a score that comes from neighbours, from 0.001 to 0.9999
    #[arg(long, default_value_t = 0.99, allow_negative_numbers = true)]
    pub(super) alpha: f64,
    /// Weights and scores: balanced (weights cos³, scores divided by class counts) or paper
    /// (weights cos, as published)
    #[arg(long, default_value = "balanced")]
    pub(super) variant: Variant,
    /// Protocol by which distances reach the server: lwe, shade, phe, psm, sketch or clear
    #[arg(long, default_value_t)]
    pub(super) backend: Backend,
    /// Randomise each client's labels with local differential privacy. Epsilon E is from 0.001 to
    /// 20; a smaller E keeps fewer labels. The noise protects neither features nor which rows have
    /// a label. Rows that come with a label keep it in the results [default: no noise]
    #[arg(long, value_name = "E", value_parser = noise::epsilon, allow_negative_numbers = true)]
    pub(super) label_epsilon: Option<f64>,
    /// Seed of the first run, from which everything random follows
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(super) seed: u64,
    /// Number of runs, with seeds N, N+1, …; accuracy is their mean. Only with FILE [default: 10]
    #[arg(long, value_name = "R", conflicts_with = "client")]
    runs: Option<u32>,
    /// The former name of --runs
    #[arg(long, hide = true, conflicts_with_all = ["client", "runs"])]
    rounds: Option<u32>,
    /// Bring every feature to mean 0 and standard deviation 1 first. A secure sum gives means and
    /// deviations over all clients to the clients, and not to the server
    #[arg(long, conflicts_with = "codes")]
    pub(super) standardise: bool,
    /// Number of classes, or their names in order, as in benign,malignant [default: what the files
    /// state, or else the labels that occur]
    #[arg(long, value_name = "C")]
    pub(super) classes: Option<Classes>,
    #[command(flatten)]
    pub(super) masks: Masks,
    #[command(flatten)]
    pub(super) keys: Keys,
    /// Allow runs with two clients. Each of them learns the other's part of every sum
    #[arg(long)]
    pub(super) allow_two_clients: bool,
    /// Read codes and their length from the .npz files instead of features, and skip hashing
    #[arg(long)]
    pub(super) codes: bool,
    /// File for the labels of the first run (CSV). With --client a folder for one CSV file of each
    /// client [default: no file; with --client beside each input]
    #[arg(long, value_name = "PATH")]
    pub(super) out: Option<PathBuf>,
    /// File for a picture of the results (SVG): the accuracy of an experiment, and the rows of the
    /// first run by class and correctness, on their first two principal components
    #[arg(long, value_name = "FILE", conflicts_with = "codes")]
    pub(super) plot: Option<PathBuf>,
    /// File for the JSON object that --json prints
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
            job: None,
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
