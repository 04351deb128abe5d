//! Co-training against cheating parties: each check catches its cheater.

mod parties;
mod plans;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use undertone::cotrain::{
    CONSENSUS, Consensus, Data, Job, Noise, Public, Report, SLICES, Step, Terms, VOTES, Votes,
};
use undertone::garble::GARBLING;
use undertone::job::record::{TOLD, What};
use undertone::job::testing::PowerCut;
use undertone::job::{Participant as _, Record, SessionContext, Unwilling};
use undertone::kdf::Seed;
use undertone::party::frame::HEADER_LEN;
use undertone::party::{Abort, Aborted, Io, Network, PartyId, Phase, Script, SessionId};
use undertone::setup::group::{self, Secrecy};
use undertone::sum::{self, KEYS, Rules, SHARES, Trust, UNMASK, UPLOAD};
use undertone_tests::cotrain::{
    Member, Session, Voter, World, begin, context, drive, member, opening, plan, rules, votes,
};
use undertone_tests::records::on_disk;
use undertone_tests::tamper::{assert_cheated, assert_malformed, set_payload};

const SERVER: PartyId = PartyId::SERVER;
const VICTIM: PartyId = PartyId::client(1);
const CHEAT: PartyId = PartyId::client(2);
const ROWS: usize = 40;
/// Labels have four bits, and so do votes: not all values are classes.
const CLASSES: usize = 9;

fn given() -> Vec<Vec<u16>> {
    votes(ROWS, CLASSES, 5, 0.6, 3)
}

fn world(kind: Votes) -> World {
    World::voting(&given(), CLASSES, |job| job.votes = kind)
}

/// A network in which `change` alters the payload of frame `nth` of a phase on a link.
fn in_phase<'a>(
    (from, to): (PartyId, PartyId),
    (phase, nth): (Phase, usize),
    change: impl Fn(&mut Vec<u8>) + 'a,
) -> Network<'a> {
    let mut seen = 0;
    Network::new().intercept(move |f, t, frame| {
        if (f, t) == (from, to) && frame[4] == phase.id && frame[3] == 0 {
            if seen == nth {
                let mut payload = frame[HEADER_LEN..].to_vec();
                change(&mut payload);
                set_payload(frame, &payload);
            }
            seen += 1;
        }
    })
}

/// The victim's error when a frame of the server to it is changed. All others finish.
fn server_cheats(world: &mut World, at: (Phase, usize), change: impl Fn(&mut Vec<u8>)) -> Aborted {
    let all = world.all();
    let run = world.run(in_phase((SERVER, VICTIM), at, change), &all);
    let others: Vec<PartyId> = all.into_iter().filter(|who| *who != VICTIM).collect();
    run.labels(&others);
    world.state.settled = false;
    run.error(VICTIM).clone()
}

/// The server's error when a frame of the cheat is changed. Nobody gets a consensus.
fn client_cheats(mut world: World, at: (Phase, usize), change: impl Fn(&mut Vec<u8>)) -> Aborted {
    let all = world.all();
    let run = world.run(in_phase((CHEAT, SERVER), at, change), &all);
    assert!(run.clients.values().all(Result::is_err));
    assert_eq!(world.state.labels, None);
    run.server.unwrap_err()
}

const OPENING: (Phase, usize) = (CONSENSUS, 0);
const RESULT: (Phase, usize) = (CONSENSUS, 1);
const FIRST_PLAN: (Phase, usize) = (SLICES, 0);
const SECOND_PLAN: (Phase, usize) = (SLICES, 1);
const VOTED: (Phase, usize) = (VOTES, 0);
const READY: (Phase, usize) = (SLICES, 0);

fn set_members(message: &mut Vec<u8>, members: &[PartyId]) {
    message.truncate(5);
    message.extend((members.len() as u32).to_le_bytes());
    message.extend(members.iter().flat_map(|id| id.to_wire().to_le_bytes()));
    message.push(0);
}

