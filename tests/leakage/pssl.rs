//! What the server and the clients of pairwise graphs learn about rows, labels and clusters.
use std::collections::BTreeSet;
use std::sync::Arc;

use undertone::kdf::Seed;
use undertone::party::frame::HEADER_LEN;
use undertone::party::{Network, PartyId};
use undertone::pssl::{Data, Edge, Job, Reveal, SLOTS, clear};
use undertone_tests::pssl::{FEATURES, SCALE, World};

use super::assert_uniform;

const SERVER: PartyId = PartyId::SERVER;

/// The frames of a run: sender, receiver, phase and length, and the payloads between clients.
#[derive(Default)]
struct View {
    frames: Vec<(PartyId, PartyId, u8, usize)>,
    relayed: Vec<u8>,
}

fn view(world: &World) -> View {
    let mut view = View::default();
    let network = Network::new().intercept(|from, to, frame| {
        view.frames.push((from, to, frame[4], frame.len()));
        if from != SERVER && to != SERVER {
            view.relayed.extend(&frame[HEADER_LEN..]);
        }
    });
    let run = world.run(network);
    assert!(run.server.is_ok() && run.clients.values().all(Result::is_ok));
    view
}

/// A world whose rows and labels are others, in clusters of other sizes. The numbers of rows stay.
fn other_rows(mut world: World) -> World {
    for (client, data) in world.clients.iter_mut().enumerate() {
        let seed = Seed::from_bytes([40 + client as u8; 32]);
        let mut prg = seed.prg();
        let mut values = Vec::new();
        let mut labels = Vec::new();
        for row in 0..data.len() {
            // Nearly all rows are in one cluster.
            let low = if row < 3 { 10 } else { 2 };
            values.extend((0..FEATURES).map(|_| low + (prg.next_u64() % 4) as u8));
            labels.push((row % 2 == 0).then_some((row % 3) as u16));
        }
        *data = Arc::new(Data::new(FEATURES, values, labels).unwrap());
    }
    world
}

/// Frames as a multiset for each link: who sent how many of which length.
fn sorted(view: &View) -> Vec<(PartyId, PartyId, u8, usize)> {
    let mut frames = view.frames.clone();
    frames.sort_unstable();
    frames
}

/// Without edges the server's view, and a client's view of the number of comparisons, do not depend
/// on rows, labels or the sizes of clusters. They depend on R.
#[test]
fn lengths_depend_on_the_job_and_the_numbers_of_rows_only() {
    // No pair of rows is that far apart.
    let world = |asked| {
        World::new(3, |job| {
            *job = job.clone().with_range(3.2, 3.4);
            job.rounds = 2;
            job.asked = asked;
        })
    };
    let view_of = |world: &World| {
        let edges = world.clear(&world.all()).edges;
        assert!(edges.iter().flatten().all(|(_, edges)| edges.is_empty()));
        view(world)
    };
    let (first, second) = (view_of(&world(6)), view_of(&other_rows(world(6))));
    assert_eq!(first.frames, second.frames);
    assert_ne!(sorted(&first), sorted(&view_of(&world(7))));
}

/// What shows if there are edges: between clients, the messages of comparisons (as many as edges
/// are missing) and of slots (one for each edge). All that goes to the server or comes from it has
/// the same lengths.
#[test]
fn the_server_learns_the_numbers_of_edges_and_nothing_else() {
    let world = || World::new(4, |job| job.rounds = 2);
    let views = [view(&world()), view(&other_rows(world()))];
    let servers = |view: &View| {
        let frames = sorted(view).into_iter();
        let is_own = |frame: &(PartyId, PartyId, u8, usize)| frame.0 == SERVER || frame.1 == SERVER;
        frames.filter(is_own).collect::<Vec<_>>()
    };
    assert_eq!(servers(&views[0]), servers(&views[1]));
    assert_ne!(sorted(&views[0]), sorted(&views[1]));
    let edges = world().clear(&world().all()).edges;
    // The length of the slots of a pair counts its edges: header, seal, four bytes an edge.
    let empty = World::new(4, |job| {
        *job = job.clone().with_range(3.2, 3.4);
        job.rounds = 2;
    });
    let none = view(&empty).frames;
    let seal = none.iter().find(|f| f.2 == SLOTS.id && f.1 != SERVER);
    let seal = seal.unwrap().3;
    for (from, to, phase, len) in &views[0].frames {
        if *phase == SLOTS.id && *from != SERVER && *to != SERVER {
            let own = &edges[from.index().unwrap()];
            let due = own.iter().find(|(peer, _)| peer == to).unwrap().1.len();
            assert_eq!(*len, seal + 4 * due);
        }
    }
    // Accept bits, buckets and slots are sealed.
    views
        .iter()
        .for_each(|view| assert_uniform(&view.relayed, "frames between clients"));
}

