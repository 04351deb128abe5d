//! Training jobs against cheating parties: each check catches its cheater, and no update is
//! unmasked.

mod lies;

use std::sync::{Arc, Mutex};

use undertone::job::Job as _;
use undertone::job::record::TOLD;
use undertone::job::testing::PowerCut;
use undertone::kdf::Seed;
use undertone::label::{Labelling, phases};
use undertone::party::frame::HEADER_LEN;
use undertone::party::{Abort, Aborted, Network, PartyId, Script, SessionId};
use undertone::setup::group::{self, Secrecy};
use undertone::setup::identity::{Credentials, Identity, Pins};
use undertone::sum::fixed::Fixed;
use undertone::sum::{self, KEYS, Rules, SHARES, Trust, UNMASK, UPLOAD};
use undertone::train::{Data, Job, MODEL, PseudoLabels, Report, Sampling, State, Step, UPDATE};
use undertone_tests::records::on_disk;
use undertone_tests::tamper::{assert_cheated, assert_malformed, set_payload, tampering};
use undertone_tests::train::{
    CLASSES, FEATURES, Member, PARAMETERS, Session, Small, World, cloud, context, data, drive, job,
    member, opening,
};

const SERVER: PartyId = PartyId::SERVER;
const VICTIM: PartyId = PartyId::client(1);
const CHEAT: PartyId = PartyId::client(2);

/// The numbers of the server's frames to a client of a round.
const OPENING: usize = 0;
const PARAMS: usize = 1;

/// The frame of the census in which a client names the groups.
const GROUPS: usize = 2;

fn free() -> Job {
    Job {
        sampling: Sampling::Free,
        ..job()
    }
}

/// The victim's error when the server's frame `nth` to it is changed, in a round of its group. The
/// round is lost, since a group lacks nobody.
fn server_cheats(nth: usize, change: impl Fn(&mut Vec<u8>)) -> Aborted {
    let mut world = World::begun(job(), 10);
    let before = world.state.model.clone();
    let group = world.group_of(VICTIM);
    let run = world.run(tampering((SERVER, VICTIM, nth), change), &group);
    let aborted = run.server.as_ref().unwrap_err();
    assert_eq!(aborted.cause, Abort::TooFew { left: 4, need: 5 });
    assert!(run.clients.values().all(Result::is_err));
    assert_eq!(world.state.model, before);
    run.error(VICTIM).clone()
}

fn server_lies(nth: usize, expected: &str, change: impl Fn(&mut Vec<u8>)) {
    assert_cheated(&server_cheats(nth, change), SERVER, MODEL, expected);
}

/// The parts of an opening: its number of clients starts at byte 37.
fn set_number(message: &mut [u8], number: u32) {
    message[33..37].copy_from_slice(&number.to_le_bytes());
}

fn set_clients(message: &mut Vec<u8>, clients: &[PartyId]) {
    message.truncate(37);
    message.extend((clients.len() as u32).to_le_bytes());
    message.extend(clients.iter().flat_map(|id| id.to_wire().to_le_bytes()));
}

// TRAIN-1.
#[test]
fn openings_that_do_not_decode() {
    for change in [
        Vec::clear as fn(&mut Vec<u8>),
        |m| m[0] = 3,
        |m| m.push(0),
        |m| m.truncate(40),
        |m| m[37] += 1,
        |m| m[37..41].fill(0xff),
        |m| set_clients(m, &[VICTIM, VICTIM]),
        |m| set_clients(m, &[CHEAT, VICTIM]),
        |m| set_clients(m, &[VICTIM, SERVER]),
    ] {
        assert_malformed(&server_cheats(OPENING, change), SERVER, MODEL);
    }
}

#[test]
fn openings_that_are_for_others() {
    // TRAIN-2.
    let without = |m: &mut Vec<u8>| {
        let group = World::begun(job(), 10).group_of(VICTIM);
        let others: Vec<PartyId> = group.into_iter().filter(|id| *id != VICTIM).collect();
        set_clients(m, &others);
    };
    server_lies(
        OPENING,
        "its set of members leaves this client out",
        without,
    );
    // TRAIN-9.
    server_lies(OPENING, "it names another job", |m| m[1] ^= 1);
}

/// Frames with a payload of the protocol: not those that say that their sender has aborted.
fn is_data(frame: &[u8]) -> bool {
    frame[3] == 0
}

