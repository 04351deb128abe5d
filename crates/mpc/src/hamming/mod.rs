//! Hamming distances between all rows of different clients, delivered to the server.
//!
//! One interface, a ladder of [`Backend`]s: the same input (every client's codes), the same output
//! (the server's [`Sink`] has taken every distance), different trust and cost. Distances inside one
//! client are that client's own business.
//!
//! *Offline and online.* Everything that can exist before there are codes is in [`Peers`]: seeds, the
//! roster, channels. A [`Client`] is made of it and of codes, and all its messages are online. None of the
//! backends here has messages to exchange beforehand: masks are expanded faster than they could be stored.

mod plain;
mod psm;

use std::fmt;
use std::str::FromStr;

use undertone_kernel::{BitMatrix, Cpu};
use undertone_party::{Abort, Inbox, Party, PartyId, Phase, Step};

use crate::group::Secrecy;
use crate::seal::Channel;
use crate::tiles::Sink;

/// The phase of this protocol.
pub const PHASE: Phase = Phase {
    id: 3,
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
}

pub use psm::Peers;

impl Backend {
    /// All of them, least private first.
    pub const ALL: [Self; 3] = [Self::Clear, Self::Sketch, Self::Psm];

    /// Whether the server may learn the group seed.
    pub fn secrecy(self) -> Secrecy {
        match self {
            Self::Clear => Secrecy::Open,
            Self::Sketch | Self::Psm => Secrecy::Sealed,
        }
    }

    /// What the server learns when it colludes with nobody, for people to read.
    pub fn server_learns(self) -> &'static str {
        match self {
            Self::Clear => "the codes and the projection: nearly every row, up to scale",
            Self::Sketch => "the codes, that is all cosines between rows",
            Self::Psm => {
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
        })
    }
}

impl FromStr for Backend {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|b| b.to_string() == name);
        found.ok_or_else(|| format!("unknown backend {name}; there are clear, sketch and psm"))
    }
}

/// A client's side. Output: nothing.
#[derive(Debug)]
pub struct Client(ClientSide);

#[derive(Debug)]
enum ClientSide {
    Plain(plain::Client),
    Psm(Box<psm::Client>),
}

impl Client {
    /// The client that holds `codes`.
    ///
    /// # Errors
    /// [`Abort::Misuse`] when `peers` do not name it with as many rows, or codes of so many bits are not
    /// possible.
    pub fn new(backend: Backend, codes: BitMatrix, peers: Peers) -> Result<Self, Abort> {
        Ok(Self(match backend {
            Backend::Clear | Backend::Sketch => ClientSide::Plain(plain::Client::new(codes)),
            Backend::Psm => ClientSide::Psm(Box::new(psm::Client::new(codes, peers)?)),
        }))
    }
}

impl Party for Client {
    type Output = ();

    fn phase(&self) -> Phase {
        PHASE
    }

    fn step(self, inbox: Inbox) -> Result<Step<Self>, Abort> {
        match self.0 {
            ClientSide::Plain(party) => {
                Ok(wrap(party.step(inbox)?, |p| Self(ClientSide::Plain(p))))
            }
            ClientSide::Psm(party) => Ok(wrap(party.step(inbox)?, |p| {
                Self(ClientSide::Psm(Box::new(p)))
            })),
        }
    }
}

/// What the server has at the end.
#[derive(Debug)]
pub struct Collected<S> {
    /// The sink, which has taken every distance between rows of different remaining clients.
    pub sink: S,
    /// For each client of the shape, whether it remains. No tile names one that does not.
    pub remains: Vec<bool>,
}

/// The server's side. Output: [`Collected`].
#[derive(Debug)]
pub struct Server<S>(ServerSide<S>);

#[derive(Debug)]
enum ServerSide<S> {
    Plain(plain::Server<S>),
    Psm(Box<psm::Server<S>>),
}

impl<S: Sink> Server<S> {
    /// The server that collects the distances of `clients`, each with its number of rows, in codes
    /// of `bits` bits. In tiles a client goes by its place in `clients`; `channels` are the server's
    /// ends to them. Where a protocol starts anew without a client that has left, it goes on with `min_clients` or more.
    ///
    /// # Errors
    /// [`Abort::Misuse`] when there are not as many channels as clients, or codes of so many bits are
    /// not possible.
    pub fn new(
        backend: Backend,
        bits: usize,
        clients: &[(PartyId, usize)],
        channels: Vec<Channel>,
        min_clients: usize,
        sink: S,
    ) -> Result<Self, Abort> {
        Ok(Self(match backend {
            Backend::Clear | Backend::Sketch => {
                ServerSide::Plain(plain::Server::new(Cpu::detect(), bits, clients, sink))
            }
            Backend::Psm => ServerSide::Psm(Box::new(psm::Server::new(
                bits,
                clients,
                channels,
                min_clients,
                sink,
            )?)),
        }))
    }
}

impl<S: Sink> Party for Server<S> {
    type Output = Collected<S>;

    fn phase(&self) -> Phase {
        PHASE
    }

    fn step(self, inbox: Inbox) -> Result<Step<Self>, Abort> {
        match self.0 {
            ServerSide::Plain(party) => {
                Ok(wrap(party.step(inbox)?, |p| Self(ServerSide::Plain(p))))
            }
            ServerSide::Psm(party) => Ok(wrap(party.step(inbox)?, |p| {
                Self(ServerSide::Psm(Box::new(p)))
            })),
        }
    }
}

/// The step of an inner party as a step of the party around it.
fn wrap<I: Party, O: Party<Output = I::Output>>(step: Step<I>, outer: impl Fn(I) -> O) -> Step<O> {
    match step {
        Step::Continue { out, need, next } => Step::Continue {
            out,
            need,
            next: outer(next),
        },
        Step::Done { out, output } => Step::Done { out, output },
    }
}
