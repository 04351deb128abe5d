//! `psm`: private simultaneous messages (Feige, Kilian, Naor 1994), with masked products (Beaver 1997;
//! Du, Atallah 2001).
//!
//! The clients share a seed that the server does not have. From it they expand, modulo 2^w, a mask `A_j`
//! for the codes of each client and a mask `C_jk` for the distances of each pair `j < k`. With `|x|` the
//! number of ones of a row:
//!
//! - client j → server, once: `X'_j = X_j + A_j`;
//! - client j → server, for each k > j: `U[a,i] = 2⟨x_a, A_k[i]⟩ + |x_a| + C_jk[a,i]`;
//! - client k → server, for each j < k: `V[a,i] = 2⟨A_j[a], y'_i⟩ + |y_i| − C_jk[a,i]`, `y' = y + A_k`;
//! - server: `h(a,i) = U + V − 2⟨x'_a, y'_i⟩ = |x_a| + |y_i| − 2⟨x_a, y_i⟩`.
//!
//! `X'` and `U` are uniform to the server, and `V` follows from the distance: it could make up all it sees
//! from the distances alone. All of it is sealed to the server, as any other client could take the masks off.
//!
//! Messages, in order. Numbers are packed to w = ⌈log₂(L+1)⌉ bits; masks are expanded tile by tile.
//!
//! 1. Server → clients: who takes part, the numbers (4 bytes each) of two clients or more, in order.
//! 2. Clients → server: `X'`, whole rows; then for each pair in order (0,1), (0,2), … (1,2), … and each
//!    tile of at most 512 × 512 rows, row after row: `U` or `V`.
//! 3. Server → clients: who takes part, again. If somebody left, all is done once more without it, with
//!    fresh masks; if it is the same set, the distances are made.

use std::ops::Range;

use rayon::prelude::*;
use undertone_kernel::mask::{Op, Stream, Suite};
use undertone_kernel::{BitMatrix, Cpu, Matrix16, pack, product};
use undertone_party::frame::TILE_BYTES;
use undertone_party::{Abort, Inbox, Outbox, Party, PartyId, Phase, Reader, SessionId, Step};

use super::{Collected, PHASE};
use crate::kdf::Seed;
use crate::seal::{Channel, TAG_LEN};
use crate::tiles::{Block, Sink, Tile};

/// Rows and columns of a tile.
pub(super) const SIDE: usize = 512;

const SERVER: PartyId = PartyId::SERVER;

/// What client and server agree on.
#[derive(Debug, Clone)]
struct Shape {
    /// Bits of a code.
    bits: usize,
    /// Clients of the roster and their rows.
    clients: Vec<(PartyId, usize)>,
}

impl Shape {
    /// Bits of a number: distances are 0 to L.
    fn width(&self) -> u32 {
        usize::BITS - self.bits.leading_zeros()
    }

    fn row_len(&self) -> usize {
        pack::packed_len(self.width(), self.bits)
    }

    /// Rows of the message that starts with row `first` of `rows`.
    fn window(&self, first: usize, rows: usize) -> Range<usize> {
        first..rows.min(first + ((TILE_BYTES - TAG_LEN) / self.row_len()).max(1))
    }
}

/// The tiles of all pairs of those that take part, in order; of one client's pairs, if `of` names it.
#[derive(Debug, Clone, Default)]
struct Tiles {
    pairs: Vec<(usize, usize)>,
    at: usize,
    left: usize,
    right: usize,
}

impl Tiles {
    fn new(set: &[bool], of: Option<usize>) -> Self {
        let places = || (0..set.len()).filter(|place| set[*place]);
        let pair = |j: usize| places().filter(move |k| *k > j).map(move |k| (j, k));
        let mine = |(j, k): &(usize, usize)| of.is_none_or(|me| me == *j || me == *k);
        Self {
            pairs: places().flat_map(pair).filter(mine).collect(),
            ..Self::default()
        }
    }

    /// The next tile. Pairs without rows have none.
    fn next(&mut self, clients: &[(PartyId, usize)]) -> Option<(Block, Block)> {
        loop {
            let (j, k) = *self.pairs.get(self.at)?;
            let (rows, columns) = (clients[j].1, clients[k].1);
            if self.left >= rows || columns == 0 {
                (self.at, self.left, self.right) = (self.at + 1, 0, 0);
                continue;
            }
            let block = |client, first: usize, rows: usize| Block {
                client,
                rows: first..rows.min(first + SIDE),
            };
            let tile = (block(j, self.left, rows), block(k, self.right, columns));
            self.right += SIDE;
            if self.right >= columns {
                (self.left, self.right) = (self.left + SIDE, 0);
            }
            return Some(tile);
        }
    }
}

