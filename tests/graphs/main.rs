//! Graphs between pairs of clients, and graph networks over clients: results, clients that drop
//! out, cheaters.
#![allow(missing_docs, clippy::unwrap_used)]

mod feature_graph;
mod feature_graph_cheaters;
mod feature_graph_leavers;
mod pairwise;
mod pairwise_cheaters;
mod pairwise_leavers;
