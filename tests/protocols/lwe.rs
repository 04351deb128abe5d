//! `lwe`: numbers of rows and bits around boundaries, orders of messages, and clients dropped at
//! every frame.

use std::collections::BTreeMap;
use std::sync::Arc;

use undertone::hamming::tiles::{Block, Sink, Tile};
use undertone::hamming::{self, Backend, ClientContext, OFFLINE, Phe, ServerContext};
use undertone::job::simulation::SimulationError;
use undertone::kdf::{Seed, simulated};
use undertone::kernel::{self, BitMatrix, Cpu, Prg};
use undertone::party::frame::HEADER_LEN;
use undertone::party::{Endpoint, Limits, Network, Node, Party, PartyId, Script};
use undertone::setup::fixed::FixedGroup;
use undertone::simulate::{DistanceRun, DistanceSimulation};
use undertone::sum::Suite;
use undertone_tests::kept::Kept;
use undertone_tests::{chooser, points};

const SERVER: PartyId = PartyId::SERVER;

pub(super) fn random(rows: &[usize], bits: usize) -> Vec<BitMatrix> {
    let mut prg = Prg::new(&[5; 32]);
    let mut client = |rows: &usize| {
        let words = (0..rows * bits.div_ceil(64)).map(|_| prg.next_u64());
        BitMatrix::from_words(*rows, bits, words.collect())
    };
    rows.iter().map(&mut client).collect()
}

pub(super) fn run(
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
        min_clients: 1,
        sink: Kept::default(),
        seed: Seed::from_bytes([8; 32]),
    };
    simulation.run_over(network)
}

/// Sizes around tiles, panels and blocks of rows, all classes, and clients without rows.
#[test]
fn shapes_around_boundaries_are_exact() {
    for (rows, bits) in [
        (vec![1, 1], 1),
        (vec![64, 24], 1024),
        (vec![65, 25], 1025),
        (vec![63, 129, 23], 2048),
        (vec![7, 8, 9, 0, 8], 4095),
        (vec![9, 57], 4096),
        (vec![3, 2], 8192),
        (vec![2, 13], 16_384),
        (vec![0, 0], 8),
        (vec![5, 0, 5, 1], 100),
    ] {
        let codes = random(&rows, bits);
        for suite in Suite::ALL {
            let network = Network::new().choose(chooser(bits as u64));
            let lwe = run(Backend::Lwe, suite, &codes, network).unwrap();
            let clear = run(Backend::Clear, suite, &codes, Network::new()).unwrap();
            assert!(
                lwe.collected.sink == clear.collected.sink,
                "{rows:?}, {bits} bits"
            );
            let offline = |(_, ledger): &(_, undertone::party::Ledger)| {
                ledger.phase(OFFLINE).map_or(0, |cost| cost.bytes_sent)
            };
            assert_eq!(lwe.ledgers.iter().map(offline).sum::<u64>(), 0);
        }
    }
}

/// More rows than one masked row answers: several blocks of a key owner, and several rounds.
#[test]
#[ignore = "millions of distances of long codes"]
fn key_owners_with_several_blocks_are_exact() {
    let codes = random(&[2100, 2050, 30], 16_384);
    let lwe = run(Backend::Lwe, Suite::Aes128Ctr, &codes, Network::new()).unwrap();
    let clear = run(Backend::Clear, Suite::Aes128Ctr, &codes, Network::new()).unwrap();
    assert!(lwe.collected.sink == clear.collected.sink);
}

/// Counts distances, and those that differ from a popcount.
struct Compare {
    codes: Arc<Vec<BitMatrix>>,
    count: usize,
    wrong: usize,
}

impl Compare {
    fn new(codes: Arc<Vec<BitMatrix>>) -> Self {
        Self {
            codes,
            count: 0,
            wrong: 0,
        }
    }
}

impl Sink for Compare {
    fn fork(&self) -> Self {
        Self::new(self.codes.clone())
    }

    fn join(&mut self, other: Self) {
        self.count += other.count;
        self.wrong += other.wrong;
    }

