//! Undertone: label propagation over data that may not leave its owners.
//!
//! Start with the [`guide`](xclp::guide): one table from a feature matrix to labels.
//!
//! | module | what it holds |
//! |---|---|
//! | [`xclp`] | the application: client and server as parties |
//! | [`mpc`] | the protocols: group seed, oblivious transfer, distances, sums |
//! | [`party`] | how protocols run: parties, endpoints, frames, ledger |
//! | [`kernel`] | the fast code below |
//! | [`node`] | server and clients on a network |
//! | [`simulate`] | all parties of a run in one process |
//! | [`data`] | data sets from `.npz` and `.csv` files |
//! | [`split`] | a data set dealt out to clients, most labels hidden |
#![forbid(unsafe_code)]

pub mod data;
pub mod simulate;
pub mod split;

pub use undertone_kernel as kernel;
pub use undertone_mpc as mpc;
pub use undertone_node as node;
pub use undertone_party as party;
pub use undertone_xclp as xclp;

/// The README's program compiles and runs.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
