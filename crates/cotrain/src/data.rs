//! The rows of a job: public ones, and a client's own.

use std::fmt;

use sha2::{Digest, Sha256};
use undertone_job::Entries;
use undertone_job::settle::hex;
use undertone_kernel::Wiped;

use crate::learner::Rows;

/// Why rows are refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DataError {
    /// The number of values is no multiple of the row length, or there are no rows.
    #[error("{values} values do not make rows of {dim}")]
    Shape {
        /// The number of values.
        values: usize,
        /// The number of values in a row.
        dim: usize,
    },
    /// A value is not finite.
    #[error("row {row}, column {column}: the value is not finite")]
    NotFinite {
        /// The row, from 0.
        row: usize,
        /// The column, from 0.
        column: usize,
    },
    /// The numbers of rows and of labels differ.
    #[error("{rows} rows have {labels} labels; give a label for each row")]
    Labels {
        /// The number of rows.
        rows: usize,
        /// The number of labels.
        labels: usize,
    },
    /// A label is no class.
    #[error("row {row}: label {label}, but there are {classes} classes, counted from 0")]
    Class {
        /// The row, from 0.
        row: usize,
        /// Its label.
        label: u16,
        /// The number of classes.
        classes: usize,
    },
}

fn check(dim: usize, values: &[f32]) -> Result<(), DataError> {
    if dim == 0 || !values.len().is_multiple_of(dim) {
        return Err(DataError::Shape {
            values: values.len(),
            dim,
        });
    }
    match values.iter().position(|value| !value.is_finite()) {
        Some(at) => Err(DataError::NotFinite {
            row: at / dim,
            column: at % dim,
        }),
        None => Ok(()),
    }
}

/// The public rows, without labels. All clients have the same.
#[derive(Clone)]
pub struct Public {
    dim: usize,
    values: Vec<f32>,
    digest: [u8; 32],
}

impl fmt::Debug for Public {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Public({:?})", self.rows())
    }
}

impl Public {
    /// Rows of `dim` values each.
    ///
    /// # Errors
    /// [`DataError`]: what is wrong, and where.
    pub fn new(dim: usize, values: Vec<f32>) -> Result<Self, DataError> {
        check(dim, &values)?;
        let mut digest = Sha256::new()
            .chain_update(b"undertone/v1/public rows")
            .chain_update((dim as u64).to_le_bytes())
            .chain_update((values.len() as u64).to_le_bytes());
        for value in &values {
            digest.update(value.to_le_bytes());
        }
        Ok(Self {
            dim,
            values,
            digest: digest.finalize().into(),
        })
    }

    /// The rows.
    pub fn rows(&self) -> Rows<'_> {
        Rows {
            dim: self.dim,
            values: &self.values,
        }
    }

    /// The same rows as the feature columns of a file, standardised by their own means and
    /// deviations. Also returns these, for clients' own rows.
    ///
    /// # Errors
    /// [`DataError`]: what is wrong, and where.
    pub fn standardised(dim: usize, values: &[f64]) -> Result<(Self, Scaler), DataError> {
        Self::prepared(true, dim, values)
    }

    /// The rows of a file as a job prepares them, which may
    /// [standardise](crate::Job::standardise) them, and what prepares other rows in the same way.
    ///
    /// # Errors
    /// [`DataError`]: what is wrong, and where.
    pub fn prepared(
        standardise: bool,
        dim: usize,
        values: &[f64],
    ) -> Result<(Self, Scaler), DataError> {
        let scaler = if standardise {
            Scaler::of(dim, values)
        } else {
            Scaler::none(dim)
        };
        Ok((Self::new(dim, scaler.apply(values))?, scaler))
    }

    /// The keys of a job that follow from these rows: `rows`, `features` and `public`.
    pub fn entries(&self) -> Entries {
        let (rows, digest) = (self.rows(), hex::write(&self.digest()));
        Entries::from_iter([
            ("rows".to_owned(), rows.len().into()),
            ("features".to_owned(), rows.dim.into()),
            ("public".to_owned(), digest.into()),
        ])
    }

    /// The digest of the rows, in their order.
    pub fn digest(&self) -> [u8; 32] {
        self.digest
    }
}

