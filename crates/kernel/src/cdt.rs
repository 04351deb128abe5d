//! Sampling from tables of cumulative probabilities: how many thresholds of 128 bits are at most a
//! random number.
//!
//! Each sample chooses between two tables by a secret bit. Time and memory accesses depend on the
//! number of samples alone. The portable path compares with every threshold of both tables; the
//! NEON path and the AVX2 path compare with every threshold of the table of the choice. The AVX-512
//! path first compares with every eighth threshold; then it looks up the
//! eight thresholds that remain, in registers (`vpermi2q`), and compares with these.

use crate::cpu::Cpu;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
use crate::cpu::Level;

/// Thresholds of a table.
pub const THRESHOLDS: usize = 128;

/// Bytes of a random number.
pub const RANDOM: usize = 16;

/// Two tables of ascending thresholds.
#[derive(Clone)]
#[repr(C, align(64))]
pub struct Tables {
    /// High and low halves. Threshold `8a + b` of a table is at place `16·b + a`: what the AVX-512
    /// path looks up by `a` lies together.
    halves: [[[u64; THRESHOLDS]; 2]; 2],
    /// Thresholds in groups of this many are all that differ from 2¹²⁸ − 1.
    used: usize,
    /// Whether both tables are the same.
    same: bool,
}

impl std::fmt::Debug for Tables {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Tables({}, ..)", self.used)
    }
}

impl Tables {
    /// The tables for choices 0 and 1. A table with fewer than [`THRESHOLDS`] thresholds is filled
    /// up: no random number but 2¹²⁸ − 1 reaches the filling.
    ///
    /// # Panics
    /// When a table has more than [`THRESHOLDS`] thresholds, or they do not ascend.
    pub fn new(tables: [&[u128]; 2]) -> Self {
        let mut halves = [[[u64::MAX; THRESHOLDS]; 2]; 2];
        for (table, halves) in tables.iter().zip(&mut halves) {
            assert!(table.len() <= THRESHOLDS, "{} thresholds", table.len());
            assert!(table.is_sorted(), "thresholds ascend");
            for (at, threshold) in table.iter().enumerate() {
                let place = 16 * (at % 8) + at / 8;
                halves[0][place] = (threshold >> 64) as u64;
                halves[1][place] = *threshold as u64;
            }
        }
        let longest = tables.iter().map(|table| table.len()).max();
        Self {
            halves,
            used: longest.unwrap_or(0),
            same: tables[0] == tables[1],
        }
    }

    /// The number of thresholds of a table that are at most `random`.
    #[inline(always)]
    fn reached(&self, table: usize, random: u128) -> u64 {
        let [highs, lows] = &self.halves[table];
        let columns = highs.chunks_exact(16).zip(lows.chunks_exact(16));
        let mut count = 0;
        for (b, (highs, lows)) in columns.enumerate() {
            let used = (self.used + 7 - b) / 8;
            for (high, low) in highs[..used].iter().zip(&lows[..used]) {
                count += reaches(random, [*high, *low]);
            }
        }
        count
    }
}

