//! A client's online side of `shade`.

use std::collections::VecDeque;
use std::ops::Range;

use rayon::prelude::*;
use undertone_kernel::{BitMatrix, expand, pack, parts};
use undertone_party::frame::HEADER_LEN;
use undertone_party::{Abort, Inbox, Need, Outbox, Party, PartyId, Payload, Phase, Step};

use super::super::{PHASE, Peers, weight};
use super::offline::{Link, Prepared, Ready};
use super::transfers::{Keys, Receiving, Sending};
use super::{FRAME_BYTES, Pair, SERVER, WINDOW};

/// Rows of a tile on their way: how far its transfers are, and their sums so far.
struct Tile {
    rows: Range<usize>,
    keys: Keys,
    /// For each row a sum for each lane, filled up to whole registers.
    sums: Vec<u16>,
    /// The first transfer that is not done: a row of the tile, and a bit.
    next: (usize, usize),
}

/// Transfers of one row of a tile: the row, and its bits.
#[derive(Debug, Clone)]
struct Run {
    row: usize,
    bits: Range<usize>,
}

impl std::fmt::Debug for Tile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Tile({:?}, ..)", self.rows)
    }
}

impl Tile {
    fn new(rows: Range<usize>, keys: Keys, pair: &Pair) -> Self {
        let sums = vec![0; rows.len() * pair.stride()];
        Self {
            rows,
            keys,
            sums,
            next: (0, 0),
        }
    }

    fn is_done(&self) -> bool {
        self.next.0 == self.rows.len()
    }

    /// The transfers of the next message: as many groups as fit it, at least one.
    fn runs(&mut self, pair: &Pair) -> Vec<Run> {
        let group = pair.message_len(expand::GROUP);
        let mut left = (FRAME_BYTES / group).max(1);
        let mut runs = Vec::new();
        while left > 0 && !self.is_done() {
            let (row, first) = self.next;
            let end = pair.bits.min(first + left * expand::GROUP);
            left -= (end - first).div_ceil(expand::GROUP);
            runs.push(Run {
                row,
                bits: first..end,
            });
            self.next = match end == pair.bits {
                true => (row + 1, 0),
                false => (row, end),
            };
        }
        runs
    }

    /// The keys of a run, and what the kernel needs to know of it.
    fn run(&self, run: &Run, pair: &Pair) -> (expand::Shape, &[u128]) {
        let first = run.row * pair.bits;
        let shape = expand::Shape {
            width: pair.width(),
            lanes: pair.lanes,
            first: ((self.rows.start + run.row) * pair.bits + run.bits.start) as u64,
        };
        let keys = &self.keys[first + run.bits.start..first + run.bits.end];
        (shape, keys)
    }

    /// Adds sums of some transfers of their rows.
    fn add(&mut self, pair: &Pair, sums: Vec<(usize, Vec<u16>)>) {
        let stride = pair.stride();
        for (row, sums) in sums {
            let totals = &mut self.sums[row * stride..(row + 1) * stride];
            let both = totals.iter_mut().zip(sums);
            both.for_each(|(total, sum)| *total = total.wrapping_add(sum));
        }
    }

    /// The sums, less `weights`, packed, for the server.
    fn pack(&self, peer: PartyId, pair: &Pair, weights: &[u16]) -> Vec<u8> {
        let rows = self.sums.chunks_exact(pair.stride());
        let less = |row: &[u16]| {
            let lanes = row.iter().zip(weights);
            lanes
                .map(|(sum, weight)| sum.wrapping_sub(*weight))
                .collect()
        };
        let values: Vec<u16> = rows.flat_map(|row| -> Vec<u16> { less(row) }).collect();
        let mut out = Vec::with_capacity(4 + pair.sums_len(self.rows.len()) + 16);
        out.extend(peer.to_wire().to_le_bytes());
        pack::pack(pair.width(), &values, &mut out);
        out
    }
}