    fn tile(&mut self, tile: &Tile<'_>) {
        let mut due = vec![0; tile.distances.len()];
        let side = |block: &Block| (&self.codes[block.client], block.rows.clone());
        let ((a, rows), (b, columns)) = (side(tile.left), side(tile.right));
        kernel::hamming::distances(Cpu::detect(), a, rows, b, columns, &mut due);
        self.count += due.len();
        let pairs = due.iter().zip(tile.distances);
        self.wrong += pairs.filter(|(due, distance)| due != distance).count();
    }
}

/// A quarter of a billion for each of four lengths.
#[test]
#[ignore = "minutes"]
fn of_a_billion_distances_none_is_wrong() {
    for bits in [256, 1024, 2048, 4096] {
        let codes = Arc::new(random(&[15_812, 15_812], bits));
        let simulation = DistanceSimulation {
            backend: Backend::Lwe,
            suite: Suite::Aes128Ctr,
            phe: Phe::insecure(256),
            codes: codes.to_vec(),
            min_clients: 1,
            sink: Compare::new(codes),
            seed: Seed::from_bytes([9; 32]),
        };
        let sink = simulation.run_over(Network::new()).unwrap().collected.sink;
        assert_eq!(
            (sink.count, sink.wrong),
            (15_812 * 15_812, 0),
            "{bits} bits"
        );
    }
}

/// More keys and answers than fit the links between clients, which send them to each other: equal
/// evaluators, and evaluators that have few tiles while others have many.
#[test]
fn clients_never_wait_for_each_other_in_a_circle() {
    for rows in [&[210, 205, 200][..], &[20, 300, 40, 70, 70]] {
        let codes = random(rows, 16_384);
        let clear = run(Backend::Clear, Suite::Aes128Ctr, &codes, Network::new()).unwrap();
        for order in [None, Some(1)] {
            let mut network = Network::new();
            if let Some(order) = order {
                network = network.choose(chooser(order));
            }
            let lwe = run(Backend::Lwe, Suite::Aes128Ctr, &codes, network).unwrap();
            assert!(lwe.collected.sink == clear.collected.sink);
        }
    }
}

/// The other evaluators wait for one that has not asked for keys yet. It drops out, and they get
/// the keys. So do those whose key owner drops out.
#[test]
fn who_drops_out_holds_up_no_other_evaluator() {
    let codes = random(&[26, 40, 30, 33], 16_384);
    let whole = run(Backend::Clear, Suite::Aes128Ctr, &codes, Network::new()).unwrap();
    for leaver in 0..codes.len() {
        for after in [3, 7, 8, 9, 12, 16, 20, 25] {
            let network = Network::new().leave(PartyId::client(leaver), after);
            let run = run(Backend::Lwe, Suite::Aes128Ctr, &codes, network).unwrap();
            let remains = &run.collected.remains;
            for place in (0..codes.len()).filter(|place| *place != leaver) {
                assert!(
                    run.clients[place].is_ok() && remains[place],
                    "{leaver}, {after}"
                );
            }
            let mut expected = whole.collected.sink.clone();
            expected
                .distances
                .retain(|pair, _| remains[pair[0]] && remains[pair[2]]);
            assert!(run.collected.sink == expected, "{leaver}, {after}");
        }
    }
}

