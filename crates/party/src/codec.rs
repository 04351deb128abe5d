//! Reads and writes payloads. Integers are little-endian.
//!
//! A decoder knows the shape of the message and tells [`Reader`]. The reader compares a length with
//! the bytes that are left before it allocates memory.

/// Why bytes do not decode.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// The payload ends inside a field.
    #[error("{what}: {need} bytes are due, {have} are left")]
    Short {
        /// The field.
        what: &'static str,
        /// Bytes that the field needs.
        need: usize,
        /// Bytes that are left.
        have: usize,
    },
    /// Bytes are left after the last field.
    #[error("{extra} bytes too many")]
    Trailing {
        /// The number of bytes.
        extra: usize,
    },
    /// A field has an invalid value.
    #[error("{what}: {why}")]
    Invalid {
        /// The field.
        what: &'static str,
        /// What is wrong with it.
        why: &'static str,
    },
    /// A number is outside its range.
    #[error("{what} is {value}, which is outside {bound}")]
    OutOfRange {
        /// The field.
        what: &'static str,
        /// Its value.
        value: u64,
        /// The range.
        bound: String,
    },
}

/// Builds a payload.
#[derive(Debug, Default)]
pub struct Writer {
    bytes: Vec<u8>,
}

impl Writer {
    /// A writer with room for `capacity` bytes.
    pub fn with_capacity(capacity: usize) -> Self {
        Self {
            bytes: Vec::with_capacity(capacity),
        }
    }

    /// Appends a byte.
    pub fn u8(&mut self, value: u8) {
        self.bytes.push(value);
    }

    /// Appends two bytes.
    pub fn u16(&mut self, value: u16) {
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    /// Appends four bytes.
    pub fn u32(&mut self, value: u32) {
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    /// Appends eight bytes.
    pub fn u64(&mut self, value: u64) {
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    /// Appends `values`, eight bytes each.
    pub fn u64s(&mut self, values: &[u64]) {
        self.bytes.reserve(8 * values.len());
        for value in values {
            self.u64(*value);
        }
    }

    /// Appends `values`, eight bytes each.
    pub fn f64s(&mut self, values: &[f64]) {
        self.bytes.reserve(8 * values.len());
        for value in values {
            self.bytes.extend_from_slice(&value.to_le_bytes());
        }
    }

    /// Appends bytes without their length. The reader must know the length.
    pub fn raw(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// The payload.
    pub fn finish(self) -> Vec<u8> {
        self.bytes
    }
}

/// Reads the fields of a payload in order.
#[derive(Debug)]
pub struct Reader<'a> {
    bytes: &'a [u8],
}

impl<'a> Reader<'a> {
    /// A reader of the whole of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    /// Bytes not yet read.
    pub fn remaining(&self) -> usize {
        self.bytes.len()
    }

    /// Takes `len` bytes. `what` names the field in an error.
    ///
    /// # Errors
    /// [`DecodeError::Short`].
    pub fn raw(&mut self, len: usize, what: &'static str) -> Result<&'a [u8], DecodeError> {
        let Some((head, tail)) = self.bytes.split_at_checked(len) else {
            return Err(DecodeError::Short {
                what,
                need: len,
                have: self.bytes.len(),
            });
        };
        self.bytes = tail;
        Ok(head)
    }

    /// Takes `N` bytes.
    ///
    /// # Errors
    /// [`DecodeError::Short`].
    pub fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], DecodeError> {
        let mut out = [0; N];
        out.copy_from_slice(self.raw(N, what)?);
        Ok(out)
    }

    /// Takes a byte.
    ///
    /// # Errors
    /// [`DecodeError::Short`].
    pub fn u8(&mut self, what: &'static str) -> Result<u8, DecodeError> {
        self.array(what).map(u8::from_le_bytes)
    }

    /// Takes two bytes.
    ///
    /// # Errors
    /// [`DecodeError::Short`].
    pub fn u16(&mut self, what: &'static str) -> Result<u16, DecodeError> {
        self.array(what).map(u16::from_le_bytes)
    }

    /// Takes four bytes.
    ///
    /// # Errors
    /// [`DecodeError::Short`].
    pub fn u32(&mut self, what: &'static str) -> Result<u32, DecodeError> {
        self.array(what).map(u32::from_le_bytes)
    }

    /// Takes eight bytes.
    ///
    /// # Errors
    /// [`DecodeError::Short`].
    pub fn u64(&mut self, what: &'static str) -> Result<u64, DecodeError> {
        self.array(what).map(u64::from_le_bytes)
    }

    /// Takes `count` words of eight bytes.
    ///
    /// # Errors
    /// [`DecodeError::Short`].
    pub fn u64s(
        &mut self,
        count: usize,
        what: &'static str,
    ) -> Result<impl ExactSizeIterator<Item = u64> + use<'a>, DecodeError> {
        let bytes = self.raw(count.saturating_mul(8), what)?;
        let (words, _) = bytes.as_chunks::<8>();
        Ok(words.iter().map(|word| u64::from_le_bytes(*word)))
    }

    /// A `u32` below `bound`.
    ///
    /// # Errors
    /// [`DecodeError::Short`] or [`DecodeError::OutOfRange`].
    pub fn index(&mut self, bound: usize, what: &'static str) -> Result<usize, DecodeError> {
        let value = self.u32(what)?;
        if (value as usize) < bound {
            Ok(value as usize)
        } else {
            Err(DecodeError::OutOfRange {
                what,
                value: value.into(),
                bound: format!("0..{bound}"),
            })
        }
    }

    /// A byte that is 0 or 1.
    ///
    /// # Errors
    /// [`DecodeError::Short`] or [`DecodeError::OutOfRange`].
    pub fn flag(&mut self, what: &'static str) -> Result<bool, DecodeError> {
        match self.u8(what)? {
            0 => Ok(false),
            1 => Ok(true),
            value => Err(DecodeError::OutOfRange {
                what,
                value: value.into(),
                bound: "0..2".into(),
            }),
        }
    }

    /// Ends the payload, which must have no bytes left.
    ///
    /// # Errors
    /// [`DecodeError::Trailing`] when bytes are left.
    pub fn finish(self) -> Result<(), DecodeError> {
        match self.bytes.len() {
            0 => Ok(()),
            extra => Err(DecodeError::Trailing { extra }),
        }
    }
}
