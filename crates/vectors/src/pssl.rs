//! A graph between pairs of clients: products, circuits, and a run in the clear.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::Serialize;
use undertone::garble::Circuit;
use undertone::job::Job as _;
use undertone::kdf::{Seed, simulated};
use undertone::kernel::Prg;
use undertone::ot::chosen;
use undertone::party::PartyId;
use undertone::pssl::clear::{Client, run};
use undertone::pssl::{Data, Job, Reveal, circuits, product};

use crate::jobs::DescribedJob;
use crate::primitives::{Nothing, SESSION};
use crate::{Double, Error, File, Hex, double, doubles, hex};

fn job(features: usize, scale: u8, reveal: Reveal) -> Job {
    Job {
        neighbours: 3,
        clusters: 2,
        asked: 3,
        rounds: 3,
        reveal,
        ..Job::new(features, scale, 3, 0).with_range(0.2, 0.9)
    }
}

/// The products of one portion.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Product {
    features: usize,
    scale: u8,
    /// w.
    width: u32,
    /// β.
    bits: u32,
    /// The rows of the garbler; null for a dummy.
    garbler: Vec<Option<Hex>>,
    /// The rows of the evaluator.
    evaluator: Vec<Option<Hex>>,
    /// The lowest 32 bits of both hashed keys of each transfer.
    keys: [Vec<u32>; 2],
    /// The random choices of the transfers, 64 to a word.
    random: Hex,
    /// The evaluator's message.
    choices: Hex,
    /// The garbler's message.
    offers: Hex,
    /// The garbler's shares.
    garbler_shares: Vec<u64>,
    /// The evaluator's shares.
    evaluator_shares: Vec<u64>,
}

fn product_of(features: usize, scale: u8, count: usize) -> Product {
    let job = job(features, scale, Reveal::Bucket);
    let shape = product::Shape::new(&job);
    let mut prg = Prg::new(&[features as u8; 32]);
    let mut rows = || -> Vec<Option<Vec<u8>>> {
        let value = |prg: &mut Prg| (prg.next_u64() % (u64::from(scale) + 1)) as u8;
        let mut row = |_| (0..features).map(|_| value(&mut prg)).collect();
        (0..count).map(|index| Some(row(index))).collect()
    };
    let (own, mut other) = (rows(), rows());
    // The last comparison has a dummy, unless it is the only one.
    if let [_, .., last] = &mut other[..] {
        *last = None;
    }
    let total = count * shape.transfers();
    let mut words = || -> Vec<u32> { (0..total).map(|_| prg.next_u64() as u32).collect() };
    let keys = [words(), words()];
    let mut random: Vec<u64> = (0..total.div_ceil(64)).map(|_| prg.next_u64()).collect();
    if let Some(last) = random.last_mut() {
        *last &= u64::MAX >> (total.wrapping_neg() % 64);
    }
    let bit = |t: usize| (random[t / 64] >> (t % 64) & 1) as usize;
    let held: Vec<u32> = (0..total).map(|t| keys[bit(t)][t]).collect();
    fn borrowed(rows: &[Option<Vec<u8>>]) -> Vec<Option<&[u8]>> {
        rows.iter().map(Option::as_deref).collect()
    }
    let wanted = product::choices(shape, &borrowed(&other));
    let choices = chosen::choose(&wanted, &random);
    let (offers, first) = product::offer(shape, [&keys[0], &keys[1]], &choices, &borrowed(&own));
    let second = product::take(shape, count, &held, &wanted, &offers);
    let written = |rows: &[Option<Vec<u8>>]| {
        rows.iter()
            .map(|row| row.as_ref().map(|row| hex(row)))
            .collect()
    };
    let bytes: Vec<u8> = random.iter().flat_map(|word| word.to_le_bytes()).collect();
    Product {
        features,
        scale,
        width: job.width(),
        bits: job.bits(),
        garbler: written(&own),
        evaluator: written(&other),
        random: hex(&bytes),
        choices: hex(&choices),
        offers: hex(&offers),
        garbler_shares: first.to_vec(),
        evaluator_shares: second.to_vec(),
        keys,
    }
}

/// The circuits of a job, with some words and outputs.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Circuits {
    job: DescribedJob,
    /// The least and the greatest squared distance of an edge, and the least ones of the second to
    /// fourth quarter.
    thresholds: [u64; 5],
    /// AND gates and digest of the circuit of the closest cluster.
    closest: (usize, Hex),
    /// AND gates and digest of the circuit of an edge.
    edge: (usize, Hex),
    /// Words of garbler and evaluator, one for each cluster, and the closest cluster.
    clusters: Vec<ClosestOf>,
    /// Comparisons.
    comparisons: Vec<Compared>,
}

