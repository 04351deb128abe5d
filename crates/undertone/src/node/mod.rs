//! Server and clients on a network, and the applications that run there.
//!
//! | module | what a job is |
//! |---|---|
//! | [`label`] | label propagation over the rows of all clients |
//! | [`mod@sum`] | secure sums or weighted means of the clients' arrays, round after round |
//!
//! The rest is [`undertone_node`]: it moves messages, holds clients to their deadlines, and knows
//! no application. Whatever implements [`Application`] and [`Participant`] runs there.

pub mod label;
pub mod sum;

pub use undertone_node::*;
