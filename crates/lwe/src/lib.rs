//! Hamming distances between the rows of two clients, from module learning with errors (LWE).
//!
//! Of each two clients the *key owner* encrypts its rows, and the *evaluator* computes on them
//! under a mask. The server takes the mask off. This crate computes the content of all messages; it
//! sends and seals nothing. `docs/spec/lwe.md` is the specification, with the proof.
//!
//! The server learns the distances. Clients learn nothing. Any clients together with the server
//! learn the distances and nothing else, if module LWE is hard and *all parties follow the
//! protocol*. A key owner that departs from it reads rows of the evaluator. Distances to enough
//! known rows give a row away. The composition is new, and nobody outside the project has reviewed
//! it.
//!
//! In the order of use:
//!
//! | type | party | what it is |
//! |---|---|---|
//! | [`Params`] | all | the parameters for rows of some length, up to [`MAX_BITS`] |
//! | [`Ring`] | clients | the public matrix A of a session (1) |
//! | [`KeyOwner`] | key owner | its secrets; makes *keys*, one for each row |
//! | [`Masks`] | evaluator, server | the masks of distances, from a seed |
//! | [`Columns`] | evaluator | the keys that the same masked rows answer (2) |
//! | [`Evaluator`] | evaluator | draws masked rows |
//! | [`Hint`] | evaluator | masked rows with their [`Columns`]; gives a [`Tile`] at a time |
//! | [`Tile`] | evaluator | *headers* and *answers* of up to [`TILE_ROWS`] rows |
//! | [`Headers`] | key owner | headers, for [`KeyOwner::open`], which gives *masked distances* |
//! | [`Masks::unmask`] | server | the distances |
//!
//! 1. [`Dense`] is a matrix without structure, the oracle of the tests.
//! 2. At most [`Params::max_columns`].
//!
//! A [`Hint`] answers each key once with each masked row, and [`Columns`] refuses keys that occur
//! twice and keys beyond the bound. The security depends on both. Callers must give each session
//! and each pair seeds of their own.
//!
//! *Constant time*: everything, in rows, secrets, masks and noise. Only which candidates of a
//! Gaussian are rejected shows, and it does not depend on the numbers that are accepted.
#![forbid(unsafe_code)]

mod evaluator;
mod masks;
mod matrix;
mod owner;
mod params;
mod pool;
mod sample;
pub mod table;

#[cfg(test)]
mod tests;

pub use evaluator::{Columns, Evaluator, Hint, KeyError, TILE_ROWS, Tile};
pub use masks::{Masks, SEED};
pub use matrix::{Dense, Matrix, Ring, Scratch};
pub use owner::{Headers, KeyOwner};
pub use params::{CLASSES, MAX_BITS, MAX_COLUMNS, Params};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