// FEDCT-1.
#[test]
fn openings_that_do_not_decode() {
    for kind in Votes::ALL {
        for change in [
            Vec::clear as fn(&mut Vec<u8>),
            |m| m[0] = 2,
            |m| m.push(0),
            |m| m.truncate(12),
            |m| m[5] += 1,
            |m| m[5..9].fill(0xff),
            |m| *m.last_mut().unwrap() = 2,
            |m| *m.last_mut().unwrap() = 1,
            |m| set_members(m, &[VICTIM, VICTIM]),
            |m| set_members(m, &[CHEAT, VICTIM]),
            |m| set_members(m, &[VICTIM, SERVER]),
        ] {
            let aborted = server_cheats(&mut world(kind), OPENING, change);
            assert_malformed(&aborted, SERVER, CONSENSUS);
        }
    }
    // Labels of an earlier exchange: one is no class, one too many, one too few.
    let mut world = world(Votes::Clear);
    let all = world.all();
    world.run(Network::new(), &all);
    for change in [
        (|m| *m.last_mut().unwrap() = 0xaa) as fn(&mut Vec<u8>),
        |m| m.push(0),
        |m| m.truncate(m.len() - 1),
    ] {
        let aborted = server_cheats(&mut world, OPENING, change);
        assert_malformed(&aborted, SERVER, CONSENSUS);
    }
}

/// FEDCT-2.
#[test]
fn openings_for_others() {
    let out = |m: &mut Vec<u8>| set_members(m, &[PartyId::client(0), CHEAT]);
    let aborted = server_cheats(&mut world(Votes::Winners), OPENING, out);
    let expected = "its set of members leaves this client out";
    assert_cheated(&aborted, SERVER, CONSENSUS, expected);
}

/// FEDCT-3: lengths, and votes for classes that there are not.
#[test]
fn clear_votes_that_cannot_be() {
    let xor = Noise::Xor {
        epsilon: 1.0,
        sensitivity: 1.0,
    };
    for noise in [Noise::None, Noise::Krr { epsilon: 1.0 }, xor] {
        for change in [
            Vec::clear as fn(&mut Vec<u8>),
            |m| m.push(0),
            |m| m.truncate(m.len() - 1),
        ] {
            let world = World::voting(&given(), CLASSES, |job| {
                job.votes = Votes::Clear;
                job.noise = noise;
            });
            let aborted = client_cheats(world, VOTED, change);
            assert_malformed(&aborted, CHEAT, VOTES);
        }
        if noise != xor {
            for class in [9, 15] {
                let world = World::voting(&given(), CLASSES, |job| {
                    job.votes = Votes::Clear;
                    job.noise = noise;
                });
                let beyond = |m: &mut Vec<u8>| m[3] = m[3] & 0x0f | class << 4;
                let aborted = client_cheats(world, VOTED, beyond);
                assert_malformed(&aborted, CHEAT, VOTES);
                let expected = format!("row 7: a vote for class {class}");
                assert!(aborted.to_string().contains(&expected), "{aborted}");
            }
        }
    }
}

/// FEDCT-4, FEDCT-9: words that must be empty.
#[test]
fn words_where_none_are_due() {
    for kind in [Votes::Counts, Votes::Winners] {
        let aborted = client_cheats(world(kind), VOTED, |m| m.push(0));
        assert_malformed(&aborted, CHEAT, VOTES);
    }
    let aborted = client_cheats(world(Votes::Winners), READY, |m| m.push(0));
    assert_malformed(&aborted, CHEAT, SLICES);
}

const OVER: &str = "it starts an exchange that is over, or that the job does not have";

fn set_number(message: &mut [u8], number: u32) {
    message[1..5].copy_from_slice(&number.to_le_bytes());
}

/// FEDCT-5: an exchange runs once, also one that has failed; numbers may be left out.
#[test]
fn an_exchange_runs_once() {
    for kind in Votes::ALL {
        let mut world = world(kind);
        let (all, first) = (world.all(), world.state.clone());
        let refuse = |world: &mut World, who: &[PartyId]| {
            let all = world.all();
            let run = world.run(Network::new(), &all);
            for who in who {
                assert_cheated(run.error(*who), SERVER, CONSENSUS, OVER);
            }
        };
        assert!(world.run(Network::new(), &all).server.is_ok());
        world.state = first.clone();
        refuse(&mut world, &all);
        // The second exchange fails.
        world.state.begun = 1;
        let spoilt = in_phase((CHEAT, SERVER), VOTED, |m| m.extend([0; 9]));
        assert!(world.run(spoilt, &all).server.is_err());
        world.state.begun = 1;
        refuse(&mut world, &all);
        // Numbers may be left out, and end with the job's.
        world.state.begun = 6;
        assert!(world.run(Network::new(), &all).server.is_ok());
        for number in [0, 6, 7, 11, u32::MAX] {
            world.state.begun = 7 + number.min(1);
            world.state.settled = false;
            let aborted = server_cheats(&mut world, OPENING, |m| set_number(m, number));
            assert_cheated(&aborted, SERVER, CONSENSUS, OVER);
            // The others have voted, and vote no more in an exchange of this number.
            if number == 0 {
                assert_eq!(world.clients[0].record.last_vote(), Ok(8));
            }
            world = fresh(kind);
        }
        // The victim of a number beyond the job votes no more.
        let high = |m: &mut Vec<u8>| set_number(m, u32::MAX);
        server_cheats(&mut world, OPENING, high);
        assert_eq!(world.clients[1].record.last_vote(), Ok(7));
    }
}

