//! Sums of negacyclic products: products of integer polynomials modulo X²⁵⁶ + 1, for eight vectors
//! side by side.
//!
//! A [`Convolver`] holds a matrix of polynomials `m[o][i]`. For vectors of polynomials `x` it
//! computes `y[o] = Σ_i m[o][i]·x[i]` over the integers, modulo 2⁵². Each product runs through
//! number-theoretic transforms modulo two primes of 50 bits. The lanes of a register are eight
//! independent vectors, so the transforms move nothing between lanes.
//!
//! The transforms are those of Longa and Naehrig (2016), with Harvey's lazy reductions (2014) at 52
//! bits. Both paths compute the same intermediate numbers.

#[cfg(target_arch = "x86_64")]
mod ifma;
mod plan;

use zeroize::Zeroize;

use crate::cpu::Cpu;
#[cfg(target_arch = "x86_64")]
use crate::cpu::Level;
use crate::wipe::{Plain, Wiped};
use plan::{Join, Plan};

/// Coefficients of a polynomial.
pub const DEGREE: usize = 256;

/// Vectors that are multiplied side by side.
pub const LANES: usize = 8;

/// One number of each of eight vectors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Zeroize)]
#[repr(C, align(64))]
pub struct Eight(pub [u64; LANES]);

impl Plain for Eight {
    const BLANK: Self = Self([0; LANES]);
}

/// Results are modulo 2⁵².
pub const MASK: u64 = (1 << 52) - 1;

/// Coefficients whose products are added up together.
const BLOCK: usize = 8;

/// A matrix of polynomials modulo X²⁵⁶ + 1, transformed.
#[derive(Clone)]
pub struct Convolver {
    outputs: usize,
    inputs: usize,
    /// For each prime: output, block of coefficients, input, coefficient.
    hats: [Vec<u64>; 2],
}

impl std::fmt::Debug for Convolver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Convolver({} x {})", self.outputs, self.inputs)
    }
}

/// Most inputs of a [`Convolver`].
pub const MAX_INPUTS: usize = 64;

