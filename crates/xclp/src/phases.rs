//! The phases of a run, in the order of the cost tables.

use undertone_mpc::{group, hamming, sum};
use undertone_party::Phase;

/// Keys, roster, group seed.
pub const SETUP: Phase = group::PHASE;

/// Hashing, at the clients.
pub const CODES: Phase = Phase {
    id: 2,
    name: "codes",
};

/// Distances reach the server.
pub const DISTANCES: Phase = hamming::PHASE;

/// The neighbour graph, at the server.
pub const GRAPH: Phase = Phase {
    id: 4,
    name: "graph",
};

/// The solve, and its columns on their way to the clients.
pub const INFLUENCE: Phase = Phase {
    id: 5,
    name: "influence",
};

/// Labels from scores, at the clients.
pub const LABELS: Phase = Phase {
    id: 10,
    name: "labels",
};

/// All of them, in order: the four of the secure sum come before the labels.
pub const ALL: [Phase; 10] = [
    SETUP,
    CODES,
    DISTANCES,
    GRAPH,
    INFLUENCE,
    sum::KEYS,
    sum::SHARES,
    sum::UPLOAD,
    sum::UNMASK,
    LABELS,
];
