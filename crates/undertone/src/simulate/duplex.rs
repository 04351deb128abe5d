//! Two parties, each on one thread of its own. Parallel work of a party stays on its thread.

use std::collections::VecDeque;
use std::panic::resume_unwind;
use std::sync::mpsc::sync_channel;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TryRecvError, TrySendError};
use std::time::Duration;

use undertone_party::{Aborted, Endpoint, Ledger, Party, PartyId, Poll, Push};

/// The frames in transit from one party to the other.
const LINK_FRAMES: usize = 8;

/// The result of a party, and what it spent.
type Ended<P> = Result<(<P as Party>::Output, Ledger), Aborted>;

/// Drives `a` and `b`, which send frames only to each other, until both have ended.
pub(super) fn run<A: Party, B: Party>(a: Endpoint<A>, b: Endpoint<B>) -> (Ended<A>, Ended<B>) {
    let (to_a, from_b) = sync_channel(LINK_FRAMES);
    let (to_b, from_a) = sync_channel(LINK_FRAMES);
    let (id_a, id_b) = (a.id(), b.id());
    std::thread::scope(|scope| {
        let first = scope.spawn(move || alone(|| side(a, id_b, &to_b, &from_b)));
        let second = scope.spawn(move || alone(|| side(b, id_a, &to_a, &from_a)));
        (
            first.join().unwrap_or_else(|panic| resume_unwind(panic)),
            second.join().unwrap_or_else(|panic| resume_unwind(panic)),
        )
    })
}

/// Makes this thread a pool of its own. The threads of the caller's pool may all wait for the
/// parties, so that work in that pool would never run.
fn alone<T>(work: impl FnOnce() -> T) -> T {
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(1)
        .use_current_thread()
        .build();
    let out = work();
    drop(pool);
    out
}

/// Moves the frames of one side. It also takes frames in while its own link is full.
fn side<P: Party>(
    mut endpoint: Endpoint<P>,
    peer: PartyId,
    to: &SyncSender<Vec<u8>>,
    from: &Receiver<Vec<u8>>,
) -> Ended<P> {
    let mut outgoing = None;
    let mut early = VecDeque::new();
    loop {
        while let Some(frame) = early.pop_front() {
            if let Ok(Push::Full(frame)) = endpoint.push(peer, frame) {
                early.push_front(frame);
                break;
            }
        }
        let mut idle = true;
        if outgoing.is_none() {
            match endpoint.poll() {
                Ok(Poll::Send(_, frame)) => outgoing = Some(frame),
                Ok(Poll::Busy) => idle = false,
                Ok(Poll::Wait) => {}
                Ok(Poll::Done) | Err(_) => break,
            }
        }
        if let Some(frame) = outgoing.take() {
            match to.try_send(frame) {
                Ok(()) => idle = false,
                Err(TrySendError::Full(frame)) => outgoing = Some(frame),
                // A party that has ended reads no frames.
                Err(TrySendError::Disconnected(_)) => idle = false,
            }
        }
        let arrived = match (idle, outgoing.is_some()) {
            (false, _) => from
                .try_recv()
                .map_err(|error| error == TryRecvError::Disconnected),
            (true, true) => from
                .recv_timeout(Duration::from_micros(20))
                .map_err(|error| error == RecvTimeoutError::Disconnected),
            (true, false) => from.recv().map_err(|_| true),
        };
        match arrived {
            Ok(frame) => early.push_back(frame),
            Err(true) => endpoint.gone(peer),
            Err(false) => {}
        }
    }
    endpoint.finish()
}
