//! The arguments of `label` and their checks.

use std::path::PathBuf;

use clap::{ArgGroup, Args, value_parser};
use serde_json::Value;
use undertone::data::parts::columns;
use undertone::data::{Classes, Kind};
use undertone::hamming::Backend;
use undertone::job::{Entries, settle};
use undertone::label::{Job, Params, Rows, Variant};

use crate::experiments::driver::Common;
use crate::experiments::split::{Split, check_labelled};
use crate::stated::Pair;
use crate::{Failure, noise};

/// The help of an option that states this key of the job.
fn help(text: &str, key: &str) -> String {
    let usual = settle::entries(&Job::default()).swap_remove(key);
    let usual = usual.map_or_else(String::new, |value| match value {
        Value::String(text) => text,
        value => value.to_string(),
    });
    format!("{text} [default: {usual}]")
}

/// Label rows in one process.
#[derive(Debug, Args)]
#[group(skip)]
#[command(group(ArgGroup::new("input").args(["file", "client"]).required(true)))]
pub struct Label {
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
    #[arg(
        long,
        value_name = "L",
        help = help("Length L of a code in bits. With --codes the files state it", "bits")
    )]
    bits: Option<usize>,
    #[arg(long, value_name = "K", help = help("Number k of neighbours of a row", "neighbours"))]
    neighbours: Option<usize>,
    #[arg(
        long,
        allow_negative_numbers = true,
        help = help("Part of a score that comes from neighbours, from 0.001 to 0.9999", "alpha")
    )]
    alpha: Option<f64>,
    #[arg(
        long,
        help = help(
            "Weights and scores: balanced (weights cos³, scores divided by class counts) or paper \
             (weights cos, as published)",
            "variant"
        )
    )]
    variant: Option<Variant>,
    #[arg(
        long,
        help = help(
            "Protocol by which distances reach the server: lwe, shade, phe, psm, sketch or clear",
            "backend"
        )
    )]
    backend: Option<Backend>,
    #[arg(
        long,
        value_name = "N",
        conflicts_with = "codes",
        help = help(
            "For many rows: compare only rows that share one of N cells, such as one for every 400 \
             rows. Clients learn the centres of cells by sums with noise, the server the cells of \
             each row. 0 compares all rows",
            "cells"
        )
    )]
    cells: Option<usize>,
    /// Randomise each client's labels with local differential privacy. Epsilon E is from 0.001 to
    /// 20; a smaller E keeps fewer labels. The noise protects neither features nor which rows have
    /// a label. Rows that come with a label keep it in the results [default: no noise]
    #[arg(long, value_name = "E", value_parser = noise::epsilon, allow_negative_numbers = true)]
    pub(super) label_epsilon: Option<f64>,
    /// Number of runs, with seeds N, N+1, …; accuracy is their mean. Only with FILE
    #[arg(
        long,
        value_name = "R",
        default_value_t = 10,
        value_parser = value_parser!(u32).range(1..),
        conflicts_with = "client"
    )]
    pub(super) runs: u32,
    /// Bring every feature to mean 0 and standard deviation 1 first. A secure sum gives means and
    /// deviations over all clients to the clients, and not to the server
    #[arg(long, conflicts_with = "codes")]
    standardise: bool,
    /// Number of classes, or their names in order, as in benign,malignant [default: what the files
    /// state, or else the labels that occur]
    #[arg(long, value_name = "C")]
    pub(super) classes: Option<Classes>,
    /// Protect sums also from a server that lies about which clients dropped out: clients sign
    /// their keys and the list of contributors
    #[arg(long)]
    malicious_server: bool,
    /// Read codes and their length from the .npz files instead of features, and skip hashing
    #[arg(long)]
    pub(super) codes: bool,
    /// File for the labels of the first run (CSV). With --client a folder for one CSV file of each
    /// client [default: no file; with --client beside each input]
    #[arg(long, value_name = "PATH")]
    pub(super) out: Option<PathBuf>,
    /// Folder for neighbours.npy, scores.npy, labels.npy and rows.npy of the first run
    #[arg(long, value_name = "DIR")]
    pub(super) trace: Option<PathBuf>,
    #[command(flatten)]
    pub(super) common: Common,
}

