//! The phases of a run, in the order of the cost tables.

use undertone_hamming as hamming;
use undertone_party::Phase;
use undertone_setup::group;
use undertone_sum as sum;

/// Keys, roster, group seed.
pub const SETUP: Phase = group::PHASE;

/// What distances and influences need and can be done before there are codes.
pub const OFFLINE: Phase = hamming::OFFLINE;

/// Hashing, at the clients.
pub const CODES: Phase = Phase {
    id: 3,
    name: "codes",
};

/// Distances reach the server.
pub const DISTANCES: Phase = hamming::PHASE;

/// The neighbour graph, at the server.
pub const GRAPH: Phase = Phase {
    id: 5,
    name: "graph",
};

/// The solve, and the masked columns on their way to the clients.
pub const INFLUENCE: Phase = Phase {
    id: 6,
    name: "influence",
};

/// Labels from scores, at the clients.
pub const LABELS: Phase = Phase {
    id: 11,
    name: "labels",
};

/// All of them, in order: the four of the secure sum come before the labels.
pub const ALL: [Phase; 11] = [
    SETUP,
    OFFLINE,
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
