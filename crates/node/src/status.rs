//! What a server reports about itself and its jobs.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use undertone_party::{Cost, Ledger, Phase};

use crate::application::Facts;

/// A server at one moment. It contains no secrets and none of the clients' data.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Status {
    /// The program's version.
    pub version: String,
    /// `waiting`, `running` or `stopping`.
    pub state: String,
    /// The name of the application.
    pub application: String,
    /// Number of the current or next job, from 1.
    pub job: u32,
    /// Number of the current or next session in the job, from 0.
    pub number: u32,
    /// The first digits of the session's id, if a session runs.
    pub session: Option<String>,
    /// The job's parameters.
    pub parameters: Facts,
    /// What the job has come to so far.
    pub results: Facts,
    /// The phase that the server's party is in.
    pub phase: Option<String>,
    /// All phases of the current session or the last job.
    pub phases: Vec<PhaseStatus>,
    /// Seconds since the session started, or since the server has been waiting for clients.
    pub elapsed_seconds: f64,
    /// Names of the clients that the server waits for.
    pub waits_for: Vec<String>,
    /// The clients of the roster, in order.
    pub clients: Vec<ClientStatus>,
    /// Frame bytes from client to client in this session.
    pub relayed_bytes: u64,
    /// The server's sockets.
    pub socket: Socket,
    /// What the server has refused since it started.
    pub refused: Refused,
    /// Reports of the last jobs.
    pub finished: Vec<JobReport>,
}

/// A phase, as the server saw it.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct PhaseStatus {
    /// Its name.
    pub name: String,
    /// `done`, `now`, `aborted` or `due`.
    pub state: String,
    /// Wall-clock time in it so far, in seconds.
    pub seconds: f64,
    /// Frame bytes the server received.
    pub bytes_received: u64,
    /// Frame bytes the server sent.
    pub bytes_sent: u64,
    /// Messages the server sent.
    pub messages: u64,
    /// Rounds that the server saw in a session.
    pub rounds: usize,
    /// Computing time of the server in milliseconds.
    pub compute_ms: f64,
}

/// A client, as the server sees it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ClientStatus {
    /// Its number.
    pub index: usize,
    /// Its name.
    pub name: String,
    /// `absent`, `declined`, `connected` (it takes part in no job), `waiting`, `in`, `away` (it may
    /// still return), `gone` or `finished`.
    pub state: String,
    /// Why it declined the job or left the session, if it did.
    pub why: Option<String>,
    /// The phase it says it is in.
    pub phase: Option<String>,
    /// Names of the parties it says it waits for.
    pub waits_for: Vec<String>,
    /// Frame bytes that came from it.
    pub bytes_received: u64,
    /// Frame bytes that went to it.
    pub bytes_sent: u64,
}

/// Bytes on sockets, including TLS.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names say it")]
pub struct Socket {
    pub bytes_received: u64,
    pub bytes_sent: u64,
    pub connections: usize,
}

/// What a server has refused.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Refused {
    /// Connections without TLS, too slow, or too many.
    pub connections: u64,
    /// Hellos that are missing, of an unknown client, or without proof.
    pub hellos: u64,
    /// Frames and acknowledgements, and connections with too many bad ones.
    pub frames: u64,
}

/// A job that ended: how it ended, and what it cost the server.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct JobReport {
    /// The name of its application.
    pub application: String,
    /// Its number, from 1.
    pub job: u32,
    /// The first digits of the id of its last session.
    pub session: String,
    /// Sessions it took. One is repeated if a client was caught cheating.
    pub sessions: u32,
    /// `done`, or `aborted: ` and the reason.
    pub result: String,
    /// The job's parameters.
    pub parameters: Facts,
    /// What it has come to.
    pub results: Facts,
    /// Clients that the last session began with.
    pub clients: usize,
    /// Wall-clock time from start to end, in seconds.
    pub seconds: f64,
    /// Frame bytes the server received, without those it relayed.
    pub bytes_received: u64,
    /// Frame bytes the server sent, without those it relayed.
    pub bytes_sent: u64,
    /// Frame bytes from client to client.
    pub relayed_bytes: u64,
    /// Bytes the server's sockets received in this time.
    pub socket_received: u64,
    /// Bytes the server's sockets sent in this time.
    pub socket_sent: u64,
    /// What each phase cost the server.
    pub phases: Vec<PhaseStatus>,
}

/// What each of `phases` cost, and how long it took. `times` holds the times by the phases'
/// numbers. If the run has not reached its end, it is in phase `now`, which is reported as `state`.
/// Without
/// `now` all phases are reported as `state`.
pub(crate) fn phase_statuses(
    phases: &[Phase],
    ledger: &Ledger,
    times: &BTreeMap<u8, Duration>,
    now: Option<Phase>,
    state: &str,
) -> Vec<PhaseStatus> {
    let none = Cost::default();
    let now = now.map(|now| phases.iter().position(|phase| *phase == now).unwrap_or(0));
    let status = |(place, phase): (usize, &Phase)| {
        let cost = ledger.phase(*phase).unwrap_or(&none);
        let time = times.get(&phase.id);
        PhaseStatus {
            name: phase.name.to_owned(),
            state: match now {
                Some(now) if now == place => state,
                Some(now) if now < place => "due",
                Some(_) => "done",
                None => state,
            }
            .to_owned(),
            seconds: time.map_or(0.0, Duration::as_secs_f64),
            bytes_received: cost.bytes_received,
            bytes_sent: cost.bytes_sent,
            messages: cost.messages,
            rounds: cost.rounds(),
            compute_ms: cost.compute.as_secs_f64() * 1e3,
        }
    };
    phases.iter().enumerate().map(status).collect()
}
