//! Server and clients on a network, and the applications that run there.
//!
//! | module | a job of this application |
//! |---|---|
//! | [`label`] | label propagation over the rows of all clients |
//! | [`mod@sum`] | secure sums or weighted means of the clients' arrays, round after round |
//!
//! The applications `train`, `cotrain`, `pssl` and `fedgraph` are in crates of their own:
//! [`undertone_train`], [`undertone_cotrain`], [`undertone_pssl`] and [`undertone_fedgraph`].
//! [`Served`] and [`Agreed`](undertone_job::Agreed) take their halves to a network. [`jobs`] reads
//! their job files.
//!
//! The rest is [`undertone_node`]: it moves messages, enforces deadlines, and knows no application.
//! It runs every type that implements [`Application`] and [`Participant`].

pub mod jobs;
pub mod label;
pub mod sum;
mod terms;

pub use undertone_node::*;
