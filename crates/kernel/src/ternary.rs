//! Inner products of numbers of 24 bits and numbers −1, 0 and 1, modulo 2²⁴.
//!
//! Numbers of 24 bits are stored as three planes of bytes. The AVX-512 path multiplies bytes
//! (`vpdpbusd`), as does the AVX2 path (`vpmaddubsw`).

use crate::cpu::{Cpu, Level};
use crate::wipe::Wiped;

/// Lengths are padded with zeros to a multiple of this.
const LINE: usize = 64;

/// Longest row: sums of bytes of the AVX2 path fit 16 bits.
pub const MAX_LENGTH: usize = 2048;

/// Rows of numbers of 24 bits.
#[derive(Debug, Clone)]
pub struct Rows24 {
    length: usize,
    /// Three planes for each row.
    bytes: Wiped<u8>,
}

impl Rows24 {
    /// The numbers of `values`, modulo 2²⁴, in rows of `length`.
    ///
    /// # Panics
    /// When `length` is not from 1 to [`MAX_LENGTH`], or `values` are not whole rows.
    pub fn new(length: usize, values: &[u32]) -> Self {
        assert!((1..=MAX_LENGTH).contains(&length), "rows of {length}");
        assert!(values.len().is_multiple_of(length), "whole rows");
        let stride = length.next_multiple_of(LINE);
        let mut bytes = Wiped::from(vec![0; values.len() / length * 3 * stride]);
        for (planes, values) in bytes
            .chunks_exact_mut(3 * stride)
            .zip(values.chunks_exact(length))
        {
            for (plane, bytes) in planes.chunks_exact_mut(stride).enumerate() {
                for (byte, value) in bytes.iter_mut().zip(values) {
                    *byte = (value >> (8 * plane)) as u8;
                }
            }
        }
        Self { length, bytes }
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.bytes.len() / (3 * self.length.next_multiple_of(LINE))
    }
}

/// Rows of numbers −1, 0 and 1.
#[derive(Debug, Clone)]
pub struct Ternary {
    length: usize,
    bytes: Wiped<u8>,
}

impl Ternary {
    /// `count` rows of `length` zeros.
    ///
    /// # Panics
    /// When `length` is not from 1 to [`MAX_LENGTH`].
    pub fn zero(count: usize, length: usize) -> Self {
        assert!((1..=MAX_LENGTH).contains(&length), "rows of {length}");
        Self {
            length,
            bytes: vec![0; count * length.next_multiple_of(LINE)].into(),
        }
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.bytes.len() / self.length.next_multiple_of(LINE)
    }

    /// The numbers of a row, as bytes in two's complement. They MUST be −1, 0 or 1.
    pub fn row_mut(&mut self, row: usize) -> &mut [u8] {
        let start = row * self.length.next_multiple_of(LINE);
        &mut self.bytes[start..start + self.length]
    }

    /// The numbers of a row, as bytes in two's complement.
    pub fn row(&self, row: usize) -> &[u8] {
        let start = row * self.length.next_multiple_of(LINE);
        &self.bytes[start..start + self.length]
    }
}

/// Writes the inner products of each of `rows` with rows `columns` of `ternary`, modulo 2²⁴, row
/// after row. Time depends on the lengths alone.
///
/// # Panics
/// When lengths differ, or `out` has not one number for each pair.
pub fn products(
    cpu: Cpu,
    rows: &Rows24,
    ternary: &Ternary,
    columns: std::ops::Range<usize>,
    out: &mut [u32],
) {
    assert_eq!(rows.length, ternary.length, "lengths");
    assert_eq!(out.len(), rows.rows() * columns.len(), "products");
    let stride = rows.length.next_multiple_of(LINE);
    let columns = &ternary.bytes[columns.start * stride..columns.end * stride];
    let count = columns.len() / stride;
    if count == 0 {
        return;
    }
    // Panels of columns stay in the second-level cache.
    for first in (0..count).step_by(PANEL) {
        let panel = &columns[first * stride..(first + PANEL).min(count) * stride];
        for (planes, out) in rows
            .bytes
            .chunks_exact(3 * stride)
            .zip(out.chunks_exact_mut(count))
        {
            let out = &mut out[first..first + panel.len() / stride];
            let mut pairs = panel.chunks(4 * stride).zip(out.chunks_mut(4));
            pairs.by_ref().for_each(|(columns, out)| {
                // If columns run out, the last one is taken again and its product dropped.
                let last = columns.len() / stride - 1;
                let four: [&[u8]; 4] =
                    std::array::from_fn(|i| &columns[i.min(last) * stride..][..stride]);
                let sums = match cpu.level() {
                    Level::Portable => portable(planes, four),
                    // SAFETY: `Cpu` proves the features.
                    #[cfg(target_arch = "x86_64")]
                    Level::Avx2 => unsafe { avx2(planes, four) },
                    // SAFETY: `Cpu` proves the features.
                    #[cfg(target_arch = "x86_64")]
                    Level::Avx512 => unsafe { avx512(planes, four) },
                    #[cfg(not(target_arch = "x86_64"))]
                    _ => portable(planes, four),
                };
                for (out, sum) in out.iter_mut().zip(sums) {
                    *out = sum & 0xff_ffff;
                }
            });
        }
    }
}

/// Columns in a panel.
const PANEL: usize = 128;

