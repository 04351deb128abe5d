//! One session: its clients, those that are away, and the progress of the server's party.

mod relay;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use undertone_party::{Abort, Ledger, Limits, PartyId, Phase, SessionId};

use super::About;
use super::blame::blame;
use super::lock;
use super::outgoing::Sender;
use super::passing::Passing;
use crate::drive::{Event, Standing, limits};
use crate::metrics::Metrics;
use crate::wire::{self, Gone, Progress, Returned, ServerSays};

pub(super) use relay::ServerLine;

const SERVER: PartyId = PartyId::SERVER;

/// Most returns of a client.
const MAX_RETURNS: u32 = 100;

/// Shortest time between two messages that tell the clients of progress.
const ANNOUNCE: Duration = Duration::from_secs(1);

/// How long a client may be away in all, in grace times.
const MAX_AWAY: u32 = 4;

/// The state of a client in a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// It takes part.
    In,
    /// It lost its connection at this time, and may return.
    Away(Instant),
    /// It has left, or was expelled.
    Gone,
    /// It has its result.
    Finished,
}

impl State {
    /// Whether the client takes part, or may return.
    pub(super) fn is_open(self) -> bool {
        matches!(self, Self::In | Self::Away(_))
    }
}

/// A client of the session.
pub(super) struct Member {
    pub(super) state: State,
    /// Why it has left. Empty while it takes part, or if it has its result.
    pub(super) why: String,
    /// Its connection, if it has one.
    sender: Option<Sender>,
    /// How often it has returned after it lost its connection.
    returns: u32,
    /// Its phase, by its own word.
    pub(super) phase: Option<&'static str>,
    /// The parties that it waits for, by its own word.
    pub(super) waits_for: Vec<PartyId>,
    /// Frame bytes received from it.
    pub(super) received: u64,
    /// Frame bytes sent to it.
    pub(super) sent: u64,
    /// Total time of its earlier absences.
    away: Duration,
}

impl Member {
    fn new(sender: Sender) -> Self {
        Self {
            state: State::In,
            why: String::new(),
            sender: Some(sender),
            returns: 0,
            phase: None,
            waits_for: Vec::new(),
            received: 0,
            sent: 0,
            away: Duration::ZERO,
        }
    }

    fn is_by(&self, connection: u64) -> bool {
        let sender = self.sender.as_ref();
        sender.is_some_and(|sender| sender.connection == connection)
    }
}

/// A running session.
pub(super) struct Session {
    pub(super) id: SessionId,
    pub(super) started: Instant,
    window: usize,
    limits: Limits,
    phases: Vec<Phase>,
    events: mpsc::Sender<Event>,
    metrics: Arc<Metrics>,
    table: Mutex<Table>,
    /// The last report of the server's party.
    standing: Mutex<Option<Standing>>,
    clock: Mutex<Clock>,
}

struct Table {
    /// Whether the session has stopped relaying.
    closed: bool,
    members: BTreeMap<PartyId, Member>,
    /// Frame bytes from client to client.
    relayed: u64,
    /// Payload bytes of these that came once for several clients, without the first time.
    spared: u64,
    /// The links from the first party to the second.
    links: BTreeMap<(PartyId, PartyId), Passing>,
    /// When a frame or a new acknowledgement last passed, or a client last returned or left.
    active: Instant,
    /// When the clients were last told of progress.
    announced: Instant,
}

impl Table {
    fn touch(&mut self) {
        self.active = Instant::now();
    }

    fn is_someone_away(&self) -> bool {
        let is_away = |member: &Member| matches!(member.state, State::Away(_));
        self.members.values().any(is_away)
    }
}

/// How long the server's party was in each phase.
struct Clock {
    /// When the present phase began.
    since: Instant,
    /// Time in earlier phases, by phase number.
    spent: BTreeMap<u8, Duration>,
}

impl Clock {
    /// The party has left `phase`. Returns the time since it entered the phase.
    fn turn(&mut self, phase: Phase) -> Duration {
        let time = self.since.elapsed();
        *self.spent.entry(phase.id).or_default() += time;
        self.since = Instant::now();
        time
    }
}

/// The message that tells other clients that `who` has left.
fn gone(session: SessionId, who: PartyId, why: &str) -> ServerSays {
    ServerSays::Gone(Gone {
        peer: who.to_wire(),
        why: why.to_owned(),
        session: session.0.to_vec().into(),
    })
}

impl Session {
    pub(super) fn new(
        id: SessionId,
        about: &About,
        window: usize,
        senders: Vec<(PartyId, Sender)>,
        events: mpsc::Sender<Event>,
        metrics: Arc<Metrics>,
    ) -> Self {
        let members = senders.into_iter();
        let members = members.map(|(who, sender)| (who, Member::new(sender)));
        let now = Instant::now();
        Self {
            id,
            started: now,
            window,
            limits: limits(),
            phases: about.phases.clone(),
            events,
            metrics,
            table: Mutex::new(Table {
                closed: false,
                members: members.collect(),
                relayed: 0,
                spared: 0,
                links: BTreeMap::new(),
                active: now,
                announced: now,
            }),
            standing: Mutex::new(None),
            clock: Mutex::new(Clock {
                since: now,
                spent: BTreeMap::new(),
            }),
        }
    }