pub(super) type Graph = Vec<Vec<(usize, f64)>>;

/// The mutual K-nearest-neighbour graph, by `docs/spec/pssl.md`.
pub(super) fn graph(job: &Job, data: &Data) -> Graph {
    let square = |a: usize, b: usize| -> u32 {
        let pairs = data.row(a).iter().zip(data.row(b));
        pairs.map(|(a, b)| u32::from(a.abs_diff(*b)).pow(2)).sum()
    };
    let nearest = |row: usize| {
        let others = (0..data.len()).filter(|other| *other != row);
        let mut others: Vec<_> = others.map(|other| (square(row, other), other)).collect();
        others.sort_unstable();
        others.truncate(job.neighbours);
        others.into_iter().map(|(_, other)| other).collect()
    };
    let near: Vec<Vec<usize>> = (0..data.len()).map(nearest).collect();
    let unit = f64::from(job.scale).powi(2);
    let weigh = |row: usize, other: usize| job.weight(f64::from(square(row, other)) / unit);
    let mutual = |row: usize| {
        let others = near[row]
            .iter()
            .filter(|other| near[**other].contains(&row));
        others.map(|other| (*other, weigh(row, *other))).collect()
    };
    (0..data.len()).map(mutual).collect()
}

pub(super) fn one_hot(job: &Job, data: &Data) -> Vec<Vec<f64>> {
    let one = |label: &Option<u16>| {
        let mut row = vec![0.0; job.classes];
        label
            .iter()
            .for_each(|label| row[usize::from(*label)] = 1.0);
        row
    };
    data.labels().iter().map(one).collect()
}

/// The sum of the neighbours of `row`, and their weights.
pub(super) fn within(graph: &Graph, scores: &[Vec<f64>], row: usize) -> (Vec<f64>, f64) {
    let mut sum = vec![0.0; scores[row].len()];
    for (other, weight) in &graph[row] {
        let pairs = sum.iter_mut().zip(&scores[*other]);
        pairs.for_each(|(sum, score)| *sum += weight * score);
    }
    (sum, graph[row].iter().map(|(_, weight)| weight).sum())
}

/// The scores with which a client begins. Only for jobs of one round.
fn start(job: &Job, data: &Data) -> Vec<Vec<f64>> {
    let labels = one_hot(job, data);
    if !job.local_start {
        return labels;
    }
    assert_eq!(job.rounds, 1);
    let graph = graph(job, data);
    let own = |row: usize| {
        let (sum, degree) = within(&graph, &labels, row);
        let share = if degree > 0.0 {
            job.alpha / degree
        } else {
            0.0
        };
        let pairs = sum.iter().zip(&labels[row]);
        pairs
            .map(|(sum, label)| share * sum + (1.0 - job.alpha) * label)
            .collect()
    };
    (0..data.len()).map(own).collect()
}

/// The edges of each row of client `of`: the other end's client and row, and the weight.
pub(super) fn ends(
    clear: &clear::Outcome,
    of: usize,
    rows: usize,
) -> Vec<Vec<(usize, usize, f64)>> {
    let mut ends = vec![Vec::new(); rows];
    let me = PartyId::client(of);
    for (peer, own) in &clear.edges[of] {
        let peer = peer.index().unwrap();
        let theirs = clear.edges[peer].iter().find(|(who, _)| *who == me);
        let both = own.iter().zip(&theirs.unwrap().1);
        for (Edge { row, weight }, other) in both {
            ends[*row].push((peer, other.row, *weight));
        }
    }
    ends
}

