//! Servers that tell clients different things, and sums of others than the group.

use super::*;

/// What a lying server tells a client: an opening and a model.
type Tell = Box<dyn Fn(PartyId) -> (Vec<u8>, Vec<f32>) + Send + Sync>;

/// Begins a round as `tell` says, and lets the clients train.
async fn begin(io: &undertone::party::Io, members: &[PartyId], tell: &Tell) {
    for who in members {
        let (opening, model) = tell(*who);
        io.send(*who, opening);
        let model: Vec<u8> = model.iter().flat_map(|value| value.to_le_bytes()).collect();
        io.send(*who, model);
    }
    io.phase(UPDATE).await;
    io.recv_all(members).await;
}

/// A server that tells each client what `tell` says, passes the keys of the sum on as they are, and
/// checks nothing. In the end it reports how many clients dealt shares.
fn liar(members: Vec<PartyId>, tell: Tell) -> Script<'static, Report> {
    Script::new(MODEL, move |io| async move {
        begin(&io, &members, &tell).await;
        io.phase(KEYS).await;
        let (mut count, mut entries) = (0u32, Vec::new());
        for (who, hello) in io.recv_all(&members).await {
            let Some(hello) = hello else { continue };
            count += 1;
            entries.extend(who.to_wire().to_le_bytes());
            entries.extend_from_slice(&hello);
        }
        io.send_to_all(&members, [&count.to_le_bytes()[..], &entries].concat());
        io.phase(SHARES).await;
        let dealt = io.recv_all(&members).await;
        let dealt = dealt
            .iter()
            .filter(|(_, message)| message.is_some())
            .count();
        Err(Abort::Misuse(format!("{dealt} dealt shares")))
    })
}

/// SUM-2: clients that are told different models, numbers or sets have different rules of their
/// sum. Nobody shares the keys of its masks, so no update is unmasked.
#[test]
fn a_server_that_tells_clients_different_things() {
    type Lie = fn(&World, PartyId) -> (u32, Vec<PartyId>, Vec<f32>);
    let model: Lie = |world, who| {
        let mut model = world.state.model.clone();
        model[0] += if who == VICTIM { 1.0 } else { 0.0 };
        (1, world.all(), model)
    };
    let zero: Lie = |world, who| {
        // The digest is of bits: the sign of a zero counts.
        let mut model = world.state.model.clone();
        model[0] = if who == VICTIM { 0.0 } else { -0.0 };
        (1, world.all(), model)
    };
    let number: Lie = |world, who| {
        let number = 1 + u32::from(who == VICTIM);
        (number, world.all(), world.state.model.clone())
    };
    let set: Lie = |world, who| {
        let own = world.group_of(VICTIM);
        let set = if own.contains(&who) { own } else { world.all() };
        (1, set, world.state.model.clone())
    };
    for lie in [model, zero, number, set] {
        let mut world = World::begun(job(), 10);
        let (all, session) = (world.all(), world.session());
        let census = world.state.census.as_ref().unwrap().session;
        let told: Vec<_> = all.iter().map(|who| lie(&world, *who)).collect();
        let tell = move |who: PartyId| {
            let (number, set, model) = &told[who.index().unwrap()];
            (opening(1, census, *number, set), model.clone())
        };
        let mut late = 0;
        let network = Network::new().intercept(|_, _, frame| {
            late += usize::from(is_data(frame) && [UPLOAD.id, UNMASK.id].contains(&frame[4]));
        });
        let clients = all.iter().map(|who| (*who, world.party(session, *who)));
        let clients = clients.collect();
        let run = drive(network, session, liar(all.clone(), Box::new(tell)), clients);
        assert_eq!(late, 0);
        let aborted = run.server.as_ref().unwrap_err();
        assert!(aborted.to_string().contains("0 dealt shares"), "{aborted}");
        for who in all {
            let aborted = run.error(who);
            assert_eq!(aborted.phase, KEYS);
            let expected = "its rules differ from this party's";
            assert!(aborted.to_string().contains(expected), "{aborted}");
        }
    }
}

