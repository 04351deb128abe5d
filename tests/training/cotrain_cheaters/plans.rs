//! Plans of slices, openings and consensuses that cannot be.

use super::*;

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
    let mut clients = world.parties(session, &all[..4]);
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
        let mut clients = world.parties(session, &all[..4]);
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

/// Client 4 hears that the attempts are over, the others that it has dropped out and that client 0
/// helps with its slice. If client 4 garbled, the server would have the winners of the slice with
/// its votes and without them.
#[test]
fn a_helper_that_alone_hears_that_the_attempts_are_over() {
    let helper = PartyId::client(4);
    let mut world = world(Votes::Winners).pinned();
    let all = world.all();
    let (mut plans, garbled) = (BTreeMap::new(), AtomicUsize::new(0));
    let network = Network::new().intercept(|from, to, frame| {
        if from == helper && frame[4] == GARBLING.id {
            garbled.fetch_add(1, Ordering::Relaxed);
        }
        if from == SERVER && to != helper && frame[4] == SLICES.id && frame[3] == 0 {
            let seen = plans.entry(to).or_insert(0);
            if *seen == 1 {
                set_payload(frame, &plan(&[(4, PartyId::client(0))]));
            }
            *seen += 1;
        }
    });
    let run = world.run(network, &all);
    assert!(run.clients.values().all(Result::is_err) && run.server.is_err());
    assert_eq!(garbled.into_inner(), 0);
}
