//! `lwe`: numbers of rows and bits around boundaries, dropped clients at every frame, and cheaters.

use std::collections::BTreeMap;
use std::sync::Arc;

use undertone::hamming::tiles::{Block, Sink, Tile};
use undertone::hamming::{self, Backend, ClientContext, OFFLINE, PHASE, Phe, ServerContext};
use undertone::kdf::{Seed, simulated};
use undertone::kernel::{self, BitMatrix, Cpu, Prg};
use undertone::lwe::Params;
use undertone::party::frame::HEADER_LEN;
use undertone::party::{Abort, Aborted, Endpoint, Limits, Network, Node, Party, PartyId, Script};
use undertone::setup::fixed::FixedGroup;
use undertone::simulate::{DistanceRun, DistanceSimulation, SimulationError};
use undertone::sum::Suite;
use undertone_tests::chooser;
use undertone_tests::kept::Kept;
use undertone_tests::tamper::{self, assert_malformed, tampering};

const SERVER: PartyId = PartyId::SERVER;
const EVALUATOR: PartyId = PartyId::client(1);
const OWNER: PartyId = PartyId::client(0);

fn random(rows: &[usize], bits: usize) -> Vec<BitMatrix> {
    let mut prg = Prg::new(&[5; 32]);
    let mut client = |rows: &usize| {
        let words = (0..rows * bits.div_ceil(64)).map(|_| prg.next_u64());
        BitMatrix::from_words(*rows, bits, words.collect())
    };
    rows.iter().map(&mut client).collect()
}

