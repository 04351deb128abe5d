//! Scripts: steps, phases, futures side by side, aborts.

#![allow(clippy::unwrap_used)]

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};

use undertone_party::script::try_join_all;
use undertone_party::{
    Abort, Arrival, Endpoint, Inbox, Io, Limits, Need, Network, Node, Outbox, Party, PartyId,
    Payload, Phase, Script, SessionId, Step,
};

const SESSION: SessionId = SessionId([1; 32]);
const SERVER: PartyId = PartyId::SERVER;
const FIRST: Phase = Phase {
    id: 1,
    name: "first",
};
const SECOND: Phase = Phase {
    id: 2,
    name: "second",
};

fn client(index: usize) -> PartyId {
    PartyId::client(index)
}

fn inbox(from: impl IntoIterator<Item = (usize, Option<u8>)>) -> Inbox {
    Inbox::new(from.into_iter().map(|(index, byte)| {
        let arrival = match byte {
            Some(byte) => Arrival::Message(Payload::from(&[byte])),
            None => Arrival::Gone,
        };
        (client(index), arrival)
    }))
}

fn go_on<P: Party>(step: Step<P>) -> (Vec<(PartyId, Vec<u8>)>, Need, P) {
    let Step::Continue { out, need, next } = step else {
        panic!("it has ended");
    };
    let out = out.into_iter().map(|(to, payload)| (to, payload.to_vec()));
    (out.collect(), need, next)
}

fn output<P: Party>(step: Step<P>) -> P::Output {
    match step {
        Step::Continue { need, .. } => panic!("it waits for {need:?}"),
        Step::Done { output, .. } => output,
    }
}

#[test]
fn a_script_stands_where_it_waits() {
    let script = Script::new(FIRST, |io| async move {
        io.send(client(1), &[1]);
        let one = io.require(client(1)).await?;
        io.phase(FIRST).await; // the same: no step
        io.phase(SECOND).await;
        let all = io.recv_all(&[client(2), client(0)]).await;
        let lens = all
            .iter()
            .map(|(who, m)| (who.index(), m.as_ref().map(|m| m[0])));
        Ok((one[0], lens.collect::<Vec<_>>()))
    });
    let (out, need, script) = go_on(script.step(Inbox::default()).unwrap());
    assert_eq!(out, [(client(1), vec![1])]);
    assert_eq!(need, Need::All(vec![client(1)]));
    assert_eq!(script.phase(), FIRST);
    let shown = format!("{script:?}");
    assert!(
        shown.contains("client 1 at ") && shown.contains("script.rs:"),
        "{shown}"
    );
    let (_, need, script) = go_on(script.step(inbox([(1, Some(5))])).unwrap());
    assert_eq!((need, script.phase()), (Need::All(vec![]), SECOND));
    let (_, need, script) = go_on(script.step(Inbox::default()).unwrap());
    assert_eq!(need, Need::All(vec![client(2), client(0)]));
    let ended = script.step(inbox([(0, None), (2, Some(7))])).unwrap();
    assert_eq!(
        output(ended),
        (5, vec![(Some(0), None), (Some(2), Some(7))])
    );
}

#[test]
fn a_result_is_changed_and_nothing_else() {
    let script = Script::new(FIRST, |io| async move {
        io.send(client(1), &[1]);
        io.phase(SECOND).await;
        Ok(io.require(client(0)).await?.len())
    });
    let mut mapped = script.map(|length| format!("{length} bytes"));
    assert_eq!(mapped.phase(), FIRST);
    let (out, need, next) = go_on(mapped.step(inbox([])).unwrap());
    assert_eq!(out, [(client(1), vec![1])]);
    assert_eq!((next.phase(), need), (SECOND, Need::All(vec![])));
    mapped = go_on(next.step(inbox([])).unwrap()).2;
    let step = mapped.step(inbox([(0, Some(9))])).unwrap();
    assert_eq!(output(step), "1 bytes");

    let failing = Script::<()>::new(FIRST, |_| async { Err(Abort::Misuse("no".into())) });
    let called = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&called);
    let mapped = failing.map(move |()| count.fetch_add(1, Ordering::Relaxed));
    assert!(mapped.step(inbox([])).is_err());
    assert_eq!(called.load(Ordering::Relaxed), 0);
}

#[test]
fn who_leaves_is_blamed() {
    let script = Script::new(FIRST, |io| async move { io.require(client(3)).await });
    let (_, _, script) = go_on(script.step(Inbox::default()).unwrap());
    let left = Abort::Left { who: client(3) };
    assert_eq!(script.step(inbox([(3, None)])).unwrap_err(), left);
}

