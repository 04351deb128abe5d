//! Training and co-training: results, clients that drop out, cheaters.
#![allow(missing_docs, clippy::unwrap_used)]

mod cotraining;
mod cotraining_cheaters;
mod cotraining_leavers;
mod training;
mod training_cheaters;
mod training_leavers;