/// The same with pseudo-labels: the setup of label propagation fails already, so the server sees no
/// distances.
#[test]
fn different_models_end_label_propagation() {
    let job = Job {
        label_rounds: 0,
        ..job()
    };
    let mut world = World::begun(job, 10);
    let (group, before) = (world.group_of(VICTIM), world.state.model.clone());
    let mut sent = Vec::new();
    let mut seen = 0;
    let network = Network::new().intercept(|from, to, frame| {
        if (from, to) == (SERVER, VICTIM) {
            if seen == PARAMS {
                let mut model = frame[HEADER_LEN..].to_vec();
                model[0] ^= 1;
                set_payload(frame, &model);
            }
            seen += 1;
        }
        if is_data(frame) {
            sent.push(frame[4]);
        }
    });
    let run = world.run(network, &group);
    assert!(run.server.is_err() && run.clients.values().all(Result::is_err));
    assert_eq!(world.state.model, before);
    let late = [phases::DISTANCES, phases::INFLUENCE, KEYS, UPDATE, UPLOAD];
    let is_late = |phase: &u8| late.iter().any(|late| late.id == *phase);
    assert!(!sent.iter().any(is_late), "{sent:?}");
}

/// A server that begins a round as `tell` says, and then adds up the updates of `summed`.
fn summer(
    rules: Rules,
    members: Vec<PartyId>,
    summed: Vec<PartyId>,
    tell: Tell,
) -> Script<'static, Report> {
    Script::new(MODEL, move |io| async move {
        begin(&io, &members, &tell).await;
        io.run(sum::server::<u32>(rules, summed)?).await?;
        Err(Abort::Misuse("the sum is open".into()))
    })
}

/// SUM-5: a round of a whole group, in whose sum one client of the group is left out.
#[test]
fn a_sum_without_a_client_of_the_group() {
    let mut world = World::begun(job(), 10);
    let (group, session) = (world.group_of(VICTIM), world.session());
    let census = world.state.census.as_ref().unwrap().session;
    let model = world.state.model.clone();
    let others = group[1..].to_vec();
    let party = |who: &PartyId| (*who, world.party(session, *who));
    let clients = others.iter().map(party).collect();
    let tell = move |_| (opening(1, census, 1, &group), model.clone());
    let run = drive(
        Network::new(),
        session,
        liar(others.clone(), Box::new(tell)),
        clients,
    );
    for who in others {
        let aborted = run.error(who);
        assert_eq!(aborted.cause, Abort::TooFew { left: 4, need: 5 });
        assert_eq!(aborted.phase, KEYS);
    }
}

/// SUM-25: in the sum a puppet of the server takes the place of a client of the group.
#[test]
fn a_sum_with_a_puppet_in_the_place_of_a_client_of_the_group() {
    let puppet = PartyId::client(60);
    let mut world = World::begun(job(), 10);
    let (group, session) = (world.group_of(VICTIM), world.session());
    let census = world.state.census.as_ref().unwrap().session;
    let model = world.state.model.clone();
    let context = context(&job(), [session, census], 1, &model, &group);
    let rules = Rules {
        round: 1,
        min_clients: 5,
        ..Rules::plain(context, PARAMETERS)
    };
    let others = group[1..].to_vec();
    let party = |who: &PartyId| (*who, world.party(session, *who));
    let mut clients: Vec<_> = others.iter().map(party).collect();
    let input = sum::Input::plain(vec![0u32; PARAMETERS]);
    let party = sum::client(rules, puppet, input, Seed::from_bytes([60; 32])).unwrap();
    let party = Script::new(KEYS, move |io| async move {
        io.run(party).await?;
        Ok(Step::Counted)
    });
    clients.push((puppet, party));
    let tell = move |_| (opening(1, census, 1, &group), model.clone());
    let mut answers = 0;
    let network = Network::new().intercept(|from, _, frame| {
        let is_honest = ![SERVER, puppet].contains(&from);
        answers += usize::from(is_honest && is_data(frame) && frame[4] == UNMASK.id);
    });
    let summed = [&others[..], &[puppet]].concat();
    let server = summer(rules, others.clone(), summed, Box::new(tell));
    let run = drive(network, session, server, clients);
    assert_eq!(answers, 0);
    assert!(matches!(
        run.server.unwrap_err().cause,
        Abort::TooFewHolders { .. }
    ));
    for who in others {
        let aborted = run.clients[&who].as_ref().unwrap_err();
        let expected = "this client allows for one set of contributors";
        assert!(aborted.to_string().contains(expected), "{aborted}");
        assert_eq!(aborted.phase, UNMASK);
    }
}

