//! Undertone on a network: a server and its clients, each a process, over gRPC and TLS 1.3.
//!
//! | module | what it holds |
//! |---|---|
//! | [`application`] | the seam: what runs on a server and its clients |
//! | [`server`] | admits the clients of a roster, runs jobs with them |
//! | [`client`] | takes part in a job |
//! | [`roster`] | who may take part |
//! | [`deadlines`] | how long a phase may go without progress |
//! | [`checkpoint`] | what an application keeps, should its server be killed |
//! | [`keys`] | keys, certificates and a roster for a trial |
//! | [`admin`], [`status`] | status page, health, metrics |
//! | [`flow`] | links that outlive connections |
//! | [`tls`], [`randomness`] | certificates; the source of randomness |
//!
//! This crate implements no protocol and knows no application: it runs whatever implements
//! [`Application`] and [`Participant`]. Each client has one outbound connection. The server relays
//! what one client sends another, which is sealed if the protocol seals it. A client that loses its
//! connection may return within a grace time. After that time, every other party treats it as gone.
//!
//! The crate `undertone` has the applications, and examples of servers and clients.
#![forbid(unsafe_code)]

pub mod admin;
pub mod application;
pub mod checkpoint;
pub mod client;
pub mod deadlines;
mod drive;
pub mod flow;
mod gauge;
pub mod keys;
mod metrics;
pub mod randomness;
pub mod roster;
pub mod server;
pub mod status;
#[cfg(feature = "testing")]
#[doc(hidden)]
pub mod testing;
pub mod tls;
mod wire;

pub use application::{Application, Facts, Next, Participant, Seat, Unwilling};
pub use checkpoint::Checkpoint;
pub use client::{JoinError, Joined, join};
pub use deadlines::{Deadlines, JobError};
pub use randomness::Randomness;
pub use roster::Roster;
pub use server::{ServeError, Server};
pub use tls::Certificate;
