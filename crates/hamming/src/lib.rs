//! Hamming distances between all rows of different clients, delivered to the server.
//!
//! One interface, a ladder of [`Backend`]s: the same input (every client's codes), the same output
//! (the server's [`Sink`] has taken every distance), different trust and cost. Distances inside one
//! client are that client's own business.
//!
//! | script | who runs it | output |
//! |---|---|---|
//! | [`prepare`] | client, before it has codes, in a phase of its own | [`Prepared`] |
//! | [`client`] | client, with its codes and what it prepared | nothing |
//! | [`server`] | server | [`Collected`] |
//!
//! With `shade` clients exchange in advance most of what their transfers need, with `phe` keys. The
//! other backends have nothing to prepare: masks are expanded faster than they could be stored.
#![forbid(unsafe_code)]

mod context;
mod pairwise;
mod phe;
mod plain;
mod psm;
mod shade;
pub mod tiles;

use std::fmt;
use std::str::FromStr;

use undertone_kernel::BitMatrix;
use undertone_party::{Abort, PartyId, Phase, Script};

use crate::pairwise::Lobby;
use crate::tiles::Sink;
use undertone_setup::group::Secrecy;
use undertone_setup::seal::Channel;

pub use context::ClientContext;
pub use phe::Phe;

/// The phase of what is done before there are codes.
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

/// How the server comes by the distances.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Backend {
    /// The server gets the codes and can learn the projection: the published placeholder, and the
    /// zero of every cost table.
    Clear,
    /// The server gets the codes; the projection stays among the clients. It learns the cosines
    /// between all rows. Together with one client it learns nearly every row, up to scale.
    Sketch,
    /// The server gets the distances and, given the PRG, nothing else. Together with one client it
    /// learns every code.
    Psm,
    /// The server gets the distances and nothing else, also together with clients, as long as it follows the protocol: of the
    /// codes of others it then knows what distances tell.
    Shade,
    /// As [`Shade`](Self::Shade), if Paillier's cryptosystem is secure: a hundredth of the bytes, several times the computation.
    Phe,
}

impl Backend {
    /// All of them, least private first.
    pub const ALL: [Self; 5] = [Self::Clear, Self::Sketch, Self::Psm, Self::Shade, Self::Phe];

    /// Whether the server may learn the group seed.
    pub fn secrecy(self) -> Secrecy {
        match self {
            Self::Clear => Secrecy::Open,
            Self::Sketch | Self::Psm | Self::Shade | Self::Phe => Secrecy::Sealed,
        }
    }

    /// What the server learns when it colludes with nobody, for people to read.
    pub fn server_learns(self) -> &'static str {
        match self {
            Self::Clear => "the codes and the projection: nearly every row, up to scale",
            Self::Sketch => "the codes, that is all cosines between rows",
            Self::Psm | Self::Shade | Self::Phe => {
                "the distances between rows of different clients, and of the nearest within a client"
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
            format!("unknown backend {name}; there are clear, sketch, psm, shade and phe")
        })
    }
}

/// What a client has prepared, to be used once.
#[derive(Debug)]
pub struct Prepared(Basis);

#[derive(Debug)]
enum Basis {
    Plain,
    Psm(Box<ClientContext>),
    Shade(Box<shade::Prepared>),
    Phe(Box<phe::Prepared>),
}

/// A client's side before it has codes, which will have `bits` bits.
///
/// # Errors
/// [`Abort::Misuse`] when `ctx` does not name the client, codes of so many bits are not possible,
/// or there are more rows than the backend can do.
pub fn prepare(
    backend: Backend,
    bits: usize,
    ctx: ClientContext,
) -> Result<Script<'static, Prepared>, Abort> {
    check_bits(bits)?;
    Ok(match backend {
        Backend::Clear | Backend::Sketch => ready(Basis::Plain),
        Backend::Psm => ready(Basis::Psm(Box::new(ctx))),
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

/// There is nothing to prepare.
fn ready(basis: Basis) -> Script<'static, Prepared> {
    Script::new(OFFLINE, |_| async move { Ok(Prepared(basis)) })
}

/// The side of the client that holds `codes`.
///
/// # Errors
/// [`Abort::Misuse`] when it prepared for another number of rows or of bits.
pub fn client(codes: BitMatrix, prepared: Prepared) -> Result<Script<'static, ()>, Abort> {
    Ok(match prepared.0 {
        Basis::Plain => Script::new(PHASE, |io| plain::send(io, codes)),
        Basis::Psm(ctx) => {
            let client = psm::Client::new(codes, *ctx)?;
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

/// What the server knows before it hears of distances.
#[derive(Debug)]
pub struct ServerContext {
    /// How it comes by the distances.
    pub backend: Backend,
    /// Bits of a code.
    pub bits: usize,
    /// The clients, each with its number of rows. In tiles a client goes by its place here.
    pub clients: Vec<(PartyId, usize)>,
    /// The server's ends of the channels to them, in the same order.
    pub channels: Vec<Channel>,
    /// Fewest clients with which the protocol goes on.
    pub min_clients: usize,
    /// How `phe` encrypts, as the clients have it.
    pub phe: Phe,
}

/// What the server has at the end.
#[derive(Debug)]
pub struct Collected<S> {
    /// The sink, which has taken every distance between rows of different remaining clients.
    pub sink: S,
    /// For each client of the context, whether it remains. No tile names one that does not.
    pub remains: Vec<bool>,
}

/// The server's side: it feeds the distances to `sink`.
///
/// # Errors
/// [`Abort::Misuse`] when there are not as many channels as clients, or codes of so many bits are
/// not possible.
pub fn server<S: Sink>(
    ctx: ServerContext,
    sink: S,
) -> Result<Script<'static, Collected<S>>, Abort> {
    check_bits(ctx.bits)?;
    check_channels(&ctx.clients, &ctx.channels)?;
    let (bits, phe) = (ctx.bits, ctx.phe);
    Ok(match ctx.backend {
        Backend::Clear | Backend::Sketch => {
            Script::new(PHASE, move |io| plain::collect(io, ctx, sink))
        }
        Backend::Psm => {
            let server = psm::Server::new(ctx, sink);
            Script::new(PHASE, |io| server.run(io))
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

/// How many ones a row has.
fn weight(codes: &BitMatrix, row: usize) -> u16 {
    let words = codes.row(row).iter();
    words.map(|word| word.count_ones()).sum::<u32>() as u16
}

fn check_bits(bits: usize) -> Result<(), Abort> {
    if !(1..=MAX_BITS).contains(&bits) {
        return Err(Abort::Misuse(format!(
            "codes of {bits} bits; from 1 to {MAX_BITS} are possible"
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
