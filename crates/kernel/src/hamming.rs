//! Hamming distances between rows of two bit matrices: XOR, popcount, add.
//!
//! The AVX-512 path holds eight running sums in eight registers of eight 64-bit lanes, one for each
//! of eight rows of `b`. At the end it folds them into one register of eight distances:
//!
//! ```text
//! s0 = a0 a1 .. a7   unpack + add   a a b b a a b b ..  shuffle 128 + add, twice
//! s1 = b0 b1 .. b7  ─────────────▶   (pairs of lanes)  ──────────────────────────▶ a b c d e f g h
//! ```
//!
//! The AVX2 path looks nibbles up with `vpshufb` (Muła, Kurz, Lemire 2018) and widens bytes with
//! `vpsadbw` before they can overflow.

use std::ops::Range;

use crate::bits::BitMatrix;
use crate::cpu::{Cpu, Level};

/// Longest row with distances that fit `u16`.
pub const MAX_COLUMNS: usize = u16::MAX as usize;

/// Writes the distances between rows `rows_a` of `a` and rows `rows_b` of `b`, row after row.
///
/// # Panics
/// When the matrices differ in columns or have more than [`MAX_COLUMNS`], when a range goes past
/// the last row, or when `out` does not hold `rows_a.len() · rows_b.len()` distances.
pub fn distances(
    cpu: Cpu,
    a: &BitMatrix,
    rows_a: Range<usize>,
    b: &BitMatrix,
    rows_b: Range<usize>,
    out: &mut [u16],
) {
    assert_eq!(a.columns(), b.columns(), "columns of the two matrices");
    assert!(a.columns() <= MAX_COLUMNS, "{} columns", a.columns());
    assert_eq!(out.len(), rows_a.len() * rows_b.len(), "distances");
    assert!(rows_a.end <= a.rows() && rows_b.end <= b.rows(), "rows");
    if out.is_empty() || a.columns() == 0 {
        return out.fill(0);
    }
    let stride = a.stride();
    for columns in cached(rows_b.clone(), stride) {
        let block = &b.words()[columns.start * stride..columns.end * stride];
        let columns = columns.start - rows_b.start..columns.end - rows_b.start;
        for (row, out) in rows_a.clone().zip(out.chunks_exact_mut(rows_b.len())) {
            one_to_many(cpu, a.row(row), block, &mut out[columns.clone()]);
        }
    }
}

/// Cuts `rows` of `stride` words into parts. A part stays in the first-level cache while it is
/// compared with one row after the other.
fn cached(rows: Range<usize>, stride: usize) -> impl Iterator<Item = Range<usize>> {
    const WORDS: usize = (16 << 10) / 8;
    let part = (WORDS / stride.max(1)).max(8).next_multiple_of(8);
    let end = rows.end;
    rows.step_by(part)
        .map(move |start| start..end.min(start + part))
}

/// The sum of all distances between rows of `a` and rows of `b`: the XORs and popcounts of
/// [`distances`] in the same order, and nothing else. It is the floor for the time of that
/// function.
///
/// # Panics
/// When the matrices differ in columns or have more than [`MAX_COLUMNS`].
pub fn total(cpu: Cpu, a: &BitMatrix, b: &BitMatrix) -> u64 {
    assert_eq!(a.columns(), b.columns(), "columns of the two matrices");
    assert!(a.columns() <= MAX_COLUMNS, "{} columns", a.columns());
    if a.columns() == 0 {
        return 0;
    }
    let stride = a.stride();
    let mut sum = 0;
    for part in cached(0..b.rows(), stride) {
        let block = &b.words()[part.start * stride..part.end * stride];
        for row in 0..a.rows() {
            sum += one_to_sum(cpu, a.row(row), block);
        }
    }
    sum
}

fn one_to_sum(cpu: Cpu, row: &[u64], block: &[u64]) -> u64 {
    match cpu.level() {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a `Cpu` of this level exists only where these instructions do.
        Level::Avx512 => unsafe { x86::total_avx512(row, block) },
        _ => {
            let mut out = vec![0; block.len() / row.len()];
            one_to_many(cpu, row, block, &mut out);
            out.iter().map(|h| u64::from(*h)).sum()
        }
    }
}

