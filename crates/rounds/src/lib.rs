//! Rounds of secure sums or weighted means, for federated averaging.
//!
//! The specification is `docs/spec/rounds.md`. A session is one round. Every client contributes
//! arrays of the same names and shapes. The server and all clients learn the sum or the weighted
//! mean. Nobody learns what one client contributes, nor its weight. A client that drops out before
//! its upload is complete is not in the mean of the round.
//!
//! | step | client → server | server → client | phase |
//! |---|---|---|---|
//! | 1 | the number of its last mean | the round; the last mean if it lacks it | [`ROUND`] |
//! | 2 | the layout of its arrays | the layout of the round | [`CONTRIBUTION`] |
//! | 3 | a secure sum ([`undertone_sum`]) | | the sum's |
//! | 4 | | the mean | [`RESULT`] |
//!
//! In step 1 the client sends the number in 4 bytes. The server sends the number of finished rounds
//! (4), whether a round is due (1) and whether a mean follows (1). Only the server learns the
//! shared words of the sum in step 3.
//!
//! A *mean* on the wire is one message with the round (4), the number of contributors (4), their
//! ids (4 each) and the layout. The words of the sum follow in tiles of 1 MiB.
//!
//! A client that was away gets the last mean in step 1. It then makes its contribution. This is
//! where it trains, so it may take long.
//!
//! **Who learns what.** The server and every client learn the mean of each round, its total weight
//! and the contributors. If a client adds the same values to two sums, one with another client and
//! one without it, the difference is what the other client contributed. So a client never uses
//! values again after masked words of them have left it: it asks its [`Source`] for others, or
//! takes no part in the round.

#![forbid(unsafe_code)]

mod application;
pub mod arrays;
mod client;
mod job;
mod mean;
mod messages;
mod server;
mod terms;

pub use application::{Client, Server};
pub use client::{Contribution, Contributor, Round, Source, Step};
pub use job::{Job, MAX_ROUNDS};
pub use mean::Mean;
pub use messages::MeanHeader;
pub use server::{Kept, Report, Session};
pub use terms::Terms;
pub use undertone_sum::{MIN_GROUP, Sampling};

use undertone_party::Phase;

/// The number of the round, and the last mean.
pub const ROUND: Phase = Phase {
    id: 14,
    name: "round",
};

/// Clients make their contributions.
pub const CONTRIBUTION: Phase = Phase {
    id: 15,
    name: "contribution",
};

/// The mean.
pub const RESULT: Phase = Phase {
    id: 16,
    name: "result",
};

/// The phases of a round, in order.
pub const PHASES: [Phase; 7] = [
    ROUND,
    CONTRIBUTION,
    undertone_sum::KEYS,
    undertone_sum::SHARES,
    undertone_sum::UPLOAD,
    undertone_sum::UNMASK,
    RESULT,
];

/// All parties of a job in one process.
pub type Simulation<S> = undertone_job::Simulation<Server, Client<S>>;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
