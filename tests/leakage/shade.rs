//! `shade`: what the server sees, what a client sees, and what a server that departs from the
//! protocol does not see.

use std::cell::RefCell;

use undertone::hamming::{Backend, Phe};
use undertone::job::simulation::SimulationError;
use undertone::kdf::Seed;
use undertone::kernel::{BitMatrix, Prg, pack};
use undertone::ot::base;
use undertone::party::frame::HEADER_LEN;
use undertone::party::{Abort, Aborted, Network, PartyId};
use undertone::setup::seal::{Channel, TAG_LEN};
use undertone::simulate::{DistanceRun, DistanceSimulation};
use undertone::sum::Suite;
use undertone_tests::kept::Kept;
use undertone_tests::tamper::set_payload;

use super::distances::{SEED, SERVER, halves, party, session};

const ROWS: usize = 60;
/// A multiple of the group size, so that offers have no filling.
const BITS: usize = 4080;
const WIDTH: u32 = 12;
/// Bits of the codes whose offers are changed: the last group of a row has four transfers.
const BITS_OF_OFFERS: usize = 100;

const SENDER: PartyId = PartyId::client(0);
const RECEIVER: PartyId = PartyId::client(1);

fn run(codes: &[BitMatrix], network: Network<'_>) -> DistanceRun<Kept> {
    let simulation = DistanceSimulation {
        backend: Backend::Shade,
        suite: Suite::ChaCha20,
        phe: Phe::insecure(256),
        codes: codes.to_vec(),
        min_clients: 1,
        sink: Kept::default(),
        seed: Seed::from_bytes(SEED),
    };
    simulation.run_over(network).unwrap()
}

/// The codes furthest from random: all ones, and all zeros.
fn extremes() -> [BitMatrix; 2] {
    let ones = BitMatrix::from_words(ROWS, BITS, vec![u64::MAX; ROWS * BITS.div_ceil(64)]);
    [ones, BitMatrix::zero(ROWS, BITS)]
}

/// The first [`BITS`] bits of codes.
fn cut(codes: BitMatrix) -> BitMatrix {
    let words = (0..codes.rows()).flat_map(|row| codes.row(row)[..BITS.div_ceil(64)].to_vec());
    BitMatrix::from_words(codes.rows(), BITS, words.collect())
}

/// The sums of each side are uniform, and their difference is the distance. So all that the server
/// receives follows from the distances. The messages between the clients, which it relays, are
/// uniform.
#[test]
fn shade_shows_the_server_distances_alone() {
    for codes in [halves().map(cut), extremes()] {
        let channel = |place| {
            let id = PartyId::client(place);
            Channel::agree(session(), SERVER, &party(SERVER), id, party(id).public()).unwrap()
        };
        let mut channels: Vec<Channel> = (0..2).map(channel).collect();
        let (mut sums, mut between) = ([Vec::new(), Vec::new()], [Vec::new(), Vec::new()]);
        let network = Network::new().intercept(|from, to, frame| {
            let (place, payload) = (from.index().unwrap(), &frame[HEADER_LEN..]);
            if to == SERVER {
                let text = channels[place].open(payload).unwrap();
                let mut values = vec![0; 8 * (text.len() - 4) / WIDTH as usize];
                pack::unpack(WIDTH, &text[4..], &mut values);
                sums[place].extend(values);
            } else if payload.len() != base::OFFER_LEN + TAG_LEN {
                between[place].extend_from_slice(payload);
            }
        });
        let kept = run(&codes, network).collected.sink;
        // With equal numbers of rows client 0 is the sender. Sums are in rows of the receiver.
        let [r, t] = sums.clone();
        assert_eq!((r.len(), t.len()), (ROWS * ROWS, ROWS * ROWS));
        for ([_, a, _, i], distance) in kept.distances {
            let at = i * ROWS + a;
            let simulated = r[at].wrapping_add(distance) % (1 << WIDTH);
            assert_eq!(t[at], simulated);
        }
        for (what, values) in [("R", &r), ("T", &t)] {
            let bytes: Vec<u8> = values.iter().map(|value| *value as u8).collect();
            super::assert_uniform(&bytes, what);
        }
        super::assert_uniform(&between[0], "from the sender");
        super::assert_uniform(&between[1], "from the receiver");
    }
}

/// What a server does with the offers of the sender, client 0, to the receiver, client 1.
type Change<'a> = &'a dyn Fn(usize, &mut Vec<u8>);

