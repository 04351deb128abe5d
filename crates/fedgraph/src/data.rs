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
    /// A value is not finite, or beyond its range.
    #[error("{what}: row {row} has the value {value}; from {least} to {most} are possible")]
    Value {
        /// The array.
        what: &'static str,
        /// The row.
        row: usize,
        /// The value.
        value: f64,
        /// The least possible value.
        least: f64,
        /// The largest possible value.
        most: f64,
    },
    /// Class probabilities do not add up to 1.
    #[error("probabilities: those of row {row} add up to {sum}, not to 1")]
    Sum {
        /// The row.
        row: usize,
        /// What they add up to.
        sum: f64,
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
/// Class probabilities add up to 1 but for so much: they may come from single precision, or text.
const SLACK: f64 = 1e-3;

/// What a client brings: labels that all have, and what its own network says.
#[derive(Clone, PartialEq)]
pub struct Inputs {
    /// The names of its features. Clients that have a name in common are neighbours.
    pub columns: Vec<String>,
    /// The label of each row.
    pub labels: Vec<u16>,
    /// The embedding of each row: rows × width, from −64 to 64.
    pub embeddings: Matrix,
    /// The class probabilities of each row to predict: queries × classes. Each row adds up to 1,
    /// but for a thousandth.
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
            (
                "embeddings",
                &self.embeddings,
                (job.rows, job.width),
                -MOST..=MOST,
            ),
            (
                "probabilities",
                &self.probabilities,
                (job.queries, job.classes),
                0.0..=1.0,
            ),
            (
                "embeddings of rows to predict",
                &self.queries,
                (queries, job.width),
                -MOST..=MOST,
            ),
        ];
        for (what, array, due, range) in arrays {
            let have = (array.rows(), array.columns());
            if have != due {
                return Err(DataError::Shape { what, have, due });
            }
            for (row, values) in array.each_row().enumerate() {
                if let Some(&value) = values.iter().find(|value| !range.contains(value)) {
                    return Err(DataError::Value {
                        what,
                        row,
                        value,
                        least: *range.start(),
                        most: *range.end(),
                    });
                }
            }
        }
        for (row, shares) in self.probabilities.each_row().enumerate() {
            let sum: f64 = shares.iter().sum();
            if (sum - 1.0).abs() > SLACK {
                return Err(DataError::Sum { row, sum });
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

#[cfg(test)]
mod tests {
    use super::*;

    type Change = fn(&mut Inputs);

    fn inputs() -> (Job, Inputs) {
        let job = Job {
            width: 1,
            ..Job::new(3, 2, 2, 2)
        };
        let matrix =
            |rows, columns, values: &[f64]| Matrix::new(rows, columns, values.to_vec()).unwrap();
        let inputs = Inputs {
            columns: vec!["a".into(), "b".into()],
            labels: vec![0, 1],
            embeddings: matrix(2, 1, &[64.0, -64.0]),
            probabilities: matrix(2, 2, &[0.25, 0.75, 1.0, 0.0]),
            queries: matrix(0, 1, &[]),
        };
        (job, inputs)
    }

    #[test]
    fn inputs_that_do_not_fit_say_where() {
        let (job, right) = inputs();
        assert_eq!(right.check(&job), Ok(()));
        let matrix = |values: [f64; 4]| Matrix::new(2, 2, values.to_vec()).unwrap();
        let cases: [(Change, &str); 5] = [
            (
                |own| own.labels[1] = 2,
                "row 1 has label 2; the job has 2 classes",
            ),
            (
                |own| own.columns[1] = "a".into(),
                "two features have the name 'a'",
            ),
            (
                |own| own.columns.clear(),
                "0 features; a client has from 1 to 4096",
            ),
            (
                |own| own.embeddings = Matrix::zeros(2, 2),
                "embeddings: (2, 2), the job has (2, 1) (rows, columns)",
            ),
            (
                |own| own.embeddings = Matrix::new(2, 1, vec![0.0, 65.0]).unwrap(),
                "embeddings: row 1 has the value 65; from -64 to 64 are possible",
            ),
        ];
        for (change, text) in cases {
            let mut inputs = right.clone();
            change(&mut inputs);
            assert_eq!(inputs.check(&job).unwrap_err().to_string(), text);
        }
        for (values, text) in [
            (
                [0.5, 0.5, -0.1, 1.1],
                "row 1 has the value -0.1; from 0 to 1 are possible",
            ),
            ([0.5, 0.5, f64::NAN, 1.0], "row 1 has the value NaN"),
            (
                [0.5, 0.4, 0.5, 0.5],
                "those of row 0 add up to 0.9, not to 1",
            ),
        ] {
            let mut inputs = right.clone();
            inputs.probabilities = matrix(values);
            let why = inputs.check(&job).unwrap_err().to_string();
            assert!(
                why.starts_with("probabilities: ") && why.contains(text),
                "{why}"
            );
        }
    }
}
