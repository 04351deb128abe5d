//! Named arrays, and writing of archives.

use std::io::Write;

use npyz::half::f16;
use npyz::{AutoSerialize, WriterBuilder};
use undertone_label::{Features, Labelling};
use zip::CompressionMethod;
use zip::write::{SimpleFileOptions, ZipWriter};

use super::{Source, Target, broken, need, open};
use crate::DataError;
use undertone_rounds::arrays::{Arrays, MAX_ARRAYS, Values};

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

/// As [`arrays_from_npz`](crate::arrays_from_npz).
pub(crate) fn read_arrays(reader: &mut dyn Source) -> Result<Arrays, DataError> {
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

/// As [`arrays_to_npz`](crate::arrays_to_npz).
pub(crate) fn write_arrays(writer: &mut dyn Target, arrays: &Arrays) -> std::io::Result<()> {
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

/// As [`to_npz`](crate::to_npz).
pub(crate) fn write(
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
