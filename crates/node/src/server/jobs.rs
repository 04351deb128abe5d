//! Jobs, one after the other: the sessions of each, their deadlines, their reports.

use std::sync::{Arc, mpsc};
use std::time::Instant;

use undertone_party::{Abort, Aborted, Endpoint, Ledger, PartyId};
use undertone_xclp::{self as xclp, Report};

use super::hall::{Hall, Start};
use super::session::{ServerLine, Session, State};
use super::{FAREWELL, ServeError, TICK};
use crate::drive::{self, drive, limits};
use crate::flow::Links;
use crate::roster::hex;
use crate::status::{JobReport, Parameters, phase_statuses};

/// Smallest and largest window of a link.
const WINDOW: (usize, usize) = (256 << 10, 4 << 20);

/// Sessions that a job may take.
const MAX_SESSIONS: u32 = 3;

/// What a session came to.
struct Ended {
    session: Arc<Session>,
    result: Result<Report, Aborted>,
    ledger: Ledger,
}

/// Runs jobs until there have been enough, or the server is to stop.
pub(super) async fn jobs(
    hall: &Arc<Hall>,
    done: &mut (impl FnMut(&JobReport) + Send),
) -> Result<(), ServeError> {
    for job in 1..=hall.config.jobs.unwrap_or(u32::MAX) {
        if !hall.gathered(job).await {
            break;
        }
        let report = run_job(hall, job).await?;
        tracing::info!(
            job,
            result = report.result,
            seconds = report.seconds,
            "job ended"
        );
        done(&report);
        hall.finished(report);
    }
    Ok(())
}

/// Runs sessions until one is done, or none is of use.
async fn run_job(hall: &Arc<Hall>, job: u32) -> Result<JobReport, ServeError> {
    let start = Instant::now();
    let before = (hall.traffic.received(), hall.traffic.sent());
    let mut excluded: Option<Vec<PartyId>> = None;
    let mut sessions = 0;
    let (ended, clients) = loop {
        sessions += 1;
        let (ended, clients) = run_session(hall, excluded.as_deref()).await?;
        let culprits = match &ended.result {
            Ok(_) => Vec::new(),
            Err(aborted) => culprits(&aborted.cause),
        };
        let members = ended.session.members(|who, member| (who, member.state));
        let stays = |(who, state): &(PartyId, State)| {
            *state == State::In && !culprits.contains(who) && hall.is_here(*who)
        };
        let left = members.iter().filter(|member| stays(member)).count();
        let again = !culprits.is_empty()
            && left >= hall.config.job.params.min_clients
            && sessions < MAX_SESSIONS
            && !hall.is_stopping();
        if !again {
            break (ended, clients);
        }
        let why = ended
            .result
            .as_ref()
            .err()
            .map(|a| named(hall, &a.to_string()));
        for culprit in &culprits {
            let name = hall.config.roster.name(*culprit);
            tracing::warn!(
                client = name,
                why = why.as_deref(),
                "left out of the rest of the job"
            );
        }
        hall.expel(
            &culprits,
            "left out of the job: a message was not what it should be",
        );
        excluded.get_or_insert_default().extend(culprits);
    };
    let report = report(hall, job, &ended, (start, before), (sessions, clients));
    let result = if ended.result.is_ok() {
        "done"
    } else {
        "aborted"
    };
    hall.metrics.job(result, start.elapsed());
    hall.leave(&ended.session, ended.result.is_ok());
    Ok(report)
}

fn culprits(cause: &Abort) -> Vec<PartyId> {
    match cause {
        Abort::Contradicted { first, second, .. } => vec![*first, *second],
        Abort::Malformed { .. } | Abort::Cheated { .. } => cause.culprit().into_iter().collect(),
        _ => Vec::new(),
    }
}

