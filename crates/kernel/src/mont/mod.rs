//! Montgomery arithmetic on eight numbers at once, modulo eight odd moduli of up to 6144 bits and
//! modulo their squares.
//!
//! *Layout.* A number has digits of 52 bits, least significant first. A [`Row`] is one digit of
//! eight numbers, and a register of AVX-512 IFMA holds a row. The other paths use the same digits,
//! and all paths give the same rows.
//!
//! ```text
//!            lane 0   lane 1          lane 7
//! row 0    │ a₀      │ b₀      │ … │ h₀      │     a = Σ aᵢ·2^{52 i}
//! row 1    │ a₁      │ b₁      │ … │ h₁      │
//! …
//! ```
//!
//! *Bounds.* A modulus M of k rows has M < 2^{52 k − 4}; R = 2^{52 k}. Factors and products are
//! below 2M, so nothing is subtracted in between. [`Ring::settle`] brings a number below M.
//!
//! *Squares.* A residue a modulo M² is a pair, a = a₀ + a₁·M, with a₀, a₁ modulo M: 2k rows. Let m
//! be the quotient of Montgomery's reduction of a₀·b₀, so that a₀·b₀ = R·t − m·M. Then
//!
//! ```text
//! a·b / R  =  t + M · (a₀·b₁ + a₁·b₀ − m) / R        (mod M²)
//! ```
//!
//! This takes five products of k by k digits instead of the eight of a reduction modulo M². A
//! square takes three and a half.
//!
//! *Constant time.* Nothing here branches on, or indexes by, the values of numbers. Results and
//! tables are zeroized on drop. What multiplication leaves on the stack is not.

pub mod number;
pub mod products;

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod ifma;
mod look_up;
mod modulus;
mod pass;
mod portable;
mod power;
mod squared;
#[cfg(test)]
mod tests;

pub use modulus::Modulus;
pub use power::{FixedBase, Ring, power};
pub use squared::Squared;

use zeroize::{Zeroize, Zeroizing};

/// Numbers in a row.
pub const LANES: usize = 8;

/// Bits of a digit.
pub const RADIX: u32 = 52;

/// Longest modulus, in bits.
pub const MAX_BITS: usize = 6144;

const MASK: u64 = (1 << RADIX) - 1;

/// Digits in a tile. The sizes in use are 20, 30, 40, 60 and 80 digits.
const TILE: usize = 5;

/// One digit of eight numbers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C, align(64))]
pub struct Row(pub [u64; LANES]);

impl Row {
    /// A row of zeros.
    pub const ZERO: Self = Self([0; LANES]);

    /// The same digit in every lane.
    pub const fn splat(digit: u64) -> Self {
        Self([digit; LANES])
    }
}

/// Rows of a number, zeroized on drop.
pub type Number = Zeroizing<Vec<Row>>;

impl Zeroize for Row {
    fn zeroize(&mut self) {
        self.0.zeroize();
    }
}
