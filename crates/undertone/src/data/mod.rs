//! Data sets from files.
//!
//! | file | holds |
//! |---|---|
//! | `.npz` | arrays (see below) |
//! | CSV, or CSV in gzip | lines of fields, separated by commas, semicolons or tabs |
//!
//! The arrays of an `.npz` file:
//!
//! | name | type and shape | meaning |
//! |---|---|---|
//! | `features` | numbers, `[n, d]` | the rows |
//! | `codes` | uint8, `[n, ⌈L/8⌉]`, in the order of `numpy.packbits` | instead of `features` |
//! | `bits` | an integer | with `codes`: their length `L` |
//! | `labels` | integers, floats or text, `[n]` | the labels |
//! | `classes` | an integer, or the names of all classes | optional: the classes |
//!
//! In a CSV file the column `label` holds the labels. If no column has this name, the last column
//! does. The other columns are features. If no field of the first line is a number, the line holds
//! the names of the columns.
//!
//! Labels that are whole numbers are classes. Other texts are names of classes, which are numbered
//! in ascending order. A label that is empty, -1, `NA`, `N/A`, `NaN`, `null` or `?` is unknown.

mod labels;
mod npz;
mod text;

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek};
use std::path::Path;

use flate2::bufread::MultiGzDecoder;
use undertone_xclp::input::renumber;
use undertone_xclp::{Features, InputError, Labelling, Rows};

use crate::arrays::{Arrays, ArraysError};

/// Longest text in a compressed file, in bytes.
const MAX_TEXT: u64 = 8 << 30;

/// The kind of rows that a file must hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Features of rows that each have a direction: no row is all zeros. Label propagation needs
    /// them.
    Features,
    /// Features of any rows.
    Table,
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
    /// The number of classes, if the file states it.
    pub classes: Option<usize>,
    /// The names of the classes, if labels are names: those that the file states, or else those
    /// that occur, in ascending order.
    pub class_names: Vec<String>,
    /// The names of the features, if the file has them.
    pub columns: Vec<String>,
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
    /// The file does not hold what the caller needs.
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
    if start.starts_with(&[0x1f, 0x8b]) {
        return match kind {
            Kind::Features | Kind::Table => from_gzip(file, kind),
            Kind::Codes => Err(DataError::Wrong(
                "gzip; codes are read from .npz files only".into(),
            )),
        };
    }
    let is_npz = path.extension().is_some_and(|extension| extension == "npz");
    match (is_npz || start.starts_with(b"PK\x03\x04"), kind) {
        (true, _) => from_npz(file, kind),
        (false, kind) => from_csv(file, kind),
    }
}

/// Reads an `.npz` archive.
///
/// # Errors
/// As [`load`].
pub fn from_npz(mut reader: impl Read + Seek, kind: Kind) -> Result<Dataset, DataError> {
    checked(npz::read(&mut reader, kind)?)
}

/// Reads all arrays of an `.npz` archive, in the order of the archive. They must be of float32 or
/// float64.
///
/// # Errors
/// A [`DataError`] that says what is wrong, where, and what to do.
pub fn arrays_from_npz(mut reader: impl Read + Seek) -> Result<Arrays, DataError> {
    npz::read_arrays(&mut reader)
}

/// Writes arrays as an `.npz` archive.
///
/// # Errors
/// An error of the writer.
pub fn arrays_to_npz(
    mut writer: impl std::io::Write + Seek,
    arrays: &Arrays,
) -> std::io::Result<()> {
    npz::write_arrays(&mut writer, arrays)
}

/// Reads CSV.
///
/// # Errors
/// As [`load`].
pub fn from_csv(mut reader: impl Read, kind: Kind) -> Result<Dataset, DataError> {
    checked(text::read(&mut reader, kind)?)
}

/// Reads CSV that is compressed by gzip.
fn from_gzip(file: impl BufRead, kind: Kind) -> Result<Dataset, DataError> {
    let mut text = BufReader::new(Bounded {
        inner: MultiGzDecoder::new(file),
        left: MAX_TEXT,
    });
    let start = text.fill_buf();
    let start = start.map_err(|error| DataError::Broken(format!("gzip: {error}")))?;
    if start.starts_with(b"PK\x03\x04") {
        return Err(DataError::Wrong(
            "an archive inside gzip; unpack it with gunzip".into(),
        ));
    }
    from_csv(text, kind)
}

/// Writes `features`, `labels` (−1 for none) and `classes` (their number, or their names) as an
/// `.npz` archive.
///
/// # Errors
/// An error of the writer.
pub fn to_npz(
    mut writer: impl std::io::Write + Seek,
    features: &Features,
    labelling: &Labelling,
) -> std::io::Result<()> {
    npz::write(&mut writer, features, labelling)
}

/// Writes features and labels as CSV, with the names of the features in the first line. A label is
/// the name or the number of its class. An unknown label is empty.
///
/// # Errors
/// An error of the writer.
pub fn to_csv(
    mut writer: impl std::io::Write,
    features: &Features,
    labelling: &Labelling,
    columns: &[String],
) -> std::io::Result<()> {
    text::write(&mut writer, features, labelling, columns)
}

/// Reads at most so many bytes, and fails where there are more.
struct Bounded<R> {
    inner: R,
    left: u64,
}

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.left = self.left.checked_sub(read as u64).ok_or_else(|| {
            std::io::Error::new(
                std::io::ErrorKind::InvalidData,
                "it holds more text than can be read",
            )
        })?;
        Ok(read)
    }
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

    /// The number of rows that have a label.
    pub fn labelled(&self) -> usize {
        self.labels.iter().flatten().count()
    }

    /// The labels, of `classes` classes.
    ///
    /// # Errors
    /// An [`InputError`] when a label is not one of these classes.
    pub fn labelling(&self, classes: usize) -> Result<Labelling, InputError> {
        Labelling::new(classes, self.labels.clone())
    }

    /// Numbers the classes in the order of `names`. Labels that are numbers are places in the list.
    /// If one of the names is a number itself, they are names, too.
    ///
    /// # Errors
    /// A message with a label that is not among `names`.
    pub fn rename(&mut self, names: &[String]) -> Result<(), String> {
        self.labels = renumber(&self.labels, &self.class_names, names)?;
        self.class_names = names.to_vec();
        Ok(())
    }
}

/// The features in a file of this kind.
fn features(kind: Kind, dim: usize, values: Vec<f64>) -> Result<Features, DataError> {
    if dim == 0 {
        return Err(DataError::Wrong("features: rows have no columns".into()));
    }
    Ok(match kind {
        Kind::Table => Features::table(dim, values)?,
        Kind::Features | Kind::Codes => Features::new(dim, values)?,
    })
}
