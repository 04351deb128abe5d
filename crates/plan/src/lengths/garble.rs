//! Transfers and garbled circuits.

use std::ops::Range;

use undertone_garble::{Audience, Circuit, GARBLING};
use undertone_party::PartyId;

use super::{Book, Take};

/// Most transfers of a batch.
pub const BATCH: usize = 8 * 2048 - 64;

/// Who sends a message of transfers. The sender of transfers is the garbler of circuits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Sender,
    Receiver,
}

/// Garbled circuits of `instances` instances with transfers of f = 4, between a garbler and an
/// evaluator.
pub fn garbling<'a>(
    circuit: &Circuit,
    instances: usize,
    audience: Audience,
    parties: [PartyId; 2],
    take: &'a mut Take<'a>,
) {
    add(&mut Book::new(take), circuit, instances, audience, parties);
}

pub(super) fn add(
    book: &mut Book<'_>,
    circuit: &Circuit,
    instances: usize,
    audience: Audience,
    [garbler, evaluator]: [PartyId; 2],
) {
    let mut all = base_transfers(4);
    all.extend(over(4, circuit, instances, audience));
    for (side, len) in all {
        let link = match side {
            Side::Sender => (garbler, evaluator, GARBLING),
            Side::Receiver => (evaluator, garbler, GARBLING),
        };
        book.add(link, len);
    }
}

/// The points, and a reply with the trees, of transfers that are checked.
pub(super) fn base_transfers(f: usize) -> Vec<(Side, usize)> {
    let parts = 128usize.div_ceil(f);
    vec![
        (Side::Sender, 128 * 64),
        (Side::Receiver, 32 + parts * ((f - 1) * 32 + 64)),
    ]
}

/// The batches of so many transfers.
pub(super) fn batches(count: usize) -> impl Iterator<Item = Range<usize>> {
    let first = (0..count).step_by(BATCH);
    first.map(move |first| first..count.min(first + BATCH))
}

/// The lengths of the corrections, the challenge and the proof of each batch. The receiver sends
/// the first and the last.
pub(super) fn checked_transfers(f: usize, count: usize) -> impl Iterator<Item = [usize; 3]> {
    let parts = 128usize.div_ceil(f);
    batches(count).map(move |batch| [(parts - 1) * 8 * (batch.len().div_ceil(64) + 1), 8, 40])
}

/// The same, with their senders.
pub(super) fn transfers(f: usize, count: usize) -> impl Iterator<Item = (Side, usize)> {
    checked_transfers(f, count).flat_map(|[corrections, challenge, proof]| {
        [
            (Side::Receiver, corrections),
            (Side::Sender, challenge),
            (Side::Receiver, proof),
        ]
    })
}

/// The messages of a garbled circuit, without base transfers.
pub(super) fn over(
    f: usize,
    circuit: &Circuit,
    instances: usize,
    audience: Audience,
) -> Vec<(Side, usize)> {
    let count = instances * circuit.evaluator_inputs();
    let outputs = circuit.outputs().len();
    let mut all: Vec<_> = transfers(f, count).collect();
    all.push((Side::Receiver, 8 * count.div_ceil(64)));
    all.push((Side::Sender, 16 + 32));
    let size = match circuit.ands() {
        0..=1024 => 32,
        1025..=8192 => 8,
        _ => 1,
    };
    for start in (0..instances).step_by(size) {
        let count = size.min(instances - start);
        let decoding = match audience {
            Audience::Garbler => 0,
            _ => (outputs * count).div_ceil(8),
        };
        all.push((Side::Sender, 32 * circuit.ands() * count + decoding));
    }
    if audience != Audience::Evaluator {
        all.push((Side::Receiver, (outputs * instances).div_ceil(8)));
    }
    all
}