/// The number of frames from the receiver to the server in a run in which `change` alters the
/// payloads from sender to receiver, and why the receiver aborts. Payload 0 has the points of the
/// base transfers.
fn changed(codes: &[BitMatrix], change: Change<'_>) -> (usize, Option<Aborted>) {
    let (mut seen, mut told) = (0, 0);
    let network = Network::new().intercept(|from, to, frame| {
        if (from, to) == (SENDER, RECEIVER) {
            let mut payload = frame[HEADER_LEN..].to_vec();
            change(seen, &mut payload);
            set_payload(frame, &payload);
            seen += 1;
        } else if (from, to) == (RECEIVER, SERVER) && frame.len() > HEADER_LEN {
            told += 1;
        }
    });
    let simulation = DistanceSimulation {
        backend: Backend::Shade,
        suite: Suite::ChaCha20,
        phe: Phe::insecure(256),
        codes: codes.to_vec(),
        min_clients: 2,
        sink: Kept::default(),
        seed: Seed::from_bytes(SEED),
    };
    match simulation.run_over(network) {
        Ok(run) => (told, run.clients.into_iter().find_map(Result::err)),
        Err(SimulationError::Aborted(aborted)) => (told, Some(aborted)),
        Err(stalled) => panic!("{stalled}"),
    }
}

/// Offers are not sealed, and a server that adds 2^(w − 1) to a number of an offer would read a bit
/// of the receiver's code in the distance. The receiver compares the hash of all offers of a tile
/// with the sender's digest before it sends its sums. So the server gets no sums of that tile.
#[test]
fn a_server_that_changes_offers_gets_no_sums() {
    // Rows of 100 bits: offers have groups of four transfers, with filling. With 3000 lanes a tile
    // of 174 rows has several messages.
    let mut prg = Prg::new(&[6; 32]);
    let mut codes = |rows: usize| {
        let words = (0..rows * BITS_OF_OFFERS.div_ceil(64)).map(|_| prg.next_u64());
        BitMatrix::from_words(rows, BITS_OF_OFFERS, words.collect())
    };
    let codes = [codes(3000), codes(200)];
    let payloads = RefCell::new(Vec::new());
    let honest = changed(&codes, &|_, payload| {
        payloads.borrow_mut().push(payload.clone());
    });
    let payloads = payloads.into_inner();
    let digests: Vec<usize> = (0..payloads.len())
        .filter(|i| payloads[*i].len() == 32)
        .collect();
    let [first, last] = digests[..] else {
        panic!("{} tiles", digests.len());
    };
    assert!(first > 3 && last == payloads.len() - 1, "{first}, {last}");
    // The sums of two tiles, and the end.
    assert_eq!((honest.0, honest.1.is_none()), (3, true));

    let flip = |number: usize, bit: usize| {
        move |at: usize, payload: &mut Vec<u8>| {
            if at == number {
                payload[bit / 8] ^= 1 << (bit % 8);
            }
        }
    };
    let put = |number: usize, other: usize| {
        let payloads = &payloads;
        move |at: usize, payload: &mut Vec<u8>| {
            if at == number {
                payload.clone_from(&payloads[other]);
            }
        }
    };
    let end = |number: usize| 8 * payloads[number].len() - 1;
    let (one, two, tail) = (
        flip(1, 6),
        flip(1, 8 * 3000),
        flip(first - 1, end(first - 1)),
    );
    let (middle, repeated) = (flip(2, 123_456), put(2, 1));
    let (swap, back) = (put(1, 2), put(2, 1));
    let swapped = |at: usize, payload: &mut Vec<u8>| {
        swap(at, payload);
        back(at, payload);
    };
    let group = |at: usize, payload: &mut Vec<u8>| {
        // The groups of a message change places.
        if at == 1 {
            payload.rotate_left(2 * 3000 * 7);
        }
    };
    let changes: [(&str, Change<'_>); 7] = [
        ("the highest bit of the first number", &one),
        ("a bit of lane 0 in the second word", &two),
        ("a bit of the filling at the end of the tile", &tail),
        ("a bit of the second message", &middle),
        ("the first message again", &repeated),
        ("two messages in the other order", &swapped),
        ("groups in another order", &group),
    ];
    for (what, change) in changes {
        let (told, aborted) = changed(&codes, change);
        let aborted = aborted.unwrap_or_else(|| panic!("{what}: nobody aborts"));
        assert_eq!((told, aborted.party), (0, RECEIVER), "{what}");
        let Abort::Contradicted { first, second, .. } = aborted.cause else {
            panic!("{what}: {aborted}");
        };
        assert_eq!((first, second), (SERVER, SENDER), "{what}");
    }
    // In the second tile: the sums of the first have left.
    let late = flip(last - 1, 77);
    let (told, aborted) = changed(&codes, &late);
    assert_eq!((told, aborted.unwrap().party), (1, RECEIVER));
    // A message that is left out, and the digest of another tile.
    let (left_out, other) = (put(first - 1, first), put(first, last));
    for change in [&left_out as Change<'_>, &other] {
        let (told, aborted) = changed(&codes, change);
        assert_eq!((told, aborted.unwrap().party), (0, RECEIVER));
    }
}
