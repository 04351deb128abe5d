//! The loop of multiplication in AVX2. A register is half a digit, 26 bits, of four numbers. Tiles
//! and columns are as in AVX-512, but of half digits. A column holds at most 4·240 products of 52
//! bits: 62 bits.
#![allow(clippy::needless_range_loop, clippy::manual_memcpy)] // registers go by number

use std::arch::x86_64::*;
use std::mem::MaybeUninit;

use super::pass::{MOST, PRODUCTS, Sum};
use super::{RADIX, Row, TILE};

const _: () = assert!(TILE == 5, "tiles are written out");

/// Bits of half a digit.
const HALF: u32 = RADIX / 2;

/// Numbers in a register.
const LANES: usize = 4;

/// The half digits of four numbers.
type Number = [MaybeUninit<__m256i>; 2 * MOST];

/// The columns of two tiles.
type Columns = [__m256i; 2 * TILE];

#[inline(always)]
unsafe fn load(digits: *const __m256i) -> __m256i {
    // SAFETY: the caller promises the instructions, and half a digit to read.
    unsafe { _mm256_load_si256(digits) }
}

/// Splits the digits of lanes from `lane` on.
#[inline(always)]
unsafe fn split(rows: &[Row], lane: usize, out: &mut Number) {
    // SAFETY: the caller promises the instructions; a row has eight lanes, and there are at most
    // `MOST` rows.
    unsafe {
        let mask = _mm256_set1_epi64x((1 << HALF) - 1);
        for (i, row) in rows.iter().enumerate() {
            let digit = load(row.0.as_ptr().add(lane).cast());
            out[2 * i].write(_mm256_and_si256(digit, mask));
            out[2 * i + 1].write(_mm256_srli_epi64::<{ HALF as i32 }>(digit));
        }
    }
}

/// Joins two half digits and writes them to lanes from `lane` on.
#[inline(always)]
unsafe fn join(halves: [__m256i; 2], row: *mut Row, lane: usize) {
    // SAFETY: the caller promises the instructions, and a row to write.
    unsafe {
        let high = _mm256_slli_epi64::<{ HALF as i32 }>(halves[1]);
        let to = row.cast::<u64>().add(lane);
        _mm256_store_si256(to.cast(), _mm256_or_si256(halves[0], high));
    }
}

/// Adds the products of the half digits of two tiles.
#[inline(always)]
unsafe fn tile(columns: &mut Columns, a: *const __m256i, b: *const __m256i) {
    // SAFETY: the caller promises the instructions, and tiles to read.
    unsafe {
        // Written out, so that columns do not go through memory.
        row::<0>(columns, a, b);
        row::<1>(columns, a, b);
        row::<2>(columns, a, b);
        row::<3>(columns, a, b);
        row::<4>(columns, a, b);
    }
}

/// Adds the products of half digit I of `a`.
#[inline(always)]
unsafe fn row<const I: usize>(columns: &mut Columns, a: *const __m256i, b: *const __m256i) {
    // SAFETY: the caller promises the instructions, and tiles to read.
    unsafe {
        let left = load(a.add(I));
        for j in 0..TILE {
            let product = _mm256_mul_epu32(left, load(b.add(j)));
            columns[I + j] = _mm256_add_epi64(columns[I + j], product);
        }
    }
}

/// Adds all tiles of `a` times tiles of `b` that fall on column tile `c`, of `tiles`.
#[inline(always)]
unsafe fn tiles_of(
    columns: &mut Columns,
    a: *const __m256i,
    b: *const __m256i,
    c: usize,
    tiles: usize,
) {
    // SAFETY: both are tiles of numbers of `tiles` tiles; otherwise as the caller promises.
    unsafe {
        for i in (c + 1).saturating_sub(tiles)..tiles.min(c + 1) {
            tile(columns, a.add(TILE * i), b.add(TILE * (c - i)));
        }
    }
}

/// The same for a square: tiles off the diagonal once, and doubled.
#[inline(always)]
unsafe fn tiles_of_square(columns: &mut Columns, a: *const __m256i, c: usize, tiles: usize) {
    // SAFETY: both are tiles of a number of `tiles` tiles; otherwise as the caller promises.
    unsafe {
        for i in (c + 1).saturating_sub(tiles)..c.div_ceil(2) {
            tile(columns, a.add(TILE * i), a.add(TILE * (c - i)));
        }
        for i in 0..2 * TILE {
            columns[i] = _mm256_add_epi64(columns[i], columns[i]);
        }
        if c.is_multiple_of(2) {
            let middle = a.add(TILE * (c / 2));
            tile(columns, middle, middle);
        }
    }
}

/// Adds the multiple of the modulus that makes the first columns zero; stores its half digits.
#[inline(always)]
unsafe fn cancel(
    columns: &mut Columns,
    m: *const __m256i,
    inverse: __m256i,
    quotient: *mut __m256i,
) {
    // SAFETY: the caller promises the instructions, a tile to read and one to write.
    unsafe {
        let mask = _mm256_set1_epi64x((1 << HALF) - 1);
        for i in 0..TILE {
            let q = _mm256_and_si256(_mm256_mul_epu32(columns[i], inverse), mask);
            _mm256_store_si256(quotient.add(i), q);
            for j in 0..TILE {
                let product = _mm256_mul_epu32(q, load(m.add(j)));
                columns[i + j] = _mm256_add_epi64(columns[i + j], product);
            }
            let carry = _mm256_srli_epi64::<{ HALF as i32 }>(columns[i]);
            columns[i + 1] = _mm256_add_epi64(columns[i + 1], carry);
        }
    }
}

