//! Masked rows and keys of settings outside the classes.

use undertone_kernel::Prg;
use undertone_kernel::cdt::Tables;

use super::linear::Matrix;
use super::{KEY, answer_rule, gaussians, kappa, opening_rule, random, seed, small_numbers, words};
use crate::params::{CLASSES, Params};
use crate::table::{Wide, coset_thresholds, error_thresholds, secret_thresholds};

/// A setting too small to be safe, whose deviations follow the rules of the classes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Small {
    pub(super) l: usize,
    pub(super) t: u64,
    pub(super) n: usize,
    pub(super) row_deviation: u64,
    pub(super) header_deviation: u64,
}

/// Bits that rounding takes off a header of a small setting.
const CUT: u32 = 6;

impl Small {
    pub(super) fn new(l: usize, t: u64, n: usize, header_deviation: u64) -> Self {
        Self {
            l,
            t,
            n,
            row_deviation: (8f64.sqrt() * kappa(l) * t as f64).ceil() as u64,
            header_deviation,
        }
    }

    /// The noise of answers for `count` keys, or that of openings for `count` masked rows: it hides
    /// what `side` says.
    pub(super) fn noise(&self, side: Side, count: usize) -> f64 {
        let [row, header] = [self.row_deviation, self.header_deviation].map(|d| d as f64);
        match side {
            Side::Rows => answer_rule(self.l, self.n, row, header, count),
            Side::Keys => {
                let deviations = [row, row / self.t as f64, header];
                opening_rule(self.l, self.n, deviations, CUT, count)
            }
        }
    }

    /// Only `t` and the deviation of masked rows matter.
    fn params(&self) -> Params {
        Params {
            t: self.t,
            row_deviation: self.row_deviation,
            ..CLASSES[0]
        }
    }
}

/// What hints are about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    /// `(w, η)` of a row of the evaluator: hints ζ for the server and a key owner.
    Rows,
    /// `(e', −s)` of a row of a key owner: hints ξ for the server and an evaluator.
    Keys,
}

/// Source of `(w, η)`, or of `(e', −s)`, for many rows.
pub(super) struct Source {
    pub(super) side: Side,
    pub(super) small: Small,
    /// For both values of a bit.
    pub(super) table: Tables,
    /// What a bit 1 counts. It is 1 in the protocol.
    one: u8,
    secret: Tables,
    header: Wide,
}

impl Source {
    /// `one` takes the place of 1 for a bit 1.
    pub(super) fn new(side: Side, small: Small, one: u8) -> Self {
        let params = small.params();
        let [first, second] = [0, one].map(|bit| match side {
            Side::Rows => coset_thresholds(&params, bit),
            Side::Keys => error_thresholds(&params, bit),
        });
        let secret = secret_thresholds();
        Self {
            side,
            small,
            table: Tables::new([&first, &second]),
            one,
            secret: Tables::new([&secret, &secret]),
            header: Wide::new(small.header_deviation, 1),
        }
    }

    /// Draws bits 1 with the table of a bit 0: without the centre that hides them.
    pub(super) fn without_centre(mut self) -> Self {
        let params = self.small.params();
        let zero = match self.side {
            Side::Rows => coset_thresholds(&params, 0),
            Side::Keys => error_thresholds(&params, 0),
        };
        self.table = Tables::new([&zero, &zero]);
        self
    }

    /// What a bit 1 counts, and the numbers that a number is known up to multiples of.
    pub(super) fn coset(&self) -> (f64, f64) {
        let (one, t) = (f64::from(self.one), self.small.t as f64);
        match self.side {
            Side::Rows => (one, t),
            Side::Keys => (-2.0 * one / t, 1.0),
        }
    }

    /// The residue of a code modulo t.
    pub(super) fn residue(&self, code: &[u64]) -> u64 {
        super::weight(code) * u64::from(self.one) % self.small.t
    }

    /// The deviation of number `at`.
    pub(super) fn deviation(&self, at: usize) -> f64 {
        match self.side {
            Side::Rows if at < self.small.l => self.small.row_deviation as f64,
            Side::Rows => self.small.header_deviation as f64,
            Side::Keys => KEY,
        }
    }

    /// The numbers of row `row`.
    pub(super) fn draw(&self, code: &[u64], row: usize, byte: u8) -> Vec<f64> {
        let Small { l, n, .. } = self.small;
        let stream = |purpose| words(&seed(byte), purpose, &[row as u32]);
        let (one, period) = self.coset();
        let steps = small_numbers(&self.table, code, l, &mut stream("first"));
        let number = |(at, step): (usize, &i64)| {
            let bit = code[at / 64] >> (at % 64) & 1;
            *step as f64 * period + bit as f64 * one
        };
        let mut out: Vec<f64> = steps.iter().enumerate().map(number).collect();
        let rest = match self.side {
            Side::Rows => gaussians(&self.header, stream("second"), &vec![0; n]),
            Side::Keys => small_numbers(&self.secret, &[], n, &mut stream("second")),
        };
        out.extend(rest.iter().map(|number| *number as f64));
        out
    }

    /// What rows of the other side know of their hints: a column of `M` for each of `count` of its
    /// rows. Their codes are random if `coded`, else zero.
    pub(super) fn known(&self, count: usize, coded: bool, byte: u8) -> Matrix {
        let Small { l, n, .. } = self.small;
        let other = match self.side {
            Side::Rows => Side::Keys,
            Side::Keys => Side::Rows,
        };
        let other = Self::new(other, self.small, 1);
        let mut prg = Prg::new(&[byte; 32]);
        let codes = random(count, l, &mut prg);
        let zero = vec![0; l / 64];
        let mut out = Matrix::zero(count, l + n);
        for row in 0..count {
            let code = if coded { codes.row(row) } else { &zero };
            let numbers = &mut out.entries[row * (l + n)..][..l + n];
            numbers.copy_from_slice(&other.draw(code, row, byte));
            if other.side == Side::Rows {
                // η + δ
                for number in &mut numbers[l..] {
                    let rounding = (prg.next_u64() >> (64 - CUT)) as i64 - (1 << CUT >> 1) + 1;
                    *number += rounding as f64;
                }
            }
        }
        out.transpose()
    }
}
