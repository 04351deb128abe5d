//! Products of small signed numbers and large ones, modulo 2⁵²: eight rows by 24 columns at a time.
//!
//! ```text
//!                 24 columns of a panel: three registers of eight numbers
//!            l:   ▒▒▒▒▒▒▒▒  ▒▒▒▒▒▒▒▒  ▒▒▒▒▒▒▒▒
//!     row 0  ▪──▶  sum       sum       sum         ▪: one number of a row, in all lanes
//!     row 1  ▪──▶  sum       sum       sum
//!       ⋮
//! ```
//!
//! The AVX-512 path adds the low 52 bits of products (`vpmadd52luq`). The 24 sums stay in registers
//! while l runs. The paths for AVX2 (`vpmuldq`) and NEON (`smlal`) cut the large numbers into
//! halves of 26 bits.

use crate::cpu::Cpu;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
use crate::cpu::Level;
use crate::negacyclic::{Eight, LANES, MASK};
use crate::wipe::Plain;

/// Columns of a panel.
pub const COLUMNS: usize = 24;

/// The numbers of a panel at one place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C, align(64))]
pub struct Panel(pub [u64; COLUMNS]);

impl Plain for Panel {
    const BLANK: Self = Self([0; COLUMNS]);
}

/// Places that are worked on together, so that rows and panel stay in the second-level cache.
const STRIP: usize = 1024;

/// Writes `out[block·8 + row][column] = Σ_l rows[block·length + l][row]·panel[l][column]` modulo
/// 2⁵², where `length` is the length of `panel`.
///
/// Numbers of rows are signed, in two's complement, and fit 32 bits. Numbers of the panel are below
/// 2⁵². Time depends on the lengths alone.
///
/// # Panics
/// When the rows are not `out.len() / 8` blocks.
pub fn products(cpu: Cpu, rows: &[Eight], panel: &[Panel], out: &mut [Panel]) {
    let length = panel.len();
    assert!(out.len().is_multiple_of(LANES), "whole blocks of rows");
    assert_eq!(rows.len(), out.len() / LANES * length, "rows");
    out.fill(Panel::BLANK);
    if length == 0 {
        return;
    }
    for (strip, panel) in panel.chunks(STRIP).enumerate() {
        let blocks = rows.chunks_exact(length);
        for (rows, out) in blocks.zip(out.as_chunks_mut::<LANES>().0) {
            let rows = &rows[strip * STRIP..][..panel.len()];
            match cpu.level() {
                // SAFETY: `Cpu` proves the features.
                #[cfg(target_arch = "x86_64")]
                Level::Avx2 => unsafe { avx2(rows, panel, out) },
                // SAFETY: `Cpu` proves the features.
                #[cfg(target_arch = "x86_64")]
                Level::Avx512 => unsafe { avx512(rows, panel, out) },
                // SAFETY: `Cpu` proves the features.
                #[cfg(target_arch = "aarch64")]
                Level::Neon => unsafe { neon(rows, panel, out) },
                _ => portable(rows, panel, out),
            }
        }
    }
    for sum in out.iter_mut().flat_map(|out| &mut out.0) {
        *sum &= MASK;
    }
}

