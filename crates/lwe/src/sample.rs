//! The samplers. All of them run in constant time, but for the number of candidates that a
//! [`Gaussian`] rejects: it does not depend on what is accepted.
//!
//! `docs/spec/lwe.md`, *Samplers*, defines every bit.

use undertone_kdf::Seed;
use undertone_kernel::gaussian::{self, BLOCK};
use undertone_kernel::mask::{Op, Stream, Suite};
use undertone_kernel::negacyclic::{Eight, LANES};
use undertone_kernel::{Cpu, Wiped, cdt, ctgrind};

use crate::params::Params;
use crate::table::{MAX_STEP, Samplers, Wide};

/// Words of a block of candidates: two for the half Gaussian of each, then two for the rest.
const BLOCK_WORDS: usize = 4 * BLOCK;

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

    /// Adds the next words of the stream to `words`, modulo 2⁶⁴.
    pub(crate) fn add(&mut self, words: &mut [u64]) {
        self.stream.apply(self.at, Op::Add, words);
        self.at += words.len();
    }

    /// Overwrites `words` with the next words of the stream.
    pub(crate) fn fill(&mut self, words: &mut [u64]) {
        words.fill(0);
        self.add(words);
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
    words: Words,
}

/// A block of candidates. Each array is alone in its vector, which is wiped.
struct Candidates {
    words: Wiped<[u64; BLOCK_WORDS]>,
    rest: Wiped<[[u64; BLOCK]; 2]>,
    randoms: Wiped<[u8; 16 * BLOCK]>,
    steps: Wiped<[u8; BLOCK]>,
    numbers: Wiped<[u64; BLOCK]>,
}

impl Candidates {
    fn new() -> Self {
        Self {
            words: vec![[0; BLOCK_WORDS]].into(),
            rest: vec![[[0; BLOCK]; 2]].into(),
            randoms: vec![[0; 16 * BLOCK]].into(),
            steps: vec![[0; BLOCK]].into(),
            numbers: vec![[0; BLOCK]].into(),
        }
    }
}

impl<'a> Gaussian<'a> {
    pub(crate) fn new(wide: &'a Wide, words: Words) -> Self {
        Self { wide, words }
    }

    /// Overwrites `numbers`, each ρ, with g from `D_{Z, σ, −ρ/t}` in two's complement. Then
    /// t·g + ρ is a Gaussian of deviation tσ given its residue ρ modulo t.
    ///
    /// Each pass has a candidate for every number that has none accepted yet.
    pub(crate) fn replace(&mut self, cpu: Cpu, numbers: &mut [u64]) {
        let mut block = Candidates::new();
        let mut pending: Vec<u32> = Vec::new();
        // The first pass is for all numbers, in place.
        for (number, numbers) in numbers.chunks_mut(BLOCK).enumerate() {
            let of = &mut block.numbers[0];
            of.fill(0);
            of[..numbers.len()].copy_from_slice(numbers);
            let accepted = self.draw(cpu, &mut block);
            numbers.copy_from_slice(&block.numbers[0][..numbers.len()]);
            let first = (number * BLOCK) as u32;
            pending.extend(rejected(accepted, numbers.len()).map(|i| first + i));
        }
        while !pending.is_empty() {
            let mut next = Vec::new();
            for places in pending.chunks(BLOCK) {
                block.numbers[0].fill(0);
                for (to, place) in block.numbers[0].iter_mut().zip(places) {
                    *to = numbers[*place as usize];
                }
                let accepted = self.draw(cpu, &mut block);
                for (from, place) in block.numbers[0].iter().zip(places) {
                    numbers[*place as usize] = *from;
                }
                next.extend(rejected(accepted, places.len()).map(|i| places[i as usize]));
            }
            pending = next;
        }
    }

    /// Draws a candidate for each ρ of the block. Those that are accepted replace it. Returns which
    /// are, one bit for each.
    fn draw(&mut self, cpu: Cpu, block: &mut Candidates) -> u64 {
        let (words, rest) = (&mut block.words[0], &mut block.rest[0]);
        let (randoms, steps) = (&mut block.randoms[0], &mut block.steps[0]);
        self.words.fill(words);
        bytes(&words[..2 * BLOCK], randoms);
        for (rest, words) in rest.iter_mut().zip(words[2 * BLOCK..].chunks_exact(BLOCK)) {
            rest.copy_from_slice(words);
        }
        cdt::sample(cpu, &self.wide.table, &[0], randoms, steps);
        let numbers = &mut block.numbers[0];
        let accepted = [gaussian::accept(
            cpu,
            &self.wide.scale,
            steps,
            rest,
            numbers,
        )];
        // Which are accepted is no secret: it does not depend on the numbers that are.
        ctgrind::public(&accepted);
        // From the memory that was marked, not from a register.
        std::hint::black_box(&accepted)[0]
    }
}

