//! The lobby: who is connected, who waits for a job, and which session runs.
//!
//! Locks are taken in one order: the lobby's, then a session's.

use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use undertone_party::{Abort, PartyId, SessionId};

use super::connection::Sender;
use super::session::{Session, State};
use super::{Caller, Config, FAREWELL, TICK, lock};
use crate::drive::Event;
use crate::metrics::Metrics;
use crate::roster::Roster;
use crate::status::JobReport;
use crate::tls::Traffic;
use crate::wire::{self, ServerSays};

/// How many reports of jobs are kept.
const KEPT: usize = 20;

/// How long a refusal may take to arrive before the connection is cut.
const REFUSAL: Duration = Duration::from_secs(1);

/// The server, as its connections see it.
pub(crate) struct Lobby {
    pub(super) config: Config,
    pub(super) traffic: Arc<Traffic>,
    pub(super) open: Arc<AtomicUsize>,
    pub(super) metrics: Arc<Metrics>,
    /// How many connections there have been.
    pub(super) connections: AtomicU64,
    /// Wakes up whoever waits for clients to gather.
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
    /// The session that runs.
    pub(super) session: Option<Arc<Session>>,
    /// The session of the last job, until its clients have left it.
    pub(super) leaving: Option<Arc<Session>>,
    /// When the server began to wait for clients.
    pub(super) since: Instant,
    /// Since when at least one client has been waiting.
    first: Option<Instant>,
    pub(super) job: u32,
    pub(super) stopping: bool,
    pub(super) finished: Vec<JobReport>,
}

/// A connected client.
pub(super) struct Slot {
    pub(super) sender: Sender,
    pub(super) caller: Caller,
    /// Whether it agrees to the job and waits for it.
    pub(super) waits: bool,
}

impl Slot {
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

/// A session that starts.
pub(super) struct Start {
    pub(super) session: Arc<Session>,
    pub(super) members: Vec<PartyId>,
}

/// How far the clients of a job have gathered.
enum Gathering {
    /// Enough are there.
    Ready,
    /// There is still time for others to come.
    Waiting,
    /// Time is up, and only `here` clients wait.
    TooFew { here: usize },
    /// The server is to stop.
    Stopping,
}

impl LobbyState {
    pub(super) fn slot(&mut self, who: PartyId) -> Option<&mut Option<Slot>> {
        who.index().and_then(|index| self.slots.get_mut(index))
    }

    fn gathering(&mut self, config: &Config) -> Gathering {
        if self.stopping {
            return Gathering::Stopping;
        }
        let here = self.slots.iter().flatten().filter(|slot| slot.waits);
        let here = here.count();
        if here > 0 {
            self.first.get_or_insert_with(Instant::now);
        } else {
            self.first = None;
        }
        let is_late = self
            .first
            .zip(config.wait)
            .is_some_and(|(first, wait)| first.elapsed() >= wait);
        if here == self.slots.len() || is_late && here >= config.job.params.min_clients {
            Gathering::Ready
        } else if is_late {
            Gathering::TooFew { here }
        } else {
            Gathering::Waiting
        }
    }

    /// Names of the clients that do not wait for the job.
    fn missing(&self, roster: &Roster) -> String {
        let entries = roster.entries().iter().zip(&self.slots);
        let missing = entries.filter(|(_, slot)| !slot.as_ref().is_some_and(|slot| slot.waits));
        let missing: Vec<&str> = missing.map(|(entry, _)| &*entry.name).collect();
        missing.join(", ")
    }
}

impl Lobby {
    pub(super) fn new(config: Config) -> Self {
        let slots = config.roster.entries().iter().map(|_| None).collect();
        let traffic = Arc::new(Traffic::default());
        Self {
            config,
            metrics: Arc::new(Metrics::new(Arc::clone(&traffic))),
            traffic,
            open: Arc::default(),
            connections: AtomicU64::new(0),
            changed: Notify::new(),
            state: Mutex::new(LobbyState {
                slots,
                session: None,
                leaving: None,
                since: Instant::now(),
                first: None,
                job: 1,
                stopping: false,
                finished: Vec::new(),
            }),
        }
    }