/// The runs of a message as parts for all threads, at least four groups each.
fn split(runs: Vec<Run>) -> Vec<Run> {
    let threads = rayon::current_num_threads();
    if threads == 1 {
        return runs;
    }
    let bits: usize = runs.iter().map(|run| run.bits.len()).sum();
    let part = bits
        .div_ceil(2 * threads)
        .next_multiple_of(expand::GROUP)
        .max(4 * expand::GROUP);
    let of = |run: Run| {
        let (row, end) = (run.row, run.bits.end);
        let parts = run.bits.step_by(part);
        parts.map(move |first| Run {
            row,
            bits: first..end.min(first + part),
        })
    };
    runs.into_iter().flat_map(of).collect()
}

/// A pair's state.
#[derive(Debug)]
enum End {
    Sender {
        sending: Sending,
        /// Tiles that were asked for and are not complete.
        tiles: VecDeque<Tile>,
        asked: usize,
        complete: usize,
    },
    Receiver {
        receiving: Receiving,
        tiles: VecDeque<Tile>,
        asked: usize,
        complete: usize,
    },
}

impl From<Ready> for End {
    fn from(ready: Ready) -> Self {
        let (tiles, asked, complete) = (VecDeque::new(), 0, 0);
        match ready {
            Ready::Sender(sending) => Self::Sender {
                sending,
                tiles,
                asked,
                complete,
            },
            Ready::Receiver(receiving) => Self::Receiver {
                receiving,
                tiles,
                asked,
                complete,
            },
        }
    }
}

/// What all pairs of a client share.
struct Own {
    codes: BitMatrix,
    /// Rows become columns: what a sender offers in the transfers of a bit.
    offers: BitMatrix,
    /// How many ones each row has.
    weights: Vec<u16>,
    peers: Peers,
}

impl std::fmt::Debug for Own {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Own(..)")
    }
}

impl Own {
    fn send_server(&mut self, text: &[u8], out: &mut Outbox) -> Result<(), Abort> {
        let sealed = self.peers.server.seal(text);
        let sealed = sealed.map_err(|error| Abort::Internal(error.to_string()))?;
        out.push(SERVER, sealed);
        Ok(())
    }
}

impl Link<End> {
    fn is_done(&self) -> bool {
        let (End::Sender { complete, .. } | End::Receiver { complete, .. }) = &self.end;
        *complete == self.pair.tiles()
    }

    /// Whether a message of the peer is due.
    fn waits(&self) -> bool {
        match &self.end {
            End::Sender { asked, tiles, .. } => *asked < self.pair.tiles() && tiles.len() < WINDOW,
            End::Receiver { .. } => !self.is_done(),
        }
    }

    fn has_work(&self) -> bool {
        match &self.end {
            End::Sender { tiles, .. } => !tiles.is_empty(),
            End::Receiver { asked, tiles, .. } => {
                *asked < self.pair.tiles() && tiles.len() < WINDOW
            }
        }
    }

    fn malformed(&self, what: String) -> Abort {
        Abort::Malformed {
            from: self.peer,
            what,
        }
    }

    /// Takes the peer's next message.
    fn receive(&mut self, message: &[u8], own: &mut Own, out: &mut Outbox) -> Result<(), Abort> {
        match self.end {
            End::Sender { .. } => self.asked(message),
            End::Receiver { .. } => self.offered(message, own, out),
        }
    }

    /// Sends what can be sent: the sender a message of u, the receiver a request.
    fn work(&mut self, own: &mut Own, out: &mut Outbox) -> Result<(), Abort> {
        match self.end {
            End::Sender { .. } => self.offer(own, out),
            End::Receiver { .. } => self.ask(own, out),
        }
    }

