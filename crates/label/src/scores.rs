//! Class scores of unlabelled rows, and the fixed point in which they are added up.

use undertone_kernel::Wiped;

/// Scores of some rows, one for each class: the share of a row's influences that comes from
/// labelled rows of the class. They are never negative. The scores of a row add up to 1 if the
/// owners of all labelled rows contribute and classes are not balanced. Wiped when dropped.
#[derive(Clone, PartialEq)]
pub struct Scores {
    classes: usize,
    values: Wiped<f64>,
}

impl std::fmt::Debug for Scores {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Scores({} x {}, ..)", self.rows(), self.classes)
    }
}

impl Scores {
    /// Rows of `classes` scores each.
    ///
    /// # Panics
    /// When there are no classes, or when the last row is not whole.
    pub fn new(classes: usize, values: Vec<f64>) -> Self {
        assert!(
            classes > 0 && values.len().is_multiple_of(classes),
            "rows of {classes} scores"
        );
        Self {
            classes,
            values: values.into(),
        }
    }

    /// Number of classes.
    pub fn classes(&self) -> usize {
        self.classes
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.values.len() / self.classes
    }

    /// The scores, row by row.
    pub fn iter(&self) -> impl Iterator<Item = &[f64]> {
        self.values.chunks_exact(self.classes)
    }

    /// Divides the scores of each class by its number of labelled rows. A class without labelled
    /// rows gets scores of 0.
    pub(crate) fn balance(&mut self, counts: &[u32]) {
        for row in self.values.chunks_exact_mut(self.classes) {
            for (score, count) in row.iter_mut().zip(counts) {
                *score = if *count == 0 {
                    0.0
                } else {
                    *score / f64::from(*count)
                };
            }
        }
    }
}

/// Fixed point in `Z_{2^32}`: a score `z` is `round(z·2^30)`.
///
/// Influences on a row are divided by their sum, so the scores of a row add up to at most 1. One
/// bit is the sign, and one is spare. See `docs/spec/labels.md`, steps 16 and 21.
pub(crate) mod fixed {
    /// 2 to the number of fractional bits.
    const ONE: f64 = (1u32 << 30) as f64;

    /// The word of an influence on a row with this `reach`. It is 0 if the reach is 0.
    pub(crate) fn encode(influence: f64, reach: f64) -> u32 {
        if reach > 0.0 {
            // The quotient exceeds 1 only by rounding.
            ((influence / reach).clamp(0.0, 1.0) * ONE).round() as u32
        } else {
            0
        }
    }

    /// The score of a word. A negative one, which only rounding makes, becomes 0.
    pub(crate) fn decode(word: u32) -> f64 {
        f64::from((word as i32).max(0)) / ONE
    }
}

#[cfg(test)]
mod tests {
    use super::fixed::{decode, encode};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn sums_of_words_decode_to_sums(
            influences in prop::collection::vec(0.0f64..1000.0, 1..200), split in 0usize..200,
        ) {
            let reach: f64 = influences.iter().sum();
            let split = split.min(influences.len());
            for part in [&influences[..split], &influences[split..]] {
                let words = part.iter().map(|influence| encode(*influence, reach));
                let sum = words.fold(0u32, u32::wrapping_add);
                let due = part.iter().sum::<f64>() / reach.max(f64::MIN_POSITIVE);
                let tolerance = (part.len() + 1) as f64 / f64::from(1u32 << 31);
                prop_assert!((decode(sum) - due).abs() <= tolerance);
            }
        }
    }

    #[test]
    fn what_is_not_reached_and_what_rounding_does() {
        assert_eq!(encode(0.0, 0.0), 0);
        assert_eq!(encode(1.0 + 1e-9, 1.0), 1 << 30);
        assert_eq!(decode(1 << 30), 1.0);
        assert_eq!(decode(u32::MAX), 0.0);
    }
}
