//! What graphs between pairs and graph networks cost on this machine.
//!
//! In both, computing goes with bytes: of transfers and circuits in one, of masked words in the
//! other. So short runs with the job's own sizes, or with smaller ones, tell what a byte of each
//! phase costs.

use std::sync::Arc;

use undertone::fedgraph::{self, Inputs, Matrix};
use undertone::kdf::Seed;
use undertone::kernel::Prg;
use undertone::party::{Ledger, Network, PartyId, Phase};
use undertone::plan::lengths::Group;
use undertone::plan::sessions::clusters;
use undertone::plan::{Totals, Work};
use undertone::pssl;
use undertone::sum::UPLOAD;

use super::calibrate::{Calibration, Costs, REPEATS, Samples, Side};
use crate::Failure;
use crate::clouds::Around;

/// Clients, and rows of each, in the runs that measure a graph between pairs.
const PAIRS: [(usize, usize); 4] = [(3, 40), (3, 120), (5, 40), (3, 240)];

/// Most rounds of propagation in these runs.
const ROUNDS: u32 = 4;

/// Most features and clusters in these runs.
const LARGEST: (usize, usize) = (1024, 16);

/// Clients, and steps of the network, in the runs that measure it.
const NETWORKS: [(usize, u32); 4] = [(3, 2), (3, 8), (6, 2), (6, 8)];

/// Most clusters, and rows to predict, in these runs.
const ROWS: usize = 1000;

/// The work of a party in each phase, by the bytes that it sends and receives there. `others` are
/// amounts of a phase that do not go with bytes.
fn work<const N: usize>(
    phases: impl Iterator<Item = (Phase, u64)>,
    others: impl Fn(Phase, f64) -> [f64; N],
) -> Vec<Work> {
    let of = |(phase, bytes): (Phase, u64)| {
        let bytes = bytes as f64;
        let mut amounts = vec![1.0, bytes];
        amounts.extend(others(phase, bytes));
        Work { phase, amounts }
    };
    phases.map(of).collect()
}

/// The bytes of each phase that a ledger counted.
fn counted(ledger: &Ledger) -> impl Iterator<Item = (Phase, u64)> {
    let phases = ledger.phases();
    phases.map(|(phase, cost)| (phase, cost.bytes_sent + cost.bytes_received))
}

/// The bytes of each phase that a party will send and receive.
fn planned(totals: &Totals, who: PartyId) -> impl Iterator<Item = (Phase, u64)> {
    let phases = totals.phases(who);
    phases.map(|(phase, traffic)| (phase, traffic.sent + traffic.received))
}

fn side(who: PartyId) -> Side {
    match who.index() {
        None => Side::Server,
        Some(_) => Side::Client,
    }
}

/// The seconds that the server, and the client that takes longest, compute.
fn seconds(
    costs: &Costs,
    totals: &Totals,
    work: impl Fn(PartyId, &Totals) -> Vec<Work>,
) -> [f64; 2] {
    let mut most = [0.0f64; 2];
    for who in totals.parties() {
        let seconds = costs.seconds(side(who), &work(who, totals));
        let place = usize::from(side(who) == Side::Client);
        most[place] = most[place].max(seconds);
    }
    most
}

/// The work of a party of a graph between pairs of clients with so many rows.
fn pairs_work(
    job: &pssl::Job,
    rows: &[usize],
    who: PartyId,
    phases: impl Iterator<Item = (Phase, u64)>,
) -> Vec<Work> {
    let own = who.index().and_then(|place| rows.get(place));
    let own = own.map_or(0.0, |rows| *rows as f64);
    let group = Group::new(job.trust, rows.len());
    work(phases, |phase, bytes| {
        if phase == pssl::EDGES {
            // A client compares its own rows with each other.
            [own * own * job.features as f64, 0.0]
        } else if phase == UPLOAD {
            // A mask for each neighbour.
            [0.0, bytes * group.neighbours as f64]
        } else {
            [0.0; 2]
        }
    })
}

/// The work of a party of a graph network.
fn network_work(job: &fedgraph::Job, phases: impl Iterator<Item = (Phase, u64)>) -> Vec<Work> {
    let others = job.clients.saturating_sub(1) as f64;
    work(phases, |phase, bytes| {
        let inputs = if phase == fedgraph::TRAINING {
            f64::from(job.steps) * clusters(job) as f64
        } else {
            0.0
        };
        // Each word has a mask for each other client.
        [bytes * others, inputs, inputs * others]
    })
}

/// A job with the sizes of the runs that measure a graph between pairs.
fn small_pairs(job: &pssl::Job) -> pssl::Job {
    let classes = job.classes.min(LARGEST.1);
    pssl::Job {
        features: job.features.min(LARGEST.0),
        clusters: job.clusters.min(LARGEST.1),
        classes,
        rounds: job.rounds.min(ROUNDS),
        min_clients: 3,
        ..job.clone()
    }
}

