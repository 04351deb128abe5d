//! Garbled circuits: two parties compute a circuit on inputs that neither shows to the other.
//!
//! | module | what | source |
//! |---|---|---|
//! | [`circuit`] | circuits of XOR and AND gates | |
//! | [`build`] | a builder: sums, comparisons, argmax | |
//! | [`half`] | garbling and evaluating, many instances together | Zahur, Rosulek, Evans 2015 |
//! | [`party`] | garbler and evaluator as scripts | |
//!
//! An AND gate costs 32 bytes; XOR and NOT gates are free (Kolesnikov, Schneider 2008). The
//! garbler's inputs cost no bytes: the labels that the evaluator gets come from a seed. The
//! evaluator's inputs are correlated [transfers](undertone_ot), and Δ of the transfers is Δ of the
//! labels. The specification is `docs/spec/garble.md`.
//!
//! **Who learns what.** If the outputs are for the evaluator, it learns them and nothing else; the
//! garbler learns nothing. This holds for parties that follow the protocol. The transfers are
//! checked, so an evaluator that deviates gets one label of each input, of its choice. A garbler
//! that deviates can make the outputs wrong, or garble another circuit: then the outputs may tell
//! more than they should, to whoever learns them. The evaluator never aborts because of what tables
//! contain. An abort that depends on its inputs would tell the garbler about them.
#![forbid(unsafe_code)]

pub mod build;
pub mod circuit;
pub mod half;
pub mod party;

use undertone_party::{Abort, PartyId};

pub use build::{Bit, Builder, Number, index_bits};
pub use circuit::Circuit;
pub use party::{Audience, GARBLING, Rules};

/// Errors of garbled circuits.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GarbleError {
    /// A message has the wrong length.
    #[error("{what} of {have} bytes, {due} are due")]
    Length {
        /// The message.
        what: &'static str,
        /// Its length.
        have: usize,
        /// The length expected.
        due: usize,
    },
}

impl GarbleError {
    fn check_len(what: &'static str, bytes: &[u8], due: usize) -> Result<(), Self> {
        if bytes.len() == due {
            return Ok(());
        }
        Err(Self::Length {
            what,
            have: bytes.len(),
            due,
        })
    }

    /// Converts an error about a message of `from` into the abort that blames it.
    pub fn blame(from: PartyId) -> impl Fn(Self) -> Abort {
        move |error| Abort::Malformed {
            from,
            what: error.to_string(),
        }
    }
}

#[cfg(test)]
mod tests;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
