//! Fixed point: real numbers as words that are added up exactly.
//!
//! `x` becomes `round(x·2^f)` modulo 2³² or 2⁶⁴. What could overflow in the sum is refused before
//! anything is sent; nothing is clipped unless it is asked for.

use std::fmt;
use std::marker::PhantomData;

use undertone_party::Abort;

use super::Word;

/// Why numbers cannot be represented.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum FixedError {
    /// A value is NaN, or beyond the declared range.
    #[error("value {index} is {value}; it must be from -{bound} to {bound}")]
    OutOfRange {
        /// Which one.
        index: usize,
        /// The value.
        value: f64,
        /// The largest magnitude.
        bound: f64,
    },
    /// The range is not a positive number, or so small or large that nothing is left to represent.
    #[error("a range of {bound} for {clients} clients does not fit words of {bits} bits")]
    Range {
        /// The largest magnitude.
        bound: f64,
        /// How many clients add up.
        clients: usize,
        /// Bits of a word.
        bits: usize,
    },
}

impl From<FixedError> for Abort {
    fn from(error: FixedError) -> Self {
        Self::Misuse(error.to_string())
    }
}

/// A fixed point in which `clients` values of at most `bound` add up without overflow.
#[derive(Clone, Copy, PartialEq)]
pub struct Fixed<W = u64> {
    fraction: i32,
    bound: f64,
    word: PhantomData<W>,
}

impl<W> fmt::Debug for Fixed<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fixed(2^-{}, up to {})", self.fraction, self.bound)
    }
}

impl<W: Word> Fixed<W> {
    const BITS: usize = 8 * W::BYTES;

    /// The largest magnitude of one of `clients` words that add up.
    fn room(clients: usize) -> f64 {
        // One bit is the sign's; rounding adds up to half a unit, and doubles of this size lose some.
        let all = 2f64.powi(Self::BITS as i32 - 1) * (1.0 - 2f64.powi(-50));
        all / clients.max(1) as f64 - 1.0
    }

    /// The finest one for values from `-bound` to `bound` of `clients` clients.
    ///
    /// # Errors
    /// [`FixedError::Range`].
    pub fn for_range(bound: f64, clients: usize) -> Result<Self, FixedError> {
        let refused = FixedError::Range {
            bound,
            clients,
            bits: Self::BITS,
        };
        if !(bound > 0.0 && bound.is_finite()) {
            return Err(refused);
        }
        let room = Self::room(clients);
        let mut fraction = (room / bound).log2().floor();
        if bound * 2f64.powf(fraction) > room {
            // The logarithm was rounded up.
            fraction -= 1.0;
        }
        if !(room > 0.0 && (-1000.0..=1000.0).contains(&fraction)) {
            return Err(refused);
        }
        Ok(Self {
            fraction: fraction as i32,
            bound,
            word: PhantomData,
        })
    }

    /// The one with `fraction` fractional bits, for as large values as `clients` clients can add up.
    ///
    /// # Errors
    /// [`FixedError::Range`] when not even 1 can be.
    pub fn with_fraction(fraction: u8, clients: usize) -> Result<Self, FixedError> {
        let room = Self::room(clients);
        let bound = room / 2f64.powi(fraction.into());
        if bound < 1.0 {
            return Err(FixedError::Range {
                bound: 1.0,
                clients,
                bits: Self::BITS,
            });
        }
        Ok(Self {
            fraction: fraction.into(),
            bound,
            word: PhantomData,
        })
    }

    /// Fractional bits; negative where units are larger than 1.
    pub fn fraction(&self) -> i32 {
        self.fraction
    }

    /// The largest magnitude of a value.
    pub fn bound(&self) -> f64 {
        self.bound
    }

    fn scale(&self) -> f64 {
        2f64.powi(self.fraction)
    }

    /// The words of `values`.
    ///
    /// # Errors
    /// [`FixedError::OutOfRange`], which names the first that is beyond the bound, or NaN.
    pub fn encode(&self, values: &[f64]) -> Result<Vec<W>, FixedError> {
        let scale = self.scale();
        let encode = |(index, value): (usize, &f64)| {
            if value.abs() <= self.bound {
                return Ok(W::truncate((value * scale).round() as i64 as u64));
            }
            Err(FixedError::OutOfRange {
                index,
                value: *value,
                bound: self.bound,
            })
        };
        values.iter().enumerate().map(encode).collect()
    }

    /// The words of `values`, those beyond the bound moved to it, and how many those were.
    ///
    /// # Errors
    /// [`FixedError::OutOfRange`] when one is NaN.
    pub fn encode_clipped(&self, values: &[f64]) -> Result<(Vec<W>, usize), FixedError> {
        let beyond = values.iter().filter(|v| v.abs() > self.bound).count();
        let clip = |v: &f64| v.clamp(-self.bound, self.bound);
        let clipped: Vec<f64> = values.iter().map(clip).collect();
        Ok((self.encode(&clipped)?, beyond))
    }

    /// The numbers of a sum of words.
    pub fn decode(&self, sum: &[W]) -> Vec<f64> {
        let scale = self.scale();
        sum.iter()
            .map(|word| word.to_signed() as f64 / scale)
            .collect()
    }
}

/// A mean of vectors, weighted by weights that stay private: products and weights are added up,
/// and divided at the end.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct WeightedMean<W = u64> {
    products: Fixed<W>,
    weights: Fixed<W>,
    bound: f64,
}

impl<W: Word> WeightedMean<W> {
    /// For values from `-bound` to `bound` with weights from 0 to `max_weight`.
    ///
    /// # Errors
    /// [`FixedError::Range`].
    pub fn new(bound: f64, max_weight: f64, clients: usize) -> Result<Self, FixedError> {
        Ok(Self {
            products: Fixed::for_range(bound * max_weight, clients)?,
            weights: Fixed::for_range(max_weight, clients)?,
            bound,
        })
    }

