//! Every backend delivers every distance, for any numbers of rows and bits, any order of delivery
//! and any dropped clients.

use proptest::prelude::*;
use undertone::hamming::{Backend, PHASE, Phe};
use undertone::job::simulation::SimulationError;
use undertone::kdf::Seed;
use undertone::kernel::{BitMatrix, Cpu, Prg, hamming};
use undertone::party::frame::HEADER_LEN;
use undertone::party::{Abort, Network, PartyId};
use undertone::simulate::{DistanceRun, DistanceSimulation};
use undertone::sum::Suite;
use undertone_tests::kept::Kept;
use undertone_tests::tamper::{self, set_payload, tampering};
use undertone_tests::{cases, chooser, dataset};

fn random(rows: &[usize], bits: usize, seed: u8) -> Vec<BitMatrix> {
    let mut prg = Prg::new(&[seed; 32]);
    let mut client = |rows: &usize| {
        let words = (0..rows * bits.div_ceil(64)).map(|_| prg.next_u64());
        BitMatrix::from_words(*rows, bits, words.collect())
    };
    rows.iter().map(&mut client).collect()
}

/// The distances between rows of different remaining clients.
fn expected(codes: &[BitMatrix], remains: &[bool]) -> Kept {
    let mut all = Kept::default();
    for (j, a) in codes.iter().enumerate() {
        for (k, b) in codes.iter().enumerate().skip(j + 1) {
            if !(remains[j] && remains[k]) {
                continue;
            }
            let mut out = vec![0; a.rows() * b.rows()];
            hamming::distances(Cpu::portable(), a, 0..a.rows(), b, 0..b.rows(), &mut out);
            for (at, distance) in out.into_iter().enumerate() {
                let pair = [j, at / b.rows(), k, at % b.rows()];
                all.distances.insert(pair, distance);
            }
        }
    }
    all
}

fn run(
    backend: Backend,
    suite: Suite,
    codes: &[BitMatrix],
    network: Network<'_>,
) -> Result<DistanceRun<Kept>, SimulationError> {
    run_with(1, backend, suite, codes, network)
}

fn run_with(
    min_clients: usize,
    backend: Backend,
    suite: Suite,
    codes: &[BitMatrix],
    network: Network<'_>,
) -> Result<DistanceRun<Kept>, SimulationError> {
    let simulation = DistanceSimulation {
        backend,
        suite,
        phe: Phe::insecure(256),
        codes: codes.to_vec(),
        min_clients,
        sink: Kept::default(),
        seed: Seed::from_bytes([8; 32]),
    };
    simulation.run_over(network)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(96)))]
    #[test]
    fn every_distance_comes_once(
        rows in prop::collection::vec(0usize..20, 2..6), bits in 1usize..400, order: Option<u64>,
        seed: u8, aes: bool,
    ) {
        let codes = random(&rows, bits, seed);
        let suite = if aes { Suite::Aes128Ctr } else { Suite::ChaCha20 };
        for backend in Backend::ALL {
            let network = match order {
                Some(order) => Network::new().choose(chooser(order)),
                None => Network::new(),
            };
            let run = run(backend, suite, &codes, network).unwrap();
            prop_assert!(run.clients.iter().all(Result::is_ok));
            prop_assert_eq!(&run.collected.sink, &expected(&codes, &vec![true; rows.len()]));
        }
    }

    /// A client that drops out at any point either has sent everything, or the result is as if it
    /// had never taken part.
    #[test]
    fn leavers_leave_no_trace(
        rows in prop::collection::vec(0usize..12, 3..6), bits in 1usize..100, order: u64, seed: u8,
        leavers in prop::collection::btree_map(0usize..6, 0usize..9, 1..3),
    ) {
        let codes = random(&rows, bits, seed);
        for backend in Backend::ALL {
            let mut network = Network::new().choose(chooser(order));
            for (place, after) in leavers.iter().filter(|(place, _)| **place < rows.len()) {
                network = network.leave(PartyId::client(*place), *after);
            }
            let run = run(backend, Suite::Aes128Ctr, &codes, network).unwrap();
            let remains = &run.collected.remains;
            prop_assert_eq!(&run.collected.sink, &expected(&codes, remains));
            for (place, outcome) in run.clients.iter().enumerate() {
                prop_assert!(leavers.contains_key(&place) || outcome.is_ok() && remains[place]);
            }
        }
    }
}

#[test]
fn the_longest_and_the_shortest_codes() {
    for (bits, rows) in [
        (1, [3, 2]),
        (16_384, [2, 3]),
        (65_535, [2, 3]),
        (4095, [1, 2]),
        (4096, [2, 1]),
    ] {
        let mut codes = random(&rows, bits, 1);
        // The codes of client 0 are all ones, those of client 1 all zeros.
        codes[0] =
            BitMatrix::from_words(rows[0], bits, vec![u64::MAX; rows[0] * bits.div_ceil(64)]);
        codes[1] = BitMatrix::zero(rows[1], bits);
        for backend in Backend::ALL {
            if bits > backend.max_bits() {
                continue;
            }
            let run = run(backend, Suite::Aes128Ctr, &codes, Network::new()).unwrap();
            assert_eq!(run.collected.sink, expected(&codes, &[true, true]));
            let first = run.collected.sink.distances[&[0, 0, 1, 0]];
            assert_eq!(usize::from(first), bits);
        }
    }
}

