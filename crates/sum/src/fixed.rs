//! Fixed point: real numbers as words with exact sums (`docs/spec/sums.md`, *Fixed point*).
//!
//! `x` becomes `round(x·2^f)` modulo 2³² or 2⁶⁴. Ties round away from zero. Values are `f32` or
//! `f64`. NaN and infinities are refused. A value beyond the range is refused, or it is clipped:
//! moved to the nearer end of the range and counted. No sum overflows.
//!
//! | | encodes | decodes to |
//! |---|---|---|
//! | [`Fixed`] | values | their sums |
//! | [`WeightedMean`] | values and one private weight | a [`Mean`]: the mean and the total weight |
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
//! // The parties of a sum compute this under masks.
//! let pairs = first.iter().zip(&second.words);
//! let sum: Vec<u64> = pairs.map(|(a, b)| a.wrapping_add(*b)).collect();
//! let mean = mean.decode(&sum).ok_or("no client has a weight")?;
//! assert_eq!((mean.values, mean.weight), (vec![6.125, 0.5], 400.0));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod resolution;

use std::fmt;
use std::marker::PhantomData;

use undertone_party::Abort;
use zeroize::Zeroizing;

use super::Word;

/// Why numbers cannot be represented.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum FixedError {
    /// A value is NaN or infinite, or beyond the declared range.
    #[error("value {index} is {value}; it must be from -{bound} to {bound}")]
    OutOfRange {
        /// The index of the value.
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
    /// A bound of the range is not a positive finite number.
    #[error("{name} is {value}; it must be above 0 and finite")]
    Unbounded {
        /// What is bounded: `bound` or `max_weight`.
        name: &'static str,
        /// The bound.
        value: f64,
    },
    /// The range does not fit the words.
    #[error("a range of {bound} for {clients} clients does not fit words of {bits} bits")]
    Range {
        /// The largest magnitude.
        bound: f64,
        /// The number of clients in the sum.
        clients: usize,
        /// The bits of a word.
        bits: usize,
    },
}

impl From<FixedError> for Abort {
    fn from(error: FixedError) -> Self {
        Self::Misuse(error.to_string())
    }
}

/// The types of values: `f32` and `f64`.
pub trait Real: Copy + Into<f64> + sealed::Sealed {}

impl Real for f32 {}
impl Real for f64 {}

mod sealed {
    pub trait Sealed {}
    impl Sealed for f32 {}
    impl Sealed for f64 {}
}

/// The words of values, and how many values were clipped.
#[derive(Clone, PartialEq, Eq)]
pub struct Clipped<W = u64> {
    /// The words.
    pub words: Vec<W>,
    /// The number of values that were moved to the nearer end of the range.
    pub clipped: usize,
}

impl<W> fmt::Debug for Clipped<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = self.words.len();
        write!(f, "Clipped({words} words, {} clipped)", self.clipped)
    }
}

/// The treatment of a value beyond the range.
#[derive(Clone, Copy, PartialEq)]
enum Beyond {
    Refused,
    Clipped,
}

impl From<bool> for Beyond {
    fn from(clip: bool) -> Self {
        if clip { Self::Clipped } else { Self::Refused }
    }
}

/// One pass over values. It checks, weights, scales and rounds each value.
struct Pass {
    bound: f64,
    beyond: Beyond,
    weight: f64,
    scale: f64,
}

impl Pass {
    /// Appends the words of `values`. Returns the number of clipped values.
    fn run<T: Real, W: Word>(&self, values: &[T], words: &mut Vec<W>) -> Result<usize, FixedError> {
        let first = words.len();
        let mut clipped = 0;
        for (index, value) in values.iter().enumerate() {
            let mut value: f64 = (*value).into();
            // SUM-32. An infinity is no larger value: it shows that the values are broken.
            if value.is_nan() || value.abs() > self.bound {
                if !value.is_finite() || self.beyond == Beyond::Refused {
                    return Err(FixedError::OutOfRange {
                        index: first + index,
                        value,
                        bound: self.bound,
                    });
                }
                value = self.bound.copysign(value);
                clipped += 1;
            }
            // The first product is rounded to a double. The second one is exact.
            words.push(word(value * self.weight * self.scale));
        }
        Ok(clipped)
    }
}

/// Checks a bound of a range.
fn bounded(name: &'static str, value: f64) -> Result<(), FixedError> {
    if value > 0.0 && value.is_finite() {
        Ok(())
    } else {
        Err(FixedError::Unbounded { name, value })
    }
}

