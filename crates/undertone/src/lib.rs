//! Undertone: label propagation over data that may not leave its owners.
//!
//! # From a feature matrix to labels
//!
//! `n` rows in all, `n_j` at client `j`, `d` features, codes of `L` bits, `k` neighbours, `C`
//! classes, `u` unlabelled rows in all, `l_j` labelled ones at client `j`.
//!
//! | type | made by | who sees it | the message it becomes | what it costs |
//! |---|---|---|---|---|
//! | [`Features`](xclp::Features), `n_j × d` | the caller | its client | none | |
//! | [`Codes`](xclp::Codes), `n_j × L` bits | [`Codes::hash`](xclp::Codes::hash) | its client, and who the [`Backend`](hamming::Backend) says | with `psm` `n_j·⌈wL/8⌉` bytes to the server, masked, `w = ⌈log₂(L+1)⌉`; with `clear` and `sketch` `n_j·⌈L/8⌉`; with `shade` and `phe` none | `n_j·L·d` multiplications |
//! | [`Distances`](xclp::Distances), `n × k` | [`tiles::sweep`](hamming::tiles::sweep) | the server | for rows of one client `n_j·(1 + 6k)` bytes to the server; with `psm` `w/8` bytes of either client for each pair of rows; with `shade` the same, and `L·w/8` from one client to the other; with `phe` the owner's ciphertexts, `L·w/4` bytes a row, and `3w/8` a pair of rows | with `psm` three inner products of `L` numbers a pair, with `shade` `3L/8` blocks of AES, with `phe` a seventh of `L·w/B` products modulo N², else a popcount of `L` bits |
//! | [`Graph`](xclp::Graph), at most `2nk` edges | [`Graph::new`](xclp::Graph::new) | the server | none | |
//! | [`Influence`](xclp::Influence), labelled columns | [`Influence::columns`](xclp::Influence::columns) | the server; client `j` shares of what they add to scores | [transfers](ot::punctured): `4·u·l_j` bytes to client `j`, masked | a sparse solve; at either side `C` streams of AES a column |
//! | [`Scores`](xclp::Scores), unlabelled rows | [`client`](xclp::client) | client `j` its rows | masked, `4·C·(u − u_j)` bytes to the server, `4·C·u_j` back ([`sum`](mod@sum)) | a stream cipher over them for each neighbour |
//! | [`Labels`](xclp::Labels), `n_j` | [`Labels::decide`](xclp::Labels::decide) | its client | none | |
//!
//! The two parties are the scripts [`client`](xclp::client) and [`server`](xclp::server). An
//! [`Endpoint`](party::Endpoint) drives them without any I/O. `docs/spec` says what they send,
//! `SECURITY.md` who learns what. A [`Simulation`](simulate::Simulation) runs all parties in one process,
//! `node` between machines; [`solo`](xclp::solo) labels one owner's rows without any message.
//!
//! # Modules
//!
//! | module | what it holds |
//! |---|---|
//! | [`xclp`] | the application: client and server as parties |
//! | [`hamming`] | distances between all rows of all clients, by the backend of your choice |
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
