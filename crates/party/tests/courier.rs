//! Couriers: parties whose frames travel in bundles.
#![allow(missing_docs, clippy::unwrap_used)]

use undertone_party::courier::{self, Entry};
use undertone_party::{
    Abort, Courier, CourierError, Io, Limits, PartyId, Phase, Script, SessionId, Status,
};

const SESSION: SessionId = SessionId([5; 32]);
const SERVER: PartyId = PartyId::SERVER;
const FIRST: Phase = Phase {
    id: 1,
    name: "first",
};
const SECOND: Phase = Phase {
    id: 2,
    name: "second",
};
const ME: PartyId = PartyId::client(0);

type Counts = Script<'static, Vec<u8>>;

/// Collects `count` messages of the server, then greets it in the second phase.
fn collector(count: usize) -> Counts {
    Script::new(FIRST, move |io: Io| async move {
        let mut all = Vec::new();
        for _ in 0..count {
            all.extend_from_slice(&io.require(SERVER).await?);
        }
        io.phase(SECOND).await;
        io.send(SERVER, b"thanks");
        Ok(all)
    })
}

fn sender(count: u8, len: usize) -> Script<'static, ()> {
    Script::new(FIRST, move |io: Io| async move {
        for number in 0..count {
            io.send(ME, vec![number; len]);
            io.pause().await;
        }
        io.phase(SECOND).await;
        io.require(ME).await.map(drop)
    })
}

fn courier<T: Send>(me: PartyId, party: Script<'static, T>) -> Courier<Script<'static, T>> {
    Courier::new(me, SESSION, Limits::default(), party)
}

fn frames(count: u8, len: usize) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    let mut sender = courier(SERVER, sender(count, len));
    let status = sender.poll(usize::MAX, |_, frame| frames.push(frame));
    assert_eq!(status, Ok(Status::Waiting));
    frames
}

#[test]
fn more_frames_than_an_endpoint_keeps_come_at_once_and_in_any_order() {
    for reversed in [false, true] {
        let mut client = courier(ME, collector(200));
        let mut frames = frames(200, 1);
        if reversed {
            frames.reverse();
        }
        for frame in frames {
            client.push(SERVER, frame).unwrap();
        }
        let mut sent = 0;
        let status = client.poll(usize::MAX, |_, _| sent += 1);
        assert_eq!((status, sent), (Ok(Status::Done), 1));
        let due: Vec<u8> = (0..200).collect();
        assert_eq!(client.output(), Some(due));
        assert_eq!(client.output(), None);
    }
}

// FRAME-13.
#[test]
fn what_comes_before_its_turn_is_bounded() {
    let mut client = courier(ME, collector(100)).keeping(1000);
    let mut late = frames(100, 50);
    let first = late.remove(0);
    let refused = late
        .into_iter()
        .find_map(|frame| client.push(SERVER, frame).err());
    assert!(
        matches!(
            refused,
            Some(CourierError::TooMuch {
                from: SERVER,
                most: 1000,
                ..
            })
        ),
        "{refused:?}"
    );
    // The party goes on with what it has.
    client.push(SERVER, first).unwrap();
    assert_eq!(client.poll(usize::MAX, |_, _| ()), Ok(Status::Waiting));
}

#[test]
fn a_poll_stops_near_the_bytes_it_may_give() {
    let mut server = courier(SERVER, sender(10, 1000));
    let mut sent = 0;
    assert_eq!(server.poll(2500, |_, _| sent += 1), Ok(Status::Sending));
    assert_eq!(sent, 3);
    assert_eq!(
        server.poll(usize::MAX, |_, _| sent += 1),
        Ok(Status::Waiting)
    );
    assert_eq!(sent, 10);
}

#[test]
fn a_courier_is_held_before_a_phase_until_it_is_released() {
    let mut client = courier(ME, collector(1)).hold_at(SECOND);
    assert_eq!(client.poll(usize::MAX, |_, _| ()), Ok(Status::Waiting));
    for frame in frames(1, 4) {
        client.push(SERVER, frame).unwrap();
    }
    let mut sent = 0;
    for _ in 0..3 {
        assert_eq!(client.poll(usize::MAX, |_, _| sent += 1), Ok(Status::Held));
    }
    assert_eq!((sent, client.phase()), (0, FIRST));
    client.release();
    assert_eq!(client.poll(usize::MAX, |_, _| sent += 1), Ok(Status::Done));
    assert_eq!((sent, client.phase()), (1, SECOND));
}

#[test]
fn dropped_peers_and_aborts_are_told() {
    let mut client = courier(ME, collector(1));
    let mut bundle = Vec::new();
    courier::append(&mut bundle, Entry::Gone(SERVER));
    let error = client.exchange(&bundle, &mut Vec::new()).unwrap_err();
    let CourierError::Aborted(aborted) = &error else {
        panic!("{error:?}");
    };
    assert_eq!(aborted.cause, Abort::Left { who: SERVER });
    assert_eq!(client.exchange(&[], &mut Vec::new()), Err(error));
    let mut client = courier(ME, collector(1));
    client.abandon(Abort::Misuse("enough".into()));
    assert!(client.poll(usize::MAX, |_, _| ()).is_err());
    assert!(!client.is_done() && client.output().is_none());
}

// FRAME-12.
#[test]
fn bundles_that_are_cut_short_are_refused_before_anything_is_taken() {
    let mut bundle = Vec::new();
    for frame in frames(2, 8) {
        courier::append(&mut bundle, Entry::Frame(SERVER, &frame));
    }
    assert_eq!(courier::entries(&bundle).unwrap().len(), 2);
    for len in 1..bundle.len() {
        let whole = len % (8 + 64 + 8) == 0;
        assert_eq!(courier::entries(&bundle[..len]).is_ok(), whole, "{len}");
        let mut client = courier(ME, collector(2));
        let taken = client.exchange(&bundle[..len], &mut Vec::new());
        assert_eq!(taken.is_ok(), whole);
    }
    // A length that no bundle has: nothing is allocated for it.
    let long = [&[0xff; 8][..], &[1; 8]].concat();
    assert!(courier::entries(&long).is_err());
}

#[test]
fn a_frame_for_somebody_else_is_refused_and_the_party_goes_on() {
    let mut client = courier(ME, collector(1));
    let frame = frames(1, 1).remove(0);
    let error = client.push(PartyId::client(3), frame.clone()).unwrap_err();
    assert!(matches!(error, CourierError::Frame { .. }), "{error:?}");
    client.push(SERVER, frame).unwrap();
    assert_eq!(client.poll(usize::MAX, |_, _| ()), Ok(Status::Done));
    // What comes later does not matter.
    assert_eq!(client.push(SERVER, vec![1, 2, 3]), Ok(()));
}
