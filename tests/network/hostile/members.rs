//! Clients of the roster that break the rules.

use super::*;

/// NET-11, NET-14: frames that do not decode or have a wrong header. The session continues without
/// their sender.
pub(super) async fn bad_frames_are_refused<K: Kit>(kit: K) {
    let (world, honest, raw, session) = intruded(&kit).await;
    let good = header(&kit, session, 0);
    let cut = good.frame(vec![0; 40])[..80].to_vec();
    let other = Header {
        session: SessionId([0; 32]),
        ..good
    };
    let posing = Header {
        from: PartyId::client(1),
        ..good
    };
    let nobody = Header {
        to: PartyId::client(77),
        ..good
    };
    let own = Header {
        to: good.from,
        ..good
    };
    let late = Header { phase: 200, ..good };
    let bad = [
        b"UT".to_vec(),
        cut,
        other.frame(vec![1]),
        posing.frame(vec![1]),
        nobody.frame(vec![1]),
        own.frame(vec![1]),
        late.frame(vec![1]),
    ];
    for frame in &bad {
        raw.say(ClientSays::Frame(frame.clone().into()));
    }
    // NET-14: an acknowledgement of a frame that was not sent.
    raw.say(ClientSays::Taken(testing::taken(SERVER, 1000)));
    world
        .until(|status| status.refused.frames > bad.len() as u64)
        .await;
    assert_eq!(world.refused().2, bad.len() as u64 + 1);
    // The sender sends nothing more.
    world.unharmed(honest, 1).await;
}

/// NET-31: headers without the payload that belongs to them. The server refuses each and relays
/// nothing.
pub(super) async fn headers_without_their_payload_are_refused<K: Kit>(kit: K) {
    let world = World::start(&kit).await;
    let honest = world.honest(2..kit.clients());
    let config = world.client(1);
    let witness = tokio::spawn(async move { Raw::enter(&config).await });
    let (raw, session) = Raw::enter(&world.client(0)).await;
    let (mut witness, _) = witness.await.unwrap();
    let to = |to: PartyId, seq: u32, payload: &[u8]| {
        let header = Header {
            to,
            seq,
            ..header(&kit, session, 0)
        };
        header.frame(payload)
    };
    let (one, two) = (PartyId::client(1), PartyId::client(2));
    let alone = |frame: Vec<u8>| ClientSays::Header(frame[..HEADER_LEN].to_vec().into());
    let whole = |frame: Vec<u8>| ClientSays::Frame(frame.into());
    let posing = Header {
        from: one,
        to: two,
        ..header(&kit, session, 0)
    };
    let said = [
        // Nothing came before.
        (alone(to(one, 0, b"keys")), true),
        (whole(to(one, 0, b"keys")), false),
        // Another length, the server, a whole frame, half a header, another sender, oneself.
        (alone(to(two, 0, b"key")), true),
        (alone(to(two, 0, &[0; 1 << 20])), true),
        (alone(to(SERVER, 0, b"keys")), true),
        (ClientSays::Header(to(two, 0, b"keys").into()), true),
        (ClientSays::Header(b"UT".to_vec().into()), true),
        (alone(posing.frame(b"keys")), true),
        (alone(to(PartyId::client(0), 0, b"keys")), true),
        // Its turn has not come, so it is dropped.
        (alone(to(one, 7, b"keys")), false),
        (alone(to(one, 1, b"keys")), false),
        // A frame that is refused leaves nothing.
        (whole(b"UT".to_vec()), true),
        (alone(to(one, 2, b"keys")), true),
    ];
    let bad = said.iter().filter(|(_, bad)| *bad).count() as u64;
    for (what, _) in said {
        raw.say(what);
    }
    world.until(|status| status.refused.frames >= bad).await;
    assert_eq!(world.refused().2, bad);
    let mut taken = Vec::new();
    while taken.len() < 2 {
        if let Some(ServerSays::Frame(frame)) = witness.hear().await
            && frame[8] == 0
        {
            taken.push(frame);
        }
    }
    assert_eq!(taken, [to(one, 0, b"keys"), to(one, 1, b"keys")]);
    let status = world.watch.status();
    let came = 3 * HEADER_LEN as u64 + 4;
    assert_eq!(
        (status.clients[0].bytes_received, status.spared_bytes),
        (came, 4)
    );
    drop((honest, raw));
}

