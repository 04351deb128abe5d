//! `shade`: what the server sees, what a client sees, and what a server that departs from the
//! protocol could see.

use undertone::hamming::{Backend, Phe};
use undertone::kdf::Seed;
use undertone::kernel::{BitMatrix, pack};
use undertone::ot::base;
use undertone::party::frame::HEADER_LEN;
use undertone::party::{Network, PartyId};
use undertone::setup::seal::{Channel, TAG_LEN};
use undertone::simulate::{DistanceRun, DistanceSimulation};
use undertone::sum::Suite;
use undertone_tests::kept::Kept;

use super::distances::{SEED, SERVER, halves, party, session};

const ROWS: usize = 60;
/// A multiple of the group size, so that offers have no filling.
const BITS: usize = 4080;
const WIDTH: u32 = 12;

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

/// A limit of the semi-honest model, which docs/security.md states: offers are not sealed. A server
/// that changes an offer sees the receiver's bit in the distance.
#[test]
fn a_server_that_changes_offers_reads_bits_of_codes() {
    let codes = halves();
    let honest = run(&codes, Network::new()).collected.sink;
    let mut offers = 0;
    let network = Network::new().intercept(|from, to, frame| {
        if (from, to) == (PartyId::client(0), PartyId::client(1)) {
            // Message 0 has the points of the base transfers. Message 1 has offers: this is the
            // lowest bit of lane 0 of transfer 0.
            if offers == 1 {
                frame[HEADER_LEN] ^= 1;
            }
            offers += 1;
        }
    });
    let changed = run(&codes, network).collected.sink;
    let differs = honest.distances[&[0, 0, 1, 0]] != changed.distances[&[0, 0, 1, 0]];
    assert_eq!(differs, codes[1].get(0, 0));
}
