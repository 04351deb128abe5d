//! Undertone on a network: a server and its clients, each a process, over gRPC and TLS 1.3.
//!
//! | module | what it holds |
//! |---|---|
//! | [`server`] | lets the clients of a roster in, runs jobs with them |
//! | [`client`] | takes part in a job |
//! | [`roster`], [`job`] | who may take part; what is run, and what a client agrees to |
//! | [`keys`] | keys, certificates and a roster for a trial |
//! | [`admin`], [`status`] | status page, health, metrics |
//! | [`flow`] | links that outlive connections |
//! | [`tls`], [`randomness`] | certificates; where randomness comes from |
//!
//! No protocol is known here: what runs are the parties of [`undertone_xclp`]. A client has one connection, outbound. What
//! one client sends another is relayed by the server, sealed where the protocol seals it. A client that loses its connection
//! has a grace time to return and go on; then it is gone, for all others alike.
#![forbid(unsafe_code)]

pub mod admin;
pub mod client;
mod drive;
pub mod flow;
#[cfg(test)]
mod hostile;
pub mod job;
pub mod keys;
mod metrics;
pub mod randomness;
pub mod roster;
pub mod server;
pub mod status;
pub mod tls;
mod wire;

pub use client::{JoinError, Joined, join};
pub use job::{Job, Terms};
pub use randomness::Randomness;
pub use roster::Roster;
pub use server::{ServeError, Server};
pub use tls::Certificate;
