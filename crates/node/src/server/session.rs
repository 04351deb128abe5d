//! One session: its links, who is in and who is away, and what the server's party does.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use tokio::sync::mpsc::UnboundedSender;
use tonic::codegen::Bytes;
use undertone_party::{Abort, FrameError, Header, Ledger, Limits, PartyId, SessionId};
use undertone_xclp::phases;

use super::lock;
use crate::drive::{Event, Line, Standing, limits};
use crate::flow::{Item, Violation};
use crate::metrics::Metrics;
use crate::wire::{Gone, Progress, Returned, ServerSays, taken};

const SERVER: PartyId = PartyId::SERVER;

/// Something on its way to a client, and what it takes of the window of its link until it is on the wire.
pub(super) struct Queued {
    pub(super) what: ServerSays,
    pub(super) load: Option<(Arc<AtomicUsize>, usize)>,
}

/// The way to a client, by one connection.
#[derive(Clone)]
pub(super) struct Way {
    /// Tells connections apart.
    pub(super) connection: u64,
    pub(super) sender: UnboundedSender<Queued>,
}

impl Way {
    pub(super) fn say(&self, what: ServerSays) {
        let _ = self.sender.send(Queued { what, load: None });
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
    /// Frame bytes from each sender that wait for this client's connection.
    loads: BTreeMap<PartyId, Arc<AtomicUsize>>,
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
                loads: BTreeMap::new(),
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
        sender.received += frame.len() as u64;
        if header.to == SERVER {
            drop(table);
            self.tell(Event::Frame(from, frame));
            return Ok(());
        }
        if !table.members.contains_key(&header.to) {
            return Err(misled);
        }
        table.active = Instant::now();
        table.relayed += frame.len() as u64;
        self.metrics.relayed.inc_by(frame.len() as u64);
        let window = self.window;
        put(&mut table, window, from, header.to, Item::Frame(frame))
    }

    /// `from` has taken what `peer` sent it.
    pub(super) fn taken(&self, from: PartyId, peer: PartyId, next: u32) -> Result<(), Violation> {
        let mut table = lock(&self.table);
        let is_in = |member: &Member| member.state == State::In;
        if table.closed || !table.members.get(&from).is_some_and(is_in) {
            return Ok(());
        }
        if peer == SERVER {
            drop(table);
            self.tell(Event::Taken(from, next));
            return Ok(());
        }
        table.active = Instant::now();
        put(&mut table, self.window, from, peer, Item::Taken(next))
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
        member.state = State::In;
        member.way = Some(way.clone());
        member.loads.clear();
        let next_of = |peer| {
            taken
                .iter()
                .find(|(p, _)| *p == peer)
                .map_or(0, |(_, n)| *n)
        };
        table.active = Instant::now();
        let others: Vec<PartyId> = table.members.keys().copied().collect();
        for other in others.into_iter().filter(|other| *other != who) {
            let member = table.members.get(&other);
            let gone = member.is_some_and(|m| matches!(m.state, State::Gone | State::Finished));
            if gone {
                way.say(ServerSays::Gone(Gone {
                    peer: other.to_wire(),
                }));
            } else if let Some(to) = member.and_then(|member| member.way.as_ref()) {
                to.say(ServerSays::Returned(Returned {
                    peer: who.to_wire(),
                    next: next_of(other),
                }));
            }
        }
        self.tell(Event::Returned(who, next_of(SERVER)));
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

    /// Who has been away for longer than `grace`.
    pub(super) fn overdue(&self, grace: Duration) -> Vec<PartyId> {
        let table = lock(&self.table);
        let overdue =
            |member: &Member| matches!(member.state, State::Away(since) if since.elapsed() > grace);
        let members = table.members.iter().filter(|(_, m)| overdue(m));
        members.map(|(who, _)| *who).collect()
    }

    /// Who keeps a session from going on that has stood still: those the server waits for, or those they wait for, and
    /// so on, who wait for nobody themselves. Where all wait for each other, all of them.
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
        blame(&standing.waits_for, &waiting)
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

/// See [`Session::blamed`].
fn blame(first: &[PartyId], waiting: &BTreeMap<PartyId, &[PartyId]>) -> Vec<PartyId> {
    let mut seen: Vec<PartyId> = Vec::new();
    let mut next: Vec<PartyId> = first.to_vec();
    let mut idle = Vec::new();
    while let Some(who) = next.pop() {
        let Some(waits_for) = waiting.get(&who).filter(|_| !seen.contains(&who)) else {
            continue;
        };
        seen.push(who);
        let others: Vec<PartyId> = waits_for
            .iter()
            .copied()
            .filter(|other| waiting.contains_key(other) && *other != who)
            .collect();
        if others.is_empty() {
            idle.push(who);
        }
        next.extend(others);
    }
    if idle.is_empty() { seen } else { idle }
}

/// Queues something for a client's connection, if it has one; what is lost is sent again when it returns.
fn put(
    table: &mut Table,
    window: usize,
    from: PartyId,
    to: PartyId,
    item: Item,
) -> Result<(), Violation> {
    if table.closed {
        return Ok(());
    }
    let Some(member) = table.members.get_mut(&to) else {
        return Ok(());
    };
    let Some(way) = member.way.clone() else {
        return Ok(());
    };
    match item {
        Item::Taken(next) => way.say(ServerSays::Taken(taken(from, next))),
        Item::Frame(frame) => {
            let load = Arc::clone(member.loads.entry(from).or_default());
            let before = load.fetch_add(frame.len(), Ordering::Relaxed);
            // What a sender repeats when the receiver returns may wait twice.
            if before > 0 && before + frame.len() > 2 * window {
                load.fetch_sub(frame.len(), Ordering::Relaxed);
                return Err(Violation::Overrun);
            }
            member.sent += frame.len() as u64;
            let _ = way.sender.send(Queued {
                load: Some((load, frame.len())),
                what: ServerSays::Frame(frame),
            });
        }
    }
    Ok(())
}

/// The server's party's way out.
pub(super) struct ServerLine(pub(super) Arc<Session>);

impl Line for ServerLine {
    fn put(&mut self, to: PartyId, item: Item) {
        let window = self.0.window;
        // The server's own links keep to their windows.
        let _ = put(&mut lock(&self.0.table), window, SERVER, to, item);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_waits_for_nobody_is_blamed() {
        let [a, b, c] = [0, 1, 2].map(PartyId::client);
        let waits: [(PartyId, &[PartyId]); 3] = [(a, &[b]), (b, &[c]), (c, &[])];
        assert_eq!(blame(&[a], &BTreeMap::from(waits)), [c]);
        assert_eq!(blame(&[a, b], &BTreeMap::from(waits)), [c]);
        let circle: [(PartyId, &[PartyId]); 3] = [(a, &[b]), (b, &[a]), (c, &[SERVER])];
        assert_eq!(blame(&[a], &BTreeMap::from(circle)), [a, b]);
        assert_eq!(blame(&[c], &BTreeMap::from(circle)), [c]);
        // Who is gone is nobody's excuse.
        let gone: [(PartyId, &[PartyId]); 1] = [(a, &[b])];
        assert_eq!(blame(&[a], &BTreeMap::from(gone)), [a]);
    }
}
