//! Hamming distances between all rows of different clients, delivered to the server.
//!
//! All [`Backend`]s have the same interface. The input is every client's codes. At the end the
//! server's [`Sink`] has taken every distance. Backends differ in trust and cost. This crate does
//! not compute distances between rows of the same client.
//!
//! | script | who runs it | output |
//! |---|---|---|
//! | [`prepare`] | client, before it has codes, in a phase of its own | [`Prepared`] |
//! | [`client`] | client, with its codes and its [`Prepared`] | nothing |
//! | [`server`] | server | [`Collected`] |
//!
//! With `shade` clients exchange in advance most of what their transfers need. With `phe` they
//! exchange keys in advance. With `lwe` they compute a public matrix in advance, and send nothing.
//! The other backends have nothing to prepare: expanding masks is faster than storing them.
//!
//! `docs/spec/distances.md` specifies the messages, and `psm.md`, `lwe.md`, `shade.md` and `phe.md`
//! beside it those of the backends. Comments such as `DIST-5` name checks of these documents.
#![forbid(unsafe_code)]

mod cells;
mod cellwise;
mod context;
mod lwe;
mod pairwise;
mod phe;
mod plain;
mod psm;
mod shade;
pub mod tiles;

use std::fmt;
use std::str::FromStr;

use undertone_kernel::BitMatrix;
use undertone_kernel::mask::Suite;
use undertone_party::{Abort, PartyId, Phase, Progress, Script, SessionId};

use crate::pairwise::Lobby;
use crate::tiles::{Counting, Sink};
use undertone_setup::group::Secrecy;
use undertone_setup::seal::Channel;

pub use cells::Cells;
pub use context::ClientContext;
pub use phe::Phe;

/// The phase in which clients prepare, before they have codes.
pub const OFFLINE: Phase = Phase {
    id: 2,
    name: "offline",
};

/// The phase of this protocol.
pub const PHASE: Phase = Phase {
    id: 4,
    name: "distances",
};

/// Longest code in bits: distances fit 16 bits.
pub const MAX_BITS: usize = undertone_kernel::hamming::MAX_COLUMNS;

/// The protocol that brings the server the distances.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Backend {
    /// The server gets the codes and can learn the projection. This is the published placeholder
    /// and the baseline of every cost table.
    Clear,
    /// The server gets the codes; only clients know the projection. The server learns the cosines
    /// between all rows. Together with one client it learns nearly every row, up to scale.
    Sketch,
    /// The server gets the distances and, if the PRG is secure, nothing else. Together with one
    /// client it learns every code.
    Psm,
    /// The server gets the distances and nothing else, even together with clients, as long as all
    /// parties follow the protocol, if module learning with errors is hard. It costs far less than
    /// [`Shade`](Self::Shade) and [`Phe`](Self::Phe). Codes have at most 16,384 bits. It is the
    /// default. Its composition is new, and nobody outside the project has reviewed it.
    #[default]
    Lwe,
    /// The server gets the distances and nothing else, even together with clients, as long as it
    /// follows the protocol.
    Shade,
    /// The guarantee of [`Shade`](Self::Shade), if Paillier's cryptosystem is secure. It takes a
    /// hundredth of the bytes and several times the computation.
    Phe,
}

impl Backend {
    /// All backends, least private first.
    pub const ALL: [Self; 6] = [
        Self::Clear,
        Self::Sketch,
        Self::Psm,
        Self::Lwe,
        Self::Shade,
        Self::Phe,
    ];

    /// The longest code that the backend takes, in bits.
    pub fn max_bits(self) -> usize {
        match self {
            Self::Lwe => undertone_lwe::MAX_BITS,
            Self::Clear | Self::Sketch | Self::Psm | Self::Shade | Self::Phe => MAX_BITS,
        }
    }

