//! What a client brings: feature rows, and labels for some of them. Constructors check all values.

use std::collections::HashSet;
use std::sync::Arc;

use sha2::{Digest, Sha256};
use undertone_job::harm_of;
use undertone_kernel::Wiped;
use undertone_party::{Abort, Writer};

/// Largest number of rows of all clients together.
pub const MAX_ROWS: usize = 1 << 24;

/// Largest number of classes.
pub const MAX_CLASSES: usize = 1 << 16;

/// Longest name of a class in bytes.
pub const MAX_NAME: usize = 255;

/// The reason why input is refused. Rows and columns count from 0.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum InputError {
    /// A value is NaN or infinite.
    #[error("features: row {row}, column {column} is {value}; every value must be finite")]
    NotFinite {
        /// Row.
        row: usize,
        /// Column.
        column: usize,
        /// The value.
        value: f64,
    },
    /// A row is all zeros, and so has no direction.
    #[error("features: row {row} is all zeros and has no direction; leave it out")]
    ZeroRow {
        /// Row.
        row: usize,
    },
    /// A row is so long that its projection overflows.
    #[error("features: row {row} is too large; scale the features below 1e150")]
    TooLarge {
        /// Row.
        row: usize,
    },
    /// A value is too large for means and deviations.
    #[error(
        "features: row {row}, column {column} is {value:e}; to be standardised, values must be \
         below 9.2e18: give the column in a larger unit"
    )]
    TooLargeToScale {
        /// Row.
        row: usize,
        /// Column.
        column: usize,
        /// The value.
        value: f64,
    },
    /// A column varies by less than means and deviations can tell.
    #[error(
        "features: column {column} varies by less than 1e-13; to be standardised, give it in a \
         smaller unit, or leave it out"
    )]
    TooSmallToScale {
        /// Column.
        column: usize,
    },
    /// Every value of a row is its column's mean.
    #[error("features: row {row} equals the mean of all rows and has no direction; leave it out")]
    NothingLeft {
        /// Row.
        row: usize,
    },
    /// Two numbers that must be equal differ.
    #[error("{what}: {have} instead of {due}")]
    Shape {
        /// What the numbers count.
        what: &'static str,
        /// How many there are.
        have: usize,
        /// How many are due.
        due: usize,
    },
    /// A label is not a class.
    #[error("labels: row {row} has label {label}; classes are 0 to {}", classes - 1)]
    Label {
        /// Row.
        row: usize,
        /// Its label.
        label: usize,
        /// The number of classes.
        classes: usize,
    },
    /// There are too few classes to tell apart, or too many to represent.
    #[error("labels: {0} classes; from 2 to 65536 are possible")]
    Classes(usize),
    /// The name of a class is missing, too long or not its own.
    #[error("class names: {what}")]
    ClassName {
        /// What is wrong.
        what: String,
    },
    /// A parameter is out of range.
    #[error("{name} is {value}; it must be {range}")]
    Parameter {
        /// Its name.
        name: &'static str,
        /// Its value.
        value: String,
        /// What it may be.
        range: &'static str,
    },
}

impl From<InputError> for Abort {
    fn from(error: InputError) -> Self {
        Self::Misuse(error.to_string())
    }
}

/// Feature rows. All values are finite. Clones share them; they are wiped when the last one is
/// dropped.
#[derive(Clone, PartialEq)]
pub struct Features {
    dim: usize,
    values: Arc<Wiped<f64>>,
}

impl std::fmt::Debug for Features {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Features({} x {}, ..)", self.rows(), self.dim)
    }
}

impl Features {
    /// Rows of `dim` values each, none of which is all zeros: each has a direction.
    ///
    /// # Errors
    /// An [`InputError`] that names the first offending row and column.
    pub fn new(dim: usize, values: Vec<f64>) -> Result<Self, InputError> {
        let table = Self::table(dim, values)?;
        table.check_directions()?;
        Ok(table)
    }

    /// Rows of `dim` values each. They may be all zeros, and [`client`](crate::client) refuses
    /// those that are.
    ///
    /// # Errors
    /// An [`InputError`] that names the first offending row and column.
    pub fn table(dim: usize, values: Vec<f64>) -> Result<Self, InputError> {
        let values = Wiped::from(values);
        if dim == 0 || !values.len().is_multiple_of(dim) {
            return Err(InputError::Shape {
                what: "features: values in the last row",
                have: values.len().checked_rem(dim).unwrap_or(0),
                due: dim,
            });
        }
        for (row, values) in values.chunks_exact(dim).enumerate() {
            // CODE-1
            if let Some(column) = values.iter().position(|v| !v.is_finite()) {
                return Err(InputError::NotFinite {
                    row,
                    column,
                    value: values[column],
                });
            }
            // CODE-3
            if values.iter().any(|v| v.abs() > 1e150) {
                return Err(InputError::TooLarge { row });
            }
        }
        Ok(Self {
            dim,
            values: Arc::new(values),
        })
    }

    /// CODE-2.
    pub(crate) fn check_directions(&self) -> Result<(), InputError> {
        let mut rows = self.values.chunks_exact(self.dim);
        match rows.position(|row| row.iter().all(|value| *value == 0.0)) {
            Some(row) => Err(InputError::ZeroRow { row }),
            None => Ok(()),
        }
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.values.len() / self.dim
    }

    /// Number of values in a row.
    pub fn dim(&self) -> usize {
        self.dim
    }

    /// All values, row after row.
    pub fn values(&self) -> &[f64] {
        &self.values
    }

