//! One run of the grid.

use std::fmt;
use std::io::{self, Write};

use serde::{Serialize, Serializer};
use undertone::hamming::{Backend, Phe};
use undertone::kdf::Seed;
use undertone::party::{Cost, Ledger, PartyId};
use undertone::simulate::Simulation;
use undertone::sum::Suite;
use undertone::xclp::{Labelling, Params, Rows, phases};

use super::Link;
use crate::Failure;
use crate::clouds::{self, CLASSES};
use crate::report::milliseconds;

/// Features of a row, and one row in how many is labelled.
const FEATURES: usize = 64;
const LABELLED: usize = 10;

/// What is run.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct Point {
    #[serde(serialize_with = "as_text")]
    pub backend: Backend,
    #[serde(serialize_with = "as_text")]
    pub suite: Suite,
    pub clients: usize,
    /// Of each client.
    pub rows: usize,
    pub bits: usize,
    /// Of keys of `phe`.
    pub key_bits: usize,
}

fn as_text<T: fmt::Display, S: Serializer>(value: &T, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}, {} clients of {} rows, {} bits",
            self.backend, self.clients, self.rows, self.bits
        )
    }
}

impl Point {
    /// Rows of all clients.
    pub(super) fn all_rows(&self) -> usize {
        self.clients * self.rows
    }

    /// Pairs of clients.
    pub(super) fn pairs(&self) -> usize {
        self.clients * (self.clients - 1) / 2
    }

    /// Distances between rows of different clients.
    pub(super) fn distances(&self) -> f64 {
        (self.pairs() * self.rows * self.rows) as f64
    }

    /// What its time grows with: bits that are compared, and what each pair of clients does but once.
    pub(super) fn work(&self) -> f64 {
        self.distances() * self.bits as f64 + 5e7 * self.pairs() as f64
    }
}

/// What all parties together spent in a phase.
#[derive(Debug, Serialize)]
pub(super) struct PhaseCosts {
    pub phase: &'static str,
    /// Of all frames.
    pub bytes: u64,
    pub messages: u64,
    pub rounds: usize,
    /// Of all parties.
    pub compute_ms: f64,
    /// Of the client that computes most, and of the server.
    pub client_ms: f64,
    pub server_ms: f64,
}

/// A run.
#[derive(Debug, Serialize)]
pub(super) struct Measured {
    pub point: Point,
    pub phases: Vec<PhaseCosts>,
    /// Time inside the steps of all parties.
    pub compute_ms: f64,
    pub bytes: u64,
    pub rounds: usize,
    /// The most that a client sends, and the most that one receives, in bytes.
    pub busiest_up: u64,
    pub busiest_down: u64,
    /// Over each link: computation of the slowest client and of the server, the greater of the two above at the link's rate, and the
    /// delays of all rounds, one after the other.
    pub link_seconds: Vec<f64>,
    /// Per cent of rows without a label that got the right one.
    pub accuracy: f64,
}

impl Measured {
    pub(super) fn compute_seconds(&self) -> f64 {
        self.compute_ms / 1e3
    }

    pub(super) fn us_per_distance(&self) -> f64 {
        self.compute_ms * 1e3 / self.point.distances()
    }
}

/// Runs a point, a short one more than once: the median by time.
pub(super) fn median_of(point: Point, links: &[Link]) -> Result<Measured, Failure> {
    let first = measure(point, links)?;
    if first.compute_seconds() > 0.5 {
        return Ok(first);
    }
    let mut runs = Vec::new();
    for _ in 0..5 {
        runs.push(measure(point, links)?);
    }
    runs.sort_by(|a, b| a.compute_ms.total_cmp(&b.compute_ms));
    Ok(runs.swap_remove(2))
}