fn run(
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
    let codes = random(&[26, 40, 30, 33], 16_384);
    for silent in (0..codes.len()).map(PartyId::client) {
        for after in 0.. {
            let mut sent = 0;
            let mut network = Network::new()
                .choose(chooser(after))
                .intercept(|from, _, frame| {
                    sent += u64::from(from == silent);
                    if from == silent && sent > after {
                        frame.clear();
                    }
                });
            let (mut clients, mut server) = endpoints(&codes);
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

fn aborted(network: Network<'_>) -> Aborted {
    let codes = random(&[20, 70], 100);
    match run(Backend::Lwe, Suite::Aes128Ctr, &codes, network) {
        Err(SimulationError::Aborted(aborted)) => aborted,
        Ok(run) => run.clients.into_iter().find_map(Result::err).unwrap(),
        Err(stalled) => panic!("{stalled}"),
    }
}

#[test]
fn what_is_sealed_cannot_be_changed() {
    // LWE-2: keys and a question; a start, a question, headers. DIST-6: answers, openings, the end.
    for (from, to, nth) in [
        (OWNER, EVALUATOR, 0),
        (OWNER, EVALUATOR, 1),
        (EVALUATOR, OWNER, 0),
        (EVALUATOR, OWNER, 1),
        (EVALUATOR, OWNER, 2),
        (EVALUATOR, OWNER, 3),
        (EVALUATOR, SERVER, 0),
        (EVALUATOR, SERVER, 2),
        (OWNER, SERVER, 0),
        (OWNER, SERVER, 1),
        (OWNER, SERVER, 2),
    ] {
        for change in [
            |m: &mut Vec<u8>| m[3] ^= 1,
            |m: &mut Vec<u8>| m.push(0),
            |m: &mut Vec<u8>| m.clear(),
        ] {
            let aborted = aborted(tampering((from, to, nth), change));
            assert_malformed(&aborted, from, PHASE);
        }
    }
}

fn inside<'a>(link: (PartyId, PartyId, usize), change: impl Fn(&mut Vec<u8>) + 'a) -> Network<'a> {
    tamper::inside([8; 32], link, change).unwrap()
}

#[test]
fn what_is_inside_the_seals_is_checked() {
    // LWE-3, LWE-5, LWE-6, LWE-11, LWE-17
    for (from, to, nth, what) in [
        (OWNER, EVALUATOR, 0, "keys of"),
        (EVALUATOR, OWNER, 0, "a start of"),
        (EVALUATOR, OWNER, 2, "headers of"),
        (EVALUATOR, OWNER, 3, "headers of"),
        (EVALUATOR, SERVER, 0, "answers of"),
        (EVALUATOR, SERVER, 1, "answers of"),
        (OWNER, SERVER, 0, "openings of"),
        (OWNER, SERVER, 1, "openings of"),
    ] {
        for change in [|m: &mut Vec<u8>| m.truncate(4), |m: &mut Vec<u8>| m.push(0)] {
            let aborted = aborted(inside((from, to, nth), change));
            assert_malformed(&aborted, from, PHASE);
            assert!(aborted.to_string().contains(what), "{aborted}");
        }
    }
    // LWE-14
    for (from, to, nth) in [(EVALUATOR, OWNER, 1), (OWNER, EVALUATOR, 1)] {
        let aborted = aborted(inside((from, to, nth), |m| m.push(0)));
        assert_malformed(&aborted, from, PHASE);
        assert!(aborted.to_string().contains("a question of"), "{aborted}");
    }
    // LWE-7
    let bit = |m: &mut Vec<u8>| *m.last_mut().unwrap() |= 2;
    let aborted_ = aborted(inside((EVALUATOR, OWNER, 0), bit));
    assert_malformed(&aborted_, EVALUATOR, PHASE);
    // LWE-12, LWE-16: the end is replaced by more.
    for (from, about) in [(OWNER, EVALUATOR), (EVALUATOR, OWNER)] {
        let more = move |m: &mut Vec<u8>| {
            *m = about.to_wire().to_le_bytes().to_vec();
            m.resize(200, 0);
        };
        let aborted_ = aborted(inside((from, SERVER, 2), more));
        assert_malformed(&aborted_, from, PHASE);
        let text = aborted_.to_string();
        assert!(text.contains("after the last"), "{text}");
    }
    // DIST-9: openings are missing, and answers are.
    let early = |m: &mut Vec<u8>| *m = SERVER.to_wire().to_le_bytes().to_vec();
    for from in [OWNER, EVALUATOR] {
        let aborted_ = aborted(inside((from, SERVER, 1), early));
        assert!(
            matches!(aborted_.cause, Abort::Contradicted { .. }),
            "{aborted_}"
        );
    }
}

/// LWE-13: distances that no codes have become the longest, and are counted. Nobody aborts: an
/// abort would answer a question of a client that cheats.
#[test]
fn impossible_distances_are_cut_and_counted() {
    let codes = random(&[20, 70], 100);
    let honest = run(Backend::Lwe, Suite::Aes128Ctr, &codes, Network::new()).unwrap();
    assert_eq!(honest.collected.above, 0);
    let due = honest.collected.sink.distances;
    let parities = codes[0].rows().div_ceil(8);
    let flip = move |m: &mut Vec<u8>| m[4 + parities..].iter_mut().for_each(|byte| *byte ^= 0x5a);
    let network = inside((OWNER, SERVER, 0), flip);
    let cheated = run(Backend::Lwe, Suite::Aes128Ctr, &codes, network).unwrap();
    assert!(cheated.clients.iter().all(Result::is_ok));
    let found = cheated.collected.sink.distances;
    assert_eq!(found.len(), due.len());
    let mut cut = 0;
    for (pair, distance) in &found {
        assert!(*distance <= 100);
        // The first message is about 64 rows of the evaluator.
        let changed = [(pair[0], pair[1]), (pair[2], pair[3])];
        if changed.contains(&(1, pair[1])) && pair[1] < 64 || pair[2] == 1 && pair[3] < 64 {
            cut += u64::from(*distance == 100);
        } else {
            assert_eq!(distance, &due[pair]);
        }
    }
    let above = cheated.collected.above;
    assert!(above > 500 && above <= cut, "{above}, {cut}");
}

/// LWE-15: nobody begins a session in which too many rows would meet the keys of one client.
#[test]
fn too_many_rows_are_refused_before_anything_is_sent() {
    let clients: Vec<(PartyId, usize)> = [131_072, 10, 1]
        .iter()
        .enumerate()
        .map(|(place, rows)| (PartyId::client(place), *rows))
        .collect();
    let seed = Seed::from_bytes([8; 32]);
    let session = simulated::session(&seed);
    let ids: Vec<PartyId> = clients.iter().map(|(id, _)| *id).collect();
    for (rows, refused) in [(131_072, true), (131_062, false)] {
        let mut clients = clients.clone();
        clients[0].1 = rows;
        let group = FixedGroup::new(session, &ids, &seed).unwrap();
        let (suite, phe, min_clients) = (Suite::Aes128Ctr, Phe::insecure(256), 1);
        let ends = group.clients.into_iter().next_back().unwrap();
        let context = ClientContext {
            session,
            me: ids[2],
            clients: clients.clone(),
            seed: seed.derive(session, "simulated group", &[]),
            secret: simulated::party(&seed, session, ids[2]),
            suite,
            phe,
            server: ends.server,
            channels: ends.others,
            min_clients,
        };
        let client = hamming::prepare(Backend::Lwe, 100, context);
        let context = ServerContext {
            backend: Backend::Lwe,
            bits: 100,
            clients,
            channels: group.server,
            suite,
            min_clients,
            phe,
        };
        let server = hamming::server(context, Kept::default());
        let errors = [client.err(), server.err()].map(|error| error.map(|e| e.to_string()));
        for error in &errors {
            let says = |what| {
                error
                    .as_ref()
                    .is_some_and(|error: &String| error.contains(what))
            };
            assert_eq!(error.is_some(), refused, "{errors:?}");
            assert!(
                !refused || says("131082 rows") && says("--backend psm"),
                "{errors:?}"
            );
        }
    }
}

/// Of three clients the first evaluates for both others, and the second for the third.
const HELD: [usize; 3] = [1280, 1100, 1];

/// What client `me` sends about the pair with client `peer`: the first `count` messages, then done
/// if it has sent all.
type Parts = Vec<(usize, usize)>;

/// The server alone, with clients that send it `parts` and do nothing else. Returns the number of
/// distances, or the error.
fn served(parts: [Parts; 3], ends: [bool; 3], order: u64) -> Result<usize, String> {
    let seed = Seed::from_bytes([8; 32]);
    let session = simulated::session(&seed);
    let ids = [0, 1, 2].map(PartyId::client);
    let group = FixedGroup::new(session, &ids, &seed).unwrap();
    let params = Params::of(100).unwrap();
    let message = |me: usize, peer: usize, number: usize| {
        let (rows, columns) = (HELD[me.min(peer)], HELD[me.max(peer)]);
        let first = number * 64;
        let parities = if number == 0 { HELD[me].div_ceil(8) } else { 0 };
        let tile = 64.min(rows - first);
        vec![0; parities + tile * params.answer_len(columns)]
    };
    let clients = group.clients.into_iter().zip(parts).enumerate();
    let mut clients: Vec<_> = clients
        .map(|(me, (channels, parts))| {
            let party = Script::new(PHASE, move |io| async move {
                let mut server = channels.server;
                let mut send = |peer: u32, part: &[u8]| {
                    let text = [&peer.to_le_bytes()[..], part].concat();
                    io.send(SERVER, server.seal(&text).unwrap());
                };
                for (peer, count) in parts {
                    for number in 0..count {
                        send(peer as u32, &message(me, peer, number));
                        io.pause().await;
                    }
                }
                if ends[me] {
                    send(SERVER.to_wire(), &[]);
                } else {
                    io.require(SERVER).await?;
                }
                Ok(())
            });
            Endpoint::new(ids[me], session, Limits::default(), party)
        })
        .collect();
    let context = ServerContext {
        backend: Backend::Lwe,
        bits: 100,
        clients: ids.into_iter().zip(HELD).collect(),
        channels: group.server,
        suite: Suite::Aes128Ctr,
        min_clients: 1,
        phe: Phe::insecure(256),
    };
    let server = hamming::server(context, Kept::default()).unwrap();
    let mut server = Endpoint::new(SERVER, session, Limits::default(), server);
    let mut nodes: Vec<&mut dyn Node> = vec![&mut server];
    nodes.extend(clients.iter_mut().map(|client| client as &mut dyn Node));
    let mut network = Network::new().choose(chooser(order));
    let stalled = network.run(&mut nodes).err();
    match server.finish() {
        Ok((collected, _)) => Ok(collected.sink.distances.len()),
        Err(aborted) => Err(stalled.map_or(aborted.to_string(), |stalled| stalled.to_string())),
    }
}

/// A client that sends openings or answers before anybody asks stops nobody else: the server keeps
/// some, takes no more from it for a while, and goes on with the others.
#[test]
fn who_is_far_ahead_stops_nobody_else() {
    let all = [[0, 20, 20], [20, 0, 18], [20, 18, 0]];
    let in_order = |me: usize, peers: [usize; 2]| peers.map(|peer| (peer, all[me][peer])).to_vec();
    let pairs: usize = 1280 * 1101 + 1100;
    for order in 0..4 {
        // Client 1 sends all openings for client 0, which comes to it last.
        let parts = [
            in_order(0, [2, 1]),
            in_order(1, [0, 2]),
            in_order(2, [0, 1]),
        ];
        assert_eq!(served(parts, [true; 3], order), Ok(pairs));
    }
}

/// Nobody is waited for in vain: if the other end has finished, or all are too far ahead, somebody
/// cheats.
// DIST-9
#[test]
fn parts_that_never_come_end_the_run() {
    for order in 0..3 {
        // Client 0 finishes without answers for client 1, which sends all openings.
        let parts = [
            vec![(2, 20)],
            vec![(0, 20), (2, 18)],
            vec![(1, 18), (0, 20)],
        ];
        let error = served(parts, [true; 3], order).unwrap_err();
        assert!(error.contains("sums are missing"), "{error}");
        // Each is ahead of another one, and the last would come next.
        let parts = [vec![(1, 18)], vec![(2, 18)], vec![(0, 18)]];
        let error = served(parts, [false; 3], order).unwrap_err();
        assert!(error.contains("sums are missing"), "{error}");
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
