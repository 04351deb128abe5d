//! Checks and relays the frames and acknowledgements of a session.

use std::sync::Arc;

use undertone_party::{FrameError, Header, PartyId};

use super::{SERVER, Session, State, Table};
use crate::drive::{Event, Line, Standing};
use crate::flow::{Item, Violation};
use crate::server::lock;
use crate::server::upload::Upload;
use crate::wire::{self, ServerSays};

impl Session {
    /// Passes a frame from `from` to the server's party or to another client.
    pub(in crate::server) fn frame(&self, from: PartyId, upload: Upload) -> Result<(), Violation> {
        // NET-11
        let header = upload.header(&self.limits)?;
        if header.session != self.id {
            return Err(FrameError::Session.into());
        }
        let misled = Violation::Link {
            from: header.from,
            to: header.to,
            link: from,
        };
        if header.from != from || header.to == from {
            return Err(misled);
        }
        if !self.phases.iter().any(|phase| phase.id == header.phase) {
            return Err(Violation::Phase(header.phase));
        }
        let mut table = lock(&self.table);
        if table.closed {
            return Ok(());
        }
        let Some(sender) = table.members.get_mut(&from) else {
            return Err(misled);
        };
        if sender.state != State::In {
            return Ok(());
        }
        let (len, spared) = (upload.len(), upload.spared());
        sender.received += (len - spared) as u64;
        let to = header.to;
        if to != SERVER && !table.members.contains_key(&to) {
            return Err(misled);
        }
        let link = table.links.entry((from, to)).or_default();
        // NET-12, NET-13
        if !link.pass(header.seq, len, self.window)? {
            return Ok(());
        }
        table.touch();
        if to == SERVER {
            drop(table);
            let frame = upload.whole();
            self.tell(Event::Frame { from, frame });
            return Ok(());
        }
        table.relayed += len as u64;
        table.spared += spared as u64;
        self.metrics.relayed.inc_by(len as u64);
        self.metrics.spared.inc_by(spared as u64);
        table.put(from, to, Item::Frame(upload.whole()));
        Ok(())
    }

    /// `from` has taken the frames of `peer` below number `next`.
    pub(in crate::server) fn taken(
        &self,
        from: PartyId,
        peer: PartyId,
        next: u32,
    ) -> Result<(), Violation> {
        let mut table = lock(&self.table);
        let sender = table.members.get(&from);
        if table.closed || sender.is_none_or(|member| member.state != State::In) {
            return Ok(());
        }
        // NET-14, NET-15
        let Some(link) = table.links.get_mut(&(peer, from)) else {
            return Err(Violation::Unsent(next));
        };
        if !link.take(next)? {
            return Ok(());
        }
        table.touch();
        if peer == SERVER {
            drop(table);
            self.tell(Event::Taken { by: from, next });
        } else {
            table.put(from, peer, Item::Taken(next));
        }
        Ok(())
    }
}

impl Table {
    /// Queues an item for a client's connection. It is lost when the client has none. Frames are
    /// sent again when the client returns.
    fn put(&mut self, from: PartyId, to: PartyId, item: Item) {
        if self.closed {
            return;
        }
        let Some(member) = self.members.get_mut(&to) else {
            return;
        };
        if let Item::Frame(frame) = &item {
            member.sent += frame.len() as u64;
        }
        if let Some(sender) = &member.sender {
            sender.say(match item {
                Item::Taken(next) => ServerSays::Taken(wire::taken(from, next)),
                Item::Frame(frame) => ServerSays::Frame(frame),
            });
        }
    }
}

/// Sends what the server's party puts on the wire.
pub(in crate::server) struct ServerLine(pub(in crate::server) Arc<Session>);

impl Line for ServerLine {
    fn put(&mut self, to: PartyId, item: Item) {
        let mut table = lock(&self.0.table);
        match &item {
            Item::Taken(next) => {
                if let Some(link) = table.links.get_mut(&(to, SERVER)) {
                    let _ = link.take(*next);
                }
            }
            Item::Frame(frame) => {
                // The party's own links keep to the window.
                if let Ok(header) = Header::parse(frame, &self.0.limits) {
                    let link = table.links.entry((SERVER, to)).or_default();
                    let _ = link.pass(header.seq, frame.len(), usize::MAX);
                }
            }
        }
        table.put(SERVER, to, item);
    }

    fn refused(&mut self, from: PartyId, why: Violation) {
        self.0.metrics.refuse("frame", &format!("{from}: {why}"));
    }

    fn stands(&mut self, standing: Standing, _: Vec<(PartyId, u32)>) {
        let phase = standing.phase;
        let before = lock(&self.0.standing).replace(standing);
        if let Some(before) = before.filter(|before| before.phase != phase) {
            let spent = lock(&self.0.clock).turn(before.phase);
            self.0.metrics.phase(before.phase.name, spent);
            tracing::debug!(phase = phase.name, "phase");
        }
    }
}
