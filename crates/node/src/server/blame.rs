//! Which clients to expel when a session stands still. See `docs/spec/network.md`, steps 24 to 26.

use std::collections::BTreeMap;

use undertone_party::PartyId;

/// Returns the clients to expel when a session stands still.
///
/// `first` are the clients that the server's party waits for. For every client that takes part,
/// `waiting` holds the parties that it says it waits for. `pairs` says whether clients exchange
/// frames. If not, no client waits for another.
///
/// From each of `first`, the search follows the clients' own words, from one client to another that
/// it waits for. It ends in one of three ways:
/// - The last client says that it waits for nobody, or no other client named it: it is to blame.
/// - The last client says that it waits only for the server or for clients that are gone, but
///   another client named it. One of the two lies: both are to blame.
/// - Clients say that they wait for each other in a circle: all clients of the circle are to blame.
pub(super) fn blame(
    first: &[PartyId],
    waiting: &BTreeMap<PartyId, &[PartyId]>,
    pairs: bool,
) -> Vec<PartyId> {
    let others = |who: PartyId| {
        let of = waiting.get(&who).copied().unwrap_or(&[]);
        let others = of.iter().copied();
        others.filter(move |other| pairs && waiting.contains_key(other) && *other != who)
    };
    let mut blamed = Vec::new();
    for who in first
        .iter()
        .copied()
        .filter(|who| waiting.contains_key(who))
    {
        let mut path = vec![who];
        loop {
            let last = path[path.len() - 1];
            // A client that says that it waits for nobody is due, by its own word.
            let idle = others(last).find(|other| waiting[other].is_empty());
            match idle.or_else(|| others(last).next()) {
                Some(next) => match path.iter().position(|seen| *seen == next) {
                    Some(start) => {
                        blamed.extend_from_slice(&path[start..]);
                        break;
                    }
                    None => path.push(next),
                },
                None => {
                    let admits = waiting[&last].is_empty() || path.len() == 1;
                    let liars = if admits { 1 } else { 2 };
                    blamed.extend_from_slice(&path[path.len() - liars..]);
                    break;
                }
            }
        }
    }
    blamed.sort_unstable();
    blamed.dedup();
    blamed
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERVER: PartyId = PartyId::SERVER;

    /// NET-23
    #[test]
    fn who_waits_for_nobody_is_blamed() {
        let [a, b, c] = [0, 1, 2].map(PartyId::client);
        let waits: [(PartyId, &[PartyId]); 3] = [(a, &[b]), (b, &[c]), (c, &[])];
        assert_eq!(blame(&[a], &BTreeMap::from(waits), true), [c]);
        assert_eq!(blame(&[a, b], &BTreeMap::from(waits), true), [c]);
        let circle: [(PartyId, &[PartyId]); 3] = [(a, &[b]), (b, &[a]), (c, &[SERVER])];
        assert_eq!(blame(&[a], &BTreeMap::from(circle), true), [a, b]);
        assert_eq!(blame(&[c], &BTreeMap::from(circle), true), [c]);
        // A client that waits for one that is gone is to blame.
        let gone: [(PartyId, &[PartyId]); 1] = [(a, &[b])];
        assert_eq!(blame(&[a], &BTreeMap::from(gone), true), [a]);
    }

    #[test]
    fn a_liar_takes_one_other_along_at_most() {
        let [a, b, c, d] = [0, 1, 2, 3].map(PartyId::client);
        // a names all others. They wait for the server.
        let waits: [(PartyId, &[PartyId]); 4] = [
            (a, &[b, c, d]),
            (b, &[SERVER]),
            (c, &[SERVER]),
            (d, &[SERVER]),
        ];
        assert_eq!(blame(&[a], &BTreeMap::from(waits), true), [a, b]);
        // If clients exchange no frames, no other client is to blame.
        assert_eq!(blame(&[a], &BTreeMap::from(waits), false), [a]);
        // d stands still and says that it waits for the server. b really waits for d, c for b.
        let waits: [(PartyId, &[PartyId]); 3] = [(b, &[d]), (c, &[b]), (d, &[SERVER])];
        assert_eq!(blame(&[b, c], &BTreeMap::from(waits), true), [b, d]);
    }
}
