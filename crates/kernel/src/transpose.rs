//! From rows of bits to blocks: bit t of 128 rows becomes block t.
#![allow(clippy::needless_range_loop)] // registers go by number

use crate::cpu::Cpu;
#[cfg(target_arch = "x86_64")]
use crate::cpu::Level;

/// Number of rows.
const ROWS: usize = 128;

/// Words of a row that fit a register: they are transposed side by side.
const SIDE: usize = 8;

/// Writes block t, bit r of which is bit t of row r:
/// `out[t] >> r & 1 == rows[r][t / 128] >> (t % 128) & 1`.
///
/// # Panics
/// When there are not 128 rows, or not as many blocks as a row has bits.
pub fn blocks<const N: usize>(cpu: Cpu, rows: &[[u128; N]], out: &mut [u128]) {
    assert_eq!(rows.len(), ROWS, "rows");
    assert_eq!(out.len(), 128 * N, "blocks");
    match cpu.level() {
        // SAFETY: `Cpu` proves the features.
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => unsafe { avx2(rows, out) },
        // SAFETY: `Cpu` proves the features.
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => unsafe { avx512(rows, out) },
        _ => all(rows, out),
    }
}

/// As [`all`], with a register for the eight squares.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn avx512<const N: usize>(rows: &[[u128; N]], out: &mut [u128]) {
    use std::arch::x86_64::*;
    const PER: usize = SIDE / 2;
    if !N.is_multiple_of(PER) {
        return all(rows, out);
    }
    assert!(rows.len() == ROWS && out.len() == ROWS * N);
    let mut halves = [[_mm512_setzero_si512(); 64]; 2];
    for first in (0..N).step_by(PER) {
        for (half, words) in halves.iter_mut().enumerate() {
            for r in 0..64 {
                let row = &rows[64 * half + r][first..first + PER];
                // SAFETY: four blocks are a register.
                words[r] = unsafe { _mm512_loadu_si512(row.as_ptr().cast()) };
            }
            for group in 0..8 {
                let mut eight = [_mm512_setzero_si512(); 8];
                for i in 0..8 {
                    eight[i] = words[group + 8 * i];
                }
                swap_avx512::<32, 4>(&mut eight);
                swap_avx512::<16, 2>(&mut eight);
                swap_avx512::<8, 1>(&mut eight);
                for i in 0..8 {
                    words[group + 8 * i] = eight[i];
                }
            }
            for group in 0..8 {
                let mut eight = [_mm512_setzero_si512(); 8];
                for i in 0..8 {
                    eight[i] = words[8 * group + i];
                }
                swap_avx512::<4, 4>(&mut eight);
                swap_avx512::<2, 2>(&mut eight);
                swap_avx512::<1, 1>(&mut eight);
                for i in 0..8 {
                    words[8 * group + i] = eight[i];
                }
            }
        }
        let out = &mut out[ROWS * first..ROWS * (first + PER)];
        for column in 0..64 {
            let (low, high) = (halves[0][column], halves[1][column]);
            let even = _mm512_unpacklo_epi64(low, high);
            let odd = _mm512_unpackhi_epi64(low, high);
            let blocks = [
                _mm512_extracti32x4_epi32::<0>(even),
                _mm512_extracti32x4_epi32::<0>(odd),
                _mm512_extracti32x4_epi32::<1>(even),
                _mm512_extracti32x4_epi32::<1>(odd),
                _mm512_extracti32x4_epi32::<2>(even),
                _mm512_extracti32x4_epi32::<2>(odd),
                _mm512_extracti32x4_epi32::<3>(even),
                _mm512_extracti32x4_epi32::<3>(odd),
            ];
            for side in 0..SIDE {
                let to: *mut u128 = &mut out[64 * side + column];
                // SAFETY: a block has 16 bytes.
                unsafe { _mm_storeu_si128(to.cast(), blocks[side]) };
            }
        }
    }
}

