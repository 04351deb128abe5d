//! Eight plain numbers: rows from bytes, bytes from rows, and operations without a modulus.

#![allow(clippy::needless_range_loop)] // lanes go by number

use zeroize::Zeroizing;

use super::{LANES, MASK, Number, RADIX, Row, TILE};
use crate::cpu::Cpu;

/// Rows of numbers of `bits` bits.
pub fn rows(bits: usize) -> usize {
    bits.div_ceil(RADIX as usize).next_multiple_of(TILE)
}

/// Writes a number, little-endian, to a lane. Higher rows become zero.
///
/// # Panics
/// When the number is too long for the rows.
pub fn set(rows: &mut [Row], lane: usize, bytes: &[u8]) {
    let mut bytes = bytes.iter();
    let (mut buffer, mut bits) = (0u128, 0);
    for row in rows {
        while bits < RADIX
            && let Some(byte) = bytes.next()
        {
            buffer |= u128::from(*byte) << bits;
            bits += 8;
        }
        row.0[lane] = buffer as u64 & MASK;
        buffer >>= RADIX;
        bits = bits.saturating_sub(RADIX);
    }
    let beyond = bytes.fold(buffer as u64, |all, byte| all | u64::from(*byte));
    assert_eq!(beyond, 0, "a number longer than its rows");
}

/// Reads the lowest `bytes.len()` bytes of a lane, little-endian.
pub fn get(rows: &[Row], lane: usize, bytes: &mut [u8]) {
    let (mut rows, mut buffer, mut bits) = (rows.iter(), 0u128, 0);
    for byte in bytes {
        if bits < 8 {
            let digit = rows.next().map_or(0, |row| row.0[lane]);
            buffer |= u128::from(digit) << bits;
            bits += RADIX;
        }
        *byte = buffer as u8;
        buffer >>= 8;
        bits -= 8;
    }
}

/// The same number in every lane.
pub fn splat(bytes: &[u8], count: usize) -> Number {
    let mut out = Zeroizing::new(vec![Row::ZERO; count]);
    (0..LANES).for_each(|lane| set(&mut out, lane, bytes));
    out
}

/// The number of one lane, copied to every lane.
pub fn spread(rows: &[Row], lane: usize) -> Number {
    Zeroizing::new(rows.iter().map(|row| Row::splat(row.0[lane])).collect())
}

/// `a·b + c`, in twice the number of rows.
///
/// # Panics
/// When their numbers of rows differ, or are not whole tiles up to 120.
pub fn multiply_add(a: &[Row], b: &[Row], c: &[Row]) -> Number {
    let mut out = Zeroizing::new(vec![Row::ZERO; 2 * a.len()]);
    super::pass::product(Cpu::detect(), a, b, c, &mut out);
    out
}

/// `width` bits of each number, from bit `at` on. `width` is at most 52.
pub fn window(rows: &[Row], at: usize, width: usize) -> Row {
    let (row, shift) = (at / RADIX as usize, at % RADIX as usize);
    let mut out = rows.get(row).copied().unwrap_or_default();
    let next = rows.get(row + 1).copied().unwrap_or_default();
    for (low, high) in out.0.iter_mut().zip(next.0) {
        let both = u128::from(*low) | u128::from(high) << RADIX;
        *low = (both >> shift) as u64 & ((1 << width) - 1);
    }
    out
}

/// `a − b` where `a ≥ b`, `a` elsewhere. Returns all ones where it subtracted. In constant time.
pub(super) fn subtract_if_possible(a: &mut [Row], b: &[Row]) -> Row {
    let mut borrow = [0u64; LANES];
    for (a, b) in a.iter().zip(b) {
        for lane in 0..LANES {
            let difference = a.0[lane].wrapping_sub(b.0[lane]).wrapping_sub(borrow[lane]);
            borrow[lane] = difference >> 63;
        }
    }
    let taken = Row(borrow.map(|borrow| borrow.wrapping_sub(1)));
    let mut borrow = [0u64; LANES];
    for (a, b) in a.iter_mut().zip(b) {
        for lane in 0..LANES {
            let b = b.0[lane] & taken.0[lane];
            let difference = a.0[lane].wrapping_sub(b).wrapping_sub(borrow[lane]);
            a.0[lane] = difference & MASK;
            borrow[lane] = difference >> 63;
        }
    }
    taken
}

/// `a + b`, which must fit.
pub(super) fn add(a: &mut [Row], b: &[Row]) {
    let mut carry = [0u64; LANES];
    for (a, b) in a.iter_mut().zip(b) {
        for lane in 0..LANES {
            let sum = a.0[lane] + b.0[lane] + carry[lane];
            a.0[lane] = sum & MASK;
            carry[lane] = sum >> RADIX;
        }
    }
}

/// `a + bit`, which must fit.
pub(super) fn increment(a: &mut [Row], bit: Row) {
    let mut carry = bit.0;
    for a in a {
        for lane in 0..LANES {
            let sum = a.0[lane] + carry[lane];
            a.0[lane] = sum & MASK;
            carry[lane] = sum >> RADIX;
        }
    }
}

/// `a − 1`, for numbers that are not zero.
pub(super) fn decrement(a: &mut [Row]) {
    let mut borrow = [1u64; LANES];
    for a in a {
        for lane in 0..LANES {
            let difference = a.0[lane].wrapping_sub(borrow[lane]);
            a.0[lane] = difference & MASK;
            borrow[lane] = difference >> 63;
        }
    }
}

/// Ones where two numbers differ.
pub fn differs(a: &[Row], b: &[Row]) -> Row {
    let mut out = Row::ZERO;
    for (a, b) in a.iter().zip(b) {
        for lane in 0..LANES {
            out.0[lane] |= a.0[lane] ^ b.0[lane];
        }
    }
    Row(out.0.map(|any| (any | any.wrapping_neg()) >> 63))
}

/// Whether all numbers have at most `bits` bits.
pub(super) fn fits(rows: &[Row], bits: usize) -> bool {
    let beyond = rows.iter().enumerate().fold(0, |all, (i, row)| {
        let kept = bits.saturating_sub(i * RADIX as usize).min(RADIX as usize);
        row.0.iter().fold(all, |all, digit| all | digit >> kept)
    });
    beyond == 0
}
