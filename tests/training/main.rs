//! Training and co-training: results, clients that drop out, cheaters.
#![allow(missing_docs, clippy::unwrap_used)]

mod cotrain;
mod cotrain_cheaters;
mod cotrain_leavers;
mod train;
mod train_cheaters;
mod train_leavers;
