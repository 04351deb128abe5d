//! Rounds of sums, and parties that live from one message to the next.
#![allow(missing_docs, clippy::unwrap_used)]

mod groups;
mod replay;
mod round_cheaters;
mod rounds;
