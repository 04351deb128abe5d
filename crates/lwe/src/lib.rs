//! Inner products of bits from module learning with errors.
#![forbid(unsafe_code)]

mod evaluator;
mod masks;
mod matrix;
mod owner;
mod params;
mod sample;
pub mod table;

#[cfg(test)]
mod tests;

pub use evaluator::{Columns, Evaluator, Hint, KeyError, TILE_ROWS, Tile};
pub use masks::{Masks, SEED};
pub use matrix::{Dense, Matrix, Ring, Scratch};
pub use owner::{Headers, KeyOwner};
pub use params::{CLASSES, MAX_BITS, MAX_COLUMNS, Params};