/// What client `of` works out from its scores after one round: the sums in the slots of its rows.
/// It knows its rows, its labels and the weights of its edges.
fn slots(world: &World, of: usize, fewest: usize) -> Vec<Option<Vec<f64>>> {
    let (job, data) = (&world.jobs.0, &world.clients[of]);
    let run = world.run(Network::new());
    let outcome = run.clients[&PartyId::client(of)].as_ref().unwrap();
    let mut weights = vec![Vec::new(); data.len()];
    for edge in outcome.edges.iter().flat_map(|(_, edges)| edges) {
        weights[edge.row].push(edge.weight);
    }
    let (graph, labels, start) = (graph(job, data), one_hot(job, data), start(job, data));
    let slot = |row: usize| {
        let has_slot = weights[row].len() >= fewest.max(1);
        let (sum, degree) = within(&graph, &start, row);
        let outside: f64 = if has_slot {
            weights[row].iter().sum()
        } else {
            0.0
        };
        let scores = &outcome.scores[row * job.classes..(row + 1) * job.classes];
        let all = sum.iter().zip(scores).zip(&labels[row]);
        let rest = all.map(|((sum, score), label)| {
            (score - (1.0 - job.alpha) * label) * (degree + outside) / job.alpha - sum
        });
        let rest: Vec<f64> = rest.collect();
        if !has_slot {
            // Rows without a slot tell nothing.
            assert!(
                rest.iter().all(|sum| sum.abs() < 1e-9),
                "row {row}: {rest:?}"
            );
            return None;
        }
        Some(rest)
    };
    (0..data.len()).map(slot).collect()
}

fn one_round(clients: usize, change: impl FnOnce(&mut Job)) -> World {
    World::new(clients, |job| {
        job.rounds = 1;
        change(job);
    })
}

/// With `allow_single` a slot with one partner shows the whole row of its scores. Without it such
/// rows have no slot.
#[test]
fn a_slot_with_one_partner_shows_its_scores() {
    let mut shown = 0;
    for allow_single in [true, false] {
        let world = one_round(3, |job| {
            job.allow_single = allow_single;
            job.local_start = true;
            // Few edges: many rows have one.
            job.asked = 2;
        });
        let clear = world.clear(&world.all());
        let starts: Vec<_> = world
            .clients
            .iter()
            .map(|data| start(&world.jobs.0, data))
            .collect();
        for of in 0..3 {
            let slots = slots(&world, of, if allow_single { 1 } else { 2 });
            let ends = ends(&clear, of, slots.len());
            for (slot, ends) in slots.iter().zip(&ends) {
                if let (Some(slot), [(peer, row, weight)]) = (slot, &ends[..]) {
                    assert!(allow_single, "a slot with one partner");
                    for (sum, score) in slot.iter().zip(&starts[*peer][*row]) {
                        assert!((sum / weight - score).abs() < 1e-6, "{sum} {score}");
                    }
                    shown += 1;
                }
            }
        }
    }
    assert!(shown > 10, "{shown} rows");
}

/// Which edges of a slot lead to a labelled row of which class, if that follows from the sums: for
/// each class the only subset of the weights that adds up to the sum.
fn solve(slot: &[f64], weights: &[f64]) -> Option<Vec<usize>> {
    let mut classes = vec![usize::MAX; weights.len()];
    for (class, sum) in slot.iter().enumerate() {
        let total = |subset: usize| -> f64 {
            let of = weights
                .iter()
                .enumerate()
                .filter(|(at, _)| subset >> at & 1 == 1);
            of.map(|(_, weight)| weight).sum()
        };
        let fits = (0..1 << weights.len()).filter(|subset| (total(*subset) - sum).abs() < 1e-9);
        let fits: Vec<usize> = fits.collect();
        let [subset] = fits[..] else { return None };
        for (at, known) in classes.iter_mut().enumerate() {
            if subset >> at & 1 == 1 {
                *known = class;
            }
        }
    }
    Some(classes)
}

