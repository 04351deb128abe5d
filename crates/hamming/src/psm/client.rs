//! The client's side of `psm`.

use std::ops::Range;

use rayon::prelude::*;
use undertone_kernel::mask::Op;
use undertone_kernel::{BitMatrix, Matrix16, Wiped, pack};
use undertone_party::{Abort, Io, PartyId, Payload, Reader};
use undertone_setup::roster::enough;
use undertone_setup::seal::Channel;

use super::super::{ClientContext, weight};
use super::{Masks, SERVER, Shape, Tiles, bit_products, cells, joined, packed, part, products};
use crate::cells::Cells;
use crate::tiles::Block;

/// A client and its current attempt.
#[derive(Debug)]
pub(in super::super) struct Client {
    roster: Vec<(PartyId, usize)>,
    /// The cells of all on the roster.
    cells: Cells,
    id: PartyId,
    codes: BitMatrix,
    masks: Masks,
    server: Channel,
    min_clients: usize,
    /// The participants of this attempt, and the index of the client among them.
    shape: Shape,
    me: usize,
    /// The matrices of the last tile. The next tile mostly needs one of them again.
    kept: [Option<(Block, Matrix16)>; 2],
}

impl Client {
    pub(in super::super) fn new(codes: BitMatrix, ctx: ClientContext) -> Result<Self, Abort> {
        let ClientContext {
            session,
            me,
            clients,
            cells: all,
            seed,
            suite,
            server,
            min_clients,
            ..
        } = ctx;
        super::super::check_bits(super::super::Backend::Psm, codes.columns())?;
        if !clients.contains(&(me, codes.rows())) {
            return Err(Abort::Misuse(format!(
                "{me} is not on the roster with {} rows",
                codes.rows()
            )));
        }
        Ok(Self {
            id: me,
            shape: Shape {
                bits: codes.columns(),
                clients: Vec::new(),
                cells: Cells::one([]),
            },
            cells: cells(all, &clients),
            roster: clients,
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
            kept: [None, None],
        })
    }

    /// Runs attempts until the server names the same participants twice.
    pub(in super::super) async fn run(mut self, io: Io) -> Result<(), Abort> {
        loop {
            // Steps 1 and 4: the participants.
            let clients = self.participants(&io.require(SERVER).await?)?;
            if clients == self.shape.clients {
                return Ok(());
            }
            self.attempt(clients)?;
            io.pause().await;

            for cell in 0..self.shape.cells.len() {
                self.cell(&io, cell).await?;
            }
        }
    }

    /// Its messages about the rows of a cell.
    async fn cell(&mut self, io: &Io, cell: usize) -> Result<(), Abort> {
        // Step 2: the masked codes, in tiles of rows.
        let due = self.shape.cells.range(self.me, cell);
        let mut sent = due.start;
        loop {
            let rows = self.shape.window(sent, due.end);
            sent = rows.end;
            let message = self.masked_codes(rows)?;
            io.send(SERVER, message);
            io.pause().await;
            if sent == due.end {
                break;
            }
        }

        // Step 3: its half of every tile of distances to other clients.
        let all = vec![true; self.shape.clients.len()];
        let mut tiles = Tiles::new(cell, &all, Some(self.me));
        while let Some((left, right)) = tiles.next(&self.shape.cells) {
            let message = self.half(left, right)?;
            io.send(SERVER, message);
            io.pause().await;
        }
        Ok(())
    }

