//! The samplers. All of them run in constant time, but for the number of candidates that a
//! [`Gaussian`] rejects: it does not depend on what is accepted.
//!
//! `docs/spec/lwe.md`, *Samplers*, defines every bit.

use undertone_kdf::Seed;
use undertone_kernel::mask::{Op, Stream, Suite};
use undertone_kernel::negacyclic::{Eight, LANES};
use undertone_kernel::{Cpu, Wiped, cdt, ctgrind, exp2};

use crate::params::Params;
use crate::table::{MAX_STEP, Wide};

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

/// A source of numbers from `D_{Z, σ, −ρ/t}`.
pub(crate) struct Gaussian<'a> {
    wide: &'a Wide,
    t: u64,
    words: Words,
}

/// A block of candidates. Each array is alone in its vector, which is wiped.
struct Candidates {
    words: Wiped<[u64; BLOCK_WORDS]>,
    randoms: Wiped<[u8; 16 * BLOCK]>,
    steps: Wiped<[u8; BLOCK]>,
    /// Where x is −log₂ of the probability that a candidate is accepted: its fraction, 2 to the
    /// power of minus the fraction, its integer part; and the numbers.
    columns: Wiped<[[u64; BLOCK]; 4]>,
}

impl Candidates {
    fn new() -> Self {
        Self {
            words: vec![[0; BLOCK_WORDS]].into(),
            randoms: vec![[0; 16 * BLOCK]].into(),
            steps: vec![[0; BLOCK]].into(),
            columns: vec![[[0; BLOCK]; 4]].into(),
        }
    }

    fn numbers(&mut self) -> &mut [u64; BLOCK] {
        &mut self.columns[0][3]
    }
}

impl<'a> Gaussian<'a> {
    pub(crate) fn new(wide: &'a Wide, t: u64, words: Words) -> Self {
        Self { wide, t, words }
    }

    /// Overwrites `numbers`, each ρ, with g from `D_{Z, σ, −ρ/t}` in two's complement. Then
    /// t·g + ρ is a Gaussian of deviation tσ given its residue ρ modulo t.
    ///
    /// Each pass has a candidate for every number that has none accepted yet.
    pub(crate) fn replace(&mut self, cpu: Cpu, numbers: &mut [u64]) {
        let mut block = Candidates::new();
        let mut pending: Vec<u32> = (0..numbers.len() as u32).collect();
        while !pending.is_empty() {
            let mut kept = 0;
            for first in (0..pending.len()).step_by(BLOCK) {
                let places = first..pending.len().min(first + BLOCK);
                for (number, place) in block.numbers().iter_mut().zip(&pending[places.clone()]) {
                    *number = numbers[*place as usize];
                }
                block.numbers()[places.len()..].fill(0);
                // A square is below (128·K·t)².
                let accepted = if (self.t << (self.wide.log_k + 7)) >> 32 == 0 {
                    self.draw::<true>(cpu, &mut block)
                } else {
                    self.draw::<false>(cpu, &mut block)
                };
                for (i, at) in places.enumerate() {
                    let place = pending[at];
                    numbers[place as usize] = block.numbers()[i];
                    pending[kept] = place;
                    kept += 1 - accepted[i] as usize;
                }
            }
            pending.truncate(kept);
        }
    }

    /// Draws a candidate for each ρ in `numbers`. Those that are accepted replace it. Returns 1 for
    /// each of them, else 0. `SMALL` states that squares are below 2⁶⁴.
    fn draw<const SMALL: bool>(&mut self, cpu: Cpu, block: &mut Candidates) -> [u64; BLOCK] {
        let words = &mut block.words[0];
        let (randoms, steps) = (&mut block.randoms[0], &mut block.steps[0]);
        let [fractions, powers, wholes, numbers] = &mut block.columns[0];
        self.words.fill(words);
        bytes(&words[..2 * BLOCK], randoms);
        cdt::sample(cpu, &self.wide.table, &[0], randoms, steps);
        let rest = words[2 * BLOCK..].as_chunks::<3>().0;
        let Wide { log_k, shift, .. } = *self.wide;
        let factor = u128::from(self.wide.factor);
        for (i, [z, ..]) in rest.iter().enumerate() {
            // All ones for a negative number.
            let sign = (*z as i64 >> 63) as u64;
            let z = z & ((1 << log_k) - 1);
            let high = u64::from(steps[i]) << log_k;
            // |t·g + ρ| = K·t·u + z·t + (ρ, or t − ρ).
            let rho = (numbers[i] ^ sign).wrapping_sub(sign);
            let rest = z * self.t + rho.wrapping_add(self.t & sign);
            // x = square·log₂(e)/(2·(tσ)²), 64 bits after the point.
            let sum = rest + 2 * high * self.t;
            let x = if SMALL {
                (u128::from(rest * sum) * factor) >> (shift - 64)
            } else {
                let square = u128::from(rest) * u128::from(sum);
                let below = u128::from(square as u64) * factor;
                let above = (square >> 64) * factor;
                if shift < 128 {
                    (above << (128 - shift)) + (below >> (shift - 64))
                } else {
                    (above + (below >> 64)) >> (shift - 128)
                }
            };
            fractions[i] = x as u64;
            wholes[i] = (x >> 64) as u64;
        }
        exp2::powers(cpu, fractions, powers);
        let mut accepted = [0; BLOCK];
        for (i, [z, first, second]) in rest.iter().enumerate() {
            let likely = *first < powers[i];
            let rare = second & ((1 << wholes[i].min(63)) - 1) == 0;
            accepted[i] = u64::from(likely) & u64::from(rare);
            let sign = (*z as i64 >> 63) as u64;
            let magnitude = (z & ((1 << log_k) - 1)) + (u64::from(steps[i]) << log_k);
            // −(z + K·u) − 1 for a negative number.
            let mask = accepted[i].wrapping_neg();
            numbers[i] = ((magnitude ^ sign) & mask) | (numbers[i] & !mask);
        }
        // What is accepted is no secret: it does not depend on the numbers that are.
        ctgrind::public(&accepted);
        accepted
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
