//! Co-training against cheating parties: each check catches its cheater.
#![allow(missing_docs, clippy::unwrap_used)]

use std::sync::{Arc, Mutex};

use undertone::fedct::{
    CONSENSUS, Client, Consensus, Data, Job, Memory, Noise, Place, Public, Report, SLICES, Step,
    VOTES, Votes,
};
use undertone::garble::GARBLING;
use undertone::kdf::Seed;
use undertone::party::frame::HEADER_LEN;
use undertone::party::{Abort, Aborted, Io, Network, PartyId, Phase, Script, SessionId};
use undertone::setup::group::{self, Secrecy};
use undertone::sum::{self, KEYS, Rules, SHARES, Trust, UNMASK, UPLOAD};
use undertone_tests::cotraining::{
    Session, Voter, World, begin, context, drive, opening, plan, rules, votes,
};
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
                assert_eq!(world.clients[0].last(), 8);
            }
            world = fresh(kind);
        }
        // The victim of a number beyond the job votes no more.
        let high = |m: &mut Vec<u8>| set_number(m, u32::MAX);
        server_cheats(&mut world, OPENING, high);
        assert_eq!(world.clients[1].last(), 7);
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

/// FEDCT-5: what a client keeps outlives it, and is of one job. A client that cannot keep it does
/// not vote.
#[test]
fn a_memory_outlives_its_client() {
    let votes = given();
    let kept = Arc::<Mutex<Vec<u8>>>::default();
    let client = |memory: Memory, works: bool| {
        let keeper = Arc::clone(&kept);
        let keep = move |memory: &Memory| {
            *keeper.lock().unwrap() = memory.write();
            if works {
                Ok(())
            } else {
                Err("the disk is full".into())
            }
        };
        let data = Data::new(1, vec![0.0], vec![0], CLASSES).unwrap();
        let learner = Box::new(Voter(votes[1].clone()));
        Client::new(learner, data, public(ROWS), memory, Box::new(keep))
    };
    let run = |change: fn(&mut Job), own: Client| {
        let mut world = World::voting(&votes, CLASSES, change);
        world.clients[1] = own;
        let all = world.all();
        world.run(Network::new(), &all)
    };
    let first = run(|_| (), client(Memory::default(), true));
    assert!(first.clients[&VICTIM].is_ok());
    let memory = || Memory::read(&kept.lock().unwrap().clone()).unwrap();
    assert_eq!(memory().write().len(), 42);
    // The same exchange, and an exchange of another job.
    let run_again = run(|_| (), client(memory(), true));
    assert_cheated(run_again.error(VICTIM), SERVER, CONSENSUS, OVER);
    let other = run(|job| job.exchanges = 9, client(memory(), true));
    assert!(misuse(&other, VICTIM).contains("memory is of another job"));
    // Nothing is sent if the memory cannot be kept.
    let failed = run(|_| (), client(Memory::default(), false));
    let Abort::Misuse(what) = &failed.error(VICTIM).cause else {
        panic!("{failed:?}");
    };
    assert_eq!(what, "the disk is full");
    assert!(failed.ledgers[&VICTIM].phase(VOTES).is_none());
    for bytes in [&b"UTCO"[..], &[0; 42], b"UTCO\x01\x01"] {
        assert!(Memory::read(bytes).is_err());
    }
}

/// Clients with other public rows, or the same rows in another order, are refused by themselves.
#[test]
fn public_rows_of_another_job() {
    let world = world(Votes::Winners);
    let mut values: Vec<f32> = (0..ROWS).map(|row| row as f32).collect();
    values.swap(3, 4);
    let swapped = Public::new(1, values).unwrap();
    let place = || Place {
        session: SessionId([1; 32]),
        me: VICTIM,
        seed: Seed::from_bytes([1; 32]),
        credentials: None,
        allow_unanimous: false,
    };
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
        let Err(Abort::Misuse(what)) = world.clients[1].party(job, place()) else {
            panic!("{expected}");
        };
        assert!(what.contains(expected), "{what}");
    }
}

/// The slices of a plan, each with its helper.
type Slices = Vec<(u32, PartyId)>;

