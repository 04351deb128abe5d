//! A graph that is built between pairs of clients, and label propagation over it without a server
//! that sees anything (PSSL; Güler, Avestimehr, Ortega).
//!
//! Every client has a graph of its own rows. Each pair of clients finds rows of both that are near
//! to each other, but not too near, and joins them by edges. Then scores spread over all edges:
//! each client learns the sum of what its rows' neighbours at other clients have.
//!
//! | who | learns |
//! |---|---|
//! | the server | numbers of rows, lengths of messages, who takes part |
//! | both ends of an edge | that their rows are joined, and [a bit of the distance](Reveal) |
//! | a client | for each of its rows the sum of the scores of its neighbours at other clients |
//!
//! The distances come from correlated transfers, comparisons from garbled circuits, sums from
//! [`undertone_sum`]. The specification, with what every party learns besides, is
//! `docs/spec/pssl.md`.
#![forbid(unsafe_code)]

mod application;
pub mod circuits;
pub mod clear;
mod client;
mod data;
mod job;
mod lengths;
mod link;
mod local;
mod messages;
mod pair;
pub mod product;
mod scores;
mod server;
mod terms;

use undertone_party::Phase;

pub use application::{Client, Server, Simulation, simulation};
pub use client::{Outcome, client};
pub use data::{Data, DataError, quantise};
pub use job::{
    ATTEMPTS, COMPARISONS, Job, MAX_ASKED, MAX_CLIENTS, MAX_CLUSTERS, MAX_COMPARED, MAX_FEATURES,
    MAX_ROWS, Reveal, Thresholds, asked, epsilon,
};
pub use pair::Edge;
pub use scores::{Scores, decide};
pub use server::{Report, server};
pub use terms::Terms;

/// Edges between pairs of clients.
pub const EDGES: Phase = Phase {
    id: 23,
    name: "edges",
};

/// Where the scores of neighbours go.
pub const SLOTS: Phase = Phase {
    id: 24,
    name: "slots",
};

/// The phases of a run, in order.
pub const PHASES: [Phase; 7] = {
    let sum = undertone_sum::PHASES;
    [
        undertone_setup::group::PHASE,
        EDGES,
        SLOTS,
        sum[0],
        sum[1],
        sum[2],
        sum[3],
    ]
};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
