//! `.npz` archives. The reader compares sizes in headers with the bytes that follow before it
//! allocates memory for them.

mod archive;
mod array;

use std::io::{Read, Seek, Write};

use npyz::{DType, NpyHeader};
use undertone_hamming::MAX_BITS;
use undertone_label::Rows;
use undertone_label::input::{InputError, check_names};
use zip::ZipArchive;
use zip::result::ZipError;

use super::{DataError, Dataset, Kind, Origin, labels};
pub(super) use archive::{read_arrays, write, write_arrays};
use array::{Array, checked_header};

/// Largest array in bytes.
const MAX_ARRAY: u64 = 8 << 30;

/// A file to read, of any type: so the code for archives is made once.
pub(super) trait Source: Read + Seek {}

impl<T: Read + Seek> Source for T {}

/// A file to write, of any type.
pub(super) trait Target: Write + Seek {}

impl<T: Write + Seek> Target for T {}

pub(super) fn read(
    reader: &mut dyn Source,
    kind: Kind,
    stated: &[String],
) -> Result<Dataset, DataError> {
    let mut archive = open(reader)?;
    let rows = match kind {
        Kind::Features | Kind::Table => {
            let array = need(&mut archive, "features")?;
            let remedy = match array.header.shape().len() {
                3.. => "features.reshape(len(features), -1) makes one row of each",
                _ => "",
            };
            let dim = array.rank(2, "[rows, columns]", remedy)?[1];
            let features = super::features(kind, dim, array.numbers()?);
            Rows::Features(features.map_err(in_array)?)
        }
        Kind::Codes => {
            let bits = need(&mut archive, "bits")?.scalar()?;
            if !(1..=MAX_BITS as i64).contains(&bits) {
                return Err(DataError::Wrong(format!(
                    "bits is {bits}; it must be from 1 to {MAX_BITS}"
                )));
            }
            Rows::Codes(need(&mut archive, "codes")?.codes(bits as usize)?)
        }
    };
    let array = need(&mut archive, "labels")?;
    let remedy = match *array.header.shape() {
        [_, 1] => "labels.ravel() makes it one",
        [_, _] => "if it has a 1 for the class of each row, labels.argmax(axis=1) makes it one",
        _ => "",
    };
    array.rank(1, "[rows]", remedy)?;
    let mut classes = None;
    let mut stated = stated.to_vec();
    if let Some(array) = find(&mut archive, "classes")? {
        match array.texts()? {
            Some(names) => {
                check_names(&names)?;
                classes = Some(names.len());
                if stated.is_empty() {
                    stated = names;
                }
            }
            None => {
                let value = array.scalar()?;
                classes = Some(usize::try_from(value).map_err(|_| {
                    DataError::Wrong(format!("classes is {value}; it must be 2 or more"))
                })?);
            }
        }
    }
    let place = |row| format!("labels[{row}]");
    let labels = match array.texts()? {
        Some(texts) => labels::parse(&texts, &stated, place)?,
        None => {
            let numbers = array.numbers()?;
            let unsigned = array.entries::<u64>();
            let shown = |row: usize| match &unsigned {
                Some(values) => values[row].to_string(),
                None => numbers[row].to_string(),
            };
            labels::from_numbers(&numbers, &stated, shown, place)?
        }
    };
    Ok(Dataset {
        rows,
        labels: labels.labels,
        classes,
        class_names: labels.names,
        columns: Vec::new(),
        origin: Origin {
            unknown: labels.unknown,
            markers: labels.markers,
            ..Origin::default()
        },
    })
}

/// The error with the place in the array, as NumPy writes it.
fn in_array(error: DataError) -> DataError {
    DataError::Wrong(match error {
        DataError::Input(InputError::NotFinite { row, column, value }) => {
            format!("features[{row}, {column}] is {value}; every value must be finite")
        }
        DataError::Input(InputError::ZeroRow { row }) => {
            format!("features[{row}] is all zeros and has no direction; leave the row out")
        }
        DataError::Input(InputError::TooLarge { row }) => {
            format!("features[{row}] is too large; scale the features below 1e150")
        }
        other => return other,
    })
}

