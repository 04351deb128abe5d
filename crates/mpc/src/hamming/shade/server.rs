//! The server's side of `shade`.

use std::collections::{BTreeMap, VecDeque};

use undertone_kernel::pack;
use undertone_party::{Abort, Inbox, Need, Outbox, Party, PartyId, Phase, Step};

use super::super::{Collected, PHASE};
use super::{Pair, SERVER, sends};
use crate::roster::enough;
use crate::seal::Channel;
use crate::tiles::{self, Block, Sink};

/// By how many tiles the sums of one side may be ahead of the other's. Where both follow the protocol it is what the other
/// has asked for, and what is on its way.
const MOST_APART: usize = 128;

/// A pair: its sums as they come, until both of a tile are there.
struct Meeting<S> {
    pair: Pair,
    /// Places of sender and receiver.
    ends: [usize; 2],
    /// Of either, packed sums that wait for the other's, and how many have come.
    waiting: [VecDeque<Vec<u8>>; 2],
    came: [usize; 2],
    sink: S,
}

impl<S> std::fmt::Debug for Meeting<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Meeting({:?}, ..)", self.ends)
    }
}

impl<S: Sink> Meeting<S> {
    /// Takes the sums of a tile from the sender (0) or the receiver (1).
    fn take(
        &mut self,
        end: usize,
        sums: Vec<u8>,
        clients: &[(PartyId, usize)],
    ) -> Result<(), Abort> {
        let from = clients[self.ends[end]].0;
        let rows = self.pair.tile(self.came[end]);
        let due = self.pair.sums_len(rows.len());
        if rows.is_empty() || sums.len() != due {
            let what = match rows.is_empty() {
                true => "sums after the last tile".into(),
                false => format!("sums of {} bytes, {due} are due", sums.len()),
            };
            return Err(Abort::Malformed { from, what });
        }
        if self.waiting[end].len() >= MOST_APART {
            let what = "sums of tiles far ahead of the other's".into();
            return Err(Abort::Malformed { from, what });
        }
        self.came[end] += 1;
        self.waiting[end].push_back(sums);
        let [sent, received] = &mut self.waiting;
        if let (Some(r), Some(t)) = (sent.front(), received.front()) {
            let rows = self.pair.tile(self.came[0].min(self.came[1]) - 1);
            let distances = self.pair.distances(rows.len(), r, t);
            if distances.iter().any(|h| usize::from(*h) > self.pair.bits) {
                return Err(Abort::Contradicted {
                    first: clients[self.ends[0]].0,
                    second: clients[self.ends[1]].0,
                    check: format!(
                        "their sums give distances of at most {} bits",
                        self.pair.bits
                    ),
                });
            }
            sent.pop_front();
            received.pop_front();
            self.sink.tile(&tiles::Tile {
                left: &Block {
                    client: self.ends[1],
                    rows,
                },
                right: &Block {
                    client: self.ends[0],
                    rows: 0..self.pair.lanes,
                },
                distances: &distances,
            });
        }
        Ok(())
    }
}

impl Pair {
    /// T − R.
    fn distances(&self, rows: usize, r: &[u8], t: &[u8]) -> Vec<u16> {
        let (mut rs, mut ts) = (vec![0; rows * self.lanes], vec![0; rows * self.lanes]);
        pack::unpack(self.width(), r, &mut rs);
        pack::unpack(self.width(), t, &mut ts);
        let mask = u16::MAX >> (16 - self.width());
        let both = ts.iter_mut().zip(rs);
        both.for_each(|(t, r)| *t = t.wrapping_sub(r) & mask);
        ts
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    There,
    Done,
    Gone,
}

#[derive(Debug)]
pub(in super::super) struct Server<S> {
    clients: Vec<(PartyId, usize)>,
    channels: Vec<Channel>,
    states: Vec<State>,
    min_clients: usize,
    meetings: BTreeMap<[usize; 2], Meeting<S>>,
    sink: S,
}

impl<S: Sink> Server<S> {
    pub(in super::super) fn new(
        bits: usize,
        clients: &[(PartyId, usize)],
        channels: Vec<Channel>,
        min_clients: usize,
        sink: S,
    ) -> Result<Self, Abort> {
        super::super::check_bits(bits)?;
        super::super::check_channels(clients, &channels)?;
        let mut meetings = BTreeMap::new();
        for (k, right) in clients.iter().enumerate() {
            for (j, left) in clients[..k].iter().enumerate() {
                let Some(pair) = Pair::new(bits, [left.1, right.1], clients.len()) else {
                    continue;
                };
                pair.check()?;
                let ends = match sends(*left, *right) {
                    true => [j, k],
                    false => [k, j],
                };
                let meeting = Meeting {
                    pair,
                    ends,
                    waiting: Default::default(),
                    came: [0; 2],
                    sink: sink.between(j, k),
                };
                meetings.insert([j, k], meeting);
            }
        }
        Ok(Self {
            states: vec![State::There; clients.len()],
            clients: clients.to_vec(),
            channels,
            min_clients,
            meetings,
            sink,
        })
    }

