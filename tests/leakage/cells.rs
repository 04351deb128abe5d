//! Cells in sessions that run again: a client is restored and brings other rows, or the server
//! sends another sum. No mask and no noise serves twice.

use std::collections::BTreeMap;

use undertone::hamming::Backend;
use undertone::kdf::Seed;
use undertone::kernel::Prg;
use undertone::label::cells::{Cells, PHASE};
use undertone::label::{Features, Labelling, Params, Rows, phases};
use undertone::party::frame::HEADER_LEN;
use undertone::party::{Network, PartyId};
use undertone_tests::label::Simulation;

use super::distances::SEED;

const CLIENTS: usize = 3;
const ROWS: usize = 140;
/// Longest message without content: the end, for the server.
const SIGNAL: usize = 4 + 16;
/// The number of a sum, before its words.
const NUMBER: usize = 5;
/// Sums of a run, after hello and contributions of the setup.
const SETUP: usize = 2;
const SUMS: usize = 5;

/// The messages of each link, from sender to receiver.
type Links = BTreeMap<(PartyId, PartyId), Vec<Vec<u8>>>;

/// Three clients. `changed` changes one row of the second.
fn clients(changed: bool) -> Vec<(Rows, Labelling)> {
    let mut prg = Prg::new(&[11; 32]);
    let client = |client: usize| {
        let mut values: Vec<f64> = (0..4 * ROWS).map(|_| prg.unit() - 0.3).collect();
        if changed && client == 1 {
            values[7] += 1.0;
        }
        let labels = (0..ROWS).map(|row| (row % 7 == 0).then_some((row % 2) as u16));
        let labelling = Labelling::new(2, labels.collect()).unwrap();
        (Rows::Features(Features::new(4, values).unwrap()), labelling)
    };
    (0..CLIENTS).map(client).collect()
}

/// A whole run. If `lies`, the server adds to the sum of round 1 that all clients get. Returns the
/// words of all sums, and what clients send in the distances.
fn run(backend: Backend, changed: bool, lies: bool) -> (Links, Links) {
    let (mut sums, mut rest) = (Links::new(), Links::new());
    let mut frames = [[0; 2]; CLIENTS];
    let network = Network::new().intercept(|from, to, frame| {
        let is_up = to == PartyId::SERVER;
        let other = if is_up { from } else { to };
        if is_up && frame[4] == phases::DISTANCES.id {
            let link = rest.entry((from, to)).or_default();
            link.push(frame[HEADER_LEN..].to_vec());
        }
        let place = match other.index() {
            Some(place) if is_up || from == PartyId::SERVER => place,
            _ => return,
        };
        let number = &mut frames[place][usize::from(is_up)];
        *number += 1;
        if frame[4] != PHASE.id || *number > SETUP + SUMS {
            return;
        }
        if lies && !is_up && *number == SETUP + 2 {
            frame[HEADER_LEN + NUMBER + 5] ^= 4;
        }
        let link = sums.entry((from, to)).or_default();
        link.push(frame[HEADER_LEN + NUMBER..].to_vec());
    });
    let simulation = Simulation {
        params: Params {
            bits: 256,
            backend,
            cells: Some(Cells {
                cells: 2,
                probes: 1,
                epsilon: 8.0,
            }),
            ..Params::default()
        },
        clients: clients(changed),
        seed: Seed::from_bytes(SEED),
    };
    simulation.run_over(network).unwrap();
    // Each client first tells the server of its own rows, which is not hidden from it.
    rest.values_mut().for_each(|link| drop(link.remove(0)));
    (sums, rest)
}

/// Asserts that no messages from number `first` of each link on are the same, but for chance: one
/// byte in 256.
fn assert_apart(one: &Links, other: &Links, first: usize) {
    let (mut same, mut all) = (0, 0);
    for (link, messages) in one {
        let both = messages.iter().zip(&other[link]).skip(first);
        assert!(both.len() > 0, "{link:?}");
        for (a, b) in both.filter(|(a, _)| a.len() > SIGNAL) {
            assert_ne!(a, b, "{link:?}");
            let bytes = a.iter().zip(b);
            same += bytes.clone().filter(|(a, b)| a == b).count();
            all += bytes.len();
        }
    }
    let share = same as f64 / all as f64;
    let spread = (1.0 / 256.0 / all as f64).sqrt();
    assert!(
        (share - 1.0 / 256.0).abs() < 5.0 * spread,
        "{share} of {all}"
    );
}

#[test]
fn other_rows_share_no_mask_of_cells_with_the_first() {
    let (first, _) = run(Backend::Psm, false, false);
    assert_eq!(first.len(), 2 * CLIENTS);
    assert!(first.values().all(|link| link.len() == SUMS));
    assert_eq!(first, run(Backend::Psm, false, false).0);
    assert_apart(&first, &run(Backend::Psm, true, false).0, 0);
}

/// The sums after the changed one share nothing, nor do distances, in which other rows are in the
/// same slots.
#[test]
fn another_sum_of_the_server_changes_all_that_follows() {
    for backend in [Backend::Psm, Backend::Lwe] {
        let (first, rest) = run(backend, false, false);
        let (again, rest_again) = run(backend, false, true);
        for (link, messages) in &first {
            // The server changes what it returns of the second sum.
            let same = if link.1 == PartyId::SERVER { 2 } else { 1 };
            assert_eq!(messages[..same], again[link][..same], "{link:?}");
        }
        assert_apart(&first, &again, 2);
        assert_apart(&rest, &rest_again, 0);
    }
}