/// For each of `randoms`, of 16 bytes little-endian, the number of thresholds that are at most as
/// large: of the second table where the choice is 1, else of the first. Choice `i` is bit `i % 64`
/// of `choices[i / 64]`.
///
/// # Panics
/// When `randoms` is not 16 bytes for each of `out`, or choices are missing.
pub fn sample(cpu: Cpu, tables: &Tables, choices: &[u64], randoms: &[u8], out: &mut [u8]) {
    assert_eq!(randoms.len(), RANDOM * out.len(), "random numbers");
    assert!(choices.len() >= out.len().div_ceil(64), "choices");
    let whole = match cpu.level() {
        // SAFETY: `Cpu` proves the features.
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 if tables.same => unsafe { avx512::<false>(tables, choices, randoms, out) },
        // SAFETY: `Cpu` proves the features.
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => unsafe { avx512::<true>(tables, choices, randoms, out) },
        // SAFETY: `Cpu` proves the features.
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 if tables.same => unsafe { avx2::<false>(tables, choices, randoms, out) },
        // SAFETY: `Cpu` proves the features.
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => unsafe { avx2::<true>(tables, choices, randoms, out) },
        // SAFETY: `Cpu` proves the features.
        #[cfg(target_arch = "aarch64")]
        Level::Neon if tables.same => unsafe { neon::<false>(tables, choices, randoms, out) },
        // SAFETY: `Cpu` proves the features.
        #[cfg(target_arch = "aarch64")]
        Level::Neon => unsafe { neon::<true>(tables, choices, randoms, out) },
        _ => 0,
    };
    let randoms = randoms.as_chunks::<RANDOM>().0;
    for (at, (random, out)) in randoms.iter().zip(out).enumerate().skip(whole) {
        let random = u128::from_le_bytes(*random);
        let choice = std::hint::black_box(0u64.wrapping_sub(choices[at / 64] >> (at % 64) & 1));
        let first = tables.reached(0, random);
        let second = if tables.same {
            first
        } else {
            tables.reached(1, random)
        };
        *out = (first ^ (choice & (first ^ second))) as u8;
    }
}

/// 1 if `random` is at least the threshold with these halves, from the borrow of their difference.
#[inline(always)]
fn reaches(random: u128, [high, low]: [u64; 2]) -> u64 {
    let threshold = u128::from(high) << 64 | u128::from(low);
    let (_, borrow) = random.overflowing_sub(threshold);
    u64::from(!borrow)
}

/// Samples that the NEON path takes together: for each threshold, so many registers of two.
#[cfg(target_arch = "aarch64")]
const TOGETHER: usize = 8;

/// Returns how many samples it has taken: all but those after the last eight. Without `CHOICE` it
/// looks at the first table only.
#[cfg(target_arch = "aarch64")]
#[target_feature(enable = "neon")]
unsafe fn neon<const CHOICE: bool>(
    tables: &Tables,
    choices: &[u64],
    randoms: &[u8],
    out: &mut [u8],
) -> usize {
    use std::arch::aarch64::*;
    let mut done = 0;
    for (eight, out) in randoms
        .as_chunks::<{ RANDOM * TOGETHER }>()
        .0
        .iter()
        .zip(out.as_chunks_mut::<TOGETHER>().0)
    {
        let bits = choices[done / 64] >> (done % 64);
        let pairs: [uint64x2x2_t; TOGETHER / 2] = std::array::from_fn(|pair| {
            // SAFETY: two random numbers have 32 bytes, and NEON loads need no alignment.
            unsafe { vld2q_u64(eight.as_ptr().add(32 * pair).cast()) }
        });
        let choice: [uint64x2_t; TOGETHER / 2] = std::array::from_fn(|pair| {
            let mask = |at: usize| 0u64.wrapping_sub(bits >> at & 1);
            let masks = [mask(2 * pair), mask(2 * pair + 1)];
            // SAFETY: two numbers.
            unsafe { vld1q_u64(masks.as_ptr()) }
        });
        let mut counts = [vdupq_n_u64(0); TOGETHER / 2];
        for at in 0..tables.used {
            let place = 16 * (at % 8) + at / 8;
            let of = |table: usize| {
                [0, 1].map(|half: usize| vdupq_n_u64(tables.halves[table][half][place]))
            };
            let (first, second) = (of(0), if CHOICE { of(1) } else { of(0) });
            for ((count, pair), choice) in counts.iter_mut().zip(&pairs).zip(choice) {
                let uint64x2x2_t(low, high) = *pair;
                let [threshold, rest] = if CHOICE {
                    [0, 1].map(|half: usize| vbslq_u64(choice, second[half], first[half]))
                } else {
                    first
                };
                let (above, equal) = (vcgtq_u64(high, threshold), vceqq_u64(high, threshold));
                let reached = vbslq_u64(equal, vcgeq_u64(low, rest), above);
                *count = vsubq_u64(*count, reached);
            }
        }
        for (count, out) in counts.into_iter().zip(out.as_chunks_mut::<2>().0) {
            *out = [
                vgetq_lane_u64::<0>(count) as u8,
                vgetq_lane_u64::<1>(count) as u8,
            ];
        }
        done += TOGETHER;
    }
    done
}

