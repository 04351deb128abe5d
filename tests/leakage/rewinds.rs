//! Rewinds: a client is restored and runs the same session again, with the same secrets and other
//! rows. All other machines are restored, too, and nothing of theirs changes.

use undertone::hamming::{Backend, Phe};
use undertone::kdf::Seed;
use undertone::kernel::{BitMatrix, Prg};
use undertone::label::{Codes, Labelling, Params, Rows, phases};
use undertone::party::frame::HEADER_LEN;
use undertone::party::{Network, PartyId};
use undertone::simulate::DistanceSimulation;
use undertone::sum::UPLOAD;
use undertone_tests::kept::Kept;
use undertone_tests::label::Simulation;

use super::distances::SEED;

const BITS: usize = 512;
const ROWS: usize = 30;
/// The phases with whatever depends on codes and labels.
const PHASES: [u8; 3] = [phases::OFFLINE.id, phases::DISTANCES.id, UPLOAD.id];

/// The frames of clients in these phases, in order.
type Seen = Vec<(PartyId, PartyId, u8, Vec<u8>)>;

/// The codes of three clients. `changed` changes eight bits of one row of the second.
fn codes(changed: bool) -> Vec<BitMatrix> {
    let mut prg = Prg::new(&[3; 32]);
    let clients = (0..3).map(|client| {
        let mut bytes = vec![0; ROWS * BITS / 8];
        prg.fill(&mut bytes);
        bytes[5] ^= u8::from(changed && client == 1) * 255;
        BitMatrix::from_packed(ROWS, BITS, &bytes)
    });
    clients.collect()
}

fn watch(seen: &mut Seen) -> Network<'_> {
    Network::new().intercept(|from, to, frame| {
        if from != PartyId::SERVER && PHASES.contains(&frame[4]) {
            seen.push((from, to, frame[4], frame[HEADER_LEN..].to_vec()));
        }
    })
}

/// A whole run of label propagation. `label` is the label of the second client's first row.
fn labels(backend: Backend, changed: bool, label: u16) -> Seen {
    let clients = codes(changed)
        .into_iter()
        .enumerate()
        .map(|(client, bits)| {
            let labels = (0..ROWS).map(|row| match (client, row) {
                (1, 0) => Some(label),
                _ => (row % 3 == 0).then_some((row % 2) as u16),
            });
            let labelling = Labelling::new(2, labels.collect()).unwrap();
            (Rows::Codes(Codes::from_bits(bits)), labelling)
        });
    let simulation = Simulation {
        params: Params {
            bits: BITS,
            backend,
            phe: Phe::insecure(256),
            ..Params::default()
        },
        clients: clients.collect(),
        seed: Seed::from_bytes(SEED),
    };
    let mut seen = Vec::new();
    simulation.run_over(watch(&mut seen)).unwrap();
    // What each client first tells the server of its own rows is not hidden from it.
    let mut first = [true; 3];
    seen.retain(|(from, _, phase, _)| {
        let first = &mut first[from.index().unwrap()];
        *phase != phases::DISTANCES.id || !std::mem::take(first)
    });
    seen
}

/// The distances alone, where nothing ties secrets to codes.
fn distances(backend: Backend, changed: bool) -> Seen {
    let simulation = DistanceSimulation {
        backend,
        suite: undertone::sum::Suite::Aes128Ctr,
        phe: Phe::insecure(256),
        codes: codes(changed),
        min_clients: 3,
        sink: Kept::default(),
        seed: Seed::from_bytes(SEED),
    };
    let mut seen = Vec::new();
    simulation.run_over(watch(&mut seen)).unwrap();
    seen
}

/// The share of bytes that are the same in both runs, of each two messages in the same place that
/// are not wholly the same. By chance it is 1/256. With the number of messages that are wholly the
/// same.
fn equal(one: &Seen, other: &Seen) -> (f64, usize) {
    assert_eq!(one.len(), other.len());
    let (mut same, mut all, mut wholly) = (0, 0, 0);
    for ((from, to, _, a), (from_again, to_again, _, b)) in one.iter().zip(other) {
        assert_eq!((from, to), (from_again, to_again));
        if a == b {
            wholly += 1;
            continue;
        }
        let bytes = a.iter().zip(b);
        same += bytes.clone().filter(|(a, b)| a == b).count();
        all += bytes.len();
    }
    (same as f64 / all as f64, wholly)
}

/// No message with content is the same, also of clients that bring the same: nobody uses a mask
/// twice.
#[test]
fn a_run_with_other_rows_or_labels_shares_no_randomness_with_the_first() {
    for backend in [Backend::Psm, Backend::Shade, Backend::Phe, Backend::Lwe] {
        let first = labels(backend, false, 0);
        assert_eq!(first, labels(backend, false, 0), "{backend}");
        for (what, other) in [
            ("rows", labels(backend, true, 0)),
            ("labels", labels(backend, false, 1)),
        ] {
            let (share, wholly) = equal(&first, &other);
            println!("{backend}, other {what}: {share:.4} of the bytes, {wholly} messages");
            assert!(share < 0.02, "{backend}, {what}: {share}");
            for (a, _) in first.iter().zip(&other).filter(|(a, b)| a == b) {
                // *Done* and questions are constant, under a seal that the same two keys make.
                let changed = [a.0, a.1].contains(&PartyId::client(1));
                assert!(a.3.len() <= 20 && !changed, "{backend}, {what}: {a:?}");
            }
        }
    }
}

/// The same without the tie: most messages are those of the first run, and the others differ in a
/// few bytes. With `psm` these show which bits changed.
#[test]
fn without_the_tie_runs_share_their_masks() {
    let again = |backend| equal(&distances(backend, false), &distances(backend, true));
    for backend in [Backend::Psm, Backend::Shade, Backend::Phe, Backend::Lwe] {
        let (share, wholly) = again(backend);
        println!("{backend}: {share:.4} of the bytes, {wholly} messages");
    }
    let (psm, shade) = (again(Backend::Psm), again(Backend::Shade));
    assert!(psm.0 > 0.5 && shade.0 > 0.5, "{psm:?}, {shade:?}");
}
