//! A graph between pairs of clients.

use undertone_garble::{Audience, Circuit};
use undertone_party::PartyId;
use undertone_pssl::{EDGES, Job, SLOTS, circuits};
use undertone_sum::{KEYS, SHARES, UNMASK, UPLOAD};

use super::garble::{Side, base_transfers, over, transfers};
use super::sum::{Group, SEALED, setup};
use super::{Book, SEAL, SERVER, Take};

/// f of the transfers.
const FIELD: usize = 8;

/// Most transfers of a portion.
const PORTION: usize = 1 << 19;

/// The sums whose keys and shares are one message have together at most so many clients.
const JOINED: usize = 4096;

/// What a pair of clients compares in one direction: the comparisons of each attempt. Their numbers
/// depend on the rows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Compared {
    /// Comparisons of each attempt.
    pub attempts: Vec<usize>,
    /// Edges that come of them.
    pub edges: usize,
}

/// Texts by their senders and lengths.
type Texts = Vec<(Side, usize)>;

/// The messages of `count` products.
fn products(job: &Job, count: usize) -> Texts {
    let width = job.width() as usize;
    let bits = (job.bits() as usize).min(width - 1);
    let each = job.features * bits;
    let offer = |bit: usize| (job.features * (width - 1 - bit)).div_ceil(8);
    let offers: usize = (0..bits).map(offer).sum();
    let most = (PORTION / each.max(1)).max(1);
    let mut all = Vec::new();
    for start in (0..count).step_by(most) {
        let count = most.min(count - start);
        all.extend(transfers(FIELD, count * each));
        all.push((Side::Receiver, 8 * (count * each).div_ceil(64)));
        all.push((Side::Sender, count * offers));
    }
    all
}

/// The texts of the sealed messages of a pair. In the first direction the sender of the transfers
/// proposes. The circuits are those that find the closest clusters, and that accept an edge.
fn pair(job: &Job, [closest, edge]: [&Circuit; 2], directions: &[Compared; 2]) -> Texts {
    let audiences = [Audience::Evaluator, Audience::Garbler];
    let mut all = base_transfers(FIELD);
    for (direction, audience) in directions.iter().zip(audiences) {
        all.extend(products(job, job.clusters.pow(2)));
        if job.clusters > 1 {
            all.extend(over(FIELD, closest, job.clusters, audience));
        }
        for compared in &direction.attempts {
            all.extend(products(job, *compared));
            all.extend(over(FIELD, edge, *compared, Audience::Both));
        }
    }
    all
}

/// A run of clients with these numbers of rows, and with these comparisons of each pair.
pub fn pairwise<'a>(
    job: &Job,
    rows: &[usize],
    pairs: &[([PartyId; 2], [Compared; 2])],
    take: &'a mut Take<'a>,
) {
    let book = &mut Book::new(take);
    let (clients, sums) = (rows.len(), job.rounds as usize);
    let slots: usize = rows.iter().sum();
    setup(book, &vec![36; clients], job.trust, SEALED);
    let group = Group::new(job.trust, clients);
    let [hello, roster, dealing, relayed] = group.key_lengths();
    for (me, own) in (0..clients).map(PartyId::client).zip(rows) {
        let (up, down) = ((me, SERVER), (SERVER, me));
        book.add((up.0, up.1, EDGES), 0);
        // The messages of several sums are one, each after its length.
        let most = (JOINED / clients.max(1)).max(1);
        for first in (0..sums).step_by(most) {
            let sums = most.min(sums - first);
            book.add((up.0, up.1, KEYS), sums * (4 + hello));
            book.add((down.0, down.1, KEYS), sums * (4 + roster));
            book.add((up.0, up.1, SHARES), sums * (4 + dealing));
            book.add((down.0, down.1, SHARES), sums * (4 + relayed));
        }
        for _ in 0..sums {
            book.words((up.0, up.1, UPLOAD), (slots - own) * job.classes, 8);
            group.unmasking(book, me);
            book.add((down.0, down.1, UNMASK), 8 * own * job.classes);
        }
    }
    let (closest, edge) = (circuits::closest(job), circuits::accept(job));
    let mut last: Option<(&[Compared; 2], Texts)> = None;
    for ([a, b], directions) in pairs {
        let messages = match last.take() {
            Some((same, messages)) if same == directions => messages,
            _ => pair(job, [&closest, &edge], directions),
        };
        for (side, len) in messages.iter().copied() {
            let link = match side {
                Side::Sender => (*a, *b, EDGES),
                Side::Receiver => (*b, *a, EDGES),
            };
            book.add(link, len + SEAL);
        }
        last = Some((directions, messages));
        let edges: usize = directions.iter().map(|direction| direction.edges).sum();
        book.add((*a, *b, SLOTS), 4 * edges + SEAL);
        book.add((*b, *a, SLOTS), 4 * edges + SEAL);
    }
}
