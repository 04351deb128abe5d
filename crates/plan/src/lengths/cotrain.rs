//! Co-training.

use undertone_cotrain::{CONSENSUS, Job, Noise, SLICES, VOTES, Votes};
use undertone_garble::Audience;
use undertone_party::PartyId;

use super::sum::{Group, SEALED, setup};
use super::{Book, SERVER, Take, garble};

/// A session of a co-training job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cotraining {
    /// An exchange.
    Exchange,
    /// The end of the job.
    Over,
}

/// A session of a co-training job. `has_labels` says whether an exchange has succeeded before.
pub fn cotraining<'a>(
    job: &Job,
    session: Cotraining,
    clients: usize,
    has_labels: bool,
    take: &'a mut Take<'a>,
) {
    let book = &mut Book::new(take);
    let bits = |values: usize| values.next_power_of_two().ilog2() as usize;
    let labels = (job.rows * bits(job.classes + 1)).div_ceil(8);
    // Counters of a word, rows and words of a block.
    let counters = 64 / bits(clients + 1);
    let (rows, words) = (
        (counters / job.classes).max(1),
        job.classes.div_ceil(counters),
    );
    let blocks = job.rows.div_ceil(rows);
    let slices = clients.min(blocks);
    let needed = job.consensus.needed(clients, job.noise, job.classes);
    let winners = session == Cotraining::Exchange && job.votes == Votes::Winners;
    let circuit = winners.then(|| job.layout(clients).circuit(needed));
    if winners {
        setup(book, &vec![0; clients], job.trust, SEALED);
    }
    let group = Group::new(job.trust, clients);
    for (place, me) in (0..clients).map(PartyId::client).enumerate() {
        let opening = 10 + 4 * clients + if has_labels { labels } else { 0 };
        book.add((SERVER, me, CONSENSUS), opening);
        if session == Cotraining::Over {
            continue;
        }
        let voted = match (job.votes, job.noise) {
            (Votes::Clear, Noise::Xor { .. }) => job.rows * job.classes,
            (Votes::Clear, _) => job.rows * bits(job.classes),
            _ => 0,
        };
        book.add((me, SERVER, VOTES), voted.div_ceil(8));
        if job.votes != Votes::Clear {
            group.sum(book, me, blocks * words, 8);
        }
        if let Some(circuit) = &circuit {
            book.add((SERVER, me, SLICES), 4 + 8 * slices);
            book.add((me, SERVER, SLICES), 0);
            book.add((SERVER, me, SLICES), 4);
            group.sum(book, me, 1, 8);
            if place < slices {
                let instances = (place..blocks).step_by(slices).count();
                garble::add(book, circuit, instances, Audience::Evaluator, [me, SERVER]);
            }
        }
        book.add((SERVER, me, CONSENSUS), labels);
    }
}
