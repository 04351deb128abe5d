//! Arithmetic modulo the squares of eight moduli.

use zeroize::Zeroizing;

use super::power::Ring;
use super::{Modulus, Number, Row, number, pass};
use crate::cpu::Cpu;

/// The residues modulo M² of eight odd M. A residue is a pair of residues modulo M, one after the
/// other: see the [module](super).
#[derive(Clone)]
pub struct Squared {
    base: Modulus,
    /// 1 − R modulo M.
    wrap: Number,
    /// R and R² modulo M².
    one: Number,
    square: Number,
}

impl std::fmt::Debug for Squared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Squared({:?})", self.base)
    }
}

impl Squared {
    /// Arithmetic modulo the squares of the moduli of `base`.
    pub fn new(base: Modulus) -> Self {
        let rows = base.rows();
        let mut wrap = base.one();
        base.negate(&mut wrap);
        number::increment(&mut wrap, Row::splat(1));
        let mut one = Zeroizing::new(vec![Row::ZERO; 2 * rows]);
        one[0] = Row::splat(1);
        let mut out = Self {
            base,
            wrap,
            square: one.clone(),
            one,
        };
        let doublings = rows * super::RADIX as usize;
        let mut one = out.one.clone();
        (0..doublings).for_each(|_| out.double(&mut one));
        out.one = one;
        out.square = super::modulus::shift(&out, doublings, |x| out.double(x));
        out
    }

    /// The moduli, not squared.
    pub fn base(&self) -> &Modulus {
        &self.base
    }

    /// `x − y` modulo M², for `y` below M². The result is below M².
    pub fn subtract(&self, x: &mut [Row], y: &[Row]) {
        let rows = self.base.rows();
        let mut negated = Zeroizing::new(y.to_vec());
        let (low, high) = negated.split_at_mut(rows);
        // M² − y = (M − y₀) + (M − y₁)·M − M
        self.base.negate(low);
        self.base.negate(high);
        number::decrement(high);
        self.add(x, &negated);
    }

    fn double(&self, x: &mut [Row]) {
        let copy = Zeroizing::new(x.to_vec());
        self.add(x, &copy);
    }

    /// `x + y` modulo M². The result is below M².
    fn add(&self, x: &mut [Row], y: &[Row]) {
        let rows = self.base.rows();
        number::add(&mut x[..rows], &y[..rows]);
        number::add(&mut x[rows..], &y[rows..]);
        self.settle(x);
    }

    /// The Montgomery form, below M², of plain numbers of any length.
    pub fn enter(&self, x: &[Row]) -> Number {
        let rows = self.base.rows();
        let mut out = Zeroizing::new(vec![Row::ZERO; 2 * rows]);
        let mut next = Zeroizing::new(vec![Row::ZERO; 2 * rows]);
        let (r0, r1) = self.square.split_at(rows);
        for part in x.chunks(rows).rev() {
            let mut digits = Zeroizing::new(vec![Row::ZERO; rows]);
            digits[..part.len()].copy_from_slice(part);
            let (x0, x1) = out.split_at(rows);
            // The digits so far are multiplied by R. Then the next part is added as part·R.
            let first = [(x0, r0), (&digits[..], r0)];
            let second = [(x0, r1), (x1, r0), (&digits, r1)];
            self.pair(&first, &second, &mut next);
            self.settle(&mut next);
            out.copy_from_slice(&next);
        }
        out
    }

    /// Plain numbers below M² from their Montgomery form, in twice the rows of M.
    pub fn leave(&self, x: &[Row]) -> Number {
        let (low, high) = self.parts(x);
        number::multiply_add(&high, self.base.values(), &low)
    }

    /// The pairs of plain numbers below M.
    pub fn parts(&self, x: &[Row]) -> (Number, Number) {
        let rows = self.base.rows();
        let mut one = vec![Row::ZERO; rows];
        one[0] = Row::splat(1);
        let mut out = Zeroizing::new(vec![Row::ZERO; 2 * rows]);
        self.pair(&[(&x[..rows], &one)], &[(&x[rows..], &one)], &mut out);
        self.settle(&mut out);
        let high = Zeroizing::new(out[rows..].to_vec());
        out.truncate(rows);
        (out, high)
    }

    /// `x·(1 + y·M)`, for a residue y modulo M in Montgomery form.
    pub fn multiply_by_one_plus(&self, x: &mut [Row], y: &[Row]) {
        let rows = self.base.rows();
        let mut product = Zeroizing::new(vec![Row::ZERO; rows]);
        let (low, high) = x.split_at_mut(rows);
        self.base.multiply(low, y, &mut product);
        self.base.add(high, &product);
    }

    /// Computes the low parts first. Their quotient goes into the high parts.
    fn pair(&self, first: &[(&[Row], &[Row])], second: &[(&[Row], &[Row])], out: &mut [Row]) {
        let rows = self.base.rows();
        let mut quotient = pass::ROOM;
        let quotient = &mut quotient[..rows];
        let (low, high) = out.split_at_mut(rows);
        self.base.reduce(pass::Sum::of(first), quotient, low);
        let sum = pass::Sum {
            products: second,
            less_quotient: Some(&self.wrap),
        };
        self.base.reduce(sum, quotient, high);
    }
}

impl Ring for Squared {
    fn rows(&self) -> usize {
        2 * self.base.rows()
    }

    fn cpu(&self) -> Cpu {
        self.base.cpu()
    }

    fn one(&self) -> Number {
        self.one.clone()
    }

    fn multiply(&self, a: &[Row], b: &[Row], out: &mut [Row]) {
        let rows = self.base.rows();
        let (a0, a1) = a.split_at(rows);
        let (b0, b1) = b.split_at(rows);
        self.pair(&[(a0, b0)], &[(a0, b1), (a1, b0)], out);
    }

    fn square(&self, a: &[Row], out: &mut [Row]) {
        let rows = self.base.rows();
        let (low, high) = a.split_at(rows);
        let mut doubled = pass::ROOM;
        let doubled = &mut doubled[..rows];
        doubled.copy_from_slice(high);
        number::add(doubled, high);
        self.pair(&[(low, low)], &[(low, doubled)], out);
    }

    fn settle(&self, x: &mut [Row]) {
        let (low, high) = x.split_at_mut(self.base.rows());
        for _ in 0..2 {
            let taken = number::subtract_if_possible(low, self.base.values());
            number::increment(high, Row(taken.0.map(|taken| taken & 1)));
        }
        for _ in 0..3 {
            number::subtract_if_possible(high, self.base.values());
        }
    }
}