/// The mean and the deviation of each feature. All parties compute the same bits.
#[derive(Debug, Clone, PartialEq)]
pub struct Scaler(Vec<(f64, f64)>);

impl Scaler {
    /// Of rows of `dim` values each. A feature that does not vary has deviation 1.
    pub fn of(dim: usize, values: &[f64]) -> Self {
        let count = (values.len() / dim.max(1)).max(1) as f64;
        let of = |feature: usize| {
            let values = || values.iter().skip(feature).step_by(dim);
            let mean = values().sum::<f64>() / count;
            let squares: f64 = values().map(|value| (value - mean) * (value - mean)).sum();
            let deviation = (squares / count).sqrt();
            (mean, if deviation > 0.0 { deviation } else { 1.0 })
        };
        Self((0..dim).map(of).collect())
    }

    /// One that leaves rows as they are.
    fn none(dim: usize) -> Self {
        Self(vec![(0.0, 1.0); dim])
    }

    /// Rows in units of the deviations, with the means at 0.
    pub fn apply(&self, values: &[f64]) -> Vec<f32> {
        let rows = values.chunks(self.0.len().max(1));
        let row = |row: &[f64]| -> Vec<f32> {
            let pairs = row.iter().zip(&self.0);
            pairs
                .map(|(value, (mean, deviation))| ((value - mean) / deviation) as f32)
                .collect()
        };
        rows.flat_map(row).collect()
    }
}

/// A client's own rows, all with labels. Wiped when dropped.
#[derive(Clone)]
pub struct Data {
    dim: usize,
    values: Wiped<f32>,
    labels: Wiped<u16>,
}

impl fmt::Debug for Data {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Data({:?})", self.rows())
    }
}

impl Data {
    /// Rows of `dim` values each, and the class of each.
    ///
    /// # Errors
    /// [`DataError`]: what is wrong, and where.
    pub fn new(
        dim: usize,
        values: Vec<f32>,
        labels: Vec<u16>,
        classes: usize,
    ) -> Result<Self, DataError> {
        let (values, labels) = (Wiped::from(values), Wiped::from(labels));
        check(dim, &values)?;
        if values.len() / dim != labels.len() {
            return Err(DataError::Labels {
                rows: values.len() / dim,
                labels: labels.len(),
            });
        }
        let wrong = labels
            .iter()
            .position(|label| usize::from(*label) >= classes);
        if let Some(row) = wrong {
            return Err(DataError::Class {
                row,
                label: labels[row],
                classes,
            });
        }
        Ok(Self {
            dim,
            values,
            labels,
        })
    }

    /// The rows.
    pub fn rows(&self) -> Rows<'_> {
        Rows {
            dim: self.dim,
            values: &self.values,
        }
    }

    /// The class of each row.
    pub fn labels(&self) -> &[u16] {
        &self.labels
    }

    /// These rows, then the public rows that have a label.
    pub(crate) fn with(&self, public: &Public, labels: &[Option<u16>]) -> (Wiped<f32>, Wiped<u16>) {
        let labelled = labels.iter().flatten().count();
        let mut values = Wiped::with_capacity(self.values.len() + labelled * self.dim);
        let mut classes = Wiped::with_capacity(self.labels.len() + labelled);
        values.extend_from_slice(&self.values);
        classes.extend_from_slice(&self.labels);
        for (row, label) in labels.iter().enumerate() {
            if let Some(label) = label {
                values.extend_from_slice(public.rows().row(row));
                classes.push(*label);
            }
        }
        (values, classes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_prepares_public_rows_and_own_rows_alike() {
        let values = [1.0, 10.0, 3.0, 10.0];
        let (public, scaler) = Public::prepared(true, 2, &values).unwrap();
        assert_eq!(public.rows().values, [-1.0, 0.0, 1.0, 0.0]);
        assert_eq!(scaler.apply(&[5.0, 11.0]), [3.0, 1.0]);
        let (public, scaler) = Public::prepared(false, 2, &values).unwrap();
        assert_eq!(public.rows().values, [1.0, 10.0, 3.0, 10.0]);
        assert_eq!(scaler.apply(&[5.0, 0.1]), [5.0, 0.1_f32]);
    }
}