/// The server takes the place of all clients of a group but the victim, under their numbers.
/// Without credentials nothing prevents that: it has the victim's update. Clients with pins refuse
/// the keys (SETUP-10).
#[test]
fn a_server_that_replaces_keys_is_stopped_by_pins_only() {
    for has_pins in [false, true] {
        let mut job = Job {
            pseudo: PseudoLabels::None,
            ..job()
        };
        let ids: Vec<PartyId> = (0..5).map(PartyId::client).collect();
        let identity = |place: u8| Identity::from_seed(&Seed::from_bytes([100 + place; 32]));
        let pins = ids
            .iter()
            .zip(0..)
            .map(|(id, place)| (*id, identity(place).public()));
        let pins = Pins::new(pins).unwrap();
        let own = |place| Credentials {
            identity: identity(place),
            pins: pins.clone(),
        };
        if has_pins {
            job.propagation.trust = Trust::MaliciousServer;
        }
        let mut world = World::new(job.clone(), 5);
        if has_pins {
            world.credentials = (0..5).map(own).collect();
        }
        world.clients[1] = member(data(24, 6, 1));
        let all = world.all();
        assert!(world.run(Network::new(), &all).server.is_ok());

        let session = world.session();
        let census = world.state.census.as_ref().unwrap().session;
        let model = world.state.model.clone();
        let context = context(&job, [session, census], 1, &model, &all);
        let rules = Rules {
            round: 1,
            min_clients: 5,
            trust: job.propagation.trust,
            ..Rules::plain(context, PARAMETERS)
        };
        let puppet = |who: PartyId| {
            // Identities of its own, and pins to match them.
            let forged = |place: u8| Identity::from_seed(&Seed::from_bytes([200 + place; 32]));
            let publics = ids.iter().zip(0..).map(|(id, place)| {
                let identity = if *id == VICTIM {
                    identity(place)
                } else {
                    forged(place)
                };
                (*id, identity.public())
            });
            let credentials = has_pins.then(|| Credentials {
                identity: forged(who.to_wire() as u8),
                pins: Pins::new(publics).unwrap(),
            });
            let input = sum::Input::plain(vec![0u32; PARAMETERS]).with_credentials(credentials);
            let seed = Seed::from_bytes([60 + who.to_wire() as u8; 32]);
            let party = sum::client(rules, who, input, seed).unwrap();
            Script::new(KEYS, move |io| async move {
                io.run(party).await?;
                Ok(Step::Counted)
            })
        };
        let party = |who: &PartyId| match *who {
            VICTIM => (VICTIM, world.party(session, VICTIM)),
            other => (other, puppet(other)),
        };
        let clients = all.iter().map(party).collect();
        let told = opening(1, census, 1, &all);
        let before = model.clone();
        let tell = move |_| (told.clone(), model.clone());
        let stolen = Arc::<Mutex<Vec<u32>>>::default();
        let found = Arc::clone(&stolen);
        let tell: Tell = Box::new(tell);
        let server = Script::new(MODEL, move |io| async move {
            begin(&io, &[VICTIM], &tell).await;
            let total = io.run(sum::server::<u32>(rules, all)?).await?;
            *found.lock().unwrap() = total.shared.to_vec();
            Err(Abort::Misuse("the sum is open".into()))
        });
        let run = drive(Network::new(), session, server, clients);
        if has_pins {
            assert!(stolen.lock().unwrap().is_empty());
            let expected = "are not signed with the identity pinned";
            assert!(run.error(VICTIM).to_string().contains(expected));
        } else {
            let fixed = Fixed::<u32>::for_range(job.clip.into(), 5).unwrap();
            let stolen = fixed.decode(&stolen.lock().unwrap());
            let after = world.clients[1].client.with_model(|model| model.params());
            let after = after.unwrap();
            for ((stolen, after), before) in stolen.iter().zip(after).zip(before) {
                assert!((stolen - f64::from(after - before)).abs() < 1e-6);
            }
        }
    }
}

/// Jobs whose rounds label by themselves are guarded in the same way.
#[test]
fn reruns_are_refused_with_every_source_of_labels() {
    for pseudo in [
        PseudoLabels::None,
        PseudoLabels::Network,
        PseudoLabels::Local,
        PseudoLabels::Joint,
    ] {
        for sampling in [Sampling::Groups(5), Sampling::Free] {
            let job = Job {
                label_rounds: 0,
                pseudo,
                sampling,
                ..job()
            };
            let mut world = World::begun(job, 5);
            let (all, theta) = (world.all(), world.state.clone());
            assert!(world.run(Network::new(), &all).server.is_ok());
            world.state = theta;
            let members = match sampling {
                Sampling::Groups(_) => &all[..],
                Sampling::Free => &all[1..],
            };
            assert_refuse(&world.run(Network::new(), members), members, OVER);
        }
    }
}
