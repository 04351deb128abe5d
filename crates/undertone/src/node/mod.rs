//! Server and clients on a network, and the applications that run there.
//!
//! | module | a job of this application |
//! |---|---|
//! | [`fedgraph`] | a graph network over clients with different features of the same rows |
//! | [`label`] | label propagation over the rows of all clients |
//! | [`mod@sum`] | secure sums or weighted means of the clients' arrays, round after round |
//! | [`train`] | a model, trained round after round with propagated labels |
//!
//! The applications `pssl` and `cotrain` are in crates of their own, [`undertone_pssl`] and
//! [`undertone_cotrain`]. [`Served`] and [`Agreed`](undertone_job::Agreed) take their halves to a
//! network. [`jobs`] reads their job files.
//!
//! The rest is [`undertone_node`]: it moves messages, enforces deadlines, and knows no application.
//! It runs every type that implements [`Application`] and [`Participant`].

pub mod fedgraph;
pub mod jobs;
pub mod label;
pub mod sum;
mod terms;
pub mod train;

pub use undertone_node::*;
