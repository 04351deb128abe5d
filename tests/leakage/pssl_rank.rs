//! Pairwise graphs: how many scores of the others the sums of a client's slots determine, round
//! after round.

use undertone::pssl::Job;
use undertone_tests::pssl::World;

use crate::jacobian::rank;
use crate::pssl::{Graph, ends, graph, within};

/// The graph of a run: inside each client, and between them.
struct Joint {
    within: Vec<Graph>,
    ends: Vec<Vec<Vec<(usize, usize, f64)>>>,
}

/// What client 0 sees in each round, the sums of its slots, and the last scores of all clients.
/// `labels` are those of one class, for each client and row.
fn propagate(job: &Job, joint: &Joint, labels: &[Vec<f64>], rounds: u32) -> (Vec<f64>, Vec<f64>) {
    let fewest = if job.allow_single { 1 } else { 2 };
    let (mut scores, mut seen) = (labels.to_vec(), Vec::new());
    for _ in 0..rounds {
        let of = |client: usize, row: usize| {
            let columns: Vec<Vec<f64>> = scores[client].iter().map(|score| vec![*score]).collect();
            let (own, degree) = within(&joint.within[client], &columns, row);
            let ends = &joint.ends[client][row];
            let slot = (ends.len() >= fewest).then(|| {
                let sum = ends
                    .iter()
                    .map(|(peer, other, weight)| weight * scores[*peer][*other]);
                let weights = ends.iter().map(|(_, _, weight)| weight);
                (sum.sum::<f64>(), weights.sum::<f64>())
            });
            let (outside, weight) = slot.unwrap_or_default();
            let share = if degree + weight > 0.0 {
                job.alpha * (own[0] + outside) / (degree + weight)
            } else {
                0.0
            };
            let score = share + (1.0 - job.alpha) * labels[client][row];
            (score, slot.map(|(sum, _)| sum))
        };
        let all: Vec<Vec<(f64, Option<f64>)>> = (0..labels.len())
            .map(|client| {
                (0..labels[client].len())
                    .map(|row| of(client, row))
                    .collect()
            })
            .collect();
        seen.extend(all[0].iter().filter_map(|(_, slot)| *slot));
        scores = all
            .iter()
            .map(|rows| rows.iter().map(|(score, _)| *score).collect())
            .collect();
    }
    (seen, scores.concat())
}

/// The tables promise nothing about labels and scores, and rightly: one round determines a number
/// for each slot, and each further round determines more, until all rows are known that are
/// connected with the client at all. Rows without a way to the client stay unknown.
#[test]
fn slots_of_many_rounds_determine_the_scores_of_connected_rows() {
    const ROUNDS: u32 = 6;
    let world = World::new(3, |job| {
        job.rounds = ROUNDS;
        job.local_start = false;
        job.asked = 3;
    });
    let job = &world.jobs.0;
    let clear = world.clear(&world.all());
    let joint = Joint {
        within: world.clients.iter().map(|data| graph(job, data)).collect(),
        ends: (0..3)
            .map(|of| ends(&clear, of, world.clients[of].len()))
            .collect(),
    };
    let of_class = |class: u16| -> Vec<Vec<f64>> {
        let labels = world.clients.iter().map(|data| data.labels());
        let is = |label: &Option<u16>| f64::from(u8::from(*label == Some(class)));
        labels
            .map(|labels| labels.iter().map(is).collect())
            .collect()
    };
    // The function whose rank is taken is that of the run.
    for class in 0..3 {
        let (_, found) = propagate(job, &joint, &of_class(class), ROUNDS);
        let due = clear.scores.iter().flat_map(|scores| {
            let of = move |row: &[f64]| row[usize::from(class)];
            scores.chunks_exact(3).map(of)
        });
        for (found, due) in found.iter().zip(due) {
            assert!((found - due).abs() < 1e-6, "{found} {due}");
        }
    }
    let labels = of_class(0);
    let own = labels[0].clone();
    let others = labels[1..].concat();
    let ranks: Vec<usize> = (1..=ROUNDS)
        .map(|rounds| {
            let view = |others: &[f64]| {
                let (second, third) = others.split_at(labels[1].len());
                let all = [own.clone(), second.to_vec(), third.to_vec()];
                propagate(job, &joint, &all, rounds).0
            };
            rank(&view, &others, 1e-12)
        })
        .collect();
    let slots = joint.ends[0].iter().filter(|ends| ends.len() >= 2).count();
    println!("{slots} slots, {ranks:?} of {} scores", others.len());
    assert!(slots > 3 && ranks[0] <= slots, "{ranks:?}");
    assert!(ranks[1] > ranks[0] && ranks.is_sorted(), "{ranks:?}");
    assert!(ranks[5] > 2 * slots, "{ranks:?}");
}
