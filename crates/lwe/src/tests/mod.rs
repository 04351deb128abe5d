//! Tests of distributions, of the argument in `docs/spec/lwe.md` (*Security*), and of attacks.
//!
//! All of them draw from fixed seeds, with the samplers of the crate.

mod attack;
mod columns;
mod decode;
mod hint;
mod linear;
mod noise;
mod norms;
mod smoothing;
mod statistics;
mod tables;

use undertone_kdf::Seed;
use undertone_kernel::cdt::Tables;
use undertone_kernel::mask::Suite;
use undertone_kernel::negacyclic::Eight;
use undertone_kernel::{BitMatrix, Cpu, Prg};
use undertone_party::SessionId;

use crate::params::Params;
use crate::sample::{self, Gaussian, Words};
use crate::table::{Wide, coset_thresholds};

const SESSION: SessionId = SessionId([9; 32]);
const SUITE: Suite = Suite::Aes128Ctr;

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

/// κ: a Gaussian of deviation κ smooths ℤ^L up to 2⁻⁶⁴.
fn kappa(l: usize) -> f64 {
    let pi = std::f64::consts::PI;
    ((2.0 * l as f64 * (1.0 + 2f64.powi(64))).ln() / (2.0 * pi * pi)).sqrt()
}

/// The bound on the norm of `E`, without the part of codes, for `columns` columns.
fn error_norm(l: usize, columns: usize) -> f64 {
    (l as f64).sqrt() + (columns as f64).sqrt() + 10.0
}

/// The bound on the norm of `(2/t)·Y`.
fn code_norm(l: usize, t: u64, columns: usize) -> f64 {
    2.0 / t as f64 * ((l * columns) as f64).sqrt()
}

/// The bound on the norm of `S`.
fn secret_norm(n: usize, columns: usize) -> f64 {
    0.5f64.sqrt() * ((n as f64).sqrt() + (columns as f64).sqrt() + 10.0)
}

/// A setting too small to be safe, whose deviations follow the rules of the classes.
#[derive(Debug, Clone, Copy)]
struct Small {
    l: usize,
    t: u64,
    n: usize,
    row_deviation: u64,
    header_deviation: u64,
    answer_deviation: f64,
}

impl Small {
    /// Noise of answers for `columns` columns.
    fn new(l: usize, t: u64, n: usize, header_deviation: u64, columns: usize) -> Self {
        let row_deviation = (8f64.sqrt() * kappa(l) * t as f64).ceil() as u64;
        let keys = row_deviation as f64 * (error_norm(l, columns) + code_norm(l, t, columns));
        let secrets = header_deviation as f64 * secret_norm(n, columns);
        Self {
            l,
            t,
            n,
            row_deviation,
            header_deviation,
            answer_deviation: keys.hypot(secrets),
        }
    }
}

/// Source of masked rows outside the classes.
struct Rows {
    /// Only `bits`, `t` and the deviation matter.
    params: Params,
    table: Tables,
    /// The residue modulo t of a bit 1. It is 1 in the protocol.
    one: i64,
}

impl Rows {
    fn new(small: &Small, one: u8) -> Self {
        let params = Params {
            bits: small.l.next_multiple_of(256),
            t: small.t,
            row_deviation: small.row_deviation,
            ..crate::CLASSES[0]
        };
        let [first, second] = [0, one].map(|x| coset_thresholds(&params, x));
        Self {
            params,
            table: Tables::new([&first, &second]),
            one: i64::from(one),
        }
    }

    /// Appends the masked row of `code`, of which only the first `l` numbers are used.
    fn draw(&self, code: &[u64], l: usize, words: Words, out: &mut Vec<f64>) {
        let mut padded = vec![0; self.params.bits / 64];
        padded[..code.len()].copy_from_slice(code);
        let mut lanes = vec![Eight::default(); self.params.bits];
        let cpu = Cpu::detect();
        sample::coset(
            cpu,
            &self.params,
            &self.table,
            &padded,
            words,
            0,
            &mut lanes,
        );
        out.extend(lanes[..l].iter().enumerate().map(|(at, lane)| {
            let bit = (padded[at / 64] >> (at % 64) & 1) as i64;
            (lane.0[0] as i64 + (self.one - 1) * bit) as f64
        }));
    }
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
