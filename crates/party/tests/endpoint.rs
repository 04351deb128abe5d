//! What an endpoint accepts, buffers and refuses, and what an abort leaves.
#![allow(missing_docs, clippy::unwrap_used)]

use undertone_party::frame::{HEADER_LEN, Kind};
use undertone_party::{
    Abort, Endpoint, FrameError, Header, Inbox, Limits, Need, Network, Node, Outbox, Party,
    PartyId, Phase, Poll, Push, SessionId, Step,
};

const PHASE: Phase = Phase { id: 7, name: "sum" };
const SESSION: SessionId = SessionId([1; 32]);
const LIMITS: Limits = Limits {
    max_payload: 8,
    max_early_frames: 4,
    max_early_bytes: 1000,
};
const SERVER: PartyId = PartyId::SERVER;

/// Adds up `left` one-byte messages of one peer and sends the sum back.
struct Sum {
    peer: PartyId,
    left: usize,
    sum: u8,
    started: bool,
}

impl Sum {
    fn of(peer: PartyId, left: usize) -> Self {
        Self {
            peer,
            left,
            sum: 0,
            started: false,
        }
    }
}

impl Party for Sum {
    type Output = u8;

    fn phase(&self) -> Phase {
        PHASE
    }

    fn step(mut self, mut inbox: Inbox) -> Result<Step<Self>, Abort> {
        if self.started {
            let message = inbox.require(self.peer)?;
            let [byte] = message[..] else {
                let what = format!("{} bytes", message.len());
                return Err(Abort::Malformed {
                    from: self.peer,
                    what,
                });
            };
            self.sum = self.sum.wrapping_add(byte);
            self.left -= 1;
        }
        self.started = true;
        Ok(if self.left == 0 {
            Step::Done {
                out: Outbox::to(self.peer, vec![self.sum]),
                output: self.sum,
            }
        } else {
            Step::Continue {
                out: Outbox::new(),
                need: vec![self.peer].into(),
                next: self,
            }
        })
    }
}

/// Sends numbers, then receives one message.
struct Count {
    next: u8,
    end: u8,
}

impl Party for Count {
    type Output = u8;

    fn phase(&self) -> Phase {
        PHASE
    }

    fn step(mut self, mut inbox: Inbox) -> Result<Step<Self>, Abort> {
        if self.next == self.end {
            let output = inbox.require(SERVER)?[0];
            return Ok(Step::Done {
                out: Outbox::new(),
                output,
            });
        }
        let out = Outbox::to(SERVER, vec![self.next]);
        self.next += 1;
        let need = if self.next == self.end {
            vec![SERVER]
        } else {
            Vec::new()
        };
        Ok(Step::Continue {
            out,
            need: need.into(),
            next: self,
        })
    }
}

fn header(seq: u32) -> Header {
    Header {
        kind: Kind::Message,
        phase: PHASE.id,
        from: PartyId::client(0),
        to: SERVER,
        seq,
        depth: 1,
        len: 0,
        session: SESSION,
    }
}

fn endpoint(messages: usize) -> Endpoint<Sum> {
    let mut endpoint = Endpoint::new(
        SERVER,
        SESSION,
        LIMITS,
        Sum::of(PartyId::client(0), messages),
    );
    assert!(matches!(endpoint.poll(), Ok(Poll::Busy)));
    assert!(matches!(endpoint.poll(), Ok(Poll::Wait)));
    endpoint
}

fn push(endpoint: &mut Endpoint<Sum>, frame: Vec<u8>) -> Result<Push, FrameError> {
    endpoint.push(PartyId::client(0), frame)
}

#[test]
fn frames_in_any_order_are_consumed_in_theirs() {
    let mut endpoint = endpoint(4);
    for seq in [2, 0, 3, 1] {
        assert_eq!(
            push(&mut endpoint, header(seq).frame(&[1 << seq])),
            Ok(Push::Accepted)
        );
    }
    for _ in 0..4 {
        assert!(matches!(endpoint.poll(), Ok(Poll::Busy)));
    }
    let Ok(Poll::Send(to, frame)) = endpoint.poll() else {
        panic!("the sum is due");
    };
    assert_eq!((to, &frame[HEADER_LEN..]), (PartyId::client(0), &[15][..]));
    let (output, ledger) = endpoint.finish().unwrap();
    let cost = ledger.phase(PHASE).unwrap();
    let len = HEADER_LEN as u64 + 1;
    assert_eq!(
        (output, cost.bytes_received, cost.bytes_sent),
        (15, 4 * len, len)
    );
    assert_eq!((cost.messages, cost.rounds()), (1, 2));
}

