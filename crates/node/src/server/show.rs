//! What the server shows of itself.

use std::collections::BTreeMap;

use undertone_party::{Ledger, PartyId};

use super::lobby::Lobby;
use super::session::State;
use super::{lock, open};
use crate::roster::hex;
use crate::status::{ClientStatus, Refused, Socket, Status, phase_statuses};

impl Lobby {
    pub(super) fn status(&self) -> Status {
        let state = lock(&self.state);
        let session = state.session.clone();
        let standing = session.as_ref().and_then(|session| session.standing());
        let mut clients: Vec<ClientStatus> = self
            .config
            .roster
            .entries()
            .iter()
            .zip(&state.slots)
            .enumerate()
            .map(|(index, (entry, slot))| ClientStatus {
                index,
                name: entry.name.clone(),
                state: match slot {
                    Some(slot) if slot.waits => "waiting",
                    Some(_) => "connected",
                    None if state.declined.contains_key(&PartyId::client(index)) => "declined",
                    None => "absent",
                }
                .to_owned(),
                why: state.declined.get(&PartyId::client(index)).cloned(),
                phase: None,
                waits_for: Vec::new(),
                bytes_received: 0,
                bytes_sent: 0,
            })
            .collect();
        let names = |who: &[PartyId]| -> Vec<String> {
            let names = who.iter().map(|who| self.config.roster.name(*who));
            names.map(str::to_owned).collect()
        };
        if let Some(session) = &session {
            session.members(|who, member| {
                let Some(client) = who.index().and_then(|index| clients.get_mut(index)) else {
                    return;
                };
                client.state = match member.state {
                    State::In => "in",
                    State::Away(_) => "away",
                    State::Gone => "gone",
                    State::Finished => "finished",
                }
                .to_owned();
                client.why = (!member.why.is_empty()).then(|| member.why.clone());
                client.phase = member.phase.map(str::to_owned);
                client.waits_for = names(&member.waits_for);
                client.bytes_received = member.received;
                client.bytes_sent = member.sent;
            });
        }
        for name in [
            "absent",
            "declined",
            "connected",
            "waiting",
            "in",
            "away",
            "gone",
            "finished",
        ] {
            let count = clients.iter().filter(|client| client.state == name).count();
            self.metrics.clients(name, count);
        }
        let of = &self.about.phases;
        let mut phases = match (&session, state.finished.last()) {
            (Some(session), _) => {
                let now = standing.as_ref().map_or(of[0], |standing| standing.phase);
                phase_statuses(of, &session.ledger(), &session.times(), Some(now), "now")
            }
            (None, Some(last)) if last.job == state.job => last.phases.clone(),
            (None, _) => phase_statuses(of, &Ledger::default(), &BTreeMap::new(), None, "due"),
        };
        let progress = standing.as_ref().and_then(|at| at.progress.as_ref());
        let now = phases.iter_mut().find(|phase| phase.state == "now");
        if let (Some(now), Some(progress)) = (now, progress) {
            now.is_at(progress.share());
        }
        let name = if state.stopping {
            "stopping"
        } else if session.is_some() {
            "running"
        } else {
            "waiting"
        };
        let refused = |what: &[&'static str]| what.iter().map(|w| self.metrics.refusals(w)).sum();
        let since = session
            .as_ref()
            .map_or(state.since, |session| session.started);
        let mut status = Status {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            headline: String::new(),
            state: name.to_owned(),
            application: self.about.name.to_owned(),
            job: state.job,
            number: state.number,
            session: session
                .as_ref()
                .map(|session| hex(&session.id.0)[..8].to_owned()),
            parameters: self.about.parameters.clone(),
            results: state.results.clone(),
            phase: standing
                .as_ref()
                .map(|standing| standing.phase.name.to_owned()),
            phases,
            elapsed_seconds: since.elapsed().as_secs_f64(),
            waits_for: standing
                .as_ref()
                .map_or_else(Vec::new, |s| names(&s.waits_for)),
            clients,
            relayed_bytes: session.as_ref().map_or(0, |session| session.relayed()),
            spared_bytes: session.as_ref().map_or(0, |session| session.spared()),
            socket: Socket {
                bytes_received: self.traffic.received(),
                bytes_sent: self.traffic.sent(),
                connections: open(&self.open),
            },
            refused: Refused {
                connections: refused(&["accept", "flood", "tls", "slow"]),
                hellos: refused(&["hello"]),
                frames: refused(&["frame", "client"]),
            },
            finished: state.finished.clone(),
        };
        status.headline = status.say();
        status
    }
}
