//! Hamming distances between the rows of two clients for a server, from module learning with errors
//! (LWE).
//!
//! Of each two clients the *key owner* encrypts its rows, and the *evaluator* computes on them.
//! Both send the server a noisy number for each pair of rows. The difference of the two gives it
//! the distance. This crate computes the content of all messages; it sends and seals nothing.
//! `docs/spec/lwe.md` is the specification, with the proof.
//!
//! The server learns the distances. Clients learn nothing. Any clients together with the server
//! learn the distances and nothing else, if module LWE is hard and *all parties follow the
//! protocol*. Clients that depart from it, without the server, learn nothing from its messages, but
//! can choose what the distances of their own rows say. Distances to enough known rows give a row
//! away. The composition is new, and nobody outside the project has reviewed it.
//!
//! In the order of use:
//!
//! | type | party | what it is |
//! |---|---|---|
//! | [`Params`] | all | the parameters for rows of some length, up to [`MAX_BITS`] |
//! | [`Ring`] | clients | the public matrix A of a session (1) |
//! | [`KeyOwner`] | key owner | its secrets; makes *keys*, one for each row |
//! | [`Pads`] | key owner, evaluator | what hides numbers from the server but for differences |
//! | [`Evaluator`] | evaluator | draws masked rows |
//! | [`Columns`] | evaluator | the keys that the same masked rows answer (2) |
//! | [`Hint`] | evaluator | masked rows with their [`Columns`]; gives a [`Tile`] at a time |
//! | [`Tile`] | evaluator | *headers*, and *answers*, of up to [`TILE_ROWS`] rows |
//! | [`KeyOwner::open`] | key owner | *openings* |
//! | [`Decoder`] | server | the distances |
//!
//! 1. [`Dense`] is a matrix without structure, the oracle of the tests.
//! 2. At most [`Params::max_columns`].
//!
//! A [`Hint`] answers each key once with each masked row, and [`Columns`] refuses keys beyond the
//! bound. All evaluators of a key owner may have [`MAX_EVALUATED`] rows together; callers check it.
//! The security depends on these. All randomness is tied to what it is used on: who runs again with
//! the same secret on the same inputs sends the same bytes, and on other inputs draws afresh.
//! Callers must give each session secrets of its own.
//!
//! *Constant time*: everything, in rows, secrets, pads and noise. Only which candidates of a
//! Gaussian are rejected shows, and it does not depend on the numbers that are accepted.
#![forbid(unsafe_code)]

mod decode;
mod evaluator;
mod matrix;
mod owner;
mod pads;
mod params;
mod pool;
mod sample;
pub mod table;
mod tags;

#[cfg(test)]
mod tests;

pub use decode::Decoder;
pub use evaluator::{Columns, Evaluator, Hint, KeyError, TILE_ROWS, Tile};
pub use matrix::{Dense, Matrix, Ring, Scratch};
pub use owner::{Block, KeyOwner};
pub use pads::{Pads, Place, SEED};
pub use params::{CLASSES, MAX_BITS, MAX_COLUMNS, MAX_EVALUATED, Params};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
