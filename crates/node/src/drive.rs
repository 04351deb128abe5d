//! Drives one party over its links, on a thread of its own.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use tonic::codegen::Bytes;
use undertone_party::{
    Abort, Aborted, Endpoint, Ledger, Limits, Party, PartyId, Phase, Poll, Progress, Push,
};

use crate::flow::{Item, Links, Violation};
use crate::gauge::Load;

/// Something that a party's driver must handle.
#[derive(Debug)]
pub(crate) enum Event {
    /// A frame has arrived.
    Frame {
        /// The peer that sent it.
        from: PartyId,
        /// The frame, with its header.
        frame: Bytes,
    },
    /// An event, and its bytes in a [`Gauge`](crate::gauge::Gauge) until it is handled.
    Loaded(Box<Event>, Load),
    /// A peer has taken this party's frames below a number.
    Taken {
        /// The peer.
        by: PartyId,
        /// The number.
        next: u32,
    },
    /// A peer has a new connection.
    Returned {
        /// The peer.
        who: PartyId,
        /// Number of the first of this party's frames that the peer has not taken.
        next: u32,
    },
    /// This party has a new connection.
    Reconnected,
    /// A peer has left.
    Gone(PartyId),
    /// The party must abort. If it has its result, it keeps the result and waits for no peer.
    Stop(Abort),
}

/// The progress of a driven party.
#[derive(Debug, Clone)]
pub(crate) struct Standing {
    /// The phase of its last step.
    pub(crate) phase: Phase,
    /// How far it is in this phase, where it shows that.
    pub(crate) progress: Option<Progress>,
    /// The peers that it waits for: to send a message, or to take a frame.
    pub(crate) waits_for: Vec<PartyId>,
    /// Whether it has its result and only waits until its peers have taken what it sent.
    pub(crate) done: bool,
    /// When it last made progress.
    pub(crate) active: Instant,
    /// Its costs so far.
    pub(crate) ledger: Ledger,
}

/// Where a driven party sends its frames and reports.
pub(crate) trait Line {
    /// Sends an item, if there is a connection at present.
    fn put(&mut self, to: PartyId, item: Item);
    /// The links refused a frame or an acknowledgement of `from`.
    fn refused(&mut self, from: PartyId, why: Violation);
    /// Reports the party's progress. `taken` holds, for every peer, the number below which the
    /// party has taken its frames.
    fn stands(&mut self, standing: Standing, taken: Vec<(PartyId, u32)>);
}

/// How a driven party ended.
#[derive(Debug)]
pub(crate) struct Ended<T> {
    /// Its result, or why it has none.
    pub(crate) result: Result<T, Aborted>,
    /// Its costs.
    pub(crate) ledger: Ledger,
}

/// Most events that are handled before the party takes its next step.
const EVENTS: usize = 64;

/// Longest time between two reports.
const REPORT_EVERY: Duration = Duration::from_millis(100);

/// How long peers may take to take the notice of an abort.
const FAREWELL: Duration = Duration::from_secs(3);

/// Drives `endpoint` until it has ended and its peers have taken what it sent. A party with a
/// result waits for its peers at most `linger`.
#[must_use]
pub(crate) fn drive<P: Party>(
    endpoint: Endpoint<P>,
    links: Links,
    linger: Duration,
    events: &Receiver<Event>,
    line: &mut impl Line,
) -> Ended<P::Output> {
    let mut driver = Driver::new(endpoint, links, linger, line);
    loop {
        // A bounded number, so that many events do not delay the party's own work.
        for event in events.try_iter().take(EVENTS) {
            driver.handle(event);
        }
        let turn = driver.turn();
        if driver.is_over(Instant::now()) {
            return driver.finish();
        }
        if turn == Turn::Idle {
            match events.recv_timeout(REPORT_EVERY) {
                Ok(event) => driver.handle(event),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => driver.stop(Abort::Internal(
                    "the task that moves this party's frames has ended".into(),
                )),
            }
        }
    }
}

/// The state of a driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// The party works, or waits for its peers.
    Running,
    /// The party was told to stop. It still sends its last frames, even over full links.
    Stopping,
    /// The party has ended. Its peers have until `until` to take what it sent.
    Draining { until: Instant },
    /// The party has ended and waits for no peer.
    Stopped,
}

/// The outcome of a turn of the driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "a driver that is idle must wait for an event"]
enum Turn {
    /// The party worked or took frames. It may have more to do.
    Worked,
    /// There is nothing to do until an event comes.
    Idle,
}

/// The last report to the [`Line`].
#[derive(Debug, Clone, Copy)]
struct Reported {
    when: Instant,
    phase: Phase,
    /// Whether the party waited for a peer.
    waiting: bool,
}

struct Driver<'a, P: Party, L> {
    endpoint: Endpoint<P>,
    links: Links,
    linger: Duration,
    line: &'a mut L,
    state: State,
    /// When the party or one of its peers last made progress.
    active: Instant,
    reported: Option<Reported>,
}

