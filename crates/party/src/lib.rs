//! Runs the parties of a protocol: messages, frames, costs. No cryptography, no sockets.
//!
//! | module | what it holds |
//! |---|---|
//! | [`party`] | [`Party`]: a state that consumes and sends messages; [`Abort`] |
//! | [`endpoint`] | [`Endpoint`]: drives one party without I/O, frame by frame |
//! | [`frame`] | the header of every message, and limits |
//! | [`codec`] | bounded reading and writing of payloads |
//! | [`ledger`] | bytes, messages, rounds and compute, per phase |
//! | [`script`] | [`Script`]: a party written as straight-line `async` code |
//! | [`courier`] | [`Courier`]: an endpoint over a carrier that moves bundles of frames |
//! | [`progress`] | [`Progress`]: the share of a long phase that is done |
//! | [`memory`] | a network inside one process: any delivery order, dropped clients, tampering |
//!
//! A protocol is a type that implements [`Party`]. The same type runs in memory for tests and
//! simulations, over a network, or in an event loop of your own. The specification of frames and
//! aborts is `docs/spec/conventions.md`.
#![forbid(unsafe_code)]

pub mod codec;
pub mod courier;
pub mod endpoint;
pub mod frame;
pub mod ledger;
pub mod lockstep;
pub mod memory;
pub mod party;
pub mod progress;
pub mod script;

pub use codec::{DecodeError, Reader, Writer};
pub use courier::{Courier, CourierError, Status};
pub use endpoint::{Endpoint, Poll, Push};
pub use frame::{FrameError, Header, Limits, Payload, SessionId};
pub use ledger::{Cost, Ledger};
pub use lockstep::Lockstep;
pub use memory::{Network, Node, Stalled};
pub use party::{Abort, Aborted, Arrival, Inbox, Need, Outbox, Party, PartyId, Phase, Step};
pub use progress::{At, Progress, Watch};
pub use script::{Io, Script};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
