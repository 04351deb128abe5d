//! Callers that are not on the roster, or have not proved their names yet.

use super::*;

/// NET-6
pub(super) async fn a_server_that_somebody_else_certified_is_not_talked_to<K: Kit>(kit: K) {
    let world = World::start(&kit).await;
    let other = trial(&["localhost".to_owned()], &["x".to_owned()]).unwrap();
    let config = client::Config {
        authorities: other.authority,
        ..world.client(0)
    };
    let error = kit.join(config, 0).await.unwrap_err();
    assert!(matches!(error, JoinError::Untrusted { .. }), "{error}");
    let misnamed = client::Config {
        server_name: Some("elsewhere.example".into()),
        ..world.client(0)
    };
    let error = kit.join(misnamed, 0).await.unwrap_err();
    assert!(matches!(error, JoinError::Untrusted { .. }), "{error}");
    let honest = world.honest(0..kit.clients());
    world.unharmed(honest, 1).await;
}

/// NET-5
pub(super) async fn who_cannot_prove_to_be_on_the_roster_is_refused<K: Kit>(kit: K) {
    let world = World::start(&kit).await;
    let stranger = Some(Identity::from_seed(&Seed::from_bytes([99; 32])));
    for name in ["c0", "nobody"] {
        let config = client::Config {
            identity: stranger.clone(),
            name: name.into(),
            roster: None,
            ..world.client(0)
        };
        let error = kit.join(config, 0).await.unwrap_err();
        assert!(matches!(error, JoinError::Refused(_)), "{error}");
    }
    // The certificate of another client, signed by the right authority.
    let theirs = &world.trial.clients[1];
    let config = client::Config {
        identity: None,
        certificate: Some(Certificate::from_pem(&theirs.certificate, &theirs.key).unwrap()),
        ..world.client(0)
    };
    let error = kit.join(config, 0).await.unwrap_err();
    assert!(matches!(error, JoinError::Refused(_)), "{error}");
    assert_eq!(world.refused(), (0, 3, 0));
    let honest = world.honest(0..kit.clients());
    world.unharmed(honest, 1).await;
}

pub(super) async fn a_certificate_of_ones_own_is_enough<K: Kit>(kit: K) {
    let world = World::start(&kit).await;
    let own = &world.trial.clients[0];
    let config = client::Config {
        identity: None,
        roster: None,
        certificate: Some(Certificate::from_pem(&own.certificate, &own.key).unwrap()),
        ..world.client(0)
    };
    let mut raw = Raw::connect(&config).await;
    raw.challenge().await;
    raw.say(ClientSays::Hello(Hello {
        name: config.name.clone(),
        ..Hello::default()
    }));
    assert!(matches!(raw.hear().await, Some(ServerSays::Offer(_))));
}

/// NET-5
pub(super) async fn a_hello_is_good_for_one_connection<K: Kit>(kit: K) {
    let world = World::start(&kit).await;
    let config = world.client(0);
    let mut first = Raw::connect(&config).await;
    let nonce = first.challenge().await;
    let hello = first.hello(&config, nonce);
    let mut second = Raw::connect(&config).await;
    let other = second.challenge().await;
    assert_ne!(nonce, other);
    second.say(ClientSays::Hello(hello));
    second.is_refused().await;
    // Even with the right nonce: the signature covers the connection's secret.
    let mut third = Raw::connect(&config).await;
    let nonce = third.challenge().await;
    third.say(ClientSays::Hello(first.hello(&config, nonce)));
    third.is_refused().await;
    assert_eq!(world.refused(), (0, 2, 0));
    let honest = world.honest(0..kit.clients());
    world.unharmed(honest, 1).await;
}

/// NET-1, NET-2
pub(super) async fn a_flood_of_connections_keeps_nobody_out<K: Kit>(kit: K) {
    let world = World::start(&kit).await;
    let address = world.address;
    let flood = tokio::spawn(async move {
        let mut open = Vec::new();
        for round in 0..200 {
            let mut stream = TcpStream::connect(address).await.unwrap();
            if round % 2 == 0 {
                let _ = stream.write_all(b"GET / HTTP/1.1\r\n\r\n").await;
            }
            open.push(stream);
        }
        open
    });
    // The last client joins after the flood, so the job lasts longer than the flood.
    let mut honest = world.honest(0..kit.clients() - 1);
    let flood = flood.await.unwrap();
    honest.extend(world.honest(kit.clients() - 1..kit.clients()));
    for mut stream in flood {
        // The server cuts the connection: it ends after at most the bytes of a TLS alert.
        let mut bytes = Vec::new();
        let read = stream.read_to_end(&mut bytes);
        let _ = tokio::time::timeout(LONG, read).await.unwrap();
        assert!(bytes.len() < 100);
    }
    assert!(world.refused().0 >= 100, "{:?}", world.refused());
    world.unharmed(honest, 1).await;
}

/// NET-4
pub(super) async fn who_says_nothing_is_cut_off<K: Kit>(kit: K) {
    let world = World::start(&kit).await;
    let mut raw = Raw::connect(&world.client(0)).await;
    raw.challenge().await;
    assert!(raw.hear().await.is_none());
    world.until(|status| status.refused.hellos == 1).await;
}

/// NET-3: a caller may not send megabytes before it has proved who it is.
pub(super) async fn a_hello_is_short<K: Kit>(kit: K) {
    // The server cuts the connection for its length, not for its time.
    let world = World::patient(&kit, Duration::from_secs(86_400)).await;
    let config = world.client(0);
    let mut raw = Raw::connect(&config).await;
    raw.challenge().await;
    raw.say(ClientSays::Hello(Hello {
        name: "x".repeat(1 << 20),
        ..Hello::default()
    }));
    assert!(raw.hear().await.is_none());
    let honest = world.honest(0..kit.clients());
    world.unharmed(honest, 1).await;
}

/// A client that declines is disconnected. It may come back and accept.
pub(super) async fn who_declines_is_let_go<K: Kit>(kit: K) {
    let world = World::start(&kit).await;
    let config = world.client(0);
    let mut raw = Raw::connect(&config).await;
    let nonce = raw.challenge().await;
    raw.say(ClientSays::Hello(raw.hello(&config, nonce)));
    assert!(matches!(raw.hear().await, Some(ServerSays::Offer(_))));
    raw.say(ClientSays::Answer(Answer {
        declined: "no".into(),
        ..Answer::default()
    }));
    assert!(raw.hear().await.is_none());
    let honest = world.honest(0..kit.clients());
    world.unharmed(honest, 1).await;
}

/// NET-34, NET-19: an answer whose digest of columns is no digest does not count.
pub(super) async fn a_digest_of_columns_has_its_length<K: Kit>(kit: K) {
    let world = World::start(&kit).await;
    let config = world.client(0);
    let mut raw = Raw::connect(&config).await;
    let nonce = raw.challenge().await;
    raw.say(ClientSays::Hello(raw.hello(&config, nonce)));
    assert!(matches!(raw.hear().await, Some(ServerSays::Offer(_))));
    for length in [1, 31, 33, 1 << 20].into_iter().cycle().take(150) {
        raw.say(ClientSays::Answer(Answer {
            columns: vec![7; length].into(),
            ..Answer::default()
        }));
    }
    while raw.hear().await.is_some() {}
    assert_eq!(world.refused().2, 1);
    let honest = world.honest(0..kit.clients());
    world.unharmed(honest, 1).await;
}