fn measure(point: Point, links: &[Link]) -> Result<Measured, Failure> {
    let failed = |error: &dyn fmt::Display| Failure::data(error.to_string());
    let (all, truth) =
        clouds::clouds(point.all_rows(), FEATURES, 1.0).map_err(|error| failed(&error))?;
    let own = |client: usize| client * point.rows..(client + 1) * point.rows;
    let mut clients = Vec::with_capacity(point.clients);
    for client in 0..point.clients {
        let rows: Vec<usize> = own(client).collect();
        // Row i has class i mod 10: so every class is labelled.
        let given = rows.iter().map(|row| {
            ((row / CLASSES).is_multiple_of(LABELLED) || *row < CLASSES).then_some(truth[*row])
        });
        let labelling = Labelling::new(CLASSES, given.collect()).map_err(|e| failed(&e))?;
        clients.push((Rows::Features(all.select(&rows)), labelling));
    }
    let params = Params {
        bits: point.bits,
        backend: point.backend,
        suite: point.suite,
        phe: Phe::new(point.key_bits).map_err(|error| failed(&error))?,
        ..Params::default()
    };
    let given: Vec<Vec<Option<u16>>> = clients.iter().map(|(_, l)| l.labels().to_vec()).collect();
    let seed = Seed::from_bytes([1; 32]);
    let run = Simulation {
        params,
        clients,
        seed,
    }
    .run(|_, _| {})?;
    let (mut right, mut hidden) = (0, 0);
    for (client, (outcome, given)) in run.clients.iter().zip(&given).enumerate() {
        let labels = &outcome.as_ref().map_err(|error| failed(error))?.labels;
        for ((found, given), row) in labels.classes().iter().zip(given).zip(own(client)) {
            hidden += usize::from(given.is_none());
            right += usize::from(given.is_none() && *found == Some(truth[row]));
        }
    }
    Ok(costs(
        point,
        &run.ledgers,
        links,
        100.0 * right as f64 / f64::from(hidden.max(1) as u32),
    ))
}

fn costs(point: Point, ledgers: &[(PartyId, Ledger)], links: &[Link], accuracy: f64) -> Measured {
    let mut both = Ledger::default();
    for (_, ledger) in ledgers {
        both.add(ledger);
    }
    let (servers, clients): (Vec<_>, Vec<_>) =
        ledgers.iter().partition(|(id, _)| *id == PartyId::SERVER);
    let most = |of: &dyn Fn(&Ledger) -> f64| -> f64 {
        clients
            .iter()
            .map(|(_, ledger)| of(ledger))
            .fold(0.0, f64::max)
    };
    let mut phases = Vec::new();
    for phase in phases::ALL {
        let Some(cost) = both.phase(phase) else {
            continue;
        };
        let compute = |ledger: &Ledger| {
            let cost = ledger.phase(phase);
            cost.map_or(0.0, |cost| milliseconds(cost.compute))
        };
        phases.push(PhaseCosts {
            phase: phase.name,
            bytes: cost.bytes_sent,
            messages: cost.messages,
            rounds: cost.rounds(),
            compute_ms: milliseconds(cost.compute),
            client_ms: most(&compute),
            server_ms: servers.iter().map(|(_, ledger)| compute(ledger)).sum(),
        });
    }
    let sum = |ledger: &Ledger, of: fn(&Cost) -> u64| -> f64 {
        ledger.phases().map(|(_, cost)| of(cost) as f64).sum()
    };
    let up = most(&|ledger| sum(ledger, |cost| cost.bytes_sent));
    let down = most(&|ledger| sum(ledger, |cost| cost.bytes_received));
    // Phases may share a round.
    let (mut whole, mut between) = (Cost::default(), Cost::default());
    for (phase, cost) in both.phases() {
        whole.add(cost);
        if [phases::OFFLINE, phases::DISTANCES].contains(&phase) {
            between.add(cost);
        }
    }
    // A message between clients crosses two links.
    let crossings = whole.rounds()
        + match point.backend {
            Backend::Shade | Backend::Phe => between.rounds(),
            _ => 0,
        };
    let compute: f64 = phases
        .iter()
        .map(|phase| phase.client_ms + phase.server_ms)
        .sum();
    let over = |link: &Link| {
        compute / 1e3
            + up.max(down) * 8.0 / (link.rate_mbits * 1e6)
            + crossings as f64 * link.delay_ms / 1e3
    };
    Measured {
        point,
        compute_ms: both
            .phases()
            .map(|(_, cost)| milliseconds(cost.compute))
            .sum(),
        bytes: both.phases().map(|(_, cost)| cost.bytes_sent).sum(),
        rounds: whole.rounds(),
        busiest_up: up as u64,
        busiest_down: down as u64,
        link_seconds: links.iter().map(over).collect(),
        phases,
        accuracy,
    }
}

/// A line a phase of every run.
pub(super) fn csv(runs: &[Measured], file: &mut dyn Write) -> io::Result<()> {
    let mut writer = csv::Writer::from_writer(file);
    writer.write_record([
        "backend",
        "suite",
        "clients",
        "rows_each",
        "bits",
        "phase",
        "bytes",
        "messages",
        "rounds",
        "slowest_client_ms",
        "server_ms",
    ])?;
    for run in runs {
        let point = run.point;
        for phase in &run.phases {
            writer.serialize((
                point.backend.to_string(),
                point.suite.to_string(),
                point.clients,
                point.rows,
                point.bits,
                phase.phase,
                phase.bytes,
                phase.messages,
                phase.rounds,
                phase.client_ms,
                phase.server_ms,
            ))?;
        }
    }
    writer.flush()
}
