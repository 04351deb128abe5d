//! The lobby: the connected clients, those that wait for a session, and the session that runs.
//!
//! Locks are taken in one order: the lobby's, then a session's.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use undertone_job::columns;
use undertone_party::{Abort, PartyId, SessionId};

use super::connection::Sender;
use super::session::{Session, State};
use super::{About, Caller, Config, FAREWELL, TICK, lock};
use crate::application::Facts;
use crate::drive::Event;
use crate::metrics::Metrics;
use crate::roster::Roster;
use crate::status::JobReport;
use crate::tls::Traffic;
use crate::wire::{self, Answer, ServerSays};

/// Most reports of jobs that are kept.
const KEPT: usize = 20;

/// How long a refusal may take to arrive before the connection is cut.
const REFUSAL: Duration = Duration::from_secs(1);

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
    pub(super) state: Mutex<LobbyState>,
}

impl std::fmt::Debug for Lobby {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Lobby(..)")
    }
}

pub(super) struct LobbyState {
    /// The connected clients, in the order of the roster.
    pub(super) slots: Vec<Option<Slot>>,
    /// The reasons of clients that declined the job and have not accepted it since.
    pub(super) declined: BTreeMap<PartyId, String>,
    /// The digests of the columns of clients that have accepted the job, where they have names.
    columns: BTreeMap<PartyId, [u8; 32]>,
    /// Clients that are expelled from the present job for cheating.
    expelled: Vec<PartyId>,
    /// Clients that have declined the session with the present number, and decline it again if it
    /// is repeated.
    pub(super) skipped: Vec<PartyId>,
    /// The clients that can take part in the next session, if not all can.
    eligible: Option<Vec<PartyId>>,
    /// The session that runs.
    pub(super) session: Option<Arc<Session>>,
    /// The last session, until its clients have left it.
    pub(super) leaving: Option<Arc<Session>>,
    /// When the server began to wait for clients.
    pub(super) since: Instant,
    /// When the first of the clients that wait began to wait.
    first: Option<Instant>,
    pub(super) job: u32,
    /// Number of the current or next session in the job.
    pub(super) number: u32,
    /// The results of the job so far.
    pub(super) results: Facts,
    pub(super) stopping: bool,
    pub(super) finished: Vec<JobReport>,
}

/// A connected client.
pub(super) struct Slot {
    pub(super) sender: Sender,
    pub(super) caller: Caller,
    /// Whether it has agreed to the job.
    agreed: bool,
    /// Whether it waits for the next session.
    pub(super) waits: bool,
    /// Whether it was present when a session of the present job began.
    in_job: bool,
}

impl Slot {
    pub(super) fn new(sender: Sender, caller: Caller) -> Self {
        Self {
            sender,
            caller,
            agreed: false,
            waits: false,
            in_job: false,
        }
    }

    /// The client is back in a session, so it has agreed to the job.
    pub(super) fn resumes(&mut self) {
        self.agreed = true;
        self.in_job = true;
    }

    /// Tells the client why, then cuts its connection.
    pub(super) fn cut(self, why: &str) {
        self.sender.refuse(why);
        let pass = self.caller.pass;
        tokio::spawn(async move {
            tokio::time::sleep(REFUSAL).await;
            pass.cut();
        });
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

/// Which clients a session waits for before it begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Gather {
    /// The first session of a job: all clients of the roster, or those that come in time.
    First,
    /// The first session of a job that an earlier process began: the same, but for the grace time
    /// if [`Config::wait`] is not set.
    Resumed,
    /// A later session: all clients that are connected and have agreed to the job.
    Next,
}

/// Whether the clients of a session have gathered.
enum Gathering {
    /// Enough clients wait.
    Ready,
    /// Other clients still have time to come.
    Waiting,
    /// Time is up, and only `here` clients wait.
    TooFew { here: usize },
    /// The server is to stop.
    Stopping,
}

/// Whether a session can begin.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Gathered {
    /// Enough clients wait for it.
    Enough,
    /// Too few clients of the job are left, for this reason.
    TooFew(String),
    /// The server is to stop.
    Stopping,
}

