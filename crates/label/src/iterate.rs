//! Conjugate gradients for [`LANES`] columns of `(I − α𝒲)^{-1}` at a time.
//!
//! The preconditioner is symmetric Gauss–Seidel. Its factors are the triangles of `A = I − α𝒲`
//! itself, because the diagonal of A is 1. With `A = L + U − I` the preconditioned product is
//! `L⁻¹AU⁻¹p = U⁻¹p + L⁻¹(p − U⁻¹p)` (Eisenstat 1981). These two triangular solves together touch
//! each entry once, as a plain product would. Below, `t = U⁻¹p` and `u = L⁻¹(p − t)`.
//!
//! Iterations run in single precision, which is twice as fast, and are refined: residuals and sums
//! are kept in double precision, and the iteration solves for each residual in turn, until it is
//! small enough. If single precision makes no progress, double precision takes over. If that makes
//! no progress either, which takes an α very near 1, the result is as good as rounding allows.

use undertone_kernel::Cpu;
use undertone_kernel::sparse::{self, LANES, Lanes, Real};

use crate::graph::Graph;

/// Relative residual of every column. Labels alone would need less; scores far below 1 need this.
pub(crate) const TOLERANCE: f64 = 1e-12;

/// The relative residual that a run in single precision aims at.
const SINGLE: f64 = 1e-6;

/// The factor by which a residual must shrink for single precision to continue.
const PROGRESS: f64 = 0.1;

/// The iteration's copy of a graph.
#[derive(Debug)]
pub(crate) struct Iteration {
    alpha: f64,
    single: Vec<f32>,
}

impl Iteration {
    pub(crate) fn new(graph: &Graph, alpha: f64) -> Self {
        let values = graph.matrix().values.iter();
        Self {
            alpha,
            single: values.map(|value| *value as f32).collect(),
        }
    }

    /// The parameter α.
    pub(crate) fn alpha(&self) -> f64 {
        self.alpha
    }

    /// Writes the solutions for at most [`LANES`] right-hand sides, one after the other. A side is
    /// given as a set of rows. It has equal entries at these rows, zeros elsewhere, and norm 1.
    pub(crate) fn solve(&self, graph: &Graph, sides: &[&[usize]], out: &mut [f64]) {
        let n = graph.rows();
        let cpu = Cpu::detect();
        let double = graph.matrix();
        let single = sparse::Rows {
            starts: double.starts,
            middles: double.middles,
            columns: double.columns,
            values: &self.single,
        };
        let mut x = vec![[0.0; LANES]; n];
        let mut rest = x.clone();
        let mut last = [f64::INFINITY; LANES];
        let mut in_single = true;
        loop {
            sparse::shortfall(cpu, double, self.alpha, &x, &mut rest);
            for (lane, rows) in sides.iter().enumerate() {
                let entry = (rows.len() as f64).sqrt().recip();
                for row in *rows {
                    rest[*row][lane] += entry;
                }
            }
            let norms = squares(&rest).map(f64::sqrt);
            let largest = norms.iter().fold(0.0, |a: f64, b| a.max(*b));
            let slow = norms
                .iter()
                .zip(&last)
                .any(|(now, before)| *now > TOLERANCE && *now > PROGRESS * before);
            if largest <= TOLERANCE || slow && !in_single {
                break;
            }
            in_single &= !slow;
            last = norms;
            // A quarter of what is needed, because this bounds the preconditioned residual instead
            // of the real one.
            let enough = TOLERANCE / 4.0 / largest;
            if in_single {
                self.correct(cpu, single, enough.max(SINGLE), &rest, &norms, &mut x);
            } else {
                self.correct(cpu, double, enough, &rest, &norms, &mut x);
            }
        }
        for (lane, column) in out.chunks_exact_mut(n).enumerate() {
            for (to, from) in column.iter_mut().zip(&x) {
                *to = from[lane];
            }
        }
    }

    /// Solves for `rest` to the relative residual `enough`, and adds the solution to `x`. `norms`
    /// are the norms of the columns of `rest`. Iterates in the precision of `matrix`.
    fn correct<T: Real>(
        &self,
        cpu: Cpu,
        matrix: sparse::Rows<'_, T>,
        enough: f64,
        rest: &[Lanes<f64>],
        norms: &Lanes<f64>,
        x: &mut [Lanes<f64>],
    ) {
        let alpha = T::of(self.alpha);
        let scale = norms.map(|norm| if norm > 0.0 { norm.recip() } else { 0.0 });
        let zero = vec![[T::default(); LANES]; rest.len()];
        let (mut t, mut r, mut u, mut y) = (zero.clone(), zero.clone(), zero.clone(), zero.clone());
        for (t, rest) in t.iter_mut().zip(rest) {
            *t = std::array::from_fn(|lane| T::of(-rest[lane] * scale[lane]));
        }
        // r = L⁻¹(0 − t). The returned energy is not needed.
        sparse::forward(cpu, matrix, alpha, &zero, &t, &mut r);
        let mut p = r.clone();
        let mut square = squares(&r);
        let goal = square.map(|square| enough * enough * square);
        // The error shrinks by at least (√κ−1)/(√κ+1) in each step, κ ≤ (1+α)/(1−α). Rounding may
        // cost a few more steps.
        let condition = ((1.0 + self.alpha) / (1.0 - self.alpha)).sqrt();
        let most = 100 + (condition * (2.0 * condition / enough).ln()).ceil() as usize;
        for _ in 0..most {
            sparse::backward(cpu, matrix, alpha, &p, &mut t);
            let energy = sparse::forward(cpu, matrix, alpha, &p, &t, &mut u).map(T::widen);
            let step = ratio(&square, &energy);
            let next = sparse::descend(cpu, &step, &t, &u, &mut y, &mut r).map(T::widen);
            if next.iter().zip(&goal).all(|(square, goal)| square <= goal) {
                break;
            }
            sparse::redirect(cpu, &ratio(&next, &square), &r, &mut p);
            square = next;
        }
        for (x, y) in x.iter_mut().zip(&y) {
            for lane in 0..LANES {
                x[lane] += norms[lane] * y[lane].widen();
            }
        }
    }
}

fn ratio<T: Real>(a: &Lanes<f64>, b: &Lanes<f64>) -> Lanes<T> {
    std::array::from_fn(|lane| {
        T::of(if b[lane] > 0.0 {
            a[lane] / b[lane]
        } else {
            0.0
        })
    })
}

fn squares<T: Real>(vectors: &[Lanes<T>]) -> Lanes<f64> {
    let mut out = [0.0; LANES];
    for vector in vectors {
        for lane in 0..LANES {
            out[lane] += vector[lane].widen() * vector[lane].widen();
        }
    }
    out
}
