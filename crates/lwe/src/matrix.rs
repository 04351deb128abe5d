//! The public matrix A, of l rows and n columns modulo Q.

use shake::Shake128;
use shake::digest::{ExtendableOutput, Update, XofReader};
use undertone_kernel::negacyclic::{self, Convolver, DEGREE, Eight};
use undertone_kernel::{Cpu, Wiped};
use undertone_party::SessionId;

use crate::params::Params;

/// The public matrix A. Products are for eight vectors side by side, modulo 2⁵², so that they are
/// right modulo Q.
pub trait Matrix: std::fmt::Debug + Send + Sync {
    /// The parameters.
    fn params(&self) -> &'static Params;

    /// A·s for eight vectors of n numbers from −64 to 64 in two's complement. `out` has l entries.
    ///
    /// # Panics
    /// When lengths differ.
    fn column(&self, cpu: Cpu, scratch: &mut Scratch, s: &[Eight], out: &mut [Eight]);

    /// w·A for eight vectors of l numbers in two's complement, between −2⁴⁰ and 2⁴⁰. `out` has n
    /// entries.
    ///
    /// # Panics
    /// When lengths differ.
    fn row(&self, cpu: Cpu, scratch: &mut Scratch, w: &[Eight], out: &mut [Eight]);
}

/// Memory of a [`Matrix`] between products. It is wiped on drop.
#[derive(Debug, Default)]
pub struct Scratch {
    products: negacyclic::Scratch,
    inverted: [Wiped<Eight>; 2],
}

/// The uniform numbers modulo Q of a session: of the polynomials of [`Ring`], or of the entries of
/// [`Dense`], in order. They come from SHAKE128, which the proof takes for a random function.
fn uniform(session: SessionId, params: &Params, purpose: &str, count: usize) -> Vec<u64> {
    let mut hash = Shake128::default();
    hash.update(b"undertone/v1/");
    hash.update(purpose.as_bytes());
    hash.update(&session.0);
    hash.update(&(params.bits as u32).to_le_bytes());
    let mut bytes = vec![0; 8 * count];
    hash.finalize_xof().read(&mut bytes);
    let words = bytes.as_chunks::<8>().0.iter();
    words
        .map(|word| u64::from_le_bytes(*word) & params.mask())
        .collect()
}

/// A matrix of l/256 × n/256 blocks. Block (a, b) is the negacyclic matrix of a polynomial: its
/// product with a vector is the product of polynomials modulo X²⁵⁶ + 1.
#[derive(Debug)]
pub struct Ring {
    params: &'static Params,
    columns: Convolver,
    rows: Convolver,
}

impl Ring {
    /// The matrix of `session`.
    pub fn new(cpu: Cpu, session: SessionId, params: &'static Params) -> Self {
        let polynomials = Self::polynomials(session, params);
        let (high, wide) = (params.length / DEGREE, params.n / DEGREE);
        let at = |a: usize, b: usize| &polynomials[(a * wide + b) * DEGREE..][..DEGREE];
        Self {
            params,
            columns: Convolver::new(cpu, high, wide, at),
            rows: Convolver::new(cpu, wide, high, |b, a| at(a, b)),
        }
    }

    /// The coefficients of all polynomials, those of block row 0 first.
    pub fn polynomials(session: SessionId, params: &Params) -> Vec<u64> {
        let count = params.length / DEGREE * params.n;
        uniform(session, params, "lwe ring", count)
    }
}

/// p(X⁻¹) for every polynomial.
fn invert(from: &[Eight], to: &mut [Eight]) {
    for (from, to) in from.chunks_exact(DEGREE).zip(to.chunks_exact_mut(DEGREE)) {
        to[0] = from[0];
        for (from, to) in from[1..].iter().rev().zip(&mut to[1..]) {
            to.0 = from.0.map(u64::wrapping_neg);
        }
    }
}

impl Matrix for Ring {
    fn params(&self) -> &'static Params {
        self.params
    }

    fn column(&self, cpu: Cpu, scratch: &mut Scratch, s: &[Eight], out: &mut [Eight]) {
        self.columns.apply(cpu, &mut scratch.products, s, out);
    }

    /// The transposed matrix of p is that of p(X⁻¹).
    fn row(&self, cpu: Cpu, scratch: &mut Scratch, w: &[Eight], out: &mut [Eight]) {
        let Scratch {
            products,
            inverted: [input, output],
        } = scratch;
        input.resize(w.len(), Eight::default());
        output.resize(out.len(), Eight::default());
        invert(w, input);
        self.rows.apply(cpu, products, input, output);
        invert(output, out);
    }
}