    /// Most bytes on their way on each link.
    pub(super) fn window(&self) -> usize {
        self.window
    }

    /// Sends the server's party an event, if it has not ended.
    fn tell(&self, event: Event) {
        let _ = self.events.send(event);
    }

    /// Notes the phase of `from` and the parties that it waits for, by its own word.
    pub(super) fn progress(&self, from: PartyId, progress: &Progress) {
        let mut table = lock(&self.table);
        let count = table.members.len();
        if let Some(member) = table.members.get_mut(&from) {
            let mut phases = self.phases.iter();
            let phase = phases.find(|phase| u32::from(phase.id) == progress.phase);
            member.phase = phase.map(|phase| phase.name);
            let waits_for = progress.waits_for.iter().take(count + 1);
            member.waits_for = waits_for.map(|who| PartyId::from_wire(*who)).collect();
        }
    }

    /// `who` has lost this connection. It is away, unless it has a newer one.
    pub(super) fn lost(&self, who: PartyId, connection: u64) {
        let mut table = lock(&self.table);
        if let Some(member) = table.members.get_mut(&who)
            && member.is_by(connection)
        {
            member.sender = None;
            if member.state == State::In {
                member.state = State::Away(Instant::now());
            }
        }
    }

    /// Whether `who` may return over a new connection.
    pub(super) fn may_return(&self, who: PartyId) -> bool {
        let table = lock(&self.table);
        let member = table.members.get(&who);
        !table.closed && member.is_some_and(|member| member.state.is_open())
    }

    /// `who` has a new connection, and has `taken` these frames of others. Returns whether it may
    /// continue. See `docs/spec/network.md`, steps 21 to 23.
    #[must_use]
    pub(super) fn returns(&self, who: PartyId, sender: &Sender, taken: &[wire::Taken]) -> bool {
        let mut table = lock(&self.table);
        let Some(member) = table.members.get_mut(&who) else {
            return false;
        };
        if !member.state.is_open() {
            return false;
        }
        member.returns += 1;
        if member.returns > MAX_RETURNS {
            return false;
        }
        if let State::Away(since) = member.state {
            member.away += since.elapsed();
        }
        member.state = State::In;
        member.sender = Some(sender.clone());
        table.touch();
        let next_of = |peer: PartyId| {
            let taken = taken.iter().find(|taken| taken.peer == peer.to_wire());
            taken.map_or(0, |taken| taken.next)
        };
        let mut all: Vec<PartyId> = table.members.keys().copied().collect();
        all.push(SERVER);
        // Step 21: what others have taken of its frames. It sends the rest again.
        for other in &all {
            if let Some(link) = table.links.get_mut(&(who, *other)) {
                link.rewind();
                sender.say(ServerSays::Taken(wire::taken(*other, link.taken)));
            }
        }
        // Step 22
        sender.say(ServerSays::Resumed(wire::Resumed {}));
        for other in all.into_iter().filter(|other| *other != who) {
            let mut next = 0;
            if let Some(link) = table.links.get_mut(&(other, who)) {
                // A claim to have taken more than has passed is ignored.
                let _ = link.take(next_of(other));
                link.rewind();
                next = link.taken;
            }
            if other == SERVER {
                self.tell(Event::Returned { who, next });
                continue;
            }
            let Some(member) = table.members.get(&other) else {
                continue;
            };
            if !member.state.is_open() {
                sender.say(gone(self.id, other, &member.why));
            } else if let Some(to) = &member.sender {
                let peer = who.to_wire();
                to.say(ServerSays::Returned(Returned { peer, next }));
            }
        }
        self.metrics.returned.inc();
        true
    }

    /// `who` leaves the session. All others are told why.
    pub(super) fn leaves(&self, who: PartyId, state: State, why: &str) {
        let mut table = lock(&self.table);
        let Some(member) = table.members.get_mut(&who) else {
            return;
        };
        if !member.state.is_open() {
            return;
        }
        member.state = state;
        why.clone_into(&mut member.why);
        member.waits_for.clear();
        table.touch();
        for (_, other) in table.members.iter().filter(|(id, _)| **id != who) {
            if let Some(sender) = &other.sender {
                sender.say(gone(self.id, who, why));
            }
        }
        drop(table);
        self.tell(Event::Gone(who));
    }

