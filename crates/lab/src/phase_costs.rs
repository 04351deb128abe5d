//! What runs cost, phase by phase.

use serde::Serialize;
use undertone::party::{Cost, Ledger, PartyId};
use undertone::phases;

use crate::ledgers::together;
use crate::report::{bytes, milliseconds, table};

/// The cost of a phase of a run, of all parties together.
#[derive(Debug, Serialize)]
pub(crate) struct PhaseCost {
    pub(crate) phase: &'static str,
    pub(crate) bytes: f64,
    pub(crate) messages: f64,
    pub(crate) rounds: usize,
    pub(crate) seconds: f64,
}

/// The mean costs of runs, each with the ledgers of its parties.
pub(crate) fn mean<'a>(
    runs: impl IntoIterator<Item = &'a Vec<(PartyId, Ledger)>>,
) -> Vec<PhaseCost> {
    let totals: Vec<Ledger> = runs.into_iter().map(together).collect();
    let count = totals.len().max(1) as f64;
    let phase = |phase: undertone::party::Phase| {
        let of = |ledger: &Ledger| ledger.phase(phase).cloned();
        let costs: Vec<Cost> = totals.iter().filter_map(of).collect();
        let mean = |of: &dyn Fn(&Cost) -> f64| costs.iter().map(of).sum::<f64>() / count;
        (!costs.is_empty()).then(|| PhaseCost {
            phase: phase.name,
            bytes: mean(&|cost| cost.bytes_sent as f64),
            messages: mean(&|cost| cost.messages as f64),
            rounds: costs.iter().map(Cost::rounds).max().unwrap_or(0),
            seconds: mean(&|cost| milliseconds(cost.compute) / 1e3),
        })
    };
    phases::ALL.into_iter().filter_map(phase).collect()
}

/// A table of these costs.
pub(crate) fn text(costs: &[PhaseCost]) -> String {
    let lines = costs.iter().map(|phase| {
        [
            phase.phase.to_owned(),
            bytes(phase.bytes as u64),
            format!("{:.0}", phase.messages),
            phase.rounds.to_string(),
            format!("{:.3} s", phase.seconds),
        ]
    });
    let header = [
        "a run, all parties",
        "bytes",
        "messages",
        "rounds",
        "computation",
    ];
    table(header, lines.collect(), 1)
}