/// A search for the closest cluster.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct ClosestOf {
    garbler: Vec<u64>,
    evaluator: Vec<u64>,
    closest: u64,
}

/// A comparison of two rows.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Compared {
    garbler: u64,
    evaluator: u64,
    /// Whether the rows of garbler and evaluator are real.
    real: [bool; 2],
    /// What an edge tells; null if there is none.
    told: Option<u64>,
    /// The weight of the edge.
    weight: Option<Double>,
}

/// The output of one instance of a circuit.
fn output(
    circuit: &Circuit,
    [own, other]: [&[u64]; 2],
    width: u32,
    flags: Option<[bool; 2]>,
) -> u64 {
    let bits = |words: &[u64], side: usize| -> Vec<bool> {
        let flag = flags.map(|flags| [flags[side]]);
        let flag = flag.as_ref().map(|flag| &flag[..]);
        let bits = circuits::inputs(words, words.len(), width, flag);
        (0..bits.columns())
            .map(|column| bits.get(0, column))
            .collect()
    };
    circuit.run(&bits(own, 0), &bits(other, 1))
}

fn circuits_of(job: &Job) -> Circuits {
    let (closest, edge) = (circuits::closest(job), circuits::accept(job));
    let thresholds = job.thresholds();
    let (width, mut prg) = (job.width(), Prg::new(&[job.clusters as u8; 32]));
    let mask = (1u64 << width) - 1;
    let most = u64::from(job.scale).pow(2) * job.features as u64;
    let mut split = |square: u64| {
        let own = prg.next_u64() & mask;
        (own, square.wrapping_sub(own) & mask)
    };
    let mut searches = Vec::new();
    for nth in 0..3u64 {
        let square = |cluster: usize| most / (1 + (cluster as u64 * 7 + nth * 3) % 5);
        let words = (0..job.clusters).map(|cluster| split(square(cluster)));
        let (own, other): (Vec<u64>, Vec<u64>) = words.unzip();
        searches.push(ClosestOf {
            closest: output(&closest, [&own, &other], width, None),
            garbler: own,
            evaluator: other,
        });
    }
    let around = |square: u64| [square.saturating_sub(1), square, square + 1];
    let mut squares: Vec<u64> = [0, thresholds.least, thresholds.most, most.min(mask)]
        .into_iter()
        .chain(thresholds.quarters)
        .flat_map(around)
        .filter(|square| *square <= mask)
        .collect();
    squares.sort_unstable();
    squares.dedup();
    let mut comparisons = Vec::new();
    for (nth, square) in squares.into_iter().enumerate() {
        // Now and then a dummy.
        let real = [nth % 5 != 4, nth % 7 != 6];
        let (own, other) = split(square);
        let told = circuits::told(output(&edge, [&[own], &[other]], width, Some(real)));
        comparisons.push(Compared {
            garbler: own,
            evaluator: other,
            real,
            told,
            weight: told.map(|told| double(job.weight_of(told))),
        });
    }
    let quarters = thresholds.quarters;
    Circuits {
        job: DescribedJob::new("pssl", &job.fields()),
        thresholds: [
            thresholds.least,
            thresholds.most,
            quarters[0],
            quarters[1],
            quarters[2],
        ],
        closest: (closest.ands(), hex(&closest.digest())),
        edge: (edge.ands(), hex(&edge.digest())),
        clusters: searches,
        comparisons,
    }
}

/// A run of three clients, in the clear.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Pairwise {
    job: DescribedJob,
    session: Hex,
    /// The context of the run.
    context: Hex,
    clients: Vec<Rows>,
    /// The pairs of clients, the smaller first.
    pairs: Vec<Pair>,
}

/// The rows of a client, and what it has at the end.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Rows {
    rows: Vec<Hex>,
    /// The label of each row, -1 for none.
    labels: Vec<i32>,
    /// The rounded centres of the clusters, and the rows of each.
    centres: Vec<Hex>,
    members: Vec<Vec<usize>>,
    /// The scores of rows × classes at the end.
    scores: Vec<Vec<Double>>,
}

/// A pair of clients.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Pair {
    clients: [usize; 2],
    /// First the smaller client proposes, then the greater.
    directions: Vec<Direction>,
}

/// A direction of a pair.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Direction {
    /// The proposer's cluster at each place. It is random.
    order: Vec<usize>,
    /// The other client's closest cluster.
    closest: Vec<usize>,
    /// The attempts. Which rows are compared is random.
    attempts: Vec<Attempt>,
}

/// The comparisons of an attempt.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Attempt {
    places: Vec<usize>,
    /// The rows of the proposer, -1 for a dummy.
    proposed: Vec<i64>,
    /// The rows of the other client.
    answered: Vec<i64>,
    /// What the edges tell, -1 where there is none.
    told: Vec<i64>,
}

