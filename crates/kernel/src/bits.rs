//! Bit matrices: rows packed into `u64` words.
//!
//! Bit `i` of a row is bit `i mod 64` of its word `⌊i/64⌋`; bits past the last column are zero.

use zeroize::ZeroizeOnDrop;

use crate::wipe::Wiped;

/// A matrix of bits. Wiped when dropped.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct BitMatrix {
    rows: usize,
    columns: usize,
    words: Wiped<u64>,
}

impl ZeroizeOnDrop for BitMatrix {}

impl std::fmt::Debug for BitMatrix {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "BitMatrix({} x {}, ..)", self.rows, self.columns)
    }
}

impl BitMatrix {
    /// A matrix of zeros.
    pub fn zero(rows: usize, columns: usize) -> Self {
        Self {
            rows,
            columns,
            words: vec![0; rows * columns.div_ceil(64)].into(),
        }
    }

    /// A matrix from rows of whole words. Bits past the last column are cleared.
    ///
    /// # Panics
    /// When `words` does not hold `rows` rows.
    pub fn from_words(rows: usize, columns: usize, words: Vec<u64>) -> Self {
        assert_eq!(
            words.len(),
            rows * columns.div_ceil(64),
            "words of {rows} rows"
        );
        let mut out = Self {
            rows,
            columns,
            words: words.into(),
        };
        out.clear_padding(0);
        out
    }

    /// A matrix from rows of `⌈columns/8⌉` bytes, as `numpy.packbits` writes them: the first bit of
    /// a row is the top bit of its first byte. Bits past the last column are cleared.
    ///
    /// # Panics
    /// When `bytes` does not hold `rows` rows.
    pub fn from_packed(rows: usize, columns: usize, bytes: &[u8]) -> Self {
        let mut out = Self::zero(0, columns);
        out.append_packed(rows, bytes);
        out
    }

    /// Appends rows in the format of [`from_packed`](Self::from_packed).
    ///
    /// # Panics
    /// When `bytes` does not hold `rows` rows.
    pub fn append_packed(&mut self, rows: usize, bytes: &[u8]) {
        let len = self.row_bytes();
        assert_eq!(bytes.len(), rows * len, "bytes of {rows} rows");
        self.words.reserve(rows * self.stride());
        for row in bytes.chunks_exact(len.max(1)) {
            for word in row.chunks(8) {
                let mut le = [0; 8];
                for (to, from) in le.iter_mut().zip(word) {
                    *to = from.reverse_bits();
                }
                self.words.push(u64::from_le_bytes(le));
            }
        }
        self.clear_padding(self.rows);
        self.rows += rows;
    }

    /// The words of all rows. They are not wiped any more.
    pub fn into_words(self) -> Vec<u64> {
        self.words.into_inner()
    }

    /// Writes rows `range` in the format of [`from_packed`](Self::from_packed).
    ///
    /// # Panics
    /// When `range` goes past the last row.
    pub fn to_packed(&self, range: std::ops::Range<usize>) -> Vec<u8> {
        let len = self.row_bytes();
        let mut out = Vec::with_capacity(range.len() * len);
        for row in range {
            let bytes = self.row(row).iter().flat_map(|word| word.to_le_bytes());
            out.extend(bytes.take(len).map(u8::reverse_bits));
        }
        out
    }

    /// Clears the bits past the last column, from row `first` on.
    fn clear_padding(&mut self, first: usize) {
        let used = self.columns % 64;
        if used != 0 {
            let stride = self.stride();
            for row in self.words[first * stride..].chunks_exact_mut(stride) {
                if let Some(last) = row.last_mut() {
                    *last &= (1 << used) - 1;
                }
            }
        }
    }

    /// Number of rows.
    #[inline]
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Number of columns.
    #[inline]
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// Words in a row.
    #[inline]
    pub fn stride(&self) -> usize {
        self.columns.div_ceil(64)
    }

    /// Bytes in a packed row.
    #[inline]
    pub fn row_bytes(&self) -> usize {
        self.columns.div_ceil(8)
    }

    /// All words, row after row.
    #[inline]
    pub fn words(&self) -> &[u64] {
        &self.words
    }

    /// The words of a row.
    ///
    /// # Panics
    /// When there is no such row.
    #[inline]
    pub fn row(&self, row: usize) -> &[u64] {
        &self.words[row * self.stride()..(row + 1) * self.stride()]
    }

