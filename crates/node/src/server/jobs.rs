//! Jobs, one after the other: their sessions, deadlines and reports.

use std::collections::BTreeMap;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use undertone_job::SessionContext;
use undertone_party::{Abort, Aborted, Endpoint, Ledger, PartyId, Phase};

use super::lobby::{Lobby, Start};
use super::registry::{Gather, Gathered};
use super::session::{ServerLine, Session, State};
use super::{FAREWELL, ServeError, TICK};
use crate::application::Next;
use crate::drive::{self, drive, limits, limits_of_the_server};
use crate::erased::{AnyApplication, Output};
use crate::flow::Links;
use crate::memory;
use crate::roster::hex;
use crate::status::{JobReport, phase_statuses};

/// Smallest and largest window of a link in bytes.
const WINDOW: (usize, usize) = (256 << 10, 4 << 20);

/// Most runs of a session. It is repeated when clients were expelled for cheating.
const ATTEMPTS: u32 = 3;

/// A running job.
struct Running {
    job: u32,
    start: Instant,
    /// Bytes that the server's sockets had received when the job began.
    received: u64,
    /// Bytes that the server's sockets had sent when the job began.
    sent: u64,
    /// The number of sessions so far.
    sessions: u32,
    /// The first digits of the last session's id.
    session: String,
    /// The number of clients at the start of the last session.
    clients: usize,
    /// The costs of the server's parties.
    ledger: Ledger,
    /// The time in each phase, by phase number.
    times: BTreeMap<u8, Duration>,
    /// Frame bytes from client to client.
    relayed: u64,
    spared: u64,
    /// The first failure of the session that is repeated. What follows from it, such as values that
    /// are spent, does not help anybody.
    first: Option<Failed>,
}

/// Why a session failed.
#[derive(Debug, Clone)]
struct Failed {
    /// The session's number.
    number: u32,
    phase: Phase,
    why: String,
}

impl Running {
    fn new(lobby: &Lobby, job: u32) -> Self {
        Self {
            job,
            start: Instant::now(),
            received: lobby.traffic.received(),
            sent: lobby.traffic.sent(),
            sessions: 0,
            session: String::new(),
            clients: 0,
            ledger: Ledger::default(),
            times: BTreeMap::new(),
            relayed: 0,
            spared: 0,
            first: None,
        }
    }

    /// Notes the end of session `number`. A cheater is a reason of its own, whatever came before.
    fn note(&mut self, lobby: &Lobby, number: u32, result: &Result<Output, Aborted>) {
        let Err(aborted) = result else {
            self.first = None;
            return;
        };
        let is_first = self
            .first
            .as_ref()
            .is_none_or(|first| first.number != number);
        if is_first || !culprits(&aborted.cause).is_empty() {
            self.first = Some(Failed {
                number,
                phase: aborted.phase,
                why: named(lobby, &aborted.to_string()),
            });
        }
    }

    /// The end of a job that its first failure ends. `more` says what is missing for another try.
    fn failed(&self, more: Option<String>) -> Outcome {
        match (&self.first, more) {
            (Some(Failed { phase, why, .. }), None) => Outcome::Aborted(Some(*phase), why.clone()),
            (Some(Failed { phase, why, .. }), Some(more)) => {
                Outcome::Aborted(Some(*phase), format!("{why}; {more}"))
            }
            (None, more) => Outcome::Aborted(None, more.unwrap_or_default()),
        }
    }

    /// Adds the costs of a session.
    fn add(&mut self, ended: &Ended) {
        self.sessions += 1;
        self.session = hex(&ended.session.id.0)[..8].to_owned();
        self.clients = ended.clients;
        self.ledger.add(&ended.ledger);
        for (phase, time) in ended.session.times() {
            *self.times.entry(phase).or_default() += time;
        }
        self.relayed += ended.session.relayed();
        self.spared += ended.session.spared();
    }
}