/// Returns how many samples it has taken: all but an incomplete last register. Without `CHOICE` it
/// looks at the first table only.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn avx2<const CHOICE: bool>(
    tables: &Tables,
    choices: &[u64],
    randoms: &[u8],
    out: &mut [u8],
) -> usize {
    use std::arch::x86_64::*;
    let sign = _mm256_set1_epi64x(i64::MIN);
    let mut done = 0;
    for (four, out) in randoms
        .as_chunks::<64>()
        .0
        .iter()
        .zip(out.as_chunks_mut::<4>().0)
    {
        // SAFETY: 64 bytes.
        let (a, b) = unsafe {
            (
                _mm256_loadu_si256(four.as_ptr().cast()),
                _mm256_loadu_si256(four.as_ptr().add(32).cast()),
            )
        };
        // Lanes 0, 2, 1, 3, in the order of signed numbers.
        let low = _mm256_xor_si256(_mm256_unpacklo_epi64(a, b), sign);
        let high = _mm256_xor_si256(_mm256_unpackhi_epi64(a, b), sign);
        let bits = (choices[done / 64] >> (done % 64)) as i64;
        let bit = |i: u32| -(bits >> i & 1);
        let choice = _mm256_set_epi64x(bit(3), bit(1), bit(2), bit(0));
        let mut counts = _mm256_setzero_si256();
        for at in 0..tables.used {
            let place = 16 * (at % 8) + at / 8;
            let half = |half: usize| {
                let of =
                    |table: usize| _mm256_set1_epi64x(tables.halves[table][half][place] as i64);
                let threshold = if CHOICE {
                    _mm256_blendv_epi8(of(0), of(1), choice)
                } else {
                    of(0)
                };
                _mm256_xor_si256(threshold, sign)
            };
            let (threshold, rest) = (half(0), half(1));
            let above = _mm256_cmpgt_epi64(high, threshold);
            let equal = _mm256_cmpeq_epi64(high, threshold);
            let reached = _mm256_andnot_si256(_mm256_cmpgt_epi64(rest, low), equal);
            counts = _mm256_sub_epi64(counts, _mm256_or_si256(above, reached));
        }
        let mut lanes = [0u64; 4];
        // SAFETY: four lanes have 32 bytes.
        unsafe { _mm256_storeu_si256(lanes.as_mut_ptr().cast(), counts) };
        *out = [lanes[0], lanes[2], lanes[1], lanes[3]].map(|count| count as u8);
        done += 4;
    }
    done
}