impl Convolver {
    /// The matrix with `inputs` columns. `coefficients(o, i)` are the 256 coefficients of
    /// `m[o][i]`, below 2⁵⁰ − 2¹⁵.
    ///
    /// # Panics
    /// When there are more than [`MAX_INPUTS`] inputs, or coefficients are missing or too large.
    pub fn new<'a>(
        cpu: Cpu,
        outputs: usize,
        inputs: usize,
        coefficients: impl Fn(usize, usize) -> &'a [u64],
    ) -> Self {
        assert!(inputs <= MAX_INPUTS, "{inputs} inputs");
        let places: Vec<(usize, usize)> = (0..outputs)
            .flat_map(|o| (0..inputs).map(move |i| (o, i)))
            .collect();
        let hats = Plan::both().map(|plan| {
            let mut hats = vec![0; outputs * inputs * DEGREE];
            let mut eight = vec![Eight::default(); DEGREE];
            for places in places.chunks(LANES) {
                for (lane, (o, i)) in places.iter().enumerate() {
                    let given = coefficients(*o, *i);
                    assert_eq!(given.len(), DEGREE, "coefficients");
                    for (to, from) in eight.iter_mut().zip(given) {
                        assert!(*from < plan.p, "coefficient out of range");
                        to.0[lane] = *from;
                    }
                }
                forward(cpu, plan, &mut eight);
                for (lane, (o, i)) in places.iter().enumerate() {
                    for (c, value) in eight.iter().enumerate() {
                        let block = (o * (DEGREE / BLOCK) + c / BLOCK) * inputs + i;
                        hats[block * BLOCK + c % BLOCK] = plan.reduce(value.0[lane]);
                    }
                }
            }
            hats
        });
        Self {
            outputs,
            inputs,
            hats,
        }
    }

    /// The number of polynomials of an input vector.
    pub fn inputs(&self) -> usize {
        self.inputs
    }

    /// The number of polynomials of an output vector.
    pub fn outputs(&self) -> usize {
        self.outputs
    }

    /// Computes `y[o] = Σ_i m[o][i]·x[i]` for eight vectors, modulo 2⁵².
    ///
    /// `x` has 256 entries for each input: numbers of either sign, in two's complement, between
    /// −2⁴⁰ and 2⁴⁰. `y` has 256 entries for each output. Time depends on the lengths alone.
    ///
    /// # Panics
    /// When the lengths differ from these.
    pub fn apply(&self, cpu: Cpu, scratch: &mut Scratch, x: &[Eight], y: &mut [Eight]) {
        assert_eq!(x.len(), self.inputs * DEGREE, "input");
        assert_eq!(y.len(), self.outputs * DEGREE, "output");
        let Scratch {
            hats,
            block,
            products,
        } = scratch;
        hats.resize(x.len(), Eight::default());
        block.resize(self.inputs * BLOCK, Eight::default());
        for ((plan, hat), products) in Plan::both().into_iter().zip(&self.hats).zip(&mut *products)
        {
            products.resize(y.len(), Eight::default());
            for (hats, x) in hats.chunks_mut(DEGREE).zip(x.chunks(DEGREE)) {
                residues(plan, x, hats);
                forward(cpu, plan, hats);
            }
            for number in 0..DEGREE / BLOCK {
                let of = number * BLOCK..(number + 1) * BLOCK;
                // Together in the cache: the inputs lie at distances that exclude each other.
                for (to, from) in block.chunks_exact_mut(BLOCK).zip(hats.chunks(DEGREE)) {
                    to.copy_from_slice(&from[of.clone()]);
                }
                let all = hat.chunks_exact(self.inputs * DEGREE);
                for (hat, products) in all.zip(products.chunks_exact_mut(DEGREE)) {
                    let hat = &hat[of.start * self.inputs..of.end * self.inputs];
                    let out = products[of.clone()].as_chunks_mut().0;
                    if let Some(out) = out.first_mut() {
                        multiply(cpu, plan, hat, block, out);
                    }
                }
            }
            for products in products.chunks_mut(DEGREE) {
                inverse(cpu, plan, products);
            }
        }
        let [first, second] = products;
        join(cpu, first, second, y);
    }
}

/// Memory of a [`Convolver`] between calls. It is wiped on drop.
#[derive(Debug, Default)]
pub struct Scratch {
    hats: Wiped<Eight>,
    block: Wiped<Eight>,
    products: [Wiped<Eight>; 2],
}

/// The numbers modulo p.
fn residues(plan: &Plan, x: &[Eight], out: &mut [Eight]) {
    for (out, x) in out.iter_mut().zip(x) {
        // A negative number has its sign bits set.
        out.0 =
            x.0.map(|x| x.wrapping_add(plan.p & (x as i64 >> 63) as u64));
    }
}

/// Four quarters of `a`.
fn quarters(a: &mut [Eight]) -> [&mut [Eight]; 4] {
    let (low, high) = a.split_at_mut(a.len() / 2);
    let (first, second) = low.split_at_mut(low.len() / 2);
    let (third, fourth) = high.split_at_mut(high.len() / 2);
    [first, second, third, fourth]
}

/// The transform, in place. Inputs are below 2⁵⁰, outputs below 4p.
fn forward(cpu: Cpu, plan: &Plan, a: &mut [Eight]) {
    assert_eq!(a.len(), DEGREE);
    match cpu.level() {
        // SAFETY: `Cpu` proves the features.
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => unsafe { ifma::forward(plan, a) },
        _ => plan.forward(a),
    }
}

/// The inverse transform, in place. Inputs are below 2p, outputs below p.
fn inverse(cpu: Cpu, plan: &Plan, a: &mut [Eight]) {
    assert_eq!(a.len(), DEGREE);
    match cpu.level() {
        // SAFETY: `Cpu` proves the features.
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => unsafe { ifma::inverse(plan, a) },
        _ => plan.inverse(a),
    }
}

