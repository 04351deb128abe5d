//! What each kind of work costs on this machine: measured once, and kept.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use undertone::arrays::Arrays;
use undertone::hamming::Backend;
use undertone::job::Terms as _;
use undertone::kdf::Seed;
use undertone::label::{self, Params};
use undertone::party::{Ledger, Network, PartyId};
use undertone::plan::lengths::{Group, Shape};
use undertone::plan::{Work, fit, label as work, sum};
use undertone::rounds::{self, Client, Contribution, Server, Terms};
use undertone::sum::Trust;

use crate::Failure;
use crate::clouds;
use crate::given::Given;
use crate::machine::{processor, simd};
use crate::output::Output;

/// Runs of each shape.
pub(super) const REPEATS: usize = 2;

/// Most features of rows that are hashed to measure.
const FEATURES: usize = 256;

/// Most neighbours in runs that measure: the smallest has more rows.
const NEIGHBOURS: usize = 100;

/// One row in so many is labelled in most runs that measure: each class in its turn.
const LABELLED: usize = 11;

/// Rows of all clients above which the server is taken to solve by iteration.
const ITERATED: usize = 30_000;

/// Changes with the kinds of work: costs of other kinds are measured anew.
const KINDS: u32 = 2;

/// The costs of the kinds of work in each phase, for the server and for a client.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Costs {
    server: BTreeMap<u8, Vec<f64>>,
    client: BTreeMap<u8, Vec<f64>>,
}

/// A side of a protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Side {
    Server,
    Client,
}

impl Costs {
    /// The seconds that this work takes.
    pub(crate) fn seconds(&self, side: Side, work: &[Work]) -> f64 {
        let phases = match side {
            Side::Server => &self.server,
            Side::Client => &self.client,
        };
        let of = |work: &Work| {
            let costs = phases.get(&work.phase.id).map_or(&[][..], Vec::as_slice);
            let terms = work.amounts.iter().zip(costs);
            terms.map(|(amount, cost)| amount * cost).sum::<f64>()
        };
        work.iter().map(of).sum()
    }
}

/// Amounts of work, and the seconds that they took.
type Sample = (Vec<f64>, f64);

/// Measurements of each side in each phase.
#[derive(Default)]
pub(super) struct Samples(BTreeMap<(Side, u8), Vec<Sample>>);

impl Samples {
    pub(super) fn add(&mut self, side: Side, work: Vec<Work>, ledger: &Ledger) {
        for work in work {
            let took = ledger.phase(work.phase);
            let took = took.map_or(0.0, |cost| cost.compute.as_secs_f64());
            let list = self.0.entry((side, work.phase.id)).or_default();
            // The fastest of several runs of a shape is the least disturbed.
            match list
                .iter_mut()
                .find(|(amounts, _)| *amounts == work.amounts)
            {
                Some((_, fastest)) if side == Side::Server => *fastest = fastest.min(took),
                _ => list.push((work.amounts, took)),
            }
        }
    }

    pub(super) fn costs(self) -> Costs {
        let mut costs = Costs::default();
        for ((side, phase), list) in self.0 {
            let of = match side {
                Side::Server => &mut costs.server,
                Side::Client => &mut costs.client,
            };
            of.insert(phase, fit(&list));
        }
        costs
    }
}

/// The measured costs, and where they are kept.
pub(crate) struct Calibration {
    path: Option<PathBuf>,
    kept: BTreeMap<String, Costs>,
    /// What was measured by this process.
    new: BTreeSet<String>,
    /// Whether what was measured before is measured again.
    anew: bool,
}

/// The file in the user's cache folder.
fn path() -> Option<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let cache = set("XDG_CACHE_HOME")
        .or_else(|| set("LOCALAPPDATA"))
        .map(PathBuf::from);
    let home = || set("HOME").map(|home| PathBuf::from(home).join(".cache"));
    Some(cache.or_else(home)?.join("undertone/calibration.json"))
}

impl Calibration {
    /// What was measured before. With `anew` it is measured again.
    pub(crate) fn load(anew: bool) -> Self {
        let path = path();
        let text = path.as_deref().map(fs::read_to_string);
        let kept = text.and_then(Result::ok);
        let kept = kept.and_then(|text| serde_json::from_str(&text).ok());
        Self {
            kept: kept.unwrap_or_default(),
            path,
            new: BTreeSet::new(),
            anew,
        }
    }

    /// Keeps what was measured. A cache that cannot be written is no reason to fail.
    pub(crate) fn keep(&self) {
        let Some(path) = self.path.as_deref().filter(|_| !self.new.is_empty()) else {
            return;
        };
        if let Some(folder) = path.parent() {
            let made = fs::create_dir_all(folder);
            let file = made
                .map_err(drop)
                .and_then(|()| Output::create(path).map_err(drop));
            let _ = file.map(|file| file.json(&self.kept));
        }
    }

