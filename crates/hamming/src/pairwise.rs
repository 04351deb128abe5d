//! What `shade`, `phe` and `lwe` share: each two clients run a protocol with each other, and both
//! send the server a part of the result.
//!
//! `docs/spec/distances.md` specifies the messages, in *Pairs of clients*.

use std::collections::{BTreeMap, BTreeSet};

use undertone_kernel::Wiped;
use undertone_party::{Abort, Io, Outbox, PartyId};

use super::{Collected, ServerContext};
use crate::tiles::Sink;
use undertone_setup::roster::enough;
use undertone_setup::seal::Channel;

const SERVER: PartyId = PartyId::SERVER;

/// A client's channel to the server, for parts.
#[derive(Debug)]
pub(super) struct ToServer(Channel);

impl ToServer {
    pub(super) fn new(channel: Channel) -> Self {
        Self(channel)
    }

    /// Seals the peer's number and `text`, and sends them to the server.
    pub(super) fn send(
        &mut self,
        peer: PartyId,
        text: &[u8],
        out: &mut Outbox,
    ) -> Result<(), Abort> {
        let whole = Wiped::from([&peer.to_wire().to_le_bytes(), text].concat());
        let sealed = self.0.seal(&whole);
        let sealed = sealed.map_err(|error| Abort::Internal(error.to_string()))?;
        out.push(SERVER, sealed);
        Ok(())
    }

    /// Tells the server that all pairs are finished.
    pub(super) fn done(&mut self, out: &mut Outbox) -> Result<(), Abort> {
        self.send(SERVER, &[], out)
    }
}

/// A client at the server: its index, its number and its rows.
#[derive(Debug, Clone, Copy)]
pub(super) struct Guest {
    pub(super) place: usize,
    pub(super) id: PartyId,
    pub(super) rows: usize,
}

/// The server's state of one pair of clients, until it has their distances.
pub(super) trait Meeting<S>: Sized + Send + 'static {
    /// The parameters of all pairs.
    type Shape;

    /// The pair of two clients; `None` if one of them has no rows.
    fn new(shape: &Self::Shape, guests: [Guest; 2], sink: S) -> Result<Option<Self>, Abort>;

    /// Takes the next part from the client at index `place`.
    fn take(&mut self, place: usize, part: Vec<u8>) -> Result<(), Abort>;

    /// The two clients of the pair, if parts are missing.
    fn missing(&self) -> Option<[PartyId; 2]>;

    /// The index of the client that is so far ahead that nothing more is taken from it until the
    /// other's next part.
    fn ahead(&self) -> Option<usize> {
        None
    }

    /// Distances that were too long and became the longest.
    fn above(&self) -> u64 {
        0
    }

    fn into_sink(self) -> S;
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    There,
    Done,
    Gone,
}

/// The server while it collects parts.
pub(super) struct Lobby<S, M> {
    clients: Vec<(PartyId, usize)>,
    channels: Vec<Channel>,
    states: Vec<State>,
    min_clients: usize,
    meetings: BTreeMap<[usize; 2], M>,
    /// The pairs of which one client is too far ahead, and this client.
    ahead: BTreeMap<[usize; 2], usize>,
    /// The pairs of which the client behind has finished. What the other still sends is dropped.
    given_up: BTreeSet<[usize; 2]>,
    sink: S,
}

impl<S: Sink, M: Meeting<S>> Lobby<S, M> {
    pub(super) fn new(shape: &M::Shape, ctx: ServerContext, sink: S) -> Result<Self, Abort> {
        let ServerContext {
            clients,
            channels,
            min_clients,
            ..
        } = ctx;
        let guest = |place: usize| Guest {
            place,
            id: clients[place].0,
            rows: clients[place].1,
        };
        let mut meetings = BTreeMap::new();
        for k in 0..clients.len() {
            // A pair without rows takes no sink.
            for j in (0..k).filter(|j| clients[*j].1 > 0 && clients[k].1 > 0) {
                let guests = [guest(j), guest(k)];
                if let Some(meeting) = M::new(shape, guests, sink.between(j, k))? {
                    meetings.insert([j, k], meeting);
                }
            }
        }
        Ok(Self {
            states: vec![State::There; clients.len()],
            clients,
            channels,
            min_clients,
            meetings,
            ahead: BTreeMap::new(),
            given_up: BTreeSet::new(),
            sink,
        })
    }