    /// The lengths of codes that the backend takes, as text for users.
    pub fn bits_range(self) -> &'static str {
        match self {
            Self::Lwe => "1 to 16384 with lwe; for longer codes take --backend psm or another one",
            Self::Clear | Self::Sketch | Self::Psm | Self::Shade | Self::Phe => "1 to 65535",
        }
    }

    /// The backends that a client accepts unless it says otherwise: those with which a server
    /// that colludes with clients learns distances and no codes, as long as they follow the
    /// protocol.
    pub fn accepted() -> Vec<Self> {
        let all = Self::ALL.into_iter();
        all.filter(|backend| backend.withstands_collusion())
            .collect()
    }

    /// Whether distances are all that a server and clients together learn about the codes of the
    /// others, as long as all follow the protocol.
    pub fn withstands_collusion(self) -> bool {
        match self {
            Self::Clear | Self::Sketch | Self::Psm => false,
            Self::Lwe | Self::Shade | Self::Phe => true,
        }
    }

    /// Whether each two clients have a protocol of their own.
    fn works_in_pairs(self) -> bool {
        match self {
            Self::Clear | Self::Sketch | Self::Psm => false,
            Self::Lwe | Self::Shade | Self::Phe => true,
        }
    }

    /// Whether the server may learn the group seed.
    pub fn secrecy(self) -> Secrecy {
        match self {
            Self::Clear => Secrecy::Open,
            Self::Sketch | Self::Psm | Self::Lwe | Self::Shade | Self::Phe => Secrecy::Sealed,
        }
    }

    /// What the server learns when it colludes with nobody, as text for users.
    pub fn server_learns(self) -> &'static str {
        match self {
            Self::Clear => "the codes and the projection: nearly every row, up to scale",
            Self::Sketch => "the codes, that is all cosines between rows",
            Self::Psm | Self::Lwe | Self::Shade | Self::Phe => {
                "the distances between rows of different clients, and of the nearest within a \
                 client"
            }
        }
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Clear => "clear",
            Self::Sketch => "sketch",
            Self::Psm => "psm",
            Self::Lwe => "lwe",
            Self::Shade => "shade",
            Self::Phe => "phe",
        })
    }
}

impl FromStr for Backend {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|b| b.to_string() == name);
        found.ok_or_else(|| {
            format!("unknown backend {name}; there are clear, sketch, psm, lwe, shade and phe")
        })
    }
}

/// The result of a client's preparation, for one run of [`client`].
#[derive(Debug)]
pub struct Prepared(Basis);

#[derive(Debug)]
enum Basis {
    Plain,
    Psm(Box<ClientContext>),
    Cellwise(Box<cellwise::Waiting>),
    Lwe(Box<lwe::Prepared>),
    Shade(Box<shade::Prepared>),
    Phe(Box<phe::Prepared>),
}

/// The client's preparation, before it has codes. The codes will have `bits` bits.
///
/// # Errors
/// [`Abort::Misuse`] when the clients of `ctx` lack the client itself, `bits` is out of range, or
/// there are more rows than the backend allows.
pub fn prepare(
    backend: Backend,
    bits: usize,
    mut ctx: ClientContext,
) -> Result<Script<'static, Prepared>, Abort> {
    check_bits(backend, bits)?;
    check_cells(ctx.cells.as_ref(), &ctx.clients)?;
    if backend.works_in_pairs()
        && let Some(cells) = ctx.cells.take()
    {
        cellwise::check_rows(backend, &cells, &ctx.clients)?;
        let waiting = cellwise::Waiting::new(backend, bits, ctx, cells);
        return Ok(ready(Basis::Cellwise(Box::new(waiting))));
    }
    check_rows(backend, &ctx.clients)?;
    Ok(match backend {
        Backend::Clear | Backend::Sketch => ready(Basis::Plain),
        Backend::Psm => ready(Basis::Psm(Box::new(ctx))),
        Backend::Lwe => Script::new(OFFLINE, move |io| async move {
            // So that other parties of a process run meanwhile.
            io.pause().await;
            Ok(Prepared(Basis::Lwe(Box::new(lwe::prepare(bits, ctx)?))))
        }),
        Backend::Shade => {
            let party = shade::Preparation::new(bits, ctx)?;
            Script::new(OFFLINE, |io| async move {
                Ok(Prepared(Basis::Shade(Box::new(io.run(party).await?))))
            })
        }
        Backend::Phe => {
            let party = phe::Preparation::new(bits, ctx)?;
            Script::new(OFFLINE, |io| async move {
                Ok(Prepared(Basis::Phe(Box::new(io.run(party).await?))))
            })
        }
    })
}