/// Several tiles in rows and columns, and several messages of masked codes.
#[test]
fn several_tiles() {
    let codes = random(&[700, 530, 20], 3000, 2);
    let network = Network::new().choose(chooser(5));
    let psm = run(Backend::Psm, Suite::Aes128Ctr, &codes, network).unwrap();
    assert_eq!(psm.collected.sink, expected(&codes, &[true; 3]));
    let cost = psm.ledgers[1].1.phase(PHASE).unwrap();
    // Masked codes: 233 rows of 4500 bytes in a message. Four tiles with client 1, two with client
    // 2.
    assert_eq!(cost.messages, 4 + 4 + 2);
}

#[test]
fn psm_is_clear_on_all_data_sets() {
    use undertone::label::{Labelling, Params, Rows};
    use undertone_tests::label::Simulation;
    for name in ["digits", "wine"] {
        let data = dataset(name).unwrap();
        let parts: Vec<Vec<usize>> = (0..4)
            .map(|part| (part..data.labels.len()).step_by(4).collect())
            .collect();
        let run = |backend| {
            let params = Params {
                backend,
                ..Params::default()
            };
            let clients = parts.iter().map(|part| {
                let Rows::Features(features) = &data.rows else {
                    panic!("features");
                };
                let labels = part
                    .iter()
                    .enumerate()
                    .map(|(at, row)| data.labels[*row].filter(|_| at % 7 == 0));
                let labelling = Labelling::new(10, labels.collect()).unwrap();
                (Rows::Features(features.select(part)), labelling)
            });
            let simulation = Simulation {
                params,
                clients: clients.collect(),
                seed: Seed::from_bytes([1; 32]),
            };
            simulation.run(|_| {}).unwrap()
        };
        let (psm, clear) = (run(Backend::Psm), run(Backend::Clear));
        assert_eq!(psm.report.distances, clear.report.distances, "{name}");
        assert_eq!(psm.clients, clear.clients, "{name}");
    }
}

/// False messages in psm, from clients (PSM-6) and from the server.
#[test]
fn psm_catches_messages_that_cannot_be() {
    let codes = random(&[5, 4, 6], 50, 1);
    let server = PartyId::SERVER;
    let victim = PartyId::client(1);
    let tampered = |from, to, nth: usize, change: &dyn Fn(&mut Vec<u8>)| {
        let network = tampering((from, to, nth), change);
        match run(Backend::Psm, Suite::Aes128Ctr, &codes, network) {
            Ok(run) => run.clients[1].clone().unwrap_err(),
            Err(SimulationError::Aborted(aborted)) => aborted,
            Err(stalled) => panic!("{stalled}"),
        }
    };
    // Masked codes, the tile with client 0, the tile with client 2. PSM-6
    for nth in 0..3 {
        for change in [
            |m: &mut Vec<u8>| m[3] ^= 1,
            |m: &mut Vec<u8>| m.push(0),
            |m: &mut Vec<u8>| m.clear(),
        ] {
            let aborted = tampered(victim, server, nth, &change);
            assert_eq!(aborted.party, server);
            assert!(
                matches!(aborted.cause, Abort::Malformed { from, .. } if from == victim),
                "{aborted}"
            );
        }
    }
    let cheated = |change: &dyn Fn(&mut Vec<u8>), nth, expected: &str| {
        let aborted = tampered(server, victim, nth, change);
        assert_eq!(aborted.party, victim);
        assert!(aborted.to_string().contains(expected), "{aborted}");
    };
    // PSM-2
    cheated(&|m| m[0] = 9, 0, "is not on the roster");
    cheated(&|m| m.rotate_left(4), 0, "is not on the roster");
    // PSM-1, PSM-3
    cheated(&|m| m.truncate(4), 0, "leaves this client out");
    cheated(&|m| m.truncate(5), 0, "client: 4 bytes are due");
    cheated(&|m| m.clear(), 0, "leaves this client out");
}

/// PSM-4: the server names fewer participants than `min_clients`. The client cannot tell whether
/// the server lies, and sends nothing.
#[test]
fn psm_clients_do_not_take_part_with_too_few() {
    let codes = random(&[5, 4, 6, 3], 50, 1);
    let victim = PartyId::client(1);
    let network = tampering((PartyId::SERVER, victim, 0), |m| m.truncate(8));
    let run = run_with(3, Backend::Psm, Suite::Aes128Ctr, &codes, network).unwrap();
    let aborted = run.clients[1].clone().unwrap_err();
    assert_eq!(aborted.party, victim);
    assert_eq!(aborted.cause, Abort::TooFew { left: 2, need: 3 });
    assert_eq!(run.collected.remains, [true, false, true, true]);
}

