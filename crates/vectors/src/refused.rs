//! Runs with one false message, and the check that refuses it.

use std::cell::RefCell;

use schemars::JsonSchema;
use serde::Serialize;
use undertone::party::{Abort, Aborted, Network, PartyId};

use crate::{Error, Hex, hex};
use undertone_tests::tamper::tampering;

/// A run in which one payload is changed in transit.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Refused {
    comment: String,
    /// The case that is run again, by its index.
    case: usize,
    /// The sender of the changed frame. The server is 2³² − 1.
    from: u32,
    to: u32,
    /// The number of the frame among those from this sender to this receiver.
    number: usize,
    /// The changed payload.
    payload: Hex,
    /// The first party that refuses, if parties handle messages in the order sent.
    party: u32,
    /// The phase that this party is in. It may be later than that of the message.
    phase: u8,
    /// The parties to blame. None where too few clients, or too few holders of shares, remain.
    culprits: Vec<u32>,
    /// The error message of the check.
    check: String,
}

/// A change of a payload.
pub type Change = fn(&mut Vec<u8>);

/// Runs a case with a changed message and records who refuses it and why. `run` returns the first
/// abort.
///
/// # Errors
/// [`Error::Accepted`] when no party refuses.
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