/// A matrix without structure: plain LWE. It is slow. Tests compare [`Ring`] with it.
#[derive(Debug)]
pub struct Dense {
    params: &'static Params,
    entries: Vec<u64>,
}

impl Dense {
    /// The unstructured matrix of `session`.
    pub fn new(session: SessionId, params: &'static Params) -> Self {
        let entries = uniform(session, params, "lwe dense", params.length * params.n);
        Self { params, entries }
    }

    /// The entries of the [`Ring`] of `session`, written out.
    pub fn of_ring(session: SessionId, params: &'static Params) -> Self {
        let polynomials = Ring::polynomials(session, params);
        let mut entries = vec![0; params.length * params.n];
        for (row, entries) in entries.chunks_exact_mut(params.n).enumerate() {
            for (column, entry) in entries.iter_mut().enumerate() {
                let block = row / DEGREE * (params.n / DEGREE) + column / DEGREE;
                let (i, j) = (row % DEGREE, column % DEGREE);
                let at = |degree: usize| polynomials[block * DEGREE + degree];
                *entry = if i >= j {
                    at(i - j)
                } else {
                    at(DEGREE + i - j).wrapping_neg() & params.mask()
                };
            }
        }
        Self { params, entries }
    }
}

impl Matrix for Dense {
    fn params(&self) -> &'static Params {
        self.params
    }

    fn column(&self, _: Cpu, _: &mut Scratch, s: &[Eight], out: &mut [Eight]) {
        assert_eq!((s.len(), out.len()), (self.params.n, self.params.length));
        for (entries, out) in self.entries.chunks_exact(self.params.n).zip(out) {
            *out = Eight::default();
            for (entry, s) in entries.iter().zip(s) {
                for (out, s) in out.0.iter_mut().zip(s.0) {
                    *out = out.wrapping_add(entry.wrapping_mul(s));
                }
            }
        }
    }

    fn row(&self, _: Cpu, _: &mut Scratch, w: &[Eight], out: &mut [Eight]) {
        assert_eq!((w.len(), out.len()), (self.params.length, self.params.n));
        out.fill(Eight::default());
        for (entries, w) in self.entries.chunks_exact(self.params.n).zip(w) {
            for (entry, out) in entries.iter().zip(&mut *out) {
                for (out, w) in out.0.iter_mut().zip(w.0) {
                    *out = out.wrapping_add(entry.wrapping_mul(w));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::params::CLASSES;
    use undertone_kernel::Prg;

    #[test]
    fn the_ring_is_its_dense_matrix() {
        let session = SessionId([3; 32]);
        let mut prg = Prg::new(&[4; 32]);
        for params in &CLASSES {
            let dense = Dense::of_ring(session, params);
            let mut eight = |count: usize, bits: u32| -> Vec<Eight> {
                let mut one = || (prg.next_u64() as i64 >> (64 - bits)) as u64;
                (0..count)
                    .map(|_| Eight(std::array::from_fn(|_| one())))
                    .collect()
            };
            let (s, w) = (eight(params.n, 8), eight(params.length, 20));
            let masked = |values: &[Eight]| -> Vec<[u64; 8]> {
                let values = values.iter();
                values
                    .map(|value| value.0.map(|value| value & params.mask()))
                    .collect()
            };
            let mut due = [
                vec![Eight::default(); params.length],
                vec![Eight::default(); params.n],
            ];
            dense.column(Cpu::portable(), &mut Scratch::default(), &s, &mut due[0]);
            dense.row(Cpu::portable(), &mut Scratch::default(), &w, &mut due[1]);
            for cpu in Cpu::all() {
                let ring = Ring::new(cpu, session, params);
                let mut column = vec![Eight::default(); params.length];
                ring.column(cpu, &mut Scratch::default(), &s, &mut column);
                assert!(masked(&column) == masked(&due[0]), "{cpu:?} {params:?}");
                let mut row = vec![Eight::default(); params.n];
                ring.row(cpu, &mut Scratch::default(), &w, &mut row);
                assert!(masked(&row) == masked(&due[1]), "{cpu:?} {params:?}");
            }
        }
    }
}
