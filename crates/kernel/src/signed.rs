//! Inner products of numbers of up to 32 bits and small signed numbers, modulo 2³².
//!
//! The former are stored as three or four planes of bytes. All fast paths multiply bytes: AVX-512
//! by `vpdpbusd`, AVX2 by `vpmaddubsw`, NEON by `smull`. NEON cannot multiply an unsigned byte by a
//! signed one. So it takes 128 from each byte of a plane. In the end it adds, for each plane, 128
//! times the sum of the small numbers.

use crate::cpu::Cpu;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
use crate::cpu::Level;
use crate::wipe::Wiped;

/// Lengths are padded with zeros to a multiple of this.
const LINE: usize = 64;

/// Longest row.
pub const MAX_LENGTH: usize = 2048;

/// Small numbers are from −`MOST` to `MOST`: two products by bytes fit 16 bits.
pub const MOST: i8 = 64;

/// Rows of unsigned numbers.
#[derive(Debug, Clone)]
pub struct Rows {
    length: usize,
    /// Planes of each row: 3 or 4.
    planes: usize,
    bytes: Wiped<u8>,
}

impl Rows {
    /// The numbers of `values`, of `width` bits, in rows of `length`.
    ///
    /// # Panics
    /// When `length` is not from 1 to [`MAX_LENGTH`], `values` are not whole rows, or `width` is
    /// above 32.
    pub fn new(length: usize, width: u32, values: &[u32]) -> Self {
        assert!((1..=MAX_LENGTH).contains(&length), "rows of {length}");
        assert!(values.len().is_multiple_of(length), "whole rows");
        assert!(width <= u32::BITS, "numbers of {width} bits");
        let planes = if width <= 24 { 3 } else { 4 };
        let stride = length.next_multiple_of(LINE);
        let mut bytes = Wiped::from(vec![0; values.len() / length * planes * stride]);
        for (row, values) in bytes
            .chunks_exact_mut(planes * stride)
            .zip(values.chunks_exact(length))
        {
            for (plane, bytes) in row.chunks_exact_mut(stride).enumerate() {
                for (byte, value) in bytes.iter_mut().zip(values) {
                    *byte = (value >> (8 * plane)) as u8;
                }
            }
        }
        Self {
            length,
            planes,
            bytes,
        }
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.bytes.len() / (self.planes * self.length.next_multiple_of(LINE))
    }
}

/// Rows of numbers from −[`MOST`] to [`MOST`].
#[derive(Debug, Clone)]
pub struct Small {
    length: usize,
    bytes: Wiped<u8>,
}

impl Small {
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

    /// The numbers of each row, as bytes in two's complement. They MUST be from −[`MOST`] to
    /// [`MOST`].
    pub fn rows_mut(&mut self) -> impl Iterator<Item = &mut [u8]> {
        let length = self.length;
        let rows = self.bytes.chunks_exact_mut(length.next_multiple_of(LINE));
        rows.map(move |row| &mut row[..length])
    }

    /// The numbers of a row, as bytes in two's complement.
    pub fn row(&self, row: usize) -> &[u8] {
        let start = row * self.length.next_multiple_of(LINE);
        &self.bytes[start..start + self.length]
    }
}

/// Writes the inner products of each of `rows` with rows `columns` of `small`, modulo 2³², row
/// after row. Time depends on the lengths alone.
///
/// # Panics
/// When lengths differ, or `out` has not one number for each pair.
pub fn products(
    cpu: Cpu,
    rows: &Rows,
    small: &Small,
    columns: std::ops::Range<usize>,
    out: &mut [u32],
) {
    assert_eq!(rows.length, small.length, "lengths");
    assert_eq!(out.len(), rows.rows() * columns.len(), "products");
    let stride = rows.length.next_multiple_of(LINE);
    let columns = &small.bytes[columns.start * stride..columns.end * stride];
    match rows.planes {
        3 => panels::<3>(cpu, &rows.bytes, stride, columns, out),
        _ => panels::<4>(cpu, &rows.bytes, stride, columns, out),
    }
}

/// Columns in a panel.
const PANEL: usize = 128;