    /// Words of a vector of `values` numbers.
    pub fn words(values: usize) -> usize {
        values + 1
    }

    /// What a client adds: each value times the weight, then the weight.
    ///
    /// # Errors
    /// [`FixedError::OutOfRange`]; the weight counts as the value after the last.
    pub fn encode(&self, values: &[f64], weight: f64) -> Result<Vec<W>, FixedError> {
        let outside = |index, value, bound| FixedError::OutOfRange {
            index,
            value,
            bound,
        };
        if let Some(index) = values
            .iter()
            .position(|v| v.is_nan() || v.abs() > self.bound)
        {
            return Err(outside(index, values[index], self.bound));
        }
        if !(0.0..=self.weights.bound).contains(&weight) {
            return Err(outside(values.len(), weight, self.weights.bound));
        }
        let products: Vec<f64> = values.iter().map(|value| value * weight).collect();
        let mut words = self.products.encode(&products)?;
        words.extend(self.weights.encode(&[weight])?);
        Ok(words)
    }

    /// The mean; `None` when no weight was added up.
    pub fn decode(&self, sum: &[W]) -> Option<Vec<f64>> {
        let (weight, products) = sum.split_last()?;
        let weight = self.weights.decode(&[*weight])[0];
        let mean = |product: f64| product / weight;
        (weight > 0.0).then(|| {
            self.products
                .decode(products)
                .into_iter()
                .map(mean)
                .collect()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sum<W: Word>(parts: &[Vec<W>]) -> Vec<W> {
        let mut total = vec![W::default(); parts[0].len()];
        for part in parts {
            for (a, b) in total.iter_mut().zip(part) {
                *a = a.plus(*b);
            }
        }
        total
    }

    fn check<W: Word>(values: &[f64], bound: f64) {
        let point = Fixed::<W>::for_range(bound, values.len()).unwrap();
        let words: Vec<Vec<W>> = values
            .iter()
            .map(|v| point.encode(&[*v]).unwrap())
            .collect();
        let expected: f64 = values.iter().sum();
        let unit = 2f64.powi(-point.fraction());
        let error = (point.decode(&sum(&words))[0] - expected).abs();
        let tolerance = unit * values.len() as f64 + 1e-12 * bound * values.len() as f64;
        assert!(error <= tolerance, "{error} of {expected}, unit {unit}");
    }

    proptest! {
        #[test]
        fn sums_come_out_and_never_overflow(
            shares in prop::collection::vec(-1.0f64..=1.0, 1..40), magnitude in -30i32..30,
        ) {
            let bound = 2f64.powi(magnitude) * 1.37;
            let values: Vec<f64> = shares.iter().map(|share| share * bound).collect();
            check::<u64>(&values, bound);
            check::<u32>(&values, bound);
            // The extremes, all of one sign: their sum has that sign.
            for exact in [bound, 2f64.powi(magnitude)] {
                check::<u64>(&vec![exact; values.len()], exact);
                check::<u32>(&vec![exact; values.len()], exact);
                check::<u64>(&vec![-exact; 64], exact);
            }
            check::<u32>(&vec![-bound; values.len()], bound);
        }

        #[test]
        fn means_come_out(
            rows in prop::collection::vec((-5.0f64..=5.0, -5.0f64..=5.0, 0.0f64..=1000.0), 1..20),
        ) {
            let mean = WeightedMean::<u64>::new(5.0, 1000.0, rows.len()).unwrap();
            let words: Vec<_> =
                rows.iter().map(|(a, b, w)| mean.encode(&[*a, *b], *w).unwrap()).collect();
            let weight: f64 = rows.iter().map(|row| row.2).sum();
            prop_assume!(weight > 1.0);
            let got = mean.decode(&sum(&words)).unwrap();
            let a: f64 = rows.iter().map(|row| row.0 * row.2).sum::<f64>() / weight;
            let b: f64 = rows.iter().map(|row| row.1 * row.2).sum::<f64>() / weight;
            prop_assert!((got[0] - a).abs() < 1e-9 && (got[1] - b).abs() < 1e-9);
        }
    }

    #[test]
    fn what_does_not_fit_is_refused_or_clipped_on_demand() {
        let point = Fixed::<u32>::for_range(2.0, 100).unwrap();
        assert!(point.encode(&[2.0, -2.0]).is_ok());
        let error = point.encode(&[0.0, 2.1]).unwrap_err();
        assert_eq!(error.to_string(), "value 1 is 2.1; it must be from -2 to 2");
        assert!(point.encode(&[f64::NAN]).is_err());
        assert!(point.encode_clipped(&[f64::NAN]).is_err());
        let (words, clipped) = point.encode_clipped(&[0.5, 7.0, -9.0]).unwrap();
        assert_eq!(
            (words, clipped),
            (point.encode(&[0.5, 2.0, -2.0]).unwrap(), 2)
        );
        assert!(Fixed::<u32>::for_range(0.0, 3).is_err());
        assert!(Fixed::<u32>::for_range(f64::INFINITY, 3).is_err());
        assert!(
            Fixed::<u64>::for_range(1e300, 3)
                .unwrap()
                .encode(&[1e300])
                .is_ok()
        );
        assert!(Fixed::<u32>::with_fraction(31, 3).is_err());
        let mean = WeightedMean::<u64>::new(1.0, 10.0, 3).unwrap();
        assert!(mean.encode(&[1.5], 1.0).is_err());
        assert!(mean.encode(&[1.0], 11.0).is_err());
        assert!(mean.encode(&[1.0], -1.0).is_err());
        assert_eq!(mean.decode(&mean.encode(&[1.0], 0.0).unwrap()), None);
    }
}
