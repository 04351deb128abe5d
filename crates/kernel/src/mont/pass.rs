//! The one loop of multiplication: sums of products, reduced on the way.

use super::{LANES, MASK, RADIX, Row, TILE};
use crate::cpu::{Cpu, Level};

/// The most digits of a modulus.
pub(super) const MOST: usize = 120;

/// The most products that are added up.
const PRODUCTS: usize = 3;

/// What is reduced: products, and a constant less an earlier quotient, plus R − 1.
#[derive(Clone, Copy)]
pub(super) struct Sum<'a> {
    pub(super) products: &'a [(&'a [Row], &'a [Row])],
    pub(super) less_quotient: Option<&'a [Row]>,
}

impl<'a> Sum<'a> {
    pub(super) fn of(products: &'a [(&'a [Row], &'a [Row])]) -> Self {
        Self {
            products,
            less_quotient: None,
        }
    }

    fn check(&self, digits: usize) {
        assert!(digits > 0 && digits <= MOST && digits.is_multiple_of(TILE));
        assert!(self.products.len() <= PRODUCTS);
        for (a, b) in self.products {
            assert!(a.len() == digits && b.len() == digits);
        }
        assert!(
            self.less_quotient
                .is_none_or(|constant| constant.len() == digits)
        );
    }
}

/// `out = (sum + quotient·modulus) / R`. The quotient is written over the earlier one. A factor given twice over is squared.
pub(super) fn reduce(
    cpu: Cpu,
    sum: Sum<'_>,
    modulus: &[Row],
    inverse: &Row,
    quotient: &mut [Row],
    out: &mut [Row],
) {
    let digits = modulus.len();
    sum.check(digits);
    assert!(quotient.len() == digits && out.len() == digits);
    match cpu.level() {
        // SAFETY: `Cpu` proves the features, and the lengths are checked.
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => unsafe {
            super::ifma::reduce(sum, modulus, inverse, quotient, out);
        },
        _ => portable(sum, modulus, inverse, quotient, out),
    }
}

/// `out = a·b + c`, all digits of it. Not for many: conversions need it.
pub(super) fn product(cpu: Cpu, a: &[Row], b: &[Row], c: &[Row], out: &mut [Row]) {
    let digits = a.len();
    assert!(b.len() == digits && c.len() == digits && out.len() == 2 * digits);
    assert!(digits <= MOST && digits.is_multiple_of(TILE));
    match cpu.level() {
        // SAFETY: `Cpu` proves the features, and the lengths are checked.
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => unsafe { super::ifma::product(a, b, c, out) },
        _ => {
            for lane in 0..LANES {
                let (a, b) = (column(a, lane), column(b, lane));
                let mut carry = 0u128;
                for (k, row) in out.iter_mut().enumerate() {
                    carry += c.get(k).map_or(0, |row| u128::from(row.0[lane]));
                    carry += convolved(&a, &b, digits, k);
                    row.0[lane] = carry as u64 & MASK;
                    carry >>= RADIX;
                }
            }
        }
    }
}

/// The digits of one lane, next to each other.
fn column(rows: &[Row], lane: usize) -> [u64; MOST] {
    let mut out = [0; MOST];
    for (digit, row) in out.iter_mut().zip(rows) {
        *digit = row.0[lane];
    }
    out
}

/// `Σ a[i]·b[k−i]` over the digits there are.
#[inline(always)]
fn convolved(a: &[u64; MOST], b: &[u64; MOST], digits: usize, k: usize) -> u128 {
    let (first, end) = ((k + 1).saturating_sub(digits), digits.min(k + 1));
    let (a, b) = (&a[first..end], &b[k + 1 - end..k + 1 - first]);
    let pairs = a.iter().zip(b.iter().rev());
    pairs.fold(0, |sum, (a, b)| sum + u128::from(*a) * u128::from(*b))
}

fn portable(sum: Sum<'_>, modulus: &[Row], inverse: &Row, quotient: &mut [Row], out: &mut [Row]) {
    let digits = modulus.len();
    for lane in 0..LANES {
        let m = column(modulus, lane);
        let mut q = [0; MOST];
        let mut factors = [([0; MOST], [0; MOST]); PRODUCTS];
        for (columns, (a, b)) in factors.iter_mut().zip(sum.products) {
            *columns = (column(a, lane), column(b, lane));
        }
        let factors = &factors[..sum.products.len()];
        let mut carry = 0u128;
        for k in 0..2 * digits {
            for (a, b) in factors {
                carry += convolved(a, b, digits, k);
            }
            if k < digits {
                if let Some(constant) = sum.less_quotient {
                    carry += u128::from(MASK - quotient[k].0[lane] + constant[k].0[lane]);
                }
                carry += convolved(&q, &m, digits, k);
                q[k] = (carry as u64).wrapping_mul(inverse.0[lane]) & MASK;
                carry += u128::from(q[k]) * u128::from(m[0]);
                quotient[k].0[lane] = q[k];
            } else {
                carry += convolved(&q, &m, digits, k);
                out[k - digits].0[lane] = carry as u64 & MASK;
            }
            carry >>= RADIX;
        }
    }
}
