//! What a graph between pairs tells a client about the rows of others: digits 1 to 4 at ten
//! clients, with 5 % of the labels.

use std::collections::BTreeMap;
use std::sync::Arc;

use undertone::data::Kind;
use undertone::kdf::Seed;
use undertone::label::Rows;
use undertone::pssl::{Data, Job, Reveal, clear};
use undertone_tests::root;

use super::cotrain::auc;
use super::pssl::{ends, graph, one_hot, within};

const CLIENTS: usize = 10;

const CLASSES: usize = 4;

const SCALE: u8 = 16;

/// The clients' rows, and the classes of all rows. Every twentieth row of a client has its label.
fn digits(seed: u64) -> (Vec<Arc<Data>>, Vec<Vec<u16>>) {
    let path = root("data/digits.npz");
    let loaded = undertone::data::load(path.as_ref(), Kind::Features, None).unwrap();
    let Rows::Features(features) = loaded.rows else {
        panic!("features");
    };
    let rows = features.values().chunks_exact(features.dim());
    let mut rows: Vec<(Vec<u8>, u16)> = rows
        .zip(loaded.labels.iter().flatten())
        .filter(|(_, label)| (1..=4).contains(*label))
        .map(|(row, label)| (row.iter().map(|v| *v as u8).collect(), label - 1))
        .collect();
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let mut prg = Seed::from_bytes(bytes).prg();
    for last in (1..rows.len()).rev() {
        rows.swap(last, (prg.next_u64() % (last as u64 + 1)) as usize);
    }
    let (mut clients, mut classes) = (Vec::new(), Vec::new());
    for client in 0..CLIENTS {
        let own = rows.iter().skip(client).step_by(CLIENTS);
        let values = own.clone().flat_map(|(row, _)| row.clone()).collect();
        let truth: Vec<u16> = own.map(|(_, class)| *class).collect();
        let label = |(row, class): (usize, &u16)| (row % 20 == 0).then_some(*class);
        let labels = truth.iter().enumerate().map(label).collect();
        let data = Data::new(features.dim(), values, labels).unwrap();
        clients.push(Arc::new(data));
        classes.push(truth);
    }
    (clients, classes)
}

struct Graph {
    job: Job,
    clients: Vec<Arc<Data>>,
    classes: Vec<Vec<u16>>,
    /// For each client and row the client, the row and the weight at the other end of each edge.
    ends: Vec<Vec<Vec<(usize, usize, f64)>>>,
    clear: clear::Outcome,
}

impl Graph {
    fn new(seed: u64, change: impl FnOnce(&mut Job)) -> Self {
        let (clients, classes) = digits(seed);
        let mut job = Job::new(64, SCALE, CLASSES, 72);
        change(&mut job);
        let run = Seed::from_bytes([seed as u8; 32]);
        let clear = clear::simulated(&job, &clients, &run);
        let of = |client: usize| ends(&clear, client, clients[client].len());
        Self {
            ends: (0..CLIENTS).map(of).collect(),
            job,
            clients,
            classes,
            clear,
        }
    }

    /// The sums in each client's slots, round by round, and the scores at the end.
    fn sums(&self) -> Vec<Vec<Vec<Vec<f64>>>> {
        let job = &self.job;
        let graphs: Vec<_> = self.clients.iter().map(|data| graph(job, data)).collect();
        let labels: Vec<_> = self.clients.iter().map(|data| one_hot(job, data)).collect();
        let step = |client: usize, scores: &[Vec<f64>], sums: Option<&Vec<Vec<f64>>>| {
            let row = |row: usize| {
                let (mut sum, mut degree) = within(&graphs[client], scores, row);
                let ends = &self.ends[client][row];
                if let Some(sums) = sums.filter(|_| ends.len() > 1) {
                    degree += ends.iter().map(|(_, _, weight)| weight).sum::<f64>();
                    sum.iter_mut().zip(&sums[row]).for_each(|(a, b)| *a += b);
                }
                let share = if degree > 0.0 {
                    job.alpha / degree
                } else {
                    0.0
                };
                let both = sum.iter().zip(&labels[client][row]);
                both.map(|(sum, label)| share * sum + (1.0 - job.alpha) * label)
                    .collect::<Vec<f64>>()
            };
            (0..scores.len()).map(row).collect::<Vec<_>>()
        };
        let mut scores = labels.clone();
        if job.local_start {
            for (client, scores) in scores.iter_mut().enumerate() {
                for _ in 0..job.rounds {
                    *scores = step(client, scores, None);
                }
            }
        }
        let mut rounds = Vec::new();
        for _ in 0..job.rounds {
            let slot = |ends: &Vec<(usize, usize, f64)>| {
                let mut sum = vec![0.0; CLASSES];
                for (peer, row, weight) in ends {
                    let theirs = sum.iter_mut().zip(&scores[*peer][*row]);
                    theirs.for_each(|(sum, score)| *sum += weight * score);
                }
                sum
            };
            let sums: Vec<Vec<Vec<f64>>> = self
                .ends
                .iter()
                .map(|rows| rows.iter().map(slot).collect())
                .collect();
            scores = (0..CLIENTS)
                .map(|client| step(client, &scores[client], Some(&sums[client])))
                .collect();
            rounds.push(sums);
        }
        for (scores, due) in scores.iter().zip(&self.clear.scores) {
            let pairs = scores.iter().flatten().zip(due);
            pairs.for_each(|(a, b)| assert!((a - b).abs() < 1e-9, "{a} {b}"));
        }
        rounds
    }
}

