//! One array of an archive: its header, and its entries as numbers, texts or codes.

use std::io::Read;

use npyz::half::f16;
use npyz::{Deserialize, NpyFile, NpyHeader, Order};
use undertone_kernel::BitMatrix;
use undertone_label::Codes;

use crate::DataError;

/// Longest array header in bytes.
const MAX_HEADER: usize = 1 << 16;

/// An array of the archive, not yet decoded.
pub(super) struct Array {
    pub(super) name: String,
    pub(super) header: NpyHeader,
    pub(super) bytes: Vec<u8>,
}

/// Reads an array's header. Refuses headers that the parser cannot handle safely: one that is too
/// long or nested (the parser takes exponential time), or a shape of more than 2^64 entries.
pub(super) fn checked_header(file: &mut impl Read) -> std::io::Result<Vec<u8>> {
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
    pub(super) fn dtype(&self) -> String {
        self.header.dtype().descr().trim_matches('\'').to_owned()
    }

    pub(super) fn wrong(&self, due: &str) -> DataError {
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

    pub(super) fn rank(
        &self,
        rank: usize,
        layout: &str,
        remedy: &str,
    ) -> Result<Vec<usize>, DataError> {
        let shape = self.header.shape();
        if shape.len() != rank {
            let due = format!("a {rank}-dimensional array {layout}");
            return Err(self.refused(&due, remedy));
        }
        Ok(shape.iter().map(|len| *len as usize).collect())
    }

    /// The entries, as stored, if they are of type `T`.
    pub(super) fn entries<T: Deserialize>(&self) -> Option<Vec<T>> {
        let file = NpyFile::with_header(self.header.clone(), &self.bytes[..]);
        file.data::<T>().ok()?.collect::<Result<_, _>>().ok()
    }

    /// The entries in row-major order, whether or not they are stored so.
    pub(super) fn by_rows<T: Copy>(&self, entries: Vec<T>) -> Vec<T> {
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
    pub(super) fn numbers(&self) -> Result<Vec<f64>, DataError> {
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
    pub(super) fn texts(&self) -> Result<Option<Vec<String>>, DataError> {
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

    pub(super) fn scalar(&self) -> Result<i64, DataError> {
        match self.integers()?[..] {
            [value] => Ok(value),
            _ => Err(self.wrong("one integer")),
        }
    }

    pub(super) fn codes(&self, bits: usize) -> Result<Codes, DataError> {
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
