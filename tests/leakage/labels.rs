//! Labels from columns and scores: what a client can solve for.
//!
//! The influence matrix is symmetric. As published, a client has the whole columns of its labelled
//! rows, hence the rows of the matrix that belong to them, and the scores of all its rows. For each of its
//! labelled rows r and each class that is an equation in everybody else's labels:
//! Σ_i S[r,i]·Y[i] = Z[r] − (its own part).

use undertone::kernel::{Cpu, Prg};
use undertone::mpc::kdf::Seed;
use undertone::mpc::tiles::{Pairs, sweep};
use undertone::xclp::{Codes, Distances, Features, Graph, Influence, Params, Rows, Variant};
use undertone_tests::dataset;

const CLASSES: usize = 10;

/// Two clients' rows of digits, half of them labelled: the matrix, and who has which label.
struct Joint {
    influence: Vec<Vec<f64>>,
    classes: Vec<usize>,
    /// Labelled rows of the attacker and of the victim.
    known: Vec<usize>,
    sought: Vec<usize>,
    /// Unlabelled rows of the attacker.
    open: Vec<usize>,
}

fn joint(seed: u8) -> Joint {
    let data = dataset("digits").unwrap();
    let Rows::Features(features) = &data.rows else {
        panic!("features");
    };
    let mut prg = Prg::new(&[seed; 32]);
    let mut rows: Vec<usize> = (0..data.labels.len()).collect();
    rows.sort_by_cached_key(|_| prg.next_u64());
    rows.truncate(400);
    let features = Features::select(features, &rows);
    let params = Params {
        bits: 1024,
        variant: Variant::Paper,
        ..Params::default()
    };
    let codes = [Codes::hash(&features, &Seed::from_bytes([seed; 32]), params.bits).into_bits()];
    let mut near = Distances::new(&[400], params.neighbours);
    let pairs = Pairs::own(0, 400);
    sweep(Cpu::detect(), &codes, &pairs, 0..pairs.len(), &mut near);
    let graph = Graph::new(&near, params.bits, params.variant);
    let influence = Influence::new(graph, params.alpha, 400);
    let all: Vec<usize> = (0..400).collect();
    let columns = influence.columns(&all);
    // Rows 0 to 199 are the attacker's; of both clients every other row is labelled.
    let part = |from: usize, labelled: bool| -> Vec<usize> {
        (from..from + 200)
            .filter(|row| (row % 2 == 0) == labelled)
            .collect()
    };
    Joint {
        influence: columns.chunks(400).map(<[f64]>::to_vec).collect(),
        classes: rows
            .iter()
            .map(|row| data.labels[*row].unwrap().into())
            .collect(),
        known: part(0, true),
        sought: part(200, true),
        open: part(0, false),
    }
}

/// min ‖Ax − b‖, x ≥ 0, by coordinate descent on the normal equations.
fn nnls(a: &[Vec<f64>], b: &[f64]) -> Vec<f64> {
    let columns = a[0].len();
    let dot = |i: usize, j: usize| a.iter().map(|row| row[i] * row[j]).sum::<f64>();
    let normal: Vec<Vec<f64>> = (0..columns)
        .map(|i| (0..columns).map(|j| dot(i, j)).collect())
        .collect();
    let right: Vec<f64> = (0..columns)
        .map(|i| a.iter().zip(b).map(|(row, b)| row[i] * b).sum())
        .collect();
    let mut x = vec![0.0; columns];
    for _ in 0..12_000 {
        for i in 0..columns {
            let gradient: f64 =
                normal[i].iter().zip(&x).map(|(n, x)| n * x).sum::<f64>() - right[i];
            if normal[i][i] > 0.0 {
                x[i] = (x[i] - gradient / normal[i][i]).max(0.0);
            }
        }
    }
    x
}

/// The share of the victim's labels that come out of equations with these coefficients, one for each of
/// `rows`, whose scores the attacker has.
fn recovered(joint: &Joint, rows: &[usize], coefficients: &[Vec<f64>]) -> f64 {
    let mut solutions = Vec::new();
    for class in 0..CLASSES {
        let score = |row: &usize| {
            let theirs = joint.sought.iter().filter(|i| joint.classes[**i] == class);
            theirs.map(|i| joint.influence[*i][*row]).sum::<f64>()
        };
        let scores: Vec<f64> = rows.iter().map(score).collect();
        solutions.push(nnls(coefficients, &scores));
    }
    let right = joint.sought.iter().enumerate().filter(|(at, row)| {
        let best = (0..CLASSES).max_by(|a, b| solutions[*a][*at].total_cmp(&solutions[*b][*at]));
        best == Some(joint.classes[**row])
    });
    right.count() as f64 / joint.sought.len() as f64
}

/// With whole columns and all scores, as published, nearly all labels of the other client come out. With columns of
/// unlabelled rows and scores of unlabelled rows the coefficients are missing: the client sees what its own
/// labelled rows do to unlabelled rows, never what the other's labelled rows do. The best stand-ins it has
/// are its own labelled rows, one for one.
#[test]
fn labels_come_out_of_whole_columns_and_not_out_of_ours() {
    let (mut published, mut ours) = (0.0, 0.0);
    let runs = 2;
    for seed in 0..runs {
        let joint = joint(seed);
        // S[r,i] for its labelled rows r, from their columns; scores of r.
        let whole = |r: &usize| {
            joint
                .sought
                .iter()
                .map(|i| joint.influence[*r][*i])
                .collect()
        };
        let whole: Vec<Vec<f64>> = joint.known.iter().map(whole).collect();
        published += recovered(&joint, &joint.known, &whole) / f64::from(runs);
        // Scores of its unlabelled rows u; S[u,r] of its own labelled rows in the place of S[u,i].
        let stand_in = |u: &usize| {
            joint
                .known
                .iter()
                .map(|r| joint.influence[*r][*u])
                .collect()
        };
        let stand_in: Vec<Vec<f64>> = joint.open.iter().map(stand_in).collect();
        ours += recovered(&joint, &joint.open, &stand_in) / f64::from(runs);
    }
    eprintln!("published {published} ours {ours}");
    assert!(published >= 0.95, "{published}");
    assert!(ours < 0.35, "{ours}: chance is 0.1");
}