/// A job with the sizes of the runs that measure a graph network.
fn small_network(job: &fedgraph::Job) -> fedgraph::Job {
    fedgraph::Job {
        // Each class has clusters of its own.
        rows: job
            .rows
            .min(ROWS.max(4 * job.classes).saturating_mul(job.cluster)),
        queries: job.queries.min(ROWS),
        ..job.clone()
    }
}

impl Calibration {
    /// The seconds that the server, and the client that takes longest, compute in a graph between
    /// pairs of clients with so many rows.
    pub(super) fn pairs(
        &mut self,
        job: &pssl::Job,
        rows: &[usize],
        totals: &Totals,
    ) -> Result<[f64; 2], Failure> {
        let small = small_pairs(job);
        // Neither changes how much is computed for a byte.
        let named = pssl::Job {
            asked: 1,
            range: 1.0,
            ..small.clone()
        };
        let what = format!("pairs, {named:?}");
        let costs = self.of(&what, || measure_pairs(&small))?;
        Ok(seconds(&costs, totals, |who, totals| {
            pairs_work(job, rows, who, planned(totals, who))
        }))
    }

    /// The same for a graph network over clients with so many features.
    pub(super) fn network(
        &mut self,
        job: &fedgraph::Job,
        features: usize,
        totals: &Totals,
    ) -> Result<[f64; 2], Failure> {
        let small = small_network(job);
        let named = fedgraph::Job {
            clients: 0,
            steps: u32::from(job.steps > 0),
            every: 1,
            ..small.clone()
        };
        let what = format!("graph network of {features} features, {named:?}");
        let costs = self.of(&what, || measure_network(&small, features))?;
        Ok(seconds(&costs, totals, |who, totals| {
            network_work(job, planned(totals, who))
        }))
    }
}

fn measure_pairs(job: &pssl::Job) -> Result<Costs, Failure> {
    let mut samples = Samples::default();
    for (clients, rows) in PAIRS {
        let job = pssl::Job {
            asked: pssl::asked(rows, job.clusters),
            ..job.clone()
        };
        let mut around = Around::new([7; 32], job.features, job.classes, job.scale);
        for _ in 0..REPEATS {
            let data: Result<Vec<_>, Failure> = (0..clients).map(|_| around.rows(rows)).collect();
            let seed = Seed::from_bytes([1; 32]);
            let run = pssl::simulation(job.clone(), data?, seed)
                .and_then(|mut simulation| simulation.run(Network::new()))?;
            for (who, ledger) in &run.ledgers {
                let work = pairs_work(&job, &vec![rows; clients], *who, counted(ledger));
                samples.add(side(*who), work, ledger);
            }
        }
    }
    Ok(samples.costs())
}

/// What a client brings to a graph network whose clients all have the same features.
fn inputs(job: &fedgraph::Job, features: usize, client: usize) -> Result<Arc<Inputs>, Failure> {
    let mut prg = Prg::new(&[client as u8; 32]);
    let mut matrix = |rows: usize, columns: usize| {
        let values = (0..rows * columns).map(|_| prg.unit()).collect();
        Matrix::new(rows, columns, values).ok_or_else(|| Failure::data("values were counted"))
    };
    let classes = job.classes;
    let probabilities = vec![1.0 / classes as f64; job.queries * classes];
    Ok(Arc::new(Inputs {
        columns: (0..features).map(|feature| format!("{feature}")).collect(),
        labels: (0..job.rows).map(|row| (row % classes) as u16).collect(),
        embeddings: matrix(job.rows, job.width)?,
        queries: matrix(job.queries, job.width)?,
        probabilities: Matrix::new(job.queries, classes, probabilities)
            .ok_or_else(|| Failure::data("values were counted"))?,
    }))
}

fn measure_network(job: &fedgraph::Job, features: usize) -> Result<Costs, Failure> {
    let mut samples = Samples::default();
    for (clients, steps) in NETWORKS {
        let job = fedgraph::Job {
            clients,
            steps: if job.steps > 0 { steps } else { 0 },
            every: steps,
            ..job.clone()
        };
        let inputs: Result<Vec<_>, Failure> = (0..clients)
            .map(|client| inputs(&job, features, client))
            .collect();
        let inputs = inputs?;
        for _ in 0..REPEATS {
            let seed = Seed::from_bytes([1; 32]);
            let run = fedgraph::simulation(job.clone(), inputs.iter().cloned(), seed)
                .and_then(|mut simulation| simulation.run(Network::new()))?;
            for (who, ledger) in &run.ledgers {
                samples.add(side(*who), network_work(&job, counted(ledger)), ledger);
            }
        }
    }
    Ok(samples.costs())
}
