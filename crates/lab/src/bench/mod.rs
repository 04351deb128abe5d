//! `undertone bench`.

mod cells;
mod clients;
mod distances;
mod examples;
mod garble;
pub(crate) mod graph;
mod label_privacy;
mod link;
mod network;
mod ot;
pub mod paillier;
pub(crate) mod pairs;
mod pipeline;
mod round;
mod sums;
pub(crate) mod votes;

use clap::Subcommand;

use crate::{Failure, Show};

/// The command `bench`.
#[derive(Debug, Subcommand)]
pub enum Bench {
    /// Time each stage from features to labels, on one owner's synthetic rows
    #[command(after_help = examples::PIPELINE)]
    Pipeline(pipeline::Pipeline),
    /// Measure how noise on labels changes accuracy, for several values of epsilon
    #[command(after_help = examples::LABEL_PRIVACY)]
    LabelPrivacy(label_privacy::LabelPrivacy),
    /// Measure label propagation with many clients: what a pair of them costs in each phase
    #[command(after_help = examples::CLIENTS)]
    Clients(clients::Clients),
    /// Measure cells: how many pairs of rows are compared, and how many of the nearest are found
    #[command(after_help = examples::CELLS)]
    Cells(cells::BenchCells),
    /// Measure a distance backend on random codes: time and bytes for each distance
    #[command(after_help = examples::DISTANCES)]
    Distances(distances::Distances),
    /// Measure oblivious transfers: millions a second, bytes, base transfers
    #[command(after_help = examples::OT)]
    Ot(ot::Ot),
    /// Measure garbled circuits: AND gates a second against AES, bytes, the whole protocol
    #[command(after_help = examples::GARBLE)]
    Garble(garble::Garble),
    /// Measure the training of a graph network over clients, for each cut, and sums in a series
    #[command(after_help = examples::GRAPH)]
    Graph(graph::BenchGraph),
    /// Measure what a pair of clients needs for the edges between them, and propagation
    #[command(after_help = examples::PAIRS)]
    Pairs(pairs::Pairs),
    /// Measure Paillier's cryptosystem: operations a second; every result is checked
    #[command(after_help = examples::PAILLIER)]
    Paillier(paillier::Paillier),
    /// Compare a job run as processes over TLS with the same job in one process
    #[command(after_help = examples::NETWORK)]
    Network(network::Network),
    /// Measure a round of training without the training, against the same round with placeholders
    /// in the place of cryptography
    #[command(after_help = examples::ROUND)]
    Round(round::Round),
    /// Measure a secure sum: processor time of each side, bytes, speed of masks
    #[command(after_help = examples::SUMS)]
    Sums(sums::Sums),
    /// Measure an exchange of co-training without the learning, for each kind of votes
    #[command(after_help = examples::VOTES)]
    Votes(votes::BenchVotes),
}

impl Bench {
    /// Runs the benchmark.
    pub fn run(self, show: Show) -> Result<(), Failure> {
        match self {
            Self::Pipeline(pipeline) => pipeline.run(show),
            Self::LabelPrivacy(privacy) => privacy.run(show),
            Self::Clients(clients) => clients.run(show),
            Self::Cells(cells) => cells.run(show),
            Self::Distances(distances) => distances.run(show),
            Self::Network(network) => network.run(show),
            Self::Garble(garble) => garble.run(show),
            Self::Graph(graph) => graph.run(show),
            Self::Ot(ot) => ot.run(show),
            Self::Pairs(pairs) => pairs.run(show),
            Self::Paillier(paillier) => paillier.run(show),
            Self::Round(round) => round.run(show),
            Self::Sums(sums) => sums.run(show),
            Self::Votes(votes) => votes.run(show),
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

/// A number of threads, for people.
fn threads(count: usize) -> String {
    if count == 1 {
        "1 thread".to_owned()
    } else {
        format!("{count} threads")
    }
}

fn verdict(exact: bool) -> &'static str {
    if exact { "exact" } else { "WRONG" }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}