/// FRAME-8
#[test]
fn frames_too_early_are_handed_back() {
    let mut endpoint = endpoint(6);
    for seq in 1..4 {
        assert_eq!(
            push(&mut endpoint, header(seq).frame(&[0])),
            Ok(Push::Accepted)
        );
    }
    let early = header(4).frame(&[0]);
    assert_eq!(
        push(&mut endpoint, early.clone()),
        Ok(Push::Full(early.clone()))
    );
    assert!(matches!(endpoint.poll(), Ok(Poll::Wait)), "frame 0 is due");
    assert_eq!(
        push(&mut endpoint, header(0).frame(&[0])),
        Ok(Push::Accepted)
    );
    assert!(matches!(endpoint.poll(), Ok(Poll::Busy)));
    assert_eq!(push(&mut endpoint, early), Ok(Push::Accepted));
}

/// FRAME-8
#[test]
fn early_bytes_are_bounded_but_the_next_frame_finds_room() {
    // Frames of 72 bytes. The payloads of 8 bytes count while they are kept.
    let limits = Limits {
        max_early_bytes: 80,
        ..LIMITS
    };
    let mut endpoint = Endpoint::new(SERVER, SESSION, limits, Sum::of(PartyId::client(0), 4));
    assert!(matches!(endpoint.poll(), Ok(Poll::Busy)));
    let frame = |seq| header(seq).frame(&[0; 8]);
    for seq in [1, 2] {
        assert_eq!(push(&mut endpoint, frame(seq)), Ok(Push::Accepted));
    }
    assert_eq!(push(&mut endpoint, frame(3)), Ok(Push::Full(frame(3))));
    assert_eq!(push(&mut endpoint, frame(0)), Ok(Push::Accepted));
}

/// A consumed frame makes room for another one.
#[test]
fn early_bytes_are_given_back() {
    let limits = Limits {
        max_early_frames: 100,
        // The whole frame must fit. Then its payload counts.
        max_early_bytes: HEADER_LEN + 3,
        ..LIMITS
    };
    let sum = Sum::of(PartyId::client(0), 100);
    let mut endpoint = Endpoint::new(SERVER, SESSION, limits, sum);
    for first in [0, 4, 8, 12] {
        for seq in first + 1..first + 4 {
            let pushed = push(&mut endpoint, header(seq).frame(&[0]));
            assert_eq!(pushed, Ok(Push::Accepted), "{seq}");
        }
        let fifth = header(first + 4).frame(&[0]);
        assert_eq!(push(&mut endpoint, fifth.clone()), Ok(Push::Full(fifth)));
        let pushed = push(&mut endpoint, header(first).frame(&[0]));
        assert_eq!(pushed, Ok(Push::Accepted));
        while matches!(endpoint.poll(), Ok(Poll::Busy)) {}
    }
    assert!(endpoint.aborted().is_none());
}

/// Sends one message of this many bytes.
struct Long(usize);

impl Party for Long {
    type Output = ();

    fn phase(&self) -> Phase {
        PHASE
    }

    fn step(self, _: Inbox) -> Result<Step<Self>, Abort> {
        Ok(Step::Done {
            out: Outbox::to(SERVER, vec![0; self.0]),
            output: (),
        })
    }
}

#[test]
fn no_message_is_longer_than_peers_take() {
    for len in [LIMITS.max_payload, LIMITS.max_payload + 1] {
        let mut endpoint = Endpoint::new(PartyId::client(0), SESSION, LIMITS, Long(len));
        while matches!(endpoint.poll(), Ok(Poll::Busy | Poll::Send(..))) {}
        let cause = endpoint.aborted().map(|aborted| &aborted.cause);
        if len > LIMITS.max_payload {
            assert!(matches!(cause, Some(Abort::Internal(_))), "{cause:?}")
        } else {
            assert_eq!(cause, None)
        }
    }
}