    /// The bit at `row` and `column`.
    ///
    /// # Panics
    /// When there is no such row or column.
    #[inline]
    pub fn get(&self, row: usize, column: usize) -> bool {
        assert!(column < self.columns, "column {column} of {}", self.columns);
        self.row(row)[column / 64] >> (column % 64) & 1 == 1
    }

    /// Sets the bit at `row` and `column`.
    ///
    /// # Panics
    /// When there is no such row or column.
    #[inline]
    pub fn set(&mut self, row: usize, column: usize, value: bool) {
        assert!(row < self.rows, "row {row} of {}", self.rows);
        assert!(column < self.columns, "column {column} of {}", self.columns);
        let at = row * self.stride() + column / 64;
        let mask = 1 << (column % 64);
        if value {
            self.words[at] |= mask;
        } else {
            self.words[at] &= !mask;
        }
    }

    /// The rows named by `rows`, in that order.
    ///
    /// # Panics
    /// When one of these rows does not exist.
    #[must_use]
    pub fn select(&self, rows: &[usize]) -> Self {
        let mut words = Wiped::with_capacity(rows.len() * self.stride());
        for row in rows {
            words.extend_from_slice(self.row(*row));
        }
        Self {
            rows: rows.len(),
            columns: self.columns,
            words,
        }
    }

    /// The transpose. Works on blocks of 64 × 64 bits.
    #[must_use]
    pub fn transpose(&self) -> Self {
        let mut out = Self::zero(self.columns, self.rows);
        let (stride, out_stride) = (self.stride(), out.stride());
        for block_row in 0..out_stride {
            let rows = (self.rows - 64 * block_row).min(64);
            for block_column in 0..stride {
                let mut block = [0u64; 64];
                for (r, word) in block[..rows].iter_mut().enumerate() {
                    *word = self.words[(64 * block_row + r) * stride + block_column];
                }
                transpose_block(&mut block);
                let columns = (self.columns - 64 * block_column).min(64);
                for (c, word) in block[..columns].iter().enumerate() {
                    out.words[(64 * block_column + c) * out_stride + block_row] = *word;
                }
            }
        }
        out
    }
}

/// Transposes 64 × 64 bits in place: swaps off-diagonal squares of side 32, 16, … 1
/// (Warren, Hacker's Delight, 7-3, for bits counted from the low end).
fn transpose_block(block: &mut [u64; 64]) {
    let mut side = 32;
    let mut mask = 0x0000_0000_ffff_ffff_u64;
    while side != 0 {
        for low in (0..64).filter(|row| row & side == 0) {
            let swapped = (block[low] >> side ^ block[low + side]) & mask;
            block[low] ^= swapped << side;
            block[low + side] ^= swapped;
        }
        side /= 2;
        mask ^= mask << side;
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::Prg;
    use proptest::prelude::*;

    pub(crate) fn random(rows: usize, columns: usize, seed: u8) -> BitMatrix {
        let mut prg = Prg::new(&[seed; 32]);
        let words = (0..rows * columns.div_ceil(64)).map(|_| prg.next_u64());
        BitMatrix::from_words(rows, columns, words.collect())
    }

    proptest! {
        #[test]
        fn transpose_is_the_definition(rows in 0usize..200, columns in 1usize..200, seed: u8) {
            let a = random(rows, columns, seed);
            let t = a.transpose();
            prop_assert_eq!((t.rows(), t.columns()), (columns, rows));
            for r in 0..rows {
                for c in 0..columns {
                    prop_assert_eq!(a.get(r, c), t.get(c, r));
                }
            }
            prop_assert_eq!(t.transpose(), a);
        }

        #[test]
        fn packing_is_numpys(rows in 0usize..9, columns in 1usize..150, seed: u8) {
            let a = random(rows, columns, seed);
            let packed = a.to_packed(0..rows);
            for r in 0..rows {
                for c in 0..columns {
                    let byte = packed[r * columns.div_ceil(8) + c / 8];
                    prop_assert_eq!(a.get(r, c), byte >> (7 - c % 8) & 1 == 1);
                }
            }
            prop_assert_eq!(BitMatrix::from_packed(rows, columns, &packed), a);
        }
    }

    #[test]
    fn padding_is_cleared() {
        let a = BitMatrix::from_packed(1, 3, &[0xff]);
        assert_eq!(a.words(), [0b111]);
        assert_eq!(a.to_packed(0..1), [0b1110_0000]);
        assert_eq!(BitMatrix::from_words(1, 65, vec![!0, !0]).words(), [!0, 1]);
    }
}
