//! Codes: `L` sign bits of a row.

use undertone_kdf::Seed;
use undertone_kernel::{BitMatrix, Cpu, project};

use crate::input::Features;

/// The codes of some rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Codes(BitMatrix);

impl Codes {
    /// Hashes `features` with the Gaussian Π of `bits` rows that `seed` expands to: bit `l` of row
    /// `v` is `1[⟨Π_l, v⟩ ≥ 0]`. Π is the same bits on every platform, and so are the codes.
    pub fn hash(features: &Features, seed: &Seed, bits: usize) -> Self {
        Self(project::signs(
            Cpu::detect(),
            seed.expose(),
            bits,
            features.values(),
            features.dim(),
        ))
    }

    /// Codes computed elsewhere.
    pub fn from_bits(bits: BitMatrix) -> Self {
        Self(bits)
    }

    /// The bits, one row a row.
    pub fn bits(&self) -> &BitMatrix {
        &self.0
    }

    /// The bits, one row a row.
    pub fn into_bits(self) -> BitMatrix {
        self.0
    }
}