/// FRAME-1, FRAME-2, FRAME-3, FRAME-5, FRAME-6, FRAME-7
#[test]
fn bad_frames_are_refused_and_harmless() {
    let mut endpoint = endpoint(1);
    let good = header(0).frame(&[9]);
    let with = |at: usize, byte: u8| {
        let mut frame = good.clone();
        frame[at] = byte;
        frame
    };
    let refused = |frame: Vec<u8>, endpoint: &mut Endpoint<Sum>| push(endpoint, frame).unwrap_err();
    for len in 0..HEADER_LEN {
        assert!(matches!(
            refused(good[..len].to_vec(), &mut endpoint),
            FrameError::Header(_)
        ));
    }
    for at in [0, 1, 2, 3, 5] {
        assert_eq!(
            refused(with(at, 0xee), &mut endpoint),
            FrameError::Unknown,
            "byte {at}"
        );
    }
    assert_eq!(refused(with(40, 0), &mut endpoint), FrameError::Session);
    for at in [8, 12] {
        assert!(matches!(
            refused(with(at, 1), &mut endpoint),
            FrameError::Address { .. }
        ));
    }
    let length = FrameError::Length {
        announced: 2,
        have: 1,
    };
    assert_eq!(refused(with(24, 2), &mut endpoint), length);
    let long = FrameError::TooLong { len: 9, max: 8 };
    assert_eq!(refused(header(0).frame(&[0; 9]), &mut endpoint), long);
    assert!(
        endpoint.push(PartyId::client(1), good.clone()).is_err(),
        "by another link"
    );

    assert_eq!(push(&mut endpoint, good.clone()), Ok(Push::Accepted));
    assert_eq!(
        refused(good.clone(), &mut endpoint),
        FrameError::Replayed { seq: 0 }
    );
    assert!(matches!(endpoint.poll(), Ok(Poll::Busy)));
    assert!(matches!(endpoint.poll(), Ok(Poll::Send(..))));
    assert_eq!(endpoint.finish().unwrap().0, 9);
}

/// FRAME-10
#[test]
fn an_abort_names_phase_and_culprit_and_leaves_nothing() {
    let mut endpoint = endpoint(2);
    assert_eq!(
        push(&mut endpoint, header(0).frame(&[1, 2])),
        Ok(Push::Accepted)
    );
    assert!(matches!(endpoint.poll(), Ok(Poll::Busy)));
    let Ok(Poll::Send(to, notice)) = endpoint.poll() else {
        panic!("the peer is told");
    };
    assert_eq!(
        (to, notice.len(), notice[3]),
        (PartyId::client(0), HEADER_LEN, 1)
    );
    let aborted = endpoint.poll().unwrap_err();
    assert_eq!(
        (aborted.phase, aborted.cause.culprit()),
        (PHASE, Some(PartyId::client(0)))
    );
    assert_eq!(
        aborted.to_string(),
        "server aborted in phase sum: client 0 sent a malformed message: 2 bytes"
    );
    assert_eq!(endpoint.finish().unwrap_err(), aborted);
}

#[test]
fn a_peer_that_aborts_or_leaves_is_gone_after_its_last_message() {
    for abort in [false, true] {
        let mut endpoint = endpoint(2);
        if abort {
            let notice = Header {
                kind: Kind::Abort,
                ..header(1)
            };
            assert_eq!(push(&mut endpoint, notice.frame(&[])), Ok(Push::Accepted));
        } else {
            endpoint.gone(PartyId::client(0));
        }
        assert_eq!(
            push(&mut endpoint, header(0).frame(&[5])),
            Ok(Push::Accepted)
        );
        assert!(
            matches!(endpoint.poll(), Ok(Poll::Busy)),
            "the message still counts"
        );
        while !matches!(endpoint.poll(), Err(ref aborted)
            if aborted.cause == Abort::Left { who: PartyId::client(0) })
        {}
    }
}

/// Takes the first message of any of its peers. Notes the sender, or that no message was there.
struct Any {
    peers: Vec<PartyId>,
    busy: bool,
    heard: Vec<Option<PartyId>>,
}

impl Party for Any {
    type Output = Vec<Option<PartyId>>;

    fn phase(&self) -> Phase {
        PHASE
    }

    fn step(mut self, mut inbox: Inbox) -> Result<Step<Self>, Abort> {
        let first = inbox.pop();
        self.heard.push(first.as_ref().map(|(from, _)| *from));
        if let Some((from, None)) = first {
            self.peers.retain(|peer| *peer != from);
        }
        let (out, of) = (Outbox::new(), self.peers.clone());
        Ok(if of.is_empty() {
            Step::Done {
                out,
                output: self.heard,
            }
        } else {
            Step::Continue {
                out,
                need: Need::Any {
                    of,
                    busy: self.busy,
                },
                next: self,
            }
        })
    }
}

