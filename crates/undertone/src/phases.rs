//! The phases of all protocols in one table: no two have the same number or the same name.
//!
//! The header of every frame holds the number of its phase (`docs/spec/conventions.md`, *Phases*).
//! A new protocol takes numbers that are free here.

use undertone_label::phases as label;
use undertone_ot::party as ot;
use undertone_party::Phase;

use crate::rounds;

/// All phases, in the order of their numbers.
pub const ALL: [Phase; 29] = [
    label::SETUP,
    label::OFFLINE,
    label::CODES,
    label::DISTANCES,
    label::GRAPH,
    label::INFLUENCE,
    undertone_sum::KEYS,
    undertone_sum::SHARES,
    undertone_sum::UPLOAD,
    undertone_sum::UNMASK,
    label::LABELS,
    ot::BASE,
    ot::EXTENSION,
    rounds::ROUND,
    rounds::CONTRIBUTION,
    rounds::RESULT,
    undertone_train::MODEL,
    undertone_train::UPDATE,
    undertone_garble::GARBLING,
    undertone_cotrain::CONSENSUS,
    undertone_cotrain::VOTES,
    undertone_cotrain::SLICES,
    undertone_pssl::EDGES,
    undertone_pssl::SLOTS,
    undertone_fedgraph::FEATURES,
    undertone_fedgraph::SOFT_VOTE,
    undertone_fedgraph::TRAINING,
    undertone_fedgraph::PREDICTION,
    label::CELLS,
];
