//! Matrix products modulo 2¹⁶: all inner products of the rows of two matrices.
//!
//! The AVX-512 path multiplies pairs of 16-bit numbers and adds them to 32-bit lanes (`vpdpwssd`).
//! Signs and overflows of lanes do not matter modulo 2¹⁶. A block of 4 × 6 products stays in
//! registers while a strip of its ten rows streams by. The strip is short enough for the four rows
//! to stay in the first-level cache, and a panel of `b` in the second:
//!
//! ```text
//!            b0  b1  b2  b3  b4  b5        a: 4 rows of a strip, 16 KiB, first-level cache
//!        a0  ▒▒  ▒▒  ▒▒  ▒▒  ▒▒  ▒▒        b: 6 rows, second-level cache
//!        a1  ▒▒  ▒▒  ▒▒  ▒▒  ▒▒  ▒▒        ▒▒: one register, 16 lanes to be added up
//!        ⋮
//! ```
//!
//! The AVX2 path does the same with `vpmaddwd` and 2 × 4 blocks.
//!
//! Where one matrix has bits ([`bit_products`]), sums of subsets replace products. This is the
//! *method of the four Russians* (Arlazarov, Dinic, Kronrod, Faradzhev 1970). For each four columns
//! all 16 sums of the numbers of 64 rows are made once. Each row of bits then adds one of them.

use std::ops::Range;

use zeroize::ZeroizeOnDrop;

use crate::bits::BitMatrix;
use crate::cpu::Cpu;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
use crate::cpu::Level;
use crate::wipe::{Plain, Wiped};

/// Columns are padded with zeros to a multiple of this.
const LANES: usize = 32;

/// Columns in a strip.
const STRIP: usize = 2048;

/// Rows of `b` that stay in the second-level cache: a multiple of all widths of a block.
const PANEL: usize = 96;

/// A cache line of numbers.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(C, align(64))]
struct Line([u16; LANES]);

impl Plain for Line {
    const BLANK: Self = Self([0; LANES]);
}

/// A matrix of numbers modulo 2¹⁶. Rows start at cache lines. Wiped when dropped.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Matrix16 {
    rows: usize,
    columns: usize,
    lines: Wiped<Line>,
}

impl ZeroizeOnDrop for Matrix16 {}

impl std::fmt::Debug for Matrix16 {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Matrix16({} x {}, ..)", self.rows, self.columns)
    }
}

impl Matrix16 {
    /// A matrix of zeros.
    pub fn zero(rows: usize, columns: usize) -> Self {
        Self {
            rows,
            columns,
            lines: vec![Line::BLANK; rows * columns.div_ceil(LANES)].into(),
        }
    }