    /// Waits until enough clients wait for `job`. Returns false when the server is to stop first.
    #[must_use]
    pub(super) async fn gathered(&self, job: u32) -> bool {
        {
            let mut state = lock(&self.state);
            state.job = job;
            state.since = Instant::now();
            state.first = None;
        }
        let mut warned = false;
        loop {
            let changed = self.changed.notified();
            {
                let mut state = lock(&self.state);
                match state.gathering(&self.config) {
                    Gathering::Ready => return true,
                    Gathering::Stopping => return false,
                    Gathering::TooFew { here } if !warned => {
                        warned = true;
                        tracing::warn!(
                            here,
                            needed = self.config.job.params.min_clients,
                            missing = state.missing(&self.config.roster),
                            "too few clients to begin"
                        );
                    }
                    Gathering::TooFew { .. } | Gathering::Waiting => {}
                }
            }
            let _ = tokio::time::timeout(TICK, changed).await;
        }
    }

    /// Starts a session with all clients that wait. With `excluded`, the session replaces the last
    /// one: clients still in that one take part too, but none that is excluded.
    pub(super) fn start(
        &self,
        id: SessionId,
        excluded: Option<&[PartyId]>,
        events: mpsc::Sender<Event>,
        window: impl Fn(usize) -> usize,
    ) -> Start {
        let mut state = lock(&self.state);
        let before = state.session.take();
        let replaced = before.as_ref().filter(|_| excluded.is_some());
        let was_in = |who: PartyId| {
            replaced.is_some_and(|session| {
                let is_in = session.members(|id, m| id == who && m.state == State::In);
                is_in.contains(&true)
            })
        };
        let excluded = excluded.unwrap_or(&[]);
        let mut senders = Vec::new();
        for (index, slot) in state.slots.iter_mut().enumerate() {
            let who = PartyId::client(index);
            if let Some(slot) = slot
                && (slot.waits || was_in(who))
                && !excluded.contains(&who)
            {
                slot.waits = false;
                senders.push((who, slot.sender.clone()));
            }
        }
        if let Some(before) = &before {
            before.close();
        }
        let window = window(senders.len() + 1);
        for (who, sender) in &senders {
            sender.say(ServerSays::Start(wire::Start {
                session: id.0.to_vec().into(),
                client: who.to_wire(),
                window: window as u64,
            }));
        }
        let members = senders.iter().map(|(who, _)| *who).collect();
        let metrics = Arc::clone(&self.metrics);
        let session = Arc::new(Session::new(id, window, senders, events, metrics));
        state.session = Some(Arc::clone(&session));
        Start { session, members }
    }

    /// Whether a client is connected.
    pub(super) fn is_here(&self, who: PartyId) -> bool {
        let mut state = lock(&self.state);
        state.slot(who).is_some_and(|slot| slot.is_some())
    }

    /// Tells some clients why they are expelled, and cuts their connections.
    pub(super) fn expel(&self, whom: &[PartyId], why: &str) {
        let mut state = lock(&self.state);
        for who in whom {
            if let Some(slot) = state.slot(*who).and_then(Option::take) {
                slot.cut(why);
            }
        }
    }

    /// Frees the slot of a client whose connection ended, unless another connection has taken it.
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

    /// Ends the session of a job that is over. Its members are told when the job is not `done`. The
    /// session relays what they still send each other until they have left.
    pub(super) fn leave(self: &Arc<Self>, session: &Arc<Session>, done: bool) {
        if !done {
            let stopping = self.is_stopping();
            for sender in session.senders() {
                if stopping {
                    sender.refuse_for_now("the server stops");
                } else {
                    sender.refuse("the server's log says why");
                }
            }
        }
        {
            let mut state = lock(&self.state);
            state.session = None;
            state.leaving = Some(Arc::clone(session));
        }
        let lobby = Arc::clone(self);
        let session = Arc::clone(session);
        tokio::spawn(async move { lobby.see_off(&session).await });
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
        // A client that is still there need not wait for the others any more.
        for who in session.members(|who, _| who) {
            session.leaves(who, State::Gone);
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
            slot.sender.refuse_for_now("the server stops");
        }
    }
}
