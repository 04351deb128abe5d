//! The loop of multiplication in AVX-512 IFMA: a register is a digit of eight numbers.
//!
//! The loop goes column tile by column tile. The columns of `TILE` digits and of the next `TILE`
//! digits stay in registers while all tiles of `TILE`×`TILE` digit products that fall there are
//! added. A column holds at most 2·4·120 halves of products, 52 bits each: 62 bits.
#![allow(clippy::needless_range_loop, clippy::manual_memcpy)] // registers go by number

use std::arch::x86_64::*;

use super::pass::Sum;
use super::{MASK, RADIX, Row, TILE};

/// The columns of two tiles.
type Columns = [__m512i; 2 * TILE];

#[inline(always)]
unsafe fn load(row: *const Row) -> __m512i {
    // SAFETY: the caller promises the instructions, and a row to read.
    unsafe { _mm512_load_si512(row.cast()) }
}

#[inline(always)]
unsafe fn store(row: *mut Row, digits: __m512i) {
    // SAFETY: the caller promises the instructions, and a row to write.
    unsafe { _mm512_store_si512(row.cast(), digits) }
}

/// Adds the products of the digits of two tiles.
#[inline(always)]
unsafe fn tile(columns: &mut Columns, a: *const Row, b: *const Row) {
    // SAFETY: the caller promises the instructions, and tiles to read.
    unsafe {
        let mut right = [_mm512_setzero_si512(); TILE];
        for j in 0..TILE {
            right[j] = load(b.add(j));
        }
        for i in 0..TILE {
            let left = load(a.add(i));
            for j in 0..TILE {
                columns[i + j] = _mm512_madd52lo_epu64(columns[i + j], left, right[j]);
            }
            for j in 0..TILE {
                columns[i + j + 1] = _mm512_madd52hi_epu64(columns[i + j + 1], left, right[j]);
            }
        }
    }
}

/// Adds all tiles of `a` times tiles of `b` that fall on column tile `c`, of `tiles`.
#[inline(always)]
unsafe fn tiles_of(columns: &mut Columns, a: *const Row, b: *const Row, c: usize, tiles: usize) {
    // SAFETY: both are tiles of numbers of `tiles` tiles; otherwise as the caller promises.
    unsafe {
        for i in (c + 1).saturating_sub(tiles)..tiles.min(c + 1) {
            tile(columns, a.add(TILE * i), b.add(TILE * (c - i)));
        }
    }
}

/// The same for a square: tiles off the diagonal once, and doubled.
#[inline(always)]
unsafe fn tiles_of_square(columns: &mut Columns, a: *const Row, c: usize, tiles: usize) {
    // SAFETY: both are tiles of a number of `tiles` tiles; otherwise as the caller promises.
    unsafe {
        for i in (c + 1).saturating_sub(tiles)..c.div_ceil(2) {
            tile(columns, a.add(TILE * i), a.add(TILE * (c - i)));
        }
        for i in 0..2 * TILE {
            columns[i] = _mm512_add_epi64(columns[i], columns[i]);
        }
        if c.is_multiple_of(2) {
            let middle = a.add(TILE * (c / 2));
            tile(columns, middle, middle);
        }
    }
}

/// Stores the digits of finished columns. Their carries go to the next columns.
#[inline(always)]
unsafe fn digits(columns: &mut Columns, out: *mut Row) {
    // SAFETY: the caller promises the instructions, and a tile to write.
    unsafe {
        let mask = _mm512_set1_epi64(MASK as i64);
        for i in 0..TILE {
            store(out.add(i), _mm512_and_si512(columns[i], mask));
            let carry = _mm512_srli_epi64::<RADIX>(columns[i]);
            columns[i + 1] = _mm512_add_epi64(columns[i + 1], carry);
        }
    }
}

/// As [`super::pass::reduce`].
///
/// # Safety
/// All numbers have the same number of digits, whole tiles.
#[target_feature(enable = "avx512f,avx512dq,avx512ifma")]
pub(super) unsafe fn reduce(
    sum: Sum<'_>,
    modulus: &[Row],
    inverse: &Row,
    quotient: &mut [Row],
    out: &mut [Row],
) {
    let tiles = modulus.len() / TILE;
    let (m, q, out) = (modulus.as_ptr(), quotient.as_mut_ptr(), out.as_mut_ptr());
    // SAFETY: the caller promises lengths, and the attribute the instructions.
    unsafe {
        let mask = _mm512_set1_epi64(MASK as i64);
        let inverse = load(inverse);
        let mut carried = [_mm512_setzero_si512(); TILE];
        for c in 0..2 * tiles {
            let mut columns = [_mm512_setzero_si512(); 2 * TILE];
            for (a, b) in sum.products {
                if std::ptr::eq(*a, *b) {
                    tiles_of_square(&mut columns, a.as_ptr(), c, tiles)
                } else {
                    tiles_of(&mut columns, a.as_ptr(), b.as_ptr(), c, tiles)
                }
            }
            for i in (c + 1).saturating_sub(tiles)..tiles.min(c) {
                tile(&mut columns, q.add(TILE * i), m.add(TILE * (c - i)));
            }
            for i in 0..TILE {
                columns[i] = _mm512_add_epi64(columns[i], carried[i]);
            }
            if c < tiles {
                if let Some(constant) = sum.less_quotient {
                    for i in 0..TILE {
                        let complement = _mm512_sub_epi64(mask, load(q.add(TILE * c + i)));
                        let added =
                            _mm512_add_epi64(complement, load(constant.as_ptr().add(TILE * c + i)));
                        columns[i] = _mm512_add_epi64(columns[i], added);
                    }
                }
                cancel(&mut columns, m, inverse, q.add(TILE * c));
            } else {
                digits(&mut columns, out.add(TILE * (c - tiles)));
            }
            for i in 0..TILE {
                carried[i] = columns[TILE + i];
            }
        }
    }
}

