//! Secret natural numbers, with the operations that making keys needs.

use undertone_kernel::Prg;
use undertone_kernel::mont::{LANES, Number, Row, number};
use zeroize::Zeroizing;

/// A natural number, 64-bit limbs, least significant first. Zeroized on drop.
#[derive(Clone)]
pub(super) struct Natural(Zeroizing<Vec<u64>>);

impl Natural {
    /// From little-endian bytes.
    pub(super) fn from_bytes(bytes: &[u8]) -> Self {
        let limbs = bytes.chunks(8).map(|chunk| {
            let mut limb = [0; 8];
            limb[..chunk.len()].copy_from_slice(chunk);
            u64::from_le_bytes(limb)
        });
        Self(Zeroizing::new(limbs.collect()))
    }

    /// Little-endian bytes.
    pub(super) fn bytes(&self) -> Zeroizing<Vec<u8>> {
        let bytes = self.0.iter().flat_map(|limb| limb.to_le_bytes());
        Zeroizing::new(bytes.collect())
    }

    /// A uniform number of `bits` bits, with the highest two bits and the lowest bit set.
    pub(super) fn random_odd(bits: usize, rng: &mut Prg) -> Self {
        let mut out = Self::random(bits, rng);
        for bit in [0, bits - 2, bits - 1] {
            out.0[bit / 64] |= 1 << (bit % 64);
        }
        out
    }

    /// A uniform number below 2^`bits`.
    fn random(bits: usize, rng: &mut Prg) -> Self {
        let mut out = Self(Zeroizing::new(vec![0; bits.div_ceil(64)]));
        out.0.iter_mut().for_each(|limb| *limb = rng.next_u64());
        if let Some(last) = out.0.last_mut() {
            *last &= u64::MAX >> (bits.wrapping_neg() % 64);
        }
        out
    }

    /// A uniform number below `self`, which is not zero. Rejected candidates are independent of the
    /// result.
    pub(super) fn random_below(&self, rng: &mut Prg) -> Self {
        let bits = self.bits();
        loop {
            let out = Self::random(bits, rng);
            if out.minus(self).1 {
                return out;
            }
        }
    }

    /// The same number without leading limbs of zeros.
    pub(super) fn trimmed(&self) -> Self {
        let limbs = self.bits().div_ceil(64);
        Self(Zeroizing::new(self.0[..limbs].to_vec()))
    }

    pub(super) fn bits(&self) -> usize {
        let top = self.0.iter().rposition(|limb| *limb != 0);
        top.map_or(0, |top| {
            64 * (top + 1) - self.0[top].leading_zeros() as usize
        })
    }

    pub(super) fn bit(&self, at: usize) -> bool {
        self.0
            .get(at / 64)
            .is_some_and(|limb| limb >> (at % 64) & 1 == 1)
    }

    pub(super) fn is_odd(&self) -> bool {
        self.bit(0)
    }

    /// `self·factor + term`, with one limb more.
    pub(super) fn times(&self, factor: u64, term: u64) -> Self {
        let mut carry = u128::from(term);
        let mut out = Zeroizing::new(Vec::with_capacity(self.0.len() + 1));
        for limb in self.0.iter() {
            carry += u128::from(*limb) * u128::from(factor);
            out.push(carry as u64);
            carry >>= 64;
        }
        out.push(carry as u64);
        Self(out)
    }

    /// `self + other`, with one limb more if there is a carry.
    pub(super) fn plus(&self, other: &Self) -> Self {
        let len = self.0.len().max(other.0.len());
        let mut out = Zeroizing::new(Vec::with_capacity(len + 1));
        let limb = |x: &Self, i: usize| u128::from(x.0.get(i).copied().unwrap_or(0));
        let mut carry = 0u128;
        for i in 0..len {
            carry += limb(self, i) + limb(other, i);
            out.push(carry as u64);
            carry >>= 64;
        }
        if carry > 0 {
            out.push(carry as u64);
        }
        Self(out)
    }

    /// `self − other` modulo a power of two, and whether the difference is negative.
    pub(super) fn minus(&self, other: &Self) -> (Self, bool) {
        let len = self.0.len().max(other.0.len());
        let limb = |x: &Self, i: usize| x.0.get(i).copied().unwrap_or(0);
        let mut borrow = false;
        let difference = (0..len).map(|i| {
            let (first, a) = limb(self, i).overflowing_sub(limb(other, i));
            let (second, b) = first.overflowing_sub(u64::from(borrow));
            borrow = a | b;
            second
        });
        let difference = Zeroizing::new(difference.collect());
        (Self(difference), borrow)
    }

    /// `self − 1`, for an odd number.
    pub(super) fn less_one(&self) -> Self {
        let mut out = self.clone();
        out.0[0] -= 1;
        out
    }

    /// The quotient and the remainder.
    pub(super) fn divided_by(&self, by: u64) -> (Self, u64) {
        let mut out = self.clone();
        let mut rest = 0u128;
        for limb in out.0.iter_mut().rev() {
            rest = rest << 64 | u128::from(*limb);
            *limb = (rest / u128::from(by)) as u64;
            rest %= u128::from(by);
        }
        (out, rest as u64)
    }

    /// The remainder, for a divisor below 2^32.
    pub(super) fn modulo(&self, by: u64) -> u64 {
        self.0.iter().rev().fold(0, |rest, limb| {
            let rest = (rest << 32 | limb >> 32) % by;
            (rest << 32 | limb & 0xffff_ffff) % by
        })
    }

    /// Writes the number to a lane.
    pub(super) fn set(&self, rows: &mut [Row], lane: usize) {
        number::set(rows, lane, &self.bytes());
    }

    /// The number in every lane.
    pub(super) fn splat(&self, rows: usize) -> Number {
        let mut out = Zeroizing::new(vec![Row::ZERO; rows]);
        (0..LANES).for_each(|lane| self.set(&mut out, lane));
        out
    }
}

impl std::fmt::Debug for Natural {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Natural(..)")
    }
}
