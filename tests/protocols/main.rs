//! Distances, transfers, circuits and sums: results, orders, drops and cheaters.
#![allow(missing_docs, clippy::unwrap_used)]

mod distances;
mod garble;
mod lwe;
mod lwe_cheaters;
mod phe;
mod series;
mod shade;
mod sum_cheaters;
mod sums;
mod transfers;
