//! Codes: `L` sign bits of a row. `docs/spec/codes.md` specifies them.

use undertone_kdf::Seed;
use undertone_kernel::{BitMatrix, Cpu, project};

use crate::input::Features;

/// The codes of some rows. Wiped when dropped.
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

    /// The bits: a row of the matrix for each code.
    pub fn bits(&self) -> &BitMatrix {
        &self.0
    }

    /// The bits: a row of the matrix for each code.
    pub fn into_bits(self) -> BitMatrix {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::input::Labelling;
    use crate::labels::Labels;
    use crate::scores::Scores;

    /// `Debug` of rows, codes, labels and scores shows their sizes and nothing else.
    #[test]
    fn contents_are_not_shown() {
        let features = Features::new(2, vec![77.0; 6]).unwrap();
        let codes = Codes::hash(&features, &Seed::from_bytes([1; 32]), 70);
        let labelling = Labelling::new(99, vec![Some(77), None, Some(77)]).unwrap();
        let scores = Scores::new(99, vec![77.0; 99]);
        let labels = Labels::decide(&labelling, &scores);
        assert_eq!(format!("{features:?}"), "Features(3 x 2, ..)");
        assert_eq!(format!("{codes:?}"), "Codes(BitMatrix(3 x 70, ..))");
        let shown = format!("{labelling:?} {scores:?} {labels:?}");
        assert!(!shown.contains("77"), "{shown}");
    }
}
