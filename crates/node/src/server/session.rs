//! One session: its links, who is in and who is away, and what the server's party does.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use tokio::sync::mpsc::UnboundedSender;
use tonic::codegen::Bytes;
use undertone_party::{Abort, FrameError, Header, Ledger, Limits, PartyId, SessionId};
use undertone_xclp::phases;

use super::blame::blame;
use super::lock;
use super::passing::Passing;
use crate::drive::{Event, Line, Standing, limits};
use crate::flow::{Item, Violation};
use crate::metrics::Metrics;
use crate::wire::{self, Gone, Progress, Returned, ServerSays};

const SERVER: PartyId = PartyId::SERVER;

/// The way to a client, by one connection.
#[derive(Clone)]
pub(super) struct Way {
    /// Tells connections apart.
    pub(super) connection: u64,
    pub(super) sender: UnboundedSender<ServerSays>,
}

impl Way {
    pub(super) fn say(&self, what: ServerSays) {
        let _ = self.sender.send(what);
    }
}

/// What the server knows of a client in a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    In,
    /// Its connection is lost, and it may return.
    Away(Instant),
    Gone,
    Finished,
}

pub(super) struct Member {
    pub(super) state: State,
    way: Option<Way>,
    /// Connections it lost and made again.
    returns: u32,
    pub(super) phase: Option<&'static str>,
    pub(super) waits_for: Vec<PartyId>,
    pub(super) received: u64,
    pub(super) sent: u64,
    /// Time it has been away, without the present.
    away: Duration,
}

/// How often a client may return.
const MAX_RETURNS: u32 = 100;

/// A running session.
pub(super) struct Session {
    pub(super) id: SessionId,
    pub(super) started: Instant,
    window: usize,
    limits: Limits,
    events: mpsc::Sender<Event>,
    metrics: Arc<Metrics>,
    table: Mutex<Table>,
    standing: Mutex<Option<Standing>>,
    times: Mutex<(Instant, Vec<(u8, Duration)>)>,
}

struct Table {
    /// Nothing of this session is relayed any more.
    closed: bool,
    members: BTreeMap<PartyId, Member>,
    relayed: u64,
    links: BTreeMap<(PartyId, PartyId), Passing>,
    /// When anything last passed, or anybody came or went.
    active: Instant,
}

impl Session {
    pub(super) fn new(
        id: SessionId,
        window: usize,
        ways: Vec<(PartyId, Way)>,
        events: mpsc::Sender<Event>,
        metrics: Arc<Metrics>,
    ) -> Self {
        let member = |(who, way)| {
            let member = Member {
                state: State::In,
                way: Some(way),
                returns: 0,
                phase: None,
                waits_for: Vec::new(),
                received: 0,
                sent: 0,
                away: Duration::ZERO,
            };
            (who, member)
        };
        let now = Instant::now();
        Self {
            id,
            started: now,
            window,
            limits: limits(),
            events,
            metrics,
            table: Mutex::new(Table {
                closed: false,
                members: ways.into_iter().map(member).collect(),
                relayed: 0,
                links: BTreeMap::new(),
                active: now,
            }),
            standing: Mutex::new(None),
            times: Mutex::new((now, Vec::new())),
        }
    }

    pub(super) fn window(&self) -> usize {
        self.window
    }

    fn tell(&self, event: Event) {
        // A party that has ended hears nothing more.
        let _ = self.events.send(event);
    }