// FEDCT-6.
#[test]
fn plans_that_do_not_decode() {
    let five: Slices = (0..5).map(|i| (i, PartyId::client(i as usize))).collect();
    let with = |change: fn(&mut Slices)| {
        let mut slices = five.clone();
        change(&mut slices);
        plan(&slices)
    };
    for message in [
        Vec::new(),
        vec![0xff; 4],
        plan(&five)[..40].to_vec(),
        [&plan(&five)[..], &[0]].concat(),
        with(|slices| slices[4].0 = 5),
        with(|slices| slices[4].0 = u32::MAX),
        with(|slices| slices[3].0 = 4),
        with(|slices| slices.swap(1, 2)),
        with(|slices| slices.push((5, VICTIM))),
    ] {
        let replace = |m: &mut Vec<u8>| m.clone_from(&message);
        let aborted = server_cheats(&mut world(Votes::Winners), FIRST_PLAN, replace);
        assert_malformed(&aborted, SERVER, SLICES);
        // A second plan.
        if message.is_empty() {
            let all = world(Votes::Winners).all();
            let network = in_phase((SERVER, VICTIM), SECOND_PLAN, Vec::clear);
            let run = world(Votes::Winners).run(network, &all);
            assert_malformed(run.error(VICTIM), SERVER, SLICES);
        }
    }
}

const PLAN: &str = "its plan names a slice that has a helper, or a helper that is none";

/// FEDCT-7, first plans: they have all slices, each with the client of its place. Otherwise the
/// server could give all slices to a client that colludes with it, and see all counts.
#[test]
fn first_plans_that_cannot_be() {
    let of = |helpers: &[u32]| {
        let helpers = helpers.iter().zip(0..);
        plan(
            &helpers
                .map(|(id, i)| (i, PartyId::from_wire(*id)))
                .collect::<Vec<_>>(),
        )
    };
    let server = SERVER.to_wire();
    let own = PartyId::client(0).to_wire();
    let id = |place: u32| own + place;
    for message in [
        // Nothing, or not all.
        of(&[]),
        of(&[id(0), id(1), id(2), id(3)]),
        // Helpers that are not among the clients.
        of(&[id(0), id(1), id(2), id(3), id(60)]),
        of(&[server, id(1), id(2), id(3), id(4)]),
        // One client helps with everything, with two slices, or in another's place.
        of(&[id(4); 5]),
        of(&[id(0), id(1), id(2), id(4), id(4)]),
        of(&[id(1), id(0), id(2), id(3), id(4)]),
    ] {
        let replace = |m: &mut Vec<u8>| m.clone_from(&message);
        let aborted = server_cheats(&mut world(Votes::Winners), FIRST_PLAN, replace);
        assert_cheated(&aborted, SERVER, SLICES, PLAN);
    }
}

/// FEDCT-7, later plans: the slices of the last plan whose helpers are no longer there, each with
/// another helper that contributed.
#[test]
fn later_plans_that_cannot_be() {
    let late = PartyId::client(4);
    // Client 4 drops out after it has sent its masked words: its slice is summed again.
    let run = |nth: usize, message: Vec<u8>| {
        let mut world = World::voting(&given(), CLASSES, |job| job.min_clients = 2);
        let all = world.all();
        let network = in_phase((SERVER, VICTIM), (SLICES, nth), |m| m.clone_from(&message));
        let run = world.run(network.leave(late, 6), &all);
        run.error(VICTIM).clone()
    };
    for slices in [
        // Its own slice, by itself and by another.
        vec![(1, VICTIM)],
        vec![(1, CHEAT)],
        vec![(1, PartyId::client(0)), (4, PartyId::client(0))],
        // The helper that has dropped out, and parties that are no clients.
        vec![(4, late)],
        vec![(4, SERVER)],
        vec![(4, PartyId::client(60))],
        // The same helper again.
        vec![(0, PartyId::client(0))],
    ] {
        let aborted = run(1, plan(&slices));
        assert_cheated(&aborted, SERVER, SLICES, PLAN);
    }
    // A slice that the last plan did not have.
    for slices in [vec![(0, CHEAT)], vec![(3, CHEAT), (4, CHEAT)]] {
        let aborted = run(2, plan(&slices));
        assert_cheated(&aborted, SERVER, SLICES, PLAN);
    }
}

