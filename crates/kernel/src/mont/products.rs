//! Multi-products: for every row of bits, the product of the bases whose bit is set.
//!
//! Bases go in groups of g. The products of all 2^g subsets of a group are computed once. Each row
//! multiplies by the product that it needs, looked up in constant time. Tables are used one at a
//! time, so that they stay in the cache.

use std::ops::Range;

use rayon::prelude::*;
use zeroize::Zeroizing;

use super::power::subsets;
use super::{LANES, Number, Ring, Row, look_up, number};
use crate::BitMatrix;
use crate::cpu::Level;

/// Smallest and largest group.
const GROUPS: Range<usize> = 3..11;

/// `Π bases[l]` over the bits l that are set, for each row in `rows` of `codes`. Base l is lane l
/// mod 8 of residue l / 8, and products have the same layout. All lanes of the ring have the same
/// modulus.
///
/// # Panics
/// When the number of bases is not that of the columns, or a row does not exist.
pub fn products<R: Ring>(ring: &R, bases: &[Row], codes: &BitMatrix, rows: Range<usize>) -> Number {
    let (len, bits) = (ring.rows(), codes.columns());
    assert_eq!(bases.len(), bits.div_ceil(LANES) * len, "bases");
    assert!(rows.end <= codes.rows(), "rows");
    let batches = rows.len().div_ceil(LANES);
    if batches == 0 {
        return Number::default();
    }
    let size = group(ring, rows.len(), bits);
    let groups = bits.div_ceil(size);
    // At most one part for each thread. Each has products of its own, which are multiplied at the
    // end.
    let part = groups.div_ceil(rayon::current_num_threads()).max(1);
    let parts: Vec<usize> = (0..groups).step_by(part).collect();
    let parts = parts.into_par_iter().map(|first| {
        let mut out = Zeroizing::new(ring.one().repeat(batches));
        for group in first..groups.min(first + part) {
            let of = size * group..bits.min(size * (group + 1));
            multiply_group(ring, bases, codes, rows.clone(), of, &mut out);
        }
        out
    });
    let multiply = |a: Number, b: Number| {
        let mut out = Zeroizing::new(vec![Row::ZERO; a.len()]);
        let pairs = a.chunks_exact(len).zip(b.chunks_exact(len));
        let all = pairs.zip(out.chunks_exact_mut(len));
        all.for_each(|((a, b), out)| ring.multiply(a, b, out));
        out
    };
    let whole = parts.reduce_with(multiply);
    whole.unwrap_or_else(|| Zeroizing::new(ring.one().repeat(batches)))
}

/// Multiplies every row's product by the product of its bases in one group.
fn multiply_group<R: Ring>(
    ring: &R,
    bases: &[Row],
    codes: &BitMatrix,
    rows: Range<usize>,
    of: Range<usize>,
    out: &mut [Row],
) {
    let len = ring.rows();
    let mut group: Vec<_> = of
        .clone()
        .map(|l| {
            let residue = &bases[l / LANES * len..][..len];
            number::spread(residue, l % LANES)
        })
        .collect();
    group.resize_with(of.len().max(GROUPS.start), || ring.one());
    let table = subsets(ring, &group);
    let mut factor = Zeroizing::new(vec![Row::ZERO; len]);
    let mut next = Zeroizing::new(vec![Row::ZERO; len]);
    for (batch, out) in out.chunks_exact_mut(len).enumerate() {
        let mut index = Row::ZERO;
        let first = rows.start + LANES * batch;
        for (row, index) in (first..rows.end).zip(&mut index.0) {
            *index = bits_of(codes.row(row), of.clone());
        }
        look_up::shared(ring.cpu(), &table, &index, &mut factor);
        ring.multiply(out, &factor, &mut next);
        out.copy_from_slice(&next);
    }
}

/// Bits of a row, as a number.
fn bits_of(row: &[u64], of: Range<usize>) -> u64 {
    let (word, shift) = (of.start / 64, of.start % 64);
    let both = u128::from(row[word]) | u128::from(row.get(word + 1).copied().unwrap_or(0)) << 64;
    (both >> shift) as u64 & ((1 << of.len()) - 1)
}

/// The group size with the lowest cost: multiplications for the table, then one multiplication and
/// a look-up for every eight rows.
fn group<R: Ring>(ring: &R, rows: usize, bits: usize) -> usize {
    // The cost of reading eight entries, in thousandths of a multiplication.
    let chunk = match ring.cpu().level() {
        Level::Avx512 => 8,
        _ => 45,
    };
    let cost = |size: &usize| {
        let chunks = 1 << (size - 3);
        let table = 1000 * (chunks + 1);
        bits.div_ceil(*size) * (table + rows.div_ceil(LANES) * (1000 + chunk * chunks))
    };
    GROUPS.min_by_key(cost).unwrap_or(GROUPS.start)
}
