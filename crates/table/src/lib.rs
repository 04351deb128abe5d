//! Rows and labels, from files and from arrays, and the checks that every door makes of them.
//!
//! | module | what it holds |
//! |---|---|
//! | [`labels`] | labels as people write them, and what means an unknown label |
//! | [`classes`] | how classes are numbered |
//! | [`parts`] | whether the data of several clients fit together |
//! | [`scale`] | whether features are on one scale |
//!
//! With the feature `files`, [`load`] reads data sets:
//!
//! | file | holds |
//! |---|---|
//! | `.npz` | arrays (see below) |
//! | CSV, or CSV in gzip | lines of fields, separated by commas, semicolons, tabs, bars or blanks |
//!
//! The arrays of an `.npz` file:
//!
//! | name | type and shape | meaning |
//! |---|---|---|
//! | `features` | numbers or booleans, `[n, d]` | the rows |
//! | `codes` | uint8, `[n, ⌈L/8⌉]`, in the order of `numpy.packbits` | instead of `features` |
//! | `bits` | an integer | with `codes`: their length `L` |
//! | `labels` | integers, floats, booleans or text, `[n]` | the labels |
//! | `classes` | an integer, or the names of all classes | optional: the classes |
//!
//! In a CSV file the column `label` holds the labels. If no column has this name, the last column
//! does. The other columns are features, as numbers or as `True` and `False`. A first line with a
//! field `label` holds the names of the columns. Another first line holds names if it has a text
//! where the line below has a number, or no number at all. Spreadsheets may state the separator in
//! a first line `sep=;`.
//!
//! Labels that are whole numbers are classes. Other texts are names of classes, which are numbered
//! in ascending order. Both in one file are refused, unless the classes are stated. An unknown
//! label is empty, -1, or one of these, in any case: `NA`, `N/A`, `#N/A`, `#NA`, `<NA>`, `NaN`,
//! `null`, `None`, `nil`, `?`, `-`, `.`. A class that is stated is a class, whatever its name.

pub mod classes;
#[cfg(feature = "files")]
mod formats;
#[cfg(feature = "files")]
mod gzip;
pub mod labels;
#[cfg(feature = "files")]
mod npz;
pub mod parts;
pub mod scale;
#[cfg(feature = "files")]
mod text;

#[cfg(feature = "files")]
use std::fs::File;
#[cfg(feature = "files")]
use std::io::{BufRead, BufReader, Read, Seek};
#[cfg(feature = "files")]
use std::path::Path;

#[cfg(feature = "files")]
use undertone_label::Features;
use undertone_label::{InputError, Labelling, Rows, renumber};
#[cfg(feature = "files")]
use undertone_rounds::arrays::Arrays;
use undertone_rounds::arrays::ArraysError;

pub use classes::Classes;

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

/// What a client brings.
#[derive(Clone)]
pub struct Dataset {
    /// The rows.
    pub rows: Rows,
    /// The label of each row, if it has one.
    pub labels: Vec<Option<u16>>,
    /// The number of classes, if the file or the user states it.
    pub classes: Option<usize>,
    /// The names of the classes, if labels are names: those that are stated, or else those that
    /// occur, in ascending order.
    pub class_names: Vec<String>,
    /// The names of the features, if there are any.
    pub columns: Vec<String>,
    /// Where rows and labels come from.
    pub origin: Origin,
}

/// Where rows and labels come from, for messages.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Origin {
    /// The line of each row in a text file.
    pub lines: Vec<u64>,
    /// The column of a text file that holds the labels, in words.
    pub label_column: Option<String>,
    /// The first row without a label, and the field that says so.
    pub unknown: Option<(usize, String)>,
    /// The fields that mean an unknown label.
    pub markers: Vec<String>,
}

impl Origin {
    /// The place of a row's label in words: its line and column, or its place in the array.
    pub fn label(&self, row: usize) -> String {
        match (self.lines.get(row), &self.label_column) {
            (Some(line), Some(column)) => format!("line {line}, {column}"),
            _ => format!("labels[{row}]"),
        }
    }

    /// Why rows are refused, with the line where there is one.
    pub fn describe(&self, error: &InputError) -> String {
        let line = |row: &usize| self.lines.get(*row);
        match error {
            InputError::NothingLeft { row } => match line(row) {
                Some(line) => format!(
                    "line {line}: the row equals the mean of all rows and has no direction; leave \
                     it out"
                ),
                None => error.to_string(),
            },
            InputError::TooLargeToScale { row, column, value } => match line(row) {
                Some(line) => format!(
                    "line {line}, feature {} is {value:e}; to be standardised, values must be \
                     below 9.2e18: give the column in a larger unit",
                    column + 1
                ),
                None => error.to_string(),
            },
            error => error.to_string(),
        }
    }
}

