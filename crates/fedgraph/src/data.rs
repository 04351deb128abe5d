//! What a client brings.

use std::fmt;

use crate::job::Job;
use crate::matrix::Matrix;

/// Most features of a client.
pub const MAX_COLUMNS: usize = 4096;

/// Why a client's inputs do not fit a job.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum DataError {
    /// An array has another shape than the job asks for.
    #[error("{what}: {have:?}, the job has {due:?} (rows, columns)")]
    Shape {
        /// The array.
        what: &'static str,
        /// Its rows and columns.
        have: (usize, usize),
        /// Those of the job.
        due: (usize, usize),
    },
    /// A value is not finite, or beyond the range of the sums.
    #[error("{what}: row {row} has the value {value}; from -{most} to {most} are possible")]
    Value {
        /// The array.
        what: &'static str,
        /// The row.
        row: usize,
        /// The value.
        value: f64,
        /// The largest magnitude.
        most: f64,
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
    /// The features have no names, too many, or the same name twice.
    #[error("{0}")]
    Columns(String),
}

/// Largest magnitude of a value of an embedding.
pub(crate) const MOST: f64 = 64.0;

/// What a client brings: labels that all have, and what its own network says.
#[derive(Clone, PartialEq)]
pub struct Inputs {
    /// The names of its features. Clients that have a name in common are neighbours.
    pub columns: Vec<String>,
    /// The label of each row.
    pub labels: Vec<u16>,
    /// The embedding of each row: rows × width, from −64 to 64.
    pub embeddings: Matrix,
    /// The class probabilities of each row to predict: queries × classes.
    pub probabilities: Matrix,
    /// The embedding of each row to predict: queries × width. Only the graph network uses it.
    pub queries: Matrix,
}

impl fmt::Debug for Inputs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (rows, columns) = (self.labels.len(), self.columns.len());
        write!(f, "Inputs({rows} rows, {columns} features, ..)")
    }
}

impl Inputs {
    /// Checks that the inputs fit a job.
    ///
    /// # Errors
    /// A [`DataError`] that says what does not fit.
    pub fn check(&self, job: &Job) -> Result<(), DataError> {
        let queries = match job.predict {
            crate::Predict::Graph => job.queries,
            crate::Predict::Vote => self.queries.rows(),
        };
        let arrays = [
            ("embeddings", &self.embeddings, (job.rows, job.width), MOST),
            (
                "probabilities",
                &self.probabilities,
                (job.queries, job.classes),
                1.0,
            ),
            (
                "embeddings of rows to predict",
                &self.queries,
                (queries, job.width),
                MOST,
            ),
        ];
        for (what, array, due, most) in arrays {
            let have = (array.rows(), array.columns());
            if have != due {
                return Err(DataError::Shape { what, have, due });
            }
            for (row, values) in array.each_row().enumerate() {
                let bad = values
                    .iter()
                    .find(|value| value.is_nan() || value.abs() > most);
                if let Some(&value) = bad {
                    return Err(DataError::Value {
                        what,
                        row,
                        value,
                        most,
                    });
                }
            }
        }
        if self.labels.len() != job.rows {
            return Err(DataError::Shape {
                what: "labels",
                have: (self.labels.len(), 1),
                due: (job.rows, 1),
            });
        }
        let mut labels = self.labels.iter().enumerate();
        if let Some((row, &label)) = labels.find(|(_, label)| usize::from(**label) >= job.classes) {
            return Err(DataError::Label {
                row,
                label,
                classes: job.classes,
            });
        }
        let mut names: Vec<&String> = self.columns.iter().collect();
        names.sort_unstable();
        if names.is_empty() || names.len() > MAX_COLUMNS {
            return Err(DataError::Columns(format!(
                "{} features; a client has from 1 to {MAX_COLUMNS}",
                names.len()
            )));
        }
        match names.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => Err(DataError::Columns(format!(
                "two features have the name '{}'",
                pair[0]
            ))),
            None => Ok(()),
        }
    }
}
