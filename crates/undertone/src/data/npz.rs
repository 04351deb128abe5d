//! `.npz` archives. The reader compares sizes in headers with the bytes that follow before it
//! allocates memory for them.

use std::io::{Read, Seek, Write};

use npyz::half::f16;
use npyz::{AutoSerialize, DType, Deserialize, NpyFile, NpyHeader, Order, WriterBuilder};
use undertone_hamming::MAX_BITS;
use undertone_kernel::BitMatrix;
use undertone_xclp::input::check_names;
use undertone_xclp::{Codes, Features, Labelling, Rows};
use zip::write::{SimpleFileOptions, ZipWriter};
use zip::{CompressionMethod, ZipArchive};

use super::{DataError, Dataset, Kind, labels};
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

pub(super) fn read(reader: impl Read + Seek, kind: Kind) -> Result<Dataset, DataError> {
    let mut archive = ZipArchive::new(reader).map_err(|error| broken("archive", &error))?;
    let rows = match kind {
        Kind::Features => {
            let array = need(&mut archive, "features")?;
            let dim = array.rank(2, "[rows, columns]")?[1];
            Rows::Features(super::features(dim, array.numbers()?)?)
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
    array.rank(1, "[rows]")?;
    let mut data = Dataset {
        rows,
        labels: Vec::new(),
        classes: None,
        class_names: Vec::new(),
        columns: Vec::new(),
    };
    let place = |row| format!("labels: row {row}");
    match array.texts()? {
        Some(texts) => {
            let labels = labels::parse(&texts, place)?;
            (data.labels, data.class_names) = (labels.labels, labels.names);
        }
        None => data.labels = labels::from_numbers(array.numbers()?, place)?,
    }
    if let Some(array) = find(&mut archive, "classes")? {
        match array.texts()? {
            Some(names) => {
                check_names(&names)?;
                data.rename(&names).map_err(DataError::Wrong)?;
                data.classes = Some(names.len());
            }
            None => {
                let value = array.scalar()?;
                let classes = usize::try_from(value).map_err(|_| {
                    DataError::Wrong(format!("classes is {value}; it must be 2 or more"))
                })?;
                data.classes = Some(classes);
            }
        }
    }
    Ok(data)
}

fn broken(what: &str, error: &dyn std::fmt::Display) -> DataError {
    DataError::Broken(format!("{what}: {error}"))
}

fn need(archive: &mut ZipArchive<impl Read + Seek>, name: &str) -> Result<Array, DataError> {
    find(archive, name)?.ok_or_else(|| {
        let held: Vec<String> = archive
            .file_names()
            .filter_map(|name| Some(name.ok()?.trim_end_matches(".npy").to_owned()))
            .collect();
        DataError::Wrong(format!(
            "array '{name}' is missing; the archive holds: {}",
            if held.is_empty() {
                "nothing".into()
            } else {
                held.join(", ")
            }
        ))
    })
}

fn find(
    archive: &mut ZipArchive<impl Read + Seek>,
    name: &str,
) -> Result<Option<Array>, DataError> {
    let entry = match archive.by_name(&format!("{name}.npy")) {
        Ok(entry) => entry,
        Err(zip::result::ZipError::FileNotFound) => return Ok(None),
        Err(error) => return Err(broken(name, &error)),
    };
    let mut file = entry;
    let broken = |error: std::io::Error| broken(&format!("array '{name}'"), &error);
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
    if array.bytes.len() as u64 != due {
        return Err(DataError::Broken(format!(
            "array '{name}': its header announces shape {:?} of {}, {} {} bytes follow",
            array.header.shape(),
            array.dtype(),
            if array.bytes.len() as u64 > due {
                "more than"
            } else {
                "only"
            },
            due.min(array.bytes.len() as u64)
        )));
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
    if nested('{') || nested('(') || text.contains('[') {
        return refuse("its header is not that of an array of plain numbers");
    }
    let shape = text
        .split("shape")
        .nth(1)
        .and_then(|rest| rest.split(')').next());
    let digits = shape.map(|shape| shape.chars().filter(char::is_ascii_digit).count());
    if digits.is_some_and(|digits| digits > 18) {
        return refuse("its shape is too large");
    }
    Ok(start)
}

impl Array {
    fn dtype(&self) -> String {
        self.header.dtype().descr().trim_matches('\'').to_owned()
    }

    fn wrong(&self, due: &str) -> DataError {
        DataError::Wrong(format!(
            "array '{}' has dtype {} and shape {:?}; {due} is needed",
            self.name,
            self.dtype(),
            self.header.shape()
        ))
    }

    fn rank(&self, rank: usize, layout: &str) -> Result<Vec<usize>, DataError> {
        let shape = self.header.shape();
        if shape.len() != rank {
            return Err(self.wrong(&format!("a {rank}-dimensional array {layout}")));
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

    /// The entries as doubles, if they are numbers.
    fn numbers(&self) -> Result<Vec<f64>, DataError> {
        let half = || {
            let values = self.entries::<f16>()?.into_iter();
            Some(values.map(f64::from).collect())
        };
        let single = || Some(self.entries::<f32>()?.into_iter().map(f64::from).collect());
        let values = self.entries::<f64>().or_else(single).or_else(half);
        let values = match values {
            Some(values) => values,
            None => {
                let integers = self.integers();
                let integers = integers.map_err(|_| self.wrong("an integer or floating type"))?;
                integers.into_iter().map(|value| value as f64).collect()
            }
        };
        Ok(self.by_rows(values))
    }

    /// The entries as texts, if they are texts: numpy's `U` (UTF-32) or `S` (bytes).
    fn texts(&self) -> Result<Option<Vec<String>>, DataError> {
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
        let shape = self.rank(2, "[rows, bytes]")?;
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

/// As [`arrays_from_npz`](super::arrays_from_npz).
pub(super) fn read_arrays(reader: impl Read + Seek) -> Result<Arrays, DataError> {
    let mut archive = ZipArchive::new(reader).map_err(|error| broken("archive", &error))?;
    if archive.len() > MAX_ARRAYS {
        return Err(DataError::Wrong(format!(
            "{} arrays; at most {MAX_ARRAYS} are allowed",
            archive.len()
        )));
    }
    let mut names = Vec::with_capacity(archive.len());
    for place in 0..archive.len() {
        let file = archive.by_index_raw(place);
        let file = file.map_err(|error| broken("archive", &error))?;
        let name = file.name().map_err(|error| broken("archive", &error))?;
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
        } else {
            return Err(array.wrong("float32 or float64"));
        }
    }
    Ok(arrays)
}

/// As [`arrays_to_npz`](super::arrays_to_npz).
pub(super) fn write_arrays(writer: impl Write + Seek, arrays: &Arrays) -> std::io::Result<()> {
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
    writer: impl Write + Seek,
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
mod tests {
    use super::*;
    use std::io::Cursor;

    #[test]
    fn what_is_written_is_read() {
        let features = Features::new(2, vec![1.0, 2.0, 0.5, -4.0]).unwrap();
        let labelling = Labelling::new(3, vec![None, Some(1)]).unwrap();
        let mut bytes = Cursor::new(Vec::new());
        write(&mut bytes, &features, &labelling).unwrap();
        let data = read(bytes, Kind::Features).unwrap();
        assert!(matches!(data.rows, Rows::Features(read) if read == features));
        assert_eq!(data.labels, labelling.labels());
        assert_eq!(data.classes, Some(3));
        let names = ["ill", "unwohl", "gesünder"].map(str::to_owned).to_vec();
        let named = labelling.with_names(names.clone()).unwrap();
        let mut bytes = Cursor::new(Vec::new());
        write(&mut bytes, &features, &named).unwrap();
        let data = read(bytes, Kind::Features).unwrap();
        assert_eq!(
            (data.labels, data.class_names),
            (named.labels().to_vec(), names)
        );
    }

    #[test]
    fn arrays_that_are_written_are_read() {
        let mut arrays = Arrays::new();
        arrays
            .push("w", vec![2, 2], vec![1.0f32, 2.0, 3.0, 4.0])
            .unwrap();
        arrays.push("b", vec![], vec![0.1f64]).unwrap();
        let mut bytes = Cursor::new(Vec::new());
        write_arrays(&mut bytes, &arrays).unwrap();
        assert_eq!(read_arrays(bytes).unwrap(), arrays);
        // Three dimensions, the first index running fastest.
        let fortran = "{'descr': '<f4', 'fortran_order': True, 'shape': (2, 1, 3), }";
        let fortran = archive(&[("t", raw(fortran, &floats(&[1., 4., 2., 5., 3., 6.])))]);
        let read = read_arrays(Cursor::new(fortran)).unwrap();
        let values = read.get("t").unwrap().to_doubles();
        assert_eq!(values, [1., 2., 3., 4., 5., 6.]);
        let integers = archive(&[("t", array("<i4", "(1,)", &[1, 0, 0, 0]))]);
        let error = read_arrays(Cursor::new(integers)).unwrap_err().to_string();
        assert!(error.contains("float32 or float64"), "{error}");
    }

    fn raw(header: &str, data: &[u8]) -> Vec<u8> {
        let mut out = b"\x93NUMPY\x01\x00".to_vec();
        out.extend((header.len() as u16).to_le_bytes());
        out.extend(header.as_bytes());
        out.extend(data);
        out
    }

    fn array(descr: &str, shape: &str, data: &[u8]) -> Vec<u8> {
        let header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}");
        raw(&header, data)
    }

    fn archive(entries: &[(&str, Vec<u8>)]) -> Vec<u8> {
        let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
        for (name, bytes) in entries {
            zip.start_file(format!("{name}.npy"), SimpleFileOptions::default())
                .unwrap();
            zip.write_all(bytes).unwrap();
        }
        zip.finish().unwrap().into_inner()
    }

    fn floats(values: &[f32]) -> Vec<u8> {
        values
            .iter()
            .flat_map(|value| value.to_le_bytes())
            .collect()
    }

    fn features(shape: &str, values: &[f32]) -> (&'static str, Vec<u8>) {
        ("features", array("<f4", shape, &floats(values)))
    }

    fn labels() -> (&'static str, Vec<u8>) {
        ("labels", array("|i1", "(2,)", &[1, 0xff]))
    }

    fn error(bytes: Vec<u8>, kind: Kind) -> String {
        read(Cursor::new(bytes), kind).unwrap_err().to_string()
    }

    #[test]
    fn rows_and_labels() {
        let c = archive(&[features("(2, 3)", &[1., 2., 3., 4., 5., 6.]), labels()]);
        let fortran = "{'descr': '<f4', 'fortran_order': True, 'shape': (2, 3), }";
        let fortran = ("features", raw(fortran, &floats(&[1., 4., 2., 5., 3., 6.])));
        for bytes in [c, archive(&[fortran, labels()])] {
            let data = read(Cursor::new(bytes), Kind::Features).unwrap();
            let Rows::Features(features) = data.rows else {
                panic!("features were asked for");
            };
            assert_eq!(features.dim(), 3);
            assert_eq!(features.values(), [1., 2., 3., 4., 5., 6.]);
            assert_eq!(data.labels, [Some(1), None]);
        }
    }

    #[test]
    fn features_of_other_types() {
        let half = [0x00, 0x3c, 0x00, 0xc0]; // 1 and -2
        for features in [
            array("<f2", "(2, 1)", &half),
            array("|i1", "(2, 1)", &[1, 0xfe]),
            array(">i2", "(2, 1)", &[0, 1, 0xff, 0xfe]),
        ] {
            let bytes = archive(&[("features", features), labels()]);
            let data = read(Cursor::new(bytes), Kind::Features).unwrap();
            assert!(matches!(data.rows, Rows::Features(own) if own.values() == [1.0, -2.0]));
        }
    }

    #[test]
    fn labels_of_other_types() {
        let wide = |text: &str| -> Vec<u8> {
            let codes = text.chars().flat_map(|c| u32::from(c).to_le_bytes());
            codes.collect()
        };
        let names = ["ill\0", "NA\0\0", "well"];
        let unicode: Vec<u8> = names.iter().flat_map(|name| wide(name)).collect();
        let table = ["well", "ill\0", "dead"];
        let table: Vec<u8> = table.iter().flat_map(|name| wide(name)).collect();
        let rows = features("(3, 1)", &[1., 2., 3.]);
        let read = |entries: &[(&str, Vec<u8>)]| {
            let mut all = vec![rows.clone()];
            all.extend_from_slice(entries);
            read(Cursor::new(archive(&all)), Kind::Features).unwrap()
        };
        for labels in [
            array("<U4", "(3,)", &unicode),
            array("|S4", "(3,)", names.concat().as_bytes()),
        ] {
            let data = read(&[("labels", labels.clone())]);
            assert_eq!(data.labels, [Some(0), None, Some(1)]);
            assert_eq!(data.class_names, ["ill", "well"]);
            let data = read(&[
                ("labels", labels),
                ("classes", array("<U4", "(3,)", &table)),
            ]);
            assert_eq!(data.labels, [Some(1), None, Some(0)]);
            assert_eq!(data.class_names, ["well", "ill", "dead"]);
            assert_eq!(data.classes, Some(3));
        }
        let numbers = array("<f4", "(3,)", &floats(&[1.0, f32::NAN, -1.0]));
        assert_eq!(read(&[("labels", numbers)]).labels, [Some(1), None, None]);
    }

    #[test]
    fn codes_in_numpys_order() {
        let codes = ("codes", array("|u1", "(2, 2)", &[0x80, 0x40, 0x01, 0x00]));
        let bits = ("bits", array("<i8", "()", &10i64.to_le_bytes()));
        let data = read(Cursor::new(archive(&[codes, bits, labels()])), Kind::Codes).unwrap();
        let Rows::Codes(codes) = data.rows else {
            panic!("codes were asked for");
        };
        let set = |row| {
            (0..10)
                .filter(|bit| codes.bits().get(row, *bit))
                .collect::<Vec<_>>()
        };
        assert_eq!(set(0), [0, 9]);
        assert_eq!(set(1), [7]);
    }

    #[test]
    fn errors_say_what_is_wrong() {
        let good = features("(2, 1)", &[1., 2.]);
        let cases = [
            (
                vec![labels()],
                "'features' is missing; the archive holds: labels",
            ),
            (vec![good.clone()], "'labels' is missing"),
            (
                vec![("features", raw(&"{0:".repeat(20), &[])), labels()],
                "not that of an array of plain numbers",
            ),
            (
                vec![
                    ("features", array("[('a', '<f8')]", "(2,)", &[0; 16])),
                    labels(),
                ],
                "not that of an array of plain numbers",
            ),
            (vec![features("(2,)", &[1., 2.]), labels()], "2-dimensional"),
            (
                vec![("features", array("<c8", "(1, 1)", &[0; 8])), labels()],
                "an integer or floating type",
            ),
            (
                vec![
                    good.clone(),
                    ("labels", array("<f4", "(2,)", &floats(&[0., 0.5]))),
                ],
                "row 1 has the label 0.5",
            ),
            (
                vec![
                    good.clone(),
                    ("labels", array("|S1", "(2,)", b"ab")),
                    ("classes", array("|S1", "(2,)", b"bc")),
                ],
                "\"a\", which is not among the classes b, c",
            ),
            (
                vec![good.clone(), ("labels", array("|i1", "(2,)", &[0, 0xfe]))],
                "row 1 has the label -2",
            ),
            (
                vec![features("(2, 1)", &[1., f32::NAN]), labels()],
                "row 1, column 0 is NaN",
            ),
            (
                vec![features("(2, 1)", &[1., 0.]), labels()],
                "row 1 is all zeros",
            ),
            (
                vec![features("(3, 1)", &[1., 2.]), labels()],
                "only 8 bytes follow",
            ),
            (
                vec![features("(9000000000, 9000000000)", &[]), labels()],
                "too large",
            ),
            (
                vec![
                    ("features", b"\x93NUMPY\x02\0\xff\xff\xff\xff".to_vec()),
                    labels(),
                ],
                "too long",
            ),
            (
                vec![("features", b"text".to_vec()), labels()],
                "is the file complete?",
            ),
        ];
        for (entries, expected) in cases {
            let message = error(archive(&entries), Kind::Features);
            assert!(message.contains(expected), "'{message}' lacks '{expected}'");
        }
    }

    #[test]
    fn cut_archives_are_refused_everywhere() {
        let whole = archive(&[features("(2, 3)", &[1., 2., 3., 4., 5., 6.]), labels()]);
        for len in 0..whole.len() {
            assert!(
                read(Cursor::new(&whole[..len]), Kind::Features).is_err(),
                "{len} bytes"
            );
        }
    }

    #[test]
    fn changed_archives_do_not_panic() {
        let whole = archive(&[features("(2, 3)", &[1., 2., 3., 4., 5., 6.]), labels()]);
        for at in 0..whole.len() {
            for change in [1, 0x80, 0xff] {
                let mut bytes = whole.clone();
                bytes[at] ^= change;
                let _ = read(Cursor::new(bytes), Kind::Features);
            }
        }
    }
}
