//! Fixed point: real numbers as words that are added up exactly.
//!
//! `x` becomes `round(x·2^f)` modulo 2³² or 2⁶⁴, ties away from zero. Values are `f32` or `f64`. A
//! value beyond the range is refused, or moved to the nearer end of the range and counted. Either
//! way no sum overflows.
//!
//! | | encodes | decodes to |
//! |---|---|---|
//! | [`Fixed`] | values | their sums |
//! | [`WeightedMean`] | values and one weight, which stays private | a [`Mean`]: the mean and the total weight |
//!
//! ```
//! use undertone_sum::fixed::WeightedMean;
//!
//! // Values from -8 to 8, weights from 0 to 1000, two clients.
//! let mean = WeightedMean::<u64>::new(8.0, 1000.0, 2)?;
//! let first = mean.encode(&[0.5f32, -1.0], 100.0)?;
//! let second = mean.encode_clipped(&[9.5, 1.0], 300.0)?; // 9.5 becomes 8
//! assert_eq!(second.clipped, 1);
//!
//! // What the parties of a sum compute under masks.
//! let pairs = first.iter().zip(&second.words);
//! let sum: Vec<u64> = pairs.map(|(a, b)| a.wrapping_add(*b)).collect();
//! let mean = mean.decode(&sum).ok_or("no client has a weight")?;
//! assert_eq!((mean.values, mean.weight), (vec![6.125, 0.5], 400.0));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

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
    /// A weight is negative, NaN, or beyond the declared range.
    #[error("the weight is {weight}; it must be from 0 to {most}")]
    Weight {
        /// The weight.
        weight: f64,
        /// The largest weight.
        most: f64,
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

/// What can be encoded: `f32` and `f64`.
pub trait Real: Copy + Into<f64> + sealed::Sealed {}

impl Real for f32 {}
impl Real for f64 {}

mod sealed {
    pub trait Sealed {}
    impl Sealed for f32 {}
    impl Sealed for f64 {}
}

/// The words of values, some of which were beyond the range.
#[derive(Clone, PartialEq, Eq)]
pub struct Clipped<W = u64> {
    /// The words.
    pub words: Vec<W>,
    /// How many values were moved to the nearer end of the range.
    pub clipped: usize,
}

impl<W> fmt::Debug for Clipped<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = self.words.len();
        write!(f, "Clipped({words} words, {} clipped)", self.clipped)
    }
}

/// What happens to a value beyond the range.
#[derive(Clone, Copy, PartialEq)]
enum Beyond {
    Refused,
    Clipped,
}

/// One pass over values: each is checked, multiplied by the weight, scaled and rounded.
struct Pass {
    bound: f64,
    beyond: Beyond,
    weight: f64,
    scale: f64,
}

impl Pass {
    /// Appends the words of `values`. Returns how many values were clipped.
    fn run<T: Real, W: Word>(&self, values: &[T], words: &mut Vec<W>) -> Result<usize, FixedError> {
        let mut clipped = 0;
        for (index, value) in values.iter().enumerate() {
            let mut value: f64 = (*value).into();
            if value.is_nan() || value.abs() > self.bound {
                if value.is_nan() || self.beyond == Beyond::Refused {
                    return Err(FixedError::OutOfRange {
                        index,
                        value,
                        bound: self.bound,
                    });
                }
                value = self.bound.copysign(value);
                clipped += 1;
            }
            // Two products: the first is rounded to a double, the second is exact.
            words.push(word(value * self.weight * self.scale));
        }
        Ok(clipped)
    }
}

/// The word of a number of units.
fn word<W: Word>(units: f64) -> W {
    W::truncate(units.round() as i64 as u64)
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

    fn encode_with<T: Real>(&self, values: &[T], beyond: Beyond) -> Result<Clipped<W>, FixedError> {
        let mut words = Vec::with_capacity(values.len());
        let pass = Pass {
            bound: self.bound,
            beyond,
            weight: 1.0,
            scale: self.scale(),
        };
        let clipped = pass.run(values, &mut words)?;
        Ok(Clipped { words, clipped })
    }

    /// The words of `values`.
    ///
    /// # Errors
    /// [`FixedError::OutOfRange`], which names the first that is beyond the bound, or NaN.
    pub fn encode<T: Real>(&self, values: &[T]) -> Result<Vec<W>, FixedError> {
        let encoded = self.encode_with(values, Beyond::Refused)?;
        Ok(encoded.words)
    }

    /// The words of `values`. Values beyond the bound are moved to it and counted, infinities too.
    ///
    /// # Errors
    /// [`FixedError::OutOfRange`], which names the first that is NaN.
    pub fn encode_clipped<T: Real>(&self, values: &[T]) -> Result<Clipped<W>, FixedError> {
        self.encode_with(values, Beyond::Clipped)
    }

    /// The numbers of a sum of words.
    pub fn decode(&self, sum: &[W]) -> Vec<f64> {
        let scale = self.scale();
        let value = |word: &W| word.to_signed() as f64 / scale;
        sum.iter().map(value).collect()
    }
}

