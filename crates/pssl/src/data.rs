//! A client's rows and labels.

use std::fmt;

use undertone_kernel::Wiped;

use crate::job::{Job, MAX_ROWS};

/// Why rows and labels do not fit each other, or a job.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum DataError {
    /// The values are not whole rows.
    #[error("{values} values are not {labels} rows of {features} features")]
    Shape {
        /// The number of values.
        values: usize,
        /// The number of labels, one for each row.
        labels: usize,
        /// The number of features.
        features: usize,
    },
    /// There are too many rows, or none.
    #[error("{0} rows; a client has from 1 to {MAX_ROWS}")]
    Rows(usize),
    /// The rows have another number of features than the job.
    #[error("rows of {have} features, the job has {due}")]
    Features {
        /// The features of the rows.
        have: usize,
        /// Those of the job.
        due: usize,
    },
    /// A value is greater than the job's scale.
    #[error("row {row} has a value of {value}; the job's scale is {scale}")]
    Value {
        /// The row.
        row: usize,
        /// Its greatest value.
        value: u8,
        /// The scale.
        scale: u8,
    },
    /// A label is no class of the job.
    #[error("row {row} has label {label}; the job has {classes} classes")]
    Label {
        /// The row.
        row: usize,
        /// Its label.
        label: u16,
        /// The number of classes.
        classes: usize,
    },
    /// A value is below 0, or not finite, so that it cannot be quantised.
    #[error("value {index} is {value}; values to quantise are 0 or more")]
    Quantise {
        /// The index of the value.
        index: usize,
        /// The value.
        value: f64,
    },
}

/// The rows of a client, quantised, and the labels of some of them.
#[derive(Clone)]
pub struct Data {
    features: usize,
    values: Wiped<u8>,
    labels: Vec<Option<u16>>,
}

impl Data {
    /// Rows of `features` values, one after the other, and a label or none for each row.
    ///
    /// # Errors
    /// [`DataError::Shape`] or [`DataError::Rows`].
    pub fn new(
        features: usize,
        values: Vec<u8>,
        labels: Vec<Option<u16>>,
    ) -> Result<Self, DataError> {
        if labels.is_empty() || labels.len() > MAX_ROWS {
            return Err(DataError::Rows(labels.len()));
        }
        if labels.len().checked_mul(features) != Some(values.len()) || features == 0 {
            return Err(DataError::Shape {
                values: values.len(),
                labels: labels.len(),
                features,
            });
        }
        Ok(Self {
            features,
            values: values.into(),
            labels,
        })
    }

    /// The number of rows.
    pub fn len(&self) -> usize {
        self.labels.len()
    }

    /// Whether there are none. There always are.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty()
    }

    /// The number of features.
    pub fn features(&self) -> usize {
        self.features
    }

    /// Row `row`.
    ///
    /// # Panics
    /// When there is no such row.
    pub fn row(&self, row: usize) -> &[u8] {
        &self.values[row * self.features..(row + 1) * self.features]
    }

    /// The labels.
    pub fn labels(&self) -> &[Option<u16>] {
        &self.labels
    }

    /// Checks that the rows fit a job.
    ///
    /// # Errors
    /// [`DataError::Features`], [`DataError::Value`] or [`DataError::Label`].
    pub fn check(&self, job: &Job) -> Result<(), DataError> {
        if self.features != job.features {
            return Err(DataError::Features {
                have: self.features,
                due: job.features,
            });
        }
        for row in 0..self.len() {
            let value = self.row(row).iter().copied().max().unwrap_or(0);
            if value > job.scale {
                return Err(DataError::Value {
                    row,
                    value,
                    scale: job.scale,
                });
            }
            if let Some(label) = self.labels[row]
                && usize::from(label) >= job.classes
            {
                return Err(DataError::Label {
                    row,
                    label,
                    classes: job.classes,
                });
            }
        }
        Ok(())
    }

    /// The squared distance of two rows.
    pub(crate) fn square(&self, a: usize, b: usize) -> u64 {
        square(self.row(a), self.row(b))
    }
}

impl fmt::Debug for Data {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Data({} x {}, ..)", self.len(), self.features)
    }
}

/// Quantises values from 0 to `range` to numbers from 0 to `scale`. Greater values become `scale`.
///
/// # Errors
/// [`DataError::Quantise`].
pub fn quantise(values: &[f64], range: f64, scale: u8) -> Result<Vec<u8>, DataError> {
    let one = |(index, value): (usize, &f64)| {
        if !value.is_finite() || *value < 0.0 {
            return Err(DataError::Quantise {
                index,
                value: *value,
            });
        }
        let steps = *value / range * f64::from(scale);
        Ok(libm::round(steps).min(f64::from(scale)) as u8)
    };
    values.iter().enumerate().map(one).collect()
}

/// The squared distance of two rows.
pub(crate) fn square(a: &[u8], b: &[u8]) -> u64 {
    let pairs = a.iter().zip(b);
    let squares = pairs.map(|(a, b)| u32::from(a.abs_diff(*b)).pow(2));
    u64::from(squares.sum::<u32>())
}
