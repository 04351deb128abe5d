//! Groups of clients that contribute whole or not at all.

use std::ops::Range;

use undertone_party::PartyId;

/// Fewest clients of a group, in rounds and in training. Sums of fewer tell too much about each.
pub const MIN_GROUP: usize = 5;

/// The fixed groups of the clients 0 to `clients` − 1, in the order of their numbers.
///
/// Sums over changing sets of clients are linear equations for what hardly changes at a client.
/// Sums over whole groups tell sums over groups, and nothing less.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Groups {
    clients: usize,
    least: usize,
}

impl Groups {
    /// Groups of `least` clients or more. With fewer than twice as many clients there is one group.
    pub fn new(clients: usize, least: usize) -> Self {
        Self { clients, least }
    }

    /// The number of clients.
    pub fn clients(&self) -> usize {
        self.clients
    }

    /// Fewest clients of a group, unless there are fewer in all.
    pub fn least(&self) -> usize {
        self.least
    }

    /// The number of groups.
    pub fn count(&self) -> usize {
        (self.clients / self.least.max(1)).max(1)
    }

    /// The clients of group `number`.
    pub fn members(&self, number: usize) -> Range<usize> {
        let first = |number: usize| {
            let first = number as u128 * self.clients as u128 / self.count() as u128;
            first as usize
        };
        first(number)..first(number + 1)
    }

    /// The group of the client `index`. `None` if there is no such client.
    pub fn of(&self, index: usize) -> Option<usize> {
        let number = |index: usize| {
            let scaled = (index as u128 + 1) * self.count() as u128 - 1;
            (scaled / self.clients as u128) as usize
        };
        (index < self.clients).then(|| number(index))
    }

    /// Those of `ids` whose whole group is among them. `ids` ascend. The time does not depend on
    /// the number of clients, which another party may have stated.
    pub fn whole(&self, ids: &[PartyId]) -> Vec<PartyId> {
        let number = |id: &PartyId| id.index().and_then(|index| self.of(index));
        let groups = ids.chunk_by(|a, b| number(a) == number(b));
        let whole = groups.filter(|group| {
            number(&group[0]).is_some_and(|number| self.members(number).len() == group.len())
        });
        whole.flatten().copied().collect()
    }

    /// Whether `ids`, which ascend, are whole groups and nobody else.
    pub fn are_whole(&self, ids: &[PartyId]) -> bool {
        self.whole(ids) == ids
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn groups_hold_each_client_once(clients in 1usize..300, least in 1usize..40) {
            let groups = Groups::new(clients, least);
            let sizes: Vec<usize> = (0..groups.count()).map(|g| groups.members(g).len()).collect();
            prop_assert!(sizes.iter().all(|size| *size >= least.min(clients)));
            prop_assert!(sizes.iter().max().unwrap() - sizes.iter().min().unwrap() <= 1);
            let all: Vec<usize> = (0..groups.count()).flat_map(|g| groups.members(g)).collect();
            prop_assert_eq!(all, (0..clients).collect::<Vec<_>>());
            for number in 0..groups.count() {
                prop_assert!(groups.members(number).all(|index| groups.of(index) == Some(number)));
            }
            prop_assert_eq!(groups.of(clients), None);
        }

        /// A server may state any number of clients.
        #[test]
        fn many_clients_take_no_time(clients in any::<usize>(), least in any::<usize>()) {
            let groups = Groups::new(clients, least);
            let few: Vec<PartyId> = (0..9).map(PartyId::client).collect();
            let whole = groups.whole(&few);
            prop_assert!(whole.iter().all(|id| few.contains(id)));
            prop_assert!(groups.members(groups.count() - 1).end == clients);
        }

        #[test]
        fn what_is_left_is_whole(
            clients in 1usize..60,
            least in 1usize..9,
            gone in proptest::collection::btree_set(0usize..60, 0..9),
            foreign in any::<bool>(),
        ) {
            let groups = Groups::new(clients, least);
            let here = (0..clients + usize::from(foreign)).filter(|index| !gone.contains(index));
            let here: Vec<PartyId> = here.map(PartyId::client).collect();
            let whole = groups.whole(&here);
            prop_assert!(groups.are_whole(&whole));
            prop_assert!(whole.iter().all(|id| here.contains(id)));
            for number in 0..groups.count() {
                let members = groups.members(number).map(PartyId::client);
                let (complete, taken) = (
                    members.clone().all(|id| here.contains(&id)),
                    members.clone().filter(|id| whole.contains(id)).count(),
                );
                prop_assert_eq!(taken, if complete { members.len() } else { 0 });
            }
        }
    }
}
