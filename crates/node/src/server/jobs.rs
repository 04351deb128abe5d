//! Jobs, one after the other: their sessions, deadlines and reports.

use std::sync::{Arc, mpsc};
use std::time::Instant;

use undertone_party::{Abort, Aborted, Endpoint, Ledger, PartyId};
use undertone_xclp::{self as xclp, Report};

use super::lobby::{Lobby, Start};
use super::session::{ServerLine, Session, State};
use super::{FAREWELL, ServeError, TICK};
use crate::drive::{self, drive, limits};
use crate::flow::Links;
use crate::roster::hex;
use crate::status::{JobReport, Parameters, phase_statuses};

/// Smallest and largest window of a link in bytes.
const WINDOW: (usize, usize) = (256 << 10, 4 << 20);

/// Most sessions of a job.
const MAX_SESSIONS: u32 = 3;

/// A job that runs.
struct Running {
    job: u32,
    start: Instant,
    /// Bytes that had come by the server's sockets when the job began.
    received: u64,
    /// Bytes that had gone by the server's sockets when the job began.
    sent: u64,
    /// How many sessions it has had.
    sessions: u32,
}

/// A session that ended.
struct Ended {
    session: Arc<Session>,
    /// How many clients it began with.
    clients: usize,
    result: Result<Report, Aborted>,
    ledger: Ledger,
}

/// Runs jobs until there have been enough, or the server is to stop.
pub(super) async fn jobs(
    lobby: &Arc<Lobby>,
    done: &mut (impl FnMut(&JobReport) + Send),
) -> Result<(), ServeError> {
    for job in 1..=lobby.config.jobs.unwrap_or(u32::MAX) {
        if !lobby.gathered(job).await {
            break;
        }
        let report = run_job(lobby, job).await?;
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

/// Runs sessions until one is done, or another would not help.
async fn run_job(lobby: &Arc<Lobby>, job: u32) -> Result<JobReport, ServeError> {
    let mut running = Running {
        job,
        start: Instant::now(),
        received: lobby.traffic.received(),
        sent: lobby.traffic.sent(),
        sessions: 0,
    };
    let mut excluded: Option<Vec<PartyId>> = None;
    let ended = loop {
        running.sessions += 1;
        let ended = run_session(lobby, excluded.as_deref()).await?;
        let Err(aborted) = &ended.result else {
            break ended;
        };
        let culprits = culprits(&aborted.cause);
        let members = ended.session.members(|who, member| (who, member.state));
        let stays = |(who, state): &(PartyId, State)| {
            *state == State::In && !culprits.contains(who) && lobby.is_here(*who)
        };
        let left = members.iter().filter(|member| stays(member)).count();
        let again = !culprits.is_empty()
            && left >= lobby.config.job.params.min_clients
            && running.sessions < MAX_SESSIONS
            && !lobby.is_stopping();
        if !again {
            break ended;
        }
        let why = named(lobby, &aborted.to_string());
        for culprit in &culprits {
            let name = lobby.config.roster.name(*culprit);
            tracing::warn!(client = name, why, "expelled from the job");
        }
        lobby.expel(&culprits, "expelled from the job: a message failed a check");
        excluded.get_or_insert_default().extend(culprits);
    };
    let report = report(lobby, &running, &ended);
    let is_done = ended.result.is_ok();
    let result = if is_done { "done" } else { "aborted" };
    lobby.metrics.job(result, running.start.elapsed());
    lobby.leave(&ended.session, is_done);
    Ok(report)
}

/// The clients that another session of the job must do without.
fn culprits(cause: &Abort) -> Vec<PartyId> {
    match cause {
        Abort::Contradicted { first, second, .. } => vec![*first, *second],
        Abort::Malformed { .. } | Abort::Cheated { .. } => cause.culprit().into_iter().collect(),
        _ => Vec::new(),
    }
}

/// Runs one session. With `excluded`, it replaces the last one; see [`Lobby::start`].
async fn run_session(
    lobby: &Arc<Lobby>,
    excluded: Option<&[PartyId]>,
) -> Result<Ended, ServeError> {
    let config = &lobby.config;
    let system = |what: &'static str| move |_| ServeError::System(what.into());
    let randomness = &config.randomness;
    let id = randomness.session().map_err(system("randomness"))?;
    let seed = randomness
        .party(id, PartyId::SERVER)
        .map_err(system("randomness"))?;
    let (events, inbox) = mpsc::channel();
    let Start { session, members } = lobby.start(id, excluded, events, |parties| {
        let links = (parties * parties).max(1);
        (config.in_flight / links).clamp(WINDOW.0, WINDOW.1)
    });
    let clients = members.len();
    tracing::info!(session = &hex(&id.0)[..8], clients, "session starts");
    let guard = Guard(Arc::clone(&session));
    let party = xclp::server(id, config.job.params, members, seed);
    let endpoint = party.map(|party| Endpoint::new(PartyId::SERVER, id, limits(), party));
    let links = Links::new(PartyId::SERVER, id, session.window(), limits());
    let (tell, ended) = tokio::sync::oneshot::channel();
    match endpoint {
        Err(cause) => {
            let _ = tell.send(unstarted(cause));
        }
        Ok(endpoint) => {
            let mut line = ServerLine(Arc::clone(&session));
            // A client that is away may still return for its last frames.
            let linger = config.grace + FAREWELL;
            std::thread::Builder::new()
                .name("undertone-server".into())
                .spawn(move || {
                    let _ = tell.send(drive(endpoint, links, linger, &inbox, &mut line));
                })
                .map_err(|error| ServeError::System(format!("a thread: {error}")))?;
        }
    }
    let watched = watch(lobby, &session);
    tokio::pin!(ended);
    let drive::Ended { result, ledger } = tokio::select! {
        ended = &mut ended => ended,
        never = watched => match never {},
    }
    .unwrap_or_else(|_| unstarted(Abort::Internal("the server's party panicked".into())));
    drop(guard);
    Ok(Ended {
        session,
        clients,
        result,
        ledger,
    })
}

/// The end of a party that took no step.
fn unstarted(cause: Abort) -> drive::Ended<Report> {
    let aborted = Aborted {
        party: PartyId::SERVER,
        phase: xclp::phases::SETUP,
        cause,
    };
    drive::Ended {
        result: Err(aborted),
        ledger: Ledger::default(),
    }
}

/// Stops the party's thread when nobody waits for its result any more.
#[must_use = "dropping it stops the party"]
struct Guard(Arc<Session>);

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.stop(Abort::Misuse("the server stops".into()));
    }
}

