//! A session that this client takes part in. Its party runs on a thread of its own.

use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::oneshot;
use tonic::codegen::Bytes;
use undertone_party::{Abort, Aborted, Endpoint, Header, Ledger, Party, PartyId, SessionId};

use super::line::{ClientLine, Shared, Stream};
use super::{JoinError, Observer, START};
use crate::deadlines::Stated;
use crate::drive::{Ended, Event, drive, limits};
use crate::erased::{AnyParty, Output};
use crate::flow::Links;
use crate::gauge::Gauge;
use crate::roster::hex;
use crate::server::lock;
use crate::wire::{self, ClientSays, FromClient, Ready, Resume};

/// How long a party with a result waits until its peers have taken what it sent.
const LINGER: Duration = Duration::from_secs(20);

/// How many bytes an event counts that is no frame.
const SMALL: usize = 256;

/// Bytes of events that may wait for the party. The client then reads no more from the server.
const ROOM: usize = 64 << 20;

/// How much longer than the server a client waits, so that the server acts first.
const MARGIN: Duration = Duration::from_secs(5);

/// How long a party may take to hand over its result after it was told to wait no longer.
const HANDOVER: Duration = Duration::from_secs(2);

/// This client's place in a session.
pub(super) struct Place {
    pub(super) session: SessionId,
    pub(super) me: PartyId,
    /// Most bytes on their way on each link.
    pub(super) window: usize,
    /// Most clients, as far as this client knows.
    pub(super) clients: usize,
}

pub(super) struct Session {
    pub(super) id: SessionId,
    start: Instant,
    clients: usize,
    events: mpsc::Sender<Event>,
    shared: Arc<Shared>,
    done: oneshot::Receiver<Ended<Output>>,
    /// Counts the bytes of events that its party has not handled.
    waiting: Arc<Gauge>,
    /// How often this client has returned after it lost its connection.
    returned: u32,
    /// The phase of the server's party, by its own word, and when it last said that there was
    /// progress.
    server: Option<(u8, Instant)>,
}

/// How long a client waits for progress.
#[derive(Debug)]
pub(super) struct Patience<'a> {
    /// By its own settings.
    pub(super) own: Duration,
    /// The deadlines of the server. A client that left before them would end the job for all.
    pub(super) deadlines: &'a Stated,
}

impl Patience<'_> {
    /// The patience in any of these phases.
    fn of(&self, phases: impl IntoIterator<Item = u8>) -> Duration {
        let phases = phases.into_iter();
        let deadlines = phases.filter_map(|phase| self.deadlines.of(phase));
        deadlines.fold(self.own, |most, deadline| most.max(deadline + MARGIN))
    }

    /// The longest deadline, if the client waits longer because of it.
    pub(super) fn raised(&self) -> Option<Duration> {
        let longest = self.deadlines.longest();
        longest.filter(|longest| *longest + MARGIN > self.own)
    }

    /// Whether a client that made progress `own` ago, and heard of others' progress `server` ago,
    /// has waited for too long (NET-29, NET-33).
    fn is_over(&self, limit: Duration, own: Duration, server: Duration, clients: usize) -> bool {
        let most = limit.saturating_mul(u32::try_from(clients).unwrap_or(u32::MAX));
        own.min(server) > limit || own > most
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.tell(Event::Stop(Abort::Misuse("stopped".into())));
    }
}