/// The masks, from a seed that only clients have.
#[derive(Debug)]
struct Masks {
    session: SessionId,
    seed: Seed,
    suite: Suite,
    attempt: u32,
}

impl Masks {
    /// Adds rows `rows` of A_client to `to`, which has as many.
    fn add_code_mask(&self, client: PartyId, rows: Range<usize>, to: &mut Matrix16) {
        let ids = [self.attempt, client.to_wire()];
        let seed = self.seed.derive(self.session, "code mask", &ids);
        let columns = to.columns();
        let mut stream = Stream::new(self.suite, seed.expose());
        for (row, values) in rows.zip(to.rows_mut()) {
            stream.apply(row * columns, Op::Add, values);
        }
    }

    fn code_mask(&self, client: PartyId, rows: Range<usize>, bits: usize) -> Matrix16 {
        let mut out = Matrix16::zero(rows.len(), bits);
        self.add_code_mask(client, rows, &mut out);
        out
    }

    /// Adds C_jk, which has `columns` columns, to a tile of it, or subtracts it.
    fn distance_mask(
        &self,
        (j, k): (PartyId, PartyId),
        columns: usize,
        tile: (&Range<usize>, &Range<usize>),
        op: Op,
        values: &mut [u16],
    ) {
        let ids = [self.attempt, j.to_wire(), k.to_wire()];
        let seed = self.seed.derive(self.session, "distance mask", &ids);
        let mut stream = Stream::new(self.suite, seed.expose());
        let (rows, part) = tile;
        for (row, values) in rows.clone().zip(values.chunks_exact_mut(part.len())) {
            stream.apply(row * columns + part.start, op, values);
        }
    }
}

/// All products of the rows of `a` and `b`, on all threads.
fn products(a: &Matrix16, b: &Matrix16) -> Vec<u16> {
    let mut out = vec![0; a.rows() * b.rows()];
    let part = a.rows().div_ceil(rayon::current_num_threads()).max(1);
    let width = b.rows();
    out.par_chunks_mut((part * width).max(1))
        .enumerate()
        .for_each(|(index, out)| {
            let rows = index * part..index * part + out.len() / width;
            product::products(Cpu::detect(), a, rows, b, 0..width, out);
        });
    out
}

fn ones(codes: &BitMatrix, row: usize) -> u16 {
    let words = codes.row(row).iter();
    words.map(|word| word.count_ones()).sum::<u32>() as u16
}

/// What a client needs besides its codes.
#[derive(Debug)]
pub struct Peers {
    /// The session.
    pub session: SessionId,
    /// The client itself.
    pub me: PartyId,
    /// All clients and their rows, in order.
    pub clients: Vec<(PartyId, usize)>,
    /// A seed that all clients have and the server has not.
    pub seed: Seed,
    /// The cipher of the masks.
    pub suite: Suite,
    /// What only the server is to read.
    pub server: Channel,
}

#[derive(Debug)]
pub(super) struct Client {
    roster: Vec<(PartyId, usize)>,
    id: PartyId,
    codes: BitMatrix,
    masks: Masks,
    server: Channel,
    /// Those that take part in this attempt, and which of them the client is.
    shape: Shape,
    me: usize,
    stage: ClientStage,
    /// The matrices of the last tile: the next one mostly needs one of them again.
    kept: [Option<(Block, Matrix16)>; 2],
}

#[derive(Debug)]
enum ClientStage {
    Start,
    Set,
    Codes { sent: usize },
    Tiles(Tiles),
}

impl Client {
    pub(super) fn new(codes: BitMatrix, peers: Peers) -> Result<Self, Abort> {
        let Peers {
            session,
            me,
            clients,
            seed,
            suite,
            server,
        } = peers;
        if !clients.contains(&(me, codes.rows())) {
            return Err(Abort::Misuse(format!(
                "{me} is not on the roster with {} rows",
                codes.rows()
            )));
        }
        Ok(Self {
            roster: clients,
            id: me,
            shape: Shape {
                bits: codes.columns(),
                clients: Vec::new(),
            },
            codes,
            masks: Masks {
                session,
                seed,
                suite,
                attempt: 0,
            },
            server,
            me: 0,
            stage: ClientStage::Start,
            kept: [None, None],
        })
    }