fn panels<const PLANES: usize>(
    cpu: Cpu,
    rows: &[u8],
    stride: usize,
    columns: &[u8],
    out: &mut [u32],
) {
    let count = columns.len() / stride;
    if count == 0 {
        return;
    }
    // Panels of columns stay in the second-level cache.
    for first in (0..count).step_by(PANEL) {
        let panel = &columns[first * stride..(first + PANEL).min(count) * stride];
        for (planes, out) in rows
            .chunks_exact(PLANES * stride)
            .zip(out.chunks_exact_mut(count))
        {
            let out = &mut out[first..first + panel.len() / stride];
            for (columns, out) in panel.chunks(4 * stride).zip(out.chunks_mut(4)) {
                // If columns run out, the last one is taken again and its product dropped.
                let last = columns.len() / stride - 1;
                let four: [&[u8]; 4] =
                    std::array::from_fn(|i| &columns[i.min(last) * stride..][..stride]);
                let sums = match cpu.level() {
                    // SAFETY: `Cpu` proves the features.
                    #[cfg(target_arch = "x86_64")]
                    Level::Avx2 => unsafe { avx2::<PLANES>(planes, four) },
                    // SAFETY: `Cpu` proves the features.
                    #[cfg(target_arch = "x86_64")]
                    Level::Avx512 => unsafe { avx512::<PLANES>(planes, four) },
                    // SAFETY: `Cpu` proves the features.
                    #[cfg(target_arch = "aarch64")]
                    Level::Neon => unsafe { neon::<PLANES>(planes, four) },
                    _ => portable(planes, four),
                };
                out.copy_from_slice(&sums[..out.len()]);
            }
        }
    }
}