/// How a client sees the labels of others' rows in its slots, over all rounds.
#[derive(Debug)]
struct Seen {
    /// Of slots with one labelled neighbour: the share in which the largest sum of the first round
    /// is its class.
    first: f64,
    /// The same for the sum of all rounds.
    all: f64,
    /// The area under the curve of a test whether a slot has a labelled neighbour: the total of the
    /// first round.
    labelled: f64,
    /// The same for the best single round.
    labelled_best: f64,
}

fn largest(sums: &[f64]) -> usize {
    let best = sums.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1));
    best.map_or(0, |(class, _)| class)
}

fn seen(change: impl Fn(&mut Job)) -> Seen {
    let (mut first, mut all, mut count) = (0, 0, 0);
    let rounds = 20;
    let mut totals: Vec<Vec<(f64, bool)>> = vec![Vec::new(); rounds];
    for seed in 0..4 {
        let graph = Graph::new(seed, |job| change(job));
        let sums = graph.sums();
        for client in 0..CLIENTS {
            for (row, ends) in graph.ends[client]
                .iter()
                .enumerate()
                .filter(|(_, e)| e.len() > 1)
            {
                let label = |end: &(usize, usize, f64)| graph.clients[end.0].labels()[end.1];
                let labels: Vec<u16> = ends.iter().filter_map(label).collect();
                for (totals, sums) in totals.iter_mut().zip(&sums) {
                    let total = sums[client][row].iter().sum();
                    totals.push((total, !labels.is_empty()));
                }
                if let [label] = labels[..] {
                    let label = usize::from(label);
                    let over_all: Vec<f64> = (0..CLASSES)
                        .map(|class| sums.iter().map(|sums| sums[client][row][class]).sum())
                        .collect();
                    first += usize::from(largest(&sums[0][client][row]) == label);
                    all += usize::from(largest(&over_all) == label);
                    count += 1;
                }
            }
        }
    }
    let tests: Vec<f64> = totals.iter().map(|scored| auc(scored)).collect();
    let seen = Seen {
        first: first as f64 / count as f64,
        all: all as f64 / count as f64,
        labelled: tests[0],
        labelled_best: tests.iter().copied().fold(0.0, f64::max),
    };
    println!("{seen:?}, {count} slots");
    seen
}

/// Without a local start the first round tells which rows are labelled, and how. With it, slots
/// still tell the class of most neighbours, and something about who is labelled.
#[test]
fn labels_of_neighbours_over_all_rounds() {
    let plain = seen(|_| ());
    assert!(plain.first > 0.999 && plain.labelled > 0.999, "{plain:?}");
    let local = seen(|job| job.local_start = true);
    assert!(local.first < 0.9 && local.all < 0.9, "{local:?}");
    assert!((0.5..0.65).contains(&local.labelled_best), "{local:?}");
}

/// An edge tells the class of a row of another client as often as edges join rows of one class, and
/// of its values no more than its class does.
#[test]
fn classes_and_values_of_rows_with_one_edge() {
    let mut found = BTreeMap::new();
    for reveal in [Reveal::Accept, Reveal::Bucket, Reveal::Distance] {
        let (mut right, mut edges, mut best) = (0, 0, BTreeMap::<u64, [usize; 2]>::new());
        let (mut by_row, mut by_class) = (0.0, 0.0);
        for seed in 0..3 {
            let graph = Graph::new(seed, |job| job.reveal = reveal);
            for client in 0..CLIENTS {
                let means = means(&graph, client);
                let own_ends = graph.ends[client].iter().enumerate();
                for (row, (peer, other, weight)) in
                    own_ends.flat_map(|(row, ends)| ends.iter().map(move |end| (row, *end)))
                {
                    let own = graph.classes[client][row];
                    let is_right = own == graph.classes[peer][other];
                    right += usize::from(is_right);
                    edges += 1;
                    let told = best.entry(weight.to_bits()).or_default();
                    told[0] += usize::from(is_right);
                    told[1] += 1;
                    let target = graph.clients[peer].row(other);
                    let guess = graph.clients[client].row(row).iter().map(|v| f64::from(*v));
                    by_row += error(guess, target);
                    by_class += error(means[usize::from(own)].iter().copied(), target);
                }
            }
        }
        let share = right as f64 / edges as f64;
        // Edges that tell most: the quarter with the shortest edges.
        let shortest = best.values().rev().find(|told| told[1] > 50);
        let shortest = shortest.map(|told| told[0] as f64 / told[1] as f64);
        println!("{reveal}: {share:.3}, shortest {shortest:?}, {by_row:.0} {by_class:.0}");
        assert!((0.7..0.85).contains(&share), "{reveal}: {share}");
        // The own row is a worse guess than the mean of its class at this client.
        assert!(by_class < by_row, "{reveal}: {by_class} {by_row}");
        found.insert(reveal.name(), share);
    }
    assert_eq!(found.len(), 3);
}

