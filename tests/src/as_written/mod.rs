//! The published protocols for Hamming distances, slow and short: one transfer or one ciphertext
//! for every bit of every row, without packing or batches. Only their errors are corrected. They
//! are the oracle for the fast protocols, and the "as published" lines of the cost tables.

pub mod phe;
pub mod shade;

/// The result and the cost of a run.
#[derive(Debug, PartialEq)]
pub struct Outcome {
    /// The server's distances: for each row of the first client, those to each row of the second.
    pub distances: Vec<Vec<u64>>,
    /// Bits sent, including the messages inside transfers.
    pub bits: u64,
}
