//! Arithmetic modulo eight moduli.

#![allow(clippy::needless_range_loop)] // lanes go by number

use zeroize::Zeroizing;

use super::power::Ring;
use super::{LANES, MASK, MAX_BITS, Number, RADIX, Row, TILE, number, pass};
use crate::cpu::Cpu;

/// Eight odd moduli, one for each lane. Residues are in Montgomery form, x·R, unless stated
/// otherwise.
#[derive(Clone)]
pub struct Modulus {
    m: Number,
    /// −1/M modulo 2^52.
    inverse: Zeroizing<Row>,
    /// R and R² modulo M.
    one: Number,
    square: Number,
    cpu: Cpu,
}

impl std::fmt::Debug for Modulus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Modulus({} rows, ..)", self.m.len())
    }
}

impl Modulus {
    /// Rows of a modulus of `bits` bits.
    pub fn rows_for(bits: usize) -> usize {
        (bits + 4).div_ceil(RADIX as usize).next_multiple_of(TILE)
    }

    /// Arithmetic modulo the numbers in `m`, of at most `bits` bits.
    ///
    /// # Panics
    /// When a modulus is even or 1, or longer than `bits`, or `bits` is more than [`MAX_BITS`].
    pub fn new(cpu: Cpu, bits: usize, m: &[Row]) -> Self {
        assert!(bits <= MAX_BITS, "a modulus of {bits} bits");
        let rows = Self::rows_for(bits);
        let (m, beyond) = m.split_at(rows.min(m.len()));
        assert!(beyond.iter().all(|row| *row == Row::ZERO), "a long modulus");
        let mut whole = Zeroizing::new(m.to_vec());
        whole.resize(rows, Row::ZERO);
        assert!(number::fits(&whole, bits), "a long modulus");
        let mut unit = vec![Row::ZERO; rows];
        unit[0] = Row::splat(1);
        assert_eq!(number::differs(&whole, &unit), Row::splat(1), "modulus 1");
        let mut one = Zeroizing::new(vec![Row::ZERO; rows]);
        one[0] = Row::splat(1);
        let mut out = Self {
            inverse: Zeroizing::new(Row(whole[0].0.map(negative_inverse))),
            m: whole,
            square: one.clone(),
            one,
            cpu,
        };
        let doublings = rows * RADIX as usize;
        let mut one = out.one.clone();
        (0..doublings).for_each(|_| out.double(&mut one));
        out.one = one;
        out.square = shift(&out, doublings, |x| out.double(x));
        out
    }

    /// The moduli themselves.
    pub fn values(&self) -> &[Row] {
        &self.m
    }

    pub(super) fn cpu(&self) -> Cpu {
        self.cpu
    }

    /// `2x` modulo M, for `x` below M.
    fn double(&self, x: &mut [Row]) {
        let mut carry = [0; LANES];
        for x in &mut *x {
            for lane in 0..LANES {
                let sum = 2 * x.0[lane] + carry[lane];
                x.0[lane] = sum & MASK;
                carry[lane] = sum >> RADIX;
            }
        }
        number::subtract_if_possible(x, &self.m);
    }

    /// As [`pass::reduce`].
    pub(super) fn reduce(&self, sum: pass::Sum<'_>, quotient: &mut [Row], out: &mut [Row]) {
        pass::reduce(self.cpu, sum, &self.m, &self.inverse, quotient, out);
    }

    /// The Montgomery form, below M, of plain numbers of any length.
    pub fn enter(&self, x: &[Row]) -> Number {
        let rows = self.rows();
        let mut out = Zeroizing::new(vec![Row::ZERO; rows]);
        let mut next = Zeroizing::new(vec![Row::ZERO; rows]);
        for part in x.chunks(rows).rev() {
            let mut digits = Zeroizing::new(vec![Row::ZERO; rows]);
            digits[..part.len()].copy_from_slice(part);
            // The digits so far are multiplied by R. Then the next part is added as part·R.
            let products = [(&out[..], &self.square[..]), (&digits, &self.square)];
            self.reduce(
                pass::Sum::of(&products),
                &mut { pass::ROOM }[..rows],
                &mut next,
            );
            self.settle(&mut next);
            out.copy_from_slice(&next);
        }
        out
    }

    /// Plain numbers below M from their Montgomery form.
    pub fn leave(&self, x: &[Row]) -> Number {
        let mut one = vec![Row::ZERO; self.rows()];
        one[0] = Row::splat(1);
        let mut out = Zeroizing::new(vec![Row::ZERO; self.rows()]);
        self.multiply(x, &one, &mut out);
        self.settle(&mut out);
        out
    }

    /// `x + y` modulo M, for `x` and `y` below 2M. The result is below M.
    pub fn add(&self, x: &mut [Row], y: &[Row]) {
        number::add(x, y);
        for _ in 0..3 {
            number::subtract_if_possible(x, &self.m);
        }
    }

    /// `−x` modulo M, for `x` below M. The result is from 1 to M.
    pub fn negate(&self, x: &mut [Row]) {
        let mut out = Zeroizing::new(self.m.to_vec());
        number::subtract_if_possible(&mut out, x);
        x.copy_from_slice(&out);
    }

    /// `1/x` for every invertible x. The moduli must be prime.
    pub fn invert(&self, x: &[Row]) -> Number {
        let mut exponent = self.m.clone();
        let mut two = vec![Row::ZERO; self.rows()];
        two[0] = Row::splat(2);
        number::subtract_if_possible(&mut exponent, &two);
        super::power(self, x, &exponent)
    }
}

impl Ring for Modulus {
    fn rows(&self) -> usize {
        self.m.len()
    }

    fn cpu(&self) -> Cpu {
        self.cpu
    }

    fn one(&self) -> Number {
        self.one.clone()
    }

    fn multiply(&self, a: &[Row], b: &[Row], out: &mut [Row]) {
        let mut quotient = pass::ROOM;
        let products = [(a, b)];
        self.reduce(pass::Sum::of(&products), &mut quotient[..self.m.len()], out);
    }

    fn square(&self, a: &[Row], out: &mut [Row]) {
        self.multiply(a, a, out);
    }

    fn settle(&self, x: &mut [Row]) {
        for _ in 0..2 {
            number::subtract_if_possible(x, &self.m);
        }
    }
}

/// −1/m modulo 2^52, for odd m.
fn negative_inverse(m: u64) -> u64 {
    assert!(m & 1 == 1, "an even modulus");
    // Three bits are right at first, and a step doubles their number.
    let mut inverse = m;
    for _ in 0..5 {
        inverse = inverse.wrapping_mul(2u64.wrapping_sub(m.wrapping_mul(inverse)));
    }
    inverse.wrapping_neg() & MASK
}

/// The Montgomery form of 2^`bits`, from doublings and squares.
pub(super) fn shift<R: Ring>(ring: &R, bits: usize, double: impl Fn(&mut [Row])) -> Number {
    let mut out = ring.one();
    let mut next = out.clone();
    for bit in (0..usize::BITS - bits.leading_zeros()).rev() {
        ring.square(&out, &mut next);
        ring.settle(&mut next);
        std::mem::swap(&mut out, &mut next);
        if bits >> bit & 1 == 1 {
            double(&mut out);
        }
    }
    out
}