/// The mean row of each class at a client.
fn means(graph: &Graph, client: usize) -> Vec<Vec<f64>> {
    let data = &graph.clients[client];
    let mean = |class: u16| {
        let rows = (0..data.len()).filter(|row| graph.classes[client][*row] == class);
        let rows: Vec<usize> = rows.collect();
        let value = |v: usize| {
            rows.iter()
                .map(|row| f64::from(data.row(*row)[v]))
                .sum::<f64>()
        };
        (0..data.features())
            .map(|v| value(v) / rows.len().max(1) as f64)
            .collect()
    };
    (0..CLASSES as u16).map(mean).collect()
}

fn error(guess: impl Iterator<Item = f64>, row: &[u8]) -> f64 {
    let pairs = guess.zip(row);
    pairs
        .map(|(guess, value)| (guess - f64::from(*value)).powi(2))
        .sum()
}

/// How many rows a client has at a place, as the answering end guesses it from the number of edges:
/// the mean of the sizes, weighted by how likely each makes it. `seen` has for each comparison with
/// a row of its own whether there is an edge, and how many rows of the place had an edge before. It
/// does not know how often a pair of rows gets an edge.
fn guess(seen: &[(bool, usize)], most: usize) -> f64 {
    let likely = |size: usize| {
        let chances = |rate: f64| {
            let chance = |(edge, before): &(bool, usize)| {
                let (left, of) = (size.saturating_sub(*before), most.saturating_sub(*before));
                let hit = rate * left as f64 / of.max(1) as f64;
                if *edge { hit } else { 1.0 - hit }
            };
            seen.iter().map(chance).product::<f64>()
        };
        (1..50)
            .map(|rate| chances(f64::from(rate) / 50.0))
            .sum::<f64>()
    };
    let weights: Vec<f64> = (1..=most).map(likely).collect();
    let total: f64 = weights.iter().sum();
    let sizes = (1..).zip(&weights);
    let mean: f64 = sizes.map(|(size, weight)| f64::from(size) * weight).sum();
    if total > 0.0 { mean / total } else { 0.0 }
}

/// Rows and dummies of a place are in a random order. With rows first, an edge at a position would
/// tell the other end that there are so many rows: of the edges of the first attempts at places
/// with dummies nearly all would be in the first half. What the number of edges tells remains:
/// nearly whether a cluster has dummies.
#[test]
fn positions_of_edges_tell_nothing_and_their_number_does() {
    let (mut guesses, mut halves) = (Vec::new(), [0.0, 0.0]);
    for seed in 0..3 {
        let graph = Graph::new(seed, |job| (job.clusters, job.asked) = (8, 10));
        let asked = graph.job.asked;
        for (ends, [direction, _]) in &graph.clear.pairs {
            let clusters = &graph.clear.clusters[ends[0].index().unwrap()];
            let size = |place: usize| clusters.members[direction.order[place]].len();
            let mut seen = vec![Vec::new(); 8];
            let mut accepted = vec![0; 8];
            for (attempt, compared) in direction.attempts.iter().enumerate() {
                let (before, mut position) = (accepted.clone(), vec![0; 8]);
                for compared in compared {
                    let (place, edge) = (compared.place, compared.told.is_some());
                    if compared.rows[1].is_some() {
                        seen[place].push((edge, before[place]));
                    }
                    if attempt == 0 && edge && size(place) <= asked / 2 {
                        halves[2 * position[place] / asked] += 1.0;
                    }
                    position[place] += 1;
                    accepted[place] += usize::from(edge);
                }
            }
            for (place, seen) in seen.iter().enumerate() {
                guesses.push((guess(seen, asked), size(place) >= asked));
            }
        }
    }
    let by_number = auc(&guesses);
    let large = guesses.iter().filter(|guess| guess.1).count();
    println!(
        "edges at small clusters, first and second half: {halves:?}; {large} of {} clusters have \
         no dummies: {by_number:.2}",
        guesses.len()
    );
    let all: f64 = halves.iter().sum();
    assert!(all > 100.0, "{halves:?}");
    assert!(
        (halves[0] - all / 2.0).abs() < 4.0 * (all / 4.0).sqrt(),
        "{halves:?}"
    );
    assert!((0.85..1.0).contains(&by_number), "{by_number}");
}
