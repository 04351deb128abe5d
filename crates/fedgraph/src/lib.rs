//! Vertical federated learning by a graph network over clients (FedGraph, arXiv 2404.09443).
//!
//! All clients know the same rows and their labels. Each has some features of them. A client
//! trains a network of its own, and brings [`Inputs`]: embeddings of rows, and class probabilities
//! of the rows to predict. Clients that share a feature are neighbours in a graph. A graph network
//! with two layers runs over it. It trains on means over clusters of rows, never on single rows.
//!
//! | cut | the server sees | clients see |
//! |---|---|---|
//! | [`Cut::Embeddings`] | the embeddings, as published | nothing |
//! | [`Cut::Server`] | sums of the first layer | the signs of their own sums |
//! | [`Cut::Client`] | nothing | means of their neighbours' embeddings |
//!
//! **No cut protects the embeddings themselves.** With the first layer's weights its sums tell
//! them, and they tell the features. Averaging over the rows of a cluster is the only protection in
//! training, and there is none when single rows are predicted by the graph network. So rows are
//! predicted by a *soft vote*: the sum of all clients' probabilities, under masks.
//!
//! The sums are a [series](undertone_sum::series), without recovery: all clients of the roster take
//! part to the end. The specification, with what every party learns, is `docs/spec/fedgraph.md`.
#![forbid(unsafe_code)]

mod adam;
mod application;
mod checkpoint;
pub mod clear;
mod client;
mod clusters;
mod common;
mod data;
mod graph;
mod job;
mod matrix;
mod messages;
mod network;
mod saved;
mod server;
mod terms;
mod words;

use undertone_party::Phase;

pub use application::{Client, Server, Simulation, Train, simulation};
pub use checkpoint::{Checkpoint, MAX_CHECKPOINT};
pub use client::{MIN_NETWORK, Outcome, Place, client, shows};
pub use clusters::{Clusters, clusters};
pub use common::{Keep, Kept};
pub use data::{DataError, Inputs, MAX_COLUMNS};
pub use graph::{Graph, Tag};
pub use job::{Clustering, Cut, Job, MAX_CLIENTS, MAX_ROWS, MAX_WIDTH, Predict};
pub use matrix::Matrix;
pub use network::Weights;
pub use server::{Report, server};
pub use terms::Terms;

/// Which features and labels the clients have.
pub const FEATURES: Phase = Phase {
    id: 25,
    name: "features",
};

/// The sum of the clients' probabilities.
pub const SOFT_VOTE: Phase = Phase {
    id: 26,
    name: "soft vote",
};

/// The training of the graph network.
pub const TRAINING: Phase = Phase {
    id: 27,
    name: "graph network",
};

/// Predictions of the graph network.
pub const PREDICTION: Phase = Phase {
    id: 28,
    name: "prediction",
};

/// The phases of a run, in order.
pub const PHASES: [Phase; 5] = [
    undertone_setup::group::PHASE,
    FEATURES,
    SOFT_VOTE,
    TRAINING,
    PREDICTION,
];

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