#[test]
fn any_of_many_is_heard_as_it_comes() {
    let (a, b) = (PartyId::client(0), PartyId::client(1));
    for busy in [false, true] {
        let peers = vec![a, b];
        let party = Any {
            peers,
            busy,
            heard: Vec::new(),
        };
        let mut endpoint = Endpoint::new(SERVER, SESSION, LIMITS, party);
        assert!(matches!(endpoint.poll(), Ok(Poll::Busy)));
        // No message is there. A busy party continues.
        let idle = endpoint.poll();
        assert_eq!(matches!(idle, Ok(Poll::Wait)), !busy);
        let from_b = Header {
            from: b,
            ..header(0)
        };
        assert_eq!(endpoint.push(b, from_b.frame(&[1])), Ok(Push::Accepted));
        assert!(matches!(endpoint.poll(), Ok(Poll::Busy)));
        endpoint.gone(b);
        assert!(matches!(endpoint.poll(), Ok(Poll::Busy)));
        assert_eq!(endpoint.push(a, header(0).frame(&[1])), Ok(Push::Accepted));
        assert!(matches!(endpoint.poll(), Ok(Poll::Busy)));
        endpoint.gone(a);
        while !matches!(endpoint.poll(), Ok(Poll::Done)) {}
        let (heard, _) = endpoint.finish().unwrap();
        let idle = if busy { 2 } else { 1 };
        assert_eq!(heard[..idle], vec![None; idle]);
        assert_eq!(heard[idle..], [Some(b), Some(b), Some(a), Some(a)]);
    }
}

/// FRAME-11: the party has been told that nothing more comes from the peer.
#[test]
fn nothing_is_heard_after_an_abort() {
    let (a, b) = (PartyId::client(0), PartyId::client(1));
    let party = Any {
        peers: vec![a, b],
        busy: false,
        heard: Vec::new(),
    };
    let mut endpoint = Endpoint::new(SERVER, SESSION, LIMITS, party);
    assert!(matches!(endpoint.poll(), Ok(Poll::Busy)));
    let notice = Header {
        kind: Kind::Abort,
        ..header(0)
    };
    assert_eq!(endpoint.push(a, notice.frame(&[])), Ok(Push::Accepted));
    assert!(matches!(endpoint.poll(), Ok(Poll::Busy)));
    for seq in 1..20 {
        assert_eq!(
            endpoint.push(a, header(seq).frame(&[1])),
            Ok(Push::Accepted)
        );
        assert!(matches!(endpoint.poll(), Ok(Poll::Wait)));
    }
    endpoint.gone(b);
    while !matches!(endpoint.poll(), Ok(Poll::Done)) {}
    assert_eq!(endpoint.finish().unwrap().0, [None, Some(a), Some(b)]);
}

#[test]
fn a_flood_waits_in_the_network() {
    let mut server = Endpoint::new(SERVER, SESSION, LIMITS, Sum::of(PartyId::client(0), 200));
    let mut client = Endpoint::new(
        PartyId::client(0),
        SESSION,
        LIMITS,
        Count { next: 0, end: 200 },
    );
    let mut nodes: [&mut dyn Node; 2] = [&mut client, &mut server];
    Network::new().run(&mut nodes).unwrap();
    let expected = (0..200u8).fold(0, u8::wrapping_add);
    assert_eq!(server.finish().unwrap().0, expected);
    assert_eq!(client.finish().unwrap().0, expected);
}

#[test]
fn a_protocol_that_waits_for_nothing_stalls() {
    let mut server = Endpoint::new(SERVER, SESSION, LIMITS, Sum::of(PartyId::client(0), 3));
    let mut client = Endpoint::new(
        PartyId::client(0),
        SESSION,
        LIMITS,
        Count { next: 0, end: 2 },
    );
    let mut nodes: [&mut dyn Node; 2] = [&mut client, &mut server];
    let stalled = Network::new().run(&mut nodes).unwrap_err();
    assert_eq!(stalled.waiting, [PartyId::client(0), SERVER]);
}

