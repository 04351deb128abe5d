//! Co-training by hard labels (FedCT; Abourayya et al., arXiv 2310.05696), with votes that nobody
//! sees.
//!
//! Every client fits a learner on its own rows, and labels rows that are public. All labels of a
//! row are votes. The clients get the *consensus* as labels for the public rows, and fit again on
//! both. This is an *exchange*, and it is a session. Exchanges go on until the consensus repeats.
//!
//! | votes | who sees what | how |
//! |---|---|---|
//! | [`Clear`](Votes::Clear) | the server: all votes | as published |
//! | [`Counts`](Votes::Counts) | the server: how many votes each class has | a secure sum |
//! | [`Winners`](Votes::Winners) | all: the consensus, and nothing else | sums and circuits |
//!
//! With [`Votes::Winners`] the public rows are dealt to *slices*, and each slice to a client, its
//! *helper*. The clients take masks off their votes that the helper knows and the server does not,
//! and add them up. The server then has the votes less the masks, the helper the masks. A garbled
//! circuit adds both, and tells the server the winner of each row. The specification is
//! `docs/spec/cotraining.md`.
//!
//! [`Server`] and [`Client`] are the two halves of the application. A job has a session for each
//! exchange, and one in which all clients get the last consensus. A client may miss an exchange. A
//! server that keeps its state in a file and is killed continues after the last exchange that it
//! began.
#![forbid(unsafe_code)]

mod application;
pub mod ballots;
mod client;
mod data;
pub mod job;
pub mod learner;
mod messages;
mod noise;
mod server;
mod session;
mod slices;
mod state;
mod terms;

use undertone_party::Phase;

pub use application::{Client, Server, Simulation};
pub use ballots::Labels;
pub use client::{Inputs, Step};
pub use data::{Data, DataError, Public, Scaler};
pub use job::{Consensus, Job, Votes};
pub use learner::{Learner, LearnerError, Rows};
pub use noise::Noise;
pub use state::{Exchange, Report, State};
pub use terms::Terms;

/// The consensus, from the server to the clients.
pub const CONSENSUS: Phase = Phase {
    id: 20,
    name: "consensus",
};

/// The clients learn and vote.
pub const VOTES: Phase = Phase {
    id: 21,
    name: "votes",
};

/// Slices and their helpers.
pub const SLICES: Phase = Phase {
    id: 22,
    name: "slices",
};

/// The phases of a session, in order.
pub const PHASES: [Phase; 9] = {
    let sum = undertone_sum::PHASES;
    [
        CONSENSUS,
        VOTES,
        undertone_setup::group::PHASE,
        SLICES,
        sum[0],
        sum[1],
        sum[2],
        sum[3],
        undertone_garble::GARBLING,
    ]
};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