/// As [`swap`].
#[cfg(target_arch = "x86_64")]
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn swap_avx512<const BITS: u32, const APART: usize>(eight: &mut [std::arch::x86_64::__m512i; 8]) {
    use std::arch::x86_64::*;
    let mask = _mm512_set1_epi64((u64::MAX / ((1 << BITS) + 1)) as i64);
    for i in 0..8 {
        if i & APART == 0 {
            let (a, b) = (eight[i], eight[i + APART]);
            // (a >> BITS ⊕ b) & mask
            let swapped = _mm512_ternarylogic_epi64::<0x28>(_mm512_srli_epi64::<BITS>(a), b, mask);
            eight[i] = _mm512_xor_si512(a, _mm512_slli_epi64::<BITS>(swapped));
            eight[i + APART] = _mm512_xor_si512(b, swapped);
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn avx2<const N: usize>(rows: &[[u128; N]], out: &mut [u128]) {
    all(rows, out);
}

type Words = [u64; SIDE];

/// Squares of 64 × 64 bits, eight side by side. The compiler puts the eight in a register.
#[inline(always)]
fn all<const N: usize>(rows: &[[u128; N]], out: &mut [u128]) {
    const PER: usize = SIDE / 2;
    let mut halves = [[[0u64; SIDE]; 64]; 2];
    for first in (0..N).step_by(PER) {
        for (half, words) in halves.iter_mut().enumerate() {
            for (words, row) in words.iter_mut().zip(&rows[64 * half..]) {
                for (i, block) in row[first..].iter().take(PER).enumerate() {
                    words[2 * i] = *block as u64;
                    words[2 * i + 1] = (*block >> 64) as u64;
                }
            }
            square(words);
        }
        let [low, high] = &halves;
        let out = &mut out[128 * first..];
        for (column, (low, high)) in low.iter().zip(high).enumerate() {
            for (side, (low, high)) in low.iter().zip(high).enumerate() {
                if let Some(out) = out.get_mut(64 * side + column) {
                    *out = u128::from(*high) << 64 | u128::from(*low);
                }
            }
        }
    }
}

/// Transposes squares in place: three stages of swaps in registers, then three more (Warren,
/// Hacker's Delight, 7-3, for bits counted from the low end).
#[inline(always)]
fn square(words: &mut [Words; 64]) {
    for group in 0..8 {
        let mut eight = [[0; SIDE]; 8];
        for i in 0..8 {
            eight[i] = words[group + 8 * i];
        }
        swap::<32, 4>(&mut eight);
        swap::<16, 2>(&mut eight);
        swap::<8, 1>(&mut eight);
        for i in 0..8 {
            words[group + 8 * i] = eight[i];
        }
    }
    for group in 0..8 {
        let mut eight = [[0; SIDE]; 8];
        for i in 0..8 {
            eight[i] = words[8 * group + i];
        }
        swap::<4, 4>(&mut eight);
        swap::<2, 2>(&mut eight);
        swap::<1, 1>(&mut eight);
        for i in 0..8 {
            words[8 * group + i] = eight[i];
        }
    }
}

/// Swaps the off-diagonal squares of side `BITS` of rows that are `APART` places apart.
#[inline(always)]
fn swap<const BITS: u32, const APART: usize>(eight: &mut [Words; 8]) {
    // Ones in the low half of every 2·BITS bits.
    let mask = u64::MAX / ((1 << BITS) + 1);
    for i in 0..8 {
        if i & APART == 0 {
            for lane in 0..SIDE {
                let (a, b) = (eight[i][lane], eight[i + APART][lane]);
                let swapped = (a >> BITS ^ b) & mask;
                eight[i][lane] = a ^ swapped << BITS;
                eight[i + APART][lane] = b ^ swapped;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Prg;

    fn check<const N: usize>() {
        let mut prg = Prg::new(&[N as u8; 32]);
        let mut block = || u128::from(prg.next_u64()) << 64 | u128::from(prg.next_u64());
        let rows: Vec<[u128; N]> = (0..ROWS)
            .map(|_| std::array::from_fn(|_| block()))
            .collect();
        for cpu in Cpu::all() {
            let mut out = vec![0; 128 * N];
            blocks(cpu, &rows, &mut out);
            for (t, block) in out.iter().enumerate() {
                for (r, row) in rows.iter().enumerate() {
                    assert_eq!(block >> r & 1, row[t / 128] >> (t % 128) & 1, "{t}, {r}");
                }
            }
        }
    }

    #[test]
    fn every_path_is_the_definition() {
        check::<1>();
        check::<4>();
        check::<6>();
        check::<16>();
    }
}