impl Label {
    /// What the files hold.
    pub(super) fn kind(&self) -> Kind {
        if self.codes {
            Kind::Codes
        } else {
            Kind::Features
        }
    }

    /// Refuses options that never go together.
    pub(super) fn check(&self) -> Result<(), Failure> {
        check_labelled(self.labelled)?;
        if self.codes && self.common.draws() {
            return Err(Failure::usage(
                "--plot needs features; leave it or --codes out",
            ));
        }
        if let Some(alpha) = self.alpha {
            // Also what is no number, and has no place in a job.
            let params = Params {
                alpha,
                ..Params::default()
            };
            params.check().map_err(Failure::usage)?;
        }
        Ok(())
    }

    /// The job of `clients` clients with rows like `rows` of so many classes.
    pub(super) fn job(&self, rows: &Rows, classes: usize, clients: usize) -> Result<Job, Failure> {
        let of_classes = |(key, _): &&Pair| key == "classes" || key == "class_names";
        if let Some((key, _)) = self.common.set.iter().find(of_classes) {
            return Err(Failure::usage(format!(
                "--set {key}: the files or --classes state the classes"
            )));
        }
        let text = |name: Option<String>| name.map(Value::from);
        let stated = [
            ("bits", self.bits.map(Value::from)),
            ("neighbours", self.neighbours.map(Value::from)),
            ("alpha", self.alpha.map(Value::from)),
            ("variant", text(self.variant.map(|name| name.to_string()))),
            ("backend", text(self.backend.map(|name| name.to_string()))),
            ("cells", self.cells.map(Value::from)),
            ("standardise", self.standardise.then(|| true.into())),
            (
                "malicious_server",
                self.malicious_server.then(|| true.into()),
            ),
        ];
        let stated = stated
            .into_iter()
            .filter_map(|(key, value)| Some((key, value?)));
        let mut own: Entries = stated.map(|(key, value)| (key.to_owned(), value)).collect();
        // The files state them.
        own.insert("classes".to_owned(), classes.into());
        own.insert("class_names".to_owned(), Value::Array(Vec::new()));
        if let Rows::Codes(_) = rows {
            own.insert("bits".to_owned(), self.code_length(rows)?.into());
        }
        let job: Job = self.common.job(own)?;
        if self.codes && job.standardise {
            return Err(Failure::usage("standardise needs features, not --codes"));
        }
        if self.codes && job.cells > 0 {
            return Err(Failure::usage("cells need features, not --codes"));
        }
        let is_set = |key: &str| self.common.set.iter().any(|(other, _)| other == key);
        if is_set("key_bits") && job.params.backend != Backend::Phe {
            return Err(Failure::usage("--set key_bits is only for --backend phe"));
        }
        let least = job.params.min_clients;
        if clients < 2 {
            return Err(Failure::usage(format!(
                "--clients {clients}; two or more are needed"
            )));
        }
        if clients < least {
            let two = "with two clients each learns the other's part of every sum; --set \
                       min_clients=2 if that is acceptable";
            return Err(Failure::usage(match (clients, least) {
                (2, 3) => two.to_owned(),
                _ => format!("{clients} clients, but min_clients is {least}"),
            }));
        }
        Ok(job)
    }

    /// The length of the codes in the files.
    fn code_length(&self, rows: &Rows) -> Result<usize, Failure> {
        let held = columns(rows);
        if let Some(bits) = self.bits.filter(|bits| *bits != held) {
            return Err(Failure::usage(format!(
                "--bits {bits}, but the codes have {held}; leave --bits out"
            )));
        }
        Ok(held)
    }
}

/// Refuses to look for more neighbours than there are other rows.
pub(super) fn check_neighbours(job: &Job, rows: usize) -> Result<(), Failure> {
    let neighbours = job.params.neighbours;
    if neighbours >= rows {
        return Err(Failure::data(format!(
            "{neighbours} neighbours for {rows} rows; --neighbours must be below the number of \
             rows"
        )));
    }
    Ok(())
}