/// The places among the first `count` whose bit is 0.
fn rejected(accepted: u64, count: usize) -> impl Iterator<Item = u32> {
    let mut left = !accepted & (u64::MAX >> (BLOCK - count));
    std::iter::from_fn(move || {
        let place = left.trailing_zeros();
        left &= left.wrapping_sub(1);
        (place < u64::BITS).then_some(place)
    })
}

/// Places that are sampled together.
const STRIP: usize = 256;

/// Draws `count` numbers from −64 to 64, of the second of `tables` where the bit of `row` is 1 and
/// of the first where it is 0. Hands them to `take`, strip by strip, with the place of the first.
fn small(
    cpu: Cpu,
    tables: &cdt::Tables,
    row: &[u64],
    count: usize,
    words: &mut Words,
    mut take: impl FnMut(usize, &[u8]),
) {
    assert!(row.len() * 64 >= count, "a bit for each number");
    let mut strip = Wiped::from(vec![0; 2 * STRIP]);
    let mut randoms = Wiped::from(vec![0; 16 * STRIP]);
    let mut steps = Wiped::from(vec![0; STRIP]);
    for (first, row) in (0..count).step_by(STRIP).zip(row.chunks(STRIP / 64)) {
        let some = STRIP.min(count - first);
        words.fill(&mut strip[..2 * some]);
        bytes(&strip[..2 * some], &mut randoms[..16 * some]);
        let steps = &mut steps[..some];
        cdt::sample(cpu, tables, row, &randoms[..16 * some], steps);
        take(first, steps);
    }
}

/// Writes `w = x + t·w′` for the bits of a row, where w′ comes from `D_{Z, σ/t, −x/t}`, to lane
/// `lane` of `out`.
pub(crate) fn coset(
    cpu: Cpu,
    params: &Params,
    row: &[u64],
    mut words: Words,
    lane: usize,
    out: &mut [Eight],
) {
    assert!(lane < LANES && out.len() == params.length);
    let table = &Samplers::of(params).coset;
    small(cpu, table, row, out.len(), &mut words, |first, steps| {
        for (at, step) in (first..).zip(steps) {
            let bit = (row[at / 64] >> (at % 64) & 1) as i64;
            let step = i64::from(*step) - MAX_STEP;
            out[at].0[lane] = (bit + params.t as i64 * step) as u64;
        }
    });
}

/// Overwrites `out` with a secret: bytes in two's complement.
pub(crate) fn secret(cpu: Cpu, params: &Params, words: &mut Words, out: &mut [u8]) {
    let (table, count) = (&Samplers::of(params).secret, out.len());
    let row = vec![0; count.div_ceil(64)];
    small(cpu, table, &row, count, words, |first, steps| {
        for (out, step) in out[first..].iter_mut().zip(steps) {
            *out = step.wrapping_sub(MAX_STEP as u8);
        }
    });
}