/// A network in which `change` alters the text inside the seal of message `nth` from client `place`
/// to the server.
fn inside<'a>(place: usize, nth: usize, change: impl Fn(&mut Vec<u8>) + 'a) -> Network<'a> {
    let link = (PartyId::client(place), PartyId::SERVER, nth);
    tamper::inside([8; 32], link, change).unwrap()
}

#[test]
fn psm_checks_what_is_inside_the_seals() {
    let codes = random(&[5, 4, 6], 50, 1);
    let aborted = |network| match run(Backend::Psm, Suite::Aes128Ctr, &codes, network) {
        Err(SimulationError::Aborted(aborted)) => aborted,
        other => panic!("{other:?}"),
    };
    // PSM-7
    for nth in 0..3 {
        for change in [Vec::clear as fn(&mut Vec<u8>), |m| m.push(0)] {
            let aborted = aborted(inside(1, nth, change));
            let Abort::Malformed { from, what } = &aborted.cause else {
                panic!("{aborted}");
            };
            assert_eq!(*from, PartyId::client(1));
            assert!(what.contains("bytes of numbers"), "{what}");
        }
    }
    // PSM-8: numbers have 6 bits and distances are at most 50. Some of twenty random numbers are
    // larger.
    let aborted = aborted(inside(1, 1, |m| Prg::new(&[3; 32]).fill(m)));
    let between = [PartyId::client(0), PartyId::client(1)];
    let Abort::Contradicted {
        first,
        second,
        fault,
    } = &aborted.cause
    else {
        panic!("{aborted}");
    };
    assert_eq!(
        ([*first, *second], aborted.cause.culprit()),
        (between, None)
    );
    assert!(fault.contains("above 50 bits"), "{fault}");
    // With 63 bits every number of 6 bits is a distance, so false halves pass.
    let codes = random(&[5, 4, 6], 63, 1);
    let network = inside(1, 1, |m| Prg::new(&[3; 32]).fill(m));
    let run = run(Backend::Psm, Suite::Aes128Ctr, &codes, network).unwrap();
    assert_ne!(run.collected.sink, expected(&codes, &[true; 3]));
}

/// Client 0 drops out in the first attempt and client 3 in the second. Then the server names client
/// 0 again: PSM-5.
#[test]
fn psm_clients_refuse_who_comes_back() {
    let codes = random(&[2, 3, 2, 2], 20, 1);
    let mut sets = 0;
    let network = Network::new()
        .leave(PartyId::client(0), 1)
        .leave(PartyId::client(3), 5)
        .intercept(|from, to, frame| {
            if (from, to) == (PartyId::SERVER, PartyId::client(1)) {
                sets += 1;
                if sets == 3 {
                    let set = frame[HEADER_LEN..].to_vec();
                    assert_eq!(set, [1, 0, 0, 0, 2, 0, 0, 0]);
                    set_payload(frame, &[&[0; 4], &set[..]].concat());
                }
            }
        });
    let run = run(Backend::Psm, Suite::Aes128Ctr, &codes, network).unwrap();
    let aborted = run.clients[1].clone().unwrap_err();
    assert!(
        aborted.to_string().contains("names a dropped client"),
        "{aborted}"
    );
    assert_eq!(run.collected.remains, [false, false, true, false]);
}

#[test]
fn codes_that_cannot_be_are_refused() {
    // LWE-1
    for (backend, bits, range) in [
        (Backend::Psm, 0, "1 to 65535"),
        (Backend::Psm, 65_536, "1 to 65535"),
        (Backend::Lwe, 0, "1 to 16384"),
        (Backend::Lwe, 16_385, "1 to 16384"),
    ] {
        let codes = [BitMatrix::zero(1, bits), BitMatrix::zero(1, bits)];
        let error = run(backend, Suite::Aes128Ctr, &codes, Network::new()).unwrap_err();
        assert!(error.to_string().contains(range), "{error}");
    }
}

/// The published protocols, bit by bit, are the oracle. They and every backend give the same
/// distances.
#[test]
fn backends_are_the_protocols_as_written() {
    use undertone_tests::as_written::{phe, shade};
    let codes = random(&[3, 4], 24, 6);
    let mut prg = Prg::new(&[7; 32]);
    let shade = shade::run(&codes[0], &codes[1], &mut prg);
    let (phe, _) = phe::run(&codes[0], &codes[1], phe::Mask::Uniform, &mut prg);
    assert_eq!(shade.distances, phe.distances);
    let real = shade::run_on_transfers(&codes[0], &codes[1], &mut prg).unwrap();
    assert_eq!(shade, real);
    for backend in Backend::ALL {
        let run = run(backend, Suite::Aes128Ctr, &codes, Network::new()).unwrap();
        assert_eq!(run.collected.sink.distances.len(), 12);
        for (pair, distance) in &run.collected.sink.distances {
            assert_eq!(shade.distances[pair[1]][pair[3]], u64::from(*distance));
        }
    }
    // Their costs: two messages of w = 5 bits for each transfer; ciphertexts of 2·60 bits.
    assert_eq!(shade.bits, 3 * 4 * (24 * 2 * 5 + 2 * 5));
    assert_eq!(phe.bits, 3 * (24 * 120 + 4 * (120 + 2 * 60)));
}