/// The word of a number of units.
fn word<W: Word>(units: f64) -> W {
    W::truncate(units.round() as i64 as u64)
}

/// A fixed point for sums without overflow.
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

    /// The largest magnitude of each of `clients` words in a sum without overflow.
    fn room(clients: usize) -> f64 {
        // One bit is for the sign. Rounding adds at most half a unit, and large doubles lose some.
        let all = 2f64.powi(Self::BITS as i32 - 1) * (1.0 - 2f64.powi(-50));
        all / clients.max(1) as f64 - 1.0
    }

    /// The finest fixed point for values from `-bound` to `bound` of `clients` clients.
    ///
    /// # Errors
    /// [`FixedError::Unbounded`] or [`FixedError::Range`].
    pub fn for_range(bound: f64, clients: usize) -> Result<Self, FixedError> {
        let refused = FixedError::Range {
            bound,
            clients,
            bits: Self::BITS,
        };
        bounded("bound", bound)?;
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

    /// The fixed point with `fraction` fractional bits and the largest range for `clients` clients.
    ///
    /// # Errors
    /// [`FixedError::Range`] when the range would not contain 1.
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

    /// The number of fractional bits. It is negative if a unit is larger than 1.
    pub fn fraction(&self) -> i32 {
        self.fraction
    }

    /// The largest magnitude of a value.
    pub fn bound(&self) -> f64 {
        self.bound
    }

    /// What one step of the last bit is worth.
    pub fn unit(&self) -> f64 {
        2f64.powi(-self.fraction)
    }

    fn scale(&self) -> f64 {
        2f64.powi(self.fraction)
    }

    /// Appends the words of `values` to `words`. Values beyond the bound are clipped, or refused.
    /// Returns how many were clipped.
    ///
    /// # Errors
    /// [`FixedError::OutOfRange`], with an index that counts what `words` held before.
    pub fn append<T: Real>(
        &self,
        values: &[T],
        clip: bool,
        words: &mut Vec<W>,
    ) -> Result<usize, FixedError> {
        let pass = Pass {
            bound: self.bound,
            beyond: Beyond::from(clip),
            weight: 1.0,
            scale: self.scale(),
        };
        pass.run(values, words)
    }

    fn encode_with<T: Real>(&self, values: &[T], clip: bool) -> Result<Clipped<W>, FixedError> {
        let mut words = Zeroizing::new(Vec::with_capacity(values.len()));
        let clipped = self.append(values, clip, &mut words)?;
        let words = std::mem::take(&mut *words);
        Ok(Clipped { words, clipped })
    }

    /// The words of `values`.
    ///
    /// # Errors
    /// [`FixedError::OutOfRange`], which names the first value that is beyond the bound or no
    /// number.
    pub fn encode<T: Real>(&self, values: &[T]) -> Result<Vec<W>, FixedError> {
        let encoded = self.encode_with(values, false)?;
        Ok(encoded.words)
    }

    /// The words of `values`. Values beyond the bound are clipped and counted.
    ///
    /// # Errors
    /// [`FixedError::OutOfRange`], which names the first value that is NaN or infinite.
    pub fn encode_clipped<T: Real>(&self, values: &[T]) -> Result<Clipped<W>, FixedError> {
        self.encode_with(values, true)
    }

    /// The values of a sum of words.
    pub fn decode(&self, sum: &[W]) -> Vec<f64> {
        self.values(sum).collect()
    }

    /// The values of a sum of words, one by one.
    pub fn values(&self, sum: &[W]) -> impl ExactSizeIterator<Item = f64> {
        let scale = self.scale();
        sum.iter().map(move |word| word.to_signed() as f64 / scale)
    }
}

/// A weighted mean and its total weight.
#[derive(Debug, Clone, PartialEq)]
pub struct Mean {
    /// The weighted mean of each value.
    pub values: Vec<f64>,
    /// The total weight.
    pub weight: f64,
}

/// A weighted mean of vectors. Weights stay private: each client adds its values times its weight,
/// and the weight as one more word. Decoding the sum gives the mean and the total weight.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct WeightedMean<W = u64> {
    products: Fixed<W>,
    weights: Fixed<W>,
    bound: f64,
}