/// Overwrites `out` with the error of the key of a row: numbers of centre 2y/t, in two's
/// complement.
pub(crate) fn error(cpu: Cpu, params: &Params, row: &[u64], words: &mut Words, out: &mut [u64]) {
    let (table, count) = (&Samplers::of(params).error, out.len());
    small(cpu, table, row, count, words, |first, steps| {
        for (out, step) in out[first..].iter_mut().zip(steps) {
            *out = (i64::from(*step) - MAX_STEP) as u64;
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::params::CLASSES;
    use sha2::{Digest, Sha256};

    fn seed() -> Seed {
        Seed::from_bytes(std::array::from_fn(|byte| byte as u8))
    }

    /// What `draw` gives for every path of instructions.
    fn all(mut draw: impl FnMut(Cpu) -> Vec<u64>) -> Vec<u64> {
        let found = Cpu::all().map(&mut draw);
        found
            .reduce(|one, other| {
                assert_eq!(one, other);
                other
            })
            .unwrap_or_default()
    }

    fn wide(deviation: u64, t: u64) -> Vec<u64> {
        let wide = Wide::new(deviation, t);
        all(|cpu| {
            let mut numbers: Vec<u64> = (0..2000u64).map(|i| (i * i + 7 * i) % t).collect();
            let words = Words::new(Suite::ChaCha20, &seed());
            Gaussian::new(&wide, words).replace(cpu, &mut numbers);
            numbers
        })
    }

    fn are(numbers: &[u64], first: &[i64], due: &str) {
        let signed: Vec<i64> = numbers.iter().map(|number| *number as i64).collect();
        assert_eq!(signed[..first.len()], *first);
        let bytes = numbers.iter().flat_map(|number| number.to_le_bytes());
        let digest = Sha256::digest(bytes.collect::<Vec<u8>>());
        let found: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(found, due);
    }

    /// Computed by `vectors/checks`. In the first case the residue decides often: there the
    /// deviation is small against t. In the last one K is the largest.
    #[test]
    fn wide_gaussians_are_the_known_answers() {
        are(
            &wide(128, 513),
            &[-55, 75, -96, -63, -15, 77],
            "7b0056e2908649cc9f3266136d4b02d3884e70068088061d721f1c41e393de5d",
        );
        are(
            &wide(2048, 1),
            &[-567, 1035, -1888, -831, -719, 1677],
            "bdaa59adb7120927eeab0886a7e04f5cbea81978d54ed0eac58fed37eb9eb46b",
        );
        are(
            &wide(2_130_068, 513),
            &[-727_607, 1_708_043, -2_081_632, -153_407],
            "56b76fd19f2c789834da46fb1f23e80b5a5a094377a77b9c57a4a95cef52bae6",
        );
        are(
            &wide(96_499_842, 8193),
            &[-54_204_983, 98_177_035, -39_830_368, -14_833_471],
            "5ba70b7cf5939e0a2b08aeeffe0f7d88afeeafb07bc3b16ce0dd5bd9fdeff432",
        );
    }

    /// The secret, the error and the masked row of a code, computed by `vectors/checks`.
    #[test]
    fn small_numbers_are_the_known_answers() {
        for (params, [secrets, errors, masked]) in [
            (
                &CLASSES[0],
                [
                    "ff6fbe07b1e342ec54bb7d799f65c465b543c2086ef1a23618f1faf8b3c70767",
                    "ba3d191752db0782cdf7fe5a57bb53d422b6f794733612b2dc6e1caeaf66acf0",
                    "d51bc33ef5f12aed3eb32762b3a1917e24cbe04d0e44255b8b77a79878b14343",
                ],
            ),
            (
                &CLASSES[4],
                [
                    "7253b398a2f7c7b7ef6bfbd2e62a9ccc86355667c8b1b6b943137a204a46fa30",
                    "b18beff49fe502af49d752c4da0c107cf39acadc2fd6bbf7250673fd600fe6d5",
                    "ec202a5adb53a45da6364e59d7547e736142463e56fb98a48738b4458f5442f6",
                ],
            ),
        ] {
            let mut row = vec![0; params.length / 64];
            for i in 0..params.bits {
                row[i / 64] |= ((i * i + i / 3) as u64 & 1) << (i % 64);
            }
            // A key draws its secret first, and its error right after it.
            let words = || Words::new(Suite::ChaCha20, &seed());
            let secret = all(|cpu| {
                let mut bytes = vec![0; params.n];
                secret(cpu, params, &mut words(), &mut bytes);
                bytes.iter().map(|s| i64::from(*s as i8) as u64).collect()
            });
            are(&secret, &[-3, 1, -1, -8], secrets);
            let error = all(|cpu| {
                let (mut words, mut out) = (words(), vec![0; params.length]);
                words.seek(2 * params.n);
                error(cpu, params, &row, &mut words, &mut out);
                out
            });
            are(&error, &[], errors);
            let numbers = all(|cpu| {
                let mut out = vec![Eight::default(); params.length];
                let words = Words::new(Suite::Aes128Ctr, &seed());
                coset(cpu, params, &row, words, 5, &mut out);
                out.iter().map(|eight| eight.0[5]).collect()
            });
            are(&numbers, &[], masked);
        }
    }
}