/// Stores the half digits of finished columns. Their carries go to the next columns.
#[inline(always)]
unsafe fn digits(columns: &mut Columns, out: *mut __m256i) {
    // SAFETY: the caller promises the instructions, and a tile to write.
    unsafe {
        let mask = _mm256_set1_epi64x((1 << HALF) - 1);
        for i in 0..TILE {
            _mm256_store_si256(out.add(i), _mm256_and_si256(columns[i], mask));
            let carry = _mm256_srli_epi64::<{ HALF as i32 }>(columns[i]);
            columns[i + 1] = _mm256_add_epi64(columns[i + 1], carry);
        }
    }
}

/// As [`super::pass::reduce`].
///
/// # Safety
/// All numbers have the same number of digits, whole tiles, at most `MOST`.
#[target_feature(enable = "avx2")]
pub(super) unsafe fn reduce(
    sum: Sum<'_>,
    modulus: &[Row],
    inverse: &Row,
    quotient: &mut [Row],
    out: &mut [Row],
) {
    let tiles = 2 * modulus.len() / TILE;
    let none: Number = [const { MaybeUninit::uninit() }; 2 * MOST];
    // SAFETY: the caller promises lengths, and the attribute the instructions. Half digits are
    // split or computed before they are read.
    unsafe {
        let mask = _mm256_set1_epi64x((1 << HALF) - 1);
        let zero = [_mm256_setzero_si256(); TILE];
        for lane in [0, LANES] {
            let mut m = none;
            split(modulus, lane, &mut m);
            let m: *const __m256i = m.as_ptr().cast();
            // Half digits of the inverse: the lowest is the inverse modulo 2^26.
            let inverse = load(inverse.0.as_ptr().add(lane).cast());
            let inverse = _mm256_and_si256(inverse, mask);
            let mut factors = [[none; 2]; PRODUCTS];
            let mut same = [false; PRODUCTS];
            for (i, (a, b)) in sum.products.iter().enumerate() {
                split(a, lane, &mut factors[i][0]);
                same[i] = std::ptr::eq(*a, *b);
                if !same[i] {
                    split(b, lane, &mut factors[i][1]);
                }
            }
            let (mut earlier, mut constant) = (none, none);
            if let Some(rows) = sum.less_quotient {
                split(quotient, lane, &mut earlier);
                split(rows, lane, &mut constant);
            }
            let (mut q, mut result) = (none, none);
            let q: *mut __m256i = q.as_mut_ptr().cast();
            let result: *mut __m256i = result.as_mut_ptr().cast();
            let mut carried = zero;
            for c in 0..2 * tiles {
                let mut columns = [_mm256_setzero_si256(); 2 * TILE];
                for i in 0..sum.products.len() {
                    let [a, b] = &factors[i];
                    let (a, b) = (a.as_ptr().cast(), b.as_ptr().cast());
                    if same[i] {
                        tiles_of_square(&mut columns, a, c, tiles)
                    } else {
                        tiles_of(&mut columns, a, b, c, tiles)
                    }
                }
                for i in (c + 1).saturating_sub(tiles)..tiles.min(c) {
                    tile(&mut columns, q.add(TILE * i), m.add(TILE * (c - i)));
                }
                for i in 0..TILE {
                    columns[i] = _mm256_add_epi64(columns[i], carried[i]);
                }
                if c < tiles {
                    if sum.less_quotient.is_some() {
                        for i in 0..TILE {
                            let of = |number: &Number| number[TILE * c + i].assume_init();
                            let complement = _mm256_sub_epi64(mask, of(&earlier));
                            let added = _mm256_add_epi64(complement, of(&constant));
                            columns[i] = _mm256_add_epi64(columns[i], added);
                        }
                    }
                    cancel(&mut columns, m, inverse, q.add(TILE * c));
                } else {
                    digits(&mut columns, result.add(TILE * (c - tiles)));
                }
                for i in 0..TILE {
                    carried[i] = columns[TILE + i];
                }
            }
            for (from, rows) in [(q, &mut *quotient), (result, &mut *out)] {
                for (i, row) in rows.iter_mut().enumerate() {
                    join(
                        [load(from.add(2 * i)), load(from.add(2 * i + 1))],
                        row,
                        lane,
                    );
                }
            }
        }
    }
}

/// As [`super::look_up::shared`].
#[target_feature(enable = "avx2")]
pub(super) fn shared(table: &[Row], index: &Row, out: &mut [Row]) {
    super::look_up::shared_by_masks(table, index, out);
}

/// As [`super::look_up::own`].
#[target_feature(enable = "avx2")]
pub(super) fn own(table: &[Row], index: &Row, out: &mut [Row]) {
    super::look_up::own_by_masks(table, index, out);
}
