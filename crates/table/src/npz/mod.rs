//! `.npz` archives. The reader compares sizes in headers with the bytes that follow before it
//! allocates memory for them.

use std::io::{Read, Seek, Write};

use npyz::half::f16;
use npyz::{AutoSerialize, DType, Deserialize, NpyFile, NpyHeader, Order, WriterBuilder};
use undertone_hamming::MAX_BITS;
use undertone_kernel::BitMatrix;
use undertone_xclp::input::{InputError, check_names};
use undertone_xclp::{Codes, Features, Labelling, Rows};
use zip::result::ZipError;
use zip::write::{SimpleFileOptions, ZipWriter};
use zip::{CompressionMethod, ZipArchive};

use super::{DataError, Dataset, Kind, Origin, labels};
use crate::arrays::{Arrays, MAX_ARRAYS, Values};

/// Largest array in bytes.
const MAX_ARRAY: u64 = 8 << 30;

/// Longest array header in bytes.
const MAX_HEADER: usize = 1 << 16;

/// An array of the archive, not yet decoded.
struct Array {
    name: String,
    header: NpyHeader,
    bytes: Vec<u8>,
}

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

/// Reads an array's header. Refuses headers that the parser cannot handle safely: one that is too
/// long or nested (the parser takes exponential time), or a shape of more than 2^64 entries.
fn checked_header(file: &mut impl Read) -> std::io::Result<Vec<u8>> {
    let refuse = |what: &str| Err(std::io::Error::new(std::io::ErrorKind::InvalidData, what));
    let mut start = vec![0; 10];
    file.read_exact(&mut start)?;
    if start[..6] != *b"\x93NUMPY" {
        return refuse("not an .npy array");
    }
    let mut len = usize::from(u16::from_le_bytes([start[8], start[9]]));
    if start[6] >= 2 {
        let mut high = [0; 2];
        file.read_exact(&mut high)?;
        start.extend(high);
        len |= usize::from(u16::from_le_bytes(high)) << 16;
    }
    if len > MAX_HEADER {
        return refuse("its header is too long");
    }
    let at = start.len();
    start.resize(at + len, 0);
    file.read_exact(&mut start[at..])?;
    let text = String::from_utf8_lossy(&start[at..]);
    // The header is one dictionary with one tuple, the shape. Lists are types of records.
    let nested = |open: char| text.matches(open).count() > 1;
    if ["'M8[", "'<M8[", "'>M8[", "'<m8[", "'>m8["]
        .iter()
        .any(|date| text.contains(date))
    {
        return refuse("it holds dates or times; give them as numbers, for example of days");
    }
    if text.contains("'descr': [") {
        return refuse(
            "it is a record array; numpy.lib.recfunctions.structured_to_unstructured makes a plain \
             one",
        );
    }
    if nested('{') || nested('(') || text.contains('[') {
        return refuse("its header is not that of an array of plain numbers");
    }
    if text.contains('\\') {
        return refuse("its header has an escape");
    }
    let shape = text
        .split("shape")
        .nth(1)
        .and_then(|rest| rest.split(')').next());
    let Some(shape) = shape else {
        return refuse("its header has no shape");
    };
    let is_plain = |c: char| c.is_ascii_digit() || "'\":(,L ".contains(c);
    if !shape.chars().all(is_plain) {
        return refuse("its shape is not of decimal numbers");
    }
    if shape.chars().filter(char::is_ascii_digit).count() > 18 {
        return refuse("its shape is too large");
    }
    Ok(start)
}

impl Array {
    fn dtype(&self) -> String {
        self.header.dtype().descr().trim_matches('\'').to_owned()
    }

    fn wrong(&self, due: &str) -> DataError {
        let dtype = self.dtype();
        self.refused(due, match dtype.trim_start_matches(['<', '>', '|', '=']) {
            kind if kind.starts_with('O') => {
                "it holds Python objects: astype(float) makes numbers of them, astype(str) texts"
            }
            kind if kind.starts_with('c') => {
                "it holds complex numbers: give their parts as columns"
            }
            "f16" | "f12" => "astype(numpy.float64) makes one that is read",
            _ => "",
        })
    }

