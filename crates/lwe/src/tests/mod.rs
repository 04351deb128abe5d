//! Tests of distributions, of the argument in `docs/spec/lwe.md` (*Security*), and of attacks.
//!
//! All of them draw from fixed seeds, with the samplers of the crate.

mod attack;
mod averages;
mod columns;
mod decode;
mod hint;
mod linear;
mod noise;
mod norms;
mod pairs;
mod rewinds;
mod shape;
mod smoothing;
mod source;
mod statistics;
mod tables;

use undertone_kdf::Seed;
use undertone_kernel::cdt::{self, Tables};
use undertone_kernel::mask::Suite;
use undertone_kernel::{BitMatrix, Cpu, Prg};
use undertone_party::SessionId;

use crate::params::{KEY_QUARTERS, Params};
use crate::sample::{Gaussian, Words};
use crate::table::{MAX_STEP, Wide};

const SESSION: SessionId = SessionId([9; 32]);
const SUITE: Suite = Suite::Aes128Ctr;

/// σ_b
const KEY: f64 = KEY_QUARTERS as f64 / 4.0;

fn seed(byte: u8) -> Seed {
    Seed::from_bytes([byte; 32])
}

/// The stream of `seed`, `purpose` and `ids`.
fn words(seed: &Seed, purpose: &str, ids: &[u32]) -> Words {
    Words::new(SUITE, &seed.derive(SESSION, purpose, ids))
}

fn random(rows: usize, bits: usize, prg: &mut Prg) -> BitMatrix {
    let words = (0..rows * bits.div_ceil(64)).map(|_| prg.next_u64());
    BitMatrix::from_words(rows, bits, words.collect())
}

fn weight(row: &[u64]) -> u64 {
    row.iter().map(|word| u64::from(word.count_ones())).sum()
}

/// κ: a Gaussian of deviation κ smooths ℤ^m up to 2⁻⁶⁴.
fn kappa(m: usize) -> f64 {
    let pi = std::f64::consts::PI;
    ((2.0 * m as f64 * (1.0 + 2f64.powi(64))).ln() / (2.0 * pi * pi)).sqrt()
}

/// a: the bound on the norm of a matrix of independent numbers of deviation 1.
fn norm_bound(rows: usize, columns: usize) -> f64 {
    (rows as f64).sqrt() + (columns as f64).sqrt() + 10.0
}

/// f: what the bound is wider for a discrete Gaussian.
fn wider(deviation: f64) -> f64 {
    (1.0 + 1.44 / (deviation * deviation)).sqrt()
}

/// The rule for σ_v, for columns that are as many as `columns`.
fn answer_rule(l: usize, n: usize, row: f64, header: f64, columns: usize) -> f64 {
    let of_keys = (row * norm_bound(l, columns)).hypot(header * norm_bound(n, columns));
    KEY * wider(KEY) * of_keys
}

/// The bound on the norm of roundings `δ` of `cut` bits, for `rows` headers.
fn rounding_bound(n: usize, cut: u32, rows: usize) -> f64 {
    uniform(cut) * norm_bound(n, rows) + ((n * rows) as f64).sqrt() / 2.0
}

/// The deviation of a uniform number of `bits` bits.
fn uniform(bits: u32) -> f64 {
    2f64.powi(bits as i32) / 12f64.sqrt()
}

/// The rule for σ_k, for `rows` masked rows. `steps` is σ_w/t.
fn opening_rule(l: usize, n: usize, [row, steps, header]: [f64; 3], cut: u32, rows: usize) -> f64 {
    let of_rows = wider(steps) * row * norm_bound(l, rows);
    let of_headers = wider(header) * header * norm_bound(n, rows) + rounding_bound(n, cut, rows);
    KEY * of_rows.hypot(of_headers)
}

/// The rule for σ_k of a class, for `rows` masked rows.
fn opening_rule_of(params: &Params, rows: usize) -> f64 {
    let [row, header] = [params.row_deviation, params.header_deviation].map(|d| d as f64);
    let deviations = [row, row / params.t as f64, header];
    let cut = params.q - params.h;
    opening_rule(params.length, params.n, deviations, cut, rows)
}

/// A number `g` for each residue of `residues`.
fn gaussians(wide: &Wide, words: Words, residues: &[u64]) -> Vec<i64> {
    let mut numbers = residues.to_vec();
    Gaussian::new(wide, words).replace(Cpu::detect(), &mut numbers);
    numbers.into_iter().map(|number| number as i64).collect()
}

/// Uniform numbers below `t`.
fn residues(t: u64, count: usize, prg: &mut Prg) -> Vec<u64> {
    let mut one = || ((u128::from(prg.next_u64()) * u128::from(t)) >> 64) as u64;
    (0..count).map(|_| one()).collect()
}

/// Numbers from −64 to 64 by `tables` for the bits of `code`, filled up with zeros.
fn small_numbers(tables: &Tables, code: &[u64], count: usize, words: &mut Words) -> Vec<i64> {
    let mut random = vec![0; 2 * count];
    words.fill(&mut random);
    let bytes: Vec<u8> = random.iter().flat_map(|word| word.to_le_bytes()).collect();
    let mut padded = code.to_vec();
    padded.resize(count.div_ceil(64), 0);
    let mut steps = vec![0; count];
    cdt::sample(Cpu::detect(), tables, &padded, &bytes, &mut steps);
    let steps = steps.iter();
    steps.map(|step| i64::from(*step) - MAX_STEP).collect()
}
