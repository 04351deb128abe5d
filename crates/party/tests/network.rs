//! The network in memory: order of delivery, tampering, dropped clients, the ledger.
#![allow(missing_docs, clippy::unwrap_used)]

use std::cell::{Cell, RefCell};

use undertone_party::frame::HEADER_LEN;
use undertone_party::{
    Abort, Aborted, Endpoint, FrameError, Inbox, Ledger, Limits, Network, Node, Outbox, Party,
    PartyId, Payload, Phase, SessionId, Stalled, Step,
};

const SERVER: PartyId = PartyId::SERVER;
const SESSION: SessionId = SessionId([4; 32]);
const ASKING: Phase = Phase {
    id: 2,
    name: "asking",
};

/// The server waits for `rounds` messages of each client, adds up their bytes and sends each the
/// sum. It continues without dropped clients. A client sends `burst` messages of byte 1 in a step.
enum Adder {
    Server {
        clients: Vec<PartyId>,
        left: usize,
        sum: u64,
    },
    Client {
        left: usize,
        burst: usize,
        started: bool,
    },
}

impl Party for Adder {
    type Output = u64;

    fn phase(&self) -> Phase {
        ASKING
    }

    fn step(self, mut inbox: Inbox) -> Result<Step<Self>, Abort> {
        match self {
            Self::Server {
                mut clients,
                mut left,
                mut sum,
            } => {
                let mut gone = Vec::new();
                if !inbox.is_empty() {
                    for id in &clients {
                        match inbox.take(*id)? {
                            Some(message) => sum += u64::from(message[0]),
                            None => gone.push(*id),
                        }
                    }
                    left -= 1;
                }
                clients.retain(|id| !gone.contains(id));
                let mut out = Outbox::new();
                if left == 0 || clients.is_empty() {
                    out.extend(clients.iter().map(|id| (*id, vec![sum as u8])));
                    return Ok(Step::Done { out, output: sum });
                }
                Ok(Step::Continue {
                    out,
                    need: clients.clone().into(),
                    next: Self::Server { clients, left, sum },
                })
            }
            Self::Client {
                left,
                burst,
                started,
            } => {
                if started && left == 0 {
                    let output = inbox.require(SERVER)?[0].into();
                    return Ok(Step::Done {
                        out: Outbox::new(),
                        output,
                    });
                }
                let now = left.min(burst);
                let mut out = Outbox::new();
                assert!(out.is_empty());
                for _ in 0..now {
                    out.push(SERVER, vec![1u8]);
                }
                assert_eq!((out.len(), out.is_empty()), (now, now == 0));
                let left = left - now;
                Ok(Step::Continue {
                    out,
                    need: if left == 0 { vec![SERVER] } else { vec![] }.into(),
                    next: Self::Client {
                        left,
                        burst,
                        started: true,
                    },
                })
            }
        }
    }
}

struct Ran {
    result: Result<(), Stalled>,
    server: Option<Aborted>,
    sum: Option<u64>,
    clients: Vec<Result<u64, Aborted>>,
    ledgers: Vec<Ledger>,
    refused: Vec<FrameError>,
    offers: u64,
}

fn run(mut network: Network<'_>, clients: usize, rounds: usize) -> Ran {
    let ids: Vec<PartyId> = (0..clients).map(PartyId::client).collect();
    let server = Adder::Server {
        clients: ids.clone(),
        left: rounds,
        sum: 0,
    };
    let mut server = Endpoint::new(SERVER, SESSION, Limits::default(), server);
    let client = |id: &PartyId| {
        let client = Adder::Client {
            left: rounds,
            burst: 3,
            started: false,
        };
        Endpoint::new(*id, SESSION, Limits::default(), client)
    };
    let mut clients: Vec<_> = ids.iter().map(client).collect();
    let mut nodes: Vec<&mut dyn Node> = vec![&mut server];
    nodes.extend(clients.iter_mut().map(|client| client as &mut dyn Node));
    let result = network.run(&mut nodes);
    let refused = network.refused().to_vec();
    let mut ledgers = vec![server.ledger().clone()];
    ledgers.extend(clients.iter().map(|client| client.ledger().clone()));
    Ran {
        result,
        server: server.aborted().cloned(),
        sum: server.finish().ok().map(|(sum, _)| sum),
        clients: clients
            .into_iter()
            .map(|c| c.finish().map(|(sum, _)| sum))
            .collect(),
        ledgers,
        refused,
        offers: network.offers(),
    }
}

/// A frame that its receiver hands back is offered again when the receiver has consumed one of the
/// same link, and not before.
#[test]
fn work_grows_with_frames_and_not_with_links() {
    for (clients, rounds) in [(2, 400), (30, 400), (300, 100)] {
        let ran = run(Network::new(), clients, rounds);
        assert_eq!(ran.sum, Some((clients * rounds) as u64));
        let frames = (clients * (rounds + 1)) as u64;
        assert!((frames..2 * frames).contains(&ran.offers), "{}", ran.offers);
    }
}

/// A chooser that draws from a small generator.
fn chooser(seed: u64) -> impl FnMut(usize) -> usize {
    let mut state = seed;
    move |count| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 33) as usize % count
    }
}

