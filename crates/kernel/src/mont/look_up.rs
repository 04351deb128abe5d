//! Look-ups in constant time: they read all entries of a table and keep one.

use std::hint::black_box;

use super::{LANES, Row};
use crate::cpu::Cpu;
#[cfg(target_arch = "x86_64")]
use crate::cpu::Level;

/// From a table that all lanes share. Lane i of a row of chunk c is a digit of entry 8c + i. Writes
/// entry `index[l]`, which must exist, to lane l.
pub(super) fn shared(cpu: Cpu, table: &[Row], index: &Row, out: &mut [Row]) {
    assert!(table.len().is_multiple_of(out.len()));
    out.fill(Row::ZERO);
    match cpu.level() {
        // SAFETY: `Cpu` proves the features, and the length is checked.
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => unsafe { super::ifma::shared(table, index, out) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => unsafe { super::avx2::shared(table, index, out) },
        _ => shared_by_masks(table, index, out),
    }
}

/// From a table for each lane: entry after entry, their number a multiple of four. Writes entry
/// `index[l]` of lane l's table to lane l.
pub(super) fn own(cpu: Cpu, table: &[Row], index: &Row, out: &mut [Row]) {
    assert!(table.len().is_multiple_of(4 * out.len()));
    out.fill(Row::ZERO);
    match cpu.level() {
        // SAFETY: `Cpu` proves the features, and the length is checked.
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => unsafe { super::ifma::own(table, index, out) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => unsafe { super::avx2::own(table, index, out) },
        _ => own_by_masks(table, index, out),
    }
}

#[inline(always)]
pub(super) fn shared_by_masks(table: &[Row], index: &Row, out: &mut [Row]) {
    for (c, chunk) in table.chunks_exact(out.len()).enumerate() {
        for entry in 0..LANES {
            let here = equal(index, (LANES * c + entry) as u64);
            for (out, row) in out.iter_mut().zip(chunk) {
                for lane in 0..LANES {
                    out.0[lane] |= row.0[entry] & here.0[lane];
                }
            }
        }
    }
}

#[inline(always)]
pub(super) fn own_by_masks(table: &[Row], index: &Row, out: &mut [Row]) {
    for (number, entry) in table.chunks_exact(out.len()).enumerate() {
        let here = equal(index, number as u64);
        for (out, row) in out.iter_mut().zip(entry) {
            for lane in 0..LANES {
                out.0[lane] |= row.0[lane] & here.0[lane];
            }
        }
    }
}

/// All ones where the index is the number. Opaque: otherwise the compiler skips what is masked.
#[inline(always)]
fn equal(index: &Row, number: u64) -> Row {
    let mut out = Row::ZERO;
    for lane in 0..LANES {
        let other = index.0[lane] ^ number;
        out.0[lane] = ((other | other.wrapping_neg()) >> 63).wrapping_sub(1);
    }
    black_box(out)
}