fn portable(planes: &[u8], columns: [&[u8]; 4]) -> [u32; 4] {
    columns.map(|column| {
        let planes = planes.chunks_exact(column.len()).enumerate();
        planes.fold(0u32, |sum, (plane, bytes)| {
            let products = bytes
                .iter()
                .zip(column)
                .map(|(byte, sign)| i32::from(*byte) * i32::from(*sign as i8));
            sum.wrapping_add((products.sum::<i32>() as u32) << (8 * plane))
        })
    })
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
unsafe fn avx512(planes: &[u8], columns: [&[u8]; 4]) -> [u32; 4] {
    use std::arch::x86_64::*;
    let stride = columns[0].len();
    assert!(planes.len() == 3 * stride && stride.is_multiple_of(LINE));
    assert!(columns.iter().all(|column| column.len() == stride));
    let mut sums = [[_mm512_setzero_si512(); 3]; 4];
    for at in (0..stride).step_by(LINE) {
        // SAFETY: every plane and column has `stride` bytes, and `at + 64 <= stride`.
        let load =
            |from: &[u8], at: usize| unsafe { _mm512_loadu_si512(from.as_ptr().add(at).cast()) };
        let bytes: [__m512i; 3] = std::array::from_fn(|plane| load(planes, plane * stride + at));
        for (column, sums) in columns.iter().zip(&mut sums) {
            let signs = load(column, at);
            for (sum, bytes) in sums.iter_mut().zip(bytes) {
                *sum = _mm512_dpbusd_epi32(*sum, bytes, signs);
            }
        }
    }
    sums.map(|[low, middle, high]| {
        let middle = _mm512_slli_epi32::<8>(middle);
        let high = _mm512_slli_epi32::<16>(high);
        let sum = _mm512_add_epi32(_mm512_add_epi32(low, middle), high);
        _mm512_reduce_add_epi32(sum) as u32
    })
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn avx2(planes: &[u8], columns: [&[u8]; 4]) -> [u32; 4] {
    use std::arch::x86_64::*;
    let stride = columns[0].len();
    assert!(planes.len() == 3 * stride && stride <= MAX_LENGTH && stride.is_multiple_of(32));
    assert!(columns.iter().all(|column| column.len() == stride));
    columns.map(|column| {
        let mut sums = [_mm256_setzero_si256(); 3];
        for at in (0..stride).step_by(32) {
            // SAFETY: every plane and column has `stride` bytes, and `at + 32 <= stride`.
            let load = |from: &[u8], at: usize| unsafe {
                _mm256_loadu_si256(from.as_ptr().add(at).cast())
            };
            let signs = load(column, at);
            for (plane, sum) in sums.iter_mut().enumerate() {
                let products = _mm256_maddubs_epi16(load(planes, plane * stride + at), signs);
                // At most 64 sums of two bytes, so below 2¹⁵.
                *sum = _mm256_add_epi16(*sum, products);
            }
        }
        let ones = _mm256_set1_epi16(1);
        let [low, middle, high] = sums.map(|sum| _mm256_madd_epi16(sum, ones));
        let middle = _mm256_slli_epi32::<8>(middle);
        let high = _mm256_slli_epi32::<16>(high);
        let sum = _mm256_add_epi32(_mm256_add_epi32(low, middle), high);
        let mut lanes = [0u32; 8];
        // SAFETY: eight lanes have 32 bytes.
        unsafe { _mm256_storeu_si256(lanes.as_mut_ptr().cast(), sum) };
        lanes
            .iter()
            .fold(0, |sum: u32, lane| sum.wrapping_add(*lane))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Prg;

    fn check(length: usize, rows: usize, columns: usize, mut value: impl FnMut() -> (u32, i8)) {
        let values: Vec<u32> = (0..rows * length).map(|_| value().0).collect();
        let planes = Rows24::new(length, &values);
        let mut ternary = Ternary::zero(columns + 1, length);
        for column in 0..=columns {
            ternary.row_mut(column).fill_with(|| value().1 as u8);
        }
        assert_eq!((planes.rows(), ternary.rows()), (rows, columns + 1));
        for cpu in Cpu::all() {
            let mut out = vec![7; rows * columns];
            products(cpu, &planes, &ternary, 1..columns + 1, &mut out);
            for (at, found) in out.iter().enumerate() {
                let row = &values[at / columns * length..][..length];
                let signs = ternary.row(1 + at % columns);
                let products = row.iter().zip(signs);
                let sum: i64 = products
                    .map(|(value, sign)| i64::from(*value) * i64::from(*sign as i8))
                    .sum();
                assert_eq!(*found, sum as u32 & 0xff_ffff, "{cpu:?}, {at}");
            }
        }
    }

    #[test]
    fn every_path_is_the_definition() {
        let mut prg = Prg::new(&[5; 32]);
        for (length, rows, columns) in [(1, 1, 1), (63, 2, 5), (1792, 3, 9), (2048, 1, 131)] {
            check(length, rows, columns, || {
                let word = prg.next_u64();
                (word as u32 & 0xff_ffff, (word >> 40) as i8 % 2)
            });
        }
        check(2048, 1, 4, || (0xff_ffff, 1));
        check(2048, 1, 4, || (0xff_ffff, -1));
    }

    #[test]
    fn no_rows_give_no_products() {
        let ternary = Ternary::zero(3, 10);
        products(
            Cpu::detect(),
            &Rows24::new(10, &[]),
            &ternary,
            0..3,
            &mut [],
        );
        products(
            Cpu::detect(),
            &Rows24::new(10, &[1; 20]),
            &ternary,
            3..3,
            &mut [],
        );
    }
}
