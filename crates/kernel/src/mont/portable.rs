//! The loop of multiplication in 64-bit registers, one lane at a time, tile by tile as in AVX-512.
#![allow(clippy::needless_range_loop)] // digits go by number

use super::pass::{MOST, PRODUCTS, Sum};
use super::{LANES, MASK, RADIX, Row, TILE};

type Digits = [u64; TILE];

/// The columns of two tiles: sums of products of digits, below 2^114.
type Columns = [u128; 2 * TILE];

/// The digits of one lane, tile by tile.
type Lane = [Digits; MOST / TILE];

const ZERO: Lane = [[0; TILE]; MOST / TILE];

/// The digits of one lane. They replace the first ones of `out`.
fn take(out: &mut Lane, rows: &[Row], lane: usize) {
    for (digit, row) in out.as_flattened_mut().iter_mut().zip(rows) {
        *digit = row.0[lane];
    }
}

/// Adds the products of the digits of two tiles.
#[inline(always)]
fn tile(columns: &mut Columns, a: &Digits, b: &Digits) {
    for c in 0..2 * TILE - 1 {
        for i in 0..TILE {
            if c >= i && c - i < TILE {
                columns[c] += u128::from(a[i]) * u128::from(b[c - i]);
            }
        }
    }
}

/// Adds all tiles of `a` times tiles of `b` that fall on column tile `c`, of `tiles`.
#[inline(always)]
fn tiles_of(columns: &mut Columns, a: &Lane, b: &Lane, c: usize, tiles: usize) {
    for i in (c + 1).saturating_sub(tiles)..tiles.min(c + 1) {
        tile(columns, &a[i], &b[c - i]);
    }
}

/// The same for a square: tiles off the diagonal once, and doubled.
#[inline(always)]
fn tiles_of_square(columns: &mut Columns, a: &Lane, c: usize, tiles: usize) {
    for i in (c + 1).saturating_sub(tiles)..c.div_ceil(2) {
        tile(columns, &a[i], &a[c - i]);
    }
    for column in &mut *columns {
        *column *= 2;
    }
    if c.is_multiple_of(2) {
        tile(columns, &a[c / 2], &a[c / 2]);
    }
}

/// The digits of finished columns. Their carries go to the next columns.
#[inline(always)]
fn digits(columns: &mut Columns) -> Digits {
    let mut out = [0; TILE];
    for i in 0..TILE {
        out[i] = columns[i] as u64 & MASK;
        columns[i + 1] += columns[i] >> RADIX;
    }
    out
}

/// Adds the multiple of the modulus that makes the first columns zero. Returns its digits.
#[inline(always)]
fn cancel(columns: &mut Columns, m: &Digits, inverse: u64) -> Digits {
    let mut out = [0; TILE];
    for i in 0..TILE {
        let q = (columns[i] as u64).wrapping_mul(inverse) & MASK;
        for j in 0..TILE {
            columns[i + j] += u128::from(q) * u128::from(m[j]);
        }
        columns[i + 1] += columns[i] >> RADIX;
        out[i] = q;
    }
    out
}

/// As [`super::pass::reduce`].
pub(super) fn reduce(
    sum: Sum<'_>,
    modulus: &[Row],
    inverse: &Row,
    quotient: &mut [Row],
    out: &mut [Row],
) {
    let tiles = modulus.len() / TILE;
    let mut m = ZERO;
    let mut q = ZERO;
    let mut factors = [[ZERO; 2]; PRODUCTS];
    for lane in 0..LANES {
        take(&mut m, modulus, lane);
        for ([left, right], (a, b)) in factors.iter_mut().zip(sum.products) {
            take(left, a, lane);
            take(right, b, lane);
        }
        let mut carried = [0; TILE];
        for c in 0..2 * tiles {
            let mut columns = [0; 2 * TILE];
            for ([left, right], (a, b)) in factors.iter().zip(sum.products) {
                if std::ptr::eq(*a, *b) {
                    tiles_of_square(&mut columns, left, c, tiles);
                } else {
                    tiles_of(&mut columns, left, right, c, tiles);
                }
            }
            for i in (c + 1).saturating_sub(tiles)..tiles.min(c) {
                tile(&mut columns, &q[i], &m[c - i]);
            }
            for i in 0..TILE {
                columns[i] += carried[i];
            }
            let rows = TILE * (c % tiles)..TILE * (c % tiles + 1);
            if c < tiles {
                let quotient = &mut quotient[rows.clone()];
                if let Some(constant) = sum.less_quotient {
                    for (i, constant) in constant[rows].iter().enumerate() {
                        let complement = MASK - quotient[i].0[lane];
                        columns[i] += u128::from(complement + constant.0[lane]);
                    }
                }
                q[c] = cancel(&mut columns, &m[0], inverse.0[lane]);
                let both = quotient.iter_mut().zip(q[c]);
                both.for_each(|(row, digit)| row.0[lane] = digit);
            } else {
                let both = out[rows].iter_mut().zip(digits(&mut columns));
                both.for_each(|(row, digit)| row.0[lane] = digit);
            }
            carried.copy_from_slice(&columns[TILE..]);
        }
    }
}

/// As [`super::pass::product`].
pub(super) fn product(a: &[Row], b: &[Row], c: &[Row], out: &mut [Row]) {
    let tiles = a.len() / TILE;
    let [mut left, mut right, mut term] = [ZERO; 3];
    for lane in 0..LANES {
        take(&mut left, a, lane);
        take(&mut right, b, lane);
        take(&mut term, c, lane);
        let mut carried = [0; TILE];
        for (t, out) in out.chunks_exact_mut(TILE).enumerate() {
            let mut columns = [0; 2 * TILE];
            tiles_of(&mut columns, &left, &right, t, tiles);
            let term = if t < tiles { term[t] } else { [0; TILE] };
            for i in 0..TILE {
                columns[i] += carried[i] + u128::from(term[i]);
            }
            let both = out.iter_mut().zip(digits(&mut columns));
            both.for_each(|(row, digit)| row.0[lane] = digit);
            carried.copy_from_slice(&columns[TILE..]);
        }
    }
}
