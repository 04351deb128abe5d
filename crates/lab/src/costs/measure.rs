//! One run of the grid.

use std::fmt;
use std::io::{self, Write};
use std::time::Instant;

use serde::{Serialize, Serializer};
use undertone::hamming::{Backend, Phe};
use undertone::kdf::Seed;
use undertone::label::{Job, Params, phases, simulation};
use undertone::party::{Cost, Ledger, Network, PartyId};
use undertone::sum::Suite;

use super::Link;
use super::repeat::Repetition;
use crate::Failure;
use crate::clouds;
use crate::ledgers::{together, total};
use crate::report::milliseconds;

/// The sizes of a run.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct Point {
    #[serde(serialize_with = "as_text")]
    pub backend: Backend,
    #[serde(serialize_with = "as_text")]
    pub suite: Suite,
    pub clients: usize,
    /// Rows of each client.
    pub rows: usize,
    /// Features of a row.
    pub features: usize,
    /// Bits of a code.
    pub bits: usize,
    /// Bits of keys of `phe`.
    pub key_bits: usize,
}

fn as_text<T: fmt::Display, S: Serializer>(value: &T, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}, {} clients of {} rows, {} features, {} bits",
            self.backend, self.clients, self.rows, self.features, self.bits
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

    /// A measure of the expected time: the bits to compare, the products of the projection, and a
    /// fixed cost for each pair of clients.
    pub(super) fn work(&self) -> f64 {
        let projected = self.all_rows() * self.features;
        (self.distances() + projected as f64) * self.bits as f64 + 5e7 * self.pairs() as f64
    }
}

/// What all parties together spent in a phase.
#[derive(Debug, Serialize)]
pub(super) struct PhaseCosts {
    pub phase: &'static str,
    /// Bytes of all frames.
    pub bytes: u64,
    pub messages: u64,
    pub rounds: usize,
    /// Time inside the steps of all parties.
    pub compute_ms: f64,
    /// Time inside the steps of the slowest client.
    pub client_ms: f64,
    /// Time inside the server's steps.
    pub server_ms: f64,
}

/// The measured costs of a run.
#[derive(Debug, Serialize)]
pub(super) struct Measured {
    pub point: Point,
    /// Runs that were counted. This is the one with the median time.
    pub runs: usize,
    /// How well the median time is known: half the width of its 95 % confidence interval, in per
    /// cent of it. Fewer than five runs do not tell.
    pub spread_percent: Option<f64>,
    pub phases: Vec<PhaseCosts>,
    /// Time inside the steps of all parties.
    pub compute_ms: f64,
    pub bytes: u64,
    pub rounds: usize,
    /// The most bytes that a client sends.
    pub busiest_up: u64,
    /// The most bytes that a client receives.
    pub busiest_down: u64,
    /// Expected time over each link. It is the sum of the slowest client's computation, the
    /// server's, the greater of `busiest_up` and `busiest_down` at the link's rate, and the delays
    /// of all rounds.
    pub link_seconds: Vec<f64>,
    /// Per cent of the hidden rows that got the right label.
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

/// Runs a point, and repeats a short run. The run with the median time counts.
pub(super) fn median_of(
    point: Point,
    links: &[Link],
    repetition: &Repetition,
) -> Result<Measured, Failure> {
    let start = Instant::now();
    let repeated = repetition.median_of(
        || start.elapsed(),
        || measure(point, links),
        |run: &Measured| run.compute_ms,
    )?;
    Ok(Measured {
        runs: repeated.runs,
        spread_percent: repeated.spread.map(|spread| 100.0 * spread),
        ..repeated.median
    })
}

fn measure(point: Point, links: &[Link]) -> Result<Measured, Failure> {
    let (clients, truth) =
        clouds::deal(point.clients, point.rows, point.features).map_err(Failure::data)?;
    let params = Params {
        bits: point.bits,
        backend: point.backend,
        suite: point.suite,
        job: None,
        phe: Phe::new(point.key_bits).map_err(Failure::data)?,
        ..Params::default()
    };
    let seed = Seed::from_bytes([1; 32]);
    let job = Job {
        params,
        ..Job::default()
    };
    // As in processes apart, each client hashes its own rows.
    let run = simulation(job, clients, seed)?.run(Network::new())?;
    let mut labels = Vec::with_capacity(run.clients.len());
    for outcome in run.clients {
        let outcome = outcome.map_err(Failure::data)?.outcome();
        labels.extend(outcome.map(|outcome| outcome.labels));
    }
    Ok(costs(point, &run.ledgers, links, truth.accuracy(&labels)))
}

fn costs(point: Point, ledgers: &[(PartyId, Ledger)], links: &[Link], accuracy: f64) -> Measured {
    let all = together(ledgers);
    let whole = total(&all);
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
        let Some(cost) = all.phase(phase) else {
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
    let up = most(&|ledger| total(ledger).bytes_sent as f64);
    let down = most(&|ledger| total(ledger).bytes_received as f64);
    // In these phases clients may talk to each other, and a message between them crosses two links.
    let mut between = Cost::default();
    for phase in [phases::OFFLINE, phases::DISTANCES] {
        if let Some(cost) = all.phase(phase) {
            between.add(cost);
        }
    }
    let crossings = whole.rounds()
        + match point.backend {
            Backend::Lwe | Backend::Shade | Backend::Phe => between.rounds(),
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
        runs: 1,
        spread_percent: None,
        compute_ms: milliseconds(whole.compute),
        bytes: whole.bytes_sent,
        rounds: whole.rounds(),
        busiest_up: up as u64,
        busiest_down: down as u64,
        link_seconds: links.iter().map(over).collect(),
        phases,
        accuracy,
    }
}

/// Writes a line for each phase of each run.
pub(super) fn csv(runs: &[Measured], file: &mut dyn Write) -> io::Result<()> {
    let mut writer = csv::Writer::from_writer(file);
    writer.write_record([
        "backend",
        "suite",
        "clients",
        "rows_each",
        "features",
        "bits",
        "runs",
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
                point.features,
                point.bits,
                run.runs,
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