/// A preparation that sends nothing.
fn ready(basis: Basis) -> Script<'static, Prepared> {
    Script::new(OFFLINE, |_| async move { Ok(Prepared(basis)) })
}

/// The client's protocol, with its `codes`.
///
/// # Errors
/// [`Abort::Misuse`] when the client prepared for another number of rows or bits.
pub fn client(codes: BitMatrix, prepared: Prepared) -> Result<Script<'static, ()>, Abort> {
    Ok(match prepared.0 {
        Basis::Plain => Script::new(PHASE, |io| plain::send(io, codes)),
        Basis::Psm(ctx) => {
            let client = psm::Client::new(codes, *ctx)?;
            Script::new(PHASE, |io| client.run(io))
        }
        Basis::Cellwise(waiting) => {
            waiting.check(&codes)?;
            Script::new(PHASE, |io| waiting.run(io, codes))
        }
        Basis::Lwe(prepared) => {
            let client = lwe::Client::new(codes, *prepared)?;
            Script::new(PHASE, |io| client.run(io))
        }
        Basis::Shade(prepared) => {
            let party = shade::Client::new(codes, *prepared)?;
            Script::new(PHASE, |io| async move { io.run(party).await })
        }
        Basis::Phe(prepared) => {
            let party = phe::Client::new(codes, *prepared)?;
            Script::new(PHASE, |io| async move { io.run(party).await })
        }
    })
}

/// What the server needs.
#[derive(Debug)]
pub struct ServerContext {
    /// The session id.
    pub session: SessionId,
    /// The backend, the same at all clients.
    pub backend: Backend,
    /// Bits of a code.
    pub bits: usize,
    /// The clients and their numbers of rows. [`Tile`](tiles::Tile)s name a client by its index
    /// here.
    pub clients: Vec<(PartyId, usize)>,
    /// Which of these rows are compared. None: all of different clients.
    pub cells: Option<Cells>,
    /// The server's ends of the channels to the clients, in the same order.
    pub channels: Vec<Channel>,
    /// Fewest remaining clients with which the protocol continues.
    pub min_clients: usize,
    /// The cipher of the masks, the same at all clients.
    pub suite: Suite,
    /// The parameters of `phe`, the same at all clients.
    pub phe: Phe,
}

/// The server's result.
#[derive(Debug)]
pub struct Collected<S> {
    /// The sink. It has taken every distance between rows of different remaining clients.
    pub sink: S,
    /// Distances that were longer than a code. The sink has taken them as `bits`. Clients that
    /// follow the protocol cause none; with `lwe` the server alone learns of them (LWE-13).
    pub above: u64,
    /// For each client of the context, whether it remains. No tile names a client that does not.
    pub remains: Vec<bool>,
}

