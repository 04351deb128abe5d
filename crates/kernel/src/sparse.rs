//! Kernels for many vectors at once. Each entry of a vector holds [`LANES`] numbers, one of each of
//! [`LANES`] independent vectors. So one irregular access serves all of them.
//!
//! One body serves every path. It is compiled once for each level of [`Cpu`]. It uses no fused
//! multiply-add, so the bits are the same on every path.

use std::ops::{Add, AddAssign, Mul, Sub};

use crate::cpu::Cpu;
#[cfg(target_arch = "x86_64")]
use crate::cpu::Level;

/// Independent vectors that advance together.
pub const LANES: usize = 16;

/// One entry of [`LANES`] vectors.
pub type Lanes<T> = [T; LANES];

/// A floating-point number: `f32` or `f64`.
pub trait Real:
    Copy
    + Default
    + Send
    + Sync
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + AddAssign
    + private::Sealed
{
    /// Rounds to this type.
    fn of(value: f64) -> Self;
    /// Widens to `f64`.
    fn widen(self) -> f64;
}

mod private {
    pub trait Sealed {}
    impl Sealed for f32 {}
    impl Sealed for f64 {}
}

impl Real for f32 {
    fn of(value: f64) -> Self {
        value as f32
    }
    fn widen(self) -> f64 {
        self.into()
    }
}

impl Real for f64 {
    fn of(value: f64) -> Self {
        value
    }
    fn widen(self) -> f64 {
        self
    }
}

/// A symmetric sparse matrix with a zero diagonal, row after row, columns ascending.
#[derive(Debug, Clone, Copy)]
pub struct Rows<'a, T> {
    /// Row `i` holds entries `starts[i]..starts[i + 1]`.
    pub starts: &'a [usize],
    /// In row `i`, the columns above `i` begin at entry `middles[i]`.
    pub middles: &'a [usize],
    /// The column of each entry.
    pub columns: &'a [u32],
    /// The value of each entry.
    pub values: &'a [T],
}

impl<T: Real> Rows<'_, T> {
    /// The sum of `values · x[columns]` over `entries`.
    #[inline(always)]
    fn product(&self, entries: std::ops::Range<usize>, x: &[Lanes<T>]) -> Lanes<T> {
        let mut sum = [T::default(); LANES];
        for (column, value) in self.columns[entries.clone()]
            .iter()
            .zip(&self.values[entries])
        {
            let other = &x[*column as usize];
            for lane in 0..LANES {
                sum[lane] += *value * other[lane];
            }
        }
        sum
    }
}