/// The sums of the products of all inputs at [`BLOCK`] coefficients, below 2p.
fn multiply(cpu: Cpu, plan: &Plan, hat: &[u64], x: &[Eight], out: &mut [Eight; BLOCK]) {
    assert_eq!(hat.len(), x.len());
    match cpu.level() {
        // SAFETY: `Cpu` proves the features.
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => unsafe { ifma::multiply(plan, hat, x, out.each_mut()) },
        _ => plan.multiply(hat, x, out.each_mut()),
    }
}

/// The numbers with these residues modulo the two primes, modulo 2⁵².
fn join(cpu: Cpu, first: &[Eight], second: &[Eight], out: &mut [Eight]) {
    let join = Join::new();
    match cpu.level() {
        // SAFETY: `Cpu` proves the features.
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => unsafe { ifma::join(join, first, second, out) },
        _ => join.join(first, second, out),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Prg;

    /// Products from the definition.
    fn definition(m: &[Vec<u64>], outputs: usize, x: &[i64]) -> Vec<u64> {
        let inputs = x.len() / DEGREE;
        let mut out = vec![0u64; outputs * DEGREE];
        for o in 0..outputs {
            for i in 0..inputs {
                for (a, m) in m[o * inputs + i].iter().enumerate() {
                    for b in 0..DEGREE {
                        let product = m.wrapping_mul(x[i * DEGREE + b] as u64);
                        let at = &mut out[o * DEGREE + (a + b) % DEGREE];
                        *at = if a + b < DEGREE {
                            at.wrapping_add(product)
                        } else {
                            at.wrapping_sub(product)
                        };
                    }
                }
            }
        }
        out.iter().map(|value| value & MASK).collect()
    }

    fn check(outputs: usize, inputs: usize, m: impl FnMut() -> u64, x: impl FnMut() -> i64) {
        let m = std::iter::repeat_with(m);
        let m: Vec<u64> = m.take(outputs * inputs * DEGREE).collect();
        let m: Vec<Vec<u64>> = m.chunks(DEGREE).map(<[u64]>::to_vec).collect();
        let x: Vec<i64> = std::iter::repeat_with(x)
            .take(LANES * inputs * DEGREE)
            .collect();
        let eight: Vec<Eight> = (0..inputs * DEGREE)
            .map(|at| {
                Eight(std::array::from_fn(|lane| {
                    x[lane * inputs * DEGREE + at] as u64
                }))
            })
            .collect();
        let due: Vec<Vec<u64>> = x
            .chunks(inputs * DEGREE)
            .map(|x| definition(&m, outputs, x))
            .collect();
        for cpu in Cpu::all() {
            let convolver = Convolver::new(cpu, outputs, inputs, |o, i| &m[o * inputs + i]);
            let mut y = vec![Eight::default(); outputs * DEGREE];
            convolver.apply(cpu, &mut Scratch::default(), &eight, &mut y);
            for (lane, due) in due.iter().enumerate() {
                let found: Vec<u64> = y.iter().map(|y| y.0[lane]).collect();
                assert!(found == *due, "{cpu:?}, lane {lane}");
            }
        }
    }

    #[test]
    fn every_path_is_the_definition() {
        let mut prg = Prg::new(&[5; 32]);
        let mut other = Prg::new(&[6; 32]);
        check(
            3,
            2,
            || prg.next_u64() >> 23,
            || other.next_u64() as i64 >> 43,
        );
    }

    /// The largest numbers of all, so that the range is used up.
    #[test]
    fn extreme_numbers_do_not_overflow() {
        check(1, MAX_INPUTS, || (1 << 41) - 1, || -(1 << 40));
        check(1, 2, || (1 << 41) - 1, || 1 << 40);
    }
}