/// Returns how many samples it has taken: all but an incomplete last register. Without `CHOICE` it
/// looks at the first table only.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn avx512<const CHOICE: bool>(
    tables: &Tables,
    choices: &[u64],
    randoms: &[u8],
    out: &mut [u8],
) -> usize {
    use std::arch::x86_64::*;
    let evens = _mm512_setr_epi64(0, 2, 4, 6, 8, 10, 12, 14);
    let odds = _mm512_setr_epi64(1, 3, 5, 7, 9, 11, 13, 15);
    let mut done = 0;
    // Groups of eight thresholds.
    let groups = tables.used.div_ceil(8);
    for (eight, out) in randoms
        .as_chunks::<128>()
        .0
        .iter()
        .zip(out.as_chunks_mut::<8>().0)
    {
        // SAFETY: 128 bytes.
        let (a, b) = unsafe {
            (
                _mm512_loadu_si512(eight.as_ptr().cast()),
                _mm512_loadu_si512(eight.as_ptr().add(64).cast()),
            )
        };
        let low = _mm512_permutex2var_epi64(a, evens, b);
        let high = _mm512_permutex2var_epi64(a, odds, b);
        let choice = (choices[done / 64] >> (done % 64)) as u8;
        let reached = |threshold: __m512i, rest: __m512i| {
            let above = _mm512_cmpgt_epu64_mask(high, threshold);
            let equal = _mm512_cmpeq_epu64_mask(high, threshold);
            above | _mm512_mask_cmpge_epu64_mask(equal, low, rest)
        };
        let one = _mm512_set1_epi64(1);
        let mut group = _mm512_setzero_si512();
        for at in 0..groups.saturating_sub(1) {
            // The last threshold of each group but the last.
            let half = |half: usize| {
                let [first, second] = [0, 1]
                    .map(|table| _mm512_set1_epi64(tables.halves[table][half][16 * 7 + at] as i64));
                _mm512_mask_blend_epi64(choice, first, second)
            };
            let reached = reached(half(0), half(1));
            group = _mm512_mask_add_epi64(group, reached, group, one);
        }
        let mut counts = _mm512_slli_epi64::<3>(group);
        for at in 0..8 {
            let half = |half: usize| {
                let of = |table: usize| {
                    let from = &tables.halves[table][half][16 * at..16 * at + 16];
                    // SAFETY: 16 numbers.
                    let (a, b) = unsafe {
                        (
                            _mm512_load_si512(from.as_ptr().cast()),
                            _mm512_load_si512(from.as_ptr().add(8).cast()),
                        )
                    };
                    _mm512_permutex2var_epi64(a, group, b)
                };
                if CHOICE {
                    _mm512_mask_blend_epi64(choice, of(0), of(1))
                } else {
                    of(0)
                }
            };
            let reached = reached(half(0), half(1));
            counts = _mm512_mask_add_epi64(counts, reached, counts, one);
        }
        *out = _mm_cvtsi128_si64(_mm512_cvtepi64_epi8(counts)).to_le_bytes();
        done += 8;
    }
    done
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Prg;

    #[test]
    fn every_path_is_the_definition() {
        let mut prg = Prg::new(&[5; 32]);
        let mut wide = || u128::from(prg.next_u64()) << 64 | u128::from(prg.next_u64());
        for (first, second, samples, same) in [
            (128, 128, 1003, false),
            (27, 27, 64, true),
            (0, 1, 9, false),
            (65, 9, 100, false),
            (63, 63, 131, true),
        ] {
            let mut tables = [first, second].map(|count| {
                let mut table: Vec<u128> = (0..count).map(|_| wide()).collect();
                // Thresholds with equal halves, so that the low half decides.
                for at in 1..table.len() / 2 {
                    table[2 * at] = table[2 * at - 1] ^ 1;
                }
                table
            });
            tables.iter_mut().for_each(|table| table.sort_unstable());
            if same {
                tables[1] = tables[0].clone();
            }
            let choices: Vec<u64> = (0..samples / 64 + 1).map(|_| wide() as u64).collect();
            let randoms: Vec<u128> = (0..samples)
                .map(|at| match at % 4 {
                    0 => wide(),
                    // At, below and above a threshold.
                    kind => {
                        let table = &tables[at % 2];
                        let threshold = table.get(at % table.len().max(1)).copied();
                        let threshold = threshold.unwrap_or(5);
                        threshold.wrapping_add(kind as u128).wrapping_sub(2)
                    }
                })
                .collect();
            let due: Vec<u8> = randoms
                .iter()
                .enumerate()
                .map(|(at, random)| {
                    let table = &tables[(choices[at / 64] >> (at % 64) & 1) as usize];
                    table
                        .iter()
                        .filter(|threshold| *threshold <= random)
                        .count() as u8
                })
                .collect();
            let bytes: Vec<u8> = randoms
                .iter()
                .flat_map(|random| random.to_le_bytes())
                .collect();
            let tables = Tables::new([&tables[0], &tables[1]]);
            for cpu in Cpu::all() {
                let mut out = vec![0; samples];
                sample(cpu, &tables, &choices, &bytes, &mut out);
                assert_eq!(out, due, "{cpu:?}");
            }
        }
    }
}