    pub(super) fn of(
        &mut self,
        what: &str,
        measure: impl FnOnce() -> Result<Costs, Failure>,
    ) -> Result<Costs, Failure> {
        let key = format!(
            "{what}, {}, {}, {} threads, version {}.{KINDS}",
            processor(),
            simd(),
            rayon::current_num_threads(),
            env!("CARGO_PKG_VERSION")
        );
        let is_old = self.anew && !self.new.contains(&key);
        if let Some(costs) = self.kept.get(&key).filter(|_| !is_old) {
            return Ok(costs.clone());
        }
        let costs = measure()?;
        self.kept.insert(key.clone(), costs.clone());
        self.new.insert(key);
        Ok(costs)
    }

    /// The costs of label propagation in a run of this shape, over rows of so many features.
    pub(crate) fn label(
        &mut self,
        params: &Params,
        shape: &Shape,
        features: usize,
    ) -> Result<Costs, Failure> {
        let key_bits = match params.backend {
            Backend::Phe => params.phe.key_bits(),
            _ => 0,
        };
        let measured = features.min(FEATURES);
        let what = format!(
            "label {} ({key_bits}), {} bits, {} neighbours, {}, {:?}, {}, {measured} features",
            params.backend,
            params.bits,
            params.neighbours,
            params.suite,
            params.trust,
            params.variant
        );
        let mut costs = self.of(&what, || label(params, measured))?;
        // Hashing takes its time for each feature.
        if let Some(codes) = costs.client.get_mut(&label::phases::CODES.id) {
            let times = features as f64 / measured as f64;
            codes.iter_mut().for_each(|cost| *cost *= times);
        }
        if shape.slots.is_some() {
            self.cells(&mut costs, params, features)?;
        }
        if shape.all().iter().sum::<usize>() > ITERATED {
            let neighbours = params.neighbours.min(NEIGHBOURS);
            let what = format!("iteration, {neighbours} neighbours");
            let own = self.of(&what, || iteration(params, neighbours))?;
            costs.server.extend(own.server);
        }
        Ok(costs)
    }

    /// Adds the costs of cells to those of label propagation.
    fn cells(
        &mut self,
        costs: &mut Costs,
        params: &Params,
        features: usize,
    ) -> Result<(), Failure> {
        let features = features.min(FEATURES);
        let what = format!("cells, {}, {features} features", params.suite);
        let own = self.of(&what, || cells(params, features))?;
        let id = label::cells::PHASE.id;
        for (all, own) in [
            (&mut costs.server, own.server),
            (&mut costs.client, own.client),
        ] {
            all.extend(own.into_iter().filter(|(phase, _)| *phase == id));
        }
        Ok(())
    }

    /// The costs of sums.
    pub(crate) fn sum(&mut self, job: &rounds::Job) -> Result<Costs, Failure> {
        let kind = if job.mean { "mean" } else { "sum" };
        let what = format!("{kind} {}, {:?}", job.suite, job.trust);
        self.of(&what, || sums(job))
    }
}

/// Rows of each client in the runs that measure a backend.
fn shapes(backend: Backend) -> Vec<Vec<usize>> {
    let base = match backend {
        Backend::Phe => return vec![vec![24, 48, 120], vec![40; 4]],
        Backend::Shade => 100,
        Backend::Lwe => 250,
        _ => 400,
    };
    vec![
        vec![base, 2 * base, 4 * base],
        vec![base; 5],
        vec![
            base / 2,
            base,
            base / 4,
            2 * base,
            base,
            base,
            base / 2,
            base,
        ],
        vec![3 * base; 3],
        // A client compares its own rows, whose number squared tells only if it is large.
        vec![10 * base, base / 2, base / 2],
    ]
}

fn label(params: &Params, features: usize) -> Result<Costs, Failure> {
    let params = &Params {
        neighbours: params.neighbours.min(NEIGHBOURS),
        min_clients: 3,
        ..*params
    };
    let job = |params: &Params| label::Job {
        params: *params,
        ..label::Job::default()
    };
    let mut samples = Samples::default();
    let repeats = match params.backend {
        Backend::Phe => 1,
        _ => REPEATS,
    };
    for rows in shapes(params.backend) {
        samples.run(&job(params), &rows, features, LABELLED, repeats)?;
    }
    // What the server solves grows faster than rows, and is the same with every backend.
    let solved = Params {
        backend: Backend::Clear,
        bits: params.bits.min(1024),
        ..*params
    };
    let mut large = Samples::default();
    for rows in [[500; 3], [1500; 3], [5000; 3]] {
        large.run(&job(&solved), &rows, features, LABELLED, 1)?;
    }
    for phase in [label::phases::GRAPH, label::phases::INFLUENCE] {
        let key = (Side::Server, phase.id);
        samples
            .0
            .insert(key, large.0.remove(&key).unwrap_or_default());
    }
    Ok(samples.costs())
}