    /// Who takes part. The same set again means that all is done.
    fn set(mut self, bytes: &[u8]) -> Result<Step<Self>, Abort> {
        let cheated = |check: &str| Abort::Cheated {
            culprit: SERVER,
            check: check.into(),
        };
        let mut r = Reader::new(bytes);
        let mut clients = Vec::new();
        while r.remaining() > 0 {
            let id = r.u32("client").map_err(Abort::malformed(SERVER))?;
            let id = PartyId::from_wire(id);
            let known = self.roster.iter().find(|(other, _)| *other == id);
            let follows = clients.last().is_none_or(|(last, _)| *last < id);
            match known.filter(|_| follows) {
                Some(client) => clients.push(*client),
                None => return Err(cheated("those who take part are on the roster, in order")),
            }
        }
        let Some(me) = clients.iter().position(|(id, _)| *id == self.id) else {
            return Err(cheated("I am among those who take part"));
        };
        if clients == self.shape.clients {
            return Ok(Step::Done {
                out: Outbox::new(),
                output: (),
            });
        }
        if !self.shape.clients.is_empty() {
            if !clients
                .iter()
                .all(|client| self.shape.clients.contains(client))
            {
                return Err(cheated("who has left does not come back"));
            }
            self.masks.attempt += 1;
            self.kept = [None, None];
        }
        self.shape.clients = clients;
        self.me = me;
        self.stage = ClientStage::Codes { sent: 0 };
        Ok(self.now(Outbox::new()))
    }

    fn now(self, out: Outbox) -> Step<Self> {
        Step::Continue {
            out,
            need: Vec::new(),
            next: self,
        }
    }

    fn seal(&mut self, numbers: &[u8]) -> Result<Outbox, Abort> {
        let sealed = self.server.seal(numbers);
        let sealed = sealed.map_err(|error| Abort::Internal(error.to_string()))?;
        Ok(Outbox::to(SERVER, sealed))
    }

    /// The next rows of X'.
    fn masked_codes(mut self, sent: usize) -> Result<Step<Self>, Abort> {
        let rows = self.shape.window(sent, self.codes.rows());
        let mut masked = Matrix16::from_bits(&self.codes, rows.clone());
        let me = self.shape.clients[self.me].0;
        self.masks.add_code_mask(me, rows.clone(), &mut masked);
        let mut packed = Vec::with_capacity(rows.len() * self.shape.row_len());
        for row in 0..masked.rows() {
            pack::pack(self.shape.width(), masked.row(row), &mut packed);
        }
        let out = self.seal(&packed)?;
        self.stage = match rows.end < self.codes.rows() {
            true => ClientStage::Codes { sent: rows.end },
            false => ClientStage::Tiles(Tiles::new(
                &vec![true; self.shape.clients.len()],
                Some(self.me),
            )),
        };
        Ok(self.now(out))
    }

    /// The matrix of one side of a tile: of the smaller client its rows, or else their mask; of the
    /// greater its masked rows, or else their mask.
    fn side(&mut self, side: usize, block: &Block) -> Matrix16 {
        if let Some((_, matrix)) = self.kept[side].take_if(|(kept, _)| *kept == *block) {
            return matrix;
        }
        let id = self.shape.clients[block.client].0;
        let rows = block.rows.clone();
        if block.client != self.me {
            return self.masks.code_mask(id, rows, self.shape.bits);
        }
        let mut own = Matrix16::from_bits(&self.codes, rows.clone());
        if side == 1 {
            self.masks.add_code_mask(id, rows, &mut own);
        }
        own
    }

