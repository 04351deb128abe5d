//! Hamming distances between all rows of different clients, delivered to the server.
//!
//! One interface, a ladder of [`Backend`]s: the same input (every client's codes), the same output
//! (the server's [`Sink`] has taken every distance), different trust and cost. Distances inside one
//! client are that client's own business.
//!
//! *Offline and online.* Clients first run a [`Preparation`], of all that can be done before there are codes, in a phase of
//! its own. A [`Client`] is made of what it gives, and of codes. With `shade` clients exchange most of what their transfers need, with `phe` keys;
//! the other backends have nothing to prepare: masks are expanded faster than they could be stored.
#![forbid(unsafe_code)]

mod pairwise;
mod peers;
mod phe;
mod plain;
mod psm;
mod shade;
pub mod tiles;

use std::fmt;
use std::str::FromStr;

use undertone_kernel::{BitMatrix, Cpu};
use undertone_party::{Abort, Inbox, Outbox, Party, PartyId, Phase, Step};

use crate::tiles::Sink;
use undertone_setup::group::Secrecy;
use undertone_setup::seal::Channel;

pub use peers::Peers;
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
    Psm(Box<Peers>),
    Shade(Box<shade::Prepared>),
    Phe(Box<phe::Prepared>),
}

/// A client's side before it has codes. Output: [`Prepared`].
#[derive(Debug)]
pub struct Preparation(PreparationSide);

#[derive(Debug)]
enum PreparationSide {
    Nothing(Prepared),
    Shade(Box<shade::Preparation>),
    Phe(Box<phe::Preparation>),
}

impl Preparation {
    /// The preparation of one of `peers` for codes of `bits` bits.
    ///
    /// # Errors
    /// [`Abort::Misuse`] when `peers` do not name it, codes of so many bits are not possible, or there are more
    /// rows than the backend can do.
    pub fn new(backend: Backend, bits: usize, peers: Peers) -> Result<Self, Abort> {
        check_bits(bits)?;
        Ok(Self(match backend {
            Backend::Clear | Backend::Sketch => PreparationSide::Nothing(Prepared(Basis::Plain)),
            Backend::Psm => PreparationSide::Nothing(Prepared(Basis::Psm(Box::new(peers)))),
            Backend::Shade => {
                PreparationSide::Shade(Box::new(shade::Preparation::new(bits, peers)?))
            }
            Backend::Phe => PreparationSide::Phe(Box::new(phe::Preparation::new(bits, peers)?)),
        }))
    }
}

impl Party for Preparation {
    type Output = Prepared;

    fn phase(&self) -> Phase {
        OFFLINE
    }

    fn step(self, inbox: Inbox) -> Result<Step<Self>, Abort> {
        Ok(match self.0 {
            PreparationSide::Nothing(output) => Step::Done {
                out: Outbox::new(),
                output,
            },
            PreparationSide::Shade(party) => match party.step(inbox)? {
                Step::Continue { out, need, next } => Step::Continue {
                    out,
                    need,
                    next: Self(PreparationSide::Shade(Box::new(next))),
                },
                Step::Done { out, output } => Step::Done {
                    out,
                    output: Prepared(Basis::Shade(Box::new(output))),
                },
            },
            PreparationSide::Phe(party) => match party.step(inbox)? {
                Step::Continue { out, need, next } => Step::Continue {
                    out,
                    need,
                    next: Self(PreparationSide::Phe(Box::new(next))),
                },
                Step::Done { out, output } => Step::Done {
                    out,
                    output: Prepared(Basis::Phe(Box::new(output))),
                },
            },
        })
    }
}

/// A client's side. Output: nothing.
#[derive(Debug)]
pub struct Client(ClientSide);

#[derive(Debug)]
enum ClientSide {
    Plain(plain::Client),
    Psm(Box<psm::Client>),
    Shade(Box<shade::Client>),
    Phe(Box<phe::Client>),
}

impl Client {
    /// The client that holds `codes`.
    ///
    /// # Errors
    /// [`Abort::Misuse`] when it prepared for another number of rows or of bits.
    pub fn new(codes: BitMatrix, prepared: Prepared) -> Result<Self, Abort> {
        Ok(Self(match prepared.0 {
            Basis::Plain => ClientSide::Plain(plain::Client::new(codes)),
            Basis::Psm(peers) => ClientSide::Psm(Box::new(psm::Client::new(codes, *peers)?)),
            Basis::Shade(prepared) => {
                ClientSide::Shade(Box::new(shade::Client::new(codes, *prepared)?))
            }
            Basis::Phe(prepared) => ClientSide::Phe(Box::new(phe::Client::new(codes, *prepared)?)),
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
            ClientSide::Shade(party) => Ok(wrap(party.step(inbox)?, |p| {
                Self(ClientSide::Shade(Box::new(p)))
            })),
            ClientSide::Phe(party) => Ok(wrap(party.step(inbox)?, |p| {
                Self(ClientSide::Phe(Box::new(p)))
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
    Meetings(pairwise::Server<S>),
}

impl<S: Sink> Server<S> {
    /// The server that collects the distances of `clients`, each with its number of rows, in codes
    /// of `bits` bits. In tiles a client goes by its place in `clients`; `channels` are the server's
    /// ends to them. Where a protocol starts anew without a client that has left, it goes on with `min_clients` or more. `phe` is as the
    /// clients have it.
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
        phe: Phe,
        sink: S,
    ) -> Result<Self, Abort> {
        check_bits(bits)?;
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
            Backend::Shade => ServerSide::Meetings(pairwise::Server::new::<shade::Meeting<S>>(
                &shade::Shape {
                    bits,
                    clients: clients.len(),
                },
                clients,
                channels,
                min_clients,
                sink,
            )?),
            Backend::Phe => ServerSide::Meetings(pairwise::Server::new::<phe::Meeting<S>>(
                &phe::Shape { bits, phe },
                clients,
                channels,
                min_clients,
                sink,
            )?),
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
            ServerSide::Meetings(party) => {
                Ok(wrap(party.step(inbox)?, |p| Self(ServerSide::Meetings(p))))
            }
        }
    }
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
