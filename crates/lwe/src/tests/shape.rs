//! Packed messages of two runs, compared.

use std::collections::HashSet;

use undertone_kernel::pack;

use crate::params::Params;

/// Messages as rows of numbers of `width` bits.
#[derive(Clone, Copy)]
pub(super) struct Shape {
    width: u32,
    row: usize,
}

impl Shape {
    pub(super) fn headers(params: &Params) -> Self {
        let (width, row) = (params.h, params.n);
        Self { width, row }
    }

    pub(super) fn keys(params: &Params) -> Self {
        let (width, row) = (params.q, params.length);
        Self { width, row }
    }

    /// Of answers and openings.
    pub(super) fn sums(params: &Params, row: usize) -> Self {
        let width = params.v;
        Self { width, row }
    }

    pub(super) fn rows<'a>(&self, bytes: &'a [u8]) -> Vec<&'a [u8]> {
        let rows = bytes.chunks_exact(pack::packed_len(self.width, self.row));
        assert!(rows.remainder().is_empty());
        rows.collect()
    }

    pub(super) fn numbers(&self, row: &[u8]) -> Vec<u64> {
        let mut out = vec![0; self.row];
        pack::unpack_words(self.width, row, &mut out);
        out
    }

    /// The numbers of `one` less those of `other`, modulo 2^width around zero.
    pub(super) fn differences(&self, one: &[u8], other: &[u8]) -> Vec<i64> {
        let numbers = |bytes| {
            self.rows(bytes)
                .into_iter()
                .flat_map(|row| self.numbers(row))
        };
        let drop = 64 - self.width;
        let pairs = numbers(one).zip(numbers(other));
        pairs
            .map(|(a, b)| (a.wrapping_sub(b) << drop) as i64 >> drop)
            .collect()
    }

    /// No row of one occurs in the other, and numbers at the same place are equal as seldom as
    /// random ones.
    pub(super) fn are_new(&self, one: &[u8], other: &[u8]) {
        let rows: HashSet<&[u8]> = self.rows(one).into_iter().collect();
        assert!(self.rows(other).iter().all(|row| !rows.contains(row)));
        let differences = self.differences(one, other);
        let equal = differences.iter().filter(|rest| **rest == 0).count();
        let due = differences.len() as f64 / 2f64.powi(self.width as i32);
        assert!(
            (equal as f64) < due + 5.0 * due.sqrt() + 2.0,
            "{equal} of {due}"
        );
        // The differences are uniform, not only seldom 0.
        if differences.len() > 30 {
            let half = 2f64.powi(self.width as i32 - 1);
            let squares = differences.iter().map(|rest| (*rest as f64 / half).powi(2));
            let mean = squares.sum::<f64>() / differences.len() as f64;
            let spread = (4.0 / 45.0 / differences.len() as f64).sqrt();
            assert!((mean - 1.0 / 3.0).abs() < 5.0 * spread, "{mean}");
        }
    }

    /// Row `changed` is new, and all others are the same.
    pub(super) fn one_is_new(&self, one: &[u8], other: &[u8], changed: usize) {
        let (one, other) = (self.rows(one), self.rows(other));
        assert_eq!(one.len(), other.len());
        for (row, (one, other)) in one.iter().zip(&other).enumerate() {
            if row == changed {
                self.are_new(one, other);
            } else {
                assert!(one == other, "row {row}");
            }
        }
    }
}
