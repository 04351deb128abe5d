//! The cut `client`: whether a client tells its neighbours apart, from means over them.

use super::plain::Clear;
use super::search::{SOLVED, Step, View};
use super::*;

/// A search of client 0 for its neighbours' means over the first clusters.
struct Search {
    clusters: usize,
    /// How many of 300 steps it looks at.
    steps: usize,
    /// Starts for each cluster.
    starts: usize,
    /// How far from the truth another start is at most.
    near: f64,
}

/// What it finds.
struct Found {
    /// How many clusters it solves, by the residual.
    solved: usize,
    /// How many it solves, and rightly, from the start near the truth.
    near: usize,
    /// R² of each neighbour's values, and of the mean as a guess.
    explained: Vec<f64>,
    by_mean: Vec<f64>,
}

fn searched(clients: &Clients, search: &Search) -> Found {
    let rows = search.clusters;
    let mut clear = Clear::new(clients);
    let groups = clear.network.clusters().rows.clone();
    let embeddings = clustered(&clients.inputs, &groups);
    let embeddings: Vec<Mat<f64>> = embeddings
        .iter()
        .map(|own| own.subrows(0, rows).to_owned())
        .collect();
    let matrices: Vec<Matrix> = embeddings.iter().map(matrix).collect();
    let fixed = Fixed::<u32>::for_range(64.0, embeddings.len()).unwrap();
    let mut steps = Vec::new();
    for step in 0..300 {
        if step % (300 / search.steps) == 0 {
            let gained = clear.gained(&matrices);
            let mean = matrix(&mean(&clear.graph, 0, &gained));
            let words = fixed.encode(mean.values()).unwrap();
            steps.push(Step {
                weights: clear.weights(),
                lines: clear.lines(),
                gained: of(mean.rows(), mean.columns(), &fixed.decode(&words)),
            });
        }
        clear.network.step();
    }
    let mean = mean(&clear.graph, 0, &embeddings);
    let view = View {
        graph: &clear.graph,
        me: 0,
        own: &embeddings[0],
        mean: &mean,
        steps: &steps,
    };
    let mut prg = Prg::new(&[9; 32]);
    let truth = side_by_side(&embeddings[1..].iter().collect::<Vec<_>>());
    let is_right = |row: usize, found: &[f64]| {
        let pairs = truth.row(row).iter().zip(found);
        pairs
            .into_iter()
            .all(|(due, found)| (due - found).abs() < 0.05)
    };
    let start = |row: usize, prg: &mut Prg| {
        let values = truth.row(row).iter();
        values
            .map(|value| value + search.near * (2.0 * prg.unit() - 1.0))
            .collect()
    };
    let near = (0..rows).filter(|row| {
        let (found, left) = view.descend(*row, start(*row, &mut prg));
        left < SOLVED && is_right(*row, &found)
    });
    let near = near.count();
    let found = (0..rows).map(|row| view.find(row, search.starts, &mut prg));
    let found: Vec<(Vec<f64>, f64)> = found.collect();
    let width = mean.ncols();
    let neighbours = clear.graph.neighbours(0).iter();
    // A residual tells that a search failed. Then the mean is the guess.
    let guess = |client: usize| {
        let first = (client - 1) * width;
        Mat::from_fn(rows, width, |row, at| {
            let (found, left) = &found[row];
            if *left < SOLVED {
                found[first + at]
            } else {
                mean[(row, at)]
            }
        })
    };
    Found {
        solved: found.iter().filter(|(_, left)| *left < SOLVED).count(),
        near,
        explained: neighbours
            .clone()
            .map(|client| explained(&embeddings[*client], &guess(*client)))
            .collect(),
        by_mean: neighbours
            .map(|client| explained(&embeddings[*client], &mean))
            .collect(),
    }
}

/// The cut `client`, two neighbours. A client knows all weights, and the means of its neighbours' H
/// and G. Of three clients each finds the means over clusters of both others, all of them exactly
/// (R² 1), from 16 of 300 steps. Of four on a circle it finds three of six clusters from 60 starts.
/// To take the mean of the two for each has R² 0.4 at most.
#[test]
fn a_client_tells_two_neighbours_apart_over_many_steps() {
    let search = Search {
        clusters: 12,
        steps: 16,
        starts: 200,
        near: 0.2,
    };
    let found = searched(&Clients::new(3, 9, 16), &search);
    assert!(
        found.solved >= 11 && found.near >= 10,
        "{} {}",
        found.solved,
        found.near
    );
    all_within("three clients", &found.explained, 0.95..1.1);
    all_within("the mean of three", &found.by_mean, 0.0..0.5);
    let search = Search {
        clusters: 6,
        steps: 30,
        starts: 60,
        near: 0.2,
    };
    let found = searched(&Clients::new(4, 9, 16), &search);
    assert!(
        found.solved >= 2 && found.near >= 2,
        "{} {}",
        found.solved,
        found.near
    );
    for (found, mean) in found.explained.iter().zip(&found.by_mean) {
        assert!(found - mean > 0.2 && *mean < 0.3, "{found} {mean}");
    }
}

/// Five clients with two neighbours each, and with four. From most starts close to the truth the
/// same search ends there: nothing else near it solves the equations of 30 steps. From the mean and
/// other starts it ends elsewhere, and R² stays that of the mean. That says something about this
/// search, and nothing about others.
#[test]
fn of_five_clients_the_steps_determine_embeddings_and_the_search_misses_them() {
    let search = Search {
        clusters: 8,
        steps: 30,
        starts: 3,
        near: 0.05,
    };
    for stride in [9, 4] {
        let found = searched(&Clients::new(5, stride, 16), &search);
        assert!(
            found.solved <= 1 && found.near >= 4,
            "{} {}",
            found.solved,
            found.near
        );
        all_within("found", &found.explained, -2.0..0.3);
    }
}