/// NET-31: a stream keeps payloads, a client does not. After a return the first frame is whole.
pub(super) async fn a_payload_is_gone_with_its_stream<K: Kit>(kit: K) {
    let (world, honest, raw, session) = intruded(&kit).await;
    let config = world.client(0);
    let to = |seq: u32| {
        let header = Header {
            to: PartyId::client(1),
            seq,
            ..header(&kit, session, 0)
        };
        header.frame(b"keys")
    };
    raw.say(ClientSays::Frame(to(0).into()));
    world
        .until(|status| status.clients[0].bytes_received > 0)
        .await;
    drop(raw);
    let mut raw = Raw::connect(&config).await;
    let nonce = raw.challenge().await;
    raw.say(ClientSays::Hello(Hello {
        resume: Some(testing::Resume {
            session: session.0.to_vec().into(),
            taken: Vec::new(),
        }),
        ..raw.hello(&config, nonce)
    }));
    while !matches!(raw.hear().await, Some(ServerSays::Resumed(_))) {}
    raw.say(ClientSays::Header(to(1)[..HEADER_LEN].to_vec().into()));
    world.until(|status| status.refused.frames == 1).await;
    assert_eq!(world.watch.status().spared_bytes, 0);
    drop((honest, raw));
}

/// NET-18
pub(super) async fn a_frame_that_is_too_long_ends_the_connection<K: Kit>(kit: K) {
    let (world, honest, mut raw, session) = intruded(&kit).await;
    let long = header(&kit, session, 0).frame(vec![0; 8 << 20]);
    raw.say(ClientSays::Frame(long.into()));
    while raw.hear().await.is_some() {}
    assert_eq!(world.refused().2, 1);
    world.unharmed(honest, 1).await;
}

/// FRAME-9: a message of another phase ends the session. A new one begins without its sender.
pub(super) async fn a_cheater_is_left_out_of_the_next_session<K: Kit>(kit: K) {
    for payload in [vec![0; 7], vec![]] {
        let (world, honest, mut raw, session) = intruded(&kit).await;
        raw.say(early(&kit, session, 0, payload));
        while raw.hear().await.is_some() {}
        world.unharmed(honest, 2).await;
    }
}

/// A message of another phase.
fn early<K: Kit>(kit: &K, session: SessionId, from: usize, payload: Vec<u8>) -> ClientSays {
    let early = Header {
        phase: kit.phases()[2].id,
        ..header(kit, session, from)
    };
    ClientSays::Frame(early.frame(payload).into())
}

/// NET-24, FRAME-10
pub(super) async fn a_session_is_tried_three_times_at_most<K: Kit>(kit: K) {
    // After three sessions two clients are left, enough for a fourth one.
    let world = World::with(&kit, 5, 2, |_| ()).await;
    let mut cheats = Vec::new();
    for index in 0..5 {
        let (config, kit) = (world.client(index), kit.clone());
        // All cheat in every session. Each time one is caught.
        cheats.push(tokio::spawn(async move {
            let (mut raw, first) = Raw::enter(&config).await;
            let (mut session, mut sessions) = (Some(first), 0);
            while let Some(id) = session {
                sessions += 1;
                let hello = header(&kit, id, index).frame(vec![0; 7]);
                raw.say(ClientSays::Frame(hello.into()));
                session = raw.start().await;
            }
            sessions
        }));
    }
    let mut sessions = Vec::new();
    for cheat in cheats {
        sessions.push(cheat.await.unwrap());
    }
    assert_eq!(sessions, [1, 2, 3, 3, 3]);
    let ended = tokio::time::timeout(LONG, world.server).await;
    ended.unwrap().unwrap().unwrap();
    let report = world.reports.lock().unwrap()[0].clone();
    assert_eq!(report.sessions, 3);
    assert!(report.result.contains("client 2"), "{}", report.result);
}

/// NET-10: each session reveals distances to the server once more, so clients count sessions, too.
pub(super) async fn a_client_takes_part_in_few_sessions<K: Kit>(kit: K) {
    let world = World::start(&kit).await;
    let honest: Vec<_> = (1..kit.clients())
        .map(|index| {
            let config = client::Config {
                attempts: 1,
                ..world.client(index)
            };
            kit.spawn(config, index)
        })
        .collect();
    let (raw, session) = Raw::enter(&world.client(0)).await;
    raw.say(early(&kit, session, 0, vec![0; 7]));
    for task in honest {
        let error = tokio::time::timeout(LONG, task).await;
        let error = error.unwrap().unwrap().unwrap_err().to_string();
        assert!(error.contains("starts a session once more"), "{error}");
    }
}

/// Sends 200 frames of 1 MiB to `to` at once.
fn flood<K: Kit>(kit: &K, raw: &Raw, session: SessionId, to: PartyId) {
    for seq in 0..200 {
        let header = Header {
            to,
            seq,
            ..header(kit, session, 0)
        };
        raw.say(ClientSays::Frame(header.frame(vec![0; 1 << 20]).into()));
    }
}

