//! Numbers of `w` bits each, packed. Number i is bits `i·w` to `(i+1)·w − 1`, counted from the low
//! bit of the first byte.

use crate::product52::{COLUMNS, Panel};

/// Widest number.
pub const MAX_WIDTH: u32 = 16;

/// Bytes of capacity that [`pack`] needs beyond [`packed_len`].
pub const SLACK: usize = 16;

/// Bytes of `count` numbers of `width` bits.
pub fn packed_len(width: u32, count: usize) -> usize {
    (count * width as usize).div_ceil(8)
}

/// Appends the lowest `width` bits of each of `values`. The last byte is filled up with zeros.
///
/// # Panics
/// When `width` is not from 1 to [`MAX_WIDTH`].
pub fn pack(width: u32, values: &[u16], out: &mut Vec<u8>) {
    assert!((1..=MAX_WIDTH).contains(&width), "numbers of {width} bits");
    let (eights, rest) = values.as_chunks::<8>();
    out.reserve(packed_len(width, values.len()) + SLACK);
    for eight in eights {
        let len = out.len();
        out.extend_from_slice(&join(width, eight).to_le_bytes());
        out.truncate(len + width as usize);
    }
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    let bytes = join(width, &last).to_le_bytes();
    out.extend_from_slice(&bytes[..packed_len(width, rest.len())]);
}

/// Reads `values.len()` numbers of `width` bits.
///
/// # Panics
/// When `width` is not from 1 to [`MAX_WIDTH`], or the length of `bytes` is not [`packed_len`].
pub fn unpack(width: u32, bytes: &[u8], values: &mut [u16]) {
    assert!((1..=MAX_WIDTH).contains(&width), "numbers of {width} bits");
    assert_eq!(bytes.len(), packed_len(width, values.len()), "packed bytes");
    let mut at = 0;
    for values in values.chunks_mut(8) {
        let mut block = [0; 16];
        match bytes.get(at..at + 16) {
            Some(whole) => block.copy_from_slice(whole),
            None => block[..bytes.len() - at].copy_from_slice(&bytes[at..]),
        }
        at += width as usize;
        let eight = split(width, u128::from_le_bytes(block));
        values.copy_from_slice(&eight[..values.len()]);
    }
}

/// Widest number of [`pack_words`].
pub const MAX_WORD_WIDTH: u32 = 56;

/// Like [`pack`], for numbers of up to [`MAX_WORD_WIDTH`] bits.
///
/// # Panics
/// When `width` is not from 1 to [`MAX_WORD_WIDTH`].
pub fn pack_words(width: u32, values: &[u64], out: &mut Vec<u8>) {
    assert!(
        (1..=MAX_WORD_WIDTH).contains(&width),
        "numbers of {width} bits"
    );
    let mask = u64::MAX >> (64 - width);
    let start = out.len();
    let len = packed_len(width, values.len());
    // Each write covers eight bytes.
    out.resize(start + len + 8, 0);
    let bytes = &mut out[start..];
    // Bits that do not fill a byte yet.
    let (mut rest, mut filled, mut at) = (0u64, 0, 0);
    for value in values {
        rest |= (value & mask) << filled;
        bytes[at..at + 8].copy_from_slice(&rest.to_le_bytes());
        filled += width;
        let whole = filled / 8;
        at += whole as usize;
        filled %= 8;
        rest >>= 8 * whole;
    }
    out.truncate(start + len);
}

/// Like [`unpack`], for numbers of up to [`MAX_WORD_WIDTH`] bits.
///
/// # Panics
/// When `width` is not from 1 to [`MAX_WORD_WIDTH`], or the length of `bytes` is not
/// [`packed_len`].
pub fn unpack_words(width: u32, bytes: &[u8], values: &mut [u64]) {
    assert!(
        (1..=MAX_WORD_WIDTH).contains(&width),
        "numbers of {width} bits"
    );
    assert_eq!(bytes.len(), packed_len(width, values.len()), "packed bytes");
    let mask = u64::MAX >> (64 - width);
    for (i, value) in values.iter_mut().enumerate() {
        let bit = i * width as usize;
        *value = word(bytes, bit / 8) >> (bit % 8) & mask;
    }
}