fn open(reader: &mut dyn Source) -> Result<ZipArchive<&mut dyn Source>, DataError> {
    ZipArchive::new(reader).map_err(|error| match error {
        // The directory is at the end of an archive.
        ZipError::InvalidArchive(_) => DataError::Broken(format!("archive: {error}")),
        error => broken("archive", error),
    })
}

/// The refusal of an archive, or of an array in it.
fn broken(what: &str, error: ZipError) -> DataError {
    match error {
        ZipError::Io(error) => in_entry(what, error),
        error @ ZipError::CompressionMethodNotSupported(_) => in_entry(
            what,
            std::io::Error::new(std::io::ErrorKind::Unsupported, error),
        ),
        error => DataError::Wrong(format!("{what}: {error}")),
    }
}

/// The refusal of an entry of an archive.
fn in_entry(what: &str, error: std::io::Error) -> DataError {
    if error.kind() == std::io::ErrorKind::Unsupported {
        return DataError::Wrong(format!(
            "{what}: {error}; numpy.savez and numpy.savez_compressed write what is"
        ));
    }
    let described = std::io::Error::new(error.kind(), format!("{what}: {error}"));
    crate::unreadable(described)
}

/// The names of the entries, without the ending `.npy`.
fn held(archive: &ZipArchive<impl Read + Seek>) -> Vec<String> {
    let names = archive.file_names();
    names
        .filter_map(|name| Some(name.ok()?.trim_end_matches(".npy").to_owned()))
        .collect()
}

fn need(archive: &mut ZipArchive<impl Read + Seek>, name: &str) -> Result<Array, DataError> {
    if let Some(array) = find(archive, name)? {
        return Ok(array);
    }
    let names = archive.file_names();
    let names: Vec<String> = names
        .filter_map(|name| Some(name.ok()?.into_owned()))
        .collect();
    if let Some(what) = crate::formats::of_archive(&names) {
        return Err(DataError::Wrong(what));
    }
    let held = held(archive);
    let has = |name: &str| held.iter().any(|held| held == name);
    let remedy = if has("X") && has("y") || has("arr_0") {
        "; numpy.savez(FILE, features=X, labels=y) gives arrays their names"
    } else {
        ""
    };
    let held = match &held[..] {
        [] => "nothing".into(),
        names => names.join(", "),
    };
    Err(DataError::Wrong(format!(
        "array '{name}' is missing; the archive holds: {held}{remedy}"
    )))
}

fn find(
    archive: &mut ZipArchive<impl Read + Seek>,
    name: &str,
) -> Result<Option<Array>, DataError> {
    let mut file = match archive.by_name(&format!("{name}.npy")) {
        Ok(entry) => entry,
        Err(ZipError::FileNotFound) => return Ok(None),
        Err(error) => return Err(broken(&format!("array '{name}'"), error)),
    };
    let broken = |error: std::io::Error| in_entry(&format!("array '{name}'"), error);
    let start = checked_header(&mut file).map_err(broken)?;
    let header = NpyHeader::from_reader(&start[..]).map_err(broken)?;
    let mut array = Array {
        name: name.to_owned(),
        header,
        bytes: Vec::new(),
    };
    let item = match array.header.dtype() {
        DType::Plain(plain) if !plain.uses_pickled_array() => plain.num_bytes(),
        _ => None,
    };
    let Some(item) = item else {
        return Err(array.wrong("a plain numeric type"));
    };
    let due = array
        .header
        .shape()
        .iter()
        .try_fold(item as u64, |a, b| a.checked_mul(*b));
    let Some(due) = due.filter(|due| *due <= MAX_ARRAY) else {
        return Err(array.wrong("at most 8 GiB"));
    };
    file.take(due + 1)
        .read_to_end(&mut array.bytes)
        .map_err(broken)?;
    let follow = array.bytes.len() as u64;
    if follow != due {
        let what = format!(
            "array '{name}': its header announces shape {:?} of {}, {} {} bytes follow",
            array.header.shape(),
            array.dtype(),
            if follow > due { "more than" } else { "only" },
            due.min(follow)
        );
        return Err(if follow < due {
            DataError::Broken(what)
        } else {
            DataError::Wrong(what)
        });
    }
    Ok(Some(array))
}

#[cfg(test)]
mod tests;