    fn take(&mut self, place: usize, sealed: &[u8]) -> Result<(), Abort> {
        let from = self.clients[place].0;
        let malformed = |what: String| Abort::Malformed { from, what };
        let opened = self.channels[place].open(sealed);
        // DIST-6
        let mut text = opened.map_err(|error| malformed(error.to_string()))?;
        // DIST-7
        let Some(part) = text.len().checked_sub(4).map(|_| text.split_off(4)) else {
            return Err(malformed(format!(
                "a part of {} bytes, at least 4 are due",
                text.len()
            )));
        };
        let mut peer = [0; 4];
        peer.copy_from_slice(&text);
        let peer = PartyId::from_wire(u32::from_le_bytes(peer));
        if peer == SERVER && part.is_empty() {
            self.states[place] = State::Done;
            let pairs: Vec<[usize; 2]> = self.ahead.keys().copied().collect();
            pairs.into_iter().for_each(|pair| self.note(pair));
            return Ok(());
        }
        let Some(other) = self.clients.iter().position(|(id, _)| *id == peer) else {
            // A client that dropped out before the server knew its rows.
            return Ok(());
        };
        let ends = [place.min(other), place.max(other)];
        if self.given_up.contains(&ends) {
            return Ok(());
        }
        match self.meetings.get_mut(&ends) {
            Some(meeting) => {
                meeting.take(place, part)?;
                self.note(ends);
                Ok(())
            }
            None => match self.states[other] {
                State::Gone if other != place => Ok(()),
                // DIST-8
                _ => Err(malformed(format!(
                    "sums for {peer}, with which it has no distances"
                ))),
            },
        }
    }

    /// Notes whether one end of a pair is too far ahead.
    fn note(&mut self, pair: [usize; 2]) {
        self.ahead.remove(&pair);
        let Some(meeting) = self.meetings.get_mut(&pair) else {
            return;
        };
        let Some(place) = meeting.ahead() else {
            return;
        };
        let behind = pair.into_iter().find(|other| *other != place);
        // It saw the client ahead drop out, or cheats: then the pair is missing in the end.
        if behind.is_some_and(|behind| self.states[behind] == State::Done) {
            self.given_up.insert(pair);
        } else {
            self.ahead.insert(pair, place);
        }
    }

    fn gone(&mut self, place: usize) -> Result<(), Abort> {
        self.states[place] = State::Gone;
        self.meetings.retain(|ends, _| !ends.contains(&place));
        self.ahead.retain(|ends, _| !ends.contains(&place));
        let there = self.states.iter().filter(|state| **state != State::Gone);
        enough(there.count(), self.min_clients)
    }

    pub(super) async fn collect(mut self, io: Io) -> Result<Collected<S>, Abort> {
        loop {
            let there = |place: &usize| self.states[*place] == State::There;
            let mut due: Vec<usize> = (0..self.clients.len()).filter(there).collect();
            if due.is_empty() {
                return self.finish();
            }
            due.retain(|place| !self.ahead.values().any(|ahead| ahead == place));
            if due.is_empty() {
                let first = self.ahead.keys().find_map(|pair| self.meetings.get(pair));
                return Err(match first {
                    Some(meeting) => incomplete(meeting),
                    None => Abort::Internal("nobody is ahead".into()),
                });
            }
            let of: Vec<PartyId> = due.iter().map(|place| self.clients[*place].0).collect();
            let Some((from, message)) = io.recv_any(&of).await else {
                continue;
            };
            let Some(place) = self.clients.iter().position(|(id, _)| *id == from) else {
                continue;
            };
            match message {
                Some(sealed) => self.take(place, &sealed)?,
                None => self.gone(place)?,
            }
        }
    }

    fn finish(self) -> Result<Collected<S>, Abort> {
        let (mut sink, mut above) = (self.sink, 0);
        for meeting in self.meetings.into_values() {
            if meeting.missing().is_some() {
                return Err(incomplete(&meeting));
            }
            above += meeting.above();
            sink.join(meeting.into_sink());
        }
        Ok(Collected {
            sink,
            above,
            remains: self.states.iter().map(|s| *s == State::Done).collect(),
        })
    }
}

/// DIST-9: parts of a meeting are missing.
fn incomplete<S, M: Meeting<S>>(meeting: &M) -> Abort {
    let Some([first, second]) = meeting.missing() else {
        return Abort::Internal("no part of a pair is missing".into());
    };
    Abort::Contradicted {
        first,
        second,
        fault: "sums are missing, although both clients sent the end".into(),
    }
}