/// A world whose clients have voted in exchange 7.
fn fresh(kind: Votes) -> World {
    let mut world = world(kind);
    let all = world.all();
    world.state.begun = 6;
    assert!(world.run(Network::new(), &all).server.is_ok());
    world.state.settled = false;
    world
}

fn public(rows: usize) -> Arc<Public> {
    Arc::new(Public::new(1, (0..rows).map(|row| row as f32).collect()).unwrap())
}

/// FEDCT-5: the record outlives its client, and is of one job. A client that cannot keep a claim
/// does not vote.
#[test]
fn votes_are_on_record() {
    let votes = given();
    let client = |record: Record| {
        let data = Data::new(1, vec![0.0], vec![0], CLASSES).unwrap();
        let voter = Voter(votes[1].clone());
        Member {
            record,
            ..member(Terms::default(), voter, data, &public(ROWS))
        }
    };
    let seed = Cell::new(0);
    let run = |change: fn(&mut Job), own: Member| {
        let mut world = World::voting(&votes, CLASSES, change);
        seed.set(seed.get() + 1);
        world.seed = seed.get();
        world.state.begun = 1;
        world.clients[1] = own;
        let all = world.all();
        world.run(Network::new(), &all)
    };
    let disk = PowerCut::default();
    let first = run(|_| (), client(on_disk(&disk)));
    assert!(first.clients[&VICTIM].is_ok());
    // The same exchange, and an exchange of another job.
    let run_again = run(|_| (), client(on_disk(&disk)));
    assert_cheated(run_again.error(VICTIM), SERVER, CONSENSUS, OVER);
    let other = run(|job| job.exchanges = 9, client(on_disk(&disk)));
    assert_eq!(misuse(&other, VICTIM), TOLD);
    // Nothing is sent if the claim cannot be kept.
    let (new, used) = (PowerCut::default(), disk);
    let record = on_disk(&new);
    new.cut_after(1);
    let failed = run(|_| (), client(record.clone()));
    assert_eq!(misuse(&failed, VICTIM), TOLD);
    assert!(record.refused().unwrap().contains("the power is off"));
    assert!(failed.ledgers[&VICTIM].phase(VOTES).is_none());
    // The owner allows another job, once.
    on_disk(&used)
        .allow(What::NewJob, "another question")
        .unwrap();
    let other = run(|job| job.exchanges = 9, client(on_disk(&used)));
    assert!(other.clients[&VICTIM].is_ok());
    let third = run(|job| job.exchanges = 8, client(on_disk(&used)));
    assert_eq!(misuse(&third, VICTIM), TOLD);
}

/// Clients with other public rows, or the same rows in another order, are refused by themselves.
#[test]
fn public_rows_of_another_job() {
    let mut world = world(Votes::Winners);
    let mut values: Vec<f32> = (0..ROWS).map(|row| row as f32).collect();
    values.swap(3, 4);
    let swapped = Public::new(1, values).unwrap();
    let at = || SessionContext::new(SessionId([1; 32]), VICTIM, Seed::from_bytes([1; 32]));
    for (job, expected) in [
        (
            Job {
                public: swapped.digest(),
                ..world.job.clone()
            },
            "the public rows differ from the job's",
        ),
        (
            Job {
                rows: ROWS - 1,
                ..world.job.clone()
            },
            "public rows: 40, the job has 39",
        ),
        (
            Job {
                features: 2,
                ..world.job.clone()
            },
            "features of the client's rows",
        ),
        (
            Job {
                trust: Trust::MaliciousServer,
                ..world.job.clone()
            },
            "needs clients with credentials",
        ),
    ] {
        let client = &mut world.clients[1].client;
        let Err(Unwilling::Leaves(Abort::Misuse(what))) = client.client(&job, at()) else {
            panic!("{expected}");
        };
        assert!(what.contains(expected), "{what}");
    }
}

fn misuse(run: &Session, who: PartyId) -> String {
    match &run.error(who).cause {
        Abort::Misuse(what) => what.clone(),
        other => panic!("{other}"),
    }
}