/// TRAIN-3, TRAIN-4: in a round, and at the end of the job.
#[test]
fn models_that_cannot_be() {
    for change in [
        Vec::clear as fn(&mut Vec<u8>),
        |m| m.push(0),
        |m| m.truncate(4 * PARAMETERS - 4),
    ] {
        let aborted = server_cheats(PARAMS, change);
        assert_malformed(&aborted, SERVER, MODEL);
        assert!(aborted.to_string().contains("204 are due"), "{aborted}");
    }
    for value in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let change = |m: &mut Vec<u8>| m[28..32].copy_from_slice(&value.to_le_bytes());
        let expected = "parameter 7 of its model is not a finite number";
        server_lies(PARAMS, expected, change);
    }

    let mut world = World::begun(job(), 10);
    world.state.begun = world.job.last();
    let all = world.all();
    let network = tampering((SERVER, VICTIM, PARAMS), |m| m.truncate(7));
    assert_malformed(world.run(network, &all).error(VICTIM), SERVER, MODEL);
    let nan = |m: &mut Vec<u8>| m[..4].fill(0xff);
    let run = world.run(tampering((SERVER, VICTIM, PARAMS), nan), &all);
    assert_cheated(run.error(VICTIM), SERVER, MODEL, "parameter 0 of its model");
    // TRAIN-9: the end of another job.
    let other = |m: &mut Vec<u8>| m[1] ^= 1;
    let run = world.run(tampering((SERVER, VICTIM, OPENING), other), &all);
    assert_cheated(run.error(VICTIM), SERVER, MODEL, "it names another job");
    let honest = world.run(Network::new(), &all);
    assert!(honest.clients.values().all(Result::is_ok));
}

/// A client that advertises `ad` in the census and names no groups.
fn advertising(session: SessionId, ad: Vec<u8>) -> Script<'static, Step> {
    Script::new(MODEL, move |io| async move {
        io.require(SERVER).await?;
        let rules = group::Rules {
            session,
            secrecy: Secrecy::Sealed,
            min_clients: 3,
        };
        let seed = Seed::from_bytes([77; 32]);
        io.run(group::client(rules, CHEAT, ad, None, seed)?).await?;
        io.phase(MODEL).await;
        io.send(SERVER, vec![0; 4]);
        Ok(Step::Counted)
    })
}

/// An advertisement, by docs/spec/training.md.
fn advertisement(rows: u32, labelled: u32, job: &Job) -> Vec<u8> {
    let mut ad = rows.to_le_bytes().to_vec();
    ad.extend(labelled.to_le_bytes());
    ad.extend(job.digest());
    ad.extend([0; 16]);
    ad
}

/// A server of a census that checks no advertisement.
fn credulous(session: SessionId, members: Vec<PartyId>) -> Script<'static, Report> {
    Script::new(MODEL, move |io| async move {
        io.send_to_all(&members, opening(0, SessionId([0; 32]), 0, &members));
        let rules = group::Rules {
            session,
            secrecy: Secrecy::Sealed,
            min_clients: 3,
        };
        let seed = Seed::from_bytes([78; 32]);
        io.run(group::server(rules, members.clone(), seed)?).await?;
        io.phase(MODEL).await;
        io.recv_all(&members).await;
        Err(Abort::Misuse("it ends here".into()))
    })
}

/// Runs a census of `world`, with the server and with one that checks nothing. The first server
/// aborts as `assert` says, and so do all clients but the cheat with the second one.
fn assert_found(
    mut world: World,
    other: impl Fn(SessionId, PartyId) -> Option<Script<'static, Step>>,
    assert: impl Fn(&Aborted),
) {
    let all = world.all();
    let run = world.run_with(Network::new(), &all, &other);
    assert(run.server.as_ref().unwrap_err());
    let session = world.session();
    let party = |who: &PartyId| {
        let party = other(session, *who).unwrap_or_else(|| world.party(session, *who));
        (*who, party)
    };
    let clients = all.iter().map(party).collect();
    let run = drive(Network::new(), session, credulous(session, all), clients);
    for (who, outcome) in &run.clients {
        if *who != CHEAT {
            assert(outcome.as_ref().unwrap_err());
        }
    }
    assert!(world.state.census.is_none());
    assert!(world.clients.iter().all(|client| client.last().is_none()));
}

