//! The application `cotrain`: clients vote on public rows, exchange after exchange, with
//! [`undertone_cotrain`].
//!
//! A job has a session for each exchange, and one in which all clients get the last consensus. It
//! ends when the consensus repeats. A client may miss an exchange. A server with a
//! [`Checkpoint`](undertone_node::Checkpoint) that is killed continues after the last exchange that
//! it began. The keys of the job file are those of [`Job`](undertone_cotrain::Job).

mod client;
mod server;

pub use self::client::{Cotrainee, Made};
pub use self::server::{Cotrain, Progress};
