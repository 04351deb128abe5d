//! The parties' steps: the sums that make centres, then who is in which cell.

use sha2::{Digest, Sha256};
use undertone_hamming as hamming;
use undertone_kdf::Seed;
use undertone_kernel::mask::{self, Suite};
use undertone_kernel::{Prg, Wiped};
use undertone_party::{Abort, Io, PartyId, SessionId};
use undertone_setup::group::Group;
use undertone_setup::roster::enough;
use undertone_sum::series::{Adder, Layout, Number, Owner, Series};
use zeroize::Zeroizing;

use super::centres::{self, Centres};
use super::noise::gaussian;
use super::slots::{self, Named, Slots, Upload};
use super::{Budget, Cells, ROUNDS};
use crate::input::Features;
use crate::messages::Clients;

const SERVER: PartyId = PartyId::SERVER;

/// What all parties of a run know of its cells.
#[derive(Debug, Clone)]
pub(crate) struct Shape {
    pub(crate) cells: Cells,
    pub(crate) budget: Budget,
    /// The clients and their numbers of rows.
    clients: Vec<(PartyId, usize)>,
    dim: usize,
    min_clients: usize,
}

impl Shape {
    pub(crate) fn new(cells: Cells, clients: &Clients, min_clients: usize) -> Result<Self, Abort> {
        let rows = clients.rows.iter().map(|(_, rows)| rows).sum();
        Ok(Self {
            cells,
            budget: Budget::new(&cells, clients.rows.len(), rows, clients.dim)?,
            clients: clients.rows.clone(),
            dim: clients.dim,
            min_clients,
        })
    }

    /// The number of rows of all clients.
    fn rows(&self) -> usize {
        self.clients.iter().map(|(_, rows)| rows).sum()
    }

    /// The messages of a client with this many rows.
    fn named(&self, rows: usize) -> Named {
        Named::new(rows, self.cells, &self.budget)
    }

    /// The layout of the sum of a round. Round 0 finds the mean.
    fn layout(&self, round: u32) -> Result<Layout, Abort> {
        let vectors = if round == 0 { 1 } else { self.cells.cells };
        let members = self.clients.iter().map(|(id, _)| *id).collect();
        Layout::plain(Owner::Clients, vectors * self.dim, members)
    }
}

fn number(round: u32) -> Number {
    Number {
        step: round,
        kind: 0,
    }
}

/// The secrets of a client for this part.
pub(crate) struct Secrets<'a> {
    pub(crate) session: SessionId,
    pub(crate) me: PartyId,
    pub(crate) suite: Suite,
    pub(crate) group: &'a Group,
    /// A seed that all clients have, and the server does not.
    pub(crate) common: Seed,
    /// A seed of the client's own.
    pub(crate) own: Seed,
}

impl Secrets<'_> {
    /// The client's stream after what the server has sent.
    fn prg(&self, purpose: &str, heard: &Heard) -> Prg {
        self.own.expand(self.session, purpose, &heard.0).prg()
    }

    /// The series of the next sum. It has masks of its own if a key or anything that the server has
    /// sent is another.
    fn series(&self, heard: &Heard) -> Result<Series, Abort> {
        let id = self.common.expand(self.session, "series", &heard.0);
        let id = SessionId(*id.expose());
        Series::new(id, "cells", self.suite, self.me, self.group)
    }
}

/// A digest of what the server has sent. All that a client draws follows from it: whatever the
/// server changes in a session that runs again, no mask and no noise serves twice.
#[derive(Clone, Copy)]
pub(crate) struct Heard([u8; 32]);

impl Heard {
    fn and(self, message: &[u8]) -> Self {
        let digest = Sha256::new_with_prefix(self.0).chain_update(message);
        Self(digest.finalize().into())
    }

    fn and_sum(self, words: &[u64]) -> Self {
        let mut bytes = Zeroizing::new(Vec::with_capacity(size_of_val(words)));
        mask::append_bytes(words, &mut bytes);
        self.and(&bytes)
    }

    /// `seed` after what the server has sent.
    pub(crate) fn bind(&self, session: SessionId, seed: &Seed) -> Seed {
        seed.expand(session, "after cells", &self.0)
    }
}

/// What a client knows once cells are named.
pub(crate) struct Known {
    pub(crate) slots: Slots,
    /// The clients that remain, with their numbers of slots.
    pub(crate) clients: Vec<(PartyId, usize)>,
    pub(crate) cells: hamming::Cells,
    pub(crate) heard: Heard,
}

