//! `lwe`: ends of a pair that break the rules, and the server alone with clients that send what
//! nobody asked for.

use std::collections::HashSet;

use undertone::hamming::tiles::{Sink, Tile};
use undertone::hamming::{self, Backend, ClientContext, PHASE, Phe, ServerContext};
use undertone::job::simulation::SimulationError;
use undertone::kdf::{Seed, simulated};
use undertone::lwe::Params;
use undertone::party::{Abort, Aborted, Endpoint, Limits, Network, Node, PartyId, Script};
use undertone::setup::fixed::FixedGroup;
use undertone::sum::Suite;
use undertone_tests::chooser;
use undertone_tests::kept::Kept;
use undertone_tests::tamper::{self, assert_malformed, tampering};

use super::lwe::{random, run};

const SERVER: PartyId = PartyId::SERVER;
const EVALUATOR: PartyId = PartyId::client(1);
const OWNER: PartyId = PartyId::client(0);

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
            cells: None,
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
            session,
            cells: None,
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

/// A sink that counts pairs of rows.
#[derive(Default)]
struct Counted(HashSet<[usize; 4]>);

impl Sink for Counted {
    fn fork(&self) -> Self {
        Self::default()
    }

    fn join(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    fn tile(&mut self, tile: &Tile<'_>) {
        let (left, right) = (tile.left, tile.right);
        for a in left.rows.clone() {
            let pair = |b| [left.client, a, right.client, b];
            self.0.extend(right.rows.clone().map(pair));
        }
    }
}

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
        session,
        cells: None,
        backend: Backend::Lwe,
        bits: 100,
        clients: ids.into_iter().zip(HELD).collect(),
        channels: group.server,
        suite: Suite::Aes128Ctr,
        min_clients: 1,
        phe: Phe::insecure(256),
    };
    let server = hamming::server(context, Counted::default()).unwrap();
    let mut server = Endpoint::new(SERVER, session, Limits::default(), server);
    let mut nodes: Vec<&mut dyn Node> = vec![&mut server];
    nodes.extend(clients.iter_mut().map(|client| client as &mut dyn Node));
    let mut network = Network::new().choose(chooser(order));
    let stalled = network.run(&mut nodes).err();
    match server.finish() {
        Ok((collected, _)) => Ok(collected.sink.0.len()),
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