impl Session {
    /// Tells the server that this client is ready, and starts its party.
    pub(super) fn start(
        place: &Place,
        party: AnyParty,
        sender: &UnboundedSender<FromClient>,
        observer: Option<Observer>,
    ) -> Result<Self, Aborted> {
        let (id, me) = (place.session, place.me);
        let phase = party.phase();
        let endpoint = Endpoint::new(me, id, limits(), party);
        let links = Links::new(me, id, place.window, limits());
        let (events, inbox) = mpsc::channel();
        let (tell, done) = oneshot::channel();
        let shared = Arc::<Shared>::default();
        // Before all that the party sends.
        let _ = sender.send(wire::from_client(ClientSays::Ready(Ready {
            session: id.0.to_vec().into(),
            declined: String::new(),
        })));
        *lock(&shared.stream) = Some(Stream::new(sender.clone()));
        let mut line = ClientLine {
            shared: Arc::clone(&shared),
            observer,
            said: None,
            refused: 0,
        };
        std::thread::Builder::new()
            .name(format!("undertone-{me}"))
            .spawn(move || {
                let _ = tell.send(drive(endpoint, links, LINGER, &inbox, &mut line));
            })
            .map_err(|error| Aborted {
                party: me,
                phase,
                cause: Abort::Misuse(format!("cannot start a thread: {error}")),
            })?;
        tracing::info!(session = &hex(&id.0)[..8], %me, "session starts");
        Ok(Self {
            id,
            start: Instant::now(),
            clients: place.clients,
            events,
            shared,
            done,
            waiting: Arc::default(),
            returned: 0,
            server: None,
        })
    }

    /// The time since the session started.
    pub(super) fn time(&self) -> Duration {
        self.start.elapsed()
    }

    /// How often this client has returned after it lost its connection.
    pub(super) fn returned(&self) -> u32 {
        self.returned
    }

    /// The part of a hello with which this client returns to the session.
    pub(super) fn resume(&self) -> Resume {
        let standing = lock(&self.shared.standing);
        let taken = standing.iter().flat_map(|standing| &standing.taken);
        let taken = taken.map(|(peer, next)| wire::taken(*peer, *next));
        Resume {
            session: self.id.0.to_vec().into(),
            taken: taken.collect(),
        }
    }

    /// The client has lost its connection.
    pub(super) fn detach(&self) {
        *lock(&self.shared.stream) = None;
    }

    /// The client has returned over a new connection.
    pub(super) fn reattach(&mut self, sender: &UnboundedSender<FromClient>) {
        *lock(&self.shared.stream) = Some(Stream::new(sender.clone()));
        self.returned += 1;
        self.tell(Event::Reconnected);
    }

    /// Sends the party an event, if it has not ended.
    fn tell(&self, event: Event) {
        let _ = self.events.send(event);
    }

    /// NET-28: waits until the party has room for more events. So a server that ignores the windows
    /// cannot fill this client's memory.
    pub(super) fn has_room(&self) -> impl Future<Output = ()> + use<> {
        let waiting = Arc::clone(&self.waiting);
        async move { waiting.below(ROOM).await }
    }

    /// Passes a frame on to the party.
    pub(super) fn frame(&self, frame: Bytes) {
        // NET-27
        match Header::parse(&frame, &limits()) {
            Ok(header) if header.session == self.id && self.may_exist(header.from) => {
                let from = header.from;
                let load = Gauge::load(&self.waiting, frame.len());
                let event = Box::new(Event::Frame { from, frame });
                self.tell(Event::Loaded(event, load));
            }
            // A frame of another session was on its way when that session ended.
            Ok(_) => {}
            // Not a warning: a server that floods its clients must not fill their logs.
            Err(why) => tracing::debug!(%why, "dropped a bad frame from the server"),
        }
    }

    /// Sends the party an event of a peer, given by its number on the wire.
    pub(super) fn tell_of(&self, peer: u32, event: impl FnOnce(PartyId) -> Event) {
        let peer = PartyId::from_wire(peer);
        // NET-27
        if self.may_exist(peer) {
            let load = Gauge::load(&self.waiting, SMALL);
            self.tell(Event::Loaded(Box::new(event(peer)), load));
        }
    }

    /// Whether this party may exist, as far as this client knows.
    fn may_exist(&self, who: PartyId) -> bool {
        who.index().is_none_or(|index| index < self.clients)
    }

    /// Leaves a session that the server no longer knows.
    pub(super) fn forget(self) {
        self.detach();
        let who = PartyId::SERVER;
        self.tell(Event::Stop(Abort::Left { who }));
    }

