//! Runs with any order of delivery, clients that drop out or come back, and failed attempts.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use proptest::prelude::*;
use undertone::job::SessionContext;
use undertone::kdf::Seed;
use undertone::party::{Abort, Endpoint, Ledger, Limits, Network, Node, PartyId, SessionId};
use undertone::rounds::{
    CONTRIBUTION, Contribution, Job, Kept, Mean, RESULT, ROUND, Report, Round, Session, Step,
};
use undertone::sum::{self, Suite, Trust};
use undertone_tests::chooser;
use undertone_tests::network::Means;
use undertone_tests::rounds::Run;
use undertone_tests::rounds::{
    Member, assert_mean, assert_same, clear, due, learnt, members, reported, run,
};

use super::{SERVER, failure, frames, job, kit, messages, new, spoilt};

#[test]
fn three_rounds_with_what_is_kept_between_them() {
    let kit = kit();
    for trust in [Trust::SemiHonest, Trust::MaliciousServer] {
        for (mean, suite) in [(true, Suite::Aes128Ctr), (false, Suite::ChaCha20)] {
            let job = Job {
                trust,
                mean,
                suite,
                ..job(&kit)
            };
            let members = members(&kit);
            let mut kept = new();
            for round in 1..=3 {
                let run = run(job, &kept, &members, Network::new()).unwrap();
                let due = due(&job, &kit, round, &[0, 1, 2, 3, 4]);
                assert_mean(&run, &due, 0..5);
                kept = run.kept;
                assert_eq!(kept.finished(), round);
                assert_same(&kept.mean(&job).unwrap(), &due);
                // The state survives a restart of the server.
                kept = Arc::new(Kept::read(&kept.write(), &job).unwrap());
            }
            for member in members {
                let heard = member.heard();
                let asked = [(1, 1, None), (2, 1, Some(1)), (3, 1, Some(2))];
                assert_eq!(heard.asked, asked);
                let rounds: Vec<u32> = heard.means.iter().map(|mean| mean.round).collect();
                assert_eq!(rounds, [1, 2, 3]);
            }
        }
    }
    // The mean is also that of `Means`.
    let means = kit.mean(2, &[0, 1, 3]).unwrap();
    assert_same(&due(&job(&kit), &kit, 2, &[0, 1, 3]), &means);
}

/// All facts of a run, without times.
fn facts(run: &Run) -> impl PartialEq + std::fmt::Debug + use<> {
    let costs = |(id, ledger): &(PartyId, Ledger)| {
        let phases = ledger.phases().map(|(phase, cost)| {
            (
                phase,
                cost.bytes_sent,
                cost.bytes_received,
                cost.messages,
                cost.rounds(),
            )
        });
        (*id, phases.collect::<Vec<_>>())
    };
    let clients: Vec<Option<Mean>> = (0..run.clients.len())
        .map(|index| learnt(run, index).cloned())
        .collect();
    let mean = match &run.report {
        Report::Finished(mean) => Some(mean.clone()),
        Report::CaughtUp => None,
    };
    let ledgers: Vec<_> = run.ledgers.iter().map(costs).collect();
    (clients, mean, Kept::clone(&run.kept), ledgers)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn any_order_gives_the_same_round(
        clients in 3usize..7, values in 1usize..300, away in 0usize..7, order: u64, malicious: bool,
        mean: bool,
    ) {
        let kit = Means { clients, rounds: 2, values };
        let trust = if malicious { Trust::MaliciousServer } else { Trust::SemiHonest };
        let job = Job { trust, mean, min_clients: 2, ..kit.job(2) };
        let all: Vec<usize> = (0..clients).collect();
        // In the second round client `away` lacks the first mean. All others have it.
        let two = |order: Option<u64>| {
            let members = members(&kit);
            let network = Network::new().leave(PartyId::client(away), 0);
            let first = run(job, &new(), &members, network).unwrap();
            let network = match order {
                Some(order) => Network::new().choose(chooser(order)),
                None => Network::new(),
            };
            run(job, &first.kept, &members, network).unwrap()
        };
        let (straight, shuffled) = (two(None), two(Some(order)));
        assert_mean(&shuffled, &due(&job, &kit, 2, &all), 0..clients);
        prop_assert_eq!(facts(&straight), facts(&shuffled));
    }
}

