//! Cross-client label propagation (XCLP; Scott, Yeo, Lampert, arXiv 2210.06434): from feature rows
//! that may not leave their owners to labels for all of them.
//!
//! The documentation of the crate `undertone` has a guide: one table from features to labels. The
//! protocol is specified in `docs/spec/labels.md`, the hashing in `docs/spec/codes.md`, and the
//! noise on labels in `docs/spec/label-noise.md`.
#![forbid(unsafe_code)]

mod application;
pub mod cells;
mod classes;
mod client;
pub mod codes;
pub mod distances;
pub mod graph;
pub mod influence;
pub mod input;
mod iterate;
mod job;
pub mod label_noise;
pub mod labels;
mod messages;
mod offline;
pub mod params;
pub mod phases;
mod rows;
pub mod scaling;
pub mod scores;
mod server;
mod shares;
mod simulation;
pub mod solo;
mod spread;
mod terms;
mod tie;
mod transfers;

pub use application::{Client, Ended, Gained, Server};
pub use cells::Cells;
pub use classes::renumber;
pub use client::{Input, Outcome, client};
pub use codes::{Codes, Together};
pub use distances::Distances;
pub use graph::Graph;
pub use influence::Influence;
pub use input::{Features, InputError, Labelling, MAX_ROWS};
pub use job::Job;
pub use label_noise::LabelNoise;
pub use labels::Labels;
pub use messages::rows_warning;
pub use params::{Params, Variant};
pub use rows::Rows;
pub use scaling::Scale;
pub use scores::Scores;
pub use server::{Report, server};
pub use simulation::{Run, RunError, Scaling, Simulation, run, simulation};
pub use terms::{PeerRows, PropagationTerms, Terms};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
