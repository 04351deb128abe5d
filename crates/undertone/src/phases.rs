//! The phases of all protocols in one table: no two have the same number or the same name.
//!
//! The header of every frame holds the number of its phase (`docs/spec/conventions.md`, *Phases*).
//! A new protocol takes numbers that are free here.

use undertone_ot::party as ot;
use undertone_party::Phase;
use undertone_xclp::phases as xclp;

use crate::rounds;

/// All phases, in the order of their numbers.
pub const ALL: [Phase; 28] = [
    xclp::SETUP,
    xclp::OFFLINE,
    xclp::CODES,
    xclp::DISTANCES,
    xclp::GRAPH,
    xclp::INFLUENCE,
    undertone_sum::KEYS,
    undertone_sum::SHARES,
    undertone_sum::UPLOAD,
    undertone_sum::UNMASK,
    xclp::LABELS,
    ot::BASE,
    ot::EXTENSION,
    rounds::ROUND,
    rounds::CONTRIBUTION,
    rounds::RESULT,
    undertone_training::MODEL,
    undertone_training::UPDATE,
    undertone_garble::GARBLING,
    undertone_fedct::CONSENSUS,
    undertone_fedct::VOTES,
    undertone_fedct::SLICES,
    undertone_pssl::EDGES,
    undertone_pssl::SLOTS,
    undertone_fedgraph::FEATURES,
    undertone_fedgraph::SOFT_VOTE,
    undertone_fedgraph::TRAINING,
    undertone_fedgraph::PREDICTION,
];
