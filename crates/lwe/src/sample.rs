//! The samplers. All of them run in constant time, but for the number of candidates that a
//! [`Gaussian`] rejects: it does not depend on what is accepted.
//!
//! `docs/spec/lwe.md`, *Samplers*, defines every bit.

use undertone_kdf::Seed;
use undertone_kernel::mask::{Op, Stream, Suite};
use undertone_kernel::negacyclic::{Eight, LANES};
use undertone_kernel::{Cpu, Wiped, cdt};

use crate::params::Params;
use crate::table::{MAX_STEP, Wide};

/// `⌊2⁶⁴·ln 2⌋`.
const LN_2: u64 = 12_786_308_645_202_655_659;

/// `⌊2⁶³/k!⌋`.
const INVERSE_FACTORIALS: [u64; 21] = {
    let mut out = [0; 21];
    let mut k = 0;
    let mut factorial: u128 = 1;
    while k < 21 {
        if k > 0 {
            factorial *= k as u128;
        }
        out[k] = ((1u128 << 63) / factorial) as u64;
        k += 1;
    }
    out
};

/// Candidates of a block.
const BLOCK: usize = 64;

/// Words of a block: two for the half Gaussian of each candidate, then three for the rest.
const BLOCK_WORDS: usize = 5 * BLOCK;

/// The key stream of a seed, as words.
pub(crate) struct Words {
    stream: Stream,
    at: usize,
}

impl Words {
    pub(crate) fn new(suite: Suite, seed: &Seed) -> Self {
        Self {
            stream: Stream::new(suite, seed.expose()),
            at: 0,
        }
    }

    /// Moves to word `at`.
    pub(crate) fn seek(&mut self, at: usize) {
        self.at = at;
    }

    /// Overwrites `words` with the next words of the stream.
    pub(crate) fn fill(&mut self, words: &mut [u64]) {
        words.fill(0);
        self.stream.apply(self.at, Op::Add, words);
        self.at += words.len();
    }
}

/// The bytes of words in the order of the stream.
fn bytes(words: &[u64], out: &mut [u8]) {
    for (word, out) in words.iter().zip(out.as_chunks_mut::<8>().0) {
        *out = word.to_le_bytes();
    }
}

/// e^−x·2⁶³ where x = `fraction`·ln 2/2⁶⁴. In constant time, short or long by less than 8.
fn exp2(fraction: u64) -> u64 {
    let high = |a: u64, b: u64| ((u128::from(a) * u128::from(b)) >> 64) as u64;
    let x = high(fraction, LN_2);
    let mut factors = INVERSE_FACTORIALS.iter().rev();
    let last = factors.next().copied().unwrap_or(0);
    factors.fold(last, |sum, factor| factor - high(x, sum))
}

/// A source of numbers from `D_{Z, σ, −ρ/t}`.
pub(crate) struct Gaussian<'a> {
    wide: &'a Wide,
    t: u64,
    words: Words,
}

impl<'a> Gaussian<'a> {
    pub(crate) fn new(wide: &'a Wide, t: u64, words: Words) -> Self {
        Self { wide, t, words }
    }