impl<W: Word> WeightedMean<W> {
    /// The mean of values from `-bound` to `bound` with weights from 0 to `max_weight`.
    ///
    /// # Errors
    /// [`FixedError::Unbounded`] or [`FixedError::Range`].
    pub fn new(bound: f64, max_weight: f64, clients: usize) -> Result<Self, FixedError> {
        bounded("bound", bound)?;
        bounded("max_weight", max_weight)?;
        bounded("bound times max_weight", bound * max_weight)?;
        Ok(Self {
            products: Fixed::for_range(bound * max_weight, clients)?,
            weights: Fixed::for_range(max_weight, clients)?,
            bound,
        })
    }

    /// What one step of the last bit is worth in a mean of this total weight.
    pub fn unit(&self, weight: f64) -> f64 {
        self.products.unit() / weight
    }

    /// Refuses a weight that is less than one step of the last bit of weights.
    ///
    /// # Errors
    /// A message.
    pub fn check_weight(&self, weight: f64) -> Result<(), String> {
        let unit = self.weights.unit();
        if weight >= unit {
            return Ok(());
        }
        Err(format!(
            "the weight {weight:?} is less than one step of the last bit of weights, {unit:.1e}; a \
             lower max_weight is needed, or larger weights"
        ))
    }

    /// The number of words for `values` values.
    pub fn words(values: usize) -> usize {
        values + 1
    }

    /// The word of a client's weight, which comes after the words of its values.
    ///
    /// # Errors
    /// [`FixedError::Weight`].
    pub fn weight(&self, weight: f64) -> Result<W, FixedError> {
        // SUM-33.
        let most = self.weights.bound;
        if !(0.0..=most).contains(&weight) {
            return Err(FixedError::Weight { weight, most });
        }
        Ok(word(weight * self.weights.scale()))
    }

    /// Appends the words of `values` with `weight` to `words`: each value times the weight. Values
    /// beyond the bound are clipped, or refused. Returns how many were clipped. A client's words
    /// are those of all its values, then the word of its [`weight`](Self::weight).
    ///
    /// # Errors
    /// [`FixedError::Weight`], or [`FixedError::OutOfRange`] with an index that counts what `words`
    /// held before.
    pub fn append<T: Real>(
        &self,
        values: &[T],
        weight: f64,
        clip: bool,
        words: &mut Vec<W>,
    ) -> Result<usize, FixedError> {
        self.weight(weight)?;
        let pass = Pass {
            bound: self.bound,
            beyond: Beyond::from(clip),
            weight,
            scale: self.products.scale(),
        };
        pass.run(values, words)
    }

    fn encode_with<T: Real>(
        &self,
        values: &[T],
        weight: f64,
        clip: bool,
    ) -> Result<Clipped<W>, FixedError> {
        let mut words = Zeroizing::new(Vec::with_capacity(Self::words(values.len())));
        let clipped = self.append(values, weight, clip, &mut words)?;
        words.push(self.weight(weight)?);
        let words = std::mem::take(&mut *words);
        Ok(Clipped { words, clipped })
    }

    /// The words of a client: each value times the weight, then the weight.
    ///
    /// # Errors
    /// [`FixedError::Weight`], or [`FixedError::OutOfRange`], which names the first value that is
    /// beyond the bound or no number.
    pub fn encode<T: Real>(&self, values: &[T], weight: f64) -> Result<Vec<W>, FixedError> {
        let encoded = self.encode_with(values, weight, false)?;
        Ok(encoded.words)
    }

    /// The words of a client. Values beyond the bound are clipped and counted. The weight is never
    /// clipped.
    ///
    /// # Errors
    /// [`FixedError::Weight`], or [`FixedError::OutOfRange`], which names the first value that is
    /// NaN or infinite.
    pub fn encode_clipped<T: Real>(
        &self,
        values: &[T],
        weight: f64,
    ) -> Result<Clipped<W>, FixedError> {
        self.encode_with(values, weight, true)
    }

    /// The mean and the total weight. `None` when the total weight is not above 0.
    pub fn decode(&self, sum: &[W]) -> Option<Mean> {
        let (values, weight) = self.values(sum)?;
        Some(Mean {
            values: values.collect(),
            weight,
        })
    }

    /// The mean, one value after the other, and the total weight. `None` when the total weight is
    /// not above 0.
    pub fn values(&self, sum: &[W]) -> Option<(impl ExactSizeIterator<Item = f64>, f64)> {
        let (last, products) = sum.split_last()?;
        let weight = last.to_signed() as f64 / self.weights.scale();
        if weight <= 0.0 {
            return None;
        }
        let products = self.products.values(products);
        Some((products.map(move |value| value / weight), weight))
    }
}

#[cfg(test)]
mod tests;
