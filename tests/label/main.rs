//! Label propagation from end to end: results, orders, clients that drop out, cheaters.
#![allow(missing_docs, clippy::unwrap_used)]

mod cells;
mod cheaters;
mod experiments;
mod leavers;
mod orders;
mod progress;
mod reference;
mod scaling;
mod simulation;
