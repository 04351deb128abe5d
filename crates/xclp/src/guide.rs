//! The tour: one table from a feature matrix to labels.
//!
//! `n` rows in all, `n_j` at client `j`, `d` features, codes of `L` bits, `k` neighbours, `C`
//! classes, `u` unlabelled rows in all, `l_j` labelled ones at client `j`.
//!
//! | type | made by | who sees it | the message it becomes | what it costs |
//! |---|---|---|---|---|
//! | [`Features`](crate::Features), `n_j × d` | the caller | its client | none | |
//! | [`Codes`](crate::Codes), `n_j × L` bits | [`Codes::hash`](crate::Codes::hash) | its client, and who the [`Backend`](undertone_mpc::hamming::Backend) says | with `psm` `n_j·⌈wL/8⌉` bytes to the server, masked, `w = ⌈log₂(L+1)⌉`; with `clear` and `sketch` `n_j·⌈L/8⌉`; with `shade` and `phe` none | `n_j·L·d` multiplications |
//! | [`Distances`](crate::Distances), `n × k` | [`tiles::sweep`](undertone_mpc::tiles::sweep) | the server | for rows of one client `n_j·(1 + 6k)` bytes to the server; with `psm` `w/8` bytes of either client for each pair of rows; with `shade` the same, and `L·w/8` from one client to the other; with `phe` the owner's ciphertexts, `L·w/4` bytes a row, and `3w/8` a pair of rows | with `psm` three inner products of `L` numbers a pair, with `shade` `3L/8` blocks of AES, with `phe` a seventh of `L·w/B` products modulo N², else a popcount of `L` bits |
//! | [`Graph`](crate::Graph), at most `2nk` edges | [`Graph::new`](crate::Graph::new) | the server | none | |
//! | [`Influence`](crate::Influence), labelled columns | [`Influence::columns`](crate::Influence::columns) | the server; client `j` its columns | `8·u·l_j` bytes to client `j` | a sparse solve |
//! | [`Scores`](crate::Scores), unlabelled rows | [`Client`](crate::Client) | client `j` its rows | masked, `8·C·(u − u_j)` bytes to the server, `8·C·u_j` back ([`sum`](undertone_mpc::sum)) | a stream cipher over them for each neighbour |
//! | [`Labels`](crate::Labels), `n_j` | [`Labels::decide`](crate::Labels::decide) | its client | none | |
//!
//! The two parties are [`Client`](crate::Client) and [`Server`](crate::Server); what they send is
//! described in the project's `PROTOCOLS.md`. A run on one owner's data alone, without any message,
//! is [`solo`](crate::solo).