#[test]
fn clients_that_advertise_what_cannot_be() {
    let advertised = |ad: Vec<u8>, assert: &dyn Fn(&Aborted)| {
        let cheat = |session, who| (who == CHEAT).then(|| advertising(session, ad.clone()));
        assert_found(World::new(job(), 6), cheat, assert);
    };
    // TRAIN-5.
    let right = advertisement(24, 6, &job());
    let longer: Vec<u8> = right.iter().copied().chain([0]).collect();
    for ad in [
        Vec::new(),
        right[..right.len() - 1].to_vec(),
        longer,
        advertisement(5, 6, &job()),
    ] {
        advertised(ad, &|aborted| {
            assert_malformed(aborted, CHEAT, group::PHASE)
        });
    }
    // TRAIN-6.
    let other = Job { epochs: 5, ..job() };
    advertised(advertisement(24, 6, &other), &|aborted| {
        let expected = "its job differs from this party's";
        assert_cheated(aborted, CHEAT, group::PHASE, expected);
    });
}

/// TRAIN-14: either of two clients whose classes have different names may be wrong.
#[test]
fn classes_of_different_names() {
    let named = |names: [&str; CLASSES], seed| {
        let (values, classes) = cloud(24, seed);
        let labelling = Labelling::new(CLASSES, classes.into_iter().map(Some).collect());
        let names = names.map(String::from).to_vec();
        let labelling = labelling.unwrap().with_names(names).unwrap();
        member(Data::new(FEATURES, values, labelling).unwrap())
    };
    let names = ["ant", "bee", "cat"];
    let mut world = World::new(job(), 6);
    world.clients = (0..6).map(|seed| named(names, seed)).collect();
    let all = world.all();
    assert!(world.run(Network::new(), &all).server.is_ok());

    let mut world = World::new(job(), 6);
    world.clients = (0..6).map(|seed| named(names, seed)).collect();
    world.clients[2] = named(["bee", "ant", "cat"], 2);
    assert_found(
        world,
        |_, _| None,
        |aborted| {
            assert_eq!(aborted.cause.culprit(), None);
            let expected = "the classes of client 2 have other names than those of client 0";
            assert!(aborted.to_string().contains(expected), "{aborted}");
        },
    );
}

#[test]
fn groups_that_cannot_be() {
    let run = |change: fn(&mut Vec<u8>)| {
        let mut world = World::new(job(), 10);
        let all = world.all();
        let run = world.run(tampering((CHEAT, SERVER, GROUPS), change), &all);
        assert!(world.state.census.is_none());
        run.server.unwrap_err()
    };
    // TRAIN-8.
    let twice = |m: &mut Vec<u8>| {
        let mut groups = 2u32.to_le_bytes().to_vec();
        for _ in 0..2 {
            groups.extend([1, 0, 0, 0, 5, 0, 0, 0]);
        }
        *m = groups;
    };
    for change in [
        Vec::clear as fn(&mut Vec<u8>),
        |m| m.push(0),
        |m| m[0] += 1,
        |m| m[..4].fill(0xff),
        |m| m.truncate(20),
        |m| m.swap(8, 12),
        twice,
    ] {
        assert_malformed(&run(change), CHEAT, MODEL);
    }
    // TRAIN-15: no groups, and a client that is left out.
    let out = |m: &mut Vec<u8>| {
        m.truncate(8 + 4 * 5);
        m[0] = 1;
    };
    for change in [(|m| *m = vec![0; 4]) as fn(&mut Vec<u8>), out] {
        let aborted = run(change);
        assert_eq!(
            (aborted.cause.culprit(), aborted.phase),
            (Some(CHEAT), MODEL)
        );
        let expected = "its groups are not those of the job's clients";
        assert!(aborted.to_string().contains(expected), "{aborted}");
    }
    // TRAIN-12: two clients change places. Each group has five clients, and its ids ascend.
    let swapped = |m: &mut Vec<u8>| {
        let id = |m: &[u8], at: usize| u32::from_le_bytes([m[at], m[at + 1], m[at + 2], m[at + 3]]);
        let mut groups = [8, 32].map(|start| [0, 1, 2, 3, 4].map(|place| id(m, start + 4 * place)));
        let [first, second] = &mut groups;
        std::mem::swap(&mut first[2], &mut second[2]);
        for (start, mut group) in [8, 32].into_iter().zip(groups) {
            group.sort_unstable();
            for (place, id) in group.into_iter().enumerate() {
                let at = start + 4 * place;
                m[at..at + 4].copy_from_slice(&id.to_le_bytes());
            }
        }
    };
    let aborted = run(swapped);
    assert_eq!((aborted.cause.culprit(), aborted.phase), (None, MODEL));
    let expected = "client 2 and client 0 name different groups";
    assert!(aborted.to_string().contains(expected), "{aborted}");
}