    /// The next tile of U or V.
    fn tile(mut self, mut tiles: Tiles) -> Result<Step<Self>, Abort> {
        let Some((left, right)) = tiles.next(&self.shape.clients) else {
            self.stage = ClientStage::Set;
            return Ok(Step::Continue {
                out: Outbox::new(),
                need: vec![SERVER],
                next: self,
            });
        };
        let (a, b) = (self.side(0, &left), self.side(1, &right));
        let mut values = products(&a, &b);
        let width = right.rows.len();
        let columns: Vec<u16> = match right.client == self.me {
            true => right
                .rows
                .clone()
                .map(|row| ones(&self.codes, row))
                .collect(),
            false => Vec::new(),
        };
        for (row, values) in left.rows.clone().zip(values.chunks_exact_mut(width)) {
            if left.client == self.me {
                let ones = ones(&self.codes, row);
                let value = |v: &mut u16| *v = v.wrapping_mul(2).wrapping_add(ones);
                values.iter_mut().for_each(value);
            } else {
                for (ones, value) in columns.iter().zip(values) {
                    *value = value.wrapping_mul(2).wrapping_add(*ones);
                }
            }
        }
        let (j, columns) = (
            self.shape.clients[left.client].0,
            self.shape.clients[right.client].1,
        );
        let k = self.shape.clients[right.client].0;
        let op = match left.client == self.me {
            true => Op::Add,
            false => Op::Subtract,
        };
        let tile = (&left.rows, &right.rows);
        self.masks
            .distance_mask((j, k), columns, tile, op, &mut values);
        let mut packed = Vec::new();
        pack::pack(self.shape.width(), &values, &mut packed);
        let out = self.seal(&packed)?;
        self.kept = [Some((left, a)), Some((right, b))];
        self.stage = ClientStage::Tiles(tiles);
        Ok(self.now(out))
    }
}

impl Party for Client {
    type Output = ();

    fn phase(&self) -> Phase {
        PHASE
    }

    fn step(mut self, mut inbox: Inbox) -> Result<Step<Self>, Abort> {
        match std::mem::replace(&mut self.stage, ClientStage::Set) {
            ClientStage::Start => Ok(Step::Continue {
                out: Outbox::new(),
                need: vec![SERVER],
                next: self,
            }),
            ClientStage::Set => {
                let bytes = inbox.require(SERVER)?;
                self.set(&bytes)
            }
            ClientStage::Codes { sent } => self.masked_codes(sent),
            ClientStage::Tiles(tiles) => self.tile(tiles),
        }
    }
}

#[derive(Debug)]
pub(super) struct Server<S> {
    shape: Shape,
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
    pub(super) fn new(
        bits: usize,
        clients: &[(PartyId, usize)],
        channels: Vec<Channel>,
        sink: S,
    ) -> Result<Self, Abort> {
        if channels.len() != clients.len() {
            return Err(Abort::Misuse(format!(
                "{} channels to {} clients",
                channels.len(),
                clients.len()
            )));
        }
        let set = vec![true; clients.len()];
        Ok(Self {
            shape: Shape {
                bits,
                clients: clients.to_vec(),
            },
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
            return self.next_tile(tiles, out);
        }
        let need = due
            .iter()
            .map(|place| self.shape.clients[*place].0)
            .collect();
        self.stage = ServerStage::Codes { due, messages };
        Ok(Step::Continue {
            out,
            need,
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
    fn next_tile(mut self, mut tiles: Tiles, out: Outbox) -> Result<Step<Self>, Abort> {
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
                out,
                need,
                next: self,
            });
        }
        if self.there != self.set {
            let mut step = self.attempt()?;
            if let Step::Continue { out: sent, .. } = &mut step {
                let mut all = out;
                all.extend(std::mem::take(sent));
                *sent = all;
            }
            return Ok(step);
        }
        let mut out = out;
        out.extend(self.announce());
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
        self.next_tile(tiles, Outbox::new())
    }

    fn distances(&mut self, left: &Block, right: &Block, u: &[u8], v: &[u8]) -> Result<(), Abort> {
        let (width, bits) = (self.shape.width(), self.shape.bits);
        let (a, b) = (&self.codes[left.client], &self.codes[right.client]);
        let columns = right.rows.len();
        let mut values = vec![0; left.rows.len() * columns];
        let (mut us, mut vs) = (values.clone(), values.clone());
        pack::unpack(width, u, &mut us);
        pack::unpack(width, v, &mut vs);
        let part = left
            .rows
            .len()
            .div_ceil(rayon::current_num_threads())
            .max(1);
        values
            .par_chunks_mut(part * columns)
            .enumerate()
            .for_each(|(index, out)| {
                let first = left.rows.start + index * part;
                let rows = first..first + out.len() / columns;
                product::products(Cpu::detect(), a, rows, b, right.rows.clone(), out);
            });
        let mask = u16::MAX >> (16 - width);
        for ((value, u), v) in values.iter_mut().zip(us).zip(vs) {
            *value = u.wrapping_add(v).wrapping_sub(value.wrapping_mul(2)) & mask;
        }
        if values.iter().any(|distance| usize::from(*distance) > bits) {
            let other = self.shape.clients[right.client].0;
            return Err(Abort::Cheated {
                culprit: self.shape.clients[left.client].0,
                check: format!("it and {other} send halves of distances of at most {bits} bits"),
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