/// Adds the names of the roster to the numbers of clients in `text`.
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

/// Enforces the deadlines of a session, for ever.
async fn watch(lobby: &Lobby, session: &Session) -> std::convert::Infallible {
    let config = &lobby.config;
    loop {
        tokio::time::sleep(TICK).await;
        for who in session.overdue(config.grace) {
            let name = config.roster.name(who);
            tracing::warn!(client = name, "did not return in time");
            session.leaves(who, State::Gone);
        }
        for who in session.blamed(|phase| config.job.deadline(phase)) {
            let name = config.roster.name(who);
            tracing::warn!(client = name, "no progress before the phase's deadline");
            lobby.metrics.refuse("stalled", name);
            session.leaves(who, State::Gone);
            let why = "expelled from the job: no progress before the phase's deadline";
            lobby.expel(&[who], why);
        }
        if config
            .job_deadline
            .is_some_and(|limit| session.started.elapsed() > limit)
        {
            session.stop(Abort::Misuse(
                "the job took longer than its deadline".into(),
            ));
        }
    }
}

fn report(lobby: &Lobby, running: &Running, ended: &Ended) -> JobReport {
    let (rows, contributors) = match &ended.result {
        Ok(report) => (report.labelled.len(), report.contributors.len()),
        Err(_) => (0, 0),
    };
    let (mut received, mut sent) = (0, 0);
    for (_, cost) in ended.ledger.phases() {
        received += cost.bytes_received;
        sent += cost.bytes_sent;
    }
    JobReport {
        job: running.job,
        session: hex(&ended.session.id.0)[..8].to_owned(),
        sessions: running.sessions,
        result: match &ended.result {
            Ok(_) => "done".to_owned(),
            Err(aborted) => format!("aborted: {}", named(lobby, &aborted.to_string())),
        },
        parameters: Parameters::from(&lobby.config.job.params),
        clients: ended.clients,
        contributors,
        rows,
        seconds: running.start.elapsed().as_secs_f64(),
        bytes_received: received,
        bytes_sent: sent,
        relayed_bytes: ended.session.relayed(),
        socket_received: lobby.traffic.received() - running.received,
        socket_sent: lobby.traffic.sent() - running.sent,
        phases: phase_statuses(
            &ended.ledger,
            &ended.session.times(),
            ended.result.as_ref().err().map(|aborted| aborted.phase.id),
            "aborted",
        ),
    }
}