/// The client's side, with its `rows`.
pub(crate) async fn client(
    io: &Io,
    shape: &Shape,
    secrets: &Secrets<'_>,
    rows: &Features,
) -> Result<Known, Abort> {
    // Steps 1 and 2: the centres, and the nearest cells of each row.
    let (near, heard) = nearest(io, shape, secrets, rows).await?;
    // Step 3: the cells, and the sizes with dummies.
    let mut noise = secrets.prg("noise on sizes", &heard);
    let slots = Slots::noisy(&shape.cells, &shape.budget, &near, &mut noise);
    for message in shape.named(rows.rows()).write(&slots, &near) {
        io.send(SERVER, message);
        io.pause().await;
    }
    // Step 4: everybody's sizes.
    let ids: Vec<PartyId> = shape.clients.iter().map(|(id, _)| *id).collect();
    let message = io.require(SERVER).await?;
    let left = slots::read_clients(&message, &ids, secrets.me)?;
    let mut heard = heard.and(&message);
    enough(left.len(), shape.min_clients)?;
    let mut sizes = Vec::with_capacity(left.len());
    let there = shape.clients.iter().filter(|(id, _)| left.contains(id));
    for (id, rows) in there {
        let message = io.require(SERVER).await?;
        let theirs = slots::read_sizes(&message, &shape.named(*rows))?;
        heard = heard.and(&message);
        // CELLS-6
        if *id == secrets.me && theirs != slots.sizes() {
            let why = "it gives this client other sizes of cells than its own";
            return Err(Abort::cheated(SERVER, why));
        }
        sizes.push(theirs);
    }
    let total = |sizes: &Vec<usize>| sizes.iter().sum();
    let clients = left.into_iter().zip(sizes.iter().map(total)).collect();
    Ok(Known {
        slots,
        clients,
        cells: hamming::Cells::new(&sizes)?,
        heard,
    })
}

/// The nearest cells of each row.
async fn nearest(
    io: &Io,
    shape: &Shape,
    secrets: &Secrets<'_>,
    rows: &Features,
) -> Result<(Wiped<u16>, Heard), Abort> {
    let rows = centres::unit_rows(rows);
    let common = &secrets.common;
    let mut common = common.derive(secrets.session, "centres", &[]).prg();
    let mut heard = Heard([0; 32]);
    let (cells, least) = (shape.cells.cells, 2.0 * shape.budget.length);

    let mut sum = vec![0; shape.dim];
    for row in rows.chunks_exact(shape.dim) {
        centres::add(row, &mut sum);
    }
    let sum = total(io, shape, secrets, 0, sum, &mut heard).await?;
    let mut centres = Centres::start(&sum, shape.rows(), cells, &mut common);
    for round in 1..=ROUNDS {
        let nearest = Wiped::from(centres.nearest(&rows, 1));
        let sums = centres.sums(&rows, &nearest);
        io.pause().await;
        let sums = total(io, shape, secrets, round, sums, &mut heard).await?;
        centres = centres.next(&sums, least, round == ROUNDS, &mut common);
    }
    let near = centres.nearest(&rows, shape.cells.probes);
    Ok((near.into(), heard))
}

/// The sum of a round over all clients, with everybody's noise.
async fn total(
    io: &Io,
    shape: &Shape,
    secrets: &Secrets<'_>,
    round: u32,
    words: Vec<u64>,
    heard: &mut Heard,
) -> Result<Zeroizing<Vec<u64>>, Abort> {
    let mut noise = secrets.prg("noise on sums", heard);
    let mut words = Zeroizing::new(words);
    for word in words.iter_mut() {
        *word = word.wrapping_add(gaussian(&mut noise, shape.budget.sum_sigma) as u64);
    }
    let layout = shape.layout(round)?;
    let mut series = secrets.series(heard)?;
    let sum = series.sum(io, number(round), &layout, words).await?;
    *heard = heard.and_sum(&sum);
    Ok(sum)
}

/// The server's side. It returns the slots of each client, or none of one that dropped out.
pub(crate) async fn server(io: &Io, shape: &Shape) -> Result<Vec<Option<Slots>>, Abort> {
    // Step 1.
    let members: Vec<PartyId> = shape.clients.iter().map(|(id, _)| *id).collect();
    let mut adder = Adder::new(members.clone());
    for round in 0..=ROUNDS {
        let layout = shape.layout(round)?;
        adder.sum::<u64>(io, number(round), &layout).await?;
    }

    // Step 3.
    let heard = |(id, rows): &(PartyId, usize)| Some(Upload::new(*id, shape.named(*rows)));
    let mut all: Vec<Option<Upload>> = shape.clients.iter().map(heard).collect();
    loop {
        let is_due = |place: &usize| all[*place].as_ref().is_some_and(Upload::is_due);
        let due: Vec<usize> = (0..all.len()).filter(is_due).collect();
        if due.is_empty() {
            break;
        }
        let from: Vec<PartyId> = due.iter().map(|place| members[*place]).collect();
        let messages = io.recv_all(&from).await;
        for (place, (_, message)) in due.into_iter().zip(messages) {
            match (message, &mut all[place]) {
                (Some(bytes), Some(heard)) => heard.take(&bytes)?,
                _ => all[place] = None,
            }
        }
    }
    let finished = all.into_iter().map(|heard| heard.map(Upload::finish));
    let slots: Vec<Option<Slots>> = finished
        .map(Option::transpose)
        .collect::<Result<_, Abort>>()?;

    // Step 4.
    let there = members
        .iter()
        .zip(&slots)
        .filter(|(_, slots)| slots.is_some());
    let left: Vec<PartyId> = there.map(|(id, _)| *id).collect();
    enough(left.len(), shape.min_clients)?;
    let sizes = slots.iter().flatten().map(Slots::sizes);
    for message in slots::write_all(&left, sizes) {
        io.send_all(left.iter().map(|id| (*id, message.clone())));
        io.pause().await;
    }
    Ok(slots)
}
