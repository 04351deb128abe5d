//! How many clients take part in a round.

use undertone_sum::{Groups, Sampling};

/// The sizes of the groups that all clients are dealt into.
fn sizes(clients: usize, least: usize) -> impl Iterator<Item = usize> {
    let groups = Groups::new(clients, least);
    (0..groups.count()).map(move |number| groups.members(number).len())
}

/// The number of groups, or 0 if clients are sampled freely.
pub(crate) fn groups(sampling: Sampling, clients: usize) -> usize {
    match sampling {
        Sampling::Free => 0,
        Sampling::Groups(least) => sizes(clients, least).count(),
    }
}

/// Clients of a round of sums: whole groups until there are enough.
pub(crate) fn of_sums(sampling: Sampling, clients: usize, wanted: usize) -> usize {
    match sampling {
        Sampling::Free => wanted.min(clients),
        Sampling::Groups(least) => {
            let mut drawn = 0;
            for size in sizes(clients, least) {
                if drawn >= wanted {
                    break;
                }
                drawn += size;
            }
            drawn
        }
    }
}

/// Clients of a round of training: whole groups, as near as they come to the number.
pub(crate) fn of_training(sampling: Sampling, clients: usize, wanted: usize) -> usize {
    match sampling {
        Sampling::Free => wanted.min(clients),
        Sampling::Groups(least) => {
            let mut drawn = 0;
            for size in sizes(clients, least) {
                let excess = (drawn + size).saturating_sub(wanted);
                if drawn > 0 && 2 * excess >= size {
                    break;
                }
                drawn += size;
            }
            drawn
        }
    }
}