/// Receives two messages of each of three peers, side by side. Counts the messages in `polls`.
fn pairs(polls: Arc<AtomicUsize>) -> Script<'static, Vec<u8>> {
    Script::new(FIRST, move |io| async move {
        let pair = |index: usize| {
            let (io, polls) = (io.clone(), Arc::clone(&polls));
            async move {
                let mut sum = 0;
                for _ in 0..2 {
                    sum += io.require(client(index)).await?[0];
                    polls.fetch_add(1, Ordering::Relaxed);
                    io.pause().await;
                    io.send(client(index), &[sum]);
                }
                Ok(sum)
            }
        };
        try_join_all((0..3).map(pair)).await
    })
}

#[test]
fn pairs_wait_side_by_side() {
    let polls = Arc::default();
    let (_, need, script) = go_on(pairs(Arc::clone(&polls)).step(Inbox::default()).unwrap());
    let any = |of: &[usize], busy| Need::Any {
        of: of.iter().map(|index| client(*index)).collect(),
        busy,
    };
    assert_eq!(need, any(&[0, 1, 2], false));
    let (out, need, script) = go_on(script.step(inbox([(2, Some(4))])).unwrap());
    assert_eq!((out.len(), need), (0, any(&[0, 1], true)));
    // A message arrives, and the paused future continues.
    let (out, need, script) = go_on(script.step(inbox([(0, Some(3))])).unwrap());
    assert_eq!(out, [(client(2), vec![4])]);
    assert_eq!(need, any(&[1, 2], true));
    let (out, need, _) = go_on(script.step(Inbox::default()).unwrap());
    assert_eq!(out, [(client(0), vec![3])]);
    assert_eq!(need, any(&[0, 1, 2], false));
    assert_eq!(polls.load(Ordering::Relaxed), 2);
}

#[test]
fn one_error_ends_all() {
    let (_, _, script) = go_on(pairs(Arc::default()).step(Inbox::default()).unwrap());
    let left = Abort::Left { who: client(1) };
    assert_eq!(script.step(inbox([(1, None)])).unwrap_err(), left);
}

/// A script drops all it holds when it aborts and when it is dropped.
#[test]
fn nothing_outlives_a_script() {
    for aborts in [true, false] {
        let held = Arc::new(());
        let inside = Arc::clone(&held);
        let script = Script::new(FIRST, move |io| async move {
            let inside = inside;
            io.require(client(0)).await?;
            drop(inside);
            Ok(())
        });
        let (_, _, script) = go_on(script.step(Inbox::default()).unwrap());
        assert_eq!(Arc::strong_count(&held), 2);
        if aborts {
            drop(script.step(inbox([(0, None)])).unwrap_err());
        } else {
            drop(script);
        }
        assert_eq!(Arc::strong_count(&held), 1);
    }
}

#[test]
fn scripts_that_cannot_go_on_are_bugs() {
    let never = Script::<()>::new(FIRST, |_| std::future::pending());
    let error = never.step(Inbox::default()).unwrap_err();
    assert!(error.to_string().contains("no message"), "{error}");
    let lossy = Script::<()>::new(FIRST, |io| async move {
        let both = io.recv_all(&[client(0), client(1)]);
        let mut both = Box::pin(both);
        let first = io.recv(client(2));
        let mut first = Box::pin(first);
        std::future::poll_fn(|cx| {
            let _ = both.as_mut().poll(cx);
            first.as_mut().poll(cx)
        })
        .await;
        drop(both);
        io.pause().await;
        Ok(())
    });
    let (_, _, lossy) = go_on(lossy.step(Inbox::default()).unwrap());
    let (_, _, lossy) = go_on(lossy.step(inbox([(0, Some(1))])).unwrap());
    let error = lossy.step(inbox([(2, Some(1))])).unwrap_err();
    assert!(error.to_string().contains("is lost"), "{error}");
}

/// A hand-written party: receives a message of the server and, in another phase, sends it back
/// twice.
struct Echo(bool);

impl Party for Echo {
    type Output = usize;

    fn phase(&self) -> Phase {
        if self.0 { SECOND } else { FIRST }
    }

    fn step(self, mut inbox: Inbox) -> Result<Step<Self>, Abort> {
        if !self.0 {
            return Ok(Step::Continue {
                out: Outbox::new(),
                need: vec![SERVER].into(),
                next: Self(true),
            });
        }
        let heard = inbox.require(SERVER)?;
        let mut out = Outbox::to(SERVER, heard.clone());
        out.push(SERVER, &heard[..]);
        let output = heard.len();
        Ok(Step::Done { out, output })
    }
}

async fn serve(io: Io, clients: Vec<PartyId>) -> Result<usize, Abort> {
    io.phase(SECOND).await;
    for id in &clients {
        io.send(*id, &[0; 7]);
    }
    let pair = |id: &PartyId| {
        let (io, id) = (io.clone(), *id);
        async move {
            let both = [io.require(id).await?, io.require(id).await?];
            Ok(both.iter().map(|bytes| bytes.len()).sum::<usize>())
        }
    };
    let heard = try_join_all(clients.iter().map(pair)).await?;
    Ok(heard.iter().sum())
}