/// Means in several messages, to clients that lack the last mean and to all clients.
#[test]
fn long_means_come_in_tiles_and_any_order() {
    let kit = Means {
        clients: 3,
        rounds: 2,
        values: 150_000,
    };
    let job = kit.job(2);
    for order in 0..3 {
        let members = members(&kit);
        let network = Network::new().leave(PartyId::client(1), 0);
        let first = run(job, &new(), &members, network).unwrap();
        assert_mean(&first, &due(&job, &kit, 1, &[0, 2]), [0, 2]);
        let network = Network::new().choose(chooser(order));
        let second = run(job, &first.kept, &members, network).unwrap();
        assert_mean(&second, &due(&job, &kit, 2, &[0, 1, 2]), 0..3);
        assert_same(&members[1].heard().means[0], reported(&first));
        let ledger = &second.ledgers[0].1;
        let messages = |phase| ledger.phase(phase).unwrap().messages;
        assert_eq!((messages(ROUND), messages(RESULT)), (3 + 3, 3 * 3));
    }
}

/// The others get the mean of all clients, or of all but the dropped one. It depends on its upload.
#[test]
fn one_of_five_may_leave_at_any_point() {
    let kit = kit();
    for (trust, mean) in [
        (Trust::SemiHonest, true),
        (Trust::SemiHonest, false),
        (Trust::MaliciousServer, true),
    ] {
        let job = Job {
            trust,
            mean,
            ..job(&kit)
        };
        let first = run(job, &new(), &members(&kit), Network::new()).unwrap();
        for kept in [new(), first.kept] {
            let round = kept.finished() + 1;
            let (uploaded, all) = frames(job, &kit, &kept, 2);
            let frames_due = if trust == Trust::SemiHonest { 6 } else { 7 };
            assert_eq!((uploaded, all), (5, frames_due));
            for (after, order) in (0..=all).zip(0..) {
                let network = Network::new()
                    .leave(PartyId::client(2), after)
                    .choose(chooser(order));
                let members = members(&kit);
                let run = run(job, &kept, &members, network).unwrap();
                let who: &[usize] = if after < uploaded {
                    &[0, 1, 3, 4]
                } else {
                    &[0, 1, 2, 3, 4]
                };
                assert_mean(&run, &due(&job, &kit, round, who), [0, 1, 3, 4]);
                // A client that drops out after its first frame is not asked for a contribution.
                let heard = members[2].heard();
                assert_eq!(heard.asked.len(), usize::from(after >= 2), "{after}");
            }
        }
    }
}

#[test]
fn leaving_between_two_tiles_of_an_upload() {
    let kit = Means {
        clients: 4,
        rounds: 1,
        values: 150_000,
    };
    let job = kit.job(2);
    for (after, who) in [(5, &[0, 2, 3][..]), (6, &[0, 1, 2, 3])] {
        let network = Network::new().leave(PartyId::client(1), after);
        let run = run(job, &new(), &members(&kit), network).unwrap();
        assert_mean(&run, &due(&job, &kit, 1, who), [0, 2, 3]);
    }
}

// ROUND-11.
#[test]
fn too_few_clients_are_a_named_error_at_every_point() {
    let kit = Means {
        clients: 3,
        ..kit()
    };
    let job = job(&kit);
    let (uploaded, _) = frames(job, &kit, &new(), 0);
    for after in 0..uploaded {
        let members = members(&kit);
        let network = Network::new().leave(PartyId::client(0), after);
        let aborted = failure(run(job, &new(), &members, network));
        assert_eq!(aborted.cause, Abort::TooFew { left: 2, need: 3 });
        let phase = [
            CONTRIBUTION,
            CONTRIBUTION,
            sum::KEYS,
            sum::SHARES,
            sum::UPLOAD,
        ][after];
        assert_eq!((aborted.party, aborted.phase), (SERVER, phase), "{after}");
    }
}

#[test]
fn a_server_that_leaves_ends_every_client() {
    let kit = kit();
    let job = job(&kit);
    let whole = run(job, &new(), &members(&kit), Network::new()).unwrap();
    for after in 0..messages(&whole.ledgers[0].1) {
        let members = members(&kit);
        let network = Network::new().leave(SERVER, after);
        let run = run(job, &new(), &members, network);
        let error = run.unwrap_err().to_string();
        assert!(error.contains("server"), "{error}");
    }
}