async fn run_session(
    hall: &Arc<Hall>,
    again: Option<&[PartyId]>,
) -> Result<(Ended, usize), ServeError> {
    let config = &hall.config;
    let system = |what: &'static str| move |_| ServeError::System(what.into());
    let randomness = &config.randomness;
    let id = randomness.session().map_err(system("randomness"))?;
    let seed = randomness
        .party(id, PartyId::SERVER)
        .map_err(system("randomness"))?;
    let (events, inbox) = mpsc::channel();
    let Start { session, members } = hall.start(id, again, events, |p| {
        (config.in_flight / (p * p).max(1)).clamp(WINDOW.0, WINDOW.1)
    });
    let clients = members.len();
    tracing::info!(session = &hex(&id.0)[..8], clients, "session starts");
    let guard = Guard(Arc::clone(&session));
    let party = xclp::Server::new(id, config.job.params, members, seed);
    let endpoint = party.map(|party| Endpoint::new(PartyId::SERVER, id, limits(), party));
    let links = Links::new(PartyId::SERVER, id, session.window(), limits());
    let (tell, ended) = tokio::sync::oneshot::channel();
    match endpoint {
        Err(cause) => {
            let _ = tell.send(refused(cause));
        }
        Ok(endpoint) => {
            let mut line = ServerLine(Arc::clone(&session));
            // Who is away may still return for its result.
            let linger = config.grace + FAREWELL;
            std::thread::Builder::new()
                .name("undertone-server".into())
                .spawn(move || {
                    let _ = tell.send(drive(endpoint, links, linger, &inbox, &mut line));
                })
                .map_err(|error| ServeError::System(format!("a thread: {error}")))?;
        }
    }
    let watched = watch(hall, &session);
    tokio::pin!(ended);
    let drive::Ended { result, ledger } = tokio::select! {
        ended = &mut ended => ended,
        never = watched => match never {},
    }
    .unwrap_or_else(|_| {
        let cause = Abort::Internal("the server's party panicked".into());
        refused(cause)
    });
    drop(guard);
    let done = Ended {
        session,
        result,
        ledger,
    };
    Ok((done, clients))
}

/// Ends the party's thread with whoever waits for it.
struct Guard(Arc<Session>);

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.stop(Abort::Misuse("the server stops".into()));
    }
}

/// With names of the roster beside the numbers of clients.
fn named(hall: &Hall, text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("client ") {
        let digits = after.len() - after.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let (number, after) = after.split_at(digits);
        out += &format!("{before}client {number}");
        let entries = hall.config.roster.entries();
        if let Some(entry) = number.parse().ok().and_then(|n: usize| entries.get(n)) {
            out += &format!(" ({})", entry.name);
        }
        rest = after;
    }
    out + rest
}

fn refused(cause: Abort) -> drive::Ended<Report> {
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

/// Looks after deadlines for ever.
async fn watch(hall: &Hall, session: &Session) -> std::convert::Infallible {
    let config = &hall.config;
    loop {
        tokio::time::sleep(TICK).await;
        for who in session.overdue(config.grace) {
            let name = config.roster.name(who);
            tracing::warn!(client = name, "did not return in time");
            session.leaves(who, State::Gone);
        }
        for who in session.blamed(|phase| config.job.deadline(phase)) {
            let name = config.roster.name(who);
            tracing::warn!(client = name, "stood still for too long");
            hall.metrics.refuse("stalled", name);
            session.leaves(who, State::Gone);
            hall.expel(&[who], "left out of the job: nothing came for too long");
        }
        if config
            .job_deadline
            .is_some_and(|limit| session.started.elapsed() > limit)
        {
            session.stop(Abort::Misuse("the job took longer than it may".into()));
        }
    }
}

fn report(
    hall: &Hall,
    job: u32,
    ended: &Ended,
    (start, before): (Instant, (u64, u64)),
    (sessions, clients): (u32, usize),
) -> JobReport {
    let (rows, contributors) = match &ended.result {
        Ok(report) => (report.labelled.len(), report.contributors.len()),
        Err(_) => (0, 0),
    };
    let costs = ended.ledger.phases().map(|(_, cost)| cost);
    let (mut received, mut sent) = (0, 0);
    for cost in costs {
        received += cost.bytes_received;
        sent += cost.bytes_sent;
    }
    JobReport {
        job,
        session: hex(&ended.session.id.0)[..8].to_owned(),
        sessions,
        result: match &ended.result {
            Ok(_) => "done".to_owned(),
            Err(aborted) => format!("aborted: {}", named(hall, &aborted.to_string())),
        },
        parameters: Parameters::from(&hall.config.job.params),
        clients,
        contributors,
        rows,
        seconds: start.elapsed().as_secs_f64(),
        bytes_received: received,
        bytes_sent: sent,
        relayed_bytes: ended.session.relayed(),
        socket_received: hall.traffic.received() - before.0,
        socket_sent: hall.traffic.sent() - before.1,
        phases: phase_statuses(
            &ended.ledger,
            &ended.session.times(),
            ended.result.as_ref().err().map(|aborted| aborted.phase.id),
            "aborted",
        ),
    }
}
