//! Undertone on a network: a server and its clients, each a process, over gRPC and TLS 1.3.
//!
//! | module | what it holds |
//! |---|---|
//! | [`application`] | the interface to an application on server and clients |
//! | [`server`] | admits the clients of a roster, runs jobs with them |
//! | [`client`] | takes part in a job |
//! | [`roster`] | the clients that may take part |
//! | [`deadlines`] | how long a phase may go without progress |
//! | [`keys`] | keys, certificates and a roster for a trial |
//! | [`admin`], [`status`], [`memory`] | status page, health, metrics, memory |
//! | [`flow`] | links that outlive connections |
//! | [`tls`], [`randomness`] | certificates; the source of randomness |
//!
//! This crate implements no protocol and knows no application. It runs any implementation of
//! [`Application`](undertone_job::Application) and [`Participant`](undertone_job::Participant).
//! Each client has one outbound connection. The server relays frames between clients, whose
//! payloads are sealed if the protocol seals them. A client that loses its connection may return
//! within a grace time. After that time every other party treats it as gone. The specification is
//! `docs/spec/network.md`.
//!
//! The crate `undertone` has the applications, and examples of servers and clients.
#![forbid(unsafe_code)]

pub mod admin;
pub mod application;
pub mod client;
pub mod deadlines;
mod drive;
mod erased;
pub mod flow;
mod gauge;
pub mod keys;
pub mod memory;
mod metrics;
pub mod randomness;
pub mod roster;
pub mod server;
pub mod status;
#[cfg(feature = "testing")]
#[doc(hidden)]
pub mod testing;
pub mod tls;
mod trust;
mod wire;

pub use application::{Decline, Facts, Next, Served, Unwilling};
pub use client::{JoinError, Joined, join};
pub use deadlines::{Deadlines, JobError};
pub use randomness::Randomness;
pub use roster::Roster;
pub use server::{ServeError, Server};
pub use tls::Certificate;
pub use trust::Verdict;