/// FEDCT-8: client 4 is a puppet of the server. It is left out of the first sum, and contributes to
/// the second. The difference of such sums would be its votes, if it were honest.
#[test]
fn a_second_sum_with_more_contributors() {
    let puppet = PartyId::client(4);
    let mut world = world(Votes::Winners);
    let (all, session) = (world.all(), world.session());
    let opening = world.opening(&all);
    let context = context(&world.job, session, &opening);
    // 40 rows of 9 classes and 5 clients: 3 bits a counter, 2 rows a word, 4 words a slice.
    let slices: Vec<(u32, PartyId)> = (0..5).zip(all.iter().copied()).collect();
    let (first, second) = (plan(&slices), plan(&[(4, PartyId::client(0))]));
    let of_puppet = rules(context, 1, 4, &second);
    let members = all.clone();
    let server = Script::new(CONSENSUS, move |io| async move {
        begin(&io, context, &members, opening).await?;
        io.send_to_all(&members, first.clone());
        let four = members[..4].to_vec();
        io.run(sum::server::<u64>(
            rules(context, 0, 20, &first),
            four.clone(),
        )?)
        .await?;
        io.phase(SLICES).await;
        io.recv_all(&four).await;
        io.send_to_all(&members, second.clone());
        io.run(sum::server::<u64>(
            rules(context, 1, 4, &second),
            members.clone(),
        )?)
        .await?;
        io.phase(SLICES).await;
        let ready = io.recv_all(&members).await;
        let ready = ready.iter().filter(|(_, message)| message.is_some());
        Err::<Report, _>(Abort::Misuse(format!("{} are ready", ready.count())))
    });
    let other = Script::new(CONSENSUS, move |io| async move {
        join_setup(&io, context, puppet).await?;
        io.phase(SLICES).await;
        io.require(SERVER).await?;
        io.require(SERVER).await?;
        let input = sum::Input::plain(vec![0u64; 4]);
        let seed = Seed::from_bytes([76; 32]);
        io.run(sum::client(of_puppet, puppet, input, seed)?).await?;
        Ok(Step::Over(None))
    });
    let mut clients: Vec<_> = all[..4]
        .iter()
        .map(|who| (*who, world.party(session, *who)))
        .collect();
    clients.push((puppet, other));
    let run = drive(Network::new(), session, server, clients);
    for who in &all[..4] {
        let expected = "its set of contributors has grown";
        assert_cheated(run.error(*who), SERVER, UNMASK, expected);
    }
    assert!(run.server.is_err());
}

/// The puppet of a server in the setup of an exchange.
async fn join_setup(io: &Io, context: SessionId, puppet: PartyId) -> Result<(), Abort> {
    io.require(SERVER).await?;
    io.phase(VOTES).await;
    io.send(SERVER, &[]);
    let rules = group::Rules {
        session: context,
        secrecy: Secrecy::Sealed,
        min_clients: 2,
    };
    let seed = Seed::from_bytes([77; 32]);
    let setup = group::client(rules, puppet, Vec::new(), None, seed)?;
    io.run(setup).await?;
    Ok(())
}

/// FEDCT-13: a fifth client votes, and the opening named four. Counters are too small for it.
#[test]
fn voters_that_the_opening_did_not_name() {
    let puppet = PartyId::client(4);
    let expected = "a client votes that its opening did not name";
    for kind in [Votes::Winners, Votes::Counts] {
        let mut world = world(kind);
        let (all, session) = (world.all(), world.session());
        let opening = world.opening(&all[..4]);
        let context = context(&world.job, session, &opening);
        let words = world.job.layout(4).words();
        let of_counts = Rules::plain(context, words);
        let members = all.clone();
        let server = Script::new(CONSENSUS, move |io| async move {
            if kind == Votes::Winners {
                begin(&io, context, &members, opening).await?;
            } else {
                io.send_to_all(&members, opening);
                io.phase(VOTES).await;
                io.recv_all(&members).await;
                let total = sum::server::<u64>(of_counts, members.clone())?;
                io.run(total).await?;
            }
            io.phase(SLICES).await;
            io.recv_all(&members).await;
            Err::<Report, _>(Abort::Misuse("over".into()))
        });
        let other = Script::new(CONSENSUS, move |io| async move {
            if kind == Votes::Winners {
                join_setup(&io, context, puppet).await?;
            } else {
                io.require(SERVER).await?;
                io.phase(VOTES).await;
                io.send(SERVER, &[]);
                let input = sum::Input::plain(vec![0u64; words]);
                let seed = Seed::from_bytes([76; 32]);
                io.run(sum::client(of_counts, puppet, input, seed)?).await?;
            }
            Ok(Step::Over(None))
        });
        let mut clients: Vec<_> = all[..4]
            .iter()
            .map(|who| (*who, world.party(session, *who)))
            .collect();
        clients.push((puppet, other));
        let run = drive(Network::new(), session, server, clients);
        let phase = if kind == Votes::Winners {
            group::PHASE
        } else {
            UNMASK
        };
        for who in &all[..4] {
            assert_cheated(run.error(*who), SERVER, phase, expected);
        }
    }
}

