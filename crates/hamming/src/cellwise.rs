//! `lwe`, `shade` and `phe` with cells: a run for each cell, one after another.
//!
//! Each run has seeds and channels of its own, which follow from those of the whole. A client that
//! drops out is not in later runs, and the distances of its rows in earlier ones are discarded.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use undertone_kdf::Seed;
use undertone_kernel::BitMatrix;
use undertone_party::{Abort, Io, PartyId, SessionId};
use undertone_setup::roster::enough;
use undertone_setup::seal::Channel;

use crate::tiles::{Block, Sink, Tile};
use crate::{Backend, Cells, ClientContext, Collected, ServerContext, pairwise_server};

const SERVER: PartyId = PartyId::SERVER;

/// The purpose of what is derived for a cell.
const CELL: &str = "cell";

/// The context of the run of a cell, in the place of the session id.
fn session(session: SessionId, cell: usize) -> SessionId {
    let id = Seed::extract(session, CELL, &(cell as u32).to_le_bytes());
    SessionId(*id.expose())
}

/// Checks the rows of all cells, before the first run: LWE-15 where the backend is `lwe`.
pub(super) fn check_rows(
    backend: Backend,
    cells: &Cells,
    clients: &[(PartyId, usize)],
) -> Result<(), Abort> {
    for cell in 0..cells.len() {
        let places = clients.iter().enumerate();
        let rows = places.map(|(place, (id, _))| (*id, cells.range(place, cell).len()));
        crate::check_rows(backend, &rows.collect::<Vec<_>>())?;
    }
    Ok(())
}

/// What a client needs until it has codes.
#[derive(Debug)]
pub(super) struct Waiting {
    backend: Backend,
    bits: usize,
    ctx: ClientContext,
    cells: Cells,
}

impl Waiting {
    pub(super) fn new(backend: Backend, bits: usize, mut ctx: ClientContext, cells: Cells) -> Self {
        ctx.cells = None;
        Self {
            backend,
            bits,
            ctx,
            cells,
        }
    }

    /// The context of a cell.
    fn context(&self, cell: usize) -> ClientContext {
        let (ctx, ids) = (&self.ctx, [cell as u32]);
        let session = session(ctx.session, cell);
        let seed = ctx.seed.derive(ctx.session, CELL, &ids);
        let server = ctx.server.export(ctx.session, CELL, &ids);
        // The common seed is another in a session that runs again with other messages.
        let channel = |end: &Channel, peer| {
            let secret = end.export(ctx.session, CELL, &ids);
            let secret = secret.expand(session, "common seed", seed.expose());
            Channel::new(session, &secret, ctx.me, peer)
        };
        let clients = ctx.clients.iter().enumerate();
        let ends = ctx.channels.iter();
        let channels = ends
            .map(|(peer, end)| (*peer, channel(end, *peer)))
            .collect();
        ClientContext {
            session,
            me: ctx.me,
            clients: clients
                .map(|(place, (id, _))| (*id, self.cells.range(place, cell).len()))
                .collect(),
            cells: None,
            secret: ctx.secret.derive(ctx.session, CELL, &ids),
            suite: ctx.suite,
            server: Channel::new(session, &server, ctx.me, SERVER),
            phe: ctx.phe,
            seed,
            channels,
            min_clients: ctx.min_clients,
        }
    }

    /// Checks the codes.
    pub(super) fn check(&self, codes: &BitMatrix) -> Result<(), Abort> {
        self.ctx.check_codes(codes, self.bits)
    }

    /// The client's protocol.
    pub(super) async fn run(self, io: Io, codes: BitMatrix) -> Result<(), Abort> {
        let mut clients = self.ctx.clients.iter();
        let me = clients.position(|(id, _)| *id == self.ctx.me);
        let me = me.ok_or_else(|| Abort::Internal("a client is not among its peers".into()))?;
        for cell in 0..self.cells.len() {
            let ctx = self.context(cell);
            let prepared = io
                .run(crate::prepare(self.backend, self.bits, ctx)?)
                .await?;
            let rows: Vec<usize> = self.cells.range(me, cell).collect();
            io.run(crate::client(codes.select(&rows), prepared)?)
                .await?;
        }
        Ok(())
    }
}

/// The sink of each pair of clients, by their places: one of the two can still drop out.
type Pairs<S> = BTreeMap<[usize; 2], S>;

