//! Many small numbers in one plaintext.

use num_bigint::BigUint;

use super::PaillierError;

/// Slots of w bits: value q of a plaintext counts `2^{wq}`. Sums of plaintexts are sums of values
/// as long as no sum reaches 2^w.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slots {
    width: u32,
    count: usize,
}

impl Slots {
    /// The slots of `width` bits that fit a modulus of `bits` bits: ⌊(bits − 1)/width⌋.
    ///
    /// # Errors
    /// [`PaillierError::Slots`] when the width is not from 1 to 64, or not one slot fits.
    pub fn new(bits: usize, width: u32) -> Result<Self, PaillierError> {
        if !(1..=64).contains(&width) || bits <= width as usize {
            return Err(PaillierError::Slots(format!(
                "slots of {width} bits in {bits}"
            )));
        }
        Ok(Self {
            width,
            count: (bits - 1) / width as usize,
        })
    }

    /// Number of slots.
    pub fn count(self) -> usize {
        self.count
    }

    /// Bits of a slot.
    pub fn width(self) -> u32 {
        self.width
    }

    /// Packs values into a plaintext.
    ///
    /// # Errors
    /// [`PaillierError::Slots`] when there are more values than slots, or a value does not fit its
    /// slot.
    pub fn pack(self, values: &[u64]) -> Result<BigUint, PaillierError> {
        let bad = |what: String| Err(PaillierError::Slots(what));
        // PAI-7
        if values.len() > self.count {
            return bad(format!("{} values in {} slots", values.len(), self.count));
        }
        let most = u64::MAX >> (64 - self.width);
        if let Some(value) = values.iter().find(|value| **value > most) {
            return bad(format!("{value} in a slot of {} bits", self.width));
        }
        let mut bytes = Vec::with_capacity((values.len() * self.width as usize).div_ceil(8) + 8);
        let (mut buffer, mut bits) = (0u128, 0);
        for value in values {
            buffer |= u128::from(*value) << bits;
            bits += self.width;
            while bits >= 8 {
                bytes.push(buffer as u8);
                buffer >>= 8;
                bits -= 8;
            }
        }
        bytes.push(buffer as u8);
        Ok(BigUint::from_bytes_le(&bytes))
    }

    /// The values of the first `count` slots.
    ///
    /// # Errors
    /// [`PaillierError::Slots`] when there are fewer slots, or the plaintext is longer than these.
    pub fn unpack(self, plain: &BigUint, count: usize) -> Result<Vec<u64>, PaillierError> {
        // PAI-8
        if count > self.count || plain.bits() > count as u64 * u64::from(self.width) {
            return Err(PaillierError::Slots(format!(
                "a number of {} bits as {count} values of {}",
                plain.bits(),
                self.width
            )));
        }
        let mut bytes = plain.to_bytes_le().into_iter();
        let (mut buffer, mut bits) = (0u128, 0);
        let values = (0..count).map(|_| {
            while bits < self.width {
                buffer |= u128::from(bytes.next().unwrap_or(0)) << bits;
                bits += 8;
            }
            let value = buffer as u64 & (u64::MAX >> (64 - self.width));
            buffer >>= self.width;
            bits -= self.width;
            value
        });
        Ok(values.collect())
    }
}
