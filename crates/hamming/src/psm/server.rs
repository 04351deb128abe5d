//! The server's side of `psm`.

use undertone_kernel::{Matrix16, pack};
use undertone_party::{Abort, Inbox, Outbox, Party, PartyId, Phase, Step};

use super::super::{Collected, PHASE};
use super::{Shape, Tiles, products};
use crate::tiles::{Block, Sink, Tile};
use undertone_setup::roster::enough;
use undertone_setup::seal::Channel;

#[derive(Debug)]
pub(in super::super) struct Server<S> {
    shape: Shape,
    min_clients: usize,
    channels: Vec<Channel>,
    /// Without any distance of this protocol.
    empty: S,
    sink: S,
    /// Who takes part in this attempt, and who of those is still there.
    set: Vec<bool>,
    there: Vec<bool>,
    codes: Vec<Matrix16>,
    stage: ServerStage,
}

#[derive(Debug)]
enum ServerStage {
    Start,
    Codes {
        due: Vec<usize>,
        messages: Vec<usize>,
    },
    Tile {
        tiles: Tiles,
        left: Block,
        right: Block,
    },
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
        let set = vec![true; clients.len()];
        Ok(Self {
            shape: Shape {
                bits,
                clients: clients.to_vec(),
            },
            min_clients,
            channels,
            sink: sink.fork(),
            empty: sink,
            there: set.clone(),
            set,
            codes: Vec::new(),
            stage: ServerStage::Start,
        })
    }

    /// Tells those that are there who takes part.
    fn announce(&self) -> Outbox {
        let clients = self.shape.clients.iter().zip(&self.there);
        let there = clients.filter(|(_, there)| **there);
        let ids: Vec<PartyId> = there.map(|((id, _), _)| *id).collect();
        let message: Vec<u8> = ids
            .iter()
            .flat_map(|id| id.to_wire().to_le_bytes())
            .collect();
        let mut out = Outbox::new();
        out.extend(ids.into_iter().map(|id| (id, message.clone())));
        out
    }

    /// Starts an attempt with those that are there.
    fn attempt(mut self) -> Result<Step<Self>, Abort> {
        let left = self.there.iter().filter(|there| **there).count();
        enough(left, self.min_clients)?;
        let out = self.announce();
        self.set.clone_from(&self.there);
        self.sink = self.empty.fork();
        let zero = || Matrix16::zero(0, self.shape.bits);
        self.codes = self.shape.clients.iter().map(|_| zero()).collect();
        let messages = vec![0; self.set.len()];
        self.wait(messages, out)
    }

    /// Waits for whoever has not sent all of X', or goes on to the tiles.
    fn wait(mut self, messages: Vec<usize>, out: Outbox) -> Result<Step<Self>, Abort> {
        let is_due = |place: &usize| {
            let rows = self.shape.clients[*place].1;
            self.there[*place] && (messages[*place] == 0 || self.codes[*place].rows() < rows)
        };
        let due: Vec<usize> = (0..self.set.len()).filter(is_due).collect();
        if due.is_empty() {
            let tiles = Tiles::new(&self.set, None);
            return self.next_tile(tiles);
        }
        let need: Vec<PartyId> = due
            .iter()
            .map(|place| self.shape.clients[*place].0)
            .collect();
        self.stage = ServerStage::Codes { due, messages };
        Ok(Step::Continue {
            out,
            need: need.into(),
            next: self,
        })
    }

    /// Opens the next message of the client in `place`; `None` if it has left.
    fn open(
        &mut self,
        place: usize,
        inbox: &mut Inbox,
        due: usize,
    ) -> Result<Option<Vec<u8>>, Abort> {
        let from = self.shape.clients[place].0;
        let malformed = |what: String| Abort::Malformed { from, what };
        let Some(sealed) = inbox.take(from)? else {
            self.there[place] = false;
            return Ok(None);
        };
        let opened = self.channels[place].open(&sealed);
        let opened = opened.map_err(|error| malformed(error.to_string()))?;
        if opened.len() != due {
            return Err(malformed(format!(
                "{} bytes of numbers, {due} are due",
                opened.len()
            )));
        }
        Ok(Some(opened))
    }

    fn take_codes(&mut self, place: usize, inbox: &mut Inbox) -> Result<(), Abort> {
        let (width, len) = (self.shape.width(), self.shape.row_len());
        let rows = self.shape.clients[place].1;
        let rows = self.shape.window(self.codes[place].rows(), rows).len();
        if let Some(bytes) = self.open(place, inbox, rows * len)? {
            let values = self.codes[place].append(rows);
            for (values, bytes) in values.zip(bytes.chunks_exact(len)) {
                pack::unpack(width, bytes, values);
            }
        }
        Ok(())
    }

    /// Waits for the next tile of two clients that are both there, or ends the attempt. From a client whose
    /// partner has left tiles still come; they are taken and dropped.
    fn next_tile(mut self, mut tiles: Tiles) -> Result<Step<Self>, Abort> {
        while let Some((left, right)) = tiles.next(&self.shape.clients) {
            let both = [left.client, right.client];
            let need: Vec<PartyId> = both
                .into_iter()
                .filter(|place| self.there[*place])
                .map(|place| self.shape.clients[place].0)
                .collect();
            if need.is_empty() {
                continue;
            }
            self.stage = ServerStage::Tile { tiles, left, right };
            return Ok(Step::Continue {
                out: Outbox::new(),
                need: need.into(),
                next: self,
            });
        }
        if self.there != self.set {
            return self.attempt();
        }
        let out = self.announce();
        self.empty.join(self.sink);
        Ok(Step::Done {
            out,
            output: Collected {
                sink: self.empty,
                remains: self.there,
            },
        })
    }

    fn tile(
        mut self,
        tiles: Tiles,
        (left, right): (Block, Block),
        mut inbox: Inbox,
    ) -> Result<Step<Self>, Abort> {
        let count = left.rows.len() * right.rows.len();
        let due = pack::packed_len(self.shape.width(), count);
        let mut halves = Vec::with_capacity(2);
        for place in [left.client, right.client] {
            if self.there[place]
                && let Some(bytes) = self.open(place, &mut inbox, due)?
            {
                halves.push(bytes);
            }
        }
        // Once somebody has left there will be another attempt.
        if let [u, v] = &halves[..]
            && self.there == self.set
        {
            self.distances(&left, &right, u, v)?;
        }
        self.next_tile(tiles)
    }

    fn distances(&mut self, left: &Block, right: &Block, u: &[u8], v: &[u8]) -> Result<(), Abort> {
        let (width, bits) = (self.shape.width(), self.shape.bits);
        let (a, b) = (&self.codes[left.client], &self.codes[right.client]);
        let mut values = products(a, left.rows.clone(), b, right.rows.clone());
        let (mut us, mut vs) = (vec![0; values.len()], vec![0; values.len()]);
        pack::unpack(width, u, &mut us);
        pack::unpack(width, v, &mut vs);
        let mask = u16::MAX >> (16 - width);
        for ((value, u), v) in values.iter_mut().zip(us).zip(vs) {
            *value = u.wrapping_add(v).wrapping_sub(value.wrapping_mul(2)) & mask;
        }
        if values.iter().any(|distance| usize::from(*distance) > bits) {
            let other = self.shape.clients[right.client].0;
            return Err(Abort::Contradicted {
                first: self.shape.clients[left.client].0,
                second: other,
                check: format!("their halves give distances of at most {bits} bits"),
            });
        }
        self.sink.tile(&Tile {
            left,
            right,
            distances: &values,
        });
        Ok(())
    }
}

impl<S: Sink> Party for Server<S> {
    type Output = Collected<S>;

    fn phase(&self) -> Phase {
        PHASE
    }

    fn step(mut self, mut inbox: Inbox) -> Result<Step<Self>, Abort> {
        match std::mem::replace(&mut self.stage, ServerStage::Start) {
            ServerStage::Start => self.attempt(),
            ServerStage::Codes { due, mut messages } => {
                for place in due {
                    self.take_codes(place, &mut inbox)?;
                    messages[place] += 1;
                }
                self.wait(messages, Outbox::new())
            }
            ServerStage::Tile { tiles, left, right } => self.tile(tiles, (left, right), inbox),
        }
    }
}
