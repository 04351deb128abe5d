//! Pairwise graphs against cheating parties: each check catches its cheater.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::{Arc, Mutex};

use undertone::job::Job as _;
use undertone::party::frame::HEADER_LEN;
use undertone::party::{Abort, Aborted, Lockstep, Network, PartyId, Script};
use undertone::pssl::{EDGES, Outcome, Report, SLOTS};
use undertone::setup::group::{self, PHASE};
use undertone::sum::wiring::Wiring;
use undertone::sum::{self, Audience, Rules, Shape, UNMASK, UPLOAD};
use undertone_tests::firsts;
use undertone_tests::pssl::{ROWS, Session, World, job};
use undertone_tests::tamper::{assert_cheated, assert_malformed, set_payload};

const SERVER: PartyId = PartyId::SERVER;
const CHEAT: PartyId = PartyId::client(1);

fn world(clients: usize) -> World {
    World::new(clients, |job| job.rounds = 2)
}

fn error(run: &Session, who: PartyId) -> &Aborted {
    run.clients[&who].as_ref().unwrap_err()
}

/// A client that says `hello` in the setup, and nothing else.
fn saying(world: &World, hello: Vec<u8>) -> Script<'static, Outcome> {
    let seed = world.seed(CHEAT);
    let setup = group::client(world.group(), CHEAT, hello, None, seed).unwrap();
    Script::new(PHASE, move |io| async move {
        io.run(setup).await?;
        Ok(Outcome {
            scores: Vec::new(),
            labels: Vec::new(),
            edges: Vec::new(),
            contributors: Vec::new(),
        })
    })
}

/// The errors of the server, and of client 0 with a server that checks nothing, if a client says
/// `hello` in the setup.
fn errors(world: &World, hello: &[u8]) -> [Aborted; 2] {
    let cheat = |who| (who == CHEAT).then(|| saying(world, hello.to_vec()));
    let run = world.run_with(Network::new(), world.server(), cheat);
    let setup = group::server(world.group(), world.all(), world.seed(SERVER)).unwrap();
    let lenient = Script::new(PHASE, move |io| async move {
        io.run(setup).await?;
        io.require(CHEAT).await?;
        Err(Abort::Internal("it waits only".into()))
    });
    let other = world.run_with(Network::new(), lenient, cheat);
    let client = error(&other, PartyId::client(0)).clone();
    [run.server.unwrap_err(), client]
}

fn hello(world: &World, rows: u32) -> Vec<u8> {
    let digest = world.jobs.0.digest();
    digest.into_iter().chain(rows.to_le_bytes()).collect()
}

/// PSSL-1: more than one edge per row and client.
#[test]
fn more_edges_than_one_are_refused_with_the_reason() {
    for lambda in [0, 2, 9, 48] {
        let mut job = job();
        job.lambda = lambda;
        let reason = job.check().unwrap_err();
        assert!(reason.contains("only 1 is possible"), "{reason}");
        assert!(reason.contains("82 of 100"), "{reason}");
    }
}

/// PSSL-2: weights that vanish. The ε that the reason asks for is enough.
#[test]
fn weights_that_vanish_are_refused() {
    let mut job = job().with_range(0.1, 0.8);
    assert_eq!(job.check(), Ok(()));
    job.epsilon = 0.8 * 0.8 / 16.7;
    let reason = job.check().unwrap_err();
    assert!(reason.contains("raise epsilon to 0.038"), "{reason}");
    job.epsilon = 0.0386;
    assert_eq!(job.check(), Ok(()));
    // The paper's ε for lengths from 3 to 9.
    let mut paper = job.with_range(3.0, 9.0);
    paper.epsilon = 0.8;
    assert!(paper.check().unwrap_err().contains("would vanish"));
}