    /// The participants that the server names.
    fn participants(&self, bytes: &[u8]) -> Result<Vec<(PartyId, usize)>, Abort> {
        let mut r = Reader::new(bytes);
        let mut clients = Vec::new();
        while r.remaining() > 0 {
            // PSM-1
            let id = r.u32("client").map_err(Abort::malformed(SERVER))?;
            let id = PartyId::from_wire(id);
            let known = self.roster.iter().find(|(other, _)| *other == id);
            let follows = clients.last().is_none_or(|(last, _)| *last < id);
            // PSM-2
            match known.filter(|_| follows) {
                Some(client) => clients.push(*client),
                None => {
                    return Err(Abort::cheated(
                        SERVER,
                        "its list of participants names a client that is not on the roster, or is \
                         out of order",
                    ));
                }
            }
        }
        // PSM-3
        if !clients.iter().any(|(id, _)| *id == self.id) {
            return Err(Abort::cheated(
                SERVER,
                "its list of participants leaves this client out",
            ));
        }
        enough(clients.len(), self.min_clients)?; // PSM-4
        Ok(clients)
    }

    /// Starts an attempt with `clients`.
    fn attempt(&mut self, clients: Vec<(PartyId, usize)>) -> Result<(), Abort> {
        let before = &self.shape.clients;
        if !before.is_empty() {
            // PSM-5
            if !clients.iter().all(|client| before.contains(client)) {
                return Err(Abort::cheated(
                    SERVER,
                    "its list of participants names a dropped client",
                ));
            }
            self.masks.attempt += 1;
            self.kept = [None, None];
        }
        self.me = clients.partition_point(|(id, _)| *id < self.id);
        let roster = self.roster.iter();
        let places = clients.iter().filter_map(|client| {
            let mut roster = roster.clone();
            roster.position(|other| other == client)
        });
        self.shape.cells = self.cells.select(places);
        self.shape.clients = clients;
        Ok(())
    }

    fn seal(&mut self, numbers: &[u8]) -> Result<Payload, Abort> {
        let sealed = self.server.seal(numbers);
        let sealed = sealed.map_err(|error| Abort::Internal(error.to_string()))?;
        Ok(sealed.into())
    }

    /// The message with these rows of X'.
    fn masked_codes(&mut self, rows: Range<usize>) -> Result<Payload, Abort> {
        let mut masked = Matrix16::from_bits(&self.codes, rows.clone());
        let me = self.shape.clients[self.me].0;
        self.masks.add_code_mask(me, rows.clone(), &mut masked);
        let (width, row_len) = (self.shape.width(), self.shape.row_len());
        let part = part(masked.rows());
        let firsts = (0..masked.rows()).into_par_iter().step_by(part);
        let packed = firsts.map(|first| {
            let rows = first..masked.rows().min(first + part);
            let mut packed = Wiped::with_capacity(rows.len() * row_len + pack::SLACK);
            for row in rows {
                pack::pack(width, masked.row(row), &mut packed);
            }
            packed
        });
        let packed = joined(packed.collect());
        self.seal(&packed)
    }

    /// The matrix of one side of a tile. Side 0 belongs to the client with the smaller number, side
    /// 1 to the other. For this client's own rows on side 1 it is the masked rows. For the other
    /// client's rows it is their mask.
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
        self.masks.add_code_mask(id, rows, &mut own);
        own
    }

    /// The message with a tile of U or V.
    fn half(&mut self, left: Block, right: Block) -> Result<Payload, Abort> {
        let b = self.side(1, &right);
        let (a, mut values) = if left.client == self.me {
            let values = bit_products(&self.codes, left.rows.clone(), &b);
            (None, values)
        } else {
            let a = self.side(0, &left);
            let values = products(&a, 0..a.rows(), &b, 0..b.rows());
            (Some((left.clone(), a)), values)
        };
        let width = right.rows.len();
        let columns: Wiped<u16> = if right.client == self.me {
            right
                .rows
                .clone()
                .map(|row| weight(&self.codes, row))
                .collect::<Vec<u16>>()
                .into()
        } else {
            Wiped::default()
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
        let op = if left.client == self.me {
            Op::Add
        } else {
            Op::Subtract
        };
        let tile = (&left.rows, &right.rows);
        self.masks
            .distance_mask((j, k), columns, tile, op, &mut values);
        let packed = packed(self.shape.width(), width, &values);
        let message = self.seal(&packed)?;
        self.kept = [a, Some((right, b))];
        Ok(message)
    }
}