/// A mean, and the weight behind it.
#[derive(Debug, Clone, PartialEq)]
pub struct Mean {
    /// The weighted mean of each value.
    pub values: Vec<f64>,
    /// The sum of the weights.
    pub weight: f64,
}

/// A mean of vectors. Weights stay private: each client adds its values times its weight, and the
/// weight as one more word. Whoever decodes the sums learns the mean and the total weight.
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

    fn encode_with<T: Real>(
        &self,
        values: &[T],
        weight: f64,
        beyond: Beyond,
    ) -> Result<Clipped<W>, FixedError> {
        let most = self.weights.bound;
        if !(0.0..=most).contains(&weight) {
            return Err(FixedError::Weight { weight, most });
        }
        let mut words = Vec::with_capacity(Self::words(values.len()));
        let pass = Pass {
            bound: self.bound,
            beyond,
            weight,
            scale: self.products.scale(),
        };
        let clipped = pass.run(values, &mut words)?;
        words.push(word(weight * self.weights.scale()));
        Ok(Clipped { words, clipped })
    }

    /// What a client adds: each value times the weight, then the weight.
    ///
    /// # Errors
    /// [`FixedError::Weight`], or [`FixedError::OutOfRange`], which names the first value that is
    /// beyond the bound, or NaN.
    pub fn encode<T: Real>(&self, values: &[T], weight: f64) -> Result<Vec<W>, FixedError> {
        let encoded = self.encode_with(values, weight, Beyond::Refused)?;
        Ok(encoded.words)
    }

    /// What a client adds. Values beyond the bound are moved to it and counted, infinities too. The
    /// weight is never clipped.
    ///
    /// # Errors
    /// [`FixedError::Weight`], or [`FixedError::OutOfRange`], which names the first value that is
    /// NaN.
    pub fn encode_clipped<T: Real>(
        &self,
        values: &[T],
        weight: f64,
    ) -> Result<Clipped<W>, FixedError> {
        self.encode_with(values, weight, Beyond::Clipped)
    }

    /// The mean and the total weight; `None` when no weight was added up.
    pub fn decode(&self, sum: &[W]) -> Option<Mean> {
        let (last, products) = sum.split_last()?;
        let weight = last.to_signed() as f64 / self.weights.scale();
        if weight <= 0.0 {
            return None;
        }
        let scale = self.products.scale();
        let value = |word: &W| word.to_signed() as f64 / scale / weight;
        Some(Mean {
            values: products.iter().map(value).collect(),
            weight,
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

    /// Values within, at and beyond a bound of 5: ties, NaN and infinities, too.
    fn double() -> impl Strategy<Value = f64> {
        prop_oneof![
            8 => -6.0f64..=6.0,
            2 => (-96i32..=96).prop_map(|sixteenths| f64::from(sixteenths) / 16.0),
            1 => prop::num::f64::ANY,
            1 => prop::sample::select(vec![5.0, -5.0, 0.0, -0.0, f64::NAN, f64::NEG_INFINITY]),
        ]
    }

    /// round(x·2^f), ties away from zero, in integers.
    fn units(x: f64, fraction: i32) -> i128 {
        let exponent = (x.to_bits() >> 52 & 0x7ff) as i32;
        let mantissa = i128::from(x.to_bits() & ((1 << 52) - 1));
        let (mantissa, power) = match exponent {
            0 => (mantissa, -1074),
            _ => (mantissa | 1 << 52, exponent - 1075),
        };
        let magnitude = match power + fraction {
            up @ 0.. => mantissa << up,
            down @ -100..0 => (mantissa + (1 << (-down - 1))) >> -down,
            _ => 0,
        };
        if x.is_sign_negative() {
            -magnitude
        } else {
            magnitude
        }
    }

    fn naive<W: Word>(x: f64, fraction: i32) -> W {
        W::truncate(units(x, fraction) as u64)
    }

    fn holds_to_the_definition<T: Real, W: Word>(values: &[T], weight: f64, clients: usize) {
        const BOUND: f64 = 5.0;
        let point = Fixed::<W>::for_range(BOUND, clients).unwrap();
        let mean = WeightedMean::<W>::new(BOUND, 300.0, clients).unwrap();
        let (products, weights) = (mean.products.fraction(), mean.weights.fraction());
        let doubles: Vec<f64> = values.iter().map(|value| (*value).into()).collect();
        let product = |value: &f64| naive::<W>(value * weight, products);

        // What is refused, and which value is named.
        let first = doubles.iter().position(|v| v.is_nan() || v.abs() > BOUND);
        let named = |result: Result<Vec<W>, FixedError>| match result {
            Ok(_) => None,
            Err(FixedError::OutOfRange { index, .. }) => Some(index),
            Err(other) => panic!("{other}"),
        };
        assert_eq!(named(point.encode(values)), first);
        assert_eq!(named(mean.encode(values, weight)), first);

        // The words of all others.
        let inside: Vec<T> = values
            .iter()
            .copied()
            .filter(|value| (*value).into().abs() <= BOUND)
            .collect();
        let doubles_inside = inside.iter().map(|value| (*value).into());
        let words: Vec<W> = doubles_inside
            .clone()
            .map(|value| naive(value, point.fraction()))
            .collect();
        assert_eq!(point.encode(&inside).unwrap(), words);
        let mut words: Vec<W> = doubles_inside.map(|value| product(&value)).collect();
        words.push(naive(weight, weights));
        assert_eq!(mean.encode(&inside, weight).unwrap(), words);

        // What is clipped.
        let first = doubles.iter().position(|v| v.is_nan());
        let words_of = |encoded: Result<Clipped<W>, FixedError>| encoded.map(|it| it.words);
        assert_eq!(named(words_of(point.encode_clipped(values))), first);
        let encoded = words_of(mean.encode_clipped(values, weight));
        assert_eq!(named(encoded), first);
        if first.is_none() {
            let clipped = doubles.iter().filter(|v| v.abs() > BOUND).count();
            let within: Vec<f64> = doubles.iter().map(|v| v.clamp(-BOUND, BOUND)).collect();
            let words = within.iter().map(|v| naive(*v, point.fraction())).collect();
            let expected = Clipped { words, clipped };
            assert_eq!(point.encode_clipped(values).unwrap(), expected);
            let mut words: Vec<W> = within.iter().map(product).collect();
            words.push(naive(weight, weights));
            let expected = Clipped { words, clipped };
            assert_eq!(mean.encode_clipped(values, weight).unwrap(), expected);
        }
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
            prop_assert!((got.values[0] - a).abs() < 1e-9 && (got.values[1] - b).abs() < 1e-9);
            prop_assert!((got.weight - weight).abs() < 1e-9);
        }

        #[test]
        fn doubles_become_the_words_of_the_definition(
            values in prop::collection::vec(double(), 0..40), weight in 0.0f64..=300.0,
            clients in 1usize..50,
        ) {
            holds_to_the_definition::<f64, u64>(&values, weight, clients);
            holds_to_the_definition::<f64, u32>(&values, weight, clients);
        }

        #[test]
        fn floats_become_the_words_of_the_definition(
            values in prop::collection::vec(double(), 0..40), weight in 0.0f64..=300.0,
            clients in 1usize..50,
        ) {
            let values: Vec<f32> = values.iter().map(|value| *value as f32).collect();
            holds_to_the_definition::<f32, u64>(&values, weight, clients);
            holds_to_the_definition::<f32, u32>(&values, weight, clients);
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
        let expected = Clipped {
            words: point.encode(&[0.5, 2.0, -2.0]).unwrap(),
            clipped: 2,
        };
        assert_eq!(point.encode_clipped(&[0.5, 7.0, -9.0]).unwrap(), expected);
        let infinite = [0.5, f32::INFINITY, f32::NEG_INFINITY];
        assert_eq!(point.encode_clipped(&infinite).unwrap(), expected);
        assert!(Fixed::<u32>::for_range(0.0, 3).is_err());
        assert!(Fixed::<u32>::for_range(f64::INFINITY, 3).is_err());
        assert!(
            Fixed::<u64>::for_range(1e300, 3)
                .unwrap()
                .encode(&[1e300])
                .is_ok()
        );
        assert!(Fixed::<u32>::with_fraction(31, 3).is_err());
    }

    #[test]
    fn ties_are_rounded_away_from_zero() {
        let point = Fixed::<u64>::with_fraction(1, 3).unwrap();
        let values = [0.25f32, -0.25, 0.75, -0.75, 0.2, -0.2];
        let units = [1, -1, 2, -2, 0, 0].map(|units: i64| units as u64);
        assert_eq!(point.encode(&values).unwrap(), units);
    }

    #[test]
    fn a_weight_is_refused_and_never_clipped() {
        let mean = WeightedMean::<u64>::new(1.0, 10.0, 3).unwrap();
        for weight in [11.0, -1.0, f64::NAN, f64::INFINITY] {
            let refused = |error: FixedError| matches!(error, FixedError::Weight { .. });
            assert!(refused(mean.encode(&[1.0], weight).unwrap_err()));
            assert!(refused(mean.encode_clipped(&[1.0], weight).unwrap_err()));
        }
        let error = mean.encode(&[1.0], -1.0).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the weight is -1; it must be from 0 to 10"
        );
        assert!(mean.encode(&[1.5], 1.0).is_err());
        assert_eq!(mean.encode_clipped(&[1.5], 1.0).unwrap().clipped, 1);
    }

    #[test]
    fn a_mean_comes_with_its_weight() {
        let mean = WeightedMean::<u32>::new(1.0, 10.0, 2).unwrap();
        let nothing = mean.encode(&[1.0], 0.0).unwrap();
        assert_eq!(mean.decode(&nothing), None);
        assert_eq!(mean.decode(&[]), None);
        let parts = [mean.encode(&[1.0f32], 2.0), mean.encode(&[0.0f32], 6.0)];
        let total = sum(&parts.map(Result::unwrap));
        let expected = Mean {
            values: vec![0.25],
            weight: 8.0,
        };
        assert_eq!(mean.decode(&total), Some(expected));
    }
}
