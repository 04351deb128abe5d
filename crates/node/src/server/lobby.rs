//! The lobby: what happens to connected clients between sessions, from one job to the next.
//!
//! Locks are taken in one order: the lobby's, then a session's.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Instant;

use tokio::sync::Notify;
use undertone_party::{Abort, PartyId, SessionId};

use super::registry::{Gather, Gathered, Gathering, Registry};
use super::session::{Session, State};
use super::{About, Config, FAREWELL, TICK, lock};
use crate::application::Facts;
use crate::drive::Event;
use crate::metrics::Metrics;
use crate::status::JobReport;
use crate::tls::Traffic;
use crate::wire::{self, Answer, ServerSays};

/// Most reports of jobs that are kept.
const KEPT: usize = 20;

/// The state of a server that all its connections share.
pub(crate) struct Lobby {
    pub(super) config: Config,
    pub(super) about: About,
    pub(super) traffic: Arc<Traffic>,
    pub(super) open: Arc<AtomicUsize>,
    pub(super) metrics: Arc<Metrics>,
    /// The number of connections so far.
    pub(super) connections: AtomicU64,
    /// Wakes the task that waits for clients to gather.
    pub(super) changed: Notify,
    pub(super) state: Mutex<Registry>,
}

impl std::fmt::Debug for Lobby {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Lobby(..)")
    }
}

/// The notice to other clients when a client declines.
fn declines(name: &str, why: &str) -> String {
    format!("{name} declined the job: {why}")
}

/// A session that starts.
pub(super) struct Start {
    pub(super) session: Arc<Session>,
    pub(super) members: Vec<PartyId>,
}

impl Lobby {
    pub(super) fn new(config: Config, about: About) -> Self {
        let slots = config.roster.entries().iter().map(|_| None).collect();
        let traffic = Arc::new(Traffic::default());
        Self {
            config,
            about,
            metrics: Arc::new(Metrics::new(Arc::clone(&traffic))),
            traffic,
            open: Arc::default(),
            connections: AtomicU64::new(0),
            changed: Notify::new(),
            state: Mutex::new(Registry {
                slots,
                declined: BTreeMap::new(),
                columns: BTreeMap::new(),
                expelled: Vec::new(),
                skipped: Vec::new(),
                eligible: None,
                session: None,
                leaving: None,
                since: Instant::now(),
                first: None,
                job: 1,
                number: 0,
                results: Facts::new(),
                stopping: false,
                finished: Vec::new(),
            }),
        }
    }

    /// A new job begins.
    pub(super) fn begin(&self, job: u32) {
        let mut state = lock(&self.state);
        state.job = job;
        state.expelled.clear();
        state.skipped.clear();
        state.results.clear();
        for slot in state.slots.iter_mut().flatten() {
            slot.in_job = false;
        }
    }

    /// Waits until at least `needed` clients, with which a session `can_begin`, wait for the
    /// session `number` of the job.
    pub(super) async fn gathered(
        &self,
        number: u32,
        needed: usize,
        can_begin: &mut (dyn FnMut(&[PartyId]) -> bool + Send),
        eligible: Option<Vec<PartyId>>,
        whom: Gather,
    ) -> Gathered {
        {
            let mut state = lock(&self.state);
            if state.number != number {
                state.skipped.clear();
            }
            state.number = number;
            state.eligible = eligible;
            state.since = Instant::now();
            state.first = None;
        }
        let mut warned = false;
        loop {
            let changed = self.changed.notified();
            {
                let mut state = lock(&self.state);
                match state.gathering(&self.config, needed, can_begin, whom) {
                    Gathering::Ready if state.turn_away(&self.config.roster) => continue,
                    Gathering::Ready => return Gathered::Enough,
                    Gathering::Stopping => return Gathered::Stopping,
                    Gathering::TooFew { here } if whom == Gather::Next => {
                        let missing = state.missing(&self.config.roster);
                        let why = if here < needed {
                            format!("{here} wait, {needed} are needed")
                        } else {
                            format!("{here} wait, but none can begin without others")
                        };
                        return Gathered::TooFew(format!(
                            "too few clients for another session: {why}; missing: {missing}"
                        ));
                    }
                    Gathering::TooFew { here } if !warned => {
                        warned = true;
                        tracing::warn!(
                            here,
                            needed,
                            missing = state.missing(&self.config.roster),
                            "too few clients to begin the job; still waiting for others"
                        );
                    }
                    Gathering::TooFew { .. } | Gathering::Waiting => {}
                }
            }
            let _ = tokio::time::timeout(TICK, changed).await;
        }
    }