fn portable(rows: &[Eight], panel: &[Panel], out: &mut [Panel; LANES]) {
    for (rows, panel) in rows.iter().zip(panel) {
        for (row, out) in rows.0.iter().zip(out.iter_mut()) {
            for (out, number) in out.0.iter_mut().zip(&panel.0) {
                *out = out.wrapping_add(row.wrapping_mul(*number));
            }
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512ifma")]
unsafe fn avx512(rows: &[Eight], panel: &[Panel], out: &mut [Panel; LANES]) {
    use std::arch::x86_64::*;
    let zero = _mm512_setzero_si512();
    let mut sums = [[zero; 3]; LANES];
    for (rows, panel) in rows.iter().zip(panel) {
        // SAFETY: a panel has three registers.
        let columns: [__m512i; 3] = std::array::from_fn(|i| unsafe {
            _mm512_load_si512(panel.0.as_ptr().add(8 * i).cast())
        });
        for (row, sums) in rows.0.iter().zip(&mut sums) {
            let row = _mm512_set1_epi64(*row as i64);
            for (sum, column) in sums.iter_mut().zip(columns) {
                *sum = _mm512_madd52lo_epu64(*sum, row, column);
            }
        }
    }
    for (out, sums) in out.iter_mut().zip(sums) {
        for (i, sum) in sums.into_iter().enumerate() {
            // SAFETY: a panel has three registers.
            unsafe {
                let at = out.0.as_mut_ptr().add(8 * i).cast();
                _mm512_store_si512(at, _mm512_add_epi64(_mm512_load_si512(at), sum));
            }
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn avx2(rows: &[Eight], panel: &[Panel], out: &mut [Panel; LANES]) {
    use std::arch::x86_64::*;
    let mask = _mm256_set1_epi64x((1 << 26) - 1);
    for half in [0, 4] {
        for quarter in 0..COLUMNS / 4 {
            let mut sums = [[_mm256_setzero_si256(); 2]; 4];
            for (rows, panel) in rows.iter().zip(panel) {
                // SAFETY: a panel has six registers.
                let column = unsafe { _mm256_load_si256(panel.0.as_ptr().add(4 * quarter).cast()) };
                let parts = [
                    _mm256_and_si256(column, mask),
                    _mm256_srli_epi64::<26>(column),
                ];
                for (row, sums) in rows.0[half..half + 4].iter().zip(&mut sums) {
                    let row = _mm256_set1_epi64x(*row as i64);
                    for (sum, part) in sums.iter_mut().zip(parts) {
                        *sum = _mm256_add_epi64(*sum, _mm256_mul_epi32(row, part));
                    }
                }
            }
            for (out, [low, high]) in out[half..half + 4].iter_mut().zip(sums) {
                let sum = _mm256_add_epi64(low, _mm256_slli_epi64::<26>(high));
                // SAFETY: a panel has six registers.
                unsafe {
                    let at = out.0.as_mut_ptr().add(4 * quarter).cast();
                    _mm256_store_si256(at, _mm256_add_epi64(_mm256_load_si256(at), sum));
                }
            }
        }
    }
}

/// Two columns at a time, cut into halves. Their 16 sums, modulo 2⁶⁴, a row's four registers and
/// one of columns fill 21 of 32.
#[cfg(target_arch = "aarch64")]
#[target_feature(enable = "neon")]
unsafe fn neon(rows: &[Eight], panel: &[Panel], out: &mut [Panel; LANES]) {
    use std::arch::aarch64::*;
    let mask = vdup_n_s32((1 << 26) - 1);
    for pair in 0..COLUMNS / 2 {
        let mut sums = [[vdupq_n_s64(0); 2]; LANES];
        for (rows, panel) in rows.iter().zip(panel) {
            // SAFETY: a row has four registers, a panel twelve.
            let (row, column) = unsafe {
                let row: [int32x4_t; 4] =
                    std::array::from_fn(|i| vld1q_s32(rows.0.as_ptr().add(2 * i).cast()));
                (row, vld1q_s64(panel.0.as_ptr().add(2 * pair).cast()))
            };
            let low = vand_s32(vmovn_s64(column), mask);
            let high = vshrn_n_s64::<26>(column);
            // The low halves of the numbers of rows.
            let row = [vuzp1q_s32(row[0], row[1]), vuzp1q_s32(row[2], row[3])];
            for (half, part) in [low, high].into_iter().enumerate() {
                for (row, sums) in row.into_iter().zip(sums.as_chunks_mut::<4>().0) {
                    sums[0][half] = vmlal_laneq_s32::<0>(sums[0][half], part, row);
                    sums[1][half] = vmlal_laneq_s32::<1>(sums[1][half], part, row);
                    sums[2][half] = vmlal_laneq_s32::<2>(sums[2][half], part, row);
                    sums[3][half] = vmlal_laneq_s32::<3>(sums[3][half], part, row);
                }
            }
        }
        for (out, [low, high]) in out.iter_mut().zip(sums) {
            let sum = vaddq_s64(low, vshlq_n_s64::<26>(high));
            // SAFETY: a panel has twelve registers.
            unsafe {
                let at = out.0.as_mut_ptr().add(2 * pair).cast();
                vst1q_s64(at, vaddq_s64(vld1q_s64(at), sum));
            }
        }
    }
}

/// Subtracts `amount` from the numbers whose bit of `bits` is 1, modulo 2⁶⁴: number `i` has bit
/// `i % 64` of `bits[i / 64]`. Numbers without a bit stay. In constant time.
pub fn subtract_where(cpu: Cpu, bits: &[u64], amount: u64, numbers: &mut [u64]) {
    match cpu.level() {
        // SAFETY: `Cpu` proves the features.
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => unsafe { subtract_where_avx512(bits, amount, numbers) },
        _ => subtract_where_portable(bits, amount, numbers),
    }
}

fn subtract_where_portable(bits: &[u64], amount: u64, numbers: &mut [u64]) {
    for (numbers, word) in numbers.chunks_mut(64).zip(bits) {
        for (bit, number) in numbers.iter_mut().enumerate() {
            let mask = 0u64.wrapping_sub(word >> bit & 1);
            *number = number.wrapping_sub(amount & mask);
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
unsafe fn subtract_where_avx512(bits: &[u64], amount: u64, numbers: &mut [u64]) {
    use std::arch::x86_64::*;
    let amounts = _mm512_set1_epi64(amount as i64);
    let (whole, rest) = numbers.as_chunks_mut::<64>();
    for (numbers, word) in whole.iter_mut().zip(bits) {
        for (byte, numbers) in numbers.as_chunks_mut::<8>().0.iter_mut().enumerate() {
            let mask = (word >> (8 * byte)) as u8;
            // SAFETY: eight words.
            unsafe {
                let at = numbers.as_mut_ptr().cast();
                let value = _mm512_loadu_si512(at);
                _mm512_storeu_si512(at, _mm512_mask_sub_epi64(value, mask, value, amounts));
            }
        }
    }
    let rest_bits = bits.get(whole.len()..).unwrap_or_default();
    subtract_where_portable(rest_bits, amount, rest);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Prg;

    fn check(length: usize, blocks: usize, mut row: impl FnMut() -> i32, column: impl Fn() -> u64) {
        let rows: Vec<Eight> = (0..blocks * length)
            .map(|_| Eight(std::array::from_fn(|_| row() as i64 as u64)))
            .collect();
        let panel: Vec<Panel> = (0..length)
            .map(|_| Panel(std::array::from_fn(|_| column())))
            .collect();
        for cpu in Cpu::all() {
            let mut out = vec![Panel([7; COLUMNS]); blocks * LANES];
            products(cpu, &rows, &panel, &mut out);
            for (at, out) in out.iter().enumerate() {
                let row = &rows[at / LANES * length..][..length];
                for (column, found) in out.0.iter().enumerate() {
                    let sum: i128 = row
                        .iter()
                        .zip(&panel)
                        .map(|(row, panel)| {
                            i128::from(row.0[at % LANES] as i64) * i128::from(panel.0[column])
                        })
                        .sum();
                    assert_eq!(*found, sum as u64 & MASK, "{cpu:?}, row {at}");
                }
            }
        }
    }

    #[test]
    fn every_path_is_the_definition() {
        let prg = std::cell::RefCell::new(Prg::new(&[5; 32]));
        let next = || prg.borrow_mut().next_u64();
        for (length, blocks) in [(0, 1), (1, 1), (7, 2), (STRIP, 1), (2 * STRIP + 5, 3)] {
            check(length, blocks, || next() as i32, || next() & MASK);
        }
        check(16384, 1, || i32::MIN, || MASK);
        check(16384, 1, || i32::MAX, || MASK);
    }

    #[test]
    fn numbers_with_a_bit_are_reduced() {
        let mut prg = Prg::new(&[5; 32]);
        for (count, words) in [(0, 0), (1, 1), (63, 1), (200, 4), (200, 2), (256, 9)] {
            let bits: Vec<u64> = (0..words).map(|_| prg.next_u64()).collect();
            let numbers: Vec<u64> = (0..count).map(|_| prg.next_u64()).collect();
            let bit = |at: usize| {
                bits.get(at / 64)
                    .is_some_and(|word| word >> (at % 64) & 1 == 1)
            };
            let due: Vec<u64> = numbers
                .iter()
                .enumerate()
                .map(|(at, number)| number.wrapping_sub(if bit(at) { 77 } else { 0 }))
                .collect();
            for cpu in Cpu::all() {
                let mut found = numbers.clone();
                subtract_where(cpu, &bits, 77, &mut found);
                assert_eq!(found, due, "{cpu:?}");
            }
        }
    }
}
