//! A client's rows.

use undertone_job::record;

use crate::codes::Codes;
use crate::input::Features;

/// A client's rows: features to hash, or codes hashed before.
#[derive(Debug, Clone)]
pub enum Rows {
    /// Feature rows.
    Features(Features),
    /// Codes of the run's length.
    Codes(Codes),
}

impl Rows {
    /// How many rows there are.
    pub fn len(&self) -> usize {
        match self {
            Self::Features(features) => features.rows(),
            Self::Codes(codes) => codes.bits().rows(),
        }
    }

    /// The features of a row. Codes have none.
    pub fn features(&self) -> Option<usize> {
        match self {
            Self::Features(features) => Some(features.dim()),
            Self::Codes(_) => None,
        }
    }

    /// The digests by which records of answers know the rows.
    pub fn digests(&self) -> Vec<[u8; 32]> {
        match self {
            Self::Features(features) => {
                let rows = features.values().chunks_exact(features.dim().max(1));
                rows.map(|row| record::row(row.iter().copied())).collect()
            }
            Self::Codes(codes) => {
                let bits = codes.bits();
                (0..bits.rows())
                    .map(|row| record::code(bits.row(row)))
                    .collect()
            }
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