/// A session that has ended.
struct Ended {
    session: Arc<Session>,
    /// The number of clients at its start.
    clients: usize,
    result: Result<Output, Aborted>,
    ledger: Ledger,
}

/// How a job ended.
enum Outcome {
    Done,
    /// Without a result: the phase in which it ended, if any, and the reason.
    Aborted(Option<Phase>, String),
}

/// Runs jobs until it has run the configured number, or the server is asked to stop.
pub(super) async fn jobs(
    lobby: &Arc<Lobby>,
    application: &mut dyn AnyApplication,
    done: &mut (dyn FnMut(&JobReport) + Send),
) -> Result<(), ServeError> {
    for job in 1..=lobby.config.jobs.unwrap_or(u32::MAX) {
        application.ready().map_err(ServeError::NotReady)?;
        application.begin();
        lobby.begin(job);
        lobby.came_to(application.results());
        let number = application.session();
        let whom = if number == 0 {
            Gather::First
        } else {
            Gather::Resumed
        };
        let needed = application.needed(lobby.config.roster.len());
        let eligible = application.eligible();
        let gathered = {
            let mut can_begin = |present: &[PartyId]| application.can_begin(present);
            lobby
                .gathered(number, needed, &mut can_begin, eligible, whom)
                .await
        };
        if gathered != Gathered::Enough {
            break;
        }
        let report = run_job(lobby, application, job).await?;
        tracing::info!(
            job,
            result = report.result,
            seconds = report.seconds,
            "job ended"
        );
        done(&report);
        lobby.finished(report);
    }
    Ok(())
}

/// Runs the sessions of a job.
async fn run_job(
    lobby: &Arc<Lobby>,
    application: &mut dyn AnyApplication,
    job: u32,
) -> Result<JobReport, ServeError> {
    let mut running = Running::new(lobby, job);
    let outcome = loop {
        let number = application.session();
        let result = settled(lobby, application, &mut running).await?;
        let failed = result.as_ref().err().cloned();
        let next = application.ended(match result {
            Ok(report) => Ok(report),
            Err(ref aborted) => Err(aborted),
        });
        lobby.came_to(application.results());
        let needed = application.needed(lobby.config.roster.len());
        match (next, &failed) {
            (Next::Done, None) => break Outcome::Done,
            (Next::Done, Some(_)) => break running.failed(None),
            (Next::Again, Some(aborted)) if matches!(aborted.cause, Abort::Final(_)) => {
                break running.failed(None);
            }
            // Clients whose values are spent do not come back to it.
            (Next::Again, Some(_))
                if application.session() == number && lobby.possible() < needed =>
            {
                break running.failed(None);
            }
            (Next::Again, _) if is_late(lobby, running.start) => {
                break Outcome::Aborted(None, LATE.into());
            }
            (Next::Again, failed) => {
                if let Some(aborted) = failed {
                    let why = named(lobby, &aborted.to_string());
                    tracing::warn!(why, "the session failed");
                }
                let number = application.session();
                let eligible = application.eligible();
                let gathered = {
                    let mut can_begin = |present: &[PartyId]| application.can_begin(present);
                    let next = Gather::Next;
                    lobby
                        .gathered(number, needed, &mut can_begin, eligible, next)
                        .await
                };
                match gathered {
                    Gathered::Enough => {}
                    Gathered::TooFew(few) => break running.failed(Some(few)),
                    Gathered::Stopping => {
                        break Outcome::Aborted(None, "the server is stopping".into());
                    }
                }
            }
        }
    };
    let report = report(lobby, &running, &outcome, application);
    let result = match &outcome {
        Outcome::Done => "done",
        Outcome::Aborted(..) => "aborted",
    };
    lobby.metrics.job(result, running.start.elapsed());
    // A server that stops tells its clients so later. They then try to reach it again.
    if !lobby.is_stopping() {
        lobby.over(match &outcome {
            Outcome::Done => "",
            Outcome::Aborted(_, why) => why,
        });
    }
    Ok(report)
}

