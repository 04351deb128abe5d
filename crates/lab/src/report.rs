//! What a run cost and how well it did, for people and for programs.

use std::collections::BTreeSet;
use std::time::Duration;

use comfy_table::{CellAlignment, Table, presets};
use serde::Serialize;
use undertone::hamming::Backend;
use undertone::party::{Cost, Ledger, PartyId, Phase};
use undertone::sum::Trust;
use undertone::xclp::{Params, phases};

/// One party's costs in one phase.
#[derive(Debug, Serialize)]
pub struct PhaseCost {
    pub phase: &'static str,
    pub party: String,
    pub bytes_sent: u64,
    pub bytes_received: u64,
    pub messages: u64,
    pub rounds: usize,
    pub compute_ms: f64,
}

/// The JSON object of `label`.
#[derive(Debug, Serialize)]
pub struct LabelReport {
    /// Per cent of hidden rows; null where the truth is not known.
    pub accuracy_mean: Option<f64>,
    pub accuracy_sd: Option<f64>,
    pub local_accuracy_mean: Option<f64>,
    pub local_accuracy_sd: Option<f64>,
    pub rows: usize,
    pub labelled_rows: usize,
    pub clients: usize,
    pub classes: usize,
    pub backend: String,
    pub variant: String,
    pub bits: usize,
    pub neighbours: usize,
    pub alpha: f64,
    pub seed: u64,
    pub rounds: u32,
    pub rows_without_label: usize,
    /// Costs of the run with the first seed.
    pub phases: Vec<PhaseCost>,
}

/// Mean and sample deviation.
pub fn mean_sd(values: &[f64]) -> (f64, f64) {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    let sd = if values.len() > 1 {
        (squares / (n - 1.0)).sqrt()
    } else {
        0.0
    };
    (mean, sd)
}

pub fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

pub fn phase_costs(ledgers: &[(PartyId, Ledger)]) -> Vec<PhaseCost> {
    let mut out = Vec::new();
    let all = ledgers.iter().flat_map(|(_, ledger)| ledger.phases());
    let all: BTreeSet<Phase> = all.map(|(phase, _)| phase).collect();
    for phase in all {
        for (party, ledger) in ledgers {
            if let Some(cost) = ledger.phase(phase) {
                out.push(PhaseCost {
                    phase: phase.name,
                    party: party.to_string(),
                    bytes_sent: cost.bytes_sent,
                    bytes_received: cost.bytes_received,
                    messages: cost.messages,
                    rounds: cost.rounds(),
                    compute_ms: milliseconds(cost.compute),
                });
            }
        }
    }
    out
}

/// The cost table: a line a phase, bytes of all clients together, compute of the average client.
pub fn cost_table(ledgers: &[(PartyId, Ledger)]) -> String {
    let mut server = Ledger::default();
    let mut clients = Ledger::default();
    let mut both = Ledger::default();
    for (party, ledger) in ledgers {
        let side = if *party == PartyId::SERVER {
            &mut server
        } else {
            &mut clients
        };
        side.add(ledger);
        both.add(ledger);
    }
    let count = ledgers.len().saturating_sub(1).max(1) as u32;
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header([
        "phase",
        "bytes up",
        "bytes down",
        "messages",
        "rounds",
        "a client computes",
        "server computes",
    ]);
    let none = Cost::default();
    let mut line = |name: &str, server: &Cost, clients: &Cost, both: &Cost| {
        table.add_row([
            name.to_owned(),
            bytes(clients.bytes_sent),
            bytes(clients.bytes_received),
            both.messages.to_string(),
            both.rounds().to_string(),
            time(clients.compute / count),
            time(server.compute),
        ]);
    };
    let mut total = (Cost::default(), Cost::default(), Cost::default());
    for phase in phases::ALL {
        // Most backends have nothing to do before there are codes.
        let shown = |cost: &&Cost| phase != phases::OFFLINE || cost.messages > 0;
        if let Some(cost) = both.phase(phase).filter(shown) {
            let server = server.phase(phase).unwrap_or(&none);
            let clients = clients.phase(phase).unwrap_or(&none);
            line(phase.name, server, clients, cost);
            total.0.add(server);
            total.1.add(clients);
            total.2.add(cost);
        }
    }
    line("total", &total.0, &total.1, &total.2);
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
        .lines()
        .map(|line| format!("{}\n", line.trim_end()))
        .collect()
}

pub fn bytes(count: u64) -> String {
    match count {
        0..10_000 => format!("{count} B"),
        10_000..10_000_000 => format!("{:.1} kB", count as f64 / 1e3),
        _ => format!("{:.1} MB", count as f64 / 1e6),
    }
}

fn time(time: Duration) -> String {
    let ms = milliseconds(time);
    if ms < 10_000.0 {
        format!("{ms:.2} ms")
    } else {
        format!("{:.1} s", ms / 1e3)
    }
}

/// What a run does, in a line.
pub fn describe(params: &Params, most_rows: usize) -> String {
    let mut notes = String::new();
    if params.backend == Backend::Shade && params.trust == Trust::MaliciousServer {
        notes += "note: keys and sums withstand a server that lies; shade does not: one that \
                  changes offers reads codes\n";
    }
    // Distances to L/2 known codes determine a code: a client with many rows and the server would have them.
    let collusion = matches!(params.backend, Backend::Shade | Backend::Phe);
    if collusion && most_rows > params.bits / 4 {
        notes += &format!(
            "note: a client brings {most_rows} rows, more than L/4 = {}: if it colludes with the server, their distances come near to \
             telling the others' codes\n",
            params.bits / 4
        );
    }
    notes
        + &format!(
            "backend {}: the server learns {}\nL = {} bits, k = {} neighbours, alpha = {}, variant {}\n",
            params.backend,
            params.backend.server_learns(),
            params.bits,
            params.neighbours,
            params.alpha,
            params.variant
        )
}