    /// A frame has come from `from`: to the server's party, or on to another client.
    pub(super) fn frame(&self, from: PartyId, frame: Bytes) -> Result<(), Violation> {
        let header = Header::parse(&frame, &self.limits)?;
        if header.session != self.id {
            return Err(FrameError::Session.into());
        }
        let misled = Violation::Link {
            from: header.from,
            to: header.to,
            link: from,
        };
        if header.from != from || header.to == from {
            return Err(misled);
        }
        if !phases::ALL.iter().any(|phase| phase.id == header.phase) {
            return Err(Violation::Phase(header.phase));
        }
        let mut table = lock(&self.table);
        if table.closed {
            return Ok(());
        }
        let Some(sender) = table.members.get_mut(&from) else {
            return Err(misled);
        };
        if sender.state != State::In {
            return Ok(());
        }
        let len = frame.len();
        sender.received += len as u64;
        let to = header.to;
        if to != SERVER && !table.members.contains_key(&to) {
            return Err(misled);
        }
        let link = table.links.entry((from, to)).or_default();
        if !link.pass(header.seq, len, self.window)? {
            return Ok(());
        }
        table.active = Instant::now();
        if to == SERVER {
            drop(table);
            self.tell(Event::Frame { from, frame });
            return Ok(());
        }
        table.relayed += len as u64;
        self.metrics.relayed.inc_by(len as u64);
        put(&mut table, from, to, Item::Frame(frame));
        Ok(())
    }

    /// `from` has taken what `peer` sent it.
    pub(super) fn taken(&self, from: PartyId, peer: PartyId, next: u32) -> Result<(), Violation> {
        let mut table = lock(&self.table);
        let is_in = |member: &Member| member.state == State::In;
        if table.closed || !table.members.get(&from).is_some_and(is_in) {
            return Ok(());
        }
        let Some(link) = table.links.get_mut(&(peer, from)) else {
            return Err(Violation::Unsent(next));
        };
        if !link.take(next)? {
            return Ok(());
        }
        table.active = Instant::now();
        if peer == SERVER {
            drop(table);
            self.tell(Event::Taken { by: from, next });
        } else {
            put(&mut table, from, peer, Item::Taken(next));
        }
        Ok(())
    }

    /// What `from` says it does.
    pub(super) fn progress(&self, from: PartyId, progress: &Progress) {
        let mut table = lock(&self.table);
        let count = table.members.len();
        if let Some(member) = table.members.get_mut(&from) {
            let phase = phases::ALL
                .iter()
                .find(|phase| u32::from(phase.id) == progress.phase);
            member.phase = phase.map(|phase| phase.name);
            let waits_for = progress.waits_for.iter().take(count + 1);
            member.waits_for = waits_for.map(|who| PartyId::from_wire(*who)).collect();
        }
    }

    /// The connection of `who` is lost.
    pub(super) fn lost(&self, who: PartyId, connection: u64) {
        let mut table = lock(&self.table);
        if let Some(member) = table.members.get_mut(&who)
            && member
                .way
                .as_ref()
                .is_some_and(|way| way.connection == connection)
        {
            member.way = None;
            if member.state == State::In {
                member.state = State::Away(Instant::now());
            }
        }
    }

    /// Whether `who` would go on if it had a new connection.
    pub(super) fn may_return(&self, who: PartyId) -> bool {
        let table = lock(&self.table);
        let member = table.members.get(&who);
        !table.closed && member.is_some_and(|m| matches!(m.state, State::In | State::Away(_)))
    }

