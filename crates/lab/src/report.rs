//! What a run cost, for people and for programs.

use std::time::Duration;

use comfy_table::{CellAlignment, Table, presets};
use serde::Serialize;
use undertone::label::phases;
use undertone::party::{Cost, Ledger, PartyId};

use crate::ledgers::{together, total as total_of};

/// One party's costs in one phase.
#[derive(Debug, Serialize)]
pub struct PhaseCost {
    /// The phase.
    pub phase: String,
    /// The party.
    pub party: String,
    /// Bytes of the frames that it sent.
    pub bytes_sent: u64,
    /// Bytes of the frames that it consumed.
    pub bytes_received: u64,
    /// Messages that it sent.
    pub messages: u64,
    /// Rounds that it took part in.
    pub rounds: usize,
    /// Time inside its steps.
    pub compute_ms: f64,
}

/// A time in milliseconds.
pub(crate) fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// Mean and sample deviation.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Spread {
    /// The mean.
    pub mean: f64,
    /// The sample deviation.
    pub sd: f64,
}

impl Spread {
    /// Of `values`. The deviation of a single one is 0.
    pub fn of(values: &[f64]) -> Self {
        let n = values.len() as f64;
        let mean = values.iter().sum::<f64>() / n;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        let sd = if values.len() > 1 {
            (squares / (n - 1.0)).sqrt()
        } else {
            0.0
        };
        Self { mean, sd }
    }
}

impl PhaseCost {
    fn new(phase: &str, party: PartyId, cost: &Cost) -> Self {
        Self {
            phase: phase.to_owned(),
            party: party.to_string(),
            bytes_sent: cost.bytes_sent,
            bytes_received: cost.bytes_received,
            messages: cost.messages,
            rounds: cost.rounds(),
            compute_ms: milliseconds(cost.compute),
        }
    }
}

/// The name of a session, and its ledgers.
type Session<'a> = (&'a str, &'a [(PartyId, Ledger)]);

/// The costs of every party in every phase, phase by phase. The costs of a session `before` the run
/// come first, under its name.
pub fn phase_costs(ledgers: &[(PartyId, Ledger)], before: Option<Session<'_>>) -> Vec<PhaseCost> {
    let mut out = Vec::new();
    if let Some((name, ledgers)) = before {
        let cost =
            |(party, ledger): &(PartyId, Ledger)| PhaseCost::new(name, *party, &total_of(ledger));
        out.extend(ledgers.iter().map(cost));
    }
    for (phase, _) in together(ledgers).phases() {
        for (party, ledger) in ledgers {
            if let Some(cost) = ledger.phase(phase) {
                out.push(PhaseCost::new(phase.name, *party, cost));
            }
        }
    }
    out
}

/// The costs of the server, of all clients together, and of all parties together.
#[derive(Default)]
struct Sides {
    server: Cost,
    clients: Cost,
    all: Cost,
    /// Rounds of sessions that ended before.
    earlier_rounds: usize,
}

impl Sides {
    fn add(&mut self, other: &Self) {
        self.server.add(&other.server);
        self.clients.add(&other.clients);
        self.all.add(&other.all);
    }

    /// Adds a session that has ended. Depths count from 0 again in the next.
    fn add_ended(&mut self, other: &Self) {
        for (own, other) in [
            (&mut self.server, &other.server),
            (&mut self.clients, &other.clients),
            (&mut self.all, &other.all),
        ] {
            own.bytes_sent += other.bytes_sent;
            own.bytes_received += other.bytes_received;
            own.messages += other.messages;
            own.compute += other.compute;
        }
        self.earlier_rounds += other.all.rounds();
    }

    fn line(&self, name: &str, clients: u32) -> [String; 7] {
        [
            name.to_owned(),
            bytes(self.clients.bytes_sent),
            bytes(self.clients.bytes_received),
            self.all.messages.to_string(),
            (self.earlier_rounds + self.all.rounds()).to_string(),
            time(self.clients.compute / clients),
            time(self.server.compute),
        ]
    }
}

/// The ledgers of the server, of all clients together, and of all parties together.
fn sides(ledgers: &[(PartyId, Ledger)]) -> [Ledger; 3] {
    let is_server = |entry: &&(PartyId, Ledger)| entry.0 == PartyId::SERVER;
    [
        together(ledgers.iter().filter(is_server)),
        together(ledgers.iter().filter(|entry| !is_server(entry))),
        together(ledgers),
    ]
}

/// The cost table, with a line for each phase. Bytes are those of all clients, and times those of
/// the average client. The costs of a session `before` the run are one line at the top with its
/// name.
pub fn cost_table(ledgers: &[(PartyId, Ledger)], before: Option<Session<'_>>) -> String {
    let [server, clients, all] = sides(ledgers);
    let count = ledgers.len().saturating_sub(1).max(1) as u32;
    let mut lines = Vec::new();
    let mut total = Sides::default();
    if let Some((name, ledgers)) = before {
        let [server, clients, all] = sides(ledgers).map(|ledger| total_of(&ledger));
        let line = Sides {
            server,
            clients,
            all,
            earlier_rounds: 0,
        };
        lines.push(line.line(name, count));
        total.add_ended(&line);
    }
    for phase in phases::ALL {
        // Most backends do nothing offline.
        let shown = |cost: &&Cost| phase != phases::OFFLINE || cost.messages > 0;
        if let Some(cost) = all.phase(phase).filter(shown) {
            let sides = Sides {
                server: server.phase(phase).cloned().unwrap_or_default(),
                clients: clients.phase(phase).cloned().unwrap_or_default(),
                all: cost.clone(),
                earlier_rounds: 0,
            };
            lines.push(sides.line(phase.name, count));
            total.add(&sides);
        }
    }
    lines.push(total.line("total", count));
    let header = [
        "phase",
        "bytes up",
        "bytes down",
        "messages",
        "rounds",
        "a client computes",
        "server computes",
    ];
    table(header, lines, 1)
}

/// The line below a cost table on time that no party spent.
pub fn outside(spent: Duration) -> String {
    format!(
        " outside all phases, to move frames in this process: {}\n",
        time(spent)
    )
}

/// A number of things: `1 run`, `3 runs`.
pub fn counted(count: u32, one: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {one}{plural}")
}

/// A mean with its deviation, or alone if it is of one value.
pub fn spread(mean: f64, sd: f64, values: u32, decimals: usize) -> String {
    if values > 1 {
        format!("{mean:.decimals$} ± {sd:.decimals$}")
    } else {
        format!("{mean:.decimals$}")
    }
}

/// A table of plain text. Columns are aligned to the right from column `numbers` on.
pub fn table<const N: usize>(header: [&str; N], lines: Vec<[String; N]>, numbers: usize) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(header);
    table.add_rows(lines);
    for column in table.column_iter_mut().skip(numbers) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
        .lines()
        .map(|line| format!("{}\n", line.trim_end()))
        .collect()
}

/// A number of bytes with its unit.
pub fn bytes(count: u64) -> String {
    match count {
        0..1_000 => format!("{count} B"),
        1_000..1_000_000 => format!("{:.1} kB", count as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} MB", count as f64 / 1e6),
        _ => format!("{:.2} GB", count as f64 / 1e9),
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