/// Tiles of a cell become tiles of the whole, in the sink of their pair.
struct Within<S> {
    /// For each client of the cell, its place, and its first row in the cell.
    clients: Arc<Vec<(usize, usize)>>,
    empty: Arc<S>,
    /// The sinks that nobody fills now.
    pairs: Arc<Mutex<Pairs<S>>>,
    /// The one that this fills. The whole fills none.
    pair: Option<([usize; 2], S)>,
}

impl<S: Sink> Within<S> {
    fn pairs(&self) -> MutexGuard<'_, Pairs<S>> {
        self.pairs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn of(&self, pair: Option<([usize; 2], S)>) -> Self {
        Self {
            clients: Arc::clone(&self.clients),
            empty: Arc::clone(&self.empty),
            pairs: Arc::clone(&self.pairs),
            pair,
        }
    }
}

impl<S: Sink> Sink for Within<S> {
    fn fork(&self) -> Self {
        self.of(None)
    }

    fn between(&self, left: usize, right: usize) -> Self {
        let (left, right) = (self.clients[left].0, self.clients[right].0);
        let pair = [left.min(right), left.max(right)];
        let sink = self.pairs().remove(&pair);
        let sink = sink.unwrap_or_else(|| self.empty.between(pair[0], pair[1]));
        self.of(Some((pair, sink)))
    }

    fn join(&mut self, other: Self) {
        if let Some((pair, sink)) = other.pair {
            self.pairs().insert(pair, sink);
        }
    }

    fn tile(&mut self, tile: &Tile<'_>) {
        let block = |block: &Block| {
            let (client, first) = self.clients[block.client];
            Block {
                client,
                rows: first + block.rows.start..first + block.rows.end,
            }
        };
        let (left, right) = (block(tile.left), block(tile.right));
        let Some((_, sink)) = &mut self.pair else {
            unreachable!("backends with pairs of clients fill the sinks of pairs")
        };
        sink.tile(&Tile {
            left: &left,
            right: &right,
            distances: tile.distances,
        });
    }
}

/// The server's protocol.
pub(super) async fn collect<S: Sink>(
    io: Io,
    mut ctx: ServerContext,
    mut sink: S,
) -> Result<Collected<S>, Abort> {
    let cells = ctx.cells.take();
    let cells = cells.ok_or_else(|| Abort::Internal("there are no cells".into()))?;
    let mut remains = vec![true; ctx.clients.len()];
    let (empty, pairs) = (Arc::new(sink.fork()), Arc::new(Mutex::new(Pairs::new())));
    let mut above = 0;
    for cell in 0..cells.len() {
        let there: Vec<usize> = (0..remains.len()).filter(|place| remains[*place]).collect();
        enough(there.len(), ctx.min_clients)?;
        let session = session(ctx.session, cell);
        let channel = |place: &usize| {
            let secret = ctx.channels[*place].export(ctx.session, CELL, &[cell as u32]);
            Channel::new(session, &secret, SERVER, ctx.clients[*place].0)
        };
        let range = |place: &usize| cells.range(*place, cell);
        let inner = ServerContext {
            session,
            backend: ctx.backend,
            bits: ctx.bits,
            clients: there
                .iter()
                .map(|place| (ctx.clients[*place].0, range(place).len()))
                .collect(),
            cells: None,
            channels: there.iter().map(channel).collect(),
            min_clients: ctx.min_clients,
            suite: ctx.suite,
            phe: ctx.phe,
        };
        let firsts = there.iter().map(|place| (*place, range(place).start));
        let within = Within {
            clients: Arc::new(firsts.collect()),
            empty: Arc::clone(&empty),
            pairs: Arc::clone(&pairs),
            pair: None,
        };
        let ended = io.run(pairwise_server(inner, within)?).await?;
        above += ended.above;
        for (place, remained) in there.into_iter().zip(ended.remains) {
            remains[place] = remained;
        }
    }
    let pairs = std::mem::take(&mut *pairs.lock().unwrap_or_else(PoisonError::into_inner));
    for (pair, of_pair) in pairs {
        if pair.iter().all(|place| remains[*place]) {
            sink.join(of_pair);
        }
    }
    Ok(Collected {
        sink,
        above,
        remains,
    })
}
