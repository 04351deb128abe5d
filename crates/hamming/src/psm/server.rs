//! The server's side of `psm`.

use std::ops::Range;

use rayon::prelude::*;
use undertone_kernel::{Matrix16, pack};
use undertone_party::{Abort, Io, PartyId, Payload};
use undertone_setup::roster::enough;
use undertone_setup::seal::Channel;

use super::super::{Collected, ServerContext};
use super::{Shape, Tiles, cells, part, products};
use crate::tiles::{Block, Sink, Tile};

/// The server and its current attempt.
pub(in super::super) struct Server<S> {
    shape: Shape,
    min_clients: usize,
    channels: Vec<Channel>,
    /// The sink without any distance of `psm`. Each attempt starts from forks of it, one for each
    /// thread.
    empty: S,
    sinks: Vec<S>,
    /// The participants of this attempt, and those that have not dropped out.
    set: Vec<bool>,
    there: Vec<bool>,
    /// The masked codes of a cell.
    cell: usize,
    codes: Vec<Matrix16>,
}

impl<S: Sink> Server<S> {
    pub(in super::super) fn new(ctx: ServerContext, sink: S) -> Self {
        let set = vec![true; ctx.clients.len()];
        Self {
            min_clients: ctx.min_clients,
            channels: ctx.channels,
            sinks: Vec::new(),
            empty: sink,
            there: set.clone(),
            set,
            cell: 0,
            codes: Vec::new(),
            shape: Shape {
                bits: ctx.bits,
                cells: cells(ctx.cells, &ctx.clients),
                clients: ctx.clients,
            },
        }
    }

    /// Runs attempts until no client drops out during one.
    pub(in super::super) async fn run(mut self, io: Io) -> Result<Collected<S>, Abort> {
        loop {
            // Step 1, or step 4 after a client dropped out: the participants.
            let left = self.there.iter().filter(|there| **there).count();
            enough(left, self.min_clients)?;
            io.send_all(self.participants());
            self.start();

            for cell in 0..self.shape.cells.len() {
                // Step 2: the masked codes, in tiles of rows.
                self.collect_codes(&io, cell).await?;

                // Step 3: both halves of every tile of distances.
                let mut tiles = Tiles::new(cell, &self.set, None);
                while let Some((left, right)) = tiles.next(&self.shape.cells) {
                    self.collect_tile(&io, left, right).await?;
                }
            }

            // Step 4: if no client dropped out, send the same participants and finish.
            if self.there == self.set {
                io.send_all(self.participants());
                for sink in self.sinks {
                    self.empty.join(sink);
                }
                return Ok(Collected {
                    sink: self.empty,
                    above: 0,
                    remains: self.there,
                });
            }
        }
    }

    /// The message to each remaining client: the numbers of all remaining clients.
    fn participants(&self) -> Vec<(PartyId, Vec<u8>)> {
        let clients = self.shape.clients.iter().zip(&self.there);
        let there = clients.filter(|(_, there)| **there);
        let ids: Vec<PartyId> = there.map(|((id, _), _)| *id).collect();
        let numbers = ids.iter().flat_map(|id| id.to_wire().to_le_bytes());
        let message: Vec<u8> = numbers.collect();
        ids.into_iter().map(|id| (id, message.clone())).collect()
    }

    /// Starts an attempt with the remaining clients.
    fn start(&mut self) {
        self.set.clone_from(&self.there);
        let threads = 0..rayon::current_num_threads();
        self.sinks = threads.map(|_| self.empty.fork()).collect();
    }

    async fn collect_codes(&mut self, io: &Io, cell: usize) -> Result<(), Abort> {
        self.cell = cell;
        let zero = || Matrix16::zero(0, self.shape.bits);
        self.codes = self.shape.clients.iter().map(|_| zero()).collect();
        let mut due = self.set.clone();
        loop {
            let places: Vec<usize> = (0..due.len()).filter(|place| due[*place]).collect();
            if places.is_empty() {
                return Ok(());
            }
            let ids = places.iter().map(|place| self.shape.clients[*place].0);
            let heard = io.recv_all(&ids.collect::<Vec<_>>()).await;
            for (place, (_, message)) in places.into_iter().zip(heard) {
                self.take_codes(place, message)?;
                let rows = self.shape.cells.range(place, cell).len();
                due[place] = self.there[place] && self.codes[place].rows() < rows;
            }
        }
    }