fn pairwise_of(job: &Job) -> Result<Pairwise, Error> {
    let clients: Vec<Arc<Data>> = (0..3)
        .map(|client| rows(job, client))
        .collect::<Result<_, _>>()?;
    let ids: Vec<PartyId> = (0..3).map(PartyId::client).collect();
    let seed = Seed::from_bytes([21; 32]);
    let seeds: Vec<Seed> = ids
        .iter()
        .map(|id| simulated::party(&seed, SESSION, *id))
        .collect();
    let members: Vec<Client<'_>> = ids
        .iter()
        .zip(&clients)
        .zip(&seeds)
        .map(|((me, data), seed)| Client {
            me: *me,
            data,
            seed,
        })
        .collect();
    let run = run(job, SESSION, &members);
    let signed = |row: Option<usize>| row.map_or(-1, |row| row as i64);
    let direction = |direction: &undertone::pssl::clear::Direction| Direction {
        order: direction.order.clone(),
        closest: direction.closest.clone(),
        attempts: direction
            .attempts
            .iter()
            .map(|compared| Attempt {
                places: compared.iter().map(|one| one.place).collect(),
                proposed: compared.iter().map(|one| signed(one.rows[0])).collect(),
                answered: compared.iter().map(|one| signed(one.rows[1])).collect(),
                told: compared
                    .iter()
                    .map(|one| one.told.map_or(-1, |told| told as i64))
                    .collect(),
            })
            .collect(),
    };
    let index = |who: PartyId| who.index().unwrap_or(0);
    Ok(Pairwise {
        job: DescribedJob::new("pssl", &job.fields()),
        session: hex(&SESSION.0),
        context: hex(&job.context(SESSION).0),
        clients: clients
            .iter()
            .zip(&run.clusters)
            .zip(&run.scores)
            .map(|((data, clusters), scores)| Rows {
                rows: (0..data.len()).map(|row| hex(data.row(row))).collect(),
                labels: data
                    .labels()
                    .iter()
                    .map(|l| l.map_or(-1, i32::from))
                    .collect(),
                centres: clusters.centres.iter().map(|centre| hex(centre)).collect(),
                members: clusters.members.clone(),
                scores: scores.chunks(job.classes).map(doubles).collect(),
            })
            .collect(),
        pairs: run
            .pairs
            .iter()
            .map(|(ends, directions)| Pair {
                clients: ends.map(index),
                directions: directions.iter().map(direction).collect(),
            })
            .collect(),
    })
}

/// Rows in three classes, every third with a label.
fn rows(job: &Job, client: usize) -> Result<Arc<Data>, Error> {
    let mut prg = Prg::new(&[30 + client as u8; 32]);
    let count = 11 + client;
    let (mut values, mut labels) = (Vec::new(), Vec::new());
    for row in 0..count {
        let class = row % 3;
        for feature in 0..job.features {
            let centre = if feature % 3 == class { 9 } else { 2 };
            values.push(centre + (prg.next_u64() % 6) as u8);
        }
        labels.push((row % 3 == client).then_some(class as u16));
    }
    let data = Data::new(job.features, values, labels);
    data.map(Arc::new).map_err(|_| Error::Missing("rows"))
}

/// The files of this module.
///
/// # Errors
/// Never.
pub fn files() -> Result<Vec<File>, Error> {
    let none = Vec::<Nothing>::new;
    let products = [(1, 1, 1), (1, 255, 2), (5, 16, 3), (21, 255, 3), (3, 1, 2)];
    let products = products.map(|(features, scale, count)| product_of(features, scale, count));
    let mut all = crate::files(
        "product",
        "docs/spec/pssl.md, Products",
        products.into(),
        none(),
    )?;
    let reveals = [Reveal::Bucket, Reveal::Distance, Reveal::Accept];
    let mut jobs: Vec<Job> = reveals.map(|reveal| job(6, 16, reveal)).into();
    jobs.push(Job {
        clusters: 5,
        ..job(21, 255, Reveal::Bucket)
    });
    let circuits = jobs.iter().map(circuits_of).collect();
    all.extend(crate::files(
        "edge-circuit",
        "docs/spec/pssl.md, Pairs",
        circuits,
        none(),
    )?);
    let mut runs: Vec<Job> = reveals.map(|reveal| job(6, 16, reveal)).into();
    runs[1].local_start = true;
    runs[2].allow_single = true;
    let runs: Result<Vec<Pairwise>, Error> = runs.iter().map(pairwise_of).collect();
    all.extend(crate::files(
        "pairwise",
        "docs/spec/pssl.md",
        runs?,
        none(),
    )?);
    Ok(all)
}