/// The clients and the server of a run.
fn endpoints(codes: &[BitMatrix]) -> (Vec<Endpoint<impl Party + use<>>>, Endpoint<impl Party>) {
    let seed = Seed::from_bytes([8; 32]);
    let session = simulated::session(&seed);
    let (suite, phe, min_clients) = (Suite::Aes128Ctr, Phe::insecure(256), 1);
    let rows = codes.iter().enumerate();
    let roster: Vec<_> = rows
        .map(|(place, codes)| (PartyId::client(place), codes.rows()))
        .collect();
    let ids: Vec<PartyId> = roster.iter().map(|(id, _)| *id).collect();
    let group = FixedGroup::new(session, &ids, &seed).unwrap();
    let ends = ids.into_iter().zip(group.clients).zip(codes);
    let clients = ends.map(|((me, ends), codes)| {
        let context = ClientContext {
            cells: None,
            session,
            me,
            clients: roster.clone(),
            seed: seed.derive(session, "simulated group", &[]),
            secret: simulated::party(&seed, session, me),
            suite,
            phe,
            server: ends.server,
            channels: ends.others,
            min_clients,
        };
        let preparation = hamming::prepare(Backend::Lwe, codes.columns(), context).unwrap();
        let codes = codes.clone();
        let party = Script::new(OFFLINE, |io| async move {
            let prepared = io.run(preparation).await?;
            io.run(hamming::client(codes, prepared)?).await
        });
        Endpoint::new(me, session, Limits::default(), party)
    });
    let clients = clients.collect();
    let context = ServerContext {
        session,
        cells: None,
        backend: Backend::Lwe,
        bits: codes[0].columns(),
        clients: roster.clone(),
        channels: group.server,
        suite,
        min_clients,
        phe,
    };
    let server = hamming::server(context, Kept::default()).unwrap();
    let server = Endpoint::new(SERVER, session, Limits::default(), server);
    (clients, server)
}

/// A client falls silent at any time. All others wait in the end: each for a client, and so on,
/// down to the silent one, whatever that one says. So the server blames it.
// NET-23
#[test]
fn who_falls_silent_is_at_the_end_of_all_waiting() {
    let (long, short) = (
        random(&[60, 90, 70, 77], 16_384),
        random(&[60, 90, 70, 77], 4096),
    );
    for silent in (0..long.len()).map(PartyId::client) {
        // More messages of keys than are asked for ahead, and fewer.
        let codes = if silent.index() == Some(1) {
            &long
        } else {
            &short
        };
        for after in points(usize::MAX) {
            let after = after as u64;
            let mut sent = 0;
            let mut network = Network::new()
                .choose(chooser(after))
                .intercept(|from, _, frame| {
                    sent += u64::from(from == silent);
                    if from == silent && sent > after {
                        frame.clear();
                    }
                });
            let (mut clients, mut server) = endpoints(codes);
            let mut nodes: Vec<&mut dyn Node> = vec![&mut server];
            nodes.extend(clients.iter_mut().map(|client| client as &mut dyn Node));
            // It stalls, unless all was sent.
            let _ = network.run(&mut nodes);
            drop(network);
            for start in &clients {
                let mut path = vec![start.id()];
                while let Some(last) = path.last().filter(|last| **last != silent) {
                    let last = &clients[last.index().unwrap()];
                    let Some(next) = last.waits_for().first().copied() else {
                        assert_eq!(path.len(), 1, "{silent}, {after}: {path:?}");
                        break;
                    };
                    assert!(!path.contains(&next), "{silent}, {after}: {path:?}, {next}");
                    path.push(next);
                }
            }
            if sent <= after {
                break;
            }
        }
    }
}

/// An evaluator asks for four messages of keys ahead, as many as fit 4 MiB, and for no more.
#[test]
fn keys_are_asked_for_four_messages_ahead() {
    let codes = random(&[70, 60], 16_384);
    let (evaluator, owner) = (PartyId::client(0), PartyId::client(1));
    let (mut ahead, mut most, mut messages) = (0, 0, 0);
    let mut network = Network::new().intercept(|from, to, frame| {
        // Questions for keys are empty, under a seal. Keys fill their messages.
        match (from, to, frame.len() - HEADER_LEN) {
            (from, to, 16) if (from, to) == (evaluator, owner) => ahead += 1,
            (from, to, 100_000..) if (from, to) == (owner, evaluator) => {
                ahead -= 1;
                messages += 1;
            }
            _ => (),
        }
        most = most.max(ahead);
    });
    let (mut clients, mut server) = endpoints(&codes);
    let mut nodes: Vec<&mut dyn Node> = vec![&mut server];
    nodes.extend(clients.iter_mut().map(|client| client as &mut dyn Node));
    network.run(&mut nodes).unwrap();
    drop(network);
    assert_eq!((most, ahead, messages), (4, 0, 6));
}

