//! What a server shows of itself.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use undertone_mpc::sum::Trust;
use undertone_party::{Cost, Ledger};
use undertone_xclp::{Params, phases};

/// A server at one moment. No secrets, nothing of anybody's data.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Status {
    /// The program's version.
    pub version: String,
    /// `waiting`, `running` or `stopping`.
    pub state: String,
    /// The current or next job, from 1.
    pub job: u32,
    /// The first digits of the session's id.
    pub session: Option<String>,
    /// What is run.
    pub parameters: Parameters,
    /// The server's phase.
    pub phase: Option<String>,
    /// All phases, of the current or the last job.
    pub phases: Vec<PhaseStatus>,
    /// Of the running job, or else of waiting.
    pub elapsed_seconds: f64,
    /// Whom the server waits for.
    pub waits_for: Vec<String>,
    /// The roster.
    pub clients: Vec<ClientStatus>,
    /// Frame bytes from client to client, in this job.
    pub relayed_bytes: u64,
    /// The server's sockets.
    pub socket: Socket,
    /// What was refused since the server started.
    pub refused: Refused,
    /// The last jobs that ended.
    pub finished: Vec<JobReport>,
}

/// The parameters of a job, for people.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[expect(missing_docs, reason = "as in `Params`")]
pub struct Parameters {
    pub backend: String,
    pub bits: usize,
    pub neighbours: usize,
    pub alpha: f64,
    pub variant: String,
    pub suite: String,
    pub trust: String,
    pub min_clients: usize,
}

impl From<&Params> for Parameters {
    fn from(params: &Params) -> Self {
        Self {
            backend: params.backend.to_string(),
            bits: params.bits,
            neighbours: params.neighbours,
            alpha: params.alpha,
            variant: params.variant.to_string(),
            suite: params.suite.to_string(),
            trust: match params.trust {
                Trust::SemiHonest => "semi-honest",
                Trust::MaliciousServer => "malicious-server",
            }
            .to_owned(),
            min_clients: params.min_clients,
        }
    }
}

/// The server's part of a phase.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct PhaseStatus {
    /// Its name.
    pub name: String,
    /// `done`, `now`, `aborted` or `due`.
    pub state: String,
    /// How long it took so far, on the clock on the wall.
    pub seconds: f64,
    /// Frame bytes the server received.
    pub bytes_received: u64,
    /// Frame bytes the server sent.
    pub bytes_sent: u64,
    /// Messages the server sent.
    pub messages: u64,
    /// Rounds, as far as the server saw them.
    pub rounds: usize,
    /// Milliseconds the server computed.
    pub compute_ms: f64,
}

/// A client, as the server sees it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ClientStatus {
    /// Its number.
    pub index: usize,
    /// Its name.
    pub name: String,
    /// `absent`, `connected` (it takes part in no job), `waiting`, `in`, `away` (it may still return), `gone` or `finished`.
    pub state: String,
    /// The phase it says it is in.
    pub phase: Option<String>,
    /// Whom it says it waits for.
    pub waits_for: Vec<String>,
    /// Frame bytes that came from it.
    pub bytes_received: u64,
    /// Frame bytes that went to it.
    pub bytes_sent: u64,
}

/// Bytes on sockets, TLS and all.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names say it")]
pub struct Socket {
    pub bytes_received: u64,
    pub bytes_sent: u64,
    pub connections: usize,
}

/// What was refused.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Refused {
    /// Connections: no TLS, no hello, too many.
    pub connections: u64,
    /// Hellos of nobody on the roster, or that were not proved.
    pub hellos: u64,
    /// Messages.
    pub frames: u64,
}

/// A job that ended: what it cost the server, and how it ended.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct JobReport {
    /// Its number, from 1.
    pub job: u32,
    /// The first digits of the id of its last session.
    pub session: String,
    /// Sessions it took: more than one where a client was caught cheating.
    pub sessions: u32,
    /// `done`, or `aborted: ` and why.
    pub result: String,
    /// What was run.
    pub parameters: Parameters,
    /// Clients that took part.
    pub clients: usize,
    /// Clients whose labels are in the scores.
    pub contributors: usize,
    /// Rows of these clients.
    pub rows: usize,
    /// From start to end, on the clock on the wall.
    pub seconds: f64,
    /// Frame bytes the server received, those it relayed aside.
    pub bytes_received: u64,
    /// Frame bytes the server sent, those it relayed aside.
    pub bytes_sent: u64,
    /// Frame bytes from client to client.
    pub relayed_bytes: u64,
    /// Bytes that came by sockets in this time.
    pub socket_received: u64,
    /// Bytes that went by sockets in this time.
    pub socket_sent: u64,
    /// What each phase cost the server.
    pub phases: Vec<PhaseStatus>,
}

/// What each phase cost, and how long it took. `times` holds the times by the phases' numbers. A run
/// that has not ended well is in phase `now`, which is shown in `state`.
pub(crate) fn phase_statuses(
    ledger: &Ledger,
    times: &BTreeMap<u8, Duration>,
    now: Option<u8>,
    state: &str,
) -> Vec<PhaseStatus> {
    let none = Cost::default();
    let status = |phase: &undertone_party::Phase| {
        let cost = ledger.phase(*phase).unwrap_or(&none);
        let time = times.get(&phase.id);
        PhaseStatus {
            name: phase.name.to_owned(),
            state: match now {
                Some(now) if now == phase.id => state,
                Some(now) if now < phase.id => "due",
                _ => "done",
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
    phases::ALL.iter().map(status).collect()
}