    /// Receiver: asks for the next tile.
    fn ask(&mut self, own: &Own, out: &mut Outbox) -> Result<(), Abort> {
        let pair = self.pair;
        let End::Receiver {
            receiving,
            tiles,
            asked,
            ..
        } = &mut self.end
        else {
            return Ok(());
        };
        let rows = pair.tile(*asked);
        let mut text = Vec::new();
        let keys = receiving.take(rows.len() * pair.bits, &mut text);
        for row in rows.clone() {
            let random = receiving.choices(pair.bits)?;
            let wanted = own.codes.row(row).iter();
            text.extend(
                wanted
                    .zip(random.iter())
                    .flat_map(|(y, u)| (y ^ u).to_le_bytes()),
            );
        }
        *asked += 1;
        tiles.push_back(Tile::new(rows, keys, &pair));
        out.extend([self.seal(&text)?]);
        Ok(())
    }

    /// Sender: takes a request.
    fn asked(&mut self, sealed: &[u8]) -> Result<(), Abort> {
        let (text, pair) = (self.open(sealed)?, self.pair);
        let malformed = |what| self.malformed(what);
        let End::Sender { sending, asked, .. } = &self.end else {
            return Ok(());
        };
        let rows = pair.tile(*asked);
        let corrections = sending.corrections_len(rows.len() * pair.bits);
        let due = corrections + 8 * pair.words() * rows.len();
        if text.len() != due {
            let what = format!("a request of {} bytes, {due} are due", text.len());
            return Err(malformed(what));
        }
        let End::Sender {
            sending,
            tiles,
            asked,
            ..
        } = &mut self.end
        else {
            return Ok(());
        };
        let (corrections, changes) = text.split_at(corrections);
        sending.extend(corrections);
        let mut keys = sending.take(rows.len() * pair.bits)?;
        // What the receiver did not choose at random: K₀ and K₁ change places.
        let delta = sending.delta();
        let rows_of_changes = changes.chunks_exact(8 * pair.words());
        for (keys, changes) in keys.chunks_exact_mut(pair.bits).zip(rows_of_changes) {
            for (keys, byte) in keys.chunks_mut(8).zip(changes) {
                for (bit, key) in keys.iter_mut().enumerate() {
                    *key ^= delta & 0u128.wrapping_sub(u128::from(byte >> bit & 1));
                }
            }
        }
        *asked += 1;
        tiles.push_back(Tile::new(rows, keys, &pair));
        Ok(())
    }

    /// Sender: the next message of u, and R when the tile is complete.
    fn offer(&mut self, own: &mut Own, out: &mut Outbox) -> Result<(), Abort> {
        let (peer, pair) = (self.peer, self.pair);
        let End::Sender {
            sending,
            tiles,
            complete,
            ..
        } = &mut self.end
        else {
            return Ok(());
        };
        let Some(tile) = tiles.front_mut() else {
            return Ok(());
        };
        let runs = split(tile.runs(&pair)).into_iter();
        let parts = runs.map(|run| {
            let len = pair.message_len(run.bits.len());
            (run, len)
        });
        let (pi, delta, offers, done) = (&self.pi, sending.delta(), &own.offers, &*tile);
        let (message, sums) = parts::message(HEADER_LEN, parts.collect(), |run: Run, slot| {
            let mut sums = vec![0; pair.stride()];
            let (shape, keys) = done.run(&run, &pair);
            let (keys, offers) = ((keys, delta), (offers, run.bits));
            let written = expand::send(pi, shape, keys, offers, &mut sums, slot);
            (written, (run.row, sums))
        });
        tile.add(&pair, sums);
        out.push(peer, Payload::within(message));
        if tile.is_done() {
            let text = tile.pack(peer, &pair, &own.weights);
            tiles.pop_front();
            *complete += 1;
            own.send_server(&text, out)?;
        }
        Ok(())
    }

