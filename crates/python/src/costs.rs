//! What parties spend, in Python.

use undertone::party::{Ledger, PartyId, Phase};

use crate::errors::number;

/// Name, bytes sent, bytes received, messages, rounds, seconds.
pub(crate) type Cost = (&'static str, u64, u64, u64, usize, f64);

/// The costs of each phase.
pub(crate) fn costs(ledger: &Ledger) -> Vec<Cost> {
    let cost = |(phase, cost): (Phase, &undertone::party::Cost)| {
        (
            phase.name,
            cost.bytes_sent,
            cost.bytes_received,
            cost.messages,
            cost.rounds(),
            cost.compute.as_secs_f64(),
        )
    };
    ledger.phases().map(cost).collect()
}

/// The costs of each party: its number and its phases.
pub(crate) type Spent = Vec<(i64, Vec<Cost>)>;

pub(crate) fn spent(ledgers: &[(PartyId, Ledger)]) -> Spent {
    let each = ledgers.iter();
    each.map(|(id, ledger)| (number(*id), costs(ledger)))
        .collect()
}

/// Adds what parties spent in a session to what they have spent before.
pub(crate) fn add(total: &mut Vec<(PartyId, Ledger)>, session: &[(PartyId, Ledger)]) {
    for (who, ledger) in session {
        match total.iter_mut().find(|(id, _)| id == who) {
            Some((_, total)) => total.add(ledger),
            None => total.push((*who, ledger.clone())),
        }
    }
}