/// Adds the multiple of the modulus that makes the first columns zero; stores its digits.
#[inline(always)]
unsafe fn cancel(columns: &mut Columns, modulus: *const Row, inverse: __m512i, quotient: *mut Row) {
    // SAFETY: the caller promises the instructions, a tile to read and one to write.
    unsafe {
        let mut m = [_mm512_setzero_si512(); TILE];
        for j in 0..TILE {
            m[j] = load(modulus.add(j));
        }
        for i in 0..TILE {
            let q = _mm512_madd52lo_epu64(_mm512_setzero_si512(), columns[i], inverse);
            store(quotient.add(i), q);
            for j in 1..TILE {
                columns[i + j] = _mm512_madd52lo_epu64(columns[i + j], q, m[j]);
            }
            for j in 0..TILE {
                columns[i + j + 1] = _mm512_madd52hi_epu64(columns[i + j + 1], q, m[j]);
            }
            let zero = _mm512_madd52lo_epu64(columns[i], q, m[0]);
            let carry = _mm512_srli_epi64::<RADIX>(zero);
            columns[i + 1] = _mm512_add_epi64(columns[i + 1], carry);
        }
    }
}

/// As [`super::pass::product`].
///
/// # Safety
/// `a`, `b` and `c` have the same number of digits, whole tiles, and `out` has twice that number.
#[target_feature(enable = "avx512f,avx512dq,avx512ifma")]
pub(super) unsafe fn product(a: &[Row], b: &[Row], c: &[Row], out: &mut [Row]) {
    let tiles = a.len() / TILE;
    // SAFETY: the caller promises lengths, and the attribute the instructions.
    unsafe {
        let mut carried = [_mm512_setzero_si512(); TILE];
        for t in 0..2 * tiles {
            let mut columns = [_mm512_setzero_si512(); 2 * TILE];
            tiles_of(&mut columns, a.as_ptr(), b.as_ptr(), t, tiles);
            for i in 0..TILE {
                columns[i] = _mm512_add_epi64(columns[i], carried[i]);
                if t < tiles {
                    columns[i] = _mm512_add_epi64(columns[i], load(c.as_ptr().add(TILE * t + i)));
                }
            }
            digits(&mut columns, out.as_mut_ptr().add(TILE * t));
            for i in 0..TILE {
                carried[i] = columns[TILE + i];
            }
        }
    }
}

/// Adds to `out` the entries of the table's chunks `from..` for each lane: see
/// [`super::look_up::shared`].
///
/// # Safety
/// `table` has `chunks` times as many rows as `out`.
#[target_feature(enable = "avx512f,avx512dq,avx512ifma")]
pub(super) unsafe fn shared(table: &[Row], index: &Row, out: &mut [Row]) {
    let rows = out.len();
    let chunks = table.len() / rows;
    // SAFETY: the caller promises lengths, and the attribute the instructions.
    unsafe {
        let index = load(index);
        let chunk = _mm512_srli_epi64::<3>(index);
        for first in (0..chunks).step_by(4) {
            let mut here = [0; 4];
            for i in 0..4 {
                let number = _mm512_set1_epi64((first + i) as i64);
                here[i] = _mm512_cmpeq_epi64_mask(chunk, number);
            }
            let count = (chunks - first).min(4);
            let entries = table.as_ptr().add(first * rows);
            for row in 0..rows {
                let mut found = load(out.as_ptr().add(row));
                if count == 4 {
                    for i in 0..4 {
                        let entry = load(entries.add(i * rows + row));
                        found = _mm512_mask_permutexvar_epi64(found, here[i], index, entry);
                    }
                } else {
                    for i in 0..count {
                        let entry = load(entries.add(i * rows + row));
                        found = _mm512_mask_permutexvar_epi64(found, here[i], index, entry);
                    }
                }
                store(out.as_mut_ptr().add(row), found);
            }
        }
    }
}

/// See [`super::look_up::own`].
///
/// # Safety
/// The number of rows of `table` is a multiple of four times that of `out`.
#[target_feature(enable = "avx512f,avx512dq,avx512ifma")]
pub(super) unsafe fn own(table: &[Row], index: &Row, out: &mut [Row]) {
    let rows = out.len();
    let entries = table.len() / rows;
    // SAFETY: the caller promises lengths, and the attribute the instructions.
    unsafe {
        let index = load(index);
        for first in (0..entries).step_by(4) {
            let mut here = [0; 4];
            for i in 0..4 {
                let number = _mm512_set1_epi64((first + i) as i64);
                here[i] = _mm512_cmpeq_epi64_mask(index, number);
            }
            let entries = table.as_ptr().add(first * rows);
            for row in 0..rows {
                let mut found = load(out.as_ptr().add(row));
                for i in 0..4 {
                    let entry = load(entries.add(i * rows + row));
                    found = _mm512_mask_mov_epi64(found, here[i], entry);
                }
                store(out.as_mut_ptr().add(row), found);
            }
        }
    }
}