    /// Takes both halves of a tile and computes its distances. A client still sends its half when
    /// its peer has dropped out; the server discards it.
    async fn collect_tile(&mut self, io: &Io, left: Block, right: Block) -> Result<(), Abort> {
        let both = [left.client, right.client].into_iter();
        let places: Vec<usize> = both.filter(|place| self.there[*place]).collect();
        if places.is_empty() {
            return Ok(());
        }
        let count = left.rows.len() * right.rows.len();
        let due = pack::packed_len(self.shape.width(), count);
        let ids = places.iter().map(|place| self.shape.clients[*place].0);
        let heard = io.recv_all(&ids.collect::<Vec<_>>()).await;
        let mut halves = Vec::with_capacity(2);
        for (place, (_, message)) in places.into_iter().zip(heard) {
            halves.extend(self.open(place, message, due)?);
        }
        // After a client dropped out there will be another attempt.
        if let [u, v] = &halves[..]
            && self.there == self.set
        {
            self.distances(&left, &right, u, v)?;
        }
        Ok(())
    }

    /// Opens the next message of the client at index `place`. `None` if it dropped out.
    fn open(
        &mut self,
        place: usize,
        message: Option<Payload>,
        due: usize,
    ) -> Result<Option<Vec<u8>>, Abort> {
        let from = self.shape.clients[place].0;
        let malformed = |what: String| Abort::Malformed { from, what };
        let Some(sealed) = message else {
            self.there[place] = false;
            return Ok(None);
        };
        let opened = self.channels[place].open(&sealed);
        // PSM-6
        let opened = opened.map_err(|error| malformed(error.to_string()))?;
        // PSM-7
        if opened.len() != due {
            return Err(malformed(format!(
                "{} bytes of numbers, {due} are due",
                opened.len()
            )));
        }
        Ok(Some(opened))
    }

    fn take_codes(&mut self, place: usize, message: Option<Payload>) -> Result<(), Abort> {
        let (width, len) = (self.shape.width(), self.shape.row_len());
        let rows = self.shape.cells.range(place, self.cell).len();
        let rows = self.shape.window(self.codes[place].rows(), rows).len();
        if let Some(bytes) = self.open(place, message, rows * len)? {
            let values: Vec<&mut [u16]> = self.codes[place].append(rows).collect();
            let rows = values.into_par_iter().zip(bytes.par_chunks_exact(len));
            rows.for_each(|(values, bytes)| pack::unpack(width, bytes, values));
        }
        Ok(())
    }

    /// The rows of a block, among those of its client in the cell.
    fn within(&self, block: &Block) -> Range<usize> {
        let first = self.shape.cells.range(block.client, self.cell).start;
        block.rows.start - first..block.rows.end - first
    }

    fn distances(&mut self, left: &Block, right: &Block, u: &[u8], v: &[u8]) -> Result<(), Abort> {
        let (width, bits) = (self.shape.width(), self.shape.bits);
        let (a, b) = (&self.codes[left.client], &self.codes[right.client]);
        let mut values = products(a, self.within(left), b, self.within(right));
        let columns = right.rows.len();
        let part = part(left.rows.len());
        // A part is whole bytes.
        let bytes = pack::packed_len(width, part * columns);
        let mask = u16::MAX >> (16 - width);
        values
            .par_chunks_mut(part * columns)
            .zip(u.par_chunks(bytes).zip(v.par_chunks(bytes)))
            .for_each(|(values, (u, v))| {
                let (mut us, mut vs) = (vec![0; values.len()], vec![0; values.len()]);
                pack::unpack(width, u, &mut us);
                pack::unpack(width, v, &mut vs);
                for ((value, u), v) in values.iter_mut().zip(us).zip(vs) {
                    *value = u.wrapping_add(v).wrapping_sub(value.wrapping_mul(2)) & mask;
                }
            });
        // PSM-8
        if values.iter().any(|distance| usize::from(*distance) > bits) {
            let other = self.shape.clients[right.client].0;
            return Err(Abort::Contradicted {
                first: self.shape.clients[left.client].0,
                second: other,
                fault: format!("their halves give a distance above {bits} bits"),
            });
        }
        let rows = left.rows.len().div_ceil(self.sinks.len());
        let parts = values.par_chunks(rows * columns).enumerate();
        self.sinks
            .par_iter_mut()
            .zip(parts)
            .for_each(|(sink, (index, distances))| {
                let first = left.rows.start + index * rows;
                let left = Block {
                    client: left.client,
                    rows: first..first + distances.len() / columns,
                };
                sink.tile(&Tile {
                    left: &left,
                    right,
                    distances,
                });
            });
        Ok(())
    }
}
