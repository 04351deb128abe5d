//! Quorums that tell all votes, and parties that are told different things or work wrongly.

use super::*;

/// FEDCT-12: a quorum that needs all votes, from the beginning, or since a client dropped out.
#[test]
fn quorums_that_tell_all_votes() {
    let under = |terms: &Terms, consensus, noise| {
        World::under(terms, &given(), CLASSES, |job| {
            job.consensus = consensus;
            job.noise = noise;
        })
    };
    let with = |consensus, noise| under(&Terms::default(), consensus, noise);
    let expected = "every row with a consensus would tell everybody's vote";
    for quorum in [810_000, 900_000, 1_000_000] {
        let consensus = Consensus::Qualified(quorum);
        let mut world = with(consensus, Noise::None);
        let all = world.all();
        let run = world.run(Network::new(), &all);
        for who in &all {
            assert!(misuse(&run, *who).contains(expected));
            assert!(run.ledgers[who].phase(VOTES).is_none());
            // Nothing of the job is used up.
            assert_eq!(world.clients[0].record.last_vote(), Ok(0));
        }
        let terms = Terms {
            allow_unanimous: true,
            ..Terms::default()
        };
        let mut allowed = under(&terms, consensus, Noise::None);
        assert!(allowed.run(Network::new(), &all).server.is_ok());
        let mut noisy = with(consensus, Noise::Krr { epsilon: 2.0 });
        assert!(noisy.run(Network::new(), &all).server.is_ok());
    }
    // Four of five is no quorum of all. Of four, it is.
    let consensus = Consensus::Qualified(800_000);
    let mut world = with(consensus, Noise::None);
    let all = world.all();
    assert!(world.run(Network::new(), &all).server.is_ok());
    world.state.settled = false;
    for frames in [3, 6] {
        world.state.settled = false;
        let mut tables = 0;
        let network = Network::new()
            .leave(PartyId::client(4), frames)
            .intercept(|_, _, frame| {
                tables += usize::from(frame[3] == 0 && frame[4] == GARBLING.id);
            });
        let run = world.run(network, &all);
        for who in &all[..4] {
            assert!(misuse(&run, *who).contains(expected));
        }
        assert!(run.server.is_err());
        assert_eq!(tables, 0);
    }
}

/// The server tells one client of another last consensus, or another set of members. Its keys
/// differ, so nobody adds it up: with `winners` the setup fails, with `counts` the sum (SUM-2).
#[test]
fn clients_that_are_told_different_things() {
    let before = || {
        let mut world = world(Votes::Winners);
        let all = world.all();
        world.run(Network::new(), &all);
        world.state.settled = false;
        world
    };
    let lies: [fn(&mut Vec<u8>); 3] = [
        // The last consensus; the number; the members.
        |m| *m.last_mut().unwrap() ^= 0x10,
        |m| m[1] += 1,
        |m| m[25] += 1,
    ];
    for (number, lie) in lies.into_iter().enumerate() {
        for kind in [Votes::Counts, Votes::Winners] {
            let mut world = before();
            world.job.votes = kind;
            // A job of another kind of votes has its own memories.
            if kind == Votes::Counts {
                let state = world.state.clone();
                world = World::voting(&given(), CLASSES, |job| job.votes = kind);
                world.state = state;
            }
            let all = world.all();
            let mut late = 0;
            let mut seen = 0;
            let network = Network::new().intercept(|from, to, frame| {
                if (from, to) == (SERVER, VICTIM) {
                    if seen == 0 {
                        let mut payload = frame[HEADER_LEN..].to_vec();
                        lie(&mut payload);
                        set_payload(frame, &payload);
                    }
                    seen += 1;
                }
                let is_late = [UPLOAD.id, UNMASK.id, GARBLING.id].contains(&frame[4]);
                let is_victims = from == VICTIM || from == SERVER && to == VICTIM;
                late += usize::from(frame[3] == 0 && is_late && is_victims);
            });
            let run = world.run(network, &all);
            assert_eq!(late, 0, "lie {number}, {kind}");
            let aborted = run.error(VICTIM);
            // FEDCT-11: clients that have the last consensus see the first lie by themselves.
            let due = match (number, kind) {
                (0, Votes::Winners) => CONSENSUS,
                (_, Votes::Winners) => group::PHASE,
                _ => KEYS,
            };
            assert_eq!(aborted.phase, due, "{aborted}");
        }
    }
}

/// The server names other contributors to a helper than it used. A helper adds up the masks of the
/// set that the others have signed (SUM-18, SUM-23, SUM-24).
#[test]
fn contributors_that_differ_between_server_and_helper() {
    for kind in [Votes::Counts, Votes::Winners] {
        let run = |change: fn(usize, &mut Vec<u8>)| {
            let mut world = World::voting(&given(), CLASSES, |job| {
                job.votes = kind;
                job.trust = Trust::MaliciousServer;
            })
            .pinned();
            let all = world.all();
            world.run(Network::new(), &all).labels(&all);
            world.state.settled = false;
            let (mut tables, mut seen) = (0, 0);
            let network = Network::new().intercept(|from, to, frame| {
                if (from, to) == (SERVER, VICTIM) && frame[4] == UNMASK.id && frame[3] == 0 {
                    let mut payload = frame[HEADER_LEN..].to_vec();
                    change(seen, &mut payload);
                    set_payload(frame, &payload);
                    seen += 1;
                }
                let is_data = frame[3] == 0 && frame[4] == GARBLING.id;
                tables += usize::from(from == VICTIM && is_data);
            });
            let run = world.run(network, &all);
            assert_eq!(tables, 0);
            run.error(VICTIM).clone()
        };
        // SUM-23, SUM-24: without client 3, whose signature is passed on, or is not.
        let aborted = run(|nth, m| {
            if nth == 0 {
                m[0] &= !(1 << 3);
            }
        });
        let expected = "its set of signers names a client that did not contribute";
        assert_cheated(&aborted, SERVER, UNMASK, expected);
        let aborted = run(|nth, m| {
            m[0] &= !(1 << 3);
            if nth == 1 {
                m.drain(1 + 3 * 64..1 + 4 * 64);
            }
        });
        let expected = "1 signatures fit the contributors this client was told";
        assert_cheated(&aborted, SERVER, UNMASK, expected);
        // SUM-18: without the helper.
        let aborted = run(|_, m| m[0] &= !(1 << 1));
        let expected = "its set of contributors leaves this client out";
        assert_cheated(&aborted, SERVER, UNMASK, expected);
    }
}