/// Reads numbers of `width` bits into columns of a panel, from column `first` on: number `l` of
/// `packed[c]` goes to row `l`, column `first + c`.
///
/// # Panics
/// When `width` is not from 1 to [`MAX_WORD_WIDTH`], a length is not [`packed_len`] of the rows of
/// the panel, or there are more columns than the panel has.
pub fn unpack_columns(width: u32, packed: &[&[u8]], first: usize, panel: &mut [Panel]) {
    assert!(
        (1..=MAX_WORD_WIDTH).contains(&width),
        "numbers of {width} bits"
    );
    assert!(first + packed.len() <= COLUMNS, "columns");
    let due = packed_len(width, panel.len());
    assert!(
        packed.iter().all(|bytes| bytes.len() == due),
        "packed bytes"
    );
    let mask = u64::MAX >> (64 - width);
    for (row, out) in panel.iter_mut().enumerate() {
        let bit = row * width as usize;
        for (bytes, out) in packed.iter().zip(&mut out.0[first..]) {
            *out = word(bytes, bit / 8) >> (bit % 8) & mask;
        }
    }
}

/// The eight bytes from `at` on, little-endian. Bytes past the end are zero.
#[inline(always)]
fn word(bytes: &[u8], at: usize) -> u64 {
    match bytes[at..].first_chunk() {
        Some(whole) => u64::from_le_bytes(*whole),
        None => {
            let mut last = [0; 8];
            last[..bytes.len() - at].copy_from_slice(&bytes[at..]);
            u64::from_le_bytes(last)
        }
    }
}

/// Eight numbers, 8·`width` bits.
#[inline(always)]
fn join(width: u32, values: &[u16; 8]) -> u128 {
    let mask = u64::MAX >> (64 - width);
    let half = |four: &[u16]| {
        let mut joined = 0;
        for (i, value) in four.iter().enumerate() {
            joined |= (u64::from(*value) & mask) << (i as u32 * width);
        }
        u128::from(joined)
    };
    half(&values[..4]) | half(&values[4..]) << (4 * width)
}

#[inline(always)]
fn split(width: u32, bits: u128) -> [u16; 8] {
    let mask = u64::MAX >> (64 - width);
    let halves = [bits as u64, (bits >> (4 * width)) as u64];
    std::array::from_fn(|i| (halves[i / 4] >> ((i % 4) as u32 * width) & mask) as u16)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_packed_comes_back(width in 1u32..=16, values: Vec<u16>) {
            let mut bytes = vec![9];
            pack(width, &values, &mut bytes);
            prop_assert_eq!(bytes.len(), 1 + packed_len(width, values.len()));
            // Bit by bit, from the definition.
            for (i, value) in values.iter().enumerate() {
                for bit in 0..width as usize {
                    let at = 8 + i * width as usize + bit;
                    prop_assert_eq!(bytes[at / 8] >> (at % 8) & 1, (value >> bit & 1) as u8);
                }
            }
            let mut back = vec![0; values.len()];
            unpack(width, &bytes[1..], &mut back);
            let mask = u16::MAX >> (16 - width);
            prop_assert!(back.iter().zip(&values).all(|(a, b)| *a == b & mask));
        }

        #[test]
        fn words_that_are_packed_come_back(width in 1u32..=56, values: Vec<u64>) {
            let mut bytes = vec![9];
            pack_words(width, &values, &mut bytes);
            prop_assert_eq!(bytes.len(), 1 + packed_len(width, values.len()));
            for (i, value) in values.iter().enumerate() {
                for bit in 0..width as usize {
                    let at = 8 + i * width as usize + bit;
                    prop_assert_eq!(bytes[at / 8] >> (at % 8) & 1, (value >> bit & 1) as u8);
                }
            }
            let mut back = vec![0; values.len()];
            unpack_words(width, &bytes[1..], &mut back);
            let mask = u64::MAX >> (64 - width);
            prop_assert!(back.iter().zip(&values).all(|(a, b)| *a == b & mask));
            let mut panel = vec![Panel([7; COLUMNS]); values.len()];
            unpack_columns(width, &[&bytes[1..]; 3], 5, &mut panel);
            for (panel, value) in panel.iter().zip(&values) {
                let due: [u64; COLUMNS] =
                    std::array::from_fn(|c| if (5..8).contains(&c) { value & mask } else { 7 });
                prop_assert_eq!(panel.0, due);
            }
        }
    }
}
