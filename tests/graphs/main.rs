//! Graphs between pairs of clients, and graph networks over clients: results, clients that drop
//! out, cheaters.
#![allow(missing_docs, clippy::unwrap_used)]

mod fedgraph;
mod fedgraph_cheaters;
mod fedgraph_leavers;
mod pssl;
mod pssl_cheaters;
mod pssl_leavers;
