//! The bounds on norms that the noise of answers and openings is chosen by.

use rayon::prelude::*;
use undertone_kernel::negacyclic::Eight;
use undertone_kernel::{BitMatrix, Cpu, Prg};

use super::linear::norm;
use super::{
    KEY, SESSION, answer_rule, gaussians, norm_bound, opening_rule_of, random, rounding_bound,
    seed, wider, words,
};
use crate::params::{CLASSES, Params};
use crate::table::Samplers;
use crate::{Matrix, Ring, Scratch, sample};

/// Columns of numbers.
struct Columns {
    height: usize,
    numbers: Vec<f32>,
}

impl Columns {
    fn new(height: usize, columns: &[Vec<f32>]) -> Self {
        let numbers = columns.concat();
        Self { height, numbers }
    }

    fn count(&self) -> usize {
        self.numbers.len() / self.height
    }

    /// These columns above those of `other`, times a factor each.
    fn above(&self, factor: f64, other: &Self, other_factor: f64) -> Self {
        let parts = [(self, factor as f32), (other, other_factor as f32)];
        let columns = (0..self.count()).map(|at| {
            let part = |(part, factor): (&Self, f32)| {
                let column = &part.numbers[at * part.height..][..part.height];
                column.iter().map(|x| x * factor).collect::<Vec<f32>>()
            };
            parts.map(part).concat()
        });
        Self::new(self.height + other.height, &columns.collect::<Vec<_>>())
    }

    fn norm(&self) -> f64 {
        let height = self.height;
        let forward = |vector: &[f64]| -> Vec<f64> {
            let strip = 64;
            let sums = self
                .numbers
                .par_chunks(strip * height)
                .zip(vector.par_chunks(strip))
                .fold(
                    || vec![0f32; height],
                    |mut sum, (columns, factors)| {
                        for (column, factor) in columns.chunks(height).zip(factors) {
                            let factor = *factor as f32;
                            for (sum, number) in sum.iter_mut().zip(column) {
                                *sum += factor * number;
                            }
                        }
                        sum
                    },
                )
                .reduce(
                    || vec![0f32; height],
                    |a, b| a.iter().zip(b).map(|(a, b)| a + b).collect(),
                );
            sums.into_iter().map(f64::from).collect()
        };
        let backward = |vector: &[f64]| -> Vec<f64> {
            let vector: Vec<f32> = vector.iter().map(|x| *x as f32).collect();
            self.numbers
                .par_chunks(height)
                .map(|column| {
                    let mut sums = [0f32; 16];
                    for (some, vector) in column.chunks(16).zip(vector.chunks(16)) {
                        for ((sum, number), factor) in sums.iter_mut().zip(some).zip(vector) {
                            *sum += number * factor;
                        }
                    }
                    f64::from(sums.iter().sum::<f32>())
                })
                .collect()
        };
        norm(self.count(), 30, forward, backward)
    }
}

/// Codes, of which the first half is ones.
fn codes(params: &Params, count: usize) -> BitMatrix {
    let mut codes = random(count, params.bits, &mut Prg::new(&[70; 32]));
    for row in 0..count / 2 {
        (0..params.bits).for_each(|bit| codes.set(row, bit, true));
    }
    codes
}

fn padded(params: &Params, code: &[u64]) -> Vec<u64> {
    let mut padded = code.to_vec();
    padded.resize(params.length / 64, 0);
    padded
}

/// The errors less (2/t)·y of all keys, and the secrets.
fn keys(params: &Params, count: usize) -> [Columns; 2] {
    let codes = codes(params, count);
    let key = |row: usize| {
        let mut words = words(&seed(71), "key", &[row as u32]);
        let cpu = Cpu::detect();
        let mut secret = vec![0; params.n];
        sample::secret(cpu, params, &mut words, &mut secret);
        let code = padded(params, codes.row(row));
        let mut error = vec![0; params.length];
        sample::error(cpu, params, &code, &mut words, &mut error);
        let centre = 2.0 / params.t as f32;
        let number = |(at, e): (usize, u64)| {
            let bit = (code[at / 64] >> (at % 64) & 1) as f32;
            e as i64 as f32 - bit * centre
        };
        let error: Vec<f32> = error.into_iter().enumerate().map(number).collect();
        let secret: Vec<f32> = secret.into_iter().map(|s| f32::from(s as i8)).collect();
        (error, secret)
    };
    let (errors, secrets): (Vec<_>, Vec<_>) = (0..count).into_par_iter().map(key).unzip();
    [
        Columns::new(params.length, &errors),
        Columns::new(params.n, &secrets),
    ]
}