/// Declares `$name` to run `$body`, compiled for the level of the given [`Cpu`].
macro_rules! dispatched {
    ($(#[$doc:meta])* $name:ident = $body:ident($($arg:ident: $type:ty),*) $(-> $out:ty)?) => {
        $(#[$doc])*
        pub fn $name<T: Real>(cpu: Cpu, $($arg: $type),*) $(-> $out)? {
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx512f,avx512dq,avx512vl")]
                fn avx512<T: Real>($($arg: $type),*) $(-> $out)? { $body($($arg),*) }
                #[target_feature(enable = "avx2")]
                fn avx2<T: Real>($($arg: $type),*) $(-> $out)? { $body($($arg),*) }
                match cpu.level() {
                    // SAFETY: a `Cpu` of this level exists only where these instructions do.
                    Level::Avx512 => return unsafe { avx512($($arg),*) },
                    // SAFETY: as above.
                    Level::Avx2 => return unsafe { avx2($($arg),*) },
                    _ => {}
                }
            }
            let _ = cpu;
            $body($($arg),*)
        }
    };
}

dispatched! {
    /// Solves `(I − α·Aᵁ) t = p`, where `Aᵁ` is the part of `A` above the diagonal.
    ///
    /// # Panics
    /// When a column or row of `a` is outside the vectors.
    backward = backward_body(a: Rows<'_, T>, alpha: T, p: &[Lanes<T>], t: &mut [Lanes<T>])
}

dispatched! {
    /// Solves `(I − α·Aᴸ) u = b` for `b = p − t`, where `Aᴸ` is the part of `A` below the diagonal.
    /// Returns `⟨p, t + u⟩` of each vector.
    ///
    /// # Panics
    /// When a column or row of `a` is outside the vectors.
    forward = forward_body(
        a: Rows<'_, T>, alpha: T, p: &[Lanes<T>], t: &[Lanes<T>], u: &mut [Lanes<T>]
    ) -> Lanes<T>
}

dispatched! {
    /// `x += s·t` and `r −= s·(t + u)`. Returns `⟨r, r⟩` of each vector.
    ///
    /// # Panics
    /// When the vectors differ in length.
    descend = descend_body(
        s: &Lanes<T>, t: &[Lanes<T>], u: &[Lanes<T>], x: &mut [Lanes<T>], r: &mut [Lanes<T>]
    ) -> Lanes<T>
}

dispatched! {
    /// `p = r + s·p`.
    ///
    /// # Panics
    /// When the vectors differ in length.
    redirect = redirect_body(s: &Lanes<T>, r: &[Lanes<T>], p: &mut [Lanes<T>])
}

dispatched! {
    /// `r = α·A·x − x`.
    ///
    /// # Panics
    /// When a column or row of `a` is outside the vectors.
    shortfall = shortfall_body(a: Rows<'_, T>, alpha: T, x: &[Lanes<T>], r: &mut [Lanes<T>])
}

#[inline(always)]
fn shortfall_body<T: Real>(a: Rows<'_, T>, alpha: T, x: &[Lanes<T>], r: &mut [Lanes<T>]) {
    for i in 0..x.len() {
        let sum = a.product(a.starts[i]..a.starts[i + 1], x);
        for lane in 0..LANES {
            r[i][lane] = alpha * sum[lane] - x[i][lane];
        }
    }
}

#[inline(always)]
fn backward_body<T: Real>(a: Rows<'_, T>, alpha: T, p: &[Lanes<T>], t: &mut [Lanes<T>]) {
    for i in (0..p.len()).rev() {
        let sum = a.product(a.middles[i]..a.starts[i + 1], t);
        for lane in 0..LANES {
            t[i][lane] = p[i][lane] + alpha * sum[lane];
        }
    }
}

#[inline(always)]
fn forward_body<T: Real>(
    a: Rows<'_, T>,
    alpha: T,
    p: &[Lanes<T>],
    t: &[Lanes<T>],
    u: &mut [Lanes<T>],
) -> Lanes<T> {
    let mut dots = [T::default(); LANES];
    for i in 0..p.len() {
        let sum = a.product(a.starts[i]..a.middles[i], u);
        for lane in 0..LANES {
            let solved = p[i][lane] - t[i][lane] + alpha * sum[lane];
            dots[lane] += p[i][lane] * (t[i][lane] + solved);
            u[i][lane] = solved;
        }
    }
    dots
}

#[inline(always)]
fn descend_body<T: Real>(
    s: &Lanes<T>,
    t: &[Lanes<T>],
    u: &[Lanes<T>],
    x: &mut [Lanes<T>],
    r: &mut [Lanes<T>],
) -> Lanes<T> {
    assert!(t.len() == x.len() && u.len() == x.len() && r.len() == x.len());
    let mut squares = [T::default(); LANES];
    for i in 0..x.len() {
        for lane in 0..LANES {
            x[i][lane] += s[lane] * t[i][lane];
            let rest = r[i][lane] - s[lane] * (t[i][lane] + u[i][lane]);
            squares[lane] += rest * rest;
            r[i][lane] = rest;
        }
    }
    squares
}

#[inline(always)]
fn redirect_body<T: Real>(s: &Lanes<T>, r: &[Lanes<T>], p: &mut [Lanes<T>]) {
    assert_eq!(r.len(), p.len());
    for (p, r) in p.iter_mut().zip(r) {
        for lane in 0..LANES {
            p[lane] = r[lane] + s[lane] * p[lane];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Prg, normal};

    fn vectors<T: Real>(n: usize, seed: u8) -> Vec<Lanes<T>> {
        let mut flat = vec![0.0; n * LANES];
        normal::fill(&mut Prg::new(&[seed; 32]), 0, &mut flat);
        let chunks = flat.as_chunks::<LANES>().0.iter();
        chunks.map(|lanes| lanes.map(T::of)).collect()
    }

    #[test]
    fn every_path_is_the_definition() {
        check::<f64>(1e-12);
        check::<f32>(1e-4);
    }

    fn check<T: Real + PartialEq + std::fmt::Debug>(tolerance: f64) {
        let n = 23;
        let value = |i: usize, j: usize| match (i + j) % 3 {
            0 if i != j => 0.01 * (1 + i + j) as f64,
            _ => 0.0,
        };
        let (mut starts, mut middles, mut columns, mut values) = (vec![0], vec![], vec![], vec![]);
        for i in 0..n {
            for j in 0..n {
                if j == i {
                    middles.push(columns.len());
                }
                if value(i, j) != 0.0 {
                    columns.push(j as u32);
                    values.push(T::of(value(i, j)));
                }
            }
            starts.push(columns.len());
        }
        let a = Rows {
            starts: &starts,
            middles: &middles,
            columns: &columns,
            values: &values,
        };
        let alpha = T::of(0.5);
        let (x, p, r) = (vectors::<T>(n, 1), vectors::<T>(n, 2), vectors::<T>(n, 3));
        let s: Lanes<T> = std::array::from_fn(|lane| T::of(0.5 - lane as f64));
        let mut first = None;
        for cpu in Cpu::all() {
            let (mut t, mut u, mut v) = (vectors(n, 8), vectors(n, 9), vectors(n, 9));
            backward(cpu, a, alpha, &p, &mut t);
            let dots = forward(cpu, a, alpha, &p, &t, &mut u);
            let (mut x2, mut r2, mut p2) = (x.clone(), r.clone(), p.clone());
            let squares = descend(cpu, &s, &t, &u, &mut x2, &mut r2);
            redirect(cpu, &s, &r, &mut p2);
            shortfall(cpu, a, alpha, &x, &mut v);
            for lane in 0..LANES {
                let close = |a: f64, b: f64| {
                    assert!(
                        (a - b).abs() < tolerance * (1.0 + a.abs() + b.abs()),
                        "{a}, {b}"
                    );
                };
                let at = |vector: &[Lanes<T>], i: usize| vector[i][lane].widen();
                let s = s[lane].widen();
                let (mut dot, mut square) = (0.0, 0.0);
                for i in 0..n {
                    let above: f64 = (i + 1..n).map(|j| value(i, j) * at(&t, j)).sum();
                    close(at(&t, i) - 0.5 * above, at(&p, i));
                    let below: f64 = (0..i).map(|j| value(i, j) * at(&u, j)).sum();
                    close(at(&u, i) - 0.5 * below, at(&p, i) - at(&t, i));
                    let product: f64 = (0..n).map(|j| value(i, j) * at(&x, j)).sum();
                    close(at(&v, i), 0.5 * product - at(&x, i));
                    dot += at(&p, i) * (at(&t, i) + at(&u, i));
                    close(at(&x2, i), at(&x, i) + s * at(&t, i));
                    close(at(&r2, i), at(&r, i) - s * (at(&t, i) + at(&u, i)));
                    square += at(&r2, i) * at(&r2, i);
                    close(at(&p2, i), at(&r, i) + s * at(&p, i));
                }
                close(dots[lane].widen(), dot);
                close(squares[lane].widen(), square);
            }
            let all = (t, u, v, x2, r2, p2, dots, squares);
            assert!(
                *first.get_or_insert(all.clone()) == all,
                "{cpu:?}: the same bits"
            );
        }
    }
}
