//! Runs in which one message is another than it should be, and what refuses it.

use std::cell::RefCell;

use schemars::JsonSchema;
use serde::Serialize;
use undertone::party::{Abort, Aborted, Network, PartyId};

use crate::{Error, Hex, hex};
use undertone_tests::tamper::tampering;

/// A run in which one payload is changed on its way.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Refused {
    comment: String,
    /// Which of the cases is run again.
    case: usize,
    /// Whose frame it is; the server is 2³² − 1.
    from: u32,
    to: u32,
    /// Its number among the frames from the one to the other.
    number: usize,
    /// What comes in the place of its payload.
    payload: Hex,
    /// The first that refuses, messages being handled in the order sent, and the phase it is in, which may come after the
    /// message's.
    party: u32,
    phase: u8,
    /// Who is to blame, as far as can be told; nobody where too few clients, or too few holders of shares, are left.
    culprits: Vec<u32>,
    /// The check.
    check: String,
}

/// A change of a payload.
pub type Change = fn(&mut Vec<u8>);

/// Runs a case with a changed message, and says who refused it and why. `run` returns the first that aborts.
///
/// # Errors
/// When nobody does.
pub fn refused(
    comment: &str,
    case: usize,
    link: (PartyId, PartyId, usize),
    change: impl Fn(&mut Vec<u8>),
    run: impl FnOnce(Network<'_>) -> Result<Option<Aborted>, Error>,
) -> Result<Refused, Error> {
    let put = RefCell::new(Vec::new());
    let network = tampering(link, |payload| {
        change(payload);
        put.borrow_mut().clone_from(payload);
    });
    let aborted = run(network)?.ok_or_else(|| Error::Accepted(comment.into()))?;
    let (culprits, check) = match &aborted.cause {
        Abort::Malformed { from, what } => (vec![*from], what.clone()),
        Abort::Cheated { culprit, fault } => (vec![*culprit], fault.clone()),
        Abort::Contradicted {
            first,
            second,
            fault,
        } => (vec![*first, *second], fault.clone()),
        other => (Vec::new(), other.to_string()),
    };
    Ok(Refused {
        comment: comment.into(),
        case,
        from: link.0.to_wire(),
        to: link.1.to_wire(),
        number: link.2,
        payload: hex(&put.into_inner()),
        party: aborted.party.to_wire(),
        phase: aborted.phase.id,
        culprits: culprits.iter().map(|id| id.to_wire()).collect(),
        check,
    })
}
