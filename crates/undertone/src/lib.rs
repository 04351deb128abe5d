//! Undertone: label propagation over data that may not leave its owners.
//!
//! # From a feature matrix to labels
//!
//! Symbols: `n` rows in all, `n_j` at client `j`, `d` features, codes of `L` bits, `k` neighbours,
//! `C` classes, `u` unlabelled rows in all and `u_j` at client `j`, `l_j` labelled rows at client
//! `j`, `w = ⌈log₂(L+1)⌉` bits of a distance, `B` distances in a ciphertext of `phe`, and `N` the
//! modulus of Paillier's cryptosystem.
//!
//! | type | made by | who has it |
//! |---|---|---|
//! | [`Features`](xclp::Features), `n_j × d` | the caller | its client |
//! | [`Codes`](xclp::Codes), `n_j × L` bits | [`Codes::hash`](xclp::Codes::hash) | its client (1) |
//! | [`Distances`](xclp::Distances), `n × k` | [`sweep`](hamming::tiles::sweep) | the server |
//! | [`Graph`](xclp::Graph), `≤ 2nk` edges | [`Graph::new`](xclp::Graph::new) | the server |
//! | [`Influence`](xclp::Influence) | [`columns`](xclp::Influence::columns) | the server (2) |
//! | [`Scores`](xclp::Scores), unlabelled rows | [`client`](xclp::client) | client `j` its rows |
//! | [`Labels`](xclp::Labels), `n_j` | [`Labels::decide`](xclp::Labels::decide) | its client |
//!
//! 1. The [`Backend`](hamming::Backend) says who else learns about codes.
//! 2. The server has the columns of labelled rows. Client `j` gets shares of what its columns add
//!    to scores.
//!
//! Messages:
//!
//! - Codes: with `psm` each client sends `n_j·⌈wL/8⌉` bytes to the server, masked; with `clear` and
//!   `sketch` `n_j·⌈L/8⌉`; with `shade` and `phe` nothing.
//! - Distances between rows of one client: that client sends `n_j·(1 + 6k)` bytes to the server.
//! - Distances between rows of two clients: with `psm` each of the two sends `w/8` bytes for each
//!   pair of rows; with `shade` the same, and one client sends the other `L·w/8`; with `phe` the
//!   owner sends ciphertexts of `L·w/4` bytes a row, and `3w/8` bytes are sent for a pair of rows.
//! - Influence: the server sends client `j` `4·u·l_j` bytes, masked, in
//!   [transfers](ot::punctured).
//! - Scores: client `j` sends `4·C·(u − u_j)` bytes, masked, to the server and gets `4·C·u_j` back
//!   ([`sum`](mod@sum)).
//!
//! Computation:
//!
//! - Codes: `n_j·L·d` multiplications.
//! - Distances, a pair of rows: with `psm` three inner products of `L` numbers, with `shade` `3L/8`
//!   blocks of AES, with `phe` a seventh of `L·w/B` products modulo `N²`, with other backends a
//!   popcount of `L` bits.
//! - Influence: a sparse solve at the server, and at each side `C` streams of AES a column.
//! - Scores: one stream cipher over them for each neighbour.
//!
//! The two parties are the scripts [`client`](xclp::client) and [`server`](xclp::server). An
//! [`Endpoint`](party::Endpoint) drives them without any I/O. `docs/spec/` specifies what they
//! send; `docs/security.md` says who learns what. A [`Simulation`](simulate::Simulation) runs all
//! parties in one process, and `node` runs them on a network. [`solo`](xclp::solo) labels the rows
//! of one owner without any message.
//!
//! # Modules
//!
//! | module | what it holds |
//! |---|---|
//! | [`xclp`] | the application: client and server as parties |
//! | [`hamming`] | distances between the rows of all clients, with several backends |
//! | [`mod@sum`] | secure sums: words, rows with owners, weighted means |
//! | [`setup`] | identities, roster, pair channels, group seed |
//! | [`ot`] | oblivious transfer |
//! | [`paillier`] | Paillier's cryptosystem |
//! | [`kdf`] | seeds and the keys derived from them |
//! | [`party`] | how protocols run: parties, endpoints, frames, ledger |
//! | [`kernel`] | the fast code below |
//! | `node` | server and clients on a network: feature `net` |
//! | [`phases`] | the phases of all protocols in one table |
//! | [`simulate`] | all parties of a run in one process |
//! | `data` | data sets from `.npz` and `.csv` files: feature `files` |
#![forbid(unsafe_code)]

pub mod arrays;
#[cfg(feature = "files")]
pub mod data;
#[cfg(feature = "net")]
pub mod node;
pub mod phases;
pub mod rounds;
pub mod simulate;

pub use undertone_hamming as hamming;
pub use undertone_kdf as kdf;
pub use undertone_kernel as kernel;
pub use undertone_ot as ot;
pub use undertone_paillier as paillier;
pub use undertone_party as party;
pub use undertone_setup as setup;
pub use undertone_sum as sum;
pub use undertone_xclp as xclp;

/// The README's program compiles and runs.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
