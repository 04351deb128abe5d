//! A client's side of `psm`.

use undertone_kernel::mask::Op;
use undertone_kernel::{BitMatrix, Matrix16, pack};
use undertone_party::{Abort, Inbox, Outbox, Party, PartyId, Phase, Reader, Step};

use super::super::{PHASE, Peers, weight};
use super::{Masks, SERVER, Shape, Tiles, products};
use crate::tiles::Block;
use undertone_setup::roster::enough;
use undertone_setup::seal::Channel;

#[derive(Debug)]
pub(in super::super) struct Client {
    roster: Vec<(PartyId, usize)>,
    id: PartyId,
    codes: BitMatrix,
    masks: Masks,
    server: Channel,
    min_clients: usize,
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
    pub(in super::super) fn new(codes: BitMatrix, peers: Peers) -> Result<Self, Abort> {
        let Peers {
            session,
            me,
            clients,
            seed,
            suite,
            server,
            min_clients,
            ..
        } = peers;
        super::super::check_bits(codes.columns())?;
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
            min_clients,
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
        enough(clients.len(), self.min_clients)?;
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
            need: vec![].into(),
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
                need: vec![SERVER].into(),
                next: self,
            });
        };
        let (a, b) = (self.side(0, &left), self.side(1, &right));
        let mut values = products(&a, 0..a.rows(), &b, 0..b.rows());
        let width = right.rows.len();
        let columns: Vec<u16> = match right.client == self.me {
            true => right
                .rows
                .clone()
                .map(|row| weight(&self.codes, row))
                .collect(),
            false => Vec::new(),
        };
        for (row, values) in left.rows.clone().zip(values.chunks_exact_mut(width)) {
            if left.client == self.me {
                let ones = weight(&self.codes, row);
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
                need: vec![SERVER].into(),
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
