//! `undertone bench`.

mod distances;
mod label_privacy;
mod link;
mod network;
mod ot;
pub mod paillier;
mod pipeline;
mod sums;

use clap::Subcommand;

use crate::{Failure, Show};

/// The command `bench`.
#[derive(Debug, Subcommand)]
pub enum Bench {
    /// Each stage from features to labels, on one owner's synthetic rows
    Pipeline(pipeline::Pipeline),
    /// What noise on labels costs: accuracy for several epsilon, with many and with few labels
    LabelPrivacy(label_privacy::LabelPrivacy),
    /// A distance backend between random codes: time and bytes a distance
    Distances(distances::Distances),
    /// Oblivious transfers: millions a second, bytes, base transfers
    Ot(ot::Ot),
    /// Paillier's cryptosystem: operations a second, each held against what it should give
    Paillier(paillier::Paillier),
    /// A job as processes over TLS, against the same in one process; links may be slow and long
    Network(network::Network),
    /// A secure sum: each side's processor time, bytes, masks against the cipher alone
    Sums(sums::Sums),
}

impl Bench {
    /// Runs the benchmark.
    pub fn run(self, show: Show) -> Result<(), Failure> {
        match self {
            Self::Pipeline(pipeline) => pipeline.run(show),
            Self::LabelPrivacy(privacy) => privacy.run(show),
            Self::Distances(distances) => distances.run(show),
            Self::Network(network) => network.run(show),
            Self::Ot(ot) => ot.run(show),
            Self::Paillier(paillier) => paillier.run(show),
            Self::Sums(sums) => sums.run(show),
        }
    }
}

/// How often a benchmark may be repeated.
const REPEATS: std::ops::RangeInclusive<usize> = 1..=1000;

/// The line of a report on memory, if the system reports it.
fn memory(peak_mib: Option<f64>, parties: &str) -> String {
    peak_mib.map_or_else(String::new, |mib| format!("  {parties}in {mib:.0} MiB\n"))
}

/// The last lines of a report: memory, and whether `what` is right.
fn closing(peak_mib: Option<f64>, what: &str, exact: bool) -> String {
    let memory = memory(peak_mib, "all parties ");
    format!("{memory}  {what} {}\n", verdict(exact))
}

fn verdict(exact: bool) -> &'static str {
    if exact { "exact" } else { "WRONG" }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}