/// A client that was away gets the last mean only, before it contributes.
#[test]
fn who_was_away_gets_the_last_mean() {
    let kit = kit();
    let job = job(&kit);
    let members = members(&kit);
    let away = |index, frames| Network::new().leave(PartyId::client(index), frames);
    // Client 3 misses the first round. Client 4 drops out of the second one after its upload.
    let first = run(job, &new(), &members, away(3, 0)).unwrap();
    let second = run(job, &first.kept, &members, away(4, 5)).unwrap();
    assert_mean(&first, &due(&job, &kit, 1, &[0, 1, 2, 4]), [0, 1, 2, 4]);
    assert_mean(&second, &due(&job, &kit, 2, &[0, 1, 2, 3, 4]), 0..4);
    let heard = members[3].heard();
    assert_same(&heard.means[0], reported(&first));
    assert_eq!(heard.asked, [(2, 1, Some(1))]);
    // Only this client gets the mean: an opening to each client, a header and a tile to one.
    let sent = |run: &Run| run.ledgers[0].1.phase(ROUND).unwrap().messages;
    assert_eq!((sent(&first), sent(&second)), (4, 5 + 2));

    let third = run(job, &second.kept, &members, away(0, 0)).unwrap();
    assert_mean(&third, &due(&job, &kit, 3, &[1, 2, 3, 4]), 1..5);
    let heard = members[4].heard();
    assert_eq!(
        heard.asked,
        [(1, 1, None), (2, 1, Some(1)), (3, 1, Some(2))]
    );
    assert_same(&heard.means[1], reported(&second));

    // No more rounds. Client 0 has the second mean. Client 1 is restarted and has none.
    let mut members = members;
    members[1] = Member::of(&kit, 1);
    let last = run(job, &third.kept, &members, Network::new()).unwrap();
    assert!(matches!(last.report, Report::CaughtUp));
    assert_eq!(last.kept, third.kept);
    for member in &members {
        let heard = member.heard();
        assert_same(heard.means.last().unwrap(), reported(&third));
        assert!(heard.asked.iter().all(|(round, ..)| *round <= 3));
    }
    assert!(
        last.clients
            .iter()
            .all(|step| matches!(step, Ok(Step::CaughtUp)))
    );
    assert_eq!(members[1].heard().means.len(), 1);
    assert_eq!(sent(&last), 5 + 2 * 2);
    let phases = last.ledgers[0].1.phases();
    assert!(phases.map(|(phase, _)| phase).eq([ROUND]));
}

/// A client that contributed and did not get the mean gets it in the next session. It is not asked
/// again.
#[test]
fn who_lost_the_mean_of_its_own_round_gets_it() {
    let kit = kit();
    let job = job(&kit);
    let stubborn = |index: usize| {
        let kit = kit.clone();
        let give = move |round: &Round| Ok(kit.contribution(index, round.number));
        Member::new(give, false)
    };
    let members: Vec<Member> = (0..5).map(stubborn).collect();
    let network = Network::new().intercept(|from, to, frame| {
        if (from, to) == (SERVER, PartyId::client(1)) && frame[4] == RESULT.id {
            undertone_tests::tamper::set_payload(frame, b"");
        }
    });
    let first = run(job, &new(), &members, network).unwrap();
    assert!(first.clients[1].is_err());
    assert_mean(&first, &due(&job, &kit, 1, &[0, 1, 2, 3, 4]), [0, 2, 3, 4]);
    assert_eq!(
        members[1].client.may_take_part(1, &members[1].record),
        Ok(())
    );
    let second = run(job, &first.kept, &members, Network::new()).unwrap();
    assert_mean(&second, &due(&job, &kit, 2, &[0, 1, 2, 3, 4]), 0..5);
    let heard = members[1].heard();
    assert_same(&heard.means[0], reported(&first));
    assert_eq!(heard.asked, [(1, 1, None), (2, 1, Some(1))]);
}

