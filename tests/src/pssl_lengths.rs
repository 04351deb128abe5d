//! The length of every message of a graph between pairs of clients, from public shapes and the
//! numbers of comparisons. The formulae are those of `docs/spec/lengths.md`.

use undertone::garble::Audience;
use undertone::label::phases;
use undertone::party::PartyId;
use undertone::pssl::clear::Direction;
use undertone::pssl::{EDGES, Job, SLOTS, circuits};
use undertone::sum::{KEYS, SHARES, UNMASK, UPLOAD};

use crate::lengths::{
    Book, Lengths, SEAL, Side, TILE, base_transfers, checked_transfers, garbling_over, shared_sum,
    signature,
};

const SERVER: PartyId = PartyId::SERVER;

/// f of the transfers.
const FIELD: usize = 8;

/// Most transfers of a portion.
const PORTION: usize = 1 << 19;

/// The messages of `count` products.
fn products(job: &Job, count: usize) -> Vec<(Side, usize)> {
    let width = job.width() as usize;
    let bits = (job.bits() as usize).min(width - 1);
    let each = job.features * bits;
    let offer = |bit: usize| (job.features * (width - 1 - bit)).div_ceil(8);
    let offers: usize = (0..bits).map(offer).sum();
    let most = (PORTION / each.max(1)).max(1);
    let mut all = Vec::new();
    for start in (0..count).step_by(most) {
        let count = most.min(count - start);
        all.extend(checked_transfers(FIELD, count * each));
        all.push((Side::Receiver, 8 * (count * each).div_ceil(64)));
        all.push((Side::Sender, count * offers));
    }
    all
}

/// The texts of the sealed messages of a pair. In the first direction the sender of the transfers
/// proposes.
fn pair(job: &Job, directions: &[Direction; 2]) -> Vec<(Side, usize)> {
    let (closest, edge) = (circuits::closest(job), circuits::accept(job));
    let mut all = base_transfers(FIELD);
    for (direction, audience) in directions
        .iter()
        .zip([Audience::Evaluator, Audience::Garbler])
    {
        all.extend(products(job, job.clusters.pow(2)));
        if job.clusters > 1 {
            all.extend(garbling_over(FIELD, &closest, job.clusters, audience));
        }
        for compared in &direction.attempts {
            all.extend(products(job, compared.len()));
            let instances = compared.len();
            all.extend(garbling_over(FIELD, &edge, instances, Audience::Both));
        }
    }
    all
}

/// Predicts a run of clients with these numbers of rows, fewer than 50, from which none drops out:
/// with these comparisons of each pair, and these numbers of edges.
pub fn of_pairwise(job: &Job, rows: &[usize], pairs: &[([PartyId; 2], [Direction; 2])]) -> Lengths {
    let mut book = Book::default();
    let m = rows.len();
    let hello = 34 + 36 + signature(job.trust);
    let contributions = (m - 1) * (32 + SEAL);
    let slots: usize = rows.iter().sum();
    for (me, own) in (0..m).map(PartyId::client).zip(rows) {
        book.add(me, SERVER, phases::SETUP, hello);
        book.add(SERVER, me, phases::SETUP, 32 + 4 + m * (4 + hello));
        book.add(me, SERVER, phases::SETUP, contributions);
        book.add(SERVER, me, phases::SETUP, m + contributions);
        book.add(me, SERVER, EDGES, 0);
        let mut sums = Book::default();
        shared_sum(&mut sums, job.trust, m, me, 0);
        sums.0.remove(&(me, SERVER, UPLOAD.id));
        for ((from, to, phase), lens) in sums.0 {
            for len in lens {
                if phase == KEYS.id || phase == SHARES.id {
                    // The messages of all sums are one, each after its length.
                    let phase = if phase == KEYS.id { KEYS } else { SHARES };
                    book.add(from, to, phase, job.rounds as usize * (4 + len));
                } else {
                    (0..job.rounds).for_each(|_| book.add(from, to, UNMASK, len));
                }
            }
        }
        for _ in 0..job.rounds {
            let words = (slots - own) * job.classes;
            book.tiles((me, SERVER, UPLOAD), words, 8, (TILE, 0));
            book.add(SERVER, me, UNMASK, 8 * own * job.classes);
        }
    }
    for ([a, b], directions) in pairs {
        for (side, len) in pair(job, directions) {
            let (from, to) = match side {
                Side::Sender => (*a, *b),
                Side::Receiver => (*b, *a),
            };
            book.add(from, to, EDGES, len + SEAL);
        }
        let compared = directions.iter().flat_map(|direction| &direction.attempts);
        let edges = compared.flatten().filter(|one| one.told.is_some()).count();
        book.add(*a, *b, SLOTS, 4 * edges + SEAL);
        book.add(*b, *a, SLOTS, 4 * edges + SEAL);
    }
    for list in book.0.values_mut() {
        list.sort_unstable();
    }
    book.0
}