impl LobbyState {
    pub(super) fn slot(&mut self, who: PartyId) -> Option<&mut Option<Slot>> {
        who.index().and_then(|index| self.slots.get_mut(index))
    }

    /// The clients that wait for the next session, in ascending order.
    fn present(&self) -> Vec<PartyId> {
        let clients = self.slots.iter().enumerate();
        let waiting = clients.filter(|(_, slot)| slot.as_ref().is_some_and(|slot| slot.waits));
        let waiting = waiting.map(|(index, _)| PartyId::client(index));
        waiting.filter(|who| self.may_take_part(*who)).collect()
    }

    /// Whether the client can take part in the next session, if it is connected.
    fn may_take_part(&self, who: PartyId) -> bool {
        let is_eligible = self.eligible.as_ref().is_none_or(|all| all.contains(&who));
        is_eligible && !self.expelled.contains(&who)
    }

    fn gathering(
        &mut self,
        config: &Config,
        needed: usize,
        can_begin: &mut (dyn FnMut(&[PartyId]) -> bool + Send),
        whom: Gather,
    ) -> Gathering {
        if self.stopping {
            return Gathering::Stopping;
        }
        let present = self.present();
        let here = present.len();
        let is_enough = here >= needed && can_begin(&present);
        if whom == Gather::Next {
            let connected = self.slots.iter().enumerate().filter(|(index, slot)| {
                slot.as_ref().is_some_and(|slot| slot.agreed)
                    && self.may_take_part(PartyId::client(*index))
            });
            let time = self.since.elapsed();
            return if is_enough && (here == connected.count() || time >= config.grace) {
                Gathering::Ready
            } else if time >= config.grace.max(config.wait.unwrap_or_default()) {
                Gathering::TooFew { here }
            } else {
                Gathering::Waiting
            };
        }
        if here > 0 {
            self.first.get_or_insert_with(Instant::now);
        } else {
            self.first = None;
        }
        let wait = match whom {
            Gather::Resumed => Some(config.wait.unwrap_or(config.grace)),
            _ => config.wait,
        };
        let is_late = self
            .first
            .zip(wait)
            .is_some_and(|(first, wait)| first.elapsed() >= wait);
        if here == self.slots.len() || is_late && is_enough {
            Gathering::Ready
        } else if is_late {
            Gathering::TooFew { here }
        } else {
            Gathering::Waiting
        }
    }

    /// Refuses the clients whose columns are not those of most clients that wait (NET-35).
    ///
    /// Returns whether there were any.
    fn turn_away(&mut self, roster: &Roster) -> bool {
        let present = self.present();
        let columns = present
            .iter()
            .map(|who| (*who, roster.name(*who), self.columns.get(who)));
        let columns = columns.map(|(who, name, digest)| (who, name, digest.copied()));
        let Some((odd, why)) = columns::strangers(columns) else {
            return false;
        };
        for who in odd {
            let name = roster.name(who);
            tracing::warn!(client = name, why, "refused");
            if let Some(slot) = self.slot(who).and_then(Option::take) {
                slot.cut(&why);
            }
            self.notify(&format!("{name} was refused: {why}"), who);
            self.declined.insert(who, why.clone());
        }
        true
    }

    /// Names of the clients that do not wait for a session, with the reasons of those that
    /// declined.
    fn missing(&self, roster: &Roster) -> String {
        let clients = roster.entries().iter().zip(&self.slots).enumerate();
        let missing = clients.filter(|(_, (_, slot))| !slot.as_ref().is_some_and(|s| s.waits));
        let missing: Vec<String> = missing
            .map(
                |(index, (entry, _))| match self.declined.get(&PartyId::client(index)) {
                    Some(why) => format!("{} (declined: {why})", entry.name),
                    None => entry.name.clone(),
                },
            )
            .collect();
        missing.join(", ")
    }

    /// Tells all clients that have agreed to the job, except `who`.
    fn notify(&self, text: &str, who: PartyId) {
        for (index, slot) in self.slots.iter().enumerate() {
            if let Some(slot) = slot
                && slot.agreed
                && PartyId::client(index) != who
            {
                slot.sender.notice(text);
            }
        }
    }
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
            state: Mutex::new(LobbyState {
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