#[test]
fn one_who_sends_much_keeps_nobody_waiting() {
    let (a, b) = (PartyId::client(0), PartyId::client(1));
    let party = Any {
        peers: vec![a, b],
        busy: false,
        heard: Vec::new(),
    };
    let mut endpoint = Endpoint::new(SERVER, SESSION, LIMITS, party);
    assert!(matches!(endpoint.poll(), Ok(Poll::Busy)));
    assert_eq!(endpoint.waits_for(), [a, b]);
    for seq in 0..3 {
        let frame = header(seq).frame(&[1]);
        assert_eq!(endpoint.push(a, frame), Ok(Push::Accepted));
    }
    let from_b = Header {
        from: b,
        ..header(0)
    };
    assert_eq!(endpoint.push(b, from_b.frame(&[1])), Ok(Push::Accepted));
    assert!(endpoint.waits_for().is_empty());
    for _ in 0..4 {
        assert!(matches!(endpoint.poll(), Ok(Poll::Busy)));
    }
    endpoint.gone(a);
    endpoint.gone(b);
    while !matches!(endpoint.poll(), Ok(Poll::Done)) {}
    let heard = endpoint.finish().unwrap().0;
    assert_eq!(
        heard[..5],
        [None, Some(a), Some(b), Some(a), Some(a)],
        "{heard:?}"
    );
}

#[test]
fn an_abandoned_run_tells_its_peers() {
    let a = PartyId::client(0);
    let mut endpoint = Endpoint::new(SERVER, SESSION, LIMITS, Sum::of(a, 3));
    assert!(matches!(endpoint.poll(), Ok(Poll::Busy)));
    assert_eq!(endpoint.push(a, header(0).frame(&[1])), Ok(Push::Accepted));
    endpoint.abandon(Abort::Left { who: a });
    let Ok(Poll::Send(to, frame)) = endpoint.poll() else {
        panic!("no notice");
    };
    assert_eq!(to, a);
    assert_eq!(Header::parse(&frame, &LIMITS).unwrap().kind, Kind::Abort);
    assert_eq!(endpoint.poll().unwrap_err().cause, Abort::Left { who: a });
    assert!(endpoint.waits_for().is_empty());
}

/// FRAME-1, FRAME-4
#[test]
fn headers_are_read_to_their_bounds() {
    let highest = Header {
        phase: u8::MAX,
        ..header(0)
    };
    let mut frame = highest.frame(&[1]);
    let read = Header::parse(&frame, &LIMITS).unwrap();
    assert_eq!((read.phase, read.len), (u8::MAX, 1));
    // The zero bytes after it.
    for byte in 5..8 {
        frame[byte] = 1;
        assert_eq!(Header::parse(&frame, &LIMITS), Err(FrameError::Unknown));
        frame[byte] = 0;
    }
    let abort = Header {
        kind: Kind::Abort,
        ..header(0)
    };
    assert!(Header::parse(&abort.frame(&[]), &LIMITS).is_ok());
    let loud = Header::parse(&abort.frame(&[1]), &LIMITS);
    assert_eq!(loud, Err(FrameError::LoudAbort));
}

/// Sends the same byte to clients 1 to 3, twice to client 1, and to the server between them.
struct Same(PartyId);

impl Party for Same {
    type Output = ();

    fn phase(&self) -> Phase {
        PHASE
    }

    fn step(self, _: Inbox) -> Result<Step<Self>, Abort> {
        let [one, two, three] = [1, 2, 3].map(PartyId::client);
        let mut out = Outbox::to(one, &[5]);
        if self.0 == SERVER {
            out.push_all(&[one, two, three], &[5]);
        } else {
            out.push_all(&[one, two, SERVER, three, two], &[5]);
        }
        Ok(Step::done(out, ()))
    }
}

/// From client to client a payload that is sent to all counts once, unless the server is between.
/// A message that was sent by itself counts whole.
#[test]
fn a_payload_for_many_clients_counts_once() {
    for (me, frames, payloads) in [(PartyId::client(0), 6, 4), (SERVER, 4, 4)] {
        let mut endpoint = Endpoint::new(me, SESSION, LIMITS, Same(me));
        let mut sent = 0;
        while let Ok(polled @ (Poll::Send(..) | Poll::Busy)) = endpoint.poll() {
            if let Poll::Send(to, frame) = polled {
                assert_eq!(Header::parse(&frame, &LIMITS).unwrap().to, to);
                assert_eq!(frame[HEADER_LEN..], [5]);
                sent += 1;
            }
        }
        let ((), ledger) = endpoint.finish().unwrap();
        let cost = ledger.phase(PHASE).unwrap();
        assert_eq!((sent, cost.messages), (frames, frames));
        assert_eq!(cost.bytes_sent, frames * HEADER_LEN as u64 + payloads);
    }
}