/// A helper that breaks the rules of garbled circuits or of transfers is named, and the exchange
/// ends. The next one succeeds.
#[test]
fn helpers_that_garble_wrongly() {
    let lengths: [fn(&mut Vec<u8>); 2] = [Vec::clear, |m| m.push(0)];
    // The offer, the challenge, the opening, a tile: OT-1, OT-8, GARBLE-2, GARBLE-4.
    for nth in 0..4 {
        for change in lengths {
            let aborted = client_cheats(world(Votes::Winners), (GARBLING, nth), change);
            assert_malformed(&aborted, CHEAT, GARBLING);
        }
    }
    // GARBLE-3
    let aborted = client_cheats(world(Votes::Winners), (GARBLING, 2), |m| m[0] ^= 1);
    let expected = "its circuit, its number of instances or its audience is another one";
    assert_cheated(&aborted, CHEAT, GARBLING, expected);
    // False tables are not found. They change labels of the helper's slice only.
    let mut world = world(Votes::Winners);
    let all = world.all();
    let honest = world.run(Network::new(), &all).labels(&all).clone();
    world.state.settled = false;
    let garbage = |m: &mut Vec<u8>| m.iter_mut().for_each(|byte| *byte ^= 0x33);
    let run = world.run(in_phase((CHEAT, SERVER), (GARBLING, 3), garbage), &all);
    let labels = run.labels(&all);
    let slices = world.slices(5, 5);
    assert_ne!(*labels, honest);
    for row in 0..ROWS {
        assert!(slices[row] == 2 || labels[row] == honest[row], "row {row}");
    }
}

/// A server that cheats in the transfers of a circuit gets no table (OT-6, OT-10, GARBLE-1).
#[test]
fn a_server_that_evaluates_wrongly_gets_no_table() {
    let trees = "the trees of seeds are inconsistent";
    let corrections = "the corrections of two parts of Δ have different choices";
    type Cheat = (usize, fn(&mut Vec<u8>), Option<&'static str>);
    let cheats: [Cheat; 6] = [
        (0, |m| *m.last_mut().unwrap() ^= 1, Some(trees)),
        (0, Vec::clear, None),
        (1, |m| m[40] ^= 1, Some(corrections)),
        (2, |m| m[0] ^= 1, Some(corrections)),
        (3, Vec::clear, None),
        (3, |m| m.push(0), None),
    ];
    for (nth, change, expected) in cheats {
        let mut world = world(Votes::Winners);
        let all = world.all();
        let mut sent = 0;
        let mut seen = 0;
        let network = Network::new().intercept(|from, to, frame| {
            let is_data = frame[3] == 0 && frame[4] == GARBLING.id;
            if (from, to) == (SERVER, VICTIM) && is_data {
                if seen == nth {
                    let mut payload = frame[HEADER_LEN..].to_vec();
                    change(&mut payload);
                    set_payload(frame, &payload);
                }
                seen += 1;
            }
            sent += usize::from(from == VICTIM && is_data);
        });
        let run = world.run(network, &all);
        assert!(sent <= 2, "{sent} frames");
        let aborted = run.error(VICTIM);
        match expected {
            Some(expected) => assert_cheated(aborted, SERVER, GARBLING, expected),
            None => assert_malformed(aborted, SERVER, GARBLING),
        }
        // Its rows have no label.
        let Ok(Report::Voted(exchange, _)) = &run.server else {
            panic!("{:?}", run.server);
        };
        assert_eq!(exchange.lost, 8);
    }
}

/// A client that votes more than once in a row, or carries into counters beside it, is not found.
/// Its words change labels and nothing else.
#[test]
fn words_that_are_no_votes_change_labels_only() {
    let mut world = world(Votes::Counts);
    let all = world.all();
    let network = in_phase((CHEAT, SERVER), (UPLOAD, 0), |m| {
        m.iter_mut()
            .for_each(|byte| *byte = byte.wrapping_add(0x91));
    });
    let run = world.run(network, &all);
    assert_eq!(run.labels(&all).len(), ROWS);
}

/// Messages that are not of the sum, in its phases.
#[test]
fn sums_of_votes_check_their_messages() {
    for kind in [Votes::Counts, Votes::Winners] {
        for phase in [KEYS, SHARES, UPLOAD] {
            let aborted = client_cheats(world(kind), (phase, 0), |m| m.truncate(3));
            assert_malformed(&aborted, CHEAT, phase);
        }
    }
    assert_eq!(opening(1, 3, &[VICTIM], None, CLASSES).len(), 14);
}