    /// Whether these are clones of one value.
    pub(crate) fn is_shared_with(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.values, &other.values)
    }

    /// The rows named by `rows`, in that order.
    ///
    /// # Panics
    /// When one of them does not exist.
    #[must_use]
    pub fn select(&self, rows: &[usize]) -> Self {
        let row = |row: &usize| &self.values[row * self.dim..(row + 1) * self.dim];
        let mut values = Wiped::with_capacity(rows.len() * self.dim);
        rows.iter()
            .map(row)
            .for_each(|row| values.extend_from_slice(row));
        Self {
            dim: self.dim,
            values: Arc::new(values),
        }
    }
}

/// Refuses names of classes of which one is empty, too long or given twice.
///
/// # Errors
/// [`InputError::ClassName`].
pub fn check_names(names: &[String]) -> Result<(), InputError> {
    let refuse = |what: String| Err(InputError::ClassName { what });
    let mut seen = HashSet::with_capacity(names.len());
    for (class, name) in names.iter().enumerate() {
        if name.is_empty() {
            return refuse(format!("class {class} has an empty name"));
        }
        if name.len() > MAX_NAME {
            return refuse(format!(
                "the name of class {class} has {} bytes; names have at most {MAX_NAME}",
                name.len()
            ));
        }
        if !seen.insert(name) {
            return refuse(format!("two classes are named {name:?}"));
        }
    }
    Ok(())
}

/// Refuses names that a peer gave and that would do harm in a file or on a screen: names with
/// characters that control a terminal or the direction of writing or are not seen, and names that a
/// spreadsheet takes for a formula.
///
/// # Errors
/// [`InputError::ClassName`].
pub fn check_foreign_names(names: &[String]) -> Result<(), InputError> {
    check_names(names)?;
    for (class, name) in names.iter().enumerate() {
        let Some(what) = harm_of(name) else {
            continue;
        };
        return Err(InputError::ClassName {
            what: format!("the name of class {class} {what}; give the class another name"),
        });
    }
    Ok(())
}

/// The digest by which parties compare names of classes. It is zeros where classes are numbers.
pub fn names_digest(names: &[String]) -> [u8; 16] {
    let mut digest = [0; 16];
    if !names.is_empty() {
        let mut w = Writer::default();
        w.raw(b"undertone/v1/class names");
        for name in names {
            w.u8(name.len() as u8);
            w.raw(name.as_bytes());
        }
        digest.copy_from_slice(&Sha256::digest(w.finish())[..16]);
    }
    digest
}

/// Labels for some of a client's rows. Wiped when dropped.
#[derive(Clone, PartialEq, Eq)]
pub struct Labelling {
    classes: usize,
    /// The name of each class; none where classes are numbers.
    names: Vec<String>,
    labels: Wiped<Option<u16>>,
}

impl std::fmt::Debug for Labelling {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "Labelling({} rows, {} classes, ..)",
            self.rows(),
            self.classes
        )
    }
}

impl Labelling {
    /// A label, or none, for each row; classes are `0..classes`.
    ///
    /// # Errors
    /// [`InputError::Classes`] or [`InputError::Label`].
    pub fn new(classes: usize, labels: Vec<Option<u16>>) -> Result<Self, InputError> {
        let labels = Wiped::from(labels);
        if !(2..=MAX_CLASSES).contains(&classes) {
            return Err(InputError::Classes(classes));
        }
        for (row, label) in labels.iter().enumerate() {
            if let Some(label) = label.map(usize::from).filter(|label| *label >= classes) {
                return Err(InputError::Label {
                    row,
                    label,
                    classes,
                });
            }
        }
        Ok(Self {
            classes,
            names: Vec::new(),
            labels,
        })
    }

    /// The same, with a name for each class. All clients of a run need the same names in the same
    /// order.
    ///
    /// # Errors
    /// [`InputError::Shape`] unless there is one name for each class.
    /// [`InputError::ClassName`] when a name is empty, given twice or longer than [`MAX_NAME`]
    /// bytes.
    pub fn with_names(self, names: Vec<String>) -> Result<Self, InputError> {
        if names.len() != self.classes {
            return Err(InputError::Shape {
                what: "class names",
                have: names.len(),
                due: self.classes,
            });
        }
        check_names(&names)?;
        Ok(Self { names, ..self })
    }

    /// Other labels for the same rows and classes.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn with_labels(&self, labels: Vec<Option<u16>>) -> Result<Self, InputError> {
        Ok(Self {
            names: self.names.clone(),
            ..Self::new(self.classes, labels)?
        })
    }

    /// The name of each class; none where classes are numbers.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Number of classes.
    pub fn classes(&self) -> usize {
        self.classes
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.labels.len()
    }

    /// For each row its label, if it has one.
    pub fn labels(&self) -> &[Option<u16>] {
        &self.labels
    }

    /// The numbers of the labelled rows.
    pub fn labelled(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.rows()).filter(|row| self.labels[*row].is_some())
    }

    /// The numbers of the unlabelled rows.
    pub fn unlabelled(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.rows()).filter(|row| self.labels[*row].is_none())
    }

    /// The number of labelled rows of each class.
    pub fn counts(&self) -> Vec<u32> {
        let mut counts = vec![0; self.classes];
        for label in self.labels.iter().flatten() {
            counts[usize::from(*label)] += 1;
        }
        counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CODE-1, CODE-2, CODE-3.
    #[test]
    fn features_that_cannot_be_hashed_are_refused() {
        let refused = |last: [f64; 2]| {
            let values = [1.0, 2.0].into_iter().chain(last).collect();
            Features::new(2, values).unwrap_err().to_string()
        };
        for value in [f64::NAN, f64::INFINITY] {
            assert!(refused([0.0, value]).contains("row 1, column 1"));
        }
        assert!(refused([0.0, -0.0]).contains("row 1 is all zeros"));
        assert!(refused([0.0, -2e150]).contains("row 1 is too large"));
        assert!(Features::new(2, vec![0.0, -1e150]).is_ok());
    }
}