/// Runs a session. Expels clients that are caught cheating and runs the session again without them,
/// at most [`ATTEMPTS`] times in all.
async fn settled(
    lobby: &Arc<Lobby>,
    application: &mut dyn AnyApplication,
    running: &mut Running,
) -> Result<Result<Output, Aborted>, ServeError> {
    let mut attempts = 0;
    let number = application.session();
    loop {
        attempts += 1;
        let ended = run_session(lobby, application, running).await?;
        running.add(&ended);
        running.note(lobby, number, &ended.result);
        let aborted = match ended.result {
            Ok(report) => {
                lobby.leave(&ended.session, true);
                return Ok(Ok(report));
            }
            Err(aborted) => aborted,
        };
        let culprits = culprits(&aborted.cause);
        lobby.exclude(&culprits);
        lobby.leave(&ended.session, false);
        let why = named(lobby, &aborted.to_string());
        for culprit in &culprits {
            let name = lobby.config.roster.name(*culprit);
            tracing::warn!(client = name, why, "expelled from the job");
        }
        lobby.expel(&culprits, &format!("expelled from the job: {why}"));
        // NET-24
        let again = !culprits.is_empty()
            && lobby.present() >= application.needed(lobby.config.roster.len())
            && attempts < ATTEMPTS
            && application.session() == number
            && !lobby.is_stopping();
        if !again {
            return Ok(Err(aborted));
        }
    }
}

/// The clients to expel from the job.
fn culprits(cause: &Abort) -> Vec<PartyId> {
    match cause {
        Abort::Contradicted { first, second, .. } => vec![*first, *second],
        Abort::Malformed { .. } | Abort::Cheated { .. } => cause.culprit().into_iter().collect(),
        _ => Vec::new(),
    }
}

/// Runs one session with the clients that wait for it.
async fn run_session(
    lobby: &Arc<Lobby>,
    application: &mut dyn AnyApplication,
    running: &Running,
) -> Result<Ended, ServeError> {
    let job = running.job;
    let config = &lobby.config;
    let system = |what: &'static str| move |_| ServeError::System(what.into());
    let randomness = &config.randomness;
    let number = application.session();
    let id = randomness
        .session(job, number)
        .map_err(system("randomness"))?;
    let seed = randomness
        .party(id, PartyId::SERVER)
        .map_err(system("randomness"))?;
    let (events, inbox) = mpsc::channel();
    let choose = |present: &[PartyId]| application.members(present);
    let Start { session, members } = lobby.start(id, events, choose, |parties| {
        let links = (parties * parties).max(1);
        (config.in_flight / links).clamp(WINDOW.0, WINDOW.1)
    });
    let clients = members.len();
    tracing::info!(
        session = &hex(&id.0)[..8],
        number,
        clients,
        "session starts"
    );
    let guard = Guard(Arc::clone(&session));
    let at = SessionContext {
        job,
        number,
        ..SessionContext::new(id, PartyId::SERVER, seed)
    };
    let party = application.server(at, members);
    let most = limits_of_the_server(clients);
    let endpoint = party.map(|party| Endpoint::new(PartyId::SERVER, id, most, party));
    let links = Links::new(PartyId::SERVER, id, session.window(), limits());
    let (tell, ended) = tokio::sync::oneshot::channel();
    let first = lobby.about.phases[0];
    match endpoint {
        Err(cause) => {
            let _ = tell.send(unstarted(first, cause));
        }
        Ok(endpoint) => {
            let mut line = ServerLine(Arc::clone(&session));
            // A client that is away may still return and take its last frames.
            let linger = config.grace + FAREWELL;
            std::thread::Builder::new()
                .name("undertone-server".into())
                .spawn(move || {
                    let _ = tell.send(drive(endpoint, links, linger, &inbox, &mut line));
                })
                .map_err(|error| ServeError::System(format!("a thread: {error}")))?;
        }
    }
    let watched = watch(lobby, &session, running.start);
    tokio::pin!(ended);
    let drive::Ended { result, ledger } = tokio::select! {
        ended = &mut ended => ended,
        never = watched => match never {},
    }
    .unwrap_or_else(|_| unstarted(first, Abort::Internal("the server's party panicked".into())));
    drop(guard);
    Ok(Ended {
        session,
        clients,
        result,
        ledger,
    })
}

