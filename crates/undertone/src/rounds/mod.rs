//! Rounds of secure sums or weighted means: what federated averaging needs of a protocol.
//!
//! A session is one round. Every client contributes arrays of the same names and shapes, and the
//! server and all clients learn their sum or weighted mean. Nobody learns what one client
//! contributes, nor its weight. Clients that leave before their words have come are left out of the
//! round; the others' mean is right without them.
//!
//! | step | client → server | server → client | phase |
//! |---|---|---|---|
//! | 1 | the number of the last mean it has | which round it is; the last mean, if need be | [`ROUND`] |
//! | 2 | the layout of its arrays | the layout of the round | [`CONTRIBUTION`] |
//! | 3 | a secure sum ([`undertone_sum`]) | | the sum's |
//! | 4 | | the mean | [`RESULT`] |
//!
//! In step 1 the client sends the number in 4 bytes. The server sends how many rounds are finished
//! (4), whether one more is due (1), and whether a mean follows (1). The server alone learns the
//! shared words of the sum in step 3.
//!
//! A *mean* on the wire is one message with the round (4), the number of contributors (4), their
//! ids (4 each) and the layout, then the words of the sum in tiles of 1 MiB.
//!
//! A client that was away gets the last mean when it comes back, in step 1. Then the client makes
//! its contribution, which may take long: it is where training happens.
//!
//! **Who learns what.** The server and every client: the mean of each round, its total weight, and
//! who contributed. Two rounds to which a client contributes the same values, once with another
//! client and once without, tell what the other contributed. So a client never adds the same values
//! twice once masked words of them have left it: it asks its [`Source`] for others, or does without
//! the round.

mod client;
mod job;
mod messages;
mod server;

pub use client::{Client, Contribution, Place, Round, Source, Step};
pub use job::{Job, MAX_ROUNDS, Mean, Terms};
pub use messages::MeanHeader;
pub use server::{Kept, Report, Server};

use undertone_party::Phase;

/// Which round it is, and the last mean.
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
