//! The hall: where clients say who they are, agree to the job, wait for the others, and return to when they lose their
//! connection.

use std::pin::Pin;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio_stream::Stream;
use tonic::{Request, Response, Streaming};
use undertone_party::{Abort, PartyId, SessionId};
use undertone_setup::identity::SIGNATURE_LEN;

use super::session::{Session, State, Way};
use super::{Caller, Config, FAREWELL, TICK, lock};
use crate::drive::Event;
use crate::flow::Violation;
use crate::metrics::Metrics;
use crate::roster::MAX_NAME;
use crate::status::JobReport;
use crate::tls::Traffic;
use crate::wire::{
    self, Challenge, ClientSays, FromClient, FromServer, Hello, Refusal, ServerSays,
};

/// Jobs of which reports are kept.
const KEPT: usize = 20;

/// Messages of a client that may be refused before its connection is.
const MAX_REFUSED: u32 = 100;

/// The server, as its connections see it.
pub(crate) struct Hall {
    pub(super) config: Config,
    pub(super) traffic: Arc<Traffic>,
    pub(super) open: Arc<AtomicUsize>,
    pub(super) metrics: Arc<Metrics>,
    connections: AtomicU64,
    changed: Notify,
    pub(super) state: Mutex<HallState>,
}

impl std::fmt::Debug for Hall {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Hall(..)")
    }
}

pub(super) struct HallState {
    /// Who is connected, in the order of the roster.
    pub(super) seats: Vec<Option<Seat>>,
    pub(super) session: Option<Arc<Session>>,
    /// The session of the last job, while clients leave it.
    leaving: Option<Arc<Session>>,
    /// When waiting began, and when somebody was first there to wait for others.
    pub(super) since: Instant,
    first: Option<Instant>,
    pub(super) job: u32,
    pub(super) stopping: bool,
    pub(super) finished: Vec<JobReport>,
}

pub(super) struct Seat {
    way: Way,
    caller: Caller,
    /// It agrees to the job and waits for one.
    pub(super) waits: bool,
}

/// A session that starts.
pub(super) struct Start {
    pub(super) session: Arc<Session>,
    pub(super) members: Vec<PartyId>,
}