impl<'a, P: Party, L: Line> Driver<'a, P, L> {
    fn new(endpoint: Endpoint<P>, links: Links, linger: Duration, line: &'a mut L) -> Self {
        Self {
            endpoint,
            links,
            linger,
            line,
            state: State::Running,
            active: Instant::now(),
            reported: None,
        }
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Frame { from, frame } => {
                let arrived = self.links.arrived(from, &frame);
                self.check(from, arrived);
            }
            Event::Loaded(event, load) => {
                self.handle(*event);
                drop(load);
            }
            Event::Taken { by, next } => {
                let taken = self.links.taken_by(by, next);
                if taken == Ok(true) {
                    self.active = Instant::now();
                }
                self.check(by, taken.map(drop));
            }
            Event::Returned { who, next } => {
                let returned = self.links.returned(who, next);
                self.check(who, returned);
            }
            Event::Reconnected => self.links.resend(),
            Event::Gone(who) => {
                self.links.gone(who);
                self.endpoint.gone(who);
                self.active = Instant::now();
            }
            Event::Stop(cause) => self.stop(cause),
        }
    }

    fn check(&mut self, from: PartyId, outcome: Result<(), Violation>) {
        if let Err(why) = outcome {
            self.line.refused(from, why);
        }
    }

    /// Makes the party abort, if it has not ended yet. It waits for no peer any more.
    fn stop(&mut self, cause: Abort) {
        self.endpoint.abandon(cause);
        self.state = match self.state {
            State::Running | State::Stopping => State::Stopping,
            State::Draining { .. } | State::Stopped => State::Stopped,
        };
    }

    /// Gives the party the frames that have arrived, lets it take one step, and sends its frames.
    fn turn(&mut self) -> Turn {
        let fed = self.feed();
        if !self.has_ended() && self.reported.is_some_and(|last| last.waiting) {
            // The next step may take long: report first that the party no longer waits.
            self.report(self.endpoint.waits_for());
        }
        let worked = self.advance();
        if fed || worked {
            self.active = Instant::now();
        }
        if !worked {
            self.links.tell();
        }
        while let Some((to, item)) = self.links.next_out() {
            self.line.put(to, item);
        }
        self.report(self.waits_for());
        if fed || worked {
            Turn::Worked
        } else {
            Turn::Idle
        }
    }

    /// Returns whether the endpoint took any frame.
    fn feed(&mut self) -> bool {
        self.links
            .feed(|from, frame| match self.endpoint.push(from, frame) {
                Ok(Push::Full(frame)) => Some(frame),
                // The links have checked the header. A frame that the endpoint refuses all the same
                // is not needed.
                Ok(Push::Accepted) | Err(_) => None,
            })
    }

    /// Polls the endpoint once. Returns whether it sent a frame or took a step.
    fn advance(&mut self) -> bool {
        let may_send = match self.state {
            State::Running => !self.links.is_full(),
            State::Stopping => true,
            State::Draining { .. } | State::Stopped => false,
        };
        if !may_send {
            return false;
        }
        match self.endpoint.poll() {
            Ok(Poll::Send(to, frame)) => {
                self.links.send(to, frame);
                true
            }
            Ok(Poll::Busy) => true,
            Ok(Poll::Wait) => false,
            Ok(Poll::Done) => {
                self.ended(self.linger);
                false
            }
            Err(_) => {
                self.ended(FAREWELL);
                false
            }
        }
    }

    /// The party has ended. Its peers have `time` to take what it sent, unless it was stopped.
    fn ended(&mut self, time: Duration) {
        self.state = match self.state {
            State::Running => State::Draining {
                until: Instant::now() + time,
            },
            State::Stopping => State::Stopped,
            ended => ended,
        };
    }

    fn has_ended(&self) -> bool {
        matches!(self.state, State::Draining { .. } | State::Stopped)
    }

    fn waits_for(&self) -> Vec<PartyId> {
        if self.has_ended() {
            self.links.unsettled().collect()
        } else if self.links.is_full() {
            self.links.full().collect()
        } else {
            self.endpoint.waits_for()
        }
    }

    /// Reports a new phase and the end of waiting at once, and other progress from time to time.
    fn report(&mut self, waits_for: Vec<PartyId>) {
        let phase = self.endpoint.phase();
        let is_news = self.reported.is_none_or(|last| {
            last.phase != phase
                || last.waiting && waits_for.is_empty()
                || last.when.elapsed() >= REPORT_EVERY
        });
        if !is_news {
            return;
        }
        self.reported = Some(Reported {
            when: Instant::now(),
            phase,
            waiting: !waits_for.is_empty(),
        });
        let standing = Standing {
            phase,
            progress: self.endpoint.progress(),
            waits_for,
            done: self.has_ended() && self.endpoint.aborted().is_none(),
            active: self.active,
            ledger: self.endpoint.ledger().clone(),
        };
        self.line.stands(standing, self.links.taken().collect());
    }

    /// Whether the party has ended and need not wait for a peer.
    fn is_over(&self, now: Instant) -> bool {
        match self.state {
            State::Running | State::Stopping => false,
            State::Draining { until } => now > until || self.links.is_settled(),
            State::Stopped => true,
        }
    }

    fn finish(self) -> Ended<P::Output> {
        let ledger = self.endpoint.ledger().clone();
        Ended {
            result: self.endpoint.finish().map(|(output, _)| output),
            ledger,
        }
    }
}

/// Bytes of early frames that the server keeps of all clients together, besides the next frame of
/// each.
const EARLY: usize = 256 << 20;

/// The fewest bytes of early frames that it keeps of one client.
const LEAST_EARLY: usize = 256 << 10;

/// The limits of frames on a network.
pub(crate) fn limits() -> Limits {
    Limits::default()
}

/// The limits of the server's endpoint in a session of so many clients (docs/spec/network.md,
/// *early*). Clients keep [`limits`]: `lwe` needs them (docs/spec/lwe.md, *Nobody waits in a
/// circle*).
pub(crate) fn limits_of_the_server(clients: usize) -> Limits {
    let most = limits().max_early_bytes;
    Limits {
        max_early_bytes: (EARLY / clients.max(1)).clamp(LEAST_EARLY, most),
        ..limits()
    }
}

#[cfg(test)]
mod tests;
