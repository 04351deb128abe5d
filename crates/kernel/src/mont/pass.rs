//! The common loop of multiplication: sums of products, reduced on the way.

use super::{Row, TILE};
use crate::cpu::Cpu;
#[cfg(target_arch = "x86_64")]
use crate::cpu::Level;

/// Largest number of digits of a modulus.
pub(super) const MOST: usize = 120;

/// Room for the digits of a modulus. A constant, which is filled at once and not row by row.
pub(super) const ROOM: [Row; MOST] = [Row::ZERO; MOST];

/// Largest number of products in a sum.
pub(super) const PRODUCTS: usize = 3;

/// A sum to be reduced: the products. With `less_quotient`, also that constant minus the earlier
/// quotient, plus R − 1.
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
        // A square doubles the columns with all their contents, so it must come first.
        let mut others = self.products.iter().skip(1);
        assert!(others.all(|(a, b)| !std::ptr::eq(*a, *b)));
        for (a, b) in self.products {
            assert!(a.len() == digits && b.len() == digits);
        }
        assert!(
            self.less_quotient
                .is_none_or(|constant| constant.len() == digits)
        );
    }
}

/// `out = (sum + quotient·modulus) / R`. The quotient overwrites the earlier one. If both factors
/// of the first product are the same slice, it is squared.
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
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => unsafe {
            super::avx2::reduce(sum, modulus, inverse, quotient, out);
        },
        _ => super::portable::reduce(sum, modulus, inverse, quotient, out),
    }
}

/// `out = a·b + c`, all digits. Slow; conversions use it.
pub(super) fn product(cpu: Cpu, a: &[Row], b: &[Row], c: &[Row], out: &mut [Row]) {
    let digits = a.len();
    assert!(b.len() == digits && c.len() == digits && out.len() == 2 * digits);
    assert!(digits <= MOST && digits.is_multiple_of(TILE));
    match cpu.level() {
        // SAFETY: `Cpu` proves the features, and the lengths are checked.
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => unsafe { super::ifma::product(a, b, c, out) },
        _ => super::portable::product(a, b, c, out),
    }
}
