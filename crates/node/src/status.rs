//! What a server reports about itself and its jobs.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use undertone_party::progress::{say, time_left};
use undertone_party::{Cost, Ledger, Phase};

use crate::application::Facts;

/// A server at one moment. It contains no secrets and none of the clients' data.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Status {
    /// The program's version.
    pub version: String,
    /// What happens now and which clients the server waits for, for people.
    #[serde(default)]
    pub headline: String,
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
    /// Frame bytes from client to client in this session, as they went out.
    pub relayed_bytes: u64,
    /// Bytes of these that did not come in: clients sent a payload once for several clients.
    #[serde(default)]
    pub spared_bytes: u64,
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
    /// The share of its work that is done, from 0 to 1: of a phase that is now, takes long and can
    /// be counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share_done: Option<f64>,
    /// The time that it will still take, in seconds, if the rest goes as fast.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds_left: Option<f64>,
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
    /// Frame bytes from client to client, as they went out.
    pub relayed_bytes: u64,
    /// Bytes of these that did not come in: clients sent a payload once for several clients.
    #[serde(default)]
    pub spared_bytes: u64,
    /// Bytes the server's sockets received in this time.
    pub socket_received: u64,
    /// Bytes the server's sockets sent in this time.
    pub socket_sent: u64,
    /// The largest resident set of the server's process until its end, in bytes, where the system
    /// reports it.
    #[serde(default)]
    pub peak_memory_bytes: Option<u64>,
    /// What each phase cost the server.
    pub phases: Vec<PhaseStatus>,
}

/// Most names in a headline.
const MOST_NAMES: usize = 4;

/// "waiting for 1 of 3 clients: ward-2".
fn waiting_for(names: &[String], all: usize) -> String {
    let noun = if all == 1 { "client" } else { "clients" };
    let mut text = format!("waiting for {} of {all} {noun}: ", names.len());
    if names.len() <= MOST_NAMES {
        text += &names.join(", ");
    } else {
        let shown = MOST_NAMES - 1;
        text += &names[..shown].join(", ");
        text += &format!(" and {} more", names.len() - shown);
    }
    text
}

impl Status {
    /// How far the phase is that is now, for people: "34 % done, about 12 s left".
    pub fn progress(&self) -> Option<String> {
        let now = self.phases.iter().find(|phase| phase.state == "now")?;
        // A status may come from anybody's server.
        let left = now.seconds_left.map(Duration::try_from_secs_f64);
        let left = left.and_then(Result::ok);
        let share = now.share_done.filter(|share| (0.0..=1.0).contains(share));
        share.map(|share| say(share, left))
    }

    /// What happens now, and which clients the server waits for.
    pub(crate) fn say(&self) -> String {
        let running = self.session.is_some();
        match self.state.as_str() {
            "stopping" if running => format!("stopping after this session; {}", self.say_session()),
            "stopping" => "stopping".into(),
            _ if running => self.say_session(),
            _ => self.say_lobby(),
        }
    }

    fn say_session(&self) -> String {
        let phase = self.phase.as_deref().unwrap_or("starting");
        if self.waits_for.is_empty() {
            return format!("{phase}: the server is computing");
        }
        let absent = ["absent", "declined", "connected", "waiting", "gone"];
        let taking_part = self
            .clients
            .iter()
            .filter(|client| !absent.contains(&client.state.as_str()));
        let all = taking_part.count().max(self.waits_for.len());
        format!("{phase}: {}", waiting_for(&self.waits_for, all))
    }

    fn say_lobby(&self) -> String {
        if let Some(last) = self.finished.last().filter(|last| last.job == self.job) {
            return format!("job {}: {}", last.job, last.result);
        }
        let missing: Vec<String> = self
            .clients
            .iter()
            .filter(|client| client.state != "waiting")
            .map(|client| match client.state.as_str() {
                "declined" => format!("{} (declined)", client.name),
                _ => client.name.clone(),
            })
            .collect();
        match self.clients.len() {
            _ if !missing.is_empty() => waiting_for(&missing, self.clients.len()),
            1 => "the client is here: the job starts".into(),
            all => format!("all {all} clients are here: the job starts"),
        }
    }
}

impl PhaseStatus {
    /// Notes how far a phase is.
    pub(crate) fn is_at(&mut self, share: f64) {
        self.share_done = Some(share);
        let spent = Duration::from_secs_f64(self.seconds);
        self.seconds_left = time_left(spent, share).map(|left| left.as_secs_f64());
    }
}