    /// `who` has a new connection, and has taken this much of what others sent it; tells whether it goes on.
    pub(super) fn returns(&self, who: PartyId, way: &Way, taken: &[(PartyId, u32)]) -> bool {
        let mut table = lock(&self.table);
        let Some(member) = table.members.get_mut(&who) else {
            return false;
        };
        if !matches!(member.state, State::In | State::Away(_)) {
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
        member.way = Some(way.clone());
        table.active = Instant::now();
        let next_of = |peer| {
            taken
                .iter()
                .find(|(p, _)| *p == peer)
                .map_or(0, |(_, n)| *n)
        };
        let mut all: Vec<PartyId> = table.members.keys().copied().collect();
        all.push(SERVER);
        // First what others have taken of its frames: the others it sends again.
        for other in &all {
            if let Some(link) = table.links.get_mut(&(who, *other)) {
                link.rewind();
                way.say(ServerSays::Taken(wire::taken(*other, link.taken)));
            }
        }
        way.say(ServerSays::Resumed(wire::Resumed {}));
        for other in all.into_iter().filter(|other| *other != who) {
            let mut next = 0;
            if let Some(link) = table.links.get_mut(&(other, who)) {
                // What it claims beyond what was sent is not believed.
                let _ = link.take(next_of(other));
                link.rewind();
                next = link.taken;
            }
            if other == SERVER {
                self.tell(Event::Returned { who, next });
                continue;
            }
            let member = table.members.get(&other);
            let gone = member.is_some_and(|m| matches!(m.state, State::Gone | State::Finished));
            if gone {
                let peer = other.to_wire();
                way.say(ServerSays::Gone(Gone { peer }));
            } else if let Some(to) = member.and_then(|member| member.way.as_ref()) {
                let peer = who.to_wire();
                to.say(ServerSays::Returned(Returned { peer, next }));
            }
        }
        self.metrics.returned.inc();
        true
    }

    /// Nothing more comes from `who`: all are told.
    pub(super) fn leaves(&self, who: PartyId, state: State) {
        let mut table = lock(&self.table);
        let Some(member) = table.members.get_mut(&who) else {
            return;
        };
        if matches!(member.state, State::Gone | State::Finished) {
            return;
        }
        member.state = state;
        member.waits_for.clear();
        table.active = Instant::now();
        for (id, other) in &table.members {
            if let Some(way) = other.way.as_ref().filter(|_| *id != who) {
                way.say(ServerSays::Gone(Gone {
                    peer: who.to_wire(),
                }));
            }
        }
        drop(table);
        self.tell(Event::Gone(who));
    }

    /// Who has been away for longer than `grace`, or for four times that in all.
    pub(super) fn overdue(&self, grace: Duration) -> Vec<PartyId> {
        let table = lock(&self.table);
        let overdue = |member: &Member| match member.state {
            State::Away(since) => {
                let now = since.elapsed();
                now > grace || member.away + now > 4 * grace
            }
            _ => false,
        };
        let members = table.members.iter().filter(|(_, m)| overdue(m));
        members.map(|(who, _)| *who).collect()
    }

    /// Who keeps a session from going on that has stood still; see [`blame`].
    pub(super) fn blamed(
        &self,
        deadline: impl Fn(undertone_party::Phase) -> Duration,
    ) -> Vec<PartyId> {
        let Some(standing) = self.standing() else {
            return Vec::new();
        };
        let table = lock(&self.table);
        let quiet = standing.active.max(table.active).elapsed();
        // Who is away has its own time.
        let away = |member: &Member| matches!(member.state, State::Away(_));
        if standing.waits_for.is_empty()
            || quiet <= deadline(standing.phase)
            || table.members.values().any(away)
        {
            return Vec::new();
        }
        let waiting: BTreeMap<PartyId, &[PartyId]> = table
            .members
            .iter()
            .filter(|(_, member)| member.state == State::In)
            .map(|(who, member)| (*who, &member.waits_for[..]))
            .collect();
        // Where clients exchange nothing, none waits for another.
        blame(&standing.waits_for, &waiting, table.relayed > 0)
    }

    pub(super) fn standing(&self) -> Option<Standing> {
        lock(&self.standing).clone()
    }

    /// Time in each phase so far.
    pub(super) fn times(&self) -> Vec<(u8, Duration)> {
        let now = lock(&self.standing)
            .as_ref()
            .map(|standing| standing.phase.id);
        let (since, times) = &*lock(&self.times);
        let mut times = times.clone();
        if let Some(now) = now {
            add(&mut times, now, since.elapsed());
        }
        times
    }

    pub(super) fn relayed(&self) -> u64 {
        lock(&self.table).relayed
    }

    pub(super) fn ledger(&self) -> Ledger {
        self.standing().map_or_else(Ledger::default, |s| s.ledger)
    }

    pub(super) fn stop(&self, cause: Abort) {
        self.tell(Event::Stop(cause));
    }

    /// Calls `look` with every client.
    pub(super) fn members<T>(&self, mut look: impl FnMut(PartyId, &Member) -> T) -> Vec<T> {
        let table = lock(&self.table);
        let members = table.members.iter();
        members.map(|(who, member)| look(*who, member)).collect()
    }

    /// `who` says that `accused` cheats, and leaves: either may lie, and the session is over.
    pub(super) fn accuses(&self, who: PartyId, accused: PartyId) {
        let known = lock(&self.table).members.contains_key(&accused);
        if known && accused != who {
            self.stop(Abort::Contradicted {
                first: who,
                second: accused,
                check: "clients exchange what the protocol says".into(),
            });
        }
    }

    /// The ways to those who are in.
    pub(super) fn ways(&self) -> Vec<Way> {
        let table = lock(&self.table);
        let ways = table.members.values().filter(|m| m.state == State::In);
        ways.filter_map(|member| member.way.clone()).collect()
    }

    /// Whether `who` is in, by this connection.
    pub(super) fn is_by(&self, who: PartyId, connection: u64) -> bool {
        let table = lock(&self.table);
        let way = table.members.get(&who).and_then(|m| m.way.as_ref());
        way.is_some_and(|way| way.connection == connection)
    }

    /// Nothing of this session is relayed any more.
    pub(super) fn close(&self) {
        let mut table = lock(&self.table);
        table.closed = true;
        for member in table.members.values_mut() {
            member.way = None;
        }
    }
}

fn add(times: &mut Vec<(u8, Duration)>, phase: u8, time: Duration) {
    match times.iter_mut().find(|(id, _)| *id == phase) {
        Some((_, sum)) => *sum += time,
        None => times.push((phase, time)),
    }
}

/// Queues something for a client's connection, if it has one; what is lost is sent again when it returns.
fn put(table: &mut Table, from: PartyId, to: PartyId, item: Item) {
    if table.closed {
        return;
    }
    let Some(member) = table.members.get_mut(&to) else {
        return;
    };
    if let Item::Frame(frame) = &item {
        member.sent += frame.len() as u64;
    }
    if let Some(way) = &member.way {
        way.say(match item {
            Item::Taken(next) => ServerSays::Taken(wire::taken(from, next)),
            Item::Frame(frame) => ServerSays::Frame(frame),
        });
    }
}

/// The server's party's way out.
pub(super) struct ServerLine(pub(super) Arc<Session>);

impl Line for ServerLine {
    fn put(&mut self, to: PartyId, item: Item) {
        let mut table = lock(&self.0.table);
        match &item {
            Item::Taken(next) => {
                if let Some(link) = table.links.get_mut(&(to, SERVER)) {
                    let _ = link.take(*next);
                }
            }
            Item::Frame(frame) => {
                // The server's own links keep to their windows.
                if let Ok(header) = Header::parse(frame, &self.0.limits) {
                    let link = table.links.entry((SERVER, to)).or_default();
                    let _ = link.pass(header.seq, frame.len(), usize::MAX);
                }
            }
        }
        put(&mut table, SERVER, to, item);
    }

    fn refused(&mut self, from: PartyId, why: Violation) {
        self.0.metrics.refuse("frame", &format!("{from}: {why}"));
    }

    fn stands(&mut self, standing: Standing, _: Vec<(PartyId, u32)>) {
        let before = lock(&self.0.standing).replace(standing.clone());
        if let Some(before) = before.filter(|before| before.phase != standing.phase) {
            let (since, times) = &mut *lock(&self.0.times);
            self.0.metrics.phase(before.phase.name, since.elapsed());
            add(times, before.phase.id, since.elapsed());
            *since = Instant::now();
            tracing::debug!(phase = standing.phase.name, "phase");
        }
    }
}