/// All w, η and δ.
fn rows(params: &'static Params, count: usize) -> [Columns; 3] {
    let ring = Ring::new(Cpu::detect(), SESSION, params);
    let codes = codes(params, count);
    let row = |row: usize| {
        let cpu = Cpu::detect();
        let stream = |purpose| words(&seed(72), purpose, &[row as u32]);
        let code = padded(params, codes.row(row));
        let mut lanes = vec![Eight::default(); params.length];
        sample::coset(cpu, params, &code, stream("row"), 0, &mut lanes);
        let mut products = vec![Eight::default(); params.n];
        ring.row(cpu, &mut Scratch::default(), &lanes, &mut products);
        let eta = gaussians(
            &Samplers::of(params).header,
            stream("header"),
            &vec![0; params.n],
        );
        let drop = params.q - params.h;
        let delta = products.iter().zip(&eta).map(|(product, eta)| {
            let whole = product.0[0].wrapping_add(*eta as u64);
            let up = whole.wrapping_add(1 << (drop - 1)) >> drop << drop;
            up.wrapping_sub(whole) as i64 as f32
        });
        let delta: Vec<f32> = delta.collect();
        let masked: Vec<f32> = lanes.iter().map(|eight| eight.0[0] as i64 as f32).collect();
        let eta: Vec<f32> = eta.into_iter().map(|eta| eta as f32).collect();
        [masked, eta, delta]
    };
    let all: Vec<[Vec<f32>; 3]> = (0..count).into_par_iter().map(row).collect();
    let part = |part: usize, height: usize| {
        let columns: Vec<Vec<f32>> = all.iter().map(|row| row[part].clone()).collect();
        Columns::new(height, &columns)
    };
    [part(0, params.length), part(1, params.n), part(2, params.n)]
}

/// The norm of `columns` of numbers of deviation `deviation` is between its edge and `most`.
fn is_below(name: &str, columns: &Columns, deviation: f64, most: f64) {
    // A large random matrix has about the sum of the square roots as its norm.
    let edge = (columns.height as f64).sqrt() + (columns.count() as f64).sqrt();
    let found = columns.norm();
    let typical = deviation * edge;
    println!("{name}: {found}, {typical}, {most}");
    assert!(
        found < most && found > 0.95 * typical,
        "{name}: {found}, {most}"
    );
}

/// Lemma 3 for errors and secrets, and the rule for σ_v.
fn norms_of_keys_are_below(params: &Params, count: usize) {
    let [errors, secrets] = keys(params, count);
    let bound = |height| KEY * wider(KEY) * norm_bound(height, count);
    let name = |what| format!("L = {}, {what}", params.bits);
    is_below(&name("errors"), &errors, KEY, bound(params.length));
    is_below(&name("secrets"), &secrets, KEY, bound(params.n));
    let [row, header] = [params.row_deviation, params.header_deviation].map(|d| d as f64);
    let hint = errors.above(row, &secrets, header).norm();
    let rule = answer_rule(params.length, params.n, row, header, count);
    println!("L = {}: {} of the noise", params.bits, hint / rule);
    assert!(hint < rule && hint > 0.5 * rule);
    assert!(rule <= params.answer_deviation as f64);
}

/// Lemma 3 for masked rows and noise, lemma 4 for roundings, and the rule for σ_k.
fn norms_of_rows_are_below(params: &'static Params, count: usize) {
    let [masked, eta, delta] = rows(params, count);
    let [row, header] = [params.row_deviation, params.header_deviation].map(|d| d as f64);
    let cut = params.q - params.h;
    let name = |what| format!("L = {}, {what}", params.bits);
    let bound = wider(row / params.t as f64) * row * norm_bound(params.length, count);
    is_below(&name("masked rows"), &masked, row, bound);
    let bound = wider(header) * header * norm_bound(params.n, count);
    is_below(&name("noise of headers"), &eta, header, bound);
    let bound = rounding_bound(params.n, cut, count);
    is_below(&name("roundings"), &delta, super::uniform(cut), bound);
    // (w, η + δ)
    let mut sum = eta;
    let pairs = sum.numbers.iter_mut().zip(&delta.numbers);
    pairs.for_each(|(eta, delta)| *eta += delta);
    let hint = masked.above(KEY, &sum, KEY).norm();
    let rule = opening_rule_of(params, count);
    println!("L = {}: {} of the noise", params.bits, hint / rule);
    assert!(hint < rule && hint > 0.4 * rule);
    assert!(rule <= params.opening_deviation as f64);
}

#[test]
fn norms_are_below_their_bounds() {
    for params in &CLASSES {
        norms_of_keys_are_below(params, 1 << 20 >> params.bits.ilog2());
        norms_of_rows_are_below(params, 1 << 20 >> params.bits.ilog2());
    }
}

#[test]
#[ignore = "as many keys as a masked row answers, and as many masked rows: 2^25 numbers"]
fn norms_are_below_their_bounds_at_length() {
    for params in &CLASSES {
        norms_of_keys_are_below(params, params.max_columns());
        norms_of_rows_are_below(params, params.max_columns());
    }
}