/// ROUND-18: after masked words of a client have left it, it asks for other values, or takes no
/// part in the round. Before that, it uses its contribution again.
#[test]
fn values_are_added_once() {
    let kit = kit();
    let job = job(&kit);
    let whole = run(job, &new(), &members(&kit), Network::new()).unwrap();
    let frames_of_server = messages(&whole.ledgers[0].1);
    let mut seen = [false; 3];
    // Up to the first mean: the tiles for five clients come last.
    for frames in 0..=frames_of_server - 5 {
        let member = |index: usize| {
            let kit = kit.clone();
            let give = move |round: &Round| Ok(kit.contribution(index, round.attempt));
            Member::new(give, index != 0)
        };
        let members: Vec<Member> = (0..5).map(member).collect();
        spoilt(job, &members, frames);
        let asked = members[0].heard().asked.len();
        // A client uploads after it got its opening, layout, roster and shares.
        let sent = members[0]
            .client
            .may_take_part(0, &members[0].record)
            .is_err();
        seen[asked + usize::from(sent)] = true;
        if sent {
            assert!(frames > 15, "after {frames}");
            let why = members[0]
                .client
                .may_take_part(0, &members[0].record)
                .unwrap_err();
            assert!(why.contains("its values for round 1"), "{why}");
            assert_eq!(
                members[0].client.may_take_part(1, &members[0].record),
                Ok(())
            );
        }
        let again = run(job, &new(), &members, Network::new()).unwrap();
        if sent {
            // It was not asked, and none of its words were sent again.
            assert_eq!(members[0].heard().asked.len(), 1);
            let aborted = again.clients[0].as_ref().unwrap_err();
            assert!(matches!(aborted.cause, Abort::Misuse(_)), "{aborted}");
            assert!(aborted.to_string().contains("its values for round 1"));
            assert!(again.ledgers[1].1.phase(sum::UPLOAD).is_none());
            assert_eq!(
                reported(&again).contributors,
                [1, 2, 3, 4].map(PartyId::client)
            );
        } else {
            assert!(learnt(&again, 0).is_some());
            assert_eq!(members[0].heard().asked, [(1, 1, None)], "after {frames}");
        }
        for member in &members[1..] {
            let heard = member.heard();
            let once = heard.asked == [(1, 1, None)];
            assert!(once || heard.asked == [(1, 1, None), (1, 2, None)]);
        }
        // Every word in the mean is of values that were not sent before.
        let attempts = members.iter().map(|member| member.heard().asked.len());
        let first = usize::from(sent);
        let own =
            |(index, attempt): (usize, usize)| (index, kit.contribution(index, attempt as u32));
        let all: Vec<(usize, Contribution)> = attempts.enumerate().skip(first).map(own).collect();
        let mean = clear(&job, 1, &all).unwrap();
        assert_mean(&again, &mean, first..5);
    }
    assert_eq!(
        seen, [true; 3],
        "before it is asked, before its upload, after"
    );
}

/// A server that cannot store a mean sends it to nobody. Otherwise a client could have the mean of
/// a round that the server runs again.
#[test]
fn a_mean_is_kept_before_anybody_learns_it() {
    let kit = kit();
    let job = job(&kit);
    let session = SessionId([9; 32]);
    let ids: Vec<PartyId> = (0..5).map(PartyId::client).collect();
    for is_full in [false, true] {
        let members = members(&kit);
        let heard = |members: &[Member]| -> usize {
            members
                .iter()
                .map(|member| member.heard().means.len())
                .sum()
        };
        let sent = Arc::new(AtomicUsize::new(0));
        let server = Session {
            job,
            session,
            clients: ids.clone(),
            kept: new(),
            needed: 3,
        };
        let before = Arc::clone(&sent);
        let server = server.party(move |now| {
            assert_eq!((now.finished(), before.load(Ordering::SeqCst)), (1, 0));
            if is_full {
                return Err("the disk is full".into());
            }
            Ok(())
        });
        let mut server = Endpoint::new(SERVER, session, Limits::default(), server);
        let client = |(me, member): (&PartyId, &Member)| {
            let seed = Seed::from_bytes([me.to_wire() as u8; 32]);
            let at = SessionContext {
                record: member.record.clone(),
                ..SessionContext::new(session, *me, seed)
            };
            Endpoint::new(
                *me,
                session,
                Limits::default(),
                member.client.party(job, at),
            )
        };
        let mut clients: Vec<_> = ids.iter().zip(&members).map(client).collect();
        let mut nodes: Vec<&mut dyn Node> = vec![&mut server];
        nodes.extend(clients.iter_mut().map(|client| client as &mut dyn Node));
        let mut network = Network::new().intercept(|_, _, frame| {
            // Frames of another kind are aborts.
            let is_mean = frame[3] == 0 && frame[4] == RESULT.id;
            sent.fetch_add(usize::from(is_mean), Ordering::SeqCst);
        });
        network.run(&mut nodes).unwrap();
        if is_full {
            let aborted = server.aborted().unwrap();
            assert!(
                aborted.to_string().contains("the disk is full"),
                "{aborted}"
            );
            assert!(clients.iter().all(|client| client.aborted().is_some()));
            assert_eq!((heard(&members), sent.load(Ordering::SeqCst)), (0, 0));
        } else {
            assert!(server.aborted().is_none());
            assert_eq!((heard(&members), sent.load(Ordering::SeqCst)), (5, 10));
        }
    }
}