/// The `Debug` of a script that runs another party shows the caller's line and that party's phase.
#[test]
fn a_script_says_where_it_waits_inside_another_party() {
    let line = line!() + 1;
    let script = Script::new(FIRST, |io| async move { io.run(Echo(false)).await });
    let (_, _, script) = go_on(script.step(Inbox::default()).unwrap());
    let shown = format!("{script:?}");
    assert_eq!(script.phase(), SECOND);
    assert!(
        shown.contains("phase: second") && shown.contains("server at "),
        "{shown}"
    );
    assert!(shown.contains(&format!("script.rs:{line}")), "{shown}");
}

/// A dropped client gives `None`, in any order of arrival.
#[test]
fn dropped_clients_are_none() {
    let ids = [0, 1, 2].map(client);
    for dropped in 0..3 {
        let script = Script::new(FIRST, |io| async move {
            let heard = io.recv_all(&ids).await;
            Ok(heard
                .into_iter()
                .map(|(_, m)| m.is_some())
                .collect::<Vec<_>>())
        });
        let (_, _, script) = go_on(script.step(Inbox::default()).unwrap());
        let arrivals = (0..3).rev().map(|i| (i, (i != dropped).then_some(1)));
        let heard = output(script.step(inbox(arrivals)).unwrap());
        let there: Vec<bool> = (0..3).map(|i| i != dropped).collect();
        assert_eq!(heard, there);
    }
}

/// Hand-written parties run inside scripts. Both run over a network in any order of delivery.
#[test]
fn scripts_and_hand_written_parties_mix() {
    for seed in 0..50u64 {
        let ids: Vec<PartyId> = (0..4).map(client).collect();
        let to = ids.clone();
        let server = Script::new(FIRST, |io| serve(io, to));
        let mut server = Endpoint::new(SERVER, SESSION, Limits::default(), server);
        let scripted = |io: Io| async move { io.run(Echo(false)).await };
        let client = |id: &PartyId| {
            let script = Script::new(FIRST, scripted);
            Endpoint::new(*id, SESSION, Limits::default(), script)
        };
        let mut clients: Vec<_> = ids.iter().map(client).collect();
        let mut nodes: Vec<&mut dyn Node> = vec![&mut server];
        nodes.extend(clients.iter_mut().map(|client| client as &mut dyn Node));
        let mut state = seed;
        Network::new()
            .choose(move |n| {
                state = state.wrapping_mul(6364136223846793005).wrapping_add(1);
                (state >> 33) as usize % n
            })
            .run(&mut nodes)
            .unwrap();
        let (sum, ledger) = server.finish().unwrap();
        assert_eq!(sum, 4 * 14);
        assert_eq!(ledger.phase(SECOND).unwrap().rounds(), 2);
        assert!(ledger.phase(FIRST).unwrap().rounds() == 0);
    }
}

/// The second future waits for a message and then wakes the first, which sends in the same step.
#[test]
fn a_future_may_wake_one_before_it() {
    let script = Script::new(FIRST, |io| async move {
        let woken: Mutex<(bool, Option<Waker>)> = Mutex::default();
        let waits = poll_fn(|cx| {
            let mut woken = woken.lock().unwrap();
            woken.1 = Some(cx.waker().clone());
            if woken.0 {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        });
        type Task<'a> = Pin<Box<dyn Future<Output = Result<(), Abort>> + Send + 'a>>;
        let first: Task<'_> = Box::pin(async {
            waits.await;
            io.send(client(1), &[1]);
            Ok(())
        });
        let second: Task<'_> = Box::pin(async {
            io.require(client(2)).await?;
            let mut woken = woken.lock().unwrap();
            woken.0 = true;
            woken.1.take().unwrap().wake();
            Ok(())
        });
        try_join_all([first, second]).await
    });
    let (_, need, script) = go_on(script.step(Inbox::default()).unwrap());
    assert_eq!(need, Need::All(vec![client(2)]));
    let Step::Done { out, .. } = script.step(inbox([(2, Some(1))])).unwrap() else {
        panic!("the first future has not gone on");
    };
    assert_eq!(out.len(), 1);
}

/// A peer that several futures wait for has the lowest of their ranks.
#[test]
fn peers_are_named_in_the_order_of_their_ranks() {
    let script = Script::new(FIRST, |io| async move {
        let wait = |index: usize, rank: u8| {
            let message = io.recv_ranked(client(index), rank);
            async move { Ok(message.await.is_some()) }
        };
        try_join_all([wait(1, 2), wait(4, 0), wait(3, 1), wait(0, 2), wait(3, 2)]).await
    });
    let (_, need, script) = go_on(script.step(Inbox::default()).unwrap());
    let of = |of: &[usize]| Need::Any {
        of: of.iter().map(|index| client(*index)).collect(),
        busy: false,
    };
    assert_eq!(need, of(&[4, 3, 0, 1]));
    let (_, need, _) = go_on(script.step(inbox([(3, Some(1))])).unwrap());
    assert_eq!(need, of(&[4, 0, 1, 3]));
}