impl Hall {
    pub(super) fn new(config: Config) -> Self {
        let seats = config.roster.entries().iter().map(|_| None).collect();
        let traffic = Arc::new(Traffic::default());
        Self {
            config,
            metrics: Arc::new(Metrics::new(Arc::clone(&traffic))),
            traffic,
            open: Arc::default(),
            connections: AtomicU64::new(0),
            changed: Notify::new(),
            state: Mutex::new(HallState {
                seats,
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

    /// Waits until enough clients are there; false when the server is to stop first.
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
                if state.stopping {
                    return false;
                }
                let here = state.seats.iter().flatten().filter(|seat| seat.waits);
                let here = here.count();
                if here > 0 {
                    state.first.get_or_insert_with(Instant::now);
                } else {
                    state.first = None;
                }
                let waited = match (state.first, self.config.wait) {
                    (Some(first), Some(wait)) => first.elapsed() >= wait,
                    _ => false,
                };
                let needed = self.config.job.params.min_clients;
                if here == state.seats.len() || waited && here >= needed {
                    return true;
                }
                if waited && !warned {
                    warned = true;
                    let entries = self.config.roster.entries().iter().zip(&state.seats);
                    let absent =
                        entries.filter(|(_, seat)| !seat.as_ref().is_some_and(|s| s.waits));
                    let absent: Vec<&str> = absent.map(|(entry, _)| &*entry.name).collect();
                    tracing::warn!(
                        here,
                        needed,
                        missing = absent.join(", "),
                        "too few clients to begin"
                    );
                }
            }
            let _ = tokio::time::timeout(TICK, changed).await;
        }
    }

    /// Starts a session with all who wait; or, `again`, with those of them and of the last session who are not excluded.
    pub(super) fn start(
        &self,
        id: SessionId,
        again: Option<&[PartyId]>,
        events: mpsc::Sender<Event>,
        window: impl Fn(usize) -> usize,
    ) -> Start {
        let mut state = lock(&self.state);
        let before = state.session.take();
        let excluded = again.unwrap_or(&[]);
        let was_in = |who: PartyId| {
            before
                .as_ref()
                .filter(|_| again.is_some())
                .is_some_and(|session| {
                    let is_in = session.members(|id, m| id == who && m.state == State::In);
                    is_in.contains(&true)
                })
        };
        let mut ways = Vec::new();
        for (index, seat) in state.seats.iter_mut().enumerate() {
            let who = PartyId::client(index);
            if let Some(seat) = seat
                && (seat.waits || was_in(who))
                && !excluded.contains(&who)
            {
                seat.waits = false;
                ways.push((who, seat.way.clone()));
            }
        }
        if let Some(before) = &before {
            before.close();
        }
        let window = window(ways.len() + 1);
        for (who, way) in &ways {
            way.say(ServerSays::Start(wire::Start {
                session: id.0.to_vec().into(),
                client: who.to_wire(),
                window: window as u64,
            }));
        }
        let members = ways.iter().map(|(who, _)| *who).collect();
        let metrics = Arc::clone(&self.metrics);
        let session = Arc::new(Session::new(id, window, ways, events, metrics));
        state.session = Some(Arc::clone(&session));
        Start { session, members }
    }

    /// Whether a client is connected.
    pub(super) fn is_here(&self, who: PartyId) -> bool {
        let state = lock(&self.state);
        let seat = who.index().and_then(|index| state.seats.get(index));
        seat.is_some_and(Option::is_some)
    }

    /// Cuts the connections of some clients, once they have been told why.
    pub(super) fn expel(&self, whom: &[PartyId], why: &str) {
        let mut state = lock(&self.state);
        for who in whom {
            let seat = who.index().and_then(|index| state.seats.get_mut(index));
            if let Some(seat) = seat.and_then(Option::take) {
                seat.way.say(refusal(why, false));
                // Time enough to hear it.
                tokio::spawn(async move {
                    tokio::time::sleep(Duration::from_secs(1)).await;
                    seat.caller.pass.cut();
                });
            }
        }
    }

    /// A job has ended: who took part says goodbye, or is told.
    pub(super) fn leave(self: &Arc<Self>, session: &Arc<Session>, done: bool) {
        let hall = Arc::clone(self);
        let session = Arc::clone(session);
        if !done {
            let (why, later) = match self.is_stopping() {
                true => ("the server stops", true),
                false => ("the server's log says why", false),
            };
            for way in session.ways() {
                way.say(refusal(why, later));
            }
        }
        // What clients still send each other is relayed until they have gone.
        {
            let mut state = lock(&self.state);
            state.session = None;
            state.leaving = Some(Arc::clone(&session));
        }
        tokio::spawn(async move {
            let start = Instant::now();
            let waits = |session: &Session| {
                let open = session.members(|_, m| matches!(m.state, State::In | State::Away(_)));
                open.contains(&true)
            };
            while waits(&session) && start.elapsed() < FAREWELL {
                tokio::time::sleep(TICK).await;
            }
            // Who is still there waits for nobody else any more.
            for who in session.members(|who, _| who) {
                session.leaves(who, State::Gone);
            }
            session.close();
            let mut state = lock(&hall.state);
            let is_last = |last: &Arc<Session>| Arc::ptr_eq(last, &session);
            if state.leaving.as_ref().is_some_and(is_last) {
                state.leaving = None;
            }
        });
    }

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

    pub(super) fn abandon(&self, why: &str) {
        if let Some(session) = &lock(&self.state).session {
            session.stop(Abort::Misuse(why.into()));
        }
    }

    /// Waits until those who took part in the last job have gone.
    pub(super) async fn farewell(&self) {
        let start = Instant::now();
        while lock(&self.state).leaving.is_some() && start.elapsed() < 2 * FAREWELL {
            tokio::time::sleep(TICK).await;
        }
    }

    /// Ends all connections: who still waits is told to come again later.
    pub(super) fn dismiss(&self) {
        for seat in lock(&self.state).seats.iter_mut().filter_map(Option::take) {
            seat.way.say(refusal("the server stops", true));
        }
    }

    /// Who a caller is, if it can prove it.
    fn identify(
        &self,
        caller: &Caller,
        nonce: &[u8; 32],
        hello: &Hello,
    ) -> Result<PartyId, String> {
        let name: String = hello.name.chars().take(MAX_NAME).collect();
        let unknown = || format!("{}: {name:?} is not on the roster", caller.address);
        let who = self.config.roster.find(&hello.name).ok_or_else(unknown)?;
        let entry = who
            .index()
            .and_then(|i| self.config.roster.entries().get(i));
        let entry = entry.ok_or_else(unknown)?;
        if entry.certificate.is_some() && entry.certificate == caller.certificate {
            return Ok(who);
        }
        let signature: Option<[u8; SIGNATURE_LEN]> = hello.signature[..].try_into().ok();
        let is_signed = signature.is_some_and(|signature| {
            let body = wire::hello_body(&caller.exported, &hello.name);
            let pins = self.config.roster.pins();
            pins.verify(who, SessionId(*nonce), wire::HELLO, &body, &signature)
        });
        match is_signed {
            true => Ok(who),
            false => Err(format!("{}: cannot prove to be {name:?}", caller.address)),
        }
    }

    /// A client has proved who it is. Tells the session it goes on with, if it does.
    fn arrives(
        &self,
        who: PartyId,
        caller: &Caller,
        way: &Way,
        hello: &Hello,
    ) -> Option<Arc<Session>> {
        let mut state = lock(&self.state);
        let sessions = [state.session.clone(), state.leaving.clone()];
        let seat = who.index().and_then(|index| state.seats.get_mut(index))?;
        let before = seat.replace(Seat {
            way: way.clone(),
            caller: caller.clone(),
            waits: false,
        });
        if let Some(before) = before {
            let name = self.config.roster.name(who);
            let (old, new) = (before.caller.address, caller.address);
            tracing::info!(client = name, %old, %new, "another connection takes its place");
            before.way.say(refusal(
                "another connection has proved to be this client",
                false,
            ));
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_secs(1)).await;
                before.caller.pass.cut();
            });
        }
        let resume = hello.resume.as_ref();
        let asked = resume.and_then(|resume| wire::session(&resume.session));
        let mut goes_on = None;
        for session in sessions.into_iter().flatten() {
            if Some(session.id) == asked {
                goes_on = Some(session);
            } else {
                // It has forgotten this session, if it ever was in it.
                session.leaves(who, State::Gone);
            }
        }
        let (session, resume) = (goes_on?, resume?);
        if !session.may_return(who) {
            return None;
        }
        let taken = resume.taken.iter().take(self.config.roster.len() + 1);
        let taken: Vec<(PartyId, u32)> = taken
            .map(|taken| (PartyId::from_wire(taken.peer), taken.next))
            .collect();
        session.returns(who, way, &taken).then_some(session)
    }

    /// Talks with one client from hello to goodbye.
    async fn converse(
        self: Arc<Self>,
        caller: Caller,
        mut stream: Streaming<FromClient>,
        way: Way,
    ) {
        let mut nonce = [0; 32];
        if getrandom::fill(&mut nonce).is_err() {
            return;
        }
        way.say(ServerSays::Challenge(Challenge {
            version: wire::VERSION,
            nonce: nonce.to_vec().into(),
        }));
        let hello = tokio::time::timeout(self.config.patience, stream.message()).await;
        let Ok(Ok(Some(FromClient {
            what: Some(ClientSays::Hello(hello)),
        }))) = hello
        else {
            self.metrics
                .refuse("hello", &format!("{}: no hello", caller.address));
            caller.pass.cut();
            return;
        };
        let who = match self.identify(&caller, &nonce, &hello) {
            Ok(who) => who,
            Err(why) => {
                self.metrics.refuse("hello", &why);
                way.say(refusal(
                    "the server does not know you by this name and key",
                    false,
                ));
                return;
            }
        };
        caller.pass.grant();
        let name = self.config.roster.name(who).to_owned();
        let mut attached = self.arrives(who, &caller, &way, &hello);
        tracing::info!(client = name, address = %caller.address, returns = attached.is_some(), "connected");
        if attached.is_none() {
            way.say(ServerSays::Offer(self.config.job.to_wire()));
        }
        let mut left = None;
        let mut refused = 0;
        loop {
            let what = match stream.message().await {
                Ok(Some(FromClient { what: Some(what) })) => what,
                // From a newer version.
                Ok(Some(FromClient { what: None })) => continue,
                Ok(None) => break,
                Err(status) => {
                    if status.code() == tonic::Code::OutOfRange {
                        let why = format!("{name}: {}", status.message());
                        self.metrics.refuse("frame", &why);
                    }
                    break;
                }
            };
            match what {
                ClientSays::Answer(answer) => {
                    self.answers(who, &way, &answer.declined);
                    if !answer.declined.is_empty() {
                        break;
                    }
                }
                ClientSays::Ready(ready) => {
                    let current = lock(&self.state).session.clone();
                    let id = wire::session(&ready.session);
                    attached = current.filter(|session| Some(session.id) == id);
                }
                ClientSays::Goodbye(goodbye) => {
                    if let (Some(session), Some(accused)) = (&attached, goodbye.accuses) {
                        session.accuses(who, PartyId::from_wire(accused));
                    }
                    left = Some(goodbye.finished);
                    break;
                }
                ClientSays::Progress(progress) => {
                    if let Some(session) = &attached {
                        session.progress(who, &progress);
                    }
                }
                ClientSays::Hello(_) => refused += 1,
                ClientSays::Frame(frame) => {
                    refused += self.heard(&name, &attached, |s| s.frame(who, frame));
                }
                ClientSays::Taken(taken) => {
                    let peer = PartyId::from_wire(taken.peer);
                    refused += self.heard(&name, &attached, |s| s.taken(who, peer, taken.next));
                }
            }
            if refused > MAX_REFUSED {
                self.metrics
                    .refuse("client", &format!("{name}: too much was refused"));
                left = Some(false);
                break;
            }
        }
        self.departs(who, &way, attached.as_deref(), left);
    }

    /// Counts what is refused.
    fn heard(
        &self,
        name: &str,
        session: &Option<Arc<Session>>,
        take: impl FnOnce(&Session) -> Result<(), Violation>,
    ) -> u32 {
        let taken = session.as_ref().map_or(Ok(()), |session| take(session));
        match taken {
            Ok(()) => 0,
            Err(why) => {
                self.metrics.refuse("frame", &format!("{name}: {why}"));
                1
            }
        }
    }

    fn answers(&self, who: PartyId, way: &Way, declined: &str) {
        let mut state = lock(&self.state);
        let seat = who.index().and_then(|index| state.seats.get_mut(index));
        let Some(Some(seat)) = seat else {
            return;
        };
        if seat.way.connection != way.connection {
            return;
        }
        if declined.is_empty() {
            seat.waits = true;
        } else {
            let why: String = declined.chars().take(200).collect();
            let name = self.config.roster.name(who);
            tracing::warn!(client = name, why, "declined the job");
        }
        drop(state);
        self.changed.notify_waiters();
    }

    fn departs(&self, who: PartyId, way: &Way, session: Option<&Session>, left: Option<bool>) {
        let mut state = lock(&self.state);
        let seat = who.index().and_then(|index| state.seats.get_mut(index));
        if let Some(seat) = seat
            && seat
                .as_ref()
                .is_some_and(|seat| seat.way.connection == way.connection)
        {
            *seat = None;
        }
        let current = state.session.clone();
        drop(state);
        let name = self.config.roster.name(who);
        tracing::info!(client = name, goodbye = left.is_some(), "disconnected");
        // A client may be in a session it has not heard of.
        for session in session.into_iter().chain(current.as_deref()) {
            if session.is_by(who, way.connection)
                && let Some(finished) = left
            {
                let state = if finished {
                    State::Finished
                } else {
                    State::Gone
                };
                session.leaves(who, state);
            }
            session.lost(who, way.connection);
        }
        self.changed.notify_waiters();
    }
}