/// The share of connected labelled rows of which some neighbour names client, edge and class, and
/// the share of those for which one class stands alone in some neighbour's slot.
fn labels_found(change: impl FnOnce(&mut Job)) -> [f64; 2] {
    let world = one_round(5, change);
    let clear = world.clear(&world.all());
    let mut sets: [BTreeSet<(usize, usize)>; 3] = Default::default();
    for of in 0..5 {
        let slots = slots(&world, of, 2);
        let ends = ends(&clear, of, slots.len());
        for (slot, ends) in slots.iter().zip(&ends) {
            let Some(slot) = slot else { continue };
            let weights: Vec<f64> = ends.iter().map(|(_, _, weight)| *weight).collect();
            let solved = solve(slot, &weights);
            let alone = slot.iter().filter(|sum| sum.abs() > 1e-9).count() == 1;
            for (at, (peer, row, _)) in ends.iter().enumerate() {
                let label = world.clients[*peer].labels()[*row];
                let named = solved.as_ref().map(|classes| classes[at]);
                if let Some(named) = named {
                    let due = label.map_or(usize::MAX, usize::from);
                    assert_eq!(named, due, "the attack names no label that is wrong");
                }
                if label.is_some() {
                    sets[0].insert((*peer, *row));
                    if alone {
                        sets[1].insert((*peer, *row));
                    }
                    if named.is_some() {
                        sets[2].insert((*peer, *row));
                    }
                }
            }
        }
    }
    let [all, alone, named] = sets.map(|set| set.len() as f64);
    assert!(all > 10.0);
    [named / all, alone / all]
}

/// Labels of connected labelled rows are visible to their neighbours in the first round. The
/// documents say so.
#[test]
fn neighbours_see_labels_in_the_first_round() {
    let [named, alone] = labels_found(|job| job.reveal = Reveal::Distance);
    assert!(named > 0.9 && alone > 0.9, "distance: {named} {alone}");
    // Edges in one quarter have one weight: measured here, 3 of 10 rows are named.
    let [named, alone] = labels_found(|_| ());
    assert!(
        named > 0.2 && named < 0.9 && alone > 0.9,
        "bucket: {named} {alone}"
    );
}

/// With a local start sums are no sums of weights: this attack names no edge. Others may.
#[test]
fn with_a_local_start_sums_of_weights_name_no_label() {
    let world = one_round(5, |job| job.local_start = true);
    let (mut named, mut tried) = (0, 0);
    for of in 0..5 {
        let slots = slots(&world, of, 2);
        let clear = world.clear(&world.all());
        for (slot, ends) in slots.iter().zip(ends(&clear, of, slots.len())) {
            let Some(slot) = slot else { continue };
            let weights: Vec<f64> = ends.iter().map(|(_, _, weight)| *weight).collect();
            let solved = solve(slot, &weights);
            let is_named = |classes: &Vec<usize>| classes.iter().any(|c| *c != usize::MAX);
            tried += 1;
            named += usize::from(solved.as_ref().is_some_and(is_named));
        }
    }
    assert!(named == 0 && tried > 50, "{named} of {tried} slots");
}

fn square(world: &World, [a, b]: [(usize, usize); 2]) -> f64 {
    let row = |(client, row): (usize, usize)| world.clients[client].row(row);
    let pairs = row(a).iter().zip(row(b));
    f64::from(
        pairs
            .map(|(a, b)| u32::from(a.abs_diff(*b)).pow(2))
            .sum::<u32>(),
    )
}