/// NET-13: the receiver takes a few frames. No window lets all of them through.
pub(super) async fn who_sends_more_than_the_window_is_refused<K: Kit>(kit: K) {
    let (world, honest, raw, session) = intruded(&kit).await;
    flood(&kit, &raw, session, PartyId::client(1));
    world.until(|status| status.refused.frames > 0).await;
    drop(raw);
    world.unharmed(honest, 1).await;
}

/// NET-19: the server refuses a hundred frames, then ends the connection.
pub(super) async fn who_sends_too_many_bad_frames_is_cut_off<K: Kit>(kit: K) {
    let (world, honest, mut raw, _) = intruded(&kit).await;
    for _ in 0..150 {
        raw.say(ClientSays::Frame(b"UT".to_vec().into()));
    }
    while raw.hear().await.is_some() {}
    // One for each frame, and one for the connection.
    assert_eq!(world.refused().2, 101 + 1);
    world.unharmed(honest, 1).await;
}

/// NET-19, NET-21: the server refuses every hello but the first, and every answer after one that
/// accepts.
pub(super) async fn a_client_that_repeats_its_hello_or_answer_is_cut_off<K: Kit>(kit: K) {
    for again in [
        ClientSays::Hello(Hello::default()),
        ClientSays::Answer(Answer::default()),
    ] {
        let (world, honest, mut raw, _) = intruded(&kit).await;
        for _ in 0..150 {
            raw.say(again.clone());
        }
        while raw.hear().await.is_some() {}
        assert_eq!(world.refused().2, 1);
        world.unharmed(honest, 1).await;
    }
}

/// NET-13, FRAME-10: the server may first refuse a frame's content or the excess of frames. Both
/// lead to a new session.
pub(super) async fn who_floods_the_server_is_left_out_of_the_next_session<K: Kit>(kit: K) {
    let (world, honest, mut raw, session) = intruded(&kit).await;
    flood(&kit, &raw, session, SERVER);
    while raw.hear().await.is_some() {}
    world.unharmed(honest, 2).await;
}

/// NET-23: a client that stands still and names all others is expelled, and no other client is.
pub(super) async fn lies_about_whom_one_waits_for_are_of_no_use<K: Kit>(kit: K) {
    let (world, honest, raw, _) = intruded(&kit).await;
    raw.say(ClientSays::Progress(testing::Progress {
        phase: 1,
        waits_for: vec![1, 2, 3],
    }));
    world.unharmed(honest, 1).await;
}