/// Distances from `row` to each of `out.len()` rows of `block`, which have the length of `row`.
fn one_to_many(cpu: Cpu, row: &[u64], block: &[u64], out: &mut [u16]) {
    assert_eq!(block.len(), row.len() * out.len(), "a block of whole rows");
    match cpu.level() {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a `Cpu` of this level exists only where these instructions do; the lengths hold.
        Level::Avx512 => unsafe { x86::avx512(row, block, out) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: as above.
        Level::Avx2 => unsafe { x86::avx2(row, block, out) },
        #[cfg(target_arch = "aarch64")]
        // SAFETY: as above.
        Level::Neon => unsafe { neon(row, block, out) },
        _ => portable(row, block, out),
    }
}

fn portable(row: &[u64], block: &[u64], out: &mut [u16]) {
    for (h, other) in out.iter_mut().zip(block.chunks_exact(row.len())) {
        let ones = row.iter().zip(other).map(|(x, y)| (x ^ y).count_ones());
        *h = ones.sum::<u32>() as u16;
    }
}

/// Four registers at a time. Their byte counts are added up, and widened to sums of 16 bits, which
/// hold the longest row.
///
/// # Safety
/// Needs NEON; `block` must hold `out.len()` rows of `row.len()` words.
#[cfg(target_arch = "aarch64")]
#[target_feature(enable = "neon")]
unsafe fn neon(row: &[u64], block: &[u64], out: &mut [u16]) {
    use std::arch::aarch64::*;

    for (h, other) in out.iter_mut().zip(block.chunks_exact(row.len())) {
        let (mut sum, mut rest) = (vdupq_n_u16(0), 0);
        let (eights, end) = row.as_chunks::<8>();
        let (others, other_end) = other.as_chunks::<8>();
        for (x, y) in eights.iter().zip(others) {
            // SAFETY: eight words are four registers.
            let [a, b, c, d] = unsafe {
                let x = vld1q_u8_x4(x.as_ptr().cast());
                let y = vld1q_u8_x4(y.as_ptr().cast());
                [
                    vcntq_u8(veorq_u8(x.0, y.0)),
                    vcntq_u8(veorq_u8(x.1, y.1)),
                    vcntq_u8(veorq_u8(x.2, y.2)),
                    vcntq_u8(veorq_u8(x.3, y.3)),
                ]
            };
            sum = vpadalq_u8(sum, vaddq_u8(vaddq_u8(a, b), vaddq_u8(c, d)));
        }
        for (x, y) in end.iter().zip(other_end) {
            rest += (x ^ y).count_ones();
        }
        *h = (vaddlvq_u16(sum) + rest) as u16;
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    /// # Safety
    /// Needs AVX-512 F, VL and VPOPCNTDQ; `block` must hold `out.len()` rows of `row.len()` words.
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vpopcntdq")]
    pub(super) unsafe fn avx512(row: &[u64], block: &[u64], out: &mut [u16]) {
        let len = row.len();
        let eights = out.len() / 8;
        for group in 0..eights {
            let base = block[group * 8 * len..].as_ptr();
            let mut sums = [_mm512_setzero_si512(); 8];
            let mut at = 0;
            while at + 8 <= len {
                // SAFETY: words at..at+8 of the row, and of rows 0..8 after `base`, are in bounds.
                unsafe {
                    let x = _mm512_loadu_epi64(row.as_ptr().add(at).cast());
                    for (r, sum) in sums.iter_mut().enumerate() {
                        let y = _mm512_loadu_epi64(base.add(r * len + at).cast());
                        let ones = _mm512_popcnt_epi64(_mm512_xor_si512(x, y));
                        *sum = _mm512_add_epi64(*sum, ones);
                    }
                }
                at += 8;
            }
            if at < len {
                let mask = (1u8 << (len - at)) - 1;
                // SAFETY: the mask keeps the loads to the words at..len of each row.
                unsafe {
                    let x = _mm512_maskz_loadu_epi64(mask, row.as_ptr().add(at).cast());
                    for (r, sum) in sums.iter_mut().enumerate() {
                        let y = _mm512_maskz_loadu_epi64(mask, base.add(r * len + at).cast());
                        let ones = _mm512_popcnt_epi64(_mm512_xor_si512(x, y));
                        *sum = _mm512_add_epi64(*sum, ones);
                    }
                }
            }
            let folded = _mm512_cvtepi64_epi16(fold(sums));
            // SAFETY: `out` has eight entries from group * 8 on.
            unsafe { _mm_storeu_si128(out[group * 8..].as_mut_ptr().cast(), folded) };
        }
        let rest = &block[eights * 8 * len..];
        for (h, other) in out[eights * 8..].iter_mut().zip(rest.chunks_exact(len)) {
            let mut sum = _mm512_setzero_si512();
            for (x, y) in row.chunks(8).zip(other.chunks(8)) {
                let mask = (0xffu16 >> (8 - x.len())) as u8;
                // SAFETY: the mask keeps the loads to the words of the two chunks, equally long.
                let (x, y) = unsafe {
                    (
                        _mm512_maskz_loadu_epi64(mask, x.as_ptr().cast()),
                        _mm512_maskz_loadu_epi64(mask, y.as_ptr().cast()),
                    )
                };
                sum = _mm512_add_epi64(sum, _mm512_popcnt_epi64(_mm512_xor_si512(x, y)));
            }
            *h = _mm512_reduce_add_epi64(sum) as u16;
        }
    }

    /// Eight registers of `row` stay in place while the rows of `block` pass by.
    ///
    /// # Safety
    /// Needs AVX-512 F and VPOPCNTDQ.
    #[target_feature(enable = "avx512f,avx512vpopcntdq")]
    pub(super) unsafe fn total_avx512(row: &[u64], block: &[u64]) -> u64 {
        let mut sums = [_mm512_setzero_si512(); 8];
        let (parts, rest) = row.as_chunks::<64>();
        for (index, part) in parts.iter().enumerate() {
            // SAFETY: `part` holds 8 · 8 words.
            let x: [__m512i; 8] = std::array::from_fn(|i| unsafe {
                _mm512_loadu_epi64(part.as_ptr().add(8 * i).cast())
            });
            for other in block.chunks_exact(row.len()) {
                for (i, (sum, x)) in sums.iter_mut().zip(x).enumerate() {
                    // SAFETY: `other` is as long as `row`, so part `index` of it holds 64 words.
                    let y = unsafe {
                        _mm512_loadu_epi64(other.as_ptr().add(64 * index + 8 * i).cast())
                    };
                    *sum = _mm512_add_epi64(*sum, _mm512_popcnt_epi64(_mm512_xor_si512(x, y)));
                }
            }
        }
        let mut total = 0;
        for other in block.chunks_exact(row.len()) {
            for (x, y) in rest.iter().zip(&other[row.len() - rest.len()..]) {
                total += u64::from((x ^ y).count_ones());
            }
        }
        for sum in sums {
            total += _mm512_reduce_add_epi64(sum) as u64;
        }
        total
    }

    /// Lane r of the result is the sum of the lanes of `v[r]`.
    #[target_feature(enable = "avx512f")]
    fn fold(v: [__m512i; 8]) -> __m512i {
        let pair =
            |x, y| _mm512_add_epi64(_mm512_unpacklo_epi64(x, y), _mm512_unpackhi_epi64(x, y));
        let halve = |x, y| {
            _mm512_add_epi64(
                _mm512_shuffle_i64x2::<0x88>(x, y),
                _mm512_shuffle_i64x2::<0xdd>(x, y),
            )
        };
        let low = halve(pair(v[0], v[1]), pair(v[2], v[3]));
        let high = halve(pair(v[4], v[5]), pair(v[6], v[7]));
        halve(low, high)
    }

    /// # Safety
    /// Needs AVX2 and POPCNT; `block` must hold `out.len()` rows of `row.len()` words.
    #[target_feature(enable = "avx2,popcnt")]
    pub(super) unsafe fn avx2(row: &[u64], block: &[u64], out: &mut [u16]) {
        const BATCH: usize = 31; // vectors whose byte counts, at most 8 each, fit one byte
        let nibbles = _mm256_broadcastsi128_si256(_mm_setr_epi8(
            0, 1, 1, 2, 1, 2, 2, 3, 1, 2, 2, 3, 2, 3, 3, 4,
        ));
        let low = _mm256_set1_epi8(0x0f);
        let zero = _mm256_setzero_si256();
        let whole = row.len() / 4;
        for (h, other) in out.iter_mut().zip(block.chunks_exact(row.len())) {
            let mut sum = zero;
            let mut at = 0;
            while at < whole {
                let end = whole.min(at + BATCH);
                let mut bytes = zero;
                while at < end {
                    // SAFETY: words 4·at..4·at+4 are inside both rows.
                    let (x, y) = unsafe {
                        (
                            _mm256_loadu_si256(row.as_ptr().add(4 * at).cast()),
                            _mm256_loadu_si256(other.as_ptr().add(4 * at).cast()),
                        )
                    };
                    let x = _mm256_xor_si256(x, y);
                    let high = _mm256_and_si256(_mm256_srli_epi64::<4>(x), low);
                    let ones = _mm256_add_epi8(
                        _mm256_shuffle_epi8(nibbles, _mm256_and_si256(x, low)),
                        _mm256_shuffle_epi8(nibbles, high),
                    );
                    bytes = _mm256_add_epi8(bytes, ones);
                    at += 1;
                }
                sum = _mm256_add_epi64(sum, _mm256_sad_epu8(bytes, zero));
            }
            let half = _mm_add_epi64(
                _mm256_castsi256_si128(sum),
                _mm256_extracti128_si256::<1>(sum),
            );
            let mut total = _mm_extract_epi64::<0>(half) + _mm_extract_epi64::<1>(half);
            for (x, y) in row[4 * whole..].iter().zip(&other[4 * whole..]) {
                total += i64::from((x ^ y).count_ones());
            }
            *h = total as u16;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bits::tests::random;
    use proptest::prelude::*;

    fn naive(a: &BitMatrix, b: &BitMatrix) -> Vec<u16> {
        let mut out = Vec::new();
        for i in 0..a.rows() {
            for j in 0..b.rows() {
                let differs = |c: &usize| a.get(i, *c) != b.get(j, *c);
                out.push((0..a.columns()).filter(differs).count() as u16);
            }
        }
        out
    }

    fn of(cpu: Cpu, a: &BitMatrix, b: &BitMatrix) -> Vec<u16> {
        let mut out = vec![0; a.rows() * b.rows()];
        distances(cpu, a, 0..a.rows(), b, 0..b.rows(), &mut out);
        out
    }

    proptest! {
        #[test]
        fn every_path_is_the_definition(
            rows_a in 0usize..4, rows_b in 0usize..20, columns in 1usize..1200, seed: u8,
        ) {
            let (a, b) = (random(rows_a, columns, seed), random(rows_b, columns, !seed));
            let expected = naive(&a, &b);
            for cpu in Cpu::all() {
                prop_assert_eq!(&of(cpu, &a, &b), &expected, "{:?}", cpu);
            }
        }
    }

    #[test]
    fn extremes_of_long_rows() {
        for columns in [4095, 4096, 4097, 8192, 65_535] {
            let zero = BitMatrix::zero(3, columns);
            let ones = BitMatrix::from_words(9, columns, vec![!0; 9 * columns.div_ceil(64)]);
            for cpu in Cpu::all() {
                assert_eq!(of(cpu, &zero, &ones), vec![columns as u16; 27], "{cpu:?}");
                assert_eq!(of(cpu, &ones, &ones), vec![0; 81], "{cpu:?}");
            }
        }
    }

    #[test]
    fn totals_are_sums_of_distances() {
        for columns in [64, 100, 4096] {
            let (a, b) = (random(20, columns, 3), random(90, columns, 4));
            let sum: u64 = naive(&a, &b).iter().map(|h| u64::from(*h)).sum();
            for cpu in Cpu::all() {
                assert_eq!(total(cpu, &a, &b), sum, "{cpu:?}");
            }
        }
    }

    #[test]
    fn windows_of_a_larger_block() {
        for bits in [300, 4096] {
            let (a, b) = (random(30, bits, 1), random(90, bits, 2));
            let whole = naive(&a, &b);
            for cpu in Cpu::all() {
                let mut out = vec![0; 7 * 71];
                distances(cpu, &a, 11..18, &b, 5..76, &mut out);
                for (i, row) in out.chunks(71).enumerate() {
                    assert_eq!(row, &whole[(11 + i) * 90 + 5..][..71], "{cpu:?}");
                }
            }
        }
    }
}