/// PSSL-3 and PSSL-5, at the server and at the clients.
#[test]
fn hellos_that_do_not_decode_or_are_without_rows() {
    let world = world(4);
    let short = hello(&world, 30)[..35].to_vec();
    let mut long = hello(&world, 30);
    long.push(0);
    for bytes in [Vec::new(), short, long, hello(&world, u32::MAX)] {
        for aborted in errors(&world, &bytes) {
            assert_malformed(&aborted, CHEAT, PHASE);
        }
    }
    for aborted in errors(&world, &hello(&world, 0)) {
        assert_cheated(&aborted, CHEAT, PHASE, "it has no rows");
    }
}

/// PSSL-4: a client with another job.
#[test]
fn another_job_is_found_at_once() {
    let world = world(4);
    let mut bytes = hello(&world, ROWS as u32);
    bytes[7] ^= 1;
    for aborted in errors(&world, &bytes) {
        assert_cheated(&aborted, CHEAT, PHASE, "its job differs from this party's");
    }
}

/// A real client whose job differs in one number ends the run before any edge.
#[test]
fn a_client_with_other_parameters_ends_the_run_in_the_setup() {
    let mut world = world(4);
    world.jobs.1[1].d_max += 0.01;
    let mut is_over = true;
    let network = Network::new().intercept(|from, to, frame| {
        is_over &= from == SERVER || to == SERVER || frame[4] == PHASE.id;
    });
    let run = world.run(network);
    assert!(run.server.is_err() && run.clients.values().all(Result::is_err));
    assert!(is_over, "frames between clients");
    let cause = &run.server.unwrap_err().cause;
    assert_eq!(cause.culprit(), Some(CHEAT), "{cause}");
}

/// SETUP-15: a sealed message that the server changes.
#[test]
fn sealed_messages_that_are_changed() {
    for nth in [0, 1, 5, 12] {
        let world = world(3);
        let victim = PartyId::client(0);
        let mut seen = 0;
        let network = Network::new().intercept(|from, to, frame| {
            if (from, to) == (CHEAT, victim) && frame[3] == 0 {
                if seen == nth {
                    frame[HEADER_LEN + 9] ^= 1;
                }
                seen += 1;
            }
        });
        let run = world.run(network);
        let aborted = error(&run, victim);
        assert_eq!(aborted.cause.culprit(), Some(CHEAT), "{aborted}");
        assert!(aborted.to_string().contains("does not open"), "{aborted}");
    }
}

type Change = fn(&mut Vec<u8>);

/// Every message of a pair, in both directions, changed by who sends it: PSSL-6 to PSSL-11, and the
/// checks of transfers and circuits. The victim names the sender, or has other edges. Nobody else
/// is blamed, and nobody panics.
#[test]
fn messages_of_a_pair_that_break_the_rules_name_their_sender() {
    let changes: [Change; 4] = [
        |m| m.truncate(m.len().saturating_sub(1)),
        |m| m.push(0),
        |m| m.iter_mut().for_each(|byte| *byte ^= 0xff),
        |m| m.iter_mut().for_each(|byte| *byte = 0),
    ];
    let mut faults = BTreeSet::new();
    for (cheat, victim) in [(0, 1), (1, 0)] {
        let (cheat, victim) = (PartyId::client(cheat), PartyId::client(victim));
        let world = World::new(3, |job| job.rounds = 1);
        let mut kinds = Vec::new();
        let network = world.inside((cheat, victim), |_, phase, text| {
            kinds.push((phase, text.len()));
        });
        assert!(world.run(network).server.is_ok());
        assert!(kinds.len() > 20, "{} messages", kinds.len());
        for nth in firsts(&kinds) {
            for change in changes {
                let network = world.inside((cheat, victim), |at, _, text| {
                    if at == nth {
                        change(text);
                    }
                });
                let run = world.run(network);
                for (who, outcome) in &run.clients {
                    let Err(aborted) = outcome else { continue };
                    if let Abort::Cheated { culprit, .. } | Abort::Malformed { from: culprit, .. } =
                        &aborted.cause
                    {
                        // The cheat itself may find that the victim's answers make no sense.
                        let is_due = *culprit == cheat || *who == cheat && *culprit == victim;
                        assert!(is_due, "{nth}, {who}: {aborted}");
                    }
                }
                if let Err(aborted) = &run.clients[&victim] {
                    faults.insert(format!("{:?} {}", aborted.phase, aborted.cause));
                }
            }
        }
    }
    for (check, expected) in [
        ("PSSL-6", "choices of "),
        ("PSSL-7", "offers of "),
        ("PSSL-8", "an edge joins a row that does not exist"),
        ("PSSL-9", "its circuit names a cluster that does not exist"),
        ("PSSL-10", "slots of "),
        ("PSSL-11", "slot "),
    ] {
        let is_found = faults.iter().any(|fault| fault.contains(expected));
        assert!(is_found, "{check}: {faults:#?}");
    }
}