    fn refused(&self, due: &str, remedy: &str) -> DataError {
        let remedy = match remedy {
            "" => String::new(),
            remedy => format!("; {remedy}"),
        };
        DataError::Wrong(format!(
            "array '{}' has dtype {} and shape {:?}; {due} is needed{remedy}",
            self.name,
            self.dtype(),
            self.header.shape()
        ))
    }

    fn rank(&self, rank: usize, layout: &str, remedy: &str) -> Result<Vec<usize>, DataError> {
        let shape = self.header.shape();
        if shape.len() != rank {
            let due = format!("a {rank}-dimensional array {layout}");
            return Err(self.refused(&due, remedy));
        }
        Ok(shape.iter().map(|len| *len as usize).collect())
    }

    /// The entries, as stored, if they are of type `T`.
    fn entries<T: Deserialize>(&self) -> Option<Vec<T>> {
        let file = NpyFile::with_header(self.header.clone(), &self.bytes[..]);
        file.data::<T>().ok()?.collect::<Result<_, _>>().ok()
    }

    /// The entries in row-major order, whether or not they are stored so.
    fn by_rows<T: Copy>(&self, entries: Vec<T>) -> Vec<T> {
        if self.header.order() != Order::Fortran {
            return entries;
        }
        let shape: Vec<usize> = self
            .header
            .shape()
            .iter()
            .map(|len| *len as usize)
            .collect();
        let mut place = vec![0; shape.len()];
        let mut out = Vec::with_capacity(entries.len());
        for _ in 0..entries.len() {
            let at = place.iter().zip(&shape).rev();
            out.push(entries[at.fold(0, |at, (index, len)| at * len + index)]);
            for (index, len) in place.iter_mut().zip(&shape).rev() {
                *index += 1;
                if *index < *len {
                    break;
                }
                *index = 0;
            }
        }
        out
    }

    /// The entries as doubles, if they are of type `T`.
    fn converted<T: Deserialize>(&self, convert: impl Fn(T) -> f64) -> Option<Vec<f64>> {
        let file = NpyFile::with_header(self.header.clone(), &self.bytes[..]);
        let values = file.data::<T>().ok()?;
        values
            .map(|value| value.map(&convert))
            .collect::<Result<_, _>>()
            .ok()
    }

    /// The entries as doubles, if they are numbers.
    fn numbers(&self) -> Result<Vec<f64>, DataError> {
        let values = self.converted::<f64>(|value| value);
        let values = values.or_else(|| self.converted::<f32>(f64::from));
        let values = values.or_else(|| self.converted::<f16>(f64::from));
        let booleans = || self.converted::<bool>(|value| f64::from(u8::from(value)));
        let values = match values.or_else(booleans) {
            Some(values) => values,
            None => {
                let integers = self.integers();
                let integers = integers.map_err(|_| self.wrong("an integer or floating type"))?;
                integers.into_iter().map(|value| value as f64).collect()
            }
        };
        Ok(self.by_rows(values))
    }

    /// The entries as texts, if they are texts: numpy's `U` (UTF-32) or `S` (bytes). Booleans are
    /// the texts that Python writes for them.
    fn texts(&self) -> Result<Option<Vec<String>>, DataError> {
        if let Some(values) = self.entries::<bool>() {
            let text = |value: bool| if value { "True" } else { "False" };
            return Ok(Some(
                values
                    .into_iter()
                    .map(|value| text(value).to_owned())
                    .collect(),
            ));
        }
        let dtype = self.dtype();
        let mut kind = dtype.chars();
        let order = kind.next();
        let (Some(letter @ ('U' | 'S')), Ok(width)) = (kind.next(), kind.as_str().parse()) else {
            return Ok(None);
        };
        let bytes = if letter == 'U' { 4 * width } else { width };
        if bytes == 0 {
            return Ok(Some(vec![String::new(); self.bytes.len()]));
        }
        let scalar = |code: &[u8]| {
            let code = [code[0], code[1], code[2], code[3]];
            char::from_u32(match order {
                Some('>') => u32::from_be_bytes(code),
                _ => u32::from_le_bytes(code),
            })
        };
        let text = |entry: &[u8]| match letter {
            'U' => entry
                .chunks_exact(4)
                .map(scalar)
                .collect::<Option<String>>(),
            _ => String::from_utf8(entry.to_vec()).ok(),
        };
        let texts = self.bytes.chunks_exact(bytes).map(|entry| {
            let text = text(entry).ok_or_else(|| self.wrong("text in UTF-8"))?;
            Ok(text.trim_end_matches('\0').to_owned())
        });
        texts.collect::<Result<Vec<_>, _>>().map(Some)
    }

