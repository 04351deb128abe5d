//! What distances to known rows tell of a row: why they are not harmless to a server that colludes with a client, and how
//! many rows are few.

use std::f64::consts::PI;

use undertone::kernel::{Cpu, Prg, hamming};
use undertone::mpc::kdf::Seed;
use undertone::xclp::{Codes, Features};

fn normal(prg: &mut Prg) -> f64 {
    let mut uniform = || (prg.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
    let radius = (-2.0 * (1.0 - uniform()).ln()).sqrt();
    radius * (2.0 * PI * uniform()).cos()
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(x, y)| x * y).sum()
}

/// The lower factor L of `a` = LLᵀ, rows of increasing length.
fn cholesky(mut a: Vec<Vec<f64>>) -> Vec<Vec<f64>> {
    for i in 0..a.len() {
        for j in 0..=i {
            let rest = a[i][j] - dot(&a[i][..j], &a[j][..j]);
            a[i][j] = if i == j { rest.sqrt() } else { rest / a[j][j] };
        }
        a[i].truncate(i + 1);
    }
    a
}

/// x of LLᵀx = b.
fn solve(factor: &[Vec<f64>], b: &[f64]) -> Vec<f64> {
    let mut x: Vec<f64> = Vec::new();
    for (row, value) in factor.iter().zip(b) {
        let next = (value - dot(&row[..x.len()], &x)) / row[x.len()];
        x.push(next);
    }
    for i in (0..x.len()).rev() {
        x[i] /= factor[i][i];
        let next = x[i];
        for (j, entry) in factor[i][..i].iter().enumerate() {
            x[j] -= entry * next;
        }
    }
    x
}

/// AAᵀ, with `ridge` on the diagonal.
fn gram(rows: &[Vec<f64>], ridge: f64) -> Vec<Vec<f64>> {
    let entry = |i: usize, j: usize| dot(&rows[i], &rows[j]) + if i == j { ridge } else { 0.0 };
    (0..rows.len())
        .map(|i| (0..rows.len()).map(|j| entry(i, j)).collect())
        .collect()
}

/// Σᵢ weights[i]·rows[i].
fn combine(rows: &[Vec<f64>], weights: &[f64]) -> Vec<f64> {
    let mut sum = vec![0.0; rows[0].len()];
    for (row, weight) in rows.iter().zip(weights) {
        for (to, entry) in sum.iter_mut().zip(row) {
            *to += weight * entry;
        }
    }
    sum
}

/// The cosine between a row of `dim` features and what distances of 4096 bits to `known` rows say it is: least squares, ridged by
/// what the noise of a distance is worth.
fn found(dim: usize, known: usize, prg: &mut Prg) -> f64 {
    const BITS: usize = 4096;
    let mut unit = || {
        let row: Vec<f64> = (0..dim).map(|_| normal(prg)).collect();
        let length = dot(&row, &row).sqrt();
        row.into_iter().map(|x| x / length).collect::<Vec<f64>>()
    };
    let (hidden, rows) = (unit(), (0..known).map(|_| unit()).collect::<Vec<_>>());
    let all = [rows.concat(), hidden.clone()].concat();
    let features = Features::new(dim, all).unwrap();
    let codes = Codes::hash(&features, &Seed::from_bytes([9; 32]), BITS).into_bits();
    let mut distances = vec![0; known];
    let (own, others) = (known..known + 1, 0..known);
    hamming::distances(Cpu::detect(), &codes, own, &codes, others, &mut distances);
    let cosines: Vec<f64> = distances
        .iter()
        .map(|distance| (PI * f64::from(*distance) / BITS as f64).cos())
        .collect();
    let noise = (PI / 2.0).powi(2) / BITS as f64;
    let factor = cholesky(gram(&rows, noise * dim as f64));
    let guess = combine(&rows, &solve(&factor, &cosines));
    dot(&guess, &hidden) / dot(&guess, &guess).sqrt()
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

/// The share of bits of a code of `bits` bits that distances to `known` codes say.
///
/// In signs sᵢ and t a distance is sᵢ·t = L − 2dᵢ: a point of the cube [−1, 1]ᴸ on which these hold is looked for (Douglas, Rachford).
fn bits_found(bits: usize, known: usize, prg: &mut Prg) -> f64 {
    let mut signs = || {
        let row = (0..bits).map(|_| if prg.next_u64() & 1 == 0 { 1.0 } else { -1.0 });
        row.collect::<Vec<f64>>()
    };
    let (hidden, rows) = (signs(), (0..known).map(|_| signs()).collect::<Vec<_>>());
    let products: Vec<f64> = rows.iter().map(|row| dot(row, &hidden)).collect();
    let factor = cholesky(gram(&rows, 0.0));
    // The nearest point at which the products hold.
    let hold = |x: &[f64]| {
        let missing: Vec<f64> = rows
            .iter()
            .zip(&products)
            .map(|(row, product)| product - dot(row, x))
            .collect();
        let step = combine(&rows, &solve(&factor, &missing));
        x.iter().zip(step).map(|(x, s)| x + s).collect::<Vec<f64>>()
    };
    let clip = |x: &[f64]| x.iter().map(|x| x.clamp(-1.0, 1.0)).collect::<Vec<f64>>();
    let mut z = hold(&vec![0.0; bits]);
    for _ in 0..500 {
        let x = clip(&z);
        let mirrored: Vec<f64> = x.iter().zip(&z).map(|(x, z)| 2.0 * x - z).collect();
        let y = hold(&mirrored);
        for ((z, y), x) in z.iter_mut().zip(y).zip(x) {
            *z += y - x;
        }
    }
    let right = z.iter().zip(&hidden).filter(|(z, h)| *z * *h > 0.0).count();
    right as f64 / bits as f64
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