    fn take(&mut self, place: usize, sealed: &[u8]) -> Result<(), Abort> {
        let from = self.clients[place].0;
        let malformed = |what: String| Abort::Malformed { from, what };
        let opened = self.channels[place].open(sealed);
        let mut text = opened.map_err(|error| malformed(error.to_string()))?;
        let Some(sums) = text.len().checked_sub(4).map(|_| text.split_off(4)) else {
            return Err(malformed(format!("sums of {} bytes", text.len())));
        };
        let mut peer = [0; 4];
        peer.copy_from_slice(&text);
        let peer = PartyId::from_wire(u32::from_le_bytes(peer));
        if peer == SERVER && sums.is_empty() {
            self.states[place] = State::Done;
            return Ok(());
        }
        let Some(other) = self.clients.iter().position(|(id, _)| *id == peer) else {
            // One that was gone before the server knew of its rows.
            return Ok(());
        };
        let ends = [place.min(other), place.max(other)];
        let Some(meeting) = self.meetings.get_mut(&ends) else {
            return match self.states[other] {
                State::Gone if other != place => Ok(()),
                _ => Err(malformed(format!("sums for {peer}, with whom it has none"))),
            };
        };
        let end = usize::from(meeting.ends[1] == place);
        meeting.take(end, sums, &self.clients)
    }

    fn gone(&mut self, place: usize) -> Result<(), Abort> {
        self.states[place] = State::Gone;
        self.meetings.retain(|ends, _| !ends.contains(&place));
        let there = self.states.iter().filter(|state| **state != State::Gone);
        enough(there.count(), self.min_clients)
    }

    fn finish(self) -> Result<Step<Self>, Abort> {
        let mut sink = self.sink;
        for meeting in self.meetings.into_values() {
            let [sender, receiver] = meeting.ends;
            let both = [(sender, receiver), (receiver, sender)];
            for ((end, other), came) in both.into_iter().zip(meeting.came) {
                if came < meeting.pair.tiles() {
                    return Err(Abort::Contradicted {
                        first: self.clients[end].0,
                        second: self.clients[other].0,
                        check: "who says that was all has sent all sums".into(),
                    });
                }
            }
            sink.join(meeting.sink);
        }
        Ok(Step::Done {
            out: Outbox::new(),
            output: Collected {
                sink,
                remains: self.states.iter().map(|s| *s == State::Done).collect(),
            },
        })
    }
}

impl<S: Sink> Party for Server<S> {
    type Output = Collected<S>;

    fn phase(&self) -> Phase {
        PHASE
    }

    fn step(mut self, mut inbox: Inbox) -> Result<Step<Self>, Abort> {
        if let Some(from) = inbox.first()
            && let Some(place) = self.clients.iter().position(|(id, _)| *id == from)
        {
            match inbox.take(from)? {
                Some(sealed) => self.take(place, &sealed)?,
                None => self.gone(place)?,
            }
        }
        let clients = self.clients.iter().zip(&self.states);
        let due = clients.filter(|(_, state)| **state == State::There);
        let of: Vec<PartyId> = due.map(|((id, _), _)| *id).collect();
        if of.is_empty() {
            return self.finish();
        }
        Ok(Step::Continue {
            out: Outbox::new(),
            need: Need::Any { of, busy: false },
            next: self,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kdf::Seed;
    use crate::tiles::Discard;
    use undertone_party::{Arrival, SessionId};

    const SESSION: SessionId = SessionId([1; 32]);

    fn channel(me: PartyId, peer: PartyId, client: PartyId) -> Channel {
        let secret = Seed::from_bytes([client.to_wire() as u8; 32]);
        Channel::new(SESSION, &secret, me, peer)
    }

    /// Hands a server what client 0, the sender, says of client 1, sums of zeros tile after tile, and takes its complaint and
    /// how many tiles it took.
    fn complaint(bits: usize, rows: [usize; 2]) -> (usize, String) {
        let clients = [0, 1].map(|place| (PartyId::client(place), rows[place]));
        let ends = clients.map(|(id, _)| channel(SERVER, id, id));
        let mut server = Server::new(bits, &clients, ends.into(), 2, Discard).unwrap();
        let sender = clients[0].0;
        let mut writer = channel(sender, SERVER, sender);
        let pair = Pair::new(bits, rows, 2).unwrap();
        for tile in 0.. {
            let rows = pair.tile(tile).len().max(1);
            let mut text = clients[1].0.to_wire().to_le_bytes().to_vec();
            text.resize(4 + pair.sums_len(rows), 0);
            let arrival = Arrival::Message(writer.seal(&text).unwrap().into());
            match server.step(Inbox::new([(sender, arrival)])) {
                Ok(Step::Continue { next, .. }) => server = next,
                Ok(Step::Done { .. }) => panic!("nobody is done"),
                Err(abort) => {
                    assert_eq!(abort.culprit(), Some(sender));
                    return (tile, abort.to_string());
                }
            }
        }
        unreachable!("tiles end")
    }

    #[test]
    fn sums_that_are_too_many_or_too_far_ahead_are_refused() {
        let (tiles, what) = complaint(100, [4, 3]);
        assert_eq!(tiles, 1);
        assert!(what.contains("after the last tile"), "{what}");
        // One row a tile, and more rows than one side may be ahead.
        let (tiles, what) = complaint(65_535, [MOST_APART + 2, MOST_APART + 1]);
        assert_eq!(tiles, MOST_APART);
        assert!(what.contains("far ahead"), "{what}");
    }
}