    fn integers(&self) -> Result<Vec<i64>, DataError> {
        fn widened<T: Deserialize + Into<i64>>(array: &Array) -> Option<Vec<i64>> {
            Some(array.entries::<T>()?.into_iter().map(Into::into).collect())
        }
        let unsigned = || {
            let values = self.entries::<u64>()?.into_iter();
            Some(
                values
                    .map(|value| i64::try_from(value).unwrap_or(i64::MAX))
                    .collect(),
            )
        };
        self.entries::<i64>()
            .or_else(|| widened::<u8>(self))
            .or_else(|| widened::<i32>(self))
            .or_else(|| widened::<i8>(self))
            .or_else(|| widened::<i16>(self))
            .or_else(|| widened::<u16>(self))
            .or_else(|| widened::<u32>(self))
            .or_else(unsigned)
            .ok_or_else(|| self.wrong("an integer type"))
    }

    fn scalar(&self) -> Result<i64, DataError> {
        match self.integers()?[..] {
            [value] => Ok(value),
            _ => Err(self.wrong("one integer")),
        }
    }

    fn codes(&self, bits: usize) -> Result<Codes, DataError> {
        let shape = self.rank(2, "[rows, bytes]", "")?;
        let bytes = self.entries::<u8>().ok_or_else(|| self.wrong("uint8"))?;
        if shape[1] != bits.div_ceil(8) {
            return Err(self.wrong(&format!("[rows, {}] for {bits} bits", bits.div_ceil(8))));
        }
        let bytes = self.by_rows(bytes);
        Ok(Codes::from_bits(BitMatrix::from_packed(
            shape[0], bits, &bytes,
        )))
    }
}

/// Why an array of another type than a real number's cannot be in a sum.
fn not_real(name: &str, descr: &str) -> DataError {
    let stored = descr.trim_start_matches(['<', '>', '|', '=']);
    let (kind, bytes) = stored.split_at_checked(1).unwrap_or((stored, ""));
    let bits = bytes
        .parse()
        .map_or(0, |bytes: u32| bytes.saturating_mul(8));
    let (dtype, then) = match kind {
        "b" => ("bool".to_owned(), true),
        "i" => (format!("int{bits}"), true),
        "u" => (format!("uint{bits}"), true),
        _ => (descr.to_owned(), false),
    };
    let then = if then {
        "means of whole numbers are fractions, so convert it yourself with astype('float32') or \
         astype('float64'), or leave it out"
    } else {
        "leave it out"
    };
    DataError::Wrong(format!(
        "array '{name}' is {dtype}; float16, float32 or float64 is needed: {then}"
    ))
}

