//! Who is to be left behind when nobody moves.

use std::collections::BTreeMap;

use undertone_party::PartyId;

/// Who is to be left behind when nobody moves: of those the server waits for, who waits for nobody, by its own word. One that
/// says it waits for another client is followed to that one. Where that one says that it waits for the server, one of
/// the two lies: both are left behind, and nobody else. Where clients say they wait for each other in a circle, the circle.
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
            // One that waits for nobody at all says itself that it is its turn.
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

    #[test]
    fn who_waits_for_nobody_is_blamed() {
        let [a, b, c] = [0, 1, 2].map(PartyId::client);
        let waits: [(PartyId, &[PartyId]); 3] = [(a, &[b]), (b, &[c]), (c, &[])];
        assert_eq!(blame(&[a], &BTreeMap::from(waits), true), [c]);
        assert_eq!(blame(&[a, b], &BTreeMap::from(waits), true), [c]);
        let circle: [(PartyId, &[PartyId]); 3] = [(a, &[b]), (b, &[a]), (c, &[SERVER])];
        assert_eq!(blame(&[a], &BTreeMap::from(circle), true), [a, b]);
        assert_eq!(blame(&[c], &BTreeMap::from(circle), true), [c]);
        // Who is gone is nobody's excuse.
        let gone: [(PartyId, &[PartyId]); 1] = [(a, &[b])];
        assert_eq!(blame(&[a], &BTreeMap::from(gone), true), [a]);
    }

    #[test]
    fn a_liar_takes_one_other_along_at_most() {
        let [a, b, c, d] = [0, 1, 2, 3].map(PartyId::client);
        // a names everybody, who all wait for the server.
        let waits: [(PartyId, &[PartyId]); 4] = [
            (a, &[b, c, d]),
            (b, &[SERVER]),
            (c, &[SERVER]),
            (d, &[SERVER]),
        ];
        assert_eq!(blame(&[a], &BTreeMap::from(waits), true), [a, b]);
        // Where clients exchange nothing, not even that.
        assert_eq!(blame(&[a], &BTreeMap::from(waits), false), [a]);
        // d stands still, and says it waits for the server; b waits for it in earnest, and for c, which waits for b.
        let waits: [(PartyId, &[PartyId]); 3] = [(b, &[d]), (c, &[b]), (d, &[SERVER])];
        assert_eq!(blame(&[b, c], &BTreeMap::from(waits), true), [b, d]);
    }
}
