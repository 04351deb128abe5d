//! Random orders.

use undertone_kernel::Prg;

/// A number below `below`, which is not 0. The bias is below 2⁻³² for less than 2³².
pub(crate) fn below(prg: &mut Prg, below: usize) -> usize {
    (prg.next_u64() % below as u64) as usize
}

/// A number from 0 to below 1.
pub(crate) fn unit(prg: &mut Prg) -> f64 {
    (prg.next_u64() >> 11) as f64 / (1u64 << 53) as f64
}

/// Puts `items` in a random order.
pub(crate) fn shuffle<T>(items: &mut [T], prg: &mut Prg) {
    for last in (1..items.len()).rev() {
        items.swap(last, below(prg, last + 1));
    }
}