    /// Starts a session with the clients that `choose` picks from those that wait.
    pub(super) fn start(
        &self,
        id: SessionId,
        events: mpsc::Sender<Event>,
        choose: impl FnOnce(&[PartyId]) -> Vec<PartyId>,
        window: impl Fn(usize) -> usize,
    ) -> Start {
        let mut state = lock(&self.state);
        let present = state.present();
        let chosen = choose(&present);
        let mut members = present.clone();
        members.retain(|who| chosen.contains(who));
        let window = window(members.len() + 1);
        let (job, number) = (state.job, state.number);
        let mut senders = Vec::with_capacity(members.len());
        for who in present {
            let Some(Some(slot)) = state.slot(who) else {
                continue;
            };
            slot.in_job = true;
            if !members.contains(&who) {
                continue;
            }
            slot.waits = false;
            slot.sender.say(ServerSays::Start(wire::Start {
                session: id.0.to_vec().into(),
                client: who.to_wire(),
                window: window as u64,
                job,
                number,
            }));
            senders.push((who, slot.sender.clone()));
        }
        let metrics = Arc::clone(&self.metrics);
        let session = Session::new(id, &self.about, window, senders, events, metrics);
        let session = Arc::new(session);
        if let Some(before) = state.session.replace(Arc::clone(&session)) {
            before.close();
        }
        Start { session, members }
    }

    /// A client has declined the session that starts.
    pub(super) fn skips(&self, who: PartyId) {
        lock(&self.state).skipped.push(who);
    }

    /// The number of clients that may still take part in a session with the present number, whether
    /// they are connected or not.
    pub(super) fn possible(&self) -> usize {
        let state = lock(&self.state);
        let all = (0..state.slots.len()).map(PartyId::client);
        all.filter(|who| state.may_take_part(*who) && !state.skipped.contains(who))
            .count()
    }

    /// The number of clients that wait for the next session of the job.
    pub(super) fn present(&self) -> usize {
        lock(&self.state).present().len()
    }

    /// Tells clients why they are expelled, and cuts their connections.
    pub(super) fn expel(&self, whom: &[PartyId], why: &str) {
        let mut state = lock(&self.state);
        for who in whom {
            if let Some(slot) = state.slot(*who).and_then(Option::take) {
                slot.cut(why);
            }
        }
    }

    /// Excludes clients from the rest of the job.
    pub(super) fn exclude(&self, whom: &[PartyId]) {
        lock(&self.state).expelled.extend_from_slice(whom);
    }

    /// Frees the slot of a client that lost this connection, unless it has another connection.
    /// Returns the session that runs.
    #[must_use]
    pub(super) fn vacate(&self, who: PartyId, connection: u64) -> Option<Arc<Session>> {
        let mut state = lock(&self.state);
        if let Some(slot) = state.slot(who)
            && slot
                .as_ref()
                .is_some_and(|slot| slot.sender.connection == connection)
        {
            *slot = None;
        }
        state.session.clone()
    }

    /// Ends a session. A session that is `done` still relays frames until its members have left.
    /// The members of one that is not wait for the next session.
    pub(super) fn leave(self: &Arc<Self>, session: &Arc<Session>, done: bool) {
        let mut state = lock(&self.state);
        state.session = None;
        if !done {
            // Late messages of this session must not reach the session that repeats it.
            session.close();
            for (who, stays) in session.members(|who, member| (who, member.state == State::In)) {
                if stays && let Some(Some(slot)) = state.slot(who) {
                    slot.waits = true;
                }
            }
        }
        state.leaving = Some(Arc::clone(session));
        drop(state);
        let lobby = Arc::clone(self);
        let session = Arc::clone(session);
        tokio::spawn(async move { lobby.see_off(&session).await });
    }