/// An exchange with fewer clients than the job allows. The end may have any number.
#[test]
fn openings_with_too_few_clients() {
    let two = |m: &mut Vec<u8>| set_members(m, &[PartyId::client(0), VICTIM]);
    let aborted = server_cheats(&mut world(Votes::Winners), OPENING, two);
    let too_few = matches!(aborted.cause, Abort::TooFew { left: 2, need: 3 });
    assert!(too_few, "{aborted}");
    let mut world = world(Votes::Winners);
    let all = world.all();
    assert!(world.run(Network::new(), &all).server.is_ok());
    world.state.settled = true;
    let run = world.run(Network::new(), &[VICTIM]);
    assert!(matches!(run.clients[&VICTIM], Ok(Step::Over(Some(_)))));
}

/// FEDCT-10.
#[test]
fn consensuses_that_cannot_be() {
    for kind in Votes::ALL {
        for change in [
            Vec::clear as fn(&mut Vec<u8>),
            |m| m.push(0),
            |m| m.truncate(m.len() - 1),
            |m| m[7] = 0xa0,
            |m| m[0] = m[0] & 0xf0 | 0x0f,
        ] {
            let aborted = server_cheats(&mut world(kind), RESULT, change);
            assert_malformed(&aborted, SERVER, CONSENSUS);
        }
    }
}

/// FEDCT-11: a client that has the last consensus gets it again, or the one before. A server could
/// otherwise choose from what clients learn.
#[test]
fn a_consensus_that_is_not_the_last_one() {
    let expected = "its consensus is not that of the last exchange";
    for kind in Votes::ALL {
        let second = || {
            let mut world = world(kind);
            let all = world.all();
            assert!(world.run(Network::new(), &all).server.is_ok());
            world.state.settled = false;
            world
        };
        let lies: [fn(&mut World); 2] = [
            |world| {
                let labels = world.state.labels.as_mut().unwrap();
                labels[3] = match labels[3] {
                    Some(0) => Some(1),
                    _ => Some(0),
                };
            },
            |world| world.state.labels.as_mut().unwrap()[5] = None,
        ];
        for lie in lies {
            for is_over in [false, true] {
                let mut world = second();
                lie(&mut world);
                world.state.settled = is_over;
                let all = world.all();
                let run = world.run(Network::new(), &all);
                for who in &all {
                    assert_cheated(run.error(*who), SERVER, CONSENSUS, expected);
                }
            }
        }
        // A server that has lost the first consensus, and clients that were not there.
        let mut world = second();
        let all = world.all();
        world.state.labels = None;
        assert!(world.run(Network::new(), &all).server.is_ok());
        world.state.settled = false;
        world.state.labels = None;
        let run = world.run(Network::new(), &all);
        assert_cheated(run.error(VICTIM), SERVER, CONSENSUS, expected);
    }
}

fn misuse(run: &Session, who: PartyId) -> String {
    match &run.error(who).cause {
        Abort::Misuse(what) => what.clone(),
        other => panic!("{other}"),
    }
}

/// FEDCT-12: a quorum that needs all votes, from the beginning, or since a client dropped out.
#[test]
fn quorums_that_tell_all_votes() {
    let with = |consensus, noise| {
        World::voting(&given(), CLASSES, |job| {
            job.consensus = consensus;
            job.noise = noise;
        })
    };
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
            assert_eq!(world.clients[0].last(), 0);
        }
        let mut allowed = with(consensus, Noise::None);
        allowed.allow_unanimous = true;
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