// TRAIN-13.
#[test]
fn trained_messages_that_are_not_empty() {
    for job in [job(), free()] {
        let mut world = World::begun(job.clone(), 10);
        let members = match job.sampling {
            Sampling::Groups(_) => world.group_of(CHEAT),
            Sampling::Free => world.all()[..5].to_vec(),
        };
        let network = Network::new().intercept(|from, _, frame| {
            if from == CHEAT && frame[4] == UPDATE.id {
                set_payload(frame, &[0]);
            }
        });
        let aborted = world.run(network, &members).server.unwrap_err();
        assert_malformed(&aborted, CHEAT, UPDATE);
    }
}

/// Client `place` with the record on `disk`, as a new process makes it.
fn remembering(place: u8, disk: &PowerCut) -> Member {
    let data = data(24, 6 * usize::from(1 - place % 2), place);
    Member::new(Box::new(Small::new(0)), data, on_disk(disk))
}

fn assert_refuse(run: &Session, who: &[PartyId], expected: &str) {
    for who in who {
        assert_cheated(run.error(*who), SERVER, MODEL, expected);
    }
}

const OVER: &str = "it starts a round that is over, or that the job does not have";

/// TRAIN-10: the same model with another set would give one client's update.
#[test]
fn a_round_runs_once() {
    let mut world = World::begun(job(), 10);
    let (group, all) = (world.group_of(VICTIM), world.all());
    let theta = world.state.clone();
    assert!(world.run(Network::new(), &group).server.is_ok());
    let trained = world.state.clone();
    for members in [&group, &all] {
        world.state = theta.clone();
        let run = world.run(Network::new(), members);
        assert!(run.server.is_err());
        assert_refuse(&run, &group, OVER);
    }
    // A round that has failed is over, too. The server of this client lost its model.
    world.state = trained.clone();
    let spoiled = tampering((SERVER, CHEAT, PARAMS), Vec::clear);
    let group = world.group_of(CHEAT);
    assert!(world.run(spoiled, &group).server.is_err());
    world.state = trained;
    assert_refuse(&world.run(Network::new(), &group), &group, OVER);
    // Numbers may be left out.
    world.state.begun = 3;
    let run = world.run(Network::new(), &all);
    assert!(matches!(run.server, Ok(Report::Trained(round)) if round.taken.number == 4));
    for number in [0, 4, world.job.last() + 1, u32::MAX] {
        let lie = |m: &mut Vec<u8>| set_number(m, number);
        let run = world.run(tampering((SERVER, VICTIM, OPENING), lie), &all);
        assert_refuse(&run, &[VICTIM], OVER);
        world.state.begun = 4;
    }
}

/// TRAIN-10: a round is on record before the client sends anything, whatever process asks.
#[test]
fn a_round_runs_once_for_a_client_that_is_started_again() {
    let mut world = World::new(job(), 10);
    let disk = PowerCut::default();
    world.clients[1] = remembering(1, &disk);
    let all = world.all();
    assert!(world.run(Network::new(), &all).server.is_ok());
    let last = || on_disk(&disk).census().unwrap().unwrap().last;
    assert_eq!(last(), 0);
    let theta = world.state.clone();
    let group = world.group_of(VICTIM);
    // The client's process ends before the client has sent a frame.
    let network = Network::new().leave(VICTIM, 0);
    assert!(world.run(network, &group).server.is_err());
    assert_eq!(last(), 0, "the opening did not reach it");
    world.state = theta.clone();
    let lost = Network::new().intercept(|from, to, frame| {
        assert!(from != VICTIM || !is_data(frame));
        if (from, to) == (SERVER, VICTIM) && frame.len() == HEADER_LEN + 4 * PARAMETERS {
            set_payload(frame, &[]);
        }
    });
    assert_malformed(world.run(lost, &group).error(VICTIM), SERVER, MODEL);
    assert_eq!(last(), 1);
    world.clients[1] = remembering(1, &disk);
    for members in [&group, &all] {
        world.state = theta.clone();
        assert_refuse(&world.run(Network::new(), members), &[VICTIM], OVER);
    }
    // The next round is another matter.
    world.state = theta;
    world.state.begun = 1;
    assert!(world.run(Network::new(), &group).server.is_ok());
}