#[test]
fn every_order_gives_the_same() {
    let asked = Cell::new(0);
    let plain = run(Network::new(), 3, 20);
    assert_eq!((plain.result.clone(), plain.sum), (Ok(()), Some(60)));
    let seeds = if cfg!(miri) { 2 } else { 30 };
    for seed in 0..seeds {
        let mut choose = chooser(seed);
        let network = Network::new().choose(|count| {
            asked.set(asked.get() + 1);
            assert!(count > 0);
            choose(count)
        });
        let ran = run(network, 3, 20);
        assert_eq!((ran.result, ran.sum), (Ok(()), Some(60)), "seed {seed}");
        assert_eq!(ran.clients, vec![Ok(60); 3]);
        assert!(ran.refused.is_empty());
        for (there, here) in plain.ledgers.iter().zip(&ran.ledgers) {
            let (there, here) = (there.phase(ASKING).unwrap(), here.phase(ASKING).unwrap());
            assert_eq!(there.bytes_sent, here.bytes_sent);
            assert_eq!(there.rounds(), here.rounds());
        }
    }
    assert!(asked.get() > 30 * seeds, "{}", asked.get());
}

#[test]
fn the_ledger_counts_frames_bytes_and_time() {
    let ran = run(Network::new(), 2, 5);
    let frame = HEADER_LEN as u64 + 1;
    let server = ran.ledgers[0].phase(ASKING).unwrap();
    assert_eq!((server.messages, server.bytes_sent), (2, 2 * frame));
    assert_eq!(server.bytes_received, 10 * frame);
    let mut both = Ledger::default();
    let (mut messages, mut compute) = (0, std::time::Duration::ZERO);
    for ledger in &ran.ledgers {
        both.add(ledger);
        let cost = ledger.phase(ASKING).unwrap();
        assert!(cost.compute > std::time::Duration::ZERO);
        compute += cost.compute;
        messages += cost.messages;
    }
    let sum = both.phase(ASKING).unwrap();
    assert_eq!((sum.messages, messages), (12, 12));
    assert_eq!(
        (sum.bytes_sent, sum.bytes_received),
        (12 * frame, 12 * frame)
    );
    assert_eq!(sum.compute, compute);
    // One round of the clients' messages, one of the answers.
    assert_eq!(sum.rounds(), 2);
    assert_eq!(both.phases().count(), 1);
    assert_eq!(
        ran.ledgers[1].phase(Phase {
            id: 9,
            name: "none"
        }),
        None
    );
}

#[test]
fn observers_see_parties_and_interceptors_frames() {
    let seen = RefCell::new(Vec::new());
    let network = Network::new().observe(|at| {
        assert_eq!(at.phase, ASKING);
        seen.borrow_mut().push(at.party);
    });
    let ran = run(
        network.intercept(|from, to, frame| {
            assert_ne!(from, to);
            // Every message of client 0 becomes a 7.
            if from == PartyId::client(0) {
                frame[HEADER_LEN] = 7;
            }
        }),
        2,
        4,
    );
    assert_eq!(ran.sum, Some(4 * 8));
    let seen = seen.into_inner();
    for id in [SERVER, PartyId::client(0), PartyId::client(1)] {
        assert!(seen.contains(&id));
    }
}

#[test]
fn frames_that_are_refused_are_kept_and_harm_nothing_but_their_run() {
    let network = Network::new().intercept(|from, _, frame| {
        if from == PartyId::client(0) {
            frame[0] = b'X';
        }
    });
    let ran = run(network, 2, 1);
    assert_eq!(ran.refused, vec![FrameError::Unknown]);
    assert_eq!(
        ran.result,
        Err(Stalled {
            waiting: vec![SERVER, PartyId::client(0), PartyId::client(1)]
        })
    );
}

#[test]
fn what_a_leaver_sent_still_counts() {
    for seed in [None, Some(1), Some(2), Some(3)] {
        for sent in 0..=5 {
            let mut network = Network::new().leave(PartyId::client(1), sent);
            if let Some(seed) = seed {
                network = network.choose(chooser(seed));
            }
            let ran = run(network, 3, 5);
            assert_eq!(ran.result, Ok(()));
            assert_eq!(ran.sum, Some(10 + sent as u64), "{sent} frames");
            assert_eq!(ran.server, None);
            assert_eq!(ran.clients[0], Ok(10 + sent as u64));
            assert!(ran.clients[1].is_err());
        }
    }
}

#[test]
fn clients_are_told_that_the_server_has_left() {
    let ran = run(Network::new().leave(SERVER, 0), 2, 2);
    assert_eq!(ran.result, Ok(()));
    for client in ran.clients {
        let aborted = client.unwrap_err();
        assert_eq!(aborted.cause, Abort::Left { who: SERVER });
        assert_eq!(aborted.cause.culprit(), Some(SERVER));
    }
}

#[test]
fn culprits_are_named() {
    let who = PartyId::client(1);
    let malformed = Abort::Malformed {
        from: who,
        what: "x".into(),
    };
    let cheated = Abort::Cheated {
        culprit: who,
        fault: "x".into(),
    };
    assert_eq!(malformed.culprit(), Some(who));
    assert_eq!(cheated.culprit(), Some(who));
    assert_eq!(Abort::TooFew { left: 1, need: 2 }.culprit(), None);
}

#[test]
fn what_is_shown_says_something_and_no_payload() {
    let out = Outbox::to(PartyId::client(2), b"secret".to_vec());
    assert_eq!(format!("{out:?}"), "{client 2: 6}");
    assert_eq!(format!("{:?}", PartyId::client(3)), "client 3");
    let payload = Payload::from(b"secret".to_vec());
    let shown = format!("{payload:?}");
    assert!(!shown.is_empty() && !shown.contains("secret") && !shown.contains("115"));
    assert_eq!(&payload.clone().into_frame()[HEADER_LEN..], b"secret");
}
