//! Class scores of unlabelled rows, and the fixed point in which they are added up.

use undertone_kernel::Wiped;
use undertone_party::Abort;
use undertone_sum::fixed::Fixed;

/// Scores of some rows, one for each class. Never negative. Wiped when dropped.
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
    /// When there are no classes or the last row is not whole.
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

    /// Classes.
    pub fn classes(&self) -> usize {
        self.classes
    }

    /// Rows.
    pub fn rows(&self) -> usize {
        self.values.len() / self.classes
    }

    /// The rows.
    pub fn iter(&self) -> impl Iterator<Item = &[f64]> {
        self.values.chunks_exact(self.classes)
    }

    /// Divides the scores of each class by the number of its labelled rows; a class without any
    /// has no scores.
    pub(crate) fn balance(&mut self, counts: &[u64]) {
        for row in self.values.chunks_exact_mut(self.classes) {
            for (score, count) in row.iter_mut().zip(counts) {
                *score = if *count == 0 {
                    0.0
                } else {
                    *score / *count as f64
                };
            }
        }
    }
}

/// Fixed point in `Z_{2^64}`: a score `z` is `round(z·2^f)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FixedPoint {
    fraction: u8,
}

impl FixedPoint {
    /// Bits for the largest sum and its fraction; one is spare, one the sign.
    const MOST: u8 = 62;
    /// Fewer fractional bits than this change labels.
    const FEWEST: u8 = 16;

    /// The most precise one in which the scores of `labelled` rows over all `clients` cannot
    /// overflow: a column of the influence has no entry above `1/(1 − α)`.
    pub(crate) fn fitting(labelled: usize, alpha: f64, clients: usize) -> Result<Self, Abort> {
        let largest = (labelled.max(1) * clients.max(1)) as f64 / (1.0 - alpha);
        let spare = i64::from(Self::MOST) - largest.log2().ceil() as i64;
        if spare < Self::FEWEST.into() {
            return Err(Abort::Misuse(format!(
                "alpha = {alpha} is too near 1 for {labelled} labelled rows: scores would overflow"
            )));
        }
        Ok(Self {
            fraction: spare as u8,
        })
    }

    /// Fixed point with `fraction` fractional bits, as a peer announced it.
    pub(crate) fn from_wire(fraction: u8) -> Option<Self> {
        let known = (Self::FEWEST..=Self::MOST).contains(&fraction);
        known.then_some(Self { fraction })
    }

    pub(crate) fn to_wire(self) -> u8 {
        self.fraction
    }

    /// Encodes what one of `clients` clients contributes.
    ///
    /// # Errors
    /// [`Abort::Misuse`] when a sum of that many such values could overflow.
    pub(crate) fn encode(self, values: &[f64], clients: usize) -> Result<Vec<u64>, Abort> {
        let words = Fixed::with_fraction(self.fraction, clients)?.encode(values);
        words.map_err(|error| Abort::Misuse(format!("scores: {error}")))
    }

    /// The scores of a sum.
    ///
    /// # Errors
    /// Never where [`encode`](Self::encode) had none.
    pub(crate) fn decode(self, words: &[u64]) -> Result<Vec<f64>, Abort> {
        let point = Fixed::with_fraction(self.fraction, 1)?;
        let scores = point.decode(words).into_iter();
        Ok(scores.map(|score| score.max(0.0)).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn sums_of_encodings_decode_to_sums(
            values in prop::collection::vec(0.0f64..1000.0, 1..20), labelled in 1usize..100_000,
        ) {
            let point = FixedPoint::fitting(labelled, 0.99, values.len()).unwrap();
            let words = point.encode(&values, values.len()).unwrap();
            let sum = words.iter().fold(0u64, |sum, word| sum.wrapping_add(*word));
            let expected: f64 = values.iter().sum();
            let tolerance = values.len() as f64 / 2f64.powi(point.to_wire().into()) + 1e-12 * expected;
            prop_assert!((point.decode(&[sum]).unwrap()[0] - expected).abs() < tolerance);
        }
    }

    #[test]
    fn what_could_overflow_is_refused() {
        let point = FixedPoint::fitting(1000, 0.99, 2).unwrap();
        let largest = 2f64.powi(63 - i32::from(point.to_wire()));
        assert!(point.encode(&[largest / 4.0], 3).is_ok());
        assert!(point.encode(&[largest / 2.0], 2).is_err());
        assert!(point.encode(&[f64::NAN], 2).is_err());
        assert!(FixedPoint::fitting(1 << 24, 1.0 - 1e-8, 5).is_err());
        assert!(FixedPoint::from_wire(63).is_none());
    }
}