/// What the server does with so many rows that neither the graph nor vectors fit a cache: it solves
/// by iteration.
fn iteration(params: &Params, neighbours: usize) -> Result<Costs, Failure> {
    let job = label::Job {
        params: Params {
            neighbours,
            backend: Backend::Clear,
            bits: 256,
            trust: Trust::SemiHonest,
            min_clients: 3,
            ..*params
        },
        cells: 250,
        probes: 3,
        ..label::Job::default()
    };
    let mut samples = Samples::default();
    samples.run(&job, &[33_000; 3], clouds::FEATURES, 501, 1)?;
    let mut costs = Costs::default();
    // Each row has its neighbours, and each labelled row a column for all rows.
    for (phase, kind) in [(label::phases::GRAPH, 0), (label::phases::INFLUENCE, 1)] {
        let key = (Side::Server, phase.id);
        for (amounts, took) in samples.0.remove(&key).unwrap_or_default() {
            let mut kinds = vec![0.0; kind];
            kinds.push(took / amounts[kind]);
            costs.server.insert(phase.id, kinds);
        }
    }
    Ok(costs)
}

/// Few cells, with enough rows for the noise. What follows them is as short as it can be.
fn cells(params: &Params, features: usize) -> Result<Costs, Failure> {
    let job = |cells| label::Job {
        params: Params {
            backend: Backend::Clear,
            bits: 64,
            neighbours: 2,
            trust: Trust::SemiHonest,
            min_clients: 3,
            ..*params
        },
        cells,
        probes: 2,
        cells_epsilon: *label::cells::EPSILON.end(),
        ..label::Job::default()
    };
    let mut samples = Samples::default();
    for (cells, rows) in [
        (2, [100, 300, 400]),
        (4, [400, 400, 800]),
        (12, [1000, 2000, 1800]),
        (5, [500, 1200, 300]),
    ] {
        samples.run(&job(cells), &rows, features, LABELLED, REPEATS)?;
    }
    Ok(samples.costs())
}

impl Samples {
    /// Runs label propagation with so many rows of each client, one in `labelled` with a label,
    /// and adds what it took.
    fn run(
        &mut self,
        job: &label::Job,
        rows: &[usize],
        features: usize,
        labelled: usize,
        repeats: usize,
    ) -> Result<(), Failure> {
        let dealt = clouds::deal_unevenly(rows, features, labelled);
        let (clients, shape) = dealt.map_err(Failure::data)?;
        let params = &job.params;
        let shape = shape.of(job, features).map_err(Failure::data)?;
        let group = Group::new(params.trust, rows.len());
        for _ in 0..repeats {
            let job = job.clone();
            // As on a network, each client hashes its own rows.
            let seed = Seed::from_bytes([1; 32]);
            let mut simulation = label::simulation(job, clients.iter().cloned(), seed)?;
            let run = simulation.run(Network::new())?;
            self.add_label(params, &shape, &group, &run.ledgers);
        }
        Ok(())
    }

    fn add_label(
        &mut self,
        params: &Params,
        shape: &Shape,
        group: &Group,
        ledgers: &[(PartyId, Ledger)],
    ) {
        for (who, ledger) in ledgers {
            match who.index() {
                None => self.add(
                    Side::Server,
                    work::server_work(params, shape, group),
                    ledger,
                ),
                Some(place) => {
                    let work = work::client_work(params, shape, group, place);
                    self.add(Side::Client, work, ledger);
                }
            }
        }
    }
}

fn sums(job: &rounds::Job) -> Result<Costs, Failure> {
    let mut samples = Samples::default();
    for (clients, values) in [
        (3, 1_000_000),
        (8, 100_000),
        (30, 10_000),
        (5, 1000),
        (4, 300_000),
    ] {
        let job = rounds::Job {
            clients,
            rounds: 1,
            sample: None,
            min_clients: 3,
            ..*job
        };
        let group = Group::new(job.trust, clients);
        let bytes = 8.0 * job.words(values) as f64;
        let given = Contribution {
            arrays: Arrays::from(vec![0.5 * job.bound.min(1.0); values]),
            weight: job.max_weight.min(1.0),
        };
        for _ in 0..REPEATS {
            let client = |_| Client::new(Terms::anything(), Given(given.clone()));
            let clients = (0..clients).map(client).collect();
            let seed = Seed::from_bytes([1; 32]);
            let mut simulation = rounds::Simulation::new(Server::new(job), clients, seed)?;
            let run = simulation.run(Network::new())?;
            for (who, ledger) in &run.ledgers {
                match who.index() {
                    None => samples.add(Side::Server, sum::server_work(&group, bytes), ledger),
                    Some(_) => samples.add(Side::Client, sum::client_work(&group, bytes), ledger),
                }
            }
        }
    }
    Ok(samples.costs())
}