/// The server's protocol. It hands the distances to `sink`.
///
/// # Errors
/// [`Abort::Misuse`] when the numbers of channels and clients differ, or `ctx.bits` is out of
/// range.
pub fn server<S: Sink>(
    ctx: ServerContext,
    sink: S,
) -> Result<Script<'static, Collected<S>>, Abort> {
    check_bits(ctx.backend, ctx.bits)?;
    check_channels(&ctx.clients, &ctx.channels)?;
    check_cells(ctx.cells.as_ref(), &ctx.clients)?;
    let progress = Progress::new(match &ctx.cells {
        None => Cells::one(ctx.clients.iter().map(|(_, rows)| *rows)).pairs(),
        Some(cells) => cells.pairs(),
    });
    let sink = Counting::new(sink, progress.clone());
    let script = match ctx.backend {
        Backend::Clear | Backend::Sketch => {
            Script::new(PHASE, move |io| plain::collect(io, ctx, sink))
        }
        Backend::Psm => {
            let server = psm::Server::new(ctx, sink);
            Script::new(PHASE, |io| server.run(io))
        }
        Backend::Lwe | Backend::Shade | Backend::Phe => match &ctx.cells {
            None => pairwise_server(ctx, sink)?,
            Some(cells) => {
                cellwise::check_rows(ctx.backend, cells, &ctx.clients)?;
                Script::new(PHASE, |io| cellwise::collect(io, ctx, sink))
            }
        },
    };
    let counted = |ended: Collected<Counting<S>>| Collected {
        sink: ended.sink.into_inner(),
        above: ended.above,
        remains: ended.remains,
    };
    Ok(script.showing(progress).map(counted))
}

/// The server's protocol where each two clients have one of their own, without cells.
fn pairwise_server<S: Sink>(
    ctx: ServerContext,
    sink: S,
) -> Result<Script<'static, Collected<S>>, Abort> {
    check_rows(ctx.backend, &ctx.clients)?;
    let (bits, phe) = (ctx.bits, ctx.phe);
    Ok(match ctx.backend {
        Backend::Clear | Backend::Sketch | Backend::Psm => {
            return Err(Abort::Internal(format!("{} has no pairs", ctx.backend)));
        }
        Backend::Lwe => {
            let shape = lwe::Shape::new(bits)?;
            let lobby = Lobby::<S, lwe::Meeting<S>>::new(&shape, ctx, sink)?;
            Script::new(PHASE, |io| lobby.collect(io))
        }
        Backend::Shade => {
            let clients = ctx.clients.len();
            let lobby =
                Lobby::<S, shade::Meeting<S>>::new(&shade::Shape { bits, clients }, ctx, sink)?;
            Script::new(PHASE, |io| lobby.collect(io))
        }
        Backend::Phe => {
            let lobby = Lobby::<S, phe::Meeting<S>>::new(&phe::Shape { bits, phe }, ctx, sink)?;
            Script::new(PHASE, |io| lobby.collect(io))
        }
    })
}

/// The number of ones of a row.
fn weight(codes: &BitMatrix, row: usize) -> u16 {
    let words = codes.row(row).iter();
    words.map(|word| word.count_ones()).sum::<u32>() as u16
}

/// Checks that a backend takes as many rows as `clients` have, before anything is computed: LWE-15
/// where it is `lwe`. The other backends have no limit.
///
/// # Errors
/// [`Abort::Misuse`] with the limit.
pub fn check_rows(backend: Backend, clients: &[(PartyId, usize)]) -> Result<(), Abort> {
    match backend {
        Backend::Lwe => lwe::check_rows(clients),
        Backend::Clear | Backend::Sketch | Backend::Psm | Backend::Shade | Backend::Phe => Ok(()),
    }
}

fn check_cells(cells: Option<&Cells>, clients: &[(PartyId, usize)]) -> Result<(), Abort> {
    cells.map_or(Ok(()), |cells| {
        cells.check(clients.iter().map(|(_, rows)| *rows))
    })
}

/// Checks the length of codes: LWE-1 where the backend is `lwe`.
fn check_bits(backend: Backend, bits: usize) -> Result<(), Abort> {
    let most = backend.max_bits();
    if !(1..=most).contains(&bits) {
        return Err(Abort::Misuse(format!(
            "codes of {bits} bits; they may have {}",
            backend.bits_range()
        )));
    }
    Ok(())
}

fn check_channels(clients: &[(PartyId, usize)], channels: &[Channel]) -> Result<(), Abort> {
    if channels.len() != clients.len() {
        return Err(Abort::Misuse(format!(
            "{} channels to {} clients",
            channels.len(),
            clients.len()
        )));
    }
    Ok(())
}

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
