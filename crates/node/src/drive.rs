//! Drives an endpoint over links, on a thread of its own.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use tonic::codegen::Bytes;
use undertone_party::{
    Abort, Aborted, Endpoint, Ledger, Limits, Party, PartyId, Phase, Poll, Push,
};

use crate::flow::{Item, Links, Violation};

/// What happens to a party from outside.
#[derive(Debug)]
pub(crate) enum Event {
    /// A frame has come from a party.
    Frame(PartyId, Bytes),
    /// A party has taken frames below a number.
    Taken(PartyId, u32),
    /// A party has a new connection, and has taken frames below a number.
    Returned(PartyId, u32),
    /// This party has a new connection.
    Reconnected,
    /// A party has left.
    Gone(PartyId),
    /// Give up; where the result is there, wait for nobody.
    Stop(Abort),
}

/// Where a driven party stands.
#[derive(Debug, Clone)]
pub(crate) struct Standing {
    /// The phase of its last step.
    pub(crate) phase: Phase,
    /// Whom it waits for: to send something, or to take what it sent.
    pub(crate) waits_for: Vec<PartyId>,
    /// Whether it has its result, and only waits until others have taken what it sent.
    pub(crate) done: bool,
    /// When it last had something to do.
    pub(crate) active: Instant,
    /// What it has cost.
    pub(crate) ledger: Ledger,
}

/// The way out of a driven party.
pub(crate) trait Line {
    /// Puts something on the wire, if there is one at the moment.
    fn put(&mut self, to: PartyId, item: Item);
    /// What came from `from` was refused.
    fn refused(&mut self, from: PartyId, why: Violation);
    /// The party has gone on, or come to wait; `taken` is what it has taken of every peer's frames.
    fn stands(&mut self, standing: Standing, taken: Vec<(PartyId, u32)>);
}

/// Events handled before the party goes on.
const EVENTS: usize = 64;

/// Between reports of a party that works.
const REPORT_EVERY: Duration = Duration::from_millis(100);

/// How long peers have to take the notice of an abort.
const FAREWELL: Duration = Duration::from_secs(3);

/// Drives `endpoint` until it has ended and what it sent has been taken, which it waits for no longer than `linger`.
pub(crate) fn drive<P: Party>(
    mut endpoint: Endpoint<P>,
    mut links: Links,
    linger: Duration,
    events: &Receiver<Event>,
    line: &mut impl Line,
) -> (Result<P::Output, Aborted>, Ledger) {
    let mut active = Instant::now();
    let mut reported: Option<(Instant, Phase, bool)> = None;
    let mut ended = false;
    let mut done = false;
    let mut stopped = false;
    let mut farewell: Option<Instant> = None;
    loop {
        // Not all at once: what comes in does not keep the party from its work.
        for event in events.try_iter().take(EVENTS) {
            stopped |= handle(event, &mut endpoint, &mut links, (line, &mut active));
        }
        let fed = links.feed(|from, frame| match endpoint.push(from, frame) {
            Ok(Push::Full(frame)) => Some(frame),
            // Links let through what endpoints accept; what they do not is not missed.
            Ok(Push::Accepted) | Err(_) => None,
        });
        if !ended && reported.as_ref().is_some_and(|(_, _, waited)| *waited) {
            // Who goes on to work says so first: the step may be long.
            let waits_for = endpoint.waits_for();
            report(
                &endpoint,
                &links,
                (active, waits_for, done),
                &mut reported,
                line,
            );
        }
        let mut idle = true;
        if !ended && (stopped || !links.is_full()) {
            match endpoint.poll() {
                Ok(Poll::Send(to, frame)) => {
                    links.send(to, frame);
                    idle = false;
                }
                Ok(Poll::Busy) => idle = false,
                Ok(Poll::Wait) => {}
                Ok(Poll::Done) => {
                    (ended, done) = (true, true);
                    farewell = Some(Instant::now() + linger);
                }
                Err(_) => {
                    ended = true;
                    farewell = Some(Instant::now() + FAREWELL);
                }
            }
        }
        if fed || !idle {
            active = Instant::now();
        }
        if idle {
            links.tell();
        }
        while let Some((to, item)) = links.next_out() {
            line.put(to, item);
        }
        let waits_for = match (ended, links.is_full()) {
            (true, _) => links.unsettled().collect(),
            (false, true) => links.full().collect(),
            (false, false) => endpoint.waits_for(),
        };
        report(
            &endpoint,
            &links,
            (active, waits_for, done),
            &mut reported,
            line,
        );
        let enough = farewell.is_some_and(|until| Instant::now() > until);
        if ended && (stopped || enough || links.is_settled()) {
            break;
        }
        if idle && !fed {
            match events.recv_timeout(REPORT_EVERY) {
                Ok(event) => {
                    stopped |= handle(event, &mut endpoint, &mut links, (line, &mut active));
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    endpoint.abandon(Abort::Internal("nobody moves frames any more".into()));
                    stopped = true;
                }
            }
        }
    }
    let ledger = endpoint.ledger().clone();
    (endpoint.finish().map(|(output, _)| output), ledger)
}

/// Tells whether the party is to wait for nobody any more. `active` is changed where somebody has made progress.
fn handle<P: Party>(
    event: Event,
    endpoint: &mut Endpoint<P>,
    links: &mut Links,
    (line, active): (&mut impl Line, &mut Instant),
) -> bool {
    let (from, done) = match event {
        Event::Frame(from, frame) => (from, links.arrived(from, &frame)),
        Event::Taken(from, next) => {
            let taken = links.taken_by(from, next);
            if taken == Ok(true) {
                *active = Instant::now();
            }
            (from, taken.map(drop))
        }
        Event::Returned(from, next) => (from, links.returned(from, next)),
        Event::Reconnected => {
            links.resend();
            return false;
        }
        Event::Gone(who) => {
            links.gone(who);
            endpoint.gone(who);
            *active = Instant::now();
            return false;
        }
        Event::Stop(cause) => {
            endpoint.abandon(cause);
            return true;
        }
    };
    if let Err(why) = done {
        line.refused(from, why);
    }
    false
}

fn report<P: Party>(
    endpoint: &Endpoint<P>,
    links: &Links,
    (active, waits_for, done): (Instant, Vec<PartyId>, bool),
    reported: &mut Option<(Instant, Phase, bool)>,
    line: &mut impl Line,
) {
    let phase = endpoint.phase();
    let news = match reported {
        None => true,
        Some((when, old, waited)) => {
            *old != phase || *waited && waits_for.is_empty() || when.elapsed() >= REPORT_EVERY
        }
    };
    if news {
        *reported = Some((Instant::now(), phase, !waits_for.is_empty()));
        let standing = Standing {
            phase,
            waits_for,
            done,
            active,
            ledger: endpoint.ledger().clone(),
        };
        line.stands(standing, links.taken().collect());
    }
}

/// What a networked endpoint takes from its peers.
pub(crate) fn limits() -> Limits {
    Limits::default()
}
