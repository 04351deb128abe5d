//! `undertone bench`.

mod distances;
mod link;
mod network;
mod ot;
pub mod paillier;
mod pipeline;
mod sums;

use clap::Subcommand;
use undertone::party::{Cost, Ledger, PartyId};

use crate::report::milliseconds;
use crate::{Failure, Show};

#[derive(Debug, Subcommand)]
pub enum Bench {
    /// Each stage from features to labels, on one owner's synthetic rows
    Pipeline(pipeline::Pipeline),
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
    pub fn run(self, show: Show) -> Result<(), Failure> {
        match self {
            Self::Pipeline(pipeline) => pipeline.run(show),
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

/// Time inside the steps of one party.
fn compute_ms(ledger: &Ledger) -> f64 {
    let phases = ledger.phases();
    phases.map(|(_, cost)| milliseconds(cost.compute)).sum()
}

/// The largest resident set of the process so far, where the system tells.
fn peak_memory_mib() -> Option<f64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    let kib: f64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kib / 1024.0)
}

/// All parties' costs as one ledger.
fn together(ledgers: &[(PartyId, Ledger)]) -> Ledger {
    let mut whole = Ledger::default();
    for (_, ledger) in ledgers {
        whole.add(ledger);
    }
    whole
}

/// Rounds of a whole run; phases may share one.
fn rounds(ledger: &Ledger) -> usize {
    let mut whole = Cost::default();
    for (_, cost) in ledger.phases() {
        whole.add(cost);
    }
    whole.rounds()
}

/// The last lines of a report: memory, and whether `what` is right.
fn closing(peak_memory_mib: Option<f64>, what: &str, exact: bool) -> String {
    let memory = peak_memory_mib.map(|mib| format!("  all parties in {mib:.0} MiB\n"));
    let verdict = if exact { "exact" } else { "WRONG" };
    format!("{}  {what} {verdict}\n", memory.unwrap_or_default())
}

/// The median.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}