impl std::fmt::Debug for Dataset {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Dataset({:?}, {:?} classes)", self.rows, self.classes)
    }
}

/// Why data are refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DataError {
    /// The file cannot be read at all.
    #[error("{0}")]
    Unreadable(#[from] std::io::Error),
    /// The file ends early.
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

/// Reads `path`. `classes` states the classes, if the user does.
///
/// # Errors
/// A [`DataError`] that says what is wrong, where, and what to do.
#[cfg(feature = "files")]
pub fn load(path: &Path, kind: Kind, classes: Option<&Classes>) -> Result<Dataset, DataError> {
    let mut file = BufReader::new(File::open(path)?);
    if !path.is_file() {
        let what = if path.is_dir() { "folder" } else { "device" };
        let error = std::io::Error::other(format!("it is a {what}"));
        return Err(DataError::Unreadable(error));
    }
    let start = file.fill_buf()?;
    if start.starts_with(b"\x93NUMPY") {
        return Err(DataError::Wrong(
            "a single .npy array; features and labels are needed, as numpy.savez(FILE, \
             features=X, labels=y) writes them"
                .into(),
        ));
    }
    if start.starts_with(&[0x1f, 0x8b]) {
        return match kind {
            Kind::Features | Kind::Table => from_gzip(file, kind, classes),
            Kind::Codes => Err(DataError::Wrong(
                "gzip; codes are read from .npz files only".into(),
            )),
        };
    }
    if start.starts_with(b"PK\x03\x04") || start.starts_with(b"PK\x05\x06") {
        return from_npz(file, kind, classes);
    }
    if path.extension().is_some_and(|extension| extension == "npz") {
        let mut start = Vec::new();
        file.take(1 << 12).read_to_end(&mut start)?;
        let what = formats::of_text(&start);
        return Err(DataError::Wrong(what.unwrap_or_else(|| {
            "it is no .npz archive; write it with numpy.savez, or name a CSV file .csv".into()
        })));
    }
    from_csv(file, kind, classes)
}

/// Reads an `.npz` archive.
///
/// # Errors
/// As [`load`].
#[cfg(feature = "files")]
pub fn from_npz(
    mut reader: impl Read + Seek,
    kind: Kind,
    classes: Option<&Classes>,
) -> Result<Dataset, DataError> {
    checked(npz::read(&mut reader, kind, stated(classes))?, classes)
}

/// Reads all arrays of an `.npz` archive, in the order of the archive. They must be of float16,
/// which becomes float32, of float32 or of float64.
///
/// # Errors
/// A [`DataError`] that says what is wrong, where, and what to do.
#[cfg(feature = "files")]
pub fn arrays_from_npz(mut reader: impl Read + Seek) -> Result<Arrays, DataError> {
    npz::read_arrays(&mut reader)
}

/// Writes arrays as an `.npz` archive.
///
/// # Errors
/// An error of the writer.
#[cfg(feature = "files")]
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
#[cfg(feature = "files")]
pub fn from_csv(
    mut reader: impl Read,
    kind: Kind,
    classes: Option<&Classes>,
) -> Result<Dataset, DataError> {
    checked(text::read(&mut reader, kind, stated(classes))?, classes)
}

/// The refusal of a file that cannot be read to its end.
#[cfg(feature = "files")]
fn unreadable(error: std::io::Error) -> DataError {
    use std::io::ErrorKind;
    match error.kind() {
        ErrorKind::UnexpectedEof => DataError::Broken(error.to_string()),
        ErrorKind::InvalidData | ErrorKind::InvalidInput => DataError::Wrong(error.to_string()),
        _ => DataError::Unreadable(error),
    }
}

/// Reads CSV that is compressed by gzip.
#[cfg(feature = "files")]
fn from_gzip(
    file: impl BufRead,
    kind: Kind,
    classes: Option<&Classes>,
) -> Result<Dataset, DataError> {
    let mut text = BufReader::new(gzip::Members::new(file));
    let start = text.fill_buf().map_err(unreadable)?;
    if start.starts_with(b"PK\x03\x04") {
        return Err(DataError::Wrong(
            "an archive inside gzip; unpack it with gunzip".into(),
        ));
    }
    from_csv(text, kind, classes)
}

/// The names of classes that the user states.
#[cfg(feature = "files")]
fn stated(classes: Option<&Classes>) -> &[String] {
    match classes {
        Some(Classes::Names(names)) => names,
        _ => &[],
    }
}

/// Writes `features`, `labels` (−1 for none) and `classes` (their number, or their names) as an
/// `.npz` archive.
///
/// # Errors
/// An error of the writer.
#[cfg(feature = "files")]
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
#[cfg(feature = "files")]
pub fn to_csv(
    mut writer: impl std::io::Write,
    features: &Features,
    labelling: &Labelling,
    columns: &[String],
) -> std::io::Result<()> {
    text::write(&mut writer, features, labelling, columns)
}

/// Checks what a file holds.
#[cfg(feature = "files")]
fn checked(mut data: Dataset, classes: Option<&Classes>) -> Result<Dataset, DataError> {
    if data.rows.is_empty() && data.labels.is_empty() {
        return Err(DataError::Wrong("there are no rows".into()));
    }
    data.check(classes)?;
    Ok(data)
}

impl Dataset {
    /// Rows and labels that are no file's. `columns` are the names of the features, or empty;
    /// `classes` states the classes, if the user does.
    ///
    /// # Errors
    /// A [`DataError`] that says what is wrong, where, and what to do.
    pub fn new(
        rows: Rows,
        labels: labels::Labels,
        columns: Vec<String>,
        classes: Option<&Classes>,
    ) -> Result<Self, DataError> {
        let mut data = Self {
            rows,
            labels: labels.labels,
            classes: None,
            class_names: labels.names,
            columns,
            origin: Origin {
                unknown: labels.unknown,
                markers: labels.markers,
                ..Origin::default()
            },
        };
        data.check(classes)?;
        Ok(data)
    }

    /// Checks that rows, labels, columns and classes fit together.
    fn check(&mut self, classes: Option<&Classes>) -> Result<(), DataError> {
        let (rows, labels) = (self.rows.len(), self.labels.len());
        if labels != rows {
            return Err(DataError::Wrong(format!(
                "{labels} labels for {rows} rows; there must be one for each row"
            )));
        }
        if let Some(twice) = parts::twice(&self.columns) {
            return Err(DataError::Wrong(format!(
                "two columns have the name {}; names must differ",
                labels::quoted(twice)
            )));
        }
        classes::apply(self, classes)
    }

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
    /// A message with a label that is not among `names`, and its place.
    pub fn rename(&mut self, names: &[String]) -> Result<(), String> {
        let renumbered = renumber(&self.labels, &self.class_names, names);
        self.labels = renumbered.map_err(|(row, label)| {
            format!(
                "{} has the label {}, which is not among the classes {}",
                self.origin.label(row),
                labels::quoted(&label),
                names.join(", ")
            )
        })?;
        self.class_names = names.to_vec();
        Ok(())
    }

    /// The number of classes: what is stated, or else the number of names, or the largest label
    /// plus one; two at least.
    pub fn class_count(&self) -> usize {
        let seen = self.classes_seen().max(self.class_names.len()).max(2);
        self.classes.unwrap_or(seen)
    }

    /// What a class is called: its name, or its number.
    pub fn class_name(&self, class: u16) -> String {
        let name = self.class_names.get(usize::from(class));
        name.map_or_else(|| class.to_string(), |name| labels::quoted(name))
    }

    /// The labels of all rows, where all rows need one.
    ///
    /// # Errors
    /// A message with the first row without a label, the field that says so, and what to do.
    pub fn every_label(&self, why: &str) -> Result<Vec<u16>, String> {
        let Some((row, marker)) = &self.origin.unknown else {
            return Ok(self.labels.iter().flatten().copied().collect());
        };
        if self.labelled() == 0 {
            return Err("no row is labelled".into());
        }
        let means = if marker.is_empty() {
            "is empty: the label is unknown".into()
        } else {
            format!(
                "has the label {}, which means that it is unknown (if it is a class, list the \
                 classes with --classes)",
                labels::quoted(marker)
            )
        };
        Err(format!("{} {means}; {why}", self.origin.label(*row)))
    }

    /// One line about the labels, for people: their column, and what means an unknown one. Empty
    /// where nothing had to be found out.
    pub fn describe_labels(&self) -> String {
        let Some(column) = &self.origin.label_column else {
            return String::new();
        };
        let shown = self
            .origin
            .markers
            .iter()
            .map(|marker| match marker.as_str() {
                "" => "an empty field".to_owned(),
                marker => labels::quoted(marker),
            });
        let shown: Vec<String> = shown.collect();
        match &shown[..] {
            [] => format!("labels: {column}\n"),
            [one] => format!("labels: {column}; {one} means an unknown label\n"),
            [first @ .., last] => {
                let first = first.join(", ");
                format!("labels: {column}; {first} and {last} mean an unknown label\n")
            }
        }
    }
}

/// The features in a file of this kind.
#[cfg(feature = "files")]
fn features(kind: Kind, dim: usize, values: Vec<f64>) -> Result<Features, DataError> {
    if dim == 0 {
        return Err(DataError::Wrong("features: rows have no columns".into()));
    }
    Ok(match kind {
        Kind::Table => Features::table(dim, values)?,
        Kind::Features | Kind::Codes => Features::new(dim, values)?,
    })
}
