//! What distances to known rows tell about a row. They are not harmless if the server colludes with
//! a client. The tests measure how many known rows are few enough.

use std::f64::consts::PI;

use faer::linalg::solvers::{Llt, Solve};
use faer::{Mat, Side};
use undertone::kdf::Seed;
use undertone::kernel::{Cpu, Prg, hamming};
use undertone::label::{Codes, Features};

fn normal(prg: &mut Prg) -> f64 {
    let mut uniform = || (prg.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
    let radius = (-2.0 * (1.0 - uniform()).ln()).sqrt();
    radius * (2.0 * PI * uniform()).cos()
}

/// The Cholesky factor of AAᵀ + `ridge`·I.
fn gram(rows: &Mat<f64>, ridge: f64) -> Llt<f64> {
    let ridge = Mat::<f64>::identity(rows.nrows(), rows.nrows()) * ridge;
    (rows * rows.transpose() + ridge).llt(Side::Lower).unwrap()
}

/// The cosine between a row of `dim` features and its estimate from distances of 4096 bits to
/// `known` rows. The estimate is ridge regression; the ridge is the variance of a distance's noise.
fn found(dim: usize, known: usize, prg: &mut Prg) -> f64 {
    const BITS: usize = 4096;
    // The last row is the hidden row.
    let mut all = Mat::from_fn(known + 1, dim, |_, _| normal(prg));
    for row in all.row_iter_mut() {
        let length = row.norm_l2();
        row.iter_mut().for_each(|entry| *entry /= length);
    }
    let values = all.row_iter().flat_map(|row| row.iter().copied());
    let features = Features::new(dim, values.collect()).unwrap();
    let codes = Codes::hash(&features, &Seed::from_bytes([9; 32]), BITS).into_bits();
    let mut distances = vec![0; known];
    let (own, others) = (known..known + 1, 0..known);
    hamming::distances(Cpu::detect(), &codes, own, &codes, others, &mut distances);
    let cosine = |at: usize| (PI * f64::from(distances[at]) / BITS as f64).cos();
    let noise = (PI / 2.0).powi(2) / BITS as f64;
    let rows = all.subrows(0, known).to_owned();
    let weights = gram(&rows, noise * dim as f64).solve(Mat::from_fn(known, 1, |at, _| cosine(at)));
    let guess = rows.transpose() * weights;
    (all.row(known) * guess.col(0)) / guess.norm_l2()
}

#[test]
fn known_rows_give_away_directions() {
    let mut prg = Prg::new(&[1; 32]);
    for (dim, at_least) in [(64, 0.98), (256, 0.9), (512, 0.7)] {
        let cosine = found(dim, 500, &mut prg);
        println!("{dim} features: {cosine:.3}");
        assert!(cosine > at_least, "{dim} features: {cosine}");
    }
}

/// The share of bits of a code of `bits` bits that can be found from distances to `known` codes.
///
/// With signs sᵢ and t in place of bits a distance gives sᵢ·t = L − 2dᵢ. The function searches for
/// a point of the cube `[−1, 1]ᴸ` that satisfies these equations (Douglas, Rachford).
fn bits_found(bits: usize, known: usize, prg: &mut Prg) -> f64 {
    let mut sign = |_: usize, _: usize| [1.0, -1.0][(prg.next_u64() & 1) as usize];
    let hidden = Mat::from_fn(bits, 1, &mut sign);
    let rows = Mat::from_fn(known, bits, &mut sign);
    let products = &rows * &hidden;
    let factor = gram(&rows, 0.0);
    // The nearest point that satisfies the equations.
    let hold = |x: &Mat<f64>| x + rows.transpose() * factor.solve(&products - &rows * x);
    let mut z = hold(&Mat::zeros(bits, 1));
    for _ in 0..500 {
        let x = Mat::from_fn(bits, 1, |at, _| z[(at, 0)].clamp(-1.0, 1.0));
        let y = hold(&(&x + &x - &z));
        z = z + y - x;
    }
    let right = (0..bits).filter(|at| z[(*at, 0)] * hidden[(*at, 0)] > 0.0);
    right.count() as f64 / bits as f64
}

#[test]
fn half_as_many_known_codes_as_bits_give_away_a_code() {
    let mut prg = Prg::new(&[2; 32]);
    for (known, range) in [
        (180, 1.0..=1.0),
        (140, 1.0..=1.0),
        (112, 0.7..=0.95),
        (64, 0.5..=0.8),
        (12, 0.5..=0.7),
    ] {
        let share = bits_found(256, known, &mut prg);
        println!("{known} known codes: {share:.3}");
        assert!(range.contains(&share), "{known} known codes: {share}");
    }
}