fn portable(planes: &[u8], columns: [&[u8]; 4]) -> [u32; 4] {
    columns.map(|column| {
        let planes = planes.chunks_exact(column.len()).enumerate();
        planes.fold(0u32, |sum, (plane, bytes)| {
            let products = bytes
                .iter()
                .zip(column)
                .map(|(byte, small)| i32::from(*byte) * i32::from(*small as i8));
            sum.wrapping_add((products.sum::<i32>() as u32) << (8 * plane))
        })
    })
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
unsafe fn avx512<const PLANES: usize>(planes: &[u8], columns: [&[u8]; 4]) -> [u32; 4] {
    use std::arch::x86_64::*;
    let stride = columns[0].len();
    assert!(planes.len() == PLANES * stride && stride.is_multiple_of(LINE));
    assert!(columns.iter().all(|column| column.len() == stride));
    let mut sums = [[_mm512_setzero_si512(); PLANES]; 4];
    for at in (0..stride).step_by(LINE) {
        // SAFETY: every plane and column has `stride` bytes, and `at + 64 <= stride`.
        let load =
            |from: &[u8], at: usize| unsafe { _mm512_loadu_si512(from.as_ptr().add(at).cast()) };
        let bytes: [__m512i; PLANES] =
            std::array::from_fn(|plane| load(planes, plane * stride + at));
        for (column, sums) in columns.iter().zip(&mut sums) {
            let small = load(column, at);
            for (sum, bytes) in sums.iter_mut().zip(bytes) {
                *sum = _mm512_dpbusd_epi32(*sum, bytes, small);
            }
        }
    }
    sums.map(|sums| {
        let mut sum = _mm512_setzero_si512();
        for plane in sums.into_iter().rev() {
            sum = _mm512_add_epi32(_mm512_slli_epi32::<8>(sum), plane);
        }
        _mm512_reduce_add_epi32(sum) as u32
    })
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn avx2<const PLANES: usize>(planes: &[u8], columns: [&[u8]; 4]) -> [u32; 4] {
    use std::arch::x86_64::*;
    let stride = columns[0].len();
    assert!(planes.len() == PLANES * stride && stride.is_multiple_of(32));
    assert!(columns.iter().all(|column| column.len() == stride));
    let ones = _mm256_set1_epi16(1);
    columns.map(|column| {
        let mut sums = [_mm256_setzero_si256(); PLANES];
        for at in (0..stride).step_by(32) {
            // SAFETY: every plane and column has `stride` bytes, and `at + 32 <= stride`.
            let load = |from: &[u8], at: usize| unsafe {
                _mm256_loadu_si256(from.as_ptr().add(at).cast())
            };
            let small = load(column, at);
            for (plane, sum) in sums.iter_mut().enumerate() {
                // Two products are at most 2·255·64 < 2¹⁵.
                let pairs = _mm256_maddubs_epi16(load(planes, plane * stride + at), small);
                *sum = _mm256_add_epi32(*sum, _mm256_madd_epi16(pairs, ones));
            }
        }
        let mut sum = _mm256_setzero_si256();
        for plane in sums.into_iter().rev() {
            sum = _mm256_add_epi32(_mm256_slli_epi32::<8>(sum), plane);
        }
        let mut lanes = [0u32; 8];
        // SAFETY: eight lanes have 32 bytes.
        unsafe { _mm256_storeu_si256(lanes.as_mut_ptr().cast(), sum) };
        lanes
            .iter()
            .fold(0, |sum: u32, lane| sum.wrapping_add(*lane))
    })
}

#[cfg(target_arch = "aarch64")]
#[target_feature(enable = "neon")]
unsafe fn neon<const PLANES: usize>(planes: &[u8], columns: [&[u8]; 4]) -> [u32; 4] {
    use std::arch::aarch64::*;
    let stride = columns[0].len();
    assert!(planes.len() == PLANES * stride && stride.is_multiple_of(LINE));
    assert!(columns.iter().all(|column| column.len() == stride));
    let mut sums = [[vdupq_n_s32(0); PLANES]; 4];
    // A lane takes two numbers of each of `MAX_LENGTH / 16` registers: at most 2·64·128.
    let mut totals = [vdupq_n_s16(0); 4];
    for at in (0..stride).step_by(16) {
        // SAFETY: every plane and column has `stride` bytes, and `at + 16 <= stride`.
        let load = |from: &[u8], at: usize| unsafe { vld1q_u8(from.as_ptr().add(at)) };
        let bytes: [int8x16_t; PLANES] = std::array::from_fn(|plane| {
            let bytes = load(planes, plane * stride + at);
            vreinterpretq_s8_u8(veorq_u8(bytes, vdupq_n_u8(128)))
        });
        for ((column, sums), total) in columns.iter().zip(&mut sums).zip(&mut totals) {
            let small = vreinterpretq_s8_u8(load(column, at));
            *total = vpadalq_s8(*total, small);
            for (sum, bytes) in sums.iter_mut().zip(bytes) {
                // Two products are at most 2·128·64 < 2¹⁵.
                let low = vmull_s8(vget_low_s8(bytes), vget_low_s8(small));
                *sum = vpadalq_s16(*sum, vmlal_high_s8(low, bytes, small));
            }
        }
    }
    let mut out = [0; 4];
    for ((out, sums), total) in out.iter_mut().zip(sums).zip(totals) {
        let mut sum = vdupq_n_s32(0);
        for plane in sums.into_iter().rev() {
            sum = vaddq_s32(vshlq_n_s32::<8>(sum), plane);
        }
        let taken = (vaddlvq_s16(total) as u32).wrapping_mul(0x8080_8080 >> (8 * (4 - PLANES)));
        *out = (vaddvq_s32(sum) as u32).wrapping_add(taken);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Prg;

    fn check(
        length: usize,
        width: u32,
        rows: usize,
        columns: usize,
        mut value: impl FnMut() -> (u32, i8),
    ) {
        let values: Vec<u32> = (0..rows * length).map(|_| value().0).collect();
        let planes = Rows::new(length, width, &values);
        let mut small = Small::zero(columns + 1, length);
        for row in small.rows_mut() {
            row.fill_with(|| value().1 as u8);
        }
        assert_eq!((planes.rows(), small.rows()), (rows, columns + 1));
        for cpu in Cpu::all() {
            let mut out = vec![7; rows * columns];
            products(cpu, &planes, &small, 1..columns + 1, &mut out);
            for (at, found) in out.iter().enumerate() {
                let row = &values[at / columns * length..][..length];
                let numbers = small.row(1 + at % columns);
                let products = row.iter().zip(numbers);
                let sum: i64 = products
                    .map(|(value, small)| i64::from(*value) * i64::from(*small as i8))
                    .sum();
                assert_eq!(*found, sum as u32, "{cpu:?}, {at}");
            }
        }
    }

    #[test]
    fn every_path_is_the_definition() {
        let mut prg = Prg::new(&[5; 32]);
        for (length, rows, columns) in [(1, 1, 1), (63, 2, 5), (1792, 3, 9), (2048, 1, 131)] {
            for width in [1, 24, 25, 29, 32] {
                check(length, width, rows, columns, || {
                    let word = prg.next_u64();
                    let small = (word >> 40) as u8 % 129;
                    (word as u32 >> (32 - width), (i16::from(small) - 64) as i8)
                });
            }
        }
        for width in [24, 32] {
            let most = u32::MAX >> (32 - width);
            check(2048, width, 1, 4, || (most, MOST));
            check(2048, width, 1, 4, || (most, -MOST));
        }
    }

    #[test]
    fn no_rows_give_no_products() {
        let small = Small::zero(3, 10);
        let none = Rows::new(10, 20, &[]);
        products(Cpu::detect(), &none, &small, 0..3, &mut []);
        let some = Rows::new(10, 20, &[1; 20]);
        products(Cpu::detect(), &some, &small, 3..3, &mut []);
    }
}
