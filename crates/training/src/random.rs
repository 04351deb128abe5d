//! Random orders.

use undertone_kernel::Prg;

/// `items` in a random order.
pub(crate) fn shuffled<T>(mut items: Vec<T>, prg: &mut Prg) -> Vec<T> {
    for last in (1..items.len()).rev() {
        // The bias of the remainder is below 2⁻³² for less than 2³² items.
        let other = (prg.next_u64() % (last as u64 + 1)) as usize;
        items.swap(last, other);
    }
    items
}