    /// The clients that have been away for longer than `grace`, or too long in all.
    #[must_use]
    pub(super) fn overdue(&self, grace: Duration) -> Vec<PartyId> {
        let table = lock(&self.table);
        let overdue = |member: &Member| match member.state {
            State::Away(since) => {
                let now = since.elapsed();
                now > grace || member.away + now > MAX_AWAY * grace
            }
            State::In | State::Gone | State::Finished => false,
        };
        let members = table.members.iter().filter(|(_, m)| overdue(m));
        members.map(|(who, _)| *who).collect()
    }

    /// The clients to blame when the session stands still for longer than the phase's deadline. See
    /// [`blame`].
    #[must_use]
    pub(super) fn blamed(&self, deadline: impl Fn(Phase) -> Duration) -> Vec<PartyId> {
        let Some(standing) = self.standing() else {
            return Vec::new();
        };
        let table = lock(&self.table);
        let quiet = standing.active.max(table.active).elapsed();
        // While a client is away, only its grace time counts.
        if standing.waits_for.is_empty()
            || quiet <= deadline(standing.phase)
            || table.is_someone_away()
        {
            return Vec::new();
        }
        let waiting: BTreeMap<PartyId, &[PartyId]> = table
            .members
            .iter()
            .filter(|(_, member)| member.state == State::In)
            .map(|(who, member)| (*who, &member.waits_for[..]))
            .collect();
        // When clients exchange nothing, none waits for another.
        blame(&standing.waits_for, &waiting, table.relayed > 0)
    }

    /// Tells the clients that there was progress, if there was. They cannot see what others do, and
    /// would otherwise give up before the server does. See `docs/spec/network.md`, step 24a.
    pub(super) fn announce(&self) {
        let Some(standing) = self.standing() else {
            return;
        };
        let mut table = lock(&self.table);
        let is_news = standing.active.max(table.active) > table.announced;
        if table.announced.elapsed() < ANNOUNCE || !is_news && !table.is_someone_away() {
            return;
        }
        table.announced = Instant::now();
        for member in table.members.values() {
            if let (State::In, Some(sender)) = (member.state, &member.sender) {
                sender.say(ServerSays::Progress(Progress {
                    phase: standing.phase.id.into(),
                    waits_for: Vec::new(),
                }));
            }
        }
    }

    /// The last report of the server's party.
    pub(super) fn standing(&self) -> Option<Standing> {
        lock(&self.standing).clone()
    }

    /// The time in each phase so far, by phase number.
    pub(super) fn times(&self) -> BTreeMap<u8, Duration> {
        let now = lock(&self.standing)
            .as_ref()
            .map(|standing| standing.phase.id);
        let clock = lock(&self.clock);
        let mut times = clock.spent.clone();
        if let Some(now) = now {
            *times.entry(now).or_default() += clock.since.elapsed();
        }
        times
    }

    /// Frame bytes from client to client.
    pub(super) fn relayed(&self) -> u64 {
        lock(&self.table).relayed
    }

    /// Payload bytes of the frames from client to client that did not come again.
    pub(super) fn spared(&self) -> u64 {
        lock(&self.table).spared
    }

    /// The costs of the server's party so far.
    pub(super) fn ledger(&self) -> Ledger {
        self.standing().map_or_else(Ledger::default, |s| s.ledger)
    }

    /// Makes the server's party abort.
    pub(super) fn stop(&self, cause: Abort) {
        self.tell(Event::Stop(cause));
    }

    /// Calls `look` with every client, and returns what it returns.
    pub(super) fn members<T>(&self, mut look: impl FnMut(PartyId, &Member) -> T) -> Vec<T> {
        let table = lock(&self.table);
        let members = table.members.iter();
        members.map(|(who, member)| look(*who, member)).collect()
    }

    /// `who` says that `accused` cheats. Either may lie, so the session ends. Only a client that is
    /// in the session is heard.
    pub(super) fn accuses(&self, who: PartyId, accused: PartyId) {
        // NET-22
        let heard = {
            let table = lock(&self.table);
            let is_in = |who| table.members.get(&who).map(|member| member.state) == Some(State::In);
            !table.closed && is_in(who) && table.members.contains_key(&accused)
        };
        if heard && accused != who {
            self.stop(Abort::Contradicted {
                first: who,
                second: accused,
                fault: format!("{who} says that {accused} sent it a false message"),
            });
        }
    }

    /// Whether `who` takes part, or may return.
    pub(super) fn has(&self, who: PartyId) -> bool {
        let table = lock(&self.table);
        let member = table.members.get(&who);
        member.is_some_and(|member| member.state.is_open())
    }

    /// Whether `who` takes part over this connection.
    pub(super) fn is_by(&self, who: PartyId, connection: u64) -> bool {
        let table = lock(&self.table);
        let member = table.members.get(&who);
        member.is_some_and(|member| member.is_by(connection))
    }

    /// Stops relaying.
    pub(super) fn close(&self) {
        let mut table = lock(&self.table);
        table.closed = true;
        for member in table.members.values_mut() {
            member.sender = None;
        }
    }
}