/// What each of `phases` cost, and how long it took. `times` holds the times by the phases'
/// numbers. Phases before `now` are reported as `done`, `now` as `state`, later ones as `due`.
/// Without `now`, all phases are reported as `state`.
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
            share_done: None,
            seconds_left: None,
            bytes_received: cost.bytes_received,
            bytes_sent: cost.bytes_sent,
            messages: cost.messages,
            rounds: cost.rounds(),
            compute_ms: cost.compute.as_secs_f64() * 1e3,
        }
    };
    phases.iter().enumerate().map(status).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(index: usize, state: &str) -> ClientStatus {
        ClientStatus {
            index,
            name: format!("ward-{index}"),
            state: state.into(),
            why: None,
            phase: None,
            waits_for: Vec::new(),
            bytes_received: 0,
            bytes_sent: 0,
        }
    }

    fn status(states: &[&str]) -> Status {
        let clients = states.iter().enumerate();
        Status {
            version: String::new(),
            headline: String::new(),
            state: "waiting".into(),
            application: "label".into(),
            job: 1,
            number: 0,
            session: None,
            parameters: Facts::new(),
            results: Facts::new(),
            phase: None,
            phases: Vec::new(),
            elapsed_seconds: 0.0,
            waits_for: Vec::new(),
            clients: clients.map(|(index, state)| client(index, state)).collect(),
            relayed_bytes: 0,
            spared_bytes: 0,
            socket: Socket {
                bytes_received: 0,
                bytes_sent: 0,
                connections: 0,
            },
            refused: Refused {
                connections: 0,
                hellos: 0,
                frames: 0,
            },
            finished: Vec::new(),
        }
    }

    fn finished(job: u32, result: &str) -> JobReport {
        JobReport {
            application: "label".into(),
            job,
            session: String::new(),
            sessions: 1,
            result: result.into(),
            parameters: Facts::new(),
            results: Facts::new(),
            clients: 3,
            seconds: 1.0,
            bytes_received: 0,
            bytes_sent: 0,
            relayed_bytes: 0,
            spared_bytes: 0,
            socket_received: 0,
            socket_sent: 0,
            peak_memory_bytes: None,
            phases: Vec::new(),
        }
    }

    #[test]
    fn the_headline_names_the_clients_that_are_missing() {
        let say = |states: &[&str]| status(states).say();
        assert_eq!(
            say(&["waiting", "waiting", "absent"]),
            "waiting for 1 of 3 clients: ward-2"
        );
        assert_eq!(
            say(&["declined", "waiting", "connected"]),
            "waiting for 2 of 3 clients: ward-0 (declined), ward-2"
        );
        assert_eq!(
            say(&["absent"; 9]),
            "waiting for 9 of 9 clients: ward-0, ward-1, ward-2 and 6 more"
        );
        assert_eq!(say(&["absent"]), "waiting for 1 of 1 client: ward-0");
        assert_eq!(
            say(&["waiting"; 3]),
            "all 3 clients are here: the job starts"
        );
    }

    #[test]
    fn the_headline_of_a_running_job_has_its_phase() {
        let mut running = status(&["in", "away", "gone", "absent"]);
        running.state = "running".into();
        running.session = Some("0123".into());
        running.phase = Some("distances".into());
        assert_eq!(running.say(), "distances: the server is computing");
        running.waits_for = vec!["ward-1".into()];
        assert_eq!(
            running.say(),
            "distances: waiting for 1 of 2 clients: ward-1"
        );
        let mut distances = PhaseStatus {
            state: "now".into(),
            seconds: 10.0,
            ..PhaseStatus::default()
        };
        distances.is_at(0.25);
        assert_eq!(running.progress(), None);
        let mut nonsense = distances.clone();
        nonsense.seconds_left = Some(-1e300);
        running.phases = vec![nonsense];
        assert_eq!(running.progress().as_deref(), Some("25 % done"));
        running.phases = vec![distances];
        assert_eq!(
            running.progress().as_deref(),
            Some("25 % done, about 30 s left")
        );
        running.state = "stopping".into();
        assert_eq!(
            running.say(),
            "stopping after this session; distances: waiting for 1 of 2 clients: ward-1"
        );
        running.session = None;
        assert_eq!(running.say(), "stopping");
    }

    #[test]
    fn the_headline_says_how_a_job_ended() {
        let mut ended = status(&["absent"; 3]);
        ended.finished = vec![finished(1, "done")];
        assert_eq!(ended.say(), "job 1: done");
        ended.finished = vec![finished(1, "aborted: too few clients")];
        assert_eq!(ended.say(), "job 1: aborted: too few clients");
        // The next job waits.
        ended.job = 2;
        assert!(
            ended
                .say()
                .starts_with("waiting for 3 of 3 clients: ward-0")
        );
    }
}