/// PSSL-10: slots that the server changes. PSSL-11: slots out of range, and a slot for two edges.
#[test]
fn slots_that_cannot_be() {
    let victim = PartyId::client(0);
    let run = |change: Change| {
        let world = world(3);
        world.run(world.inside((CHEAT, victim), |_, phase, text| {
            if phase == SLOTS.id {
                change(text);
            }
        }))
    };
    assert!(run(|_| ()).server.is_ok());
    // Client 1 has 31 rows.
    let cases: [(Change, &str); 4] = [
        (
            |m| m[..4].copy_from_slice(&31u32.to_le_bytes()),
            "slot 31 of 31",
        ),
        (
            |m| m[..4].copy_from_slice(&(u32::MAX - 1).to_le_bytes()),
            "slot 4294967294 of 31",
        ),
        (
            |m| {
                for edge in m.chunks_exact_mut(4).take(2) {
                    edge.copy_from_slice(&7u32.to_le_bytes());
                }
            },
            "slot 7 for two edges",
        ),
        (|m| m.truncate(m.len() - 4), "slots of "),
    ];
    for (change, expected) in cases {
        let run = run(change);
        let aborted = error(&run, victim);
        assert_malformed(aborted, CHEAT, SLOTS);
        assert!(aborted.to_string().contains(expected), "{aborted}");
    }
    // Slots may be missing.
    let none: Change = |m| m.fill(0xff);
    assert!(run(none).clients.values().all(Result::is_ok));
    let world = world(3);
    let network = Network::new().intercept(|from, to, frame| {
        if (from, to) == (CHEAT, victim) && frame[4] == SLOTS.id && frame[3] == 0 {
            frame[HEADER_LEN] ^= 1;
        }
    });
    let run = world.run(network);
    let expected = "its slots do not open";
    assert_cheated(error(&run, victim), CHEAT, SLOTS, expected);
}

/// The rules of the sum of a round, by `docs/spec/pssl.md`.
fn rules(world: &World, round: u32) -> Rules {
    let job = &world.jobs.0;
    Rules {
        session: world.context(),
        round,
        shape: Shape {
            rows: world.clients.iter().map(|data| data.len()).sum(),
            width: job.classes,
            shared: 0,
        },
        audience: Audience::Server,
        min_clients: job.min_clients,
        trust: job.trust,
        wiring: Wiring::default(),
        suite: job.suite,
        groups: None,
    }
}