    /// The bits of rows `range` of `bits`, as 0 and 1.
    ///
    /// # Panics
    /// When `range` goes past the last row.
    pub fn from_bits(bits: &BitMatrix, range: Range<usize>) -> Self {
        /// The bits of every byte.
        const BITS: [[u16; 8]; 256] = {
            let mut out = [[0; 8]; 256];
            let mut at = 0;
            while at < 8 * 256 {
                out[at / 8][at % 8] = (((at / 8) >> (at % 8)) & 1) as u16;
                at += 1;
            }
            out
        };
        let mut out = Self::zero(range.len(), bits.columns());
        for (row, values) in range.zip(out.rows_mut()) {
            let bytes = bits.row(row).iter().flat_map(|word| word.to_le_bytes());
            for (byte, values) in bytes.zip(values.chunks_mut(8)) {
                values.copy_from_slice(&BITS[usize::from(byte)][..values.len()]);
            }
        }
        out
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Number of columns.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// Numbers from the start of a row to that of the next.
    fn stride(&self) -> usize {
        self.columns.next_multiple_of(LANES)
    }

    fn values(&self) -> &[u16] {
        let len = self.lines.len() * LANES;
        // SAFETY: a line is `LANES` numbers without padding.
        unsafe { std::slice::from_raw_parts(self.lines.as_ptr().cast(), len) }
    }

    /// The numbers of a row.
    ///
    /// # Panics
    /// When there is no such row.
    pub fn row(&self, row: usize) -> &[u16] {
        let start = row * self.stride();
        &self.values()[start..start + self.columns]
    }

    /// All rows, mutable.
    pub fn rows_mut(&mut self) -> impl Iterator<Item = &mut [u16]> {
        let (columns, stride) = (self.columns, self.stride());
        let len = self.lines.len() * LANES;
        // SAFETY: a line is `LANES` numbers without padding; all numbers are valid.
        let values =
            unsafe { std::slice::from_raw_parts_mut(self.lines.as_mut_ptr().cast::<u16>(), len) };
        let rows = values.chunks_exact_mut(stride.max(1));
        rows.map(move |row| &mut row[..columns])
    }

    /// Appends `count` rows of zeros, and returns them mutable.
    pub fn append(&mut self, count: usize) -> impl Iterator<Item = &mut [u16]> {
        let before = self.rows;
        self.rows += count;
        let lines = self.rows * self.columns.div_ceil(LANES);
        self.lines.reserve(lines - self.lines.len());
        self.lines.resize(lines, Line::BLANK);
        self.rows_mut().skip(before)
    }

    fn strip(&self, row: usize, strip: usize) -> &[u16] {
        let stride = self.stride();
        let end = (strip + STRIP).min(stride);
        &self.values()[row * stride + strip..row * stride + end]
    }
}

/// Writes the inner products of the rows `rows_a` of `a` and `rows_b` of `b`, modulo 2¹⁶, row after
/// row.
///
/// # Panics
/// When the matrices differ in columns, when a range goes past the last row, or when the length of
/// `out` is not the number of pairs of rows.
pub fn products(
    cpu: Cpu,
    a: &Matrix16,
    rows_a: Range<usize>,
    b: &Matrix16,
    rows_b: Range<usize>,
    out: &mut [u16],
) {
    assert_eq!(a.columns, b.columns, "columns of the two matrices");
    assert_eq!(out.len(), rows_a.len() * rows_b.len(), "products");
    assert!(rows_a.end <= a.rows && rows_b.end <= b.rows, "rows");
    out.fill(0);
    let (a, b) = ((a, rows_a), (b, rows_b));
    for strip in (0..a.0.stride()).step_by(STRIP) {
        let (a, b) = (a.clone(), b.clone());
        match cpu.level() {
            // SAFETY: `Cpu` proves the features.
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => blocks::<2, 4>(a, b, strip, out, |a, b| unsafe { avx2(a, b) }),
            // SAFETY: `Cpu` proves the features.
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => blocks::<4, 6>(a, b, strip, out, |a, b| unsafe { avx512(a, b) }),
            // SAFETY: `Cpu` proves the features.
            #[cfg(target_arch = "aarch64")]
            Level::Neon => blocks::<4, 4>(a, b, strip, out, |a, b| unsafe { neon(a, b) }),
            _ => blocks::<1, 4>(a, b, strip, out, portable),
        }
    }
}

/// Columns whose 16 sums of subsets are made at once.
const SUBSET: usize = 4;

/// Columns of a span. Its sums of subsets, 16 KiB, stay in the first-level cache.
const SPAN: usize = 8 * SUBSET;

/// With fewer rows of bits, making the sums of subsets takes longer than products.
const FEW_ROWS: usize = 32;

/// Numbers of as many rows, side by side.
type Side = [u16; 64];

/// Writes the inner products of the rows `rows_a` of `a`, of bits, and the rows `rows_b` of `b`,
/// modulo 2¹⁶, row after row. Its accesses to memory depend on the bits.
///
/// # Panics
/// As [`products`].
pub fn bit_products(
    cpu: Cpu,
    a: &BitMatrix,
    rows_a: Range<usize>,
    b: &Matrix16,
    rows_b: Range<usize>,
    out: &mut [u16],
) {
    assert_eq!(a.columns(), b.columns, "columns of the two matrices");
    assert_eq!(out.len(), rows_a.len() * rows_b.len(), "products");
    assert!(rows_a.end <= a.rows() && rows_b.end <= b.rows, "rows");
    if rows_a.len() < FEW_ROWS {
        let numbers = Matrix16::from_bits(a, rows_a);
        return products(cpu, &numbers, 0..numbers.rows, b, rows_b, out);
    }
    let width = rows_b.len();
    let mut sums = Wiped::from(vec![Side::BLANK; rows_a.len()]);
    let mut panel = Wiped::from(vec![Side::BLANK; SPAN]);
    let mut subsets = Wiped::from(vec![[Side::BLANK; 1 << SUBSET]; SPAN / SUBSET]);
    for first in (0..width).step_by(Side::BLANK.len()) {
        let lanes = Side::BLANK.len().min(width - first);
        sums.fill(Side::BLANK);
        for start in (0..b.columns).step_by(SPAN) {
            panel.fill(Side::BLANK);
            for lane in 0..lanes {
                let row = &b.row(rows_b.start + first + lane)[start..];
                panel
                    .iter_mut()
                    .zip(row)
                    .for_each(|(side, value)| side[lane] = *value);
            }
            let (a, subsets) = ((a, rows_a.clone(), start), &mut subsets[..]);
            match cpu.level() {
                // SAFETY: `Cpu` proves the features.
                #[cfg(target_arch = "x86_64")]
                Level::Avx2 => unsafe { add_span_avx2(a, &panel, subsets, &mut sums) },
                // SAFETY: `Cpu` proves the features.
                #[cfg(target_arch = "x86_64")]
                Level::Avx512 => unsafe { add_span_avx512(a, &panel, subsets, &mut sums) },
                _ => add_span(a, &panel, subsets, &mut sums),
            }
        }
        for (out, sums) in out.chunks_exact_mut(width).zip(sums.iter()) {
            out[first..first + lanes].copy_from_slice(&sums[..lanes]);
        }
    }
}

#[inline(always)]
fn plus(a: &Side, b: &Side) -> Side {
    std::array::from_fn(|i| a[i].wrapping_add(b[i]))
}

/// Adds the products of the columns from `start` on. `panel` has their numbers.
#[inline(always)]
fn add_span(
    (a, rows, start): (&BitMatrix, Range<usize>, usize),
    panel: &[Side],
    subsets: &mut [[Side; 1 << SUBSET]],
    sums: &mut [Side],
) {
    let (columns, _) = panel.as_chunks::<SUBSET>();
    for (subsets, columns) in subsets.iter_mut().zip(columns) {
        // Subset 0 is empty, and stays zero.
        for (k, column) in columns.iter().enumerate() {
            for subset in 0..1 << k {
                subsets[1 << k | subset] = plus(&subsets[subset], column);
            }
        }
    }
    for (row, sums) in rows.zip(sums) {
        let bits = (a.row(row)[start / 64] >> (start % 64)) as u32;
        let mut sum = *sums;
        for (i, subsets) in subsets.iter().enumerate() {
            sum = plus(
                &sum,
                &subsets[(bits >> (SUBSET * i)) as usize % (1 << SUBSET)],
            );
        }
        *sums = sum;
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw")]
fn add_span_avx512(
    a: (&BitMatrix, Range<usize>, usize),
    panel: &[Side],
    subsets: &mut [[Side; 1 << SUBSET]],
    sums: &mut [Side],
) {
    add_span(a, panel, subsets, sums);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn add_span_avx2(
    a: (&BitMatrix, Range<usize>, usize),
    panel: &[Side],
    subsets: &mut [[Side; 1 << SUBSET]],
    sums: &mut [Side],
) {
    add_span(a, panel, subsets, sums);
}

/// Adds the products of one strip, in blocks of R × C. If rows run out, the last row is taken again
/// and its products are dropped.
#[inline(always)]
fn blocks<const R: usize, const C: usize>(
    (a, rows_a): (&Matrix16, Range<usize>),
    (b, rows_b): (&Matrix16, Range<usize>),
    strip: usize,
    out: &mut [u16],
    block: impl Fn(&[&[u16]; R], &[&[u16]; C]) -> [[u16; C]; R],
) {
    let width = rows_b.len();
    let panels = (0..width).step_by(PANEL);
    for (panel, i) in panels.flat_map(|p| (0..rows_a.len()).step_by(R).map(move |i| (p, i))) {
        let row = |r: usize| (rows_a.start + i + r).min(rows_a.end - 1);
        let left = std::array::from_fn(|r| a.strip(row(r), strip));
        for j in (panel..width.min(panel + PANEL)).step_by(C) {
            let row = |c: usize| (rows_b.start + j + c).min(rows_b.end - 1);
            let right = std::array::from_fn(|c| b.strip(row(c), strip));
            let sums = block(&left, &right);
            for (r, sums) in sums.iter().enumerate().take(rows_a.len() - i) {
                let out = &mut out[(i + r) * width + j..(i + r + 1) * width];
                for (out, sum) in out.iter_mut().zip(sums) {
                    *out = out.wrapping_add(*sum);
                }
            }
        }
    }
}

fn portable<const R: usize, const C: usize>(a: &[&[u16]; R], b: &[&[u16]; C]) -> [[u16; C]; R] {
    a.map(|a| {
        b.map(|b| {
            let products = a.iter().zip(b).map(|(a, b)| a.wrapping_mul(*b));
            products.fold(0, u16::wrapping_add)
        })
    })
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
fn avx512(a: &[&[u16]; 4], b: &[&[u16]; 6]) -> [[u16; 6]; 4] {
    use std::arch::x86_64::*;
    let len = a[0].len();
    assert!(len.is_multiple_of(LANES));
    assert!(a.iter().all(|row| row.len() == len) && b.iter().all(|row| row.len() == len));
    let mut sums = [[_mm512_setzero_si512(); 6]; 4];
    for at in (0..len).step_by(LANES) {
        // SAFETY: every row has `len` numbers, and `at + 32 <= len`.
        unsafe {
            let left: [__m512i; 4] =
                std::array::from_fn(|r| _mm512_loadu_si512(a[r].as_ptr().add(at).cast()));
            for c in 0..6 {
                let right = _mm512_loadu_si512(b[c].as_ptr().add(at).cast());
                for r in 0..4 {
                    sums[r][c] = _mm512_dpwssd_epi32(sums[r][c], left[r], right);
                }
            }
        }
    }
    sums.map(|row| row.map(|sum| _mm512_reduce_add_epi32(sum) as u16))
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn avx2(a: &[&[u16]; 2], b: &[&[u16]; 4]) -> [[u16; 4]; 2] {
    use std::arch::x86_64::*;
    let len = a[0].len();
    assert!(len.is_multiple_of(16));
    assert!(a.iter().all(|row| row.len() == len) && b.iter().all(|row| row.len() == len));
    let mut sums = [[_mm256_setzero_si256(); 4]; 2];
    for at in (0..len).step_by(16) {
        // SAFETY: every row has `len` numbers, and `at + 16 <= len`.
        unsafe {
            let left: [__m256i; 2] =
                std::array::from_fn(|r| _mm256_loadu_si256(a[r].as_ptr().add(at).cast()));
            for c in 0..4 {
                let right = _mm256_loadu_si256(b[c].as_ptr().add(at).cast());
                for r in 0..2 {
                    sums[r][c] = _mm256_add_epi32(sums[r][c], _mm256_madd_epi16(left[r], right));
                }
            }
        }
    }
    sums.map(|row| {
        row.map(|sum| {
            let halves = _mm_add_epi32(
                _mm256_castsi256_si128(sum),
                _mm256_extracti128_si256::<1>(sum),
            );
            let pairs = _mm_add_epi32(halves, _mm_shuffle_epi32::<0b01_00_11_10>(halves));
            let sum = _mm_add_epi32(pairs, _mm_shuffle_epi32::<0b10_11_00_01>(pairs));
            _mm_cvtsi128_si32(sum) as u16
        })
    })
}

/// Sixteen sums, four rows and one of the others fill 21 of 32 registers.
#[cfg(target_arch = "aarch64")]
#[target_feature(enable = "neon")]
fn neon(a: &[&[u16]; 4], b: &[&[u16]; 4]) -> [[u16; 4]; 4] {
    use std::arch::aarch64::*;
    let len = a[0].len();
    assert!(len.is_multiple_of(8));
    assert!(a.iter().all(|row| row.len() == len) && b.iter().all(|row| row.len() == len));
    let mut sums = [[vdupq_n_u16(0); 4]; 4];
    for at in (0..len).step_by(8) {
        // SAFETY: every row has `len` numbers, and `at + 8 <= len`.
        unsafe {
            let left: [uint16x8_t; 4] = std::array::from_fn(|r| vld1q_u16(a[r].as_ptr().add(at)));
            for c in 0..4 {
                let right = vld1q_u16(b[c].as_ptr().add(at));
                for r in 0..4 {
                    sums[r][c] = vmlaq_u16(sums[r][c], left[r], right);
                }
            }
        }
    }
    let mut out = [[0; 4]; 4];
    for (out, sum) in out.as_flattened_mut().iter_mut().zip(sums.as_flattened()) {
        *out = vaddvq_u16(*sum);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prg::Prg;
    use proptest::prelude::*;

    fn random(rows: usize, columns: usize, seed: u8) -> Matrix16 {
        let mut prg = Prg::new(&[seed; 32]);
        let mut out = Matrix16::zero(rows, columns);
        for row in out.rows_mut() {
            row.iter_mut()
                .for_each(|value| *value = prg.next_u64() as u16);
        }
        out
    }

    fn naive(a: &Matrix16, b: &Matrix16) -> Vec<u16> {
        let product = |i: usize, j: usize| {
            let terms = a.row(i).iter().zip(b.row(j));
            terms
                .map(|(a, b)| u64::from(*a) * u64::from(*b))
                .sum::<u64>() as u16
        };
        (0..a.rows * b.rows)
            .map(|at| product(at / b.rows, at % b.rows))
            .collect()
    }

    proptest! {
        #[test]
        fn every_path_is_the_definition(
            rows in 0usize..12, others in 0usize..15, columns in 1usize..5000, seed: u8,
        ) {
            let (a, b) = (random(rows, columns, seed), random(others, columns, seed ^ 1));
            let expected = naive(&a, &b);
            for cpu in Cpu::all() {
                let mut out = vec![7; rows * others];
                products(cpu, &a, 0..rows, &b, 0..others, &mut out);
                prop_assert_eq!(&out, &expected, "{:?}", cpu.level());
                let mut part = vec![7; (rows / 2) * (others / 3)];
                products(cpu, &a, 0..rows / 2, &b, others - others / 3..others, &mut part);
                for (at, product) in part.iter().enumerate() {
                    let (i, j) = (at / (others / 3), others - others / 3 + at % (others / 3));
                    prop_assert_eq!(*product, expected[i * others + j]);
                }
            }
        }

        #[test]
        fn products_of_bits_are_those_of_their_numbers(
            rows in 0usize..2 * FEW_ROWS, others in 0usize..140, columns in 1usize..300, seed: u8,
        ) {
            let bits = crate::bits::tests::random(rows + 1, columns, seed);
            let (a, b) = (Matrix16::from_bits(&bits, 1..rows + 1), random(others, columns, seed));
            let mut expected = vec![0; rows * others];
            products(Cpu::portable(), &a, 0..rows, &b, 0..others, &mut expected);
            for cpu in Cpu::all() {
                let mut out = vec![7; rows * others];
                bit_products(cpu, &bits, 1..rows + 1, &b, 0..others, &mut out);
                prop_assert_eq!(&out, &expected, "{:?}", cpu.level());
                let mut part = vec![7; rows * (others / 3)];
                bit_products(cpu, &bits, 1..rows + 1, &b, others - others / 3..others, &mut part);
                for (at, product) in part.iter().enumerate() {
                    let (i, j) = (at / (others / 3), others - others / 3 + at % (others / 3));
                    prop_assert_eq!(*product, expected[i * others + j]);
                }
            }
        }

        #[test]
        fn products_of_bits_are_common_ones(rows in 0usize..9, columns in 1usize..300, seed: u8) {
            let mut prg = Prg::new(&[seed; 32]);
            let words = (0..rows * columns.div_ceil(64)).map(|_| prg.next_u64());
            let bits = BitMatrix::from_words(rows, columns, words.collect());
            let a = Matrix16::from_bits(&bits, 0..rows);
            let mut out = vec![0; rows * rows];
            products(Cpu::detect(), &a, 0..rows, &a, 0..rows, &mut out);
            for (at, product) in out.iter().enumerate() {
                let common = bits.row(at / rows).iter().zip(bits.row(at % rows));
                let common: u32 = common.map(|(a, b)| (a & b).count_ones()).sum();
                prop_assert_eq!(u32::from(*product), common);
            }
        }
    }

    /// Extreme values: lanes of 32 bits overflow, the lowest 16 bits stay right.
    #[test]
    fn the_largest_numbers() {
        for value in [u16::MAX, 1 << 15] {
            let mut a = Matrix16::zero(5, 65_535);
            a.rows_mut().for_each(|row| row.fill(value));
            let expected = naive(&a, &a);
            for cpu in Cpu::all() {
                let mut out = vec![0; 25];
                products(cpu, &a, 0..5, &a, 0..5, &mut out);
                assert_eq!(out, expected, "{:?}", cpu.level());
            }
        }
    }
}