/// A client that cannot keep a claim sends nothing, and one without a census takes part in no
/// round.
#[test]
fn clients_that_cannot_remember_stay_away() {
    let mut world = World::new(job(), 10);
    let disk = PowerCut::default();
    let record = on_disk(&disk);
    world.clients[1] = Member::new(Box::new(Small::new(0)), data(24, 0, 1), record.clone());
    let all = world.all();
    assert!(world.run(Network::new(), &all).server.is_ok());
    let group = world.group_of(VICTIM);
    let silent = || {
        Network::new().intercept(|from, _, frame| {
            assert!(from != VICTIM || !is_data(frame));
        })
    };
    disk.cut_after(1);
    let run = world.run(silent(), &group);
    assert!(run.error(VICTIM).to_string().contains(TOLD));
    assert!(record.refused().unwrap().contains("the power is off"));
    assert_eq!(run.error(VICTIM).cause.culprit(), None);

    let new = on_disk(&PowerCut::default());
    world.clients[1] = Member::new(Box::new(Small::new(0)), data(24, 0, 1), new.clone());
    let run = world.run(silent(), &group);
    assert!(run.error(VICTIM).to_string().contains(TOLD));
    assert!(new.refused().unwrap().contains("no census of training"));
}

// TRAIN-11.
#[test]
fn sets_that_are_not_whole_groups() {
    let expected = "its set of members is not made of whole groups of the job's clients";
    let world = World::begun(job(), 15);
    assert_eq!(world.groups().len(), 3);
    let own = world.group_of(VICTIM);
    let other = world.groups().iter().find(|group| **group != own).unwrap();
    let sorted = |mut ids: Vec<PartyId>| {
        ids.sort_unstable();
        ids
    };
    let stranger = PartyId::client(40);
    let first = *own.iter().find(|id| **id != VICTIM).unwrap();
    let less: Vec<PartyId> = own.iter().copied().filter(|id| *id != first).collect();
    let sets = [
        vec![VICTIM],
        less.clone(),
        sorted([&less[..], &[stranger]].concat()),
        sorted([&less[..], &other[..1]].concat()),
        sorted([&own[..], &[stranger]].concat()),
        sorted([&own[..], &other[1..]].concat()),
        sorted([&less[..], &other[..]].concat()),
    ];
    let mut world = world;
    for (number, set) in sets.iter().enumerate() {
        world.state.begun = number as u32 % 5;
        let lie = |m: &mut Vec<u8>| set_clients(m, set);
        let run = world.run(tampering((SERVER, VICTIM, OPENING), lie), &own);
        assert_refuse(&run, &[VICTIM], expected);
    }
    // With free sampling the set has only clients of the census.
    let mut world = World::begun(free(), 6);
    let all = world.all();
    let lie = |m: &mut Vec<u8>| set_clients(m, &sorted([&all[..], &[stranger]].concat()));
    let run = world.run(tampering((SERVER, VICTIM, OPENING), lie), &all);
    assert_refuse(&run, &[VICTIM], expected);
    assert!(run.server.is_ok(), "the others go on");
}

/// TRAIN-7: a second census after a round would deal other groups, and their sums would differ by
/// single clients.
#[test]
fn a_census_after_a_round_is_refused() {
    let mut world = World::begun(job(), 10);
    let all = world.all();
    // Before the first round it may be repeated. Rounds of the first census are then refused.
    let first = world.state.clone();
    world.state = State::new(first.model.clone());
    assert!(world.run(Network::new(), &all).server.is_ok());
    let second = world.state.clone();
    world.state = first;
    let group = world.group_of(VICTIM);
    let run = world.run(Network::new(), &group);
    assert_refuse(&run, &group, "it names another job");
    world.state = second;
    let group = world.group_of(VICTIM);
    assert!(world.run(Network::new(), &group).server.is_ok());

    world.state = State::new(world.state.model.clone());
    let run = world.run(Network::new(), &all);
    for who in &group {
        let aborted = run.error(*who);
        assert_eq!((aborted.cause.culprit(), aborted.phase), (None, MODEL));
        assert!(aborted.to_string().contains(TOLD), "{aborted}");
    }
    // The others have taken part in no round.
    assert_eq!(world.state.census.unwrap().clients.len(), 5);
}

/// SUM-25: class counts of two censuses that differ by a client would be that client's.
#[test]
fn a_second_census_counts_the_same_clients() {
    let mut world = World::begun(free(), 6);
    let all = world.all();
    world.state = State::new(world.state.model.clone());
    let run = world.run(Network::new(), &all[1..]);
    assert!(run.server.is_err());
    for who in &all[1..] {
        let aborted = run.error(*who);
        // Nothing of a sum has left.
        assert_eq!(
            (aborted.cause.culprit(), aborted.phase),
            (None, group::PHASE)
        );
        assert!(aborted.to_string().contains(TOLD), "{aborted}");
    }
    assert!(world.run(Network::new(), &all).server.is_ok());
}
