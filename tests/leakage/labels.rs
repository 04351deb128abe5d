//! Labels from columns and scores: what a client can solve for.
//!
//! The influence matrix is symmetric. As published, a client has the whole columns of its labelled
//! rows, hence the rows of the matrix that belong to them, and the scores of all its rows. For each of its
//! labelled rows r and each class that is an equation in everybody else's labels:
//! Σ_i S[r,i]·Y[i] = Z[r] − (its own part).

use undertone::hamming::Backend;
use undertone::kdf::Seed;
use undertone::kernel::Prg;
use undertone::party::frame::HEADER_LEN;
use undertone::party::{Network, PartyId};
use undertone::simulate::Simulation;
use undertone::xclp::{Features, Graph, Influence, Labelling, Params, Rows, Variant, phases};
use undertone_tests::dataset;

const CLASSES: usize = 10;
const ROWS: usize = 400;

/// A run of two clients with 200 rows of digits each, half of them labelled: what the first of them, the
/// attacker, was sent, and the truth.
struct Joint {
    /// The whole matrix, which only the server has.
    influence: Vec<Vec<f64>>,
    classes: Vec<usize>,
    /// Labelled rows of the attacker and of the victim.
    known: Vec<usize>,
    sought: Vec<usize>,
    /// Unlabelled rows of the attacker, and of both.
    open: Vec<usize>,
    unlabelled: Vec<usize>,
    /// The columns as they came, number after number.
    received: Vec<f64>,
    /// Rows of which the attacker has scores.
    scored: usize,
}

fn joint(seed: u8) -> Joint {
    let data = dataset("digits").unwrap();
    let Rows::Features(features) = &data.rows else {
        panic!("features");
    };
    let mut prg = Prg::new(&[seed; 32]);
    let mut rows: Vec<usize> = (0..data.labels.len()).collect();
    rows.sort_by_cached_key(|_| prg.next_u64());
    rows.truncate(ROWS);
    let params = Params {
        bits: 1024,
        variant: Variant::Paper,
        backend: Backend::Clear,
        min_clients: 2,
        ..Params::default()
    };
    let clients = rows.chunks(ROWS / 2).map(|part| {
        let label = |(at, row): (usize, &usize)| data.labels[*row].filter(|_| at % 2 == 0);
        let labels = part.iter().enumerate().map(label).collect();
        let labelling = Labelling::new(CLASSES, labels).unwrap();
        (Rows::Features(Features::select(features, part)), labelling)
    });
    let mut frames: Vec<Vec<u8>> = Vec::new();
    let network = Network::new().intercept(|_, to, frame| {
        if to == PartyId::client(0) && frame[4] == phases::INFLUENCE.id {
            frames.push(frame[HEADER_LEN..].to_vec());
        }
    });
    let simulation = Simulation {
        params,
        clients: clients.collect(),
        seed: Seed::from_bytes([seed; 32]),
    };
    let run = simulation.run_over(network).unwrap();
    let graph = Graph::new(&run.report.distances, params.bits, params.variant);
    let influence = Influence::new(graph, params.alpha, ROWS);
    let all: Vec<usize> = (0..ROWS).collect();
    let columns = influence.columns(&all);
    let part = |from: usize, to: usize, labelled: bool| -> Vec<usize> {
        (from..to)
            .filter(|row| (row % 2 == 0) == labelled)
            .collect()
    };
    // The plan, then the columns.
    let words = frames[1..].concat();
    let words = words.as_chunks::<8>().0.iter();
    Joint {
        influence: columns.chunks(ROWS).map(<[f64]>::to_vec).collect(),
        classes: rows
            .iter()
            .map(|row| data.labels[*row].unwrap().into())
            .collect(),
        known: part(0, ROWS / 2, true),
        sought: part(ROWS / 2, ROWS, true),
        open: part(0, ROWS / 2, false),
        unlabelled: part(0, ROWS, false),
        received: words.map(|word| f64::from_le_bytes(*word)).collect(),
        scored: run.clients[0].as_ref().unwrap().scores.rows(),
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

/// With whole columns and all scores, as published, nearly all labels of the other client come out. In a run a client
/// is sent the entries of its columns that belong to unlabelled rows, and scores of unlabelled rows: no
/// number it has belongs to one of the other's labelled rows. The stand-ins tried here are its own
/// labelled rows, one for one; guessing the largest class is no worse.
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

        let height = joint.unlabelled.len();
        assert_eq!(joint.received.len(), joint.known.len() * height);
        assert_eq!(joint.scored, joint.open.len());
        for (r, column) in joint.known.iter().zip(joint.received.chunks(height)) {
            for (u, received) in joint.unlabelled.iter().zip(column) {
                let due = joint.influence[*r][*u];
                assert!((received - due).abs() <= 1e-9 * due.abs(), "S[{r},{u}]");
            }
        }
        // Scores of its unlabelled rows u; S[u,r] of its own labelled rows in the place of S[u,i].
        let stand_in = |(at, _): (usize, &usize)| {
            joint
                .received
                .chunks(height)
                .map(|column| column[at])
                .collect()
        };
        let stand_in: Vec<Vec<f64>> = joint.open.iter().enumerate().map(stand_in).collect();
        ours += recovered(&joint, &joint.open, &stand_in) / f64::from(runs);
    }
    assert!(published >= 0.95, "{published}");
    println!("published {published}, ours {ours}");
    assert!(ours < 0.2, "{ours}: chance is 0.1");
}
