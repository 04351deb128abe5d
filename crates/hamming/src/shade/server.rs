//! The server's side of `shade`: it subtracts the sender's R from the receiver's T.

use std::collections::VecDeque;

use undertone_kernel::pack;
use undertone_party::{Abort, PartyId};

use super::super::pairwise::{self, Guest};
use super::{Pair, sends};
use crate::tiles::{self, Block, Sink};

/// Maximum number of tiles by which one end's sums may be ahead of the other's. If both follow the
/// protocol, the difference is what the other end has requested and what is on its way.
const MOST_APART: usize = 128;

/// A pair. It holds the sums of one end until those of the other arrive.
pub(in super::super) struct Meeting<S> {
    pair: Pair,
    /// Sender and receiver.
    ends: [Guest; 2],
    /// For each end, packed sums that wait for the other end's.
    waiting: [VecDeque<Vec<u8>>; 2],
    /// For each end, the number of tiles that have arrived.
    came: [usize; 2],
    sink: S,
}

impl<S> std::fmt::Debug for Meeting<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Meeting({:?}, ..)", self.ends)
    }
}

/// The parameters of all pairs.
#[derive(Debug)]
pub(in super::super) struct Shape {
    pub(in super::super) bits: usize,
    pub(in super::super) clients: usize,
}

impl<S: Sink> pairwise::Meeting<S> for Meeting<S> {
    type Shape = Shape;

    fn new(shape: &Shape, guests: [Guest; 2], sink: S) -> Result<Option<Self>, Abort> {
        let rows = guests.map(|guest| guest.rows);
        let Some(pair) = Pair::new(shape.bits, rows, shape.clients) else {
            return Ok(None);
        };
        pair.check()?;
        let [left, right] = guests;
        let ends = if sends((left.id, left.rows), (right.id, right.rows)) {
            [left, right]
        } else {
            [right, left]
        };
        Ok(Some(Self {
            pair,
            ends,
            waiting: Default::default(),
            came: [0; 2],
            sink,
        }))
    }

    fn take(&mut self, place: usize, sums: Vec<u8>) -> Result<(), Abort> {
        let end = usize::from(self.ends[1].place == place);
        let from = self.ends[end].id;
        let rows = self.pair.tile(self.came[end]);
        let due = self.pair.sums_len(rows.len());
        // SHADE-9, SHADE-10
        if rows.is_empty() || sums.len() != due {
            let what = if rows.is_empty() {
                "sums after the last tile".into()
            } else {
                format!("sums of {} bytes, {due} are due", sums.len())
            };
            return Err(Abort::Malformed { from, what });
        }
        // SHADE-11
        if self.waiting[end].len() >= MOST_APART {
            let what = "sums of a tile far ahead of the peer's".into();
            return Err(Abort::Malformed { from, what });
        }
        self.came[end] += 1;
        self.waiting[end].push_back(sums);
        let [sent, received] = &mut self.waiting;
        if let (Some(r), Some(t)) = (sent.front(), received.front()) {
            let rows = self.pair.tile(self.came[0].min(self.came[1]) - 1);
            let distances = self.pair.distances(rows.len(), r, t);
            // SHADE-12
            if distances.iter().any(|h| usize::from(*h) > self.pair.bits) {
                return Err(Abort::Contradicted {
                    first: self.ends[0].id,
                    second: self.ends[1].id,
                    fault: format!("their sums give a distance above {} bits", self.pair.bits),
                });
            }
            sent.pop_front();
            received.pop_front();
            self.sink.tile(&tiles::Tile {
                left: &Block {
                    client: self.ends[1].place,
                    rows,
                },
                right: &Block {
                    client: self.ends[0].place,
                    rows: 0..self.pair.lanes,
                },
                distances: &distances,
            });
        }
        Ok(())
    }

    fn missing(&self) -> Option<[PartyId; 2]> {
        let [sender, receiver] = self.ends.map(|guest| guest.id);
        let tiles = self.pair.tiles();
        match self.came {
            [sent, _] if sent < tiles => Some([sender, receiver]),
            [_, received] if received < tiles => Some([receiver, sender]),
            _ => None,
        }
    }

    fn into_sink(self) -> S {
        self.sink
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tiles::Discard;
    use crate::{Backend, Phe, ServerContext};
    use undertone_kdf::Seed;
    use undertone_party::{Arrival, Inbox, Party, Script, SessionId, Step};
    use undertone_setup::seal::Channel;

    const SERVER: PartyId = PartyId::SERVER;
    const SESSION: SessionId = SessionId([1; 32]);

    fn channel(me: PartyId, peer: PartyId, client: PartyId) -> Channel {
        let secret = Seed::from_bytes([client.to_wire() as u8; 32]);
        Channel::new(SESSION, &secret, me, peer)
    }

    /// Hands a server, tile after tile, sums of zeros from client 0, the sender. Returns how many
    /// tiles the server took, and its error.
    fn complaint(bits: usize, rows: [usize; 2]) -> (usize, String) {
        let clients = [0, 1].map(|place| (PartyId::client(place), rows[place]));
        let ends = clients.map(|(id, _)| channel(SERVER, id, id));
        let shape = Shape { bits, clients: 2 };
        let ctx = ServerContext {
            session: SESSION,
            cells: None,
            backend: Backend::Shade,
            bits,
            clients: clients.to_vec(),
            channels: ends.into(),
            suite: undertone_kernel::mask::Suite::Aes128Ctr,
            min_clients: 2,
            phe: Phe::default(),
        };
        let lobby = pairwise::Lobby::<_, Meeting<_>>::new(&shape, ctx, Discard).unwrap();
        let server = Script::new(crate::PHASE, |io| lobby.collect(io));
        let Ok(Step::Continue { next, .. }) = server.step(Inbox::default()) else {
            panic!("the server must wait");
        };
        let mut server = next;
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
                Ok(Step::Done { .. }) => panic!("no client has sent the end"),
                Err(abort) => {
                    assert_eq!(abort.culprit(), Some(sender));
                    return (tile, abort.to_string());
                }
            }
        }
        unreachable!("tiles end")
    }

    // SHADE-10, SHADE-11
    #[test]
    fn sums_that_are_too_many_or_too_far_ahead_are_refused() {
        let (tiles, what) = complaint(100, [4, 3]);
        assert_eq!(tiles, 1);
        assert!(what.contains("after the last tile"), "{what}");
        // Tiles have one row, and there are more rows than one end may be ahead.
        let (tiles, what) = complaint(65_535, [MOST_APART + 2, MOST_APART + 1]);
        assert_eq!(tiles, MOST_APART);
        assert!(what.contains("far ahead"), "{what}");
    }
}
