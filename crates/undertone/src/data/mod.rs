//! Data sets from files.
//!
//! An `.npz` archive holds `features` (float32 or float64 `[n, d]`) or `codes` (uint8
//! `[n, ⌈L/8⌉]`, `numpy.packbits` order) with `bits` (an integer, `L`); `labels` (integers `[n]`, −1
//! for unlabelled rows); optionally `classes` (an integer). Any other file is read as CSV, with
//! commas: the column `label`, or else the last, holds labels (−1 or empty for none), the others
//! features. A first line in which no field is a number holds names.

mod npz;
mod text;

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek};
use std::path::Path;

use undertone_xclp::{Features, InputError, Labelling, Rows};

use crate::arrays::{Arrays, ArraysError};

/// What kind of rows a file is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Features.
    Features,
    /// Codes.
    Codes,
}

/// What a file holds.
#[derive(Clone)]
pub struct Dataset {
    /// The rows.
    pub rows: Rows,
    /// The label of each row, if it has one.
    pub labels: Vec<Option<u16>>,
    /// The number of classes, if the file tells.
    pub classes: Option<usize>,
}

impl std::fmt::Debug for Dataset {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Dataset({:?}, {:?} classes)", self.rows, self.classes)
    }
}

/// Why a file is refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DataError {
    /// The file cannot be read at all.
    #[error("{0}")]
    Unreadable(#[from] std::io::Error),
    /// The archive or an array in it is broken or cut short.
    #[error("{0}; is the file complete?")]
    Broken(String),
    /// What the file holds is not what is needed.
    #[error("{0}")]
    Wrong(String),
    /// The rows or labels are refused.
    #[error(transparent)]
    Input(#[from] InputError),
    /// The arrays are refused.
    #[error(transparent)]
    Arrays(#[from] ArraysError),
}

/// Reads `path`.
///
/// # Errors
/// A [`DataError`] that says what is wrong, where, and what to do.
pub fn load(path: &Path, kind: Kind) -> Result<Dataset, DataError> {
    let mut file = BufReader::new(File::open(path)?);
    if !path.is_file() {
        let what = if path.is_dir() { "folder" } else { "device" };
        let error = std::io::Error::other(format!("it is a {what}"));
        return Err(DataError::Unreadable(error));
    }
    let start = file.fill_buf()?;
    if start.starts_with(b"\x93NUMPY") {
        return Err(DataError::Wrong(
            "a single .npy array; features and labels are needed, as numpy.savez writes them"
                .into(),
        ));
    }
    let is_npz = path.extension().is_some_and(|extension| extension == "npz");
    match (is_npz || start.starts_with(b"PK\x03\x04"), kind) {
        (true, _) => from_npz(file, kind),
        (false, Kind::Features) => from_csv(file),
        (false, Kind::Codes) => Err(DataError::Wrong(
            "codes are read from .npz files only".into(),
        )),
    }
}

/// Reads an `.npz` archive.
///
/// # Errors
/// As [`load`].
pub fn from_npz(reader: impl Read + Seek, kind: Kind) -> Result<Dataset, DataError> {
    checked(npz::read(reader, kind)?)
}

/// Reads all arrays of an `.npz` archive, which must be of float32 or float64, in the order of the
/// archive.
///
/// # Errors
/// A [`DataError`] that says what is wrong, where, and what to do.
pub fn arrays_from_npz(reader: impl Read + Seek) -> Result<Arrays, DataError> {
    npz::read_arrays(reader)
}

/// Writes arrays as an `.npz` archive.
///
/// # Errors
/// What the writer says.
pub fn arrays_to_npz(writer: impl std::io::Write + Seek, arrays: &Arrays) -> std::io::Result<()> {
    npz::write_arrays(writer, arrays)
}

/// Reads CSV.
///
/// # Errors
/// As [`load`].
pub fn from_csv(reader: impl Read) -> Result<Dataset, DataError> {
    checked(text::read(reader)?)
}

/// Writes `features`, `labels` (−1 for none) and `classes` as an `.npz` archive.
///
/// # Errors
/// What the writer says.
pub fn to_npz(
    writer: impl std::io::Write + Seek,
    features: &Features,
    labelling: &Labelling,
) -> std::io::Result<()> {
    npz::write(writer, features, labelling)
}

fn checked(data: Dataset) -> Result<Dataset, DataError> {
    if data.labels.len() != data.rows.len() {
        return Err(DataError::Wrong(format!(
            "{} labels for {} rows; there must be one for each row",
            data.labels.len(),
            data.rows.len()
        )));
    }
    if data.rows.is_empty() {
        return Err(DataError::Wrong("there are no rows".into()));
    }
    Ok(data)
}

impl Dataset {
    /// The largest label plus one.
    pub fn classes_seen(&self) -> usize {
        let labels = self.labels.iter().flatten();
        labels.max().map_or(0, |largest| usize::from(*largest) + 1)
    }

    /// The labels as those of `classes` classes.
    ///
    /// # Errors
    /// An [`InputError`] when a label is none of them.
    pub fn labelling(&self, classes: usize) -> Result<Labelling, InputError> {
        Labelling::new(classes, self.labels.clone())
    }
}

fn label(row: usize, value: i64) -> Result<Option<u16>, DataError> {
    match u16::try_from(value) {
        Ok(class) => Ok(Some(class)),
        Err(_) if value == -1 => Ok(None),
        Err(_) => Err(DataError::Wrong(format!(
            "labels: row {row} is {value}; labels are 0 to 65535, or -1 for none"
        ))),
    }
}

fn features(dim: usize, values: Vec<f64>) -> Result<Features, DataError> {
    if dim == 0 {
        return Err(DataError::Wrong("features: rows have no columns".into()));
    }
    Ok(Features::new(dim, values)?)
}
