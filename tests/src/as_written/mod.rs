//! The published protocols for Hamming distances, as written but for what would be wrong, slow and short:
//! one transfer, or one ciphertext, for every bit of every row, with nothing packed or batched. They are the
//! oracle of the fast ones, and the "as published" lines of the cost tables.

pub mod phe;
pub mod shade;

/// What a run gives and costs.
#[derive(Debug, PartialEq)]
pub struct Outcome {
    /// The server's distances, for each row of the first client those to each of the second.
    pub distances: Vec<Vec<u64>>,
    /// Bits that pass, transfers' inner messages included.
    pub bits: u64,
}