    /// Receiver: takes a message of u, and sends T when the tile is complete.
    fn offered(&mut self, message: &[u8], own: &mut Own, out: &mut Outbox) -> Result<(), Abort> {
        let (peer, pair) = (self.peer, self.pair);
        let End::Receiver {
            tiles, complete, ..
        } = &mut self.end
        else {
            return Ok(());
        };
        let Some(tile) = tiles.front_mut() else {
            let what = "an offer that nobody asked for".into();
            return Err(Abort::Malformed { from: peer, what });
        };
        let runs = split(tile.runs(&pair));
        let due: usize = runs
            .iter()
            .map(|run| pair.message_len(run.bits.len()))
            .sum();
        if message.len() != due {
            let what = format!("an offer of {} bytes, {due} are due", message.len());
            return Err(Abort::Malformed { from: peer, what });
        }
        let mut rest = message;
        let mut parts = Vec::with_capacity(runs.len());
        for run in runs {
            let (head, tail) = rest.split_at(pair.message_len(run.bits.len()));
            rest = tail;
            parts.push((run, head));
        }
        let (pi, codes, first, done) = (&self.pi, &own.codes, tile.rows.start, &*tile);
        let one = |(run, message): (Run, &[u8])| {
            let mut sums = vec![0; pair.stride()];
            let (shape, keys) = done.run(&run, &pair);
            let choices = (codes.row(first + run.row), run.bits);
            expand::receive(pi, shape, keys, choices, &mut sums, message);
            (run.row, sums)
        };
        let sums = match rayon::current_num_threads() {
            1 => parts.into_iter().map(one).collect(),
            _ => parts.into_par_iter().map(one).collect(),
        };
        tile.add(&pair, sums);
        if tile.is_done() {
            let text = tile.pack(peer, &pair, &vec![0; pair.lanes]);
            tiles.pop_front();
            *complete += 1;
            own.send_server(&text, out)?;
        }
        Ok(())
    }
}

/// A client's online side. Output: nothing.
#[derive(Debug)]
pub(in super::super) struct Client {
    own: Own,
    links: VecDeque<Link<End>>,
}

impl Client {
    pub(in super::super) fn new(codes: BitMatrix, prepared: Prepared) -> Result<Self, Abort> {
        let Prepared { peers, bits, links } = prepared;
        let (me, rows) = peers.own()?;
        if (codes.rows(), codes.columns()) != (rows, bits) {
            return Err(Abort::Misuse(format!(
                "{me} has {} codes of {} bits, it prepared {rows} of {bits}",
                codes.rows(),
                codes.columns()
            )));
        }
        let sends = links
            .iter()
            .any(|link| matches!(link.end, Ready::Sender(_)));
        let links = links.into_iter().map(|link| Link {
            peer: link.peer,
            pair: link.pair,
            channel: link.channel,
            pi: link.pi,
            end: End::from(link.end),
        });
        Ok(Self {
            own: Own {
                offers: match sends {
                    true => codes.transpose(),
                    false => BitMatrix::default(),
                },
                weights: (0..codes.rows()).map(|row| weight(&codes, row)).collect(),
                codes,
                peers,
            },
            links: links.collect(),
        })
    }
}

impl Party for Client {
    type Output = ();

    fn phase(&self) -> Phase {
        PHASE
    }

    fn step(mut self, mut inbox: Inbox) -> Result<Step<Self>, Abort> {
        let mut out = Outbox::new();
        if let Some(from) = inbox.first()
            && let Some(at) = self.links.iter().position(|link| link.peer == from)
        {
            match inbox.take(from)? {
                Some(message) => self.links[at].receive(&message, &mut self.own, &mut out)?,
                None => drop(self.links.remove(at)),
            }
        }
        if let Some(at) = self.links.iter().position(Link::has_work)
            && let Some(mut link) = self.links.remove(at)
        {
            link.work(&mut self.own, &mut out)?;
            // The others' turn.
            self.links.push_back(link);
        }
        self.links.retain(|link| !link.is_done());
        if self.links.is_empty() {
            self.own
                .send_server(&SERVER.to_wire().to_le_bytes(), &mut out)?;
            return Ok(Step::Done { out, output: () });
        }
        let waiting = self.links.iter().filter(|link| link.waits());
        let need = Need::Any {
            of: waiting.map(|link| link.peer).collect(),
            busy: self.links.iter().any(Link::has_work),
        };
        Ok(Step::Continue {
            out,
            need,
            next: self,
        })
    }
}