    /// Tells the clients of the job that it has ended, and the reason if it has no result.
    pub(super) fn over(&self, why: &str) {
        let mut state = lock(&self.state);
        for slot in state.slots.iter_mut().flatten().filter(|slot| slot.in_job) {
            slot.waits = false;
            slot.sender.say(ServerSays::Over(wire::Over {
                why: why.to_owned(),
            }));
        }
    }

    /// Keeps the results of the job so far.
    pub(super) fn came_to(&self, results: Facts) {
        lock(&self.state).results = results;
    }

    /// A client that has agreed to the job waits for the next session.
    pub(super) fn waits(&self, who: PartyId, connection: u64) {
        let mut state = lock(&self.state);
        // Its message may be about the session before the one that has just started.
        let is_in = state
            .session
            .as_ref()
            .is_some_and(|session| session.has(who));
        if let Some(Some(slot)) = state.slot(who)
            && slot.sender.connection == connection
            && slot.agreed
            && !is_in
        {
            slot.waits = true;
        }
        drop(state);
        self.changed.notify_waiters();
    }

    /// Takes a client's answer to the offer. The other clients are told which client declines it,
    /// and why.
    ///
    /// Returns whether an answer was due.
    pub(super) fn answers(&self, who: PartyId, connection: u64, answer: &Answer) -> bool {
        let declined = &answer.declined;
        let name = self.config.roster.name(who);
        {
            let mut state = lock(&self.state);
            let others: Vec<String> = state
                .declined
                .iter()
                .filter(|(other, _)| **other != who)
                .map(|(other, why)| declines(self.config.roster.name(*other), why))
                .collect();
            let Some(Some(slot)) = state.slot(who) else {
                return true;
            };
            if slot.sender.connection != connection {
                return true;
            }
            if slot.agreed {
                return false;
            }
            if declined.is_empty() {
                slot.agreed = true;
                slot.waits = true;
                for text in others {
                    slot.sender.notice(&text);
                }
                state.declined.remove(&who);
                match answer.columns[..].try_into() {
                    Ok(digest) => state.columns.insert(who, digest),
                    Err(_) => state.columns.remove(&who),
                };
            } else {
                let why = wire::plain(declined);
                tracing::warn!(client = name, why, "declined the job");
                state.notify(&declines(name, &why), who);
                state.declined.insert(who, why);
            }
        }
        self.changed.notify_waiters();
        true
    }

    /// Waits until the members of an ended session have left it, then closes it.
    async fn see_off(&self, session: &Arc<Session>) {
        let start = Instant::now();
        let has_members = || {
            let open = session.members(|_, m| m.state.is_open());
            open.contains(&true)
        };
        while has_members() && start.elapsed() < FAREWELL {
            tokio::time::sleep(TICK).await;
        }
        // Clients that are still there need not wait for each other any more.
        for who in session.members(|who, _| who) {
            session.leaves(who, State::Gone, "");
        }
        session.close();
        let mut state = lock(&self.state);
        let is_last = |last: &Arc<Session>| Arc::ptr_eq(last, session);
        if state.leaving.as_ref().is_some_and(is_last) {
            state.leaving = None;
        }
    }

    /// Keeps the report of a job.
    pub(super) fn finished(&self, report: JobReport) {
        let mut state = lock(&self.state);
        state.finished.push(report);
        if state.finished.len() > KEPT {
            state.finished.remove(0);
        }
    }

    pub(super) fn is_stopping(&self) -> bool {
        lock(&self.state).stopping
    }

    pub(super) fn stop(&self) {
        lock(&self.state).stopping = true;
        self.changed.notify_waiters();
    }

    /// Aborts the session that runs.
    pub(super) fn abandon(&self, why: &str) {
        if let Some(session) = &lock(&self.state).session {
            session.stop(Abort::Misuse(why.into()));
        }
    }

    /// Waits until the members of the last job have left.
    pub(super) async fn farewell(&self) {
        let start = Instant::now();
        while lock(&self.state).leaving.is_some() && start.elapsed() < 2 * FAREWELL {
            tokio::time::sleep(TICK).await;
        }
    }

    /// Ends all connections. The clients may try again later.
    pub(super) fn dismiss(&self) {
        let mut state = lock(&self.state);
        for slot in state.slots.iter_mut().filter_map(Option::take) {
            slot.sender.refuse_for_now("the server is stopping");
        }
    }
}