    /// Waits until the party has ended.
    pub(super) async fn ended(&mut self) -> Ended<Output> {
        (&mut self.done).await.unwrap_or_else(|_| {
            let aborted = Aborted {
                party: PartyId::SERVER,
                phase: START,
                cause: Abort::Internal("the client's party panicked".into()),
            };
            Ended {
                result: Err(aborted),
                ledger: Ledger::default(),
            }
        })
    }

    /// The end of the party, if it has ended.
    pub(super) fn try_ended(&mut self) -> Option<Ended<Output>> {
        self.done.try_recv().ok()
    }

    /// Tells a party that has its result to wait no longer until others have taken what it sent.
    /// Returns how it ended. `None` if it has no result.
    pub(super) async fn hand_over(&mut self) -> Option<Ended<Output>> {
        let is_done = {
            let standing = lock(&self.shared.standing);
            standing.as_ref().is_some_and(|last| last.standing.done)
        };
        if !is_done {
            return None;
        }
        let ended = self.stop(Abort::Misuse("stopped".into())).await;
        ended.filter(|ended| ended.result.is_ok())
    }

    /// Tells the party that the server has ended the session. Returns how it ended. `None` if it
    /// does not end soon.
    pub(super) async fn close(&mut self) -> Option<Ended<Output>> {
        self.stop(Abort::Left {
            who: PartyId::SERVER,
        })
        .await
    }

    /// A party that had ended keeps its own end.
    async fn stop(&mut self, cause: Abort) -> Option<Ended<Output>> {
        self.tell(Event::Stop(cause));
        let ended = tokio::time::timeout(HANDOVER, self.ended()).await;
        ended.ok()
    }

    /// The server says that there was progress in a phase.
    pub(super) fn progress(&mut self, phase: u32) {
        if let Ok(phase) = u8::try_from(phase) {
            self.server = Some((phase, Instant::now()));
        }
    }

    /// Checks that the party has not been waiting for longer than `patience`.
    pub(super) fn check(&self, patience: &Patience<'_>) -> Result<(), JoinError> {
        let standing = lock(&self.shared.standing);
        let Some(last) = &*standing else {
            return Ok(());
        };
        let standing = &last.standing;
        let limit = patience.of(self
            .server
            .map(|(phase, _)| phase)
            .into_iter()
            .chain([standing.phase.id]));
        let time = standing.active.elapsed();
        let server = self.server.map_or(time, |(_, when)| when.elapsed());
        if standing.waits_for.is_empty() || !patience.is_over(limit, time, server, self.clients) {
            return Ok(());
        }
        Err(JoinError::Stalled {
            phase: standing.phase,
            waits_for: standing.waits_for.clone(),
            time,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Deadline;

    const SECOND: Duration = Duration::from_secs(1);

    /// NET-29, NET-33
    #[test]
    fn a_client_waits_as_long_as_the_server_and_not_forever() {
        let deadline = |phase, seconds: u64| Deadline {
            phase,
            milliseconds: seconds * 1000,
        };
        let deadlines = Stated::read(&[deadline(1, 10), deadline(2, 3600)]).unwrap();
        let patience = Patience {
            own: 900 * SECOND,
            deadlines: &deadlines,
        };
        assert_eq!(patience.of([1]), 900 * SECOND);
        assert_eq!(patience.of([2]), 3605 * SECOND);
        assert_eq!(patience.of([3]), 900 * SECOND);
        // The server may still be in an earlier phase.
        assert_eq!(patience.of([3, 2]), 3605 * SECOND);
        assert_eq!(patience.raised(), Some(3600 * SECOND));
        let longer = Patience {
            own: 4000 * SECOND,
            ..patience
        };
        assert_eq!(longer.raised(), None);
        let is_over =
            |own: u32, server: u32| longer.is_over(100 * SECOND, own * SECOND, server * SECOND, 3);
        assert!(!is_over(100, 100) && is_over(101, 101));
        // Others make progress, one after the other.
        assert!(!is_over(250, 20));
        assert!(is_over(301, 0));
    }
}