/// As [`arrays_from_npz`](super::arrays_from_npz).
pub(super) fn read_arrays(reader: &mut dyn Source) -> Result<Arrays, DataError> {
    let mut archive = open(reader)?;
    if archive.len() > MAX_ARRAYS {
        return Err(DataError::Wrong(format!(
            "{} arrays; at most {MAX_ARRAYS} are allowed",
            archive.len()
        )));
    }
    let mut names = Vec::with_capacity(archive.len());
    for place in 0..archive.len() {
        let file = archive.by_index_raw(place);
        let file = file.map_err(|error| broken("archive", error))?;
        let name = file.name().map_err(|error| broken("archive", error))?;
        let Some(name) = name.strip_suffix(".npy") else {
            return Err(DataError::Wrong(format!(
                "it holds '{name}', which is not an array; write the file with numpy.savez"
            )));
        };
        names.push(name.to_owned());
    }
    let mut arrays = Arrays::new();
    for name in names {
        let array = need(&mut archive, &name)?;
        let shape = array.header.shape().iter().map(|len| *len as usize);
        let shape = shape.collect();
        if let Some(singles) = array.entries::<f32>() {
            arrays.push(name, shape, array.by_rows(singles))?;
        } else if let Some(doubles) = array.entries::<f64>() {
            arrays.push(name, shape, array.by_rows(doubles))?;
        } else if let Some(halves) = array.entries::<f16>() {
            // Each is a float32 exactly.
            let singles = halves.into_iter().map(f32::from).collect();
            arrays.push(name, shape, array.by_rows(singles))?;
        } else {
            return Err(not_real(&name, &array.dtype()));
        }
    }
    Ok(arrays)
}

/// As [`arrays_to_npz`](super::arrays_to_npz).
pub(super) fn write_arrays(writer: &mut dyn Target, arrays: &Arrays) -> std::io::Result<()> {
    let mut zip = ZipWriter::new(writer);
    for own in arrays {
        let shape: Vec<u64> = own.shape().iter().map(|len| *len as u64).collect();
        let bytes = match own.values() {
            Values::Single(values) => npy(&shape, values)?,
            Values::Double(values) => npy(&shape, values)?,
        };
        // Not compressed, as with numpy.savez: it would save little space and take long.
        let stored = SimpleFileOptions::default().compression_method(CompressionMethod::Stored);
        zip.start_file(format!("{}.npy", own.name()), stored)?;
        zip.write_all(&bytes)?;
    }
    zip.finish()?;
    Ok(())
}

/// The number of classes, or their names as numpy's `U`.
fn classes(labelling: &Labelling) -> std::io::Result<Vec<u8>> {
    let names = labelling.names();
    let width = names.iter().map(|name| name.chars().count()).max();
    let Some(width) = width else {
        return npy(&[], &[labelling.classes() as i64]);
    };
    let mut header = format!(
        "{{'descr': '<U{width}', 'fortran_order': False, 'shape': ({},), }}",
        names.len()
    );
    // Data begin at a multiple of 64 bytes, after a line feed.
    let filled = (10 + header.len() + 1).next_multiple_of(64) - 11;
    header.extend(std::iter::repeat_n(' ', filled - header.len()));
    header.push('\n');
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend((header.len() as u16).to_le_bytes());
    bytes.extend(header.as_bytes());
    for name in names {
        let codes = name.chars().map(u32::from).chain(std::iter::repeat(0));
        codes
            .take(width)
            .for_each(|code| bytes.extend(code.to_le_bytes()));
    }
    Ok(bytes)
}

/// An array in the format `.npy`.
fn npy<T: AutoSerialize>(shape: &[u64], values: &[T]) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut npy = npyz::WriteOptions::new()
        .default_dtype()
        .shape(shape)
        .writer(&mut bytes)
        .begin_nd()?;
    npy.extend(values)?;
    npy.finish()?;
    Ok(bytes)
}

/// As [`to_npz`](super::to_npz).
pub(super) fn write(
    writer: &mut dyn Target,
    features: &Features,
    labelling: &Labelling,
) -> std::io::Result<()> {
    let rows = features.rows() as u64;
    let labels = labelling.labels().iter();
    let labels: Vec<i64> = labels.map(|label| label.map_or(-1, i64::from)).collect();
    let mut zip = ZipWriter::new(writer);
    for (name, bytes) in [
        (
            "features.npy",
            npy(&[rows, features.dim() as u64], features.values())?,
        ),
        ("labels.npy", npy(&[rows], &labels)?),
        ("classes.npy", classes(labelling)?),
    ] {
        zip.start_file(name, SimpleFileOptions::default())?;
        zip.write_all(&bytes)?;
    }
    zip.finish()?;
    Ok(())
}

#[cfg(test)]
mod tests;
