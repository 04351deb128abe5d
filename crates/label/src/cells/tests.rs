//! Whole runs with cells beside those that compare all rows.

use undertone_hamming::Backend;
use undertone_kdf::Seed;

use super::centres::tests::clouds;
use super::{Budget, Cells, ROUNDS, noise};
use crate::distances::Distances;
use crate::input::Labelling;
use crate::job::Job;
use crate::params::Params;
use crate::rows::Rows;
use crate::simulation::{Run, run};

const CLASSES: usize = 4;

/// Three clients, one row in eight labelled.
fn clients(rows: usize) -> Vec<(Rows, Labelling)> {
    let features = clouds(rows, 16, CLASSES, 7);
    (0..3)
        .map(|client| {
            let own: Vec<usize> = (client..rows).step_by(3).collect();
            let label = |row: &usize| {
                (row / 3)
                    .is_multiple_of(8)
                    .then_some((row % CLASSES) as u16)
            };
            let labels = own.iter().map(label).collect();
            let rows = Rows::Features(features.select(&own));
            (rows, Labelling::new(CLASSES, labels).unwrap())
        })
        .collect()
}

fn job(backend: Backend, cells: usize) -> Job {
    Job {
        params: Params {
            backend,
            bits: 512,
            ..Params::default()
        },
        cells,
        probes: 3,
        ..Job::default()
    }
}

fn ran(job: Job, rows: usize) -> Run {
    let seed = Seed::from_bytes([3; 32]);
    run(job, clients(rows), None, seed, |_| ()).unwrap()
}

/// The neighbours that both have, as a share of those of `all`.
fn recall(some: &Distances, all: &Distances) -> f64 {
    let (mut both, mut due) = (0, 0);
    for row in 0..all.rows() {
        let found: Vec<_> = some.nearest(row).collect();
        due += all.nearest(row).count();
        both += all.nearest(row).filter(|near| found.contains(near)).count();
    }
    both as f64 / due as f64
}

#[test]
fn cells_find_the_nearest_rows_and_the_labels() {
    let rows = 3000;
    let exact = ran(job(Backend::Psm, 0), rows);
    for backend in [Backend::Psm, Backend::Sketch, Backend::Clear] {
        let coarse = ran(job(backend, 12), rows);
        let (some, all) = (&coarse.report.distances, &exact.report.distances);
        let recall = recall(some, all);
        assert!(recall > 0.95, "{backend}: {recall}");
        for row in 0..rows {
            let mut found: Vec<usize> = some.nearest(row).map(|(_, id)| id).collect();
            found.sort_unstable();
            assert!(found.is_sorted_by(|a, b| a < b) && !found.contains(&row));
        }
        let labels = |run: &Run| -> Vec<_> {
            let clients = run.clients.iter();
            clients
                .flat_map(|client| client.labels.classes().to_vec())
                .collect()
        };
        let (ours, theirs) = (labels(&coarse), labels(&exact));
        let same = ours.iter().zip(&theirs).filter(|(a, b)| a == b).count();
        assert!(same * 1000 >= 995 * rows, "{backend}: {same} of {rows}");
    }
}

fn cells(cells: usize, epsilon: f64) -> Cells {
    Cells {
        cells,
        probes: 4,
        epsilon,
    }
}

#[test]
fn numbers_out_of_range_are_named() {
    for (wrong, name) in [
        (cells(1, 4.0), "cells"),
        (cells(1 << 17, 4.0), "cells"),
        (cells(3, 4.0), "probes"),
        (cells(9, 0.0), "cells_epsilon"),
        (cells(9, f64::NAN), "cells_epsilon"),
    ] {
        assert!(wrong.check().unwrap_err().to_string().contains(name));
    }
    assert_eq!(cells(9, 4.0).check(), Ok(()));
}

/// The loss of all sums and sizes together is at most ρ of ε and δ.
#[test]
fn noise_is_enough() {
    for (clients, rows, epsilon) in [(3, 9000, 4.0), (5, 100_000, 4.0), (40, 1 << 24, 1.0)] {
        let cells = cells(20, epsilon);
        let budget = Budget::new(&cells, clients, rows, 16).unwrap();
        let delta = 0.1 / rows as f64;
        let honest = (clients - 1 - clients / 10) as f64;
        let own = budget.sum_sigma as f64 / f64::from(1 << 16);
        let sums = f64::from(ROUNDS + 1) * 4.0 / (2.0 * own * own * honest);
        let sizes = 8.0 / (2.0 * (budget.size_sigma as f64).powi(2));
        assert!(sums + sizes <= noise::rho(epsilon, 0.9 * delta));
        // The chance that the noise of one of the cells of a row is cut off.
        let far = budget.more as f64 / budget.size_sigma as f64;
        let cut = 8.0 * 2.0 * (-far * far / 2.0).exp();
        assert!(cut * (1.0 + epsilon.exp()) <= 0.1 * delta * 1.000_001);
    }
}

#[test]
fn small_cells_are_refused() {
    let refused = |cells, clients, rows, dim| {
        let budget = Budget::new(&cells, clients, rows, dim);
        budget.unwrap_err().to_string()
    };
    let few = refused(cells(60, 4.0), 3, 1797, 64);
    assert!(few.contains("at most 8 cells"), "{few}");
    let drowned = refused(cells(50, 0.1), 3, 10_000, 64);
    assert!(drowned.contains("larger cells_epsilon"), "{drowned}");
}