/// NET-12, NET-15, NET-23: empty acknowledgements and repeated frames are no progress. The server
/// does not relay them.
pub(super) async fn worthless_traffic_does_not_hold_up_a_deadline<K: Kit>(kit: K) {
    let (world, honest, mut raw, session) = intruded(&kit).await;
    let frame = Header {
        to: PartyId::client(1),
        ..header(&kit, session, 0)
    };
    let frame: tonic::codegen::Bytes = frame.frame(vec![1]).into();
    let sender = raw.sender.clone();
    let nuisance = tokio::spawn(async move {
        while !sender.is_closed() {
            for what in [
                ClientSays::Taken(testing::taken(PartyId::client(1), 0)),
                ClientSays::Taken(testing::taken(SERVER, 0)),
                ClientSays::Frame(frame.clone()),
            ] {
                let _ = sender.send(testing::from_client(what));
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    let mut answers = 0;
    while raw.hear().await.is_some() {
        answers += 1;
    }
    nuisance.abort();
    assert!(answers < 20, "{answers} answers");
    world.unharmed(honest, 1).await;
}

/// NET-22: a client accuses another. The next session would begin without both.
pub(super) async fn an_accusation_costs_both<K: Kit>(kit: K) {
    let (world, honest, mut raw, _) = intruded(&kit).await;
    raw.say(ClientSays::Goodbye(testing::Goodbye {
        accuses: Some(1),
        ..testing::Goodbye::default()
    }));
    while raw.hear().await.is_some() {}
    let mut done = 0;
    for task in honest {
        let joined = tokio::time::timeout(LONG, task).await;
        done += usize::from(joined.unwrap().unwrap().is_ok());
    }
    // Two clients are left, fewer than the job needs. It ends, and all are told.
    assert_eq!(done, 0);
    let ended = tokio::time::timeout(LONG, world.server).await;
    ended.unwrap().unwrap().unwrap();
    let report = world.reports.lock().unwrap()[0].clone();
    assert!(
        report
            .result
            .contains("client 0 (client-0) or client 1 (client-1)"),
        "{}",
        report.result
    );
}

/// NET-20, NET-22: the accusation of a client that has left the session is ignored.
pub(super) async fn who_is_out_accuses_nobody<K: Kit>(kit: K) {
    let (world, honest, raw, session) = intruded(&kit).await;
    raw.say(ClientSays::Ready(Ready {
        session: session.0.to_vec().into(),
        declined: "no".into(),
    }));
    raw.say(ClientSays::Ready(Ready {
        session: session.0.to_vec().into(),
        declined: String::new(),
    }));
    raw.say(ClientSays::Goodbye(testing::Goodbye {
        accuses: Some(1),
        ..testing::Goodbye::default()
    }));
    world.unharmed(honest, 1).await;
}

/// NET-30: a client declines the session. It stays connected. The server's status and the messages
/// to other clients say why.
pub(super) async fn who_declines_a_session_is_named_to_the_others<K: Kit>(kit: K) {
    let world = World::start(&kit).await;
    let honest = world.honest(2..kit.clients());
    let config = world.client(1);
    let witness = tokio::spawn(async move { Raw::enter(&config).await });
    let (raw, session) = Raw::enter(&world.client(0)).await;
    raw.say(ClientSays::Ready(Ready {
        session: session.0.to_vec().into(),
        declined: "it is \u{1b}[31mtired\n".into(),
    }));
    let (mut witness, _) = witness.await.unwrap();
    let why = loop {
        match witness.hear().await.unwrap() {
            ServerSays::Gone(gone) if gone.peer == 0 => break gone.why,
            _ => {}
        }
    };
    assert_eq!(why, "declined the session: it is  [31mtired ");
    let status = world.watch.status();
    assert_eq!(status.clients[0].why, Some(why));
    drop((honest, raw));
}

/// A client that says at once that it is through. The others continue without it.
pub(super) async fn who_claims_to_be_through_is_not_waited_for<K: Kit>(kit: K) {
    let (world, honest, raw, session) = intruded(&kit).await;
    raw.say(ClientSays::Through(testing::Through {
        session: session.0.to_vec().into(),
    }));
    world.unharmed(honest, 1).await;
}

/// Sends every message three times, and in every phase its first messages again.
struct Parrot {
    sender: UnboundedSender<FromClient>,
    said: Vec<FromClient>,
    phase: Option<Phase>,
}

impl Out for Parrot {
    fn put(&mut self, to: PartyId, item: Item) {
        let what = testing::from_client(match item {
            Item::Frame(frame) => ClientSays::Frame(frame),
            Item::Taken(next) => ClientSays::Taken(testing::taken(to, next)),
        });
        for _ in 0..3 {
            let _ = self.sender.send(what.clone());
        }
        self.said.push(what);
    }

    fn phase(&mut self, phase: Phase) {
        if self.phase.replace(phase) != Some(phase) {
            for what in self.said.iter().take(20) {
                let _ = self.sender.send(what.clone());
            }
        }
    }
}

/// NET-12, NET-15
pub(super) async fn what_is_replayed_at_every_phase_counts_once<K: Kit>(kit: K) {
    let (world, honest, mut raw, session) = intruded(&kit).await;
    let me = PartyId::client(0);
    let credentials = Credentials {
        identity: world.client(0).identity.unwrap(),
        pins: world.trial.roster.pins().clone(),
    };
    let at = SessionContext {
        credentials: Some(credentials),
        ..SessionContext::new(session, me, Seed::from_bytes([1; 32]))
    };
    let party = kit.party(0, at);
    let endpoint = Endpoint::new(me, session, Limits::default(), party);
    let links = Links::new(me, session, 1 << 20, Limits::default());
    let (events, inbox) = std::sync::mpsc::channel();
    let sender = raw.sender.clone();
    let parrot = std::thread::spawn(move || {
        let mut line = Parrot {
            sender,
            said: Vec::new(),
            phase: None,
        };
        let linger = Duration::from_secs(5);
        drive(endpoint, links, linger, inbox, &mut line).is_ok()
    });
    while !parrot.is_finished() {
        let heard = tokio::time::timeout(Duration::from_millis(100), raw.stream.message()).await;
        let event = match heard
            .ok()
            .and_then(Result::ok)
            .flatten()
            .and_then(|m| m.what)
        {
            Some(ServerSays::Frame(frame)) => {
                let from = Header::parse(&frame, &Limits::default()).unwrap().from;
                Event::Frame(from, frame)
            }
            Some(ServerSays::Taken(taken)) => {
                Event::Taken(PartyId::from_wire(taken.peer), taken.next)
            }
            _ => continue,
        };
        let _ = events.send(event);
    }
    assert!(parrot.join().unwrap());
    raw.say(ClientSays::Goodbye(testing::Goodbye {
        finished: true,
        ..testing::Goodbye::default()
    }));
    let reports = Arc::clone(&world.reports);
    world.unharmed(honest, 1).await;
    let reports = reports.lock().unwrap();
    assert_eq!(reports[0].results["contributors"], kit.clients());
}
