//! The target for graphs between pairs of clients.

use undertone::party::{Network, PartyId};

use super::payloads::{replacing, with_server};
use crate::pssl::World;

/// Replaces a message between a client and the server, or the text of a sealed message between two
/// clients, by any payload. Whatever it is, parties end, and clients that finish have edges with
/// rows that they have.
pub fn pssl(bytes: &[u8]) {
    let [which, payload @ ..] = bytes else {
        return;
    };
    let world = world();
    let number = usize::from(which >> 2);
    let network: Network<'_> = if which & 1 == 0 {
        replacing(with_server(which >> 1), number, payload)
    } else {
        let [a, b] = [0, 1].map(PartyId::client);
        let link = if which & 2 == 0 { (a, b) } else { (b, a) };
        let mut payload = Some(payload.to_vec());
        world.inside(link, move |nth, _, text| {
            if nth == number {
                *text = payload.take().unwrap_or_default();
            }
        })
    };
    let run = world.run(network);
    for (who, outcome) in &run.clients {
        let Ok(outcome) = outcome else { continue };
        let rows = world.clients[who.index().expect("a client")].len();
        assert_eq!(outcome.labels.len(), rows);
        for (_, edges) in &outcome.edges {
            let mut used: Vec<usize> = edges.iter().map(|edge| edge.row).collect();
            used.sort_unstable();
            assert!(used.iter().all(|row| *row < rows));
            assert!(
                used.windows(2).all(|pair| pair[0] < pair[1]),
                "a row has two edges"
            );
        }
    }
}

/// Three clients with a few comparisons.
pub fn world() -> World {
    World::new(3, |job| {
        job.clusters = 2;
        job.asked = 2;
        job.rounds = 1;
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes the honest text of each message as a seed.
    #[test]
    #[ignore = "writes files"]
    fn seeds() {
        let folder = crate::root("fuzz/seeds/pssl");
        std::fs::create_dir_all(&folder).expect("a folder");
        let write = |name: String, which: u8, text: &[u8]| {
            let bytes = [&[which], text].concat();
            std::fs::write(folder.join(name), bytes).expect("a seed");
        };
        let world = world();
        let [a, b] = [0, 1].map(PartyId::client);
        for (side, link) in [(0u8, (a, b)), (2, (b, a))] {
            let network = world.inside(link, |nth, _, text| {
                if let Some(number) = u8::try_from(nth).ok().filter(|nth| *nth < 14) {
                    let which = number << 2 | side | 1;
                    write(format!("{which:02x}"), which, text);
                }
            });
            let _ = world.run(network);
        }
        for which in 0..12u8 {
            write(format!("s{which:02x}"), which << 1 & 0xfe, &[which; 3]);
        }
    }
}