/// The end of a party that took no step.
fn unstarted(phase: Phase, cause: Abort) -> drive::Ended<Output> {
    let aborted = Aborted {
        party: PartyId::SERVER,
        phase,
        cause,
    };
    drive::Ended {
        result: Err(aborted),
        ledger: Ledger::default(),
    }
}

/// Stops the party's thread when no task waits for its result any more.
#[must_use = "dropping it stops the party"]
struct Guard(Arc<Session>);

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.stop(Abort::Misuse("the server is stopping".into()));
    }
}

/// Adds to each number of a client in `text` its name on the roster.
fn named(lobby: &Lobby, text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("client ") {
        let digits = after.len() - after.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let (number, after) = after.split_at(digits);
        out += &format!("{before}client {number}");
        let entries = lobby.config.roster.entries();
        if let Some(entry) = number.parse().ok().and_then(|n: usize| entries.get(n)) {
            out += &format!(" ({})", entry.name);
        }
        rest = after;
    }
    out + rest
}

/// Whether a job that began at `start` has exceeded its deadline.
fn is_late(lobby: &Lobby, start: Instant) -> bool {
    let limit = lobby.config.job_deadline;
    limit.is_some_and(|limit| start.elapsed() > limit)
}

/// Why a job ends that exceeds its deadline.
const LATE: &str = "the job took longer than its deadline";

/// Enforces the deadlines of a session and of its job, which began at `start`. Never returns.
async fn watch(lobby: &Lobby, session: &Session, start: Instant) -> std::convert::Infallible {
    let config = &lobby.config;
    loop {
        tokio::time::sleep(TICK).await;
        // NET-17
        for who in session.overdue(config.grace) {
            let name = config.roster.name(who);
            let why = "it lost its connection and did not return in time";
            tracing::warn!(client = name, why, "gone from the session");
            session.leaves(who, State::Gone, why);
        }
        // NET-23
        for who in session.blamed(|phase| config.deadlines.of(phase)) {
            let name = config.roster.name(who);
            let why = "it made no progress before the phase's deadline";
            tracing::warn!(client = name, why, "expelled from the session");
            lobby.metrics.refuse("stalled", name);
            session.leaves(who, State::Gone, why);
            lobby.expel(&[who], &format!("expelled from the session: {why}"));
        }
        session.announce();
        if is_late(lobby, start) {
            session.stop(Abort::Misuse(LATE.into()));
        }
    }
}

fn report(
    lobby: &Lobby,
    running: &Running,
    outcome: &Outcome,
    application: &dyn AnyApplication,
) -> JobReport {
    let (mut received, mut sent) = (0, 0);
    for (_, cost) in running.ledger.phases() {
        received += cost.bytes_received;
        sent += cost.bytes_sent;
    }
    let phases = &lobby.about.phases;
    let (result, now, state) = match outcome {
        Outcome::Done => ("done".to_owned(), None, "done"),
        Outcome::Aborted(phase, why) => (format!("aborted: {why}"), *phase, "aborted"),
    };
    JobReport {
        application: lobby.about.name.to_owned(),
        job: running.job,
        session: running.session.clone(),
        sessions: running.sessions,
        result,
        parameters: lobby.about.parameters.clone(),
        results: application.results(),
        clients: running.clients,
        seconds: running.start.elapsed().as_secs_f64(),
        bytes_received: received,
        bytes_sent: sent,
        relayed_bytes: running.relayed,
        spared_bytes: running.spared,
        socket_received: lobby.traffic.received() - running.received,
        socket_sent: lobby.traffic.sent() - running.sent,
        peak_memory_bytes: memory::peak(),
        phases: phase_statuses(phases, &running.ledger, &running.times, now, state),
    }
}