/// Exact weights open d². Buckets open a quarter of the range, and accepted edges nothing more than
/// the range.
#[test]
fn weights_open_distances() {
    for (reveal, values) in [
        (Reveal::Distance, None),
        (Reveal::Bucket, Some(4)),
        (Reveal::Accept, Some(1)),
    ] {
        let world = one_round(3, |job| job.reveal = reveal);
        let (job, clear) = (&world.jobs.0, world.clear(&world.all()));
        let mut weights = BTreeSet::new();
        for of in 0..3 {
            let ends = ends(&clear, of, world.clients[of].len());
            for (row, (peer, other, weight)) in ends
                .iter()
                .enumerate()
                .flat_map(|(row, ends)| ends.iter().map(move |e| (row, *e)))
            {
                let due = square(&world, [(of, row), (peer, other)]);
                let opened = -job.epsilon * weight.ln() * f64::from(SCALE).powi(2);
                weights.insert(weight.to_bits());
                match reveal {
                    Reveal::Distance => assert!((opened - due).abs() < 1e-6, "{opened} {due}"),
                    Reveal::Bucket => {
                        let width = (job.d_max - job.d_min) / 4.0;
                        let [opened, due] = [opened, due].map(|d2| d2.sqrt() / f64::from(SCALE));
                        assert!((opened - due).abs() <= width / 2.0 + 1e-9, "{opened} {due}");
                    }
                    _ => {}
                }
            }
        }
        match values {
            Some(most) => assert!((1..=most).contains(&weights.len()), "{reveal}"),
            None => assert!(weights.len() > 10, "{reveal}"),
        }
    }
}

/// The slot numbers that client `from` tells `to`, in the order of their edges.
fn told(world: &World, from: PartyId, to: PartyId) -> Vec<u32> {
    let mut told = Vec::new();
    let network = world.inside((from, to), |_, phase, text| {
        if phase == SLOTS.id {
            let slots = text.chunks_exact(4);
            told.extend(slots.map(|slot| u32::from_le_bytes(slot.try_into().unwrap())));
        }
    });
    assert!(world.run(network).server.is_ok());
    told
}

/// Two clients that compare the slots of a third know which of their rows neighbour the same row.
#[test]
fn colluding_clients_match_the_slots_of_a_third() {
    let world = one_round(4, |_| ());
    let [victim, first, second] = [0, 1, 2].map(PartyId::client);
    let [of_first, of_second] = [first, second].map(|to| told(&world, victim, to));
    let edges = world.clear(&world.all()).edges.swap_remove(0);
    let rows = |peer: PartyId| -> Vec<usize> {
        let edges = &edges.iter().find(|(who, _)| *who == peer).unwrap().1;
        edges.iter().map(|edge| edge.row).collect()
    };
    let mut matched = 0;
    for (slot, row) in of_first.iter().zip(rows(first)) {
        for (other_slot, other_row) in of_second.iter().zip(rows(second)) {
            if *slot == u32::MAX || *other_slot == u32::MAX {
                continue;
            }
            assert_eq!(slot == other_slot, row == other_row);
            matched += usize::from(slot == other_slot);
        }
    }
    assert!(matched > 5, "{matched} rows");
}

/// Theorem 1 of the paper counts the rows at a distance d: integer points on a sphere in n
/// dimensions. Their number grows as (d²)^(n/2 − 1), not as dⁿ.
#[test]
fn points_at_a_distance_grow_slower_than_the_paper_says() {
    const MOST: usize = 4000;
    // counts[m]: the points with d² = m.
    let mut counts = vec![0u64; MOST];
    counts[0] = 1;
    for n in 1..=6 {
        let mut next = vec![0u64; MOST];
        for x in 0..MOST.isqrt() + 1 {
            for m in x * x..MOST {
                next[m] += counts[m - x * x] * if x == 0 { 1 } else { 2 };
            }
        }
        counts = next;
        if n < 2 {
            continue;
        }
        let mean = |from: usize| counts[from..2 * from].iter().sum::<u64>() as f64 / from as f64;
        // From d² about 750 to four times that: d doubles.
        let exponent = (mean(2000) / mean(500)).log2() / 2.0;
        let due = f64::from(n) / 2.0 - 1.0;
        assert!((exponent - due).abs() < 0.02, "{n} dimensions: {exponent}");
        // The paper's exponent of d² would be n/2.
        assert!(exponent < f64::from(n) / 2.0 - 0.9);
    }
}