/// Keys and headers reach all their receivers one right after another, and count once.
#[test]
fn keys_and_headers_count_once() {
    let codes = random(&[9, 70, 5, 8], 100);
    let mut last: Option<(PartyId, Vec<u8>)> = None;
    let mut spared = BTreeMap::new();
    let mut sent = BTreeMap::new();
    let network = Network::new().intercept(|from, to, frame| {
        if let Some((before, payload)) = &last
            && *before == from
            && payload[..] == frame[HEADER_LEN..]
        {
            assert!(from != SERVER && to != SERVER);
            *spared.entry(from).or_insert(0) += payload.len() as u64;
        }
        *sent.entry(from).or_insert(0) += frame.len() as u64;
        last = Some((from, frame[HEADER_LEN..].to_vec()));
    });
    let run = run(Backend::Lwe, Suite::Aes128Ctr, &codes, network).unwrap();
    // Client 1 evaluates for three, 0 for two, 3 for one.
    let (key, header, seal) = (1280 * 37 / 8, 1792 * 24 / 8, 16);
    let due = |more: u64, bytes: u64| more * (bytes + seal);
    let headers = [9, 64 + 6, 0, 8].map(|rows| rows * header);
    let expected = [
        due(1, headers[0]),
        2 * (headers[1] + 2 * seal),
        due(2, 5 * key),
        due(1, 8 * key),
    ];
    for (place, expected) in expected.into_iter().enumerate() {
        let id = PartyId::client(place);
        assert_eq!(spared[&id], expected, "{id}");
        let (_, ledger) = &run.ledgers[place + 1];
        let counted: u64 = ledger.phases().map(|(_, cost)| cost.bytes_sent).sum();
        assert_eq!(counted, sent[&id] - expected, "{id}");
    }
}

/// Four clients of which one drops out after any number of frames: its distances are gone, and all
/// others are right.
#[test]
fn clients_that_drop_out_at_any_frame_take_their_pairs_with_them() {
    let codes = random(&[70, 3, 66, 2], 300);
    let whole = run(Backend::Clear, Suite::Aes128Ctr, &codes, Network::new()).unwrap();
    for leaver in 0..codes.len() {
        for after in 0.. {
            let network = Network::new()
                .choose(chooser(after as u64))
                .leave(PartyId::client(leaver), after);
            let run = run(Backend::Lwe, Suite::Aes128Ctr, &codes, network).unwrap();
            let remains = &run.collected.remains;
            let others = (0..codes.len()).filter(|place| *place != leaver);
            assert!(
                others.clone().all(|place| remains[place]),
                "{leaver}, {after}"
            );
            assert!(others.clone().all(|place| run.clients[place].is_ok()));
            let mut expected = whole.collected.sink.clone();
            expected
                .distances
                .retain(|pair, _| remains[pair[0]] && remains[pair[2]]);
            assert!(run.collected.sink == expected, "{leaver}, {after}");
            if remains[leaver] {
                break;
            }
        }
    }
}

/// Two runs with the same seed send the same messages. With different seeds every message differs.
#[test]
fn a_seed_fixes_the_transcript() {
    let codes = random(&[20, 30], 100);
    let transcript = |seed: u8| {
        let mut frames = Vec::new();
        let simulation = DistanceSimulation {
            backend: Backend::Lwe,
            suite: Suite::Aes128Ctr,
            phe: Phe::insecure(256),
            codes: codes.clone(),
            min_clients: 1,
            sink: Kept::default(),
            seed: Seed::from_bytes([seed; 32]),
        };
        let network =
            Network::new().intercept(|_, _, frame| frames.push(frame[HEADER_LEN..].to_vec()));
        simulation.run_over(network).unwrap();
        frames
    };
    let (one, again, other) = (transcript(1), transcript(1), transcript(2));
    assert_eq!(one, again);
    assert_eq!(one.len(), other.len());
    for (one, other) in one.iter().zip(&other) {
        assert!(one.len() == other.len() && one != other);
    }
}
