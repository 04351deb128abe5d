//! The phases of a run, in the order of the cost tables.

use undertone_hamming as hamming;
use undertone_party::Phase;
use undertone_setup::group;
use undertone_sum as sum;

/// Keys, roster, group seed.
pub const SETUP: Phase = group::PHASE;

/// The clients learn centres of cells, and name the cells of their rows. Only if a job has cells.
pub const CELLS: Phase = crate::cells::PHASE;

/// The preparation of distances and influences, before there are codes.
pub const OFFLINE: Phase = hamming::OFFLINE;

/// The clients hash their rows.
pub const CODES: Phase = Phase {
    id: 3,
    name: "codes",
};

/// Distances reach the server.
pub const DISTANCES: Phase = hamming::PHASE;

/// The server builds the neighbour graph.
pub const GRAPH: Phase = Phase {
    id: 5,
    name: "graph",
};

/// The server solves for columns of influence, and sends them to the clients under masks.
pub const INFLUENCE: Phase = Phase {
    id: 6,
    name: "influence",
};

/// The clients turn scores into labels.
pub const LABELS: Phase = Phase {
    id: 11,
    name: "labels",
};

/// All phases, in order. The four of the secure sum come before the labels.
pub const ALL: [Phase; 12] = [
    SETUP,
    CELLS,
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