fn refusal(why: &str, later: bool) -> ServerSays {
    ServerSays::Refusal(Refusal {
        why: why.to_owned(),
        later,
    })
}

/// What goes out by one connection.
pub(crate) struct Outgoing(UnboundedReceiver<ServerSays>);

impl Stream for Outgoing {
    type Item = Result<FromServer, tonic::Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let said = self.0.poll_recv(cx);
        said.map(|said| said.map(|what| Ok(wire::from_server(what))))
    }
}

/// The hall, as gRPC sees it.
pub(super) struct Service(pub(super) Arc<Hall>);

#[tonic::async_trait]
impl wire::Undertone for Service {
    type ConnectStream = Outgoing;

    async fn connect(
        &self,
        request: Request<Streaming<FromClient>>,
    ) -> Result<Response<Outgoing>, tonic::Status> {
        let Some(caller) = request.extensions().get::<Caller>().cloned() else {
            return Err(tonic::Status::internal("a connection without TLS"));
        };
        let (sender, queue) = tokio::sync::mpsc::unbounded_channel();
        let way = Way {
            connection: self.0.connections.fetch_add(1, Ordering::Relaxed),
            sender,
        };
        let hall = Arc::clone(&self.0);
        tokio::spawn(hall.converse(caller, request.into_inner(), way));
        Ok(Response::new(Outgoing(queue)))
    }
}
