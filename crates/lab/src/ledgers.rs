//! Sums over the costs of parties.

use undertone::party::{Cost, Ledger, PartyId};

use crate::report::milliseconds;

/// The ledgers of several parties as one.
pub(crate) fn together<'a>(ledgers: impl IntoIterator<Item = &'a (PartyId, Ledger)>) -> Ledger {
    let mut whole = Ledger::default();
    for (_, ledger) in ledgers {
        whole.add(ledger);
    }
    whole
}

/// All phases of a ledger as one. A round that two phases share counts once.
pub(crate) fn total(ledger: &Ledger) -> Cost {
    let mut whole = Cost::default();
    for (_, cost) in ledger.phases() {
        whole.add(cost);
    }
    whole
}

/// Time inside the steps, in milliseconds.
pub(crate) fn compute_ms(ledger: &Ledger) -> f64 {
    milliseconds(total(ledger).compute)
}
