//! The result of a round.

use crate::arrays::Arrays;
use sha2::{Digest, Sha256};
use undertone_party::PartyId;

/// The result of a round.
#[derive(Debug, Clone, PartialEq)]
pub struct Mean {
    /// The number of the round, from 1.
    pub round: u32,
    /// The weighted mean of the contributors' arrays, or their sum.
    pub arrays: Arrays,
    /// The total weight of the contributors. For a sum, the number of contributors.
    pub weight: f64,
    /// The contributors.
    pub contributors: Vec<PartyId>,
}

impl Mean {
    /// The digest by which parties compare the mean of the round before.
    pub(crate) fn digest(&self) -> [u8; 32] {
        let mut hash = Sha256::new();
        hash.update(b"undertone/v1/mean");
        hash.update(self.round.to_le_bytes());
        hash.update((self.contributors.len() as u32).to_le_bytes());
        for contributor in &self.contributors {
            hash.update(contributor.to_wire().to_le_bytes());
        }
        hash.update(self.weight.to_le_bytes());
        hash.update(self.arrays.layout().write());
        for values in self.arrays.to_doubles().chunks(1 << 12) {
            let bytes: Vec<u8> = values
                .iter()
                .flat_map(|value| value.to_le_bytes())
                .collect();
            hash.update(bytes);
        }
        hash.finalize().into()
    }
}