    /// Overwrites `numbers`, each ρ, with g from `D_{Z, σ, −ρ/t}` in two's complement. Then
    /// t·g + ρ is a Gaussian of deviation tσ given its residue ρ modulo t.
    pub(crate) fn replace(&mut self, cpu: Cpu, numbers: &mut [u64]) {
        let Wide {
            table,
            log_k,
            factor,
            shift,
        } = self.wide;
        let mut words = Wiped::from(vec![0; BLOCK_WORDS]);
        let mut randoms = Wiped::from(vec![0; 16 * BLOCK]);
        let mut steps = Wiped::from(vec![0; BLOCK]);
        let mut at = 0;
        while at < numbers.len() {
            self.words.fill(&mut words);
            bytes(&words[..2 * BLOCK], &mut randoms);
            cdt::sample(cpu, table, &[0], &randoms, &mut steps);
            for (step, rest) in steps.iter().zip(words[2 * BLOCK..].as_chunks::<3>().0) {
                let Some(number) = numbers.get_mut(at) else {
                    break;
                };
                let [z, first, second] = *rest;
                // All ones for a negative number.
                let sign = (z as i64 >> 63) as u64;
                let z = z & ((1 << log_k) - 1);
                // |t·g + ρ| = K·t·y + z·t + (ρ, or t − ρ).
                let rho = *number;
                let rest =
                    z * self.t + ((rho ^ sign).wrapping_sub(sign)).wrapping_add(self.t & sign);
                let whole = (u64::from(*step) << log_k) * self.t;
                let square = u128::from(rest) * u128::from(rest + 2 * whole);
                // x = square·log₂(e)/(2·(tσ)²), 64 bits after the point.
                let low = u128::from(square as u64) * u128::from(*factor);
                let high = (square >> 64) * u128::from(*factor);
                let x = if *shift < 128 {
                    (high << (128 - shift)) + (low >> (shift - 64))
                } else {
                    (high + (low >> 64)) >> (shift - 128)
                };
                let power = ((x >> 64) as u64).min(63);
                let likely = first >> 1 < exp2(x as u64);
                let rare = second & ((1 << power) - 1) == 0;
                let accepted = u64::from(likely) & u64::from(rare);
                let sum = (z + (u64::from(*step) << log_k)) ^ sign;
                // −(z + K·y) − 1 for a negative number.
                *number = (sum & accepted.wrapping_neg()) | (rho & accepted.wrapping_sub(1));
                at += accepted as usize;
            }
        }
    }
}

/// Writes `w = x + t·w′` for the bits of a row, where w′ comes from `D_{Z, σ/t, −x/t}`, to lane
/// `lane` of `out`.
pub(crate) fn coset(
    cpu: Cpu,
    params: &Params,
    table: &cdt::Tables,
    row: &[u64],
    mut words: Words,
    lane: usize,
    out: &mut [Eight],
) {
    assert!(lane < LANES && out.len() == params.bits && row.len() * 64 >= params.bits);
    const STRIP: usize = 256;
    let mut strip = Wiped::from(vec![0; 2 * STRIP]);
    let mut randoms = Wiped::from(vec![0; 16 * STRIP]);
    let mut steps = Wiped::from(vec![0; STRIP]);
    for (out, row) in out.chunks_exact_mut(STRIP).zip(row.chunks(STRIP / 64)) {
        words.fill(&mut strip);
        bytes(&strip, &mut randoms);
        cdt::sample(cpu, table, row, &randoms, &mut steps);
        for (i, (out, step)) in out.iter_mut().zip(steps.iter()).enumerate() {
            let bit = (row[i / 64] >> (i % 64) & 1) as i64;
            let step = i64::from(*step) - MAX_STEP;
            out.0[lane] = (bit + params.t as i64 * step) as u64;
        }
    }
}

/// Overwrites `out` with numbers −1, 0 and 1 as bytes in two's complement: the difference of two
/// bits each.
pub(crate) fn ternary(words: &mut Words, out: &mut [u8]) {
    let mut random = Wiped::from(vec![0; out.len().div_ceil(32)]);
    words.fill(&mut random);
    for (at, out) in out.iter_mut().enumerate() {
        let two = random[at / 32] >> (2 * (at % 32));
        *out = ((two & 1) as u8).wrapping_sub((two >> 1 & 1) as u8);
    }
}

/// Overwrites `out` with numbers from −2 to 2 in two's complement: the difference of the ones among
/// two bits and among two others.
pub(crate) fn binomial(words: &mut Words, out: &mut [u64]) {
    let mut random = Wiped::from(vec![0; out.len().div_ceil(16)]);
    words.fill(&mut random);
    for (at, out) in out.iter_mut().enumerate() {
        let four = random[at / 16] >> (4 * (at % 16));
        *out = ((four & 1) + (four >> 1 & 1))
            .wrapping_sub(four >> 2 & 1)
            .wrapping_sub(four >> 3 & 1);
    }
}
