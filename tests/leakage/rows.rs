//! Rows of digits from distances, by a server and one client with more rows than there are
//! features. Codes are signs of projections that the client knows: what is unknown of a row is a
//! direction, of as many dimensions as it has features, however long its code is. All backends show
//! the same distances.

use std::f64::consts::PI;

use faer::linalg::solvers::{Llt, Solve};
use faer::{Mat, Side};
use undertone::kdf::Seed;
use undertone::kernel::{Cpu, Prg, hamming, normal};
use undertone::label::{Codes, Features, Rows};
use undertone_tests::dataset;

/// Rows to attack.
const HIDDEN: usize = 4;

/// The Cholesky factor of AAᵀ + `ridge`·I.
fn gram(rows: &Mat<f64>, ridge: f64) -> Llt<f64> {
    let ridge = Mat::<f64>::identity(rows.nrows(), rows.nrows()) * ridge;
    (rows * rows.transpose() + ridge).llt(Side::Lower).unwrap()
}

/// The point of the cube [−1, 1]ⁿ at which `rows` give `due` (Douglas, Rachford), from `start`.
fn in_the_cube(rows: &Mat<f64>, due: &Mat<f64>, start: &Mat<f64>) -> Mat<f64> {
    let factor = gram(rows, 1e-9);
    let hold = |x: &Mat<f64>| x + rows.transpose() * factor.solve(due - rows * x);
    let mut z = hold(start);
    for _ in 0..400 {
        let x = Mat::from_fn(z.nrows(), 1, |at, _| z[(at, 0)].clamp(-1.0, 1.0));
        z = &z + hold(&(&x + &x - &z)) - x;
    }
    z
}

/// A direction whose signs agree with more of the code, from `start`.
fn direction(projection: &Mat<f64>, signs: &Mat<f64>, start: &Mat<f64>) -> Mat<f64> {
    let mut x = start * (1.0 / start.norm_l2());
    for _ in 0..300 {
        let sums = projection * &x;
        let wrong = Mat::from_fn(signs.nrows(), 1, |at, _| {
            let sign = signs[(at, 0)];
            if sums[(at, 0)] * sign <= 0.0 {
                sign
            } else {
                0.0
            }
        });
        let push = projection.transpose() * wrong;
        let length = push.norm_l2();
        if length == 0.0 {
            break;
        }
        x += push * (0.02 / length);
        let length = x.norm_l2();
        x *= 1.0 / length;
    }
    x
}

/// How many of four codes of digits are found whole, from the distances to `known` rows.
fn codes_found(bits: usize, known: usize) -> usize {
    let data = dataset("digits").unwrap();
    let Rows::Features(all) = &data.rows else {
        panic!("features");
    };
    let dim = all.dim();
    let mut order: Vec<usize> = (0..all.rows()).collect();
    Prg::new(&[5; 32]).shuffle(&mut order);
    let rows = order[..known + HIDDEN].iter();
    let values = rows.flat_map(|row| &all.values()[row * dim..(row + 1) * dim]);
    let features = Features::new(dim, values.copied().collect()).unwrap();
    let seed = Seed::from_bytes([9; 32]);
    let codes = Codes::hash(&features, &seed, bits).into_bits();
    let (own, hidden) = (0..known, known..known + HIDDEN);
    let mut distances = vec![0; known * HIDDEN];
    hamming::distances(Cpu::detect(), &codes, hidden, &codes, own, &mut distances);
    // What the client knows: the projection, and its rows.
    let mut entries = vec![0.0; bits * dim];
    normal::fill(&mut Prg::new(seed.expose()), 0, &mut entries);
    let projection = Mat::from_fn(bits, dim, |bit, at| entries[bit * dim + at]);
    let rows = Mat::from_fn(known, dim, |row, at| {
        let row = &features.values()[row * dim..(row + 1) * dim];
        row[at] / row.iter().map(|value| value * value).sum::<f64>().sqrt()
    });
    let sign = |row: usize, bit: usize| if codes.get(row, bit) { 1.0 } else { -1.0 };
    let signs = Mat::from_fn(known, bits, sign);
    let mut whole = 0;
    for (place, distances) in distances.chunks_exact(known).enumerate() {
        let cosine = |at: usize| (PI * f64::from(distances[at]) / bits as f64).cos();
        let noise = (PI / 2.0).powi(2) / bits as f64;
        let weights = gram(&rows, noise * dim as f64);
        let weights = weights.solve(Mat::from_fn(known, 1, |at, _| cosine(at)));
        let mut guess = rows.transpose() * weights;
        let due = |at: usize| bits as f64 - 2.0 * f64::from(distances[at]);
        let mut is_found = false;
        for _ in 0..8 {
            let sums = &projection * &guess;
            // Bits far from their hyperplane are those of the guess. The others are unknown.
            let mut order: Vec<usize> = (0..bits).collect();
            order.sort_by(|a, b| sums[(*a, 0)].abs().total_cmp(&sums[(*b, 0)].abs()));
            let (free, fixed) = order.split_at(bits.min(3 * known / 2));
            let mut found = Mat::from_fn(bits, 1, |bit, _| sums[(bit, 0)].signum());
            let left = Mat::from_fn(known, 1, |row, _| {
                let of = |bit: &usize| signs[(row, *bit)] * found[(*bit, 0)];
                due(row) - fixed.iter().map(of).sum::<f64>()
            });
            let of_free = Mat::from_fn(known, free.len(), |row, at| signs[(row, free[at])]);
            let start = Mat::from_fn(free.len(), 1, |at, _| {
                (sums[(free[at], 0)] / guess.norm_l2()).clamp(-1.0, 1.0)
            });
            let soft = in_the_cube(&of_free, &left, &start);
            for (at, bit) in free.iter().enumerate() {
                found[(*bit, 0)] = soft[(at, 0)].signum();
            }
            // The client knows that it is right: all distances are those of this code.
            let products = &signs * &found;
            if (0..known).all(|row| (products[(row, 0)] - due(row)).abs() < 0.5) {
                let right = |bit: usize| found[(bit, 0)] == sign(known + place, bit);
                is_found = (0..bits).all(right);
                break;
            }
            let mut pull = found.clone();
            for (at, bit) in free.iter().enumerate() {
                pull[(*bit, 0)] = soft[(at, 0)].clamp(-1.0, 1.0);
            }
            let pull = projection.transpose() * pull;
            let start = &guess * (0.5 / guess.norm_l2()) + &pull * (0.5 / pull.norm_l2());
            guess = direction(&projection, &found, &start);
        }
        whole += usize::from(is_found);
    }
    whole
}

/// Digits have 64 features. The bound of L/4 rows for each client, which clients used to ask for,
/// does not prevent it: 128 rows are an eighth of 1024.
#[test]
fn more_rows_than_features_give_away_codes() {
    for (bits, known, due) in [(1024, 32, 0..=0), (1024, 128, 3..=4), (1024, 256, 4..=4)] {
        let found = codes_found(bits, known);
        println!("L = {bits}, {known} rows: {found} of {HIDDEN} codes");
        assert!(due.contains(&found), "L = {bits}, {known} rows: {found}");
    }
}