/// PSSL-12: a server that splits the clients. When one of each part has left, it joins the others.
#[test]
fn a_set_of_contributors_that_grows() {
    let world = World::new(8, |job| job.rounds = 3);
    let leavers = [3, 7].map(PartyId::client);
    let sent = Arc::new(Mutex::new([0; 2]));
    let network = Network::new().intercept(|from, _, frame| {
        for (sent, leaver) in sent.lock().unwrap().iter_mut().zip(leavers) {
            *sent += usize::from(from == leaver && frame[3] == 0);
        }
    });
    assert!(world.run(network).server.is_ok());
    let sent = *sent.lock().unwrap();
    let setup = group::server(world.group(), world.all(), world.seed(SERVER)).unwrap();
    let (all, mut start) = (world.all(), 0);
    let mut owners: Vec<(PartyId, Range<usize>)> = Vec::new();
    for (who, data) in all.iter().zip(&world.clients) {
        owners.push((*who, start..start + data.len()));
        start += data.len();
    }
    let rules: Vec<Rules> = (0..4).map(|number| rules(&world, number)).collect();
    let server = Script::new(PHASE, move |io| async move {
        io.run(setup).await?;
        io.phase(EDGES).await;
        io.recv_all(&all).await;
        // Three sums of each part, of which two are run.
        let mut parts = Vec::new();
        for part in [&owners[..4], &owners[4..]] {
            let sums = rules[..3].iter();
            let sums = sums.map(|rules| sum::server::<u64>(*rules, part.to_vec()));
            let sums = sums.collect::<Result<Vec<_>, Abort>>()?;
            parts.push(io.run(Lockstep::new(sums, UPLOAD)?).await?.into_iter());
        }
        for _ in 0..2 {
            for part in &mut parts {
                let sum = part.next().unwrap();
                io.run(sum).await?;
            }
        }
        let both = owners.into_iter().filter(|(who, _)| !leavers.contains(who));
        let sum = sum::server::<u64>(rules[3], both.collect::<Vec<_>>())?;
        let mut joint = io.run(Lockstep::new(vec![sum], UPLOAD)?).await?;
        io.run(joint.remove(0)).await?;
        Ok(Report {
            clients: Vec::new(),
            contributors: Vec::new(),
            suspects: Vec::new(),
        })
    });
    // Two frames for each of the last two sums.
    let both = leavers.iter().zip(sent);
    let network = both.fold(Network::new(), |network, (who, sent)| {
        network.leave(*who, sent - 4)
    });
    let run = world.run_with(network, server, |_| None);
    for who in world.all().iter().filter(|who| !leavers.contains(who)) {
        let Abort::Cheated { culprit, fault } = &error(&run, *who).cause else {
            panic!("{:?}, {:?}", run.clients[who], run.server);
        };
        assert_eq!(*culprit, SERVER);
        assert_eq!(fault, "its set of contributors has grown");
    }
}

/// PSSL-13: words where none are due.
#[test]
fn a_message_after_the_edges_that_is_not_empty() {
    let world = world(3);
    let network = Network::new().intercept(|from, to, frame| {
        if (from, to) == (CHEAT, SERVER) && frame[4] == EDGES.id && frame[3] == 0 {
            set_payload(frame, &[0]);
        }
    });
    let run = world.run(network);
    assert_malformed(run.server.as_ref().unwrap_err(), CHEAT, EDGES);
    assert!(run.clients.values().all(Result::is_err));
}

/// False shares in the sum of one round or of both: the scores are right, and the report names who
/// revealed them.
#[test]
fn false_shares_are_left_out_and_their_sender_is_named() {
    let clients = 5;
    let world = world(clients);
    let clear = world.clear(&world.all());
    for rounds in [0..1, 1..2, 0..2] {
        let mut seen = 0;
        let network = Network::new().intercept(|from, to, frame| {
            let is_reveal = frame[4] == UNMASK.id && frame[3] == 0;
            if (from, to) == (CHEAT, SERVER) && is_reveal {
                if rounds.contains(&seen) {
                    frame[HEADER_LEN + 33] ^= 4;
                }
                seen += 1;
            }
        });
        let run = world.run(network);
        assert_eq!(run.server.as_ref().unwrap().suspects, [CHEAT]);
        for (outcome, clear) in run.clients.values().zip(&clear.scores) {
            let scores = &outcome.as_ref().unwrap().scores;
            let mut pairs = scores.iter().zip(clear);
            assert!(pairs.all(|(secure, clear)| (secure - clear).abs() < 1e-9));
        }
        assert_eq!(seen, 2);
    }
}
