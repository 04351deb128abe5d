//! Fixed groups, and the clients of a round.
//!
//! Updates of one client hardly change from round to round. So sums over many different sets of
//! clients are linear equations in few unknowns, and reveal each client's update (So et al. 2023).
//! Sums over fixed groups, each whole or absent, reveal sums over groups and nothing less.

use undertone_kdf::Seed;
use undertone_kernel::Prg;
use undertone_party::{PartyId, SessionId};

use crate::job::{Job, Sampling};

/// A client of a job, as the census found it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counted {
    /// The client.
    pub id: PartyId,
    /// The number of its rows.
    pub rows: u32,
    /// The number of its labelled rows.
    pub labelled: u32,
}

/// Deals `clients` into groups of at least `least` clients. Each group gets its share of the
/// clients with labels. With fewer than twice as many clients there is one group. Groups and their
/// clients are in ascending order.
pub(crate) fn deal(
    clients: &[Counted],
    least: usize,
    session: SessionId,
    seed: &Seed,
) -> Vec<Vec<PartyId>> {
    let count = (clients.len() / least.max(1)).max(1);
    let mut prg = seed.derive(session, "training groups", &[]).prg();
    let mut groups = vec![Vec::new(); count];
    let (with, without): (Vec<Counted>, Vec<Counted>) =
        clients.iter().partition(|client| client.labelled > 0);
    let mut order = Vec::with_capacity(clients.len());
    for clients in [with, without] {
        let first = order.len();
        order.extend(clients.iter().map(|client| client.id));
        prg.shuffle(&mut order[first..]);
    }
    for (place, id) in order.into_iter().enumerate() {
        groups[place % count].push(id);
    }
    for group in &mut groups {
        group.sort_unstable();
    }
    groups.sort_unstable();
    groups
}

/// Whether `members` are whole groups of `groups`.
pub(crate) fn are_whole(members: &[PartyId], groups: &[Vec<PartyId>]) -> bool {
    let has = |id: &PartyId| members.binary_search(id).is_ok();
    let whole = groups.iter().filter(|group| group.iter().all(has));
    let covered: usize = whole.map(Vec::len).sum();
    covered == members.len() && !members.is_empty()
}

/// Draws the clients of a round of `job` from those that are `present`, in ascending order.
/// `clients` and `groups` are those of the census. Returns none when no whole group with labels is
/// present.
pub(crate) fn draw(
    job: &Job,
    clients: &[Counted],
    groups: &[Vec<PartyId>],
    present: &[PartyId],
    prg: &mut Prg,
) -> Vec<PartyId> {
    let here = |id: &PartyId| present.contains(id);
    let mut drawn: Vec<PartyId> = match job.sampling {
        Sampling::Groups(_) => {
            // A group without any label could train on nothing.
            let has_labels = |id: &PartyId| {
                let labelled = clients.iter().filter(|client| client.labelled > 0);
                labelled
                    .map(|client| client.id)
                    .any(|labelled| labelled == *id)
            };
            let able =
                |group: &&Vec<PartyId>| group.iter().all(here) && group.iter().any(has_labels);
            let mut whole: Vec<&Vec<PartyId>> = groups.iter().filter(able).collect();
            prg.shuffle(&mut whole);
            let mut drawn = Vec::new();
            for group in whole {
                // The group that brings the number of clients nearest to what the job asks for.
                let excess = (drawn.len() + group.len()).saturating_sub(job.sampled);
                if !drawn.is_empty() && 2 * excess >= group.len() {
                    break;
                }
                drawn.extend_from_slice(group);
            }
            drawn
        }
        Sampling::Free => {
            let (with, without): (Vec<&Counted>, Vec<&Counted>) = clients
                .iter()
                .filter(|client| here(&client.id))
                .partition(|client| client.labelled > 0);
            let labelled = clients.iter().filter(|client| client.labelled > 0).count();
            if with.is_empty() {
                return Vec::new();
            }
            // The share of clients with labels, as in the whole job, and one at least.
            let share = (job.sampled * labelled).div_ceil(clients.len().max(1));
            let take = |from: Vec<&Counted>, count: usize, prg: &mut Prg| -> Vec<PartyId> {
                let mut ids: Vec<PartyId> = from.iter().map(|client| client.id).collect();
                prg.shuffle(&mut ids);
                ids.truncate(count);
                ids
            };
            let mut drawn = take(with, share, prg);
            drawn.extend(take(without, job.sampled - drawn.len(), prg));
            drawn
        }
    };
    drawn.sort_unstable();
    drawn
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn clients(count: usize, labelled: usize) -> Vec<Counted> {
        let client = |place| Counted {
            id: PartyId::client(place),
            rows: 9,
            labelled: u32::from(place < labelled),
        };
        (0..count).map(client).collect()
    }

    proptest! {
        #[test]
        fn groups_are_stratified_and_drawn_whole(
            count in 3usize..40, labelled in 8usize..40, sampled in 3usize..30, seed: [u8; 32],
        ) {
            let clients = clients(count, labelled.min(count));
            let seed = Seed::from_bytes(seed);
            let groups = deal(&clients, 5, SessionId([1; 32]), &seed);
            let mut all: Vec<PartyId> = groups.concat();
            all.sort_unstable();
            prop_assert_eq!(&all, &clients.iter().map(|c| c.id).collect::<Vec<_>>());
            if count >= 5 {
                prop_assert!(groups.iter().all(|group| group.len() >= 5));
            }
            let labels = |group: &Vec<PartyId>| {
                group.iter().filter(|id| id.index().is_some_and(|id| id < labelled)).count()
            };
            let (least, most) = (groups.iter().map(labels).min(), groups.iter().map(labels).max());
            prop_assert!(most.unwrap() - least.unwrap() <= 1);

            let job = Job { sampled, ..Job::default() };
            let drawn = draw(&job, &clients, &groups, &all, &mut seed.prg());
            prop_assert!(are_whole(&drawn, &groups));
            // A group that lacks a client sits out.
            let stays = |id: &&PartyId| **id != groups[0][0];
            let present: Vec<PartyId> = all.iter().filter(stays).copied().collect();
            let drawn = draw(&job, &clients, &groups, &present, &mut seed.prg());
            prop_assert!(drawn.iter().all(|id| !groups[0].contains(id)));
            prop_assert_eq!(drawn.is_empty(), groups.len() == 1);
        }
    }

    #[test]
    fn sets_that_are_not_whole_groups_are_found() {
        let group = |ids: [usize; 2]| ids.map(PartyId::client).to_vec();
        let groups = [group([0, 3]), group([1, 2])];
        assert!(are_whole(&groups[0], &groups));
        assert!(are_whole(&[0, 1, 2, 3].map(PartyId::client), &groups));
        for ids in [&[0, 1][..], &[0], &[0, 2, 3], &[]] {
            let ids: Vec<PartyId> = ids.iter().copied().map(PartyId::client).collect();
            assert!(!are_whole(&ids, &groups), "{ids:?}");
        }
    }

    #[test]
    fn free_samples_keep_the_share_of_clients_with_labels() {
        let clients = clients(20, 4);
        let all: Vec<PartyId> = clients.iter().map(|client| client.id).collect();
        let job = Job {
            sampled: 5,
            sampling: Sampling::Free,
            ..Job::default()
        };
        let mut prg = Seed::from_bytes([5; 32]).prg();
        let drawn = draw(&job, &clients, &[], &all, &mut prg);
        assert_eq!(drawn.len(), 5);
        assert_eq!(drawn.iter().filter(|id| id.index() < Some(4)).count(), 1);
    }
}
