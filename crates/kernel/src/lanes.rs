//! Kernels for many vectors at once: each entry of a vector is [`LANES`] numbers, one of each of
//! [`LANES`] independent vectors, so that irregular access is paid once for all of them.
//!
//! One body serves every path; it is compiled once for each level of [`Cpu`]. No fused
//! multiply-add, so the bits are the same on every path.

use crate::cpu::{Cpu, Level};

/// Independent vectors that advance together.
pub const LANES: usize = 16;

/// One entry of each of [`LANES`] vectors.
pub type Lanes = [f64; LANES];

/// A symmetric sparse matrix with a zero diagonal, row after row, columns ascending.
#[derive(Debug, Clone, Copy)]
pub struct Rows<'a> {
    /// Row `i` holds entries `starts[i]..starts[i + 1]`.
    pub starts: &'a [usize],
    /// In row `i` columns above `i` begin with entry `middles[i]`.
    pub middles: &'a [usize],
    /// The column of each entry.
    pub columns: &'a [u32],
    /// The value of each entry.
    pub values: &'a [f64],
}

impl Rows<'_> {
    /// The sum of `values · x[columns]` over `entries`.
    #[inline(always)]
    fn product(&self, entries: std::ops::Range<usize>, x: &[Lanes]) -> Lanes {
        let mut sum = [0.0; LANES];
        for (column, value) in self.columns[entries.clone()]
            .iter()
            .zip(&self.values[entries])
        {
            let other = &x[*column as usize];
            for lane in 0..LANES {
                sum[lane] += value * other[lane];
            }
        }
        sum
    }
}

/// Declares `$name` to run `$body`, compiled for the level of the given [`Cpu`].
macro_rules! dispatched {
    ($(#[$doc:meta])* $name:ident = $body:ident($($arg:ident: $type:ty),*) $(-> $out:ty)?) => {
        $(#[$doc])*
        pub fn $name(cpu: Cpu, $($arg: $type),*) $(-> $out)? {
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx512f,avx512dq,avx512vl")]
                fn avx512($($arg: $type),*) $(-> $out)? { $body($($arg),*) }
                #[target_feature(enable = "avx2")]
                fn avx2($($arg: $type),*) $(-> $out)? { $body($($arg),*) }
                match cpu.level() {
                    // SAFETY: a `Cpu` of this level exists only where these instructions do.
                    Level::Avx512 => return unsafe { avx512($($arg),*) },
                    // SAFETY: as above.
                    Level::Avx2 => return unsafe { avx2($($arg),*) },
                    Level::Portable => {}
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
    backward = backward_body(a: Rows<'_>, alpha: f64, p: &[Lanes], t: &mut [Lanes])
}

dispatched! {
    /// Solves `(I − α·Aᴸ) u = b`, where `Aᴸ` is the part of `A` below the diagonal, for `b = p − t`;
    /// returns `⟨p, t + u⟩` of each vector.
    ///
    /// # Panics
    /// When a column or row of `a` is outside the vectors.
    forward = forward_body(a: Rows<'_>, alpha: f64, p: &[Lanes], t: &[Lanes], u: &mut [Lanes]) -> Lanes
}

dispatched! {
    /// `x += s·t` and `r −= s·(t + u)`; returns `⟨r, r⟩` of each vector.
    ///
    /// # Panics
    /// When the vectors differ in length.
    descend = descend_body(s: &Lanes, t: &[Lanes], u: &[Lanes], x: &mut [Lanes], r: &mut [Lanes]) -> Lanes
}

dispatched! {
    /// `p = r + s·p`.
    ///
    /// # Panics
    /// When the vectors differ in length.
    redirect = redirect_body(s: &Lanes, r: &[Lanes], p: &mut [Lanes])
}

#[inline(always)]
fn backward_body(a: Rows<'_>, alpha: f64, p: &[Lanes], t: &mut [Lanes]) {
    for i in (0..p.len()).rev() {
        let sum = a.product(a.middles[i]..a.starts[i + 1], t);
        for lane in 0..LANES {
            t[i][lane] = p[i][lane] + alpha * sum[lane];
        }
    }
}

#[inline(always)]
fn forward_body(a: Rows<'_>, alpha: f64, p: &[Lanes], t: &[Lanes], u: &mut [Lanes]) -> Lanes {
    let mut dots = [0.0; LANES];
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
fn descend_body(s: &Lanes, t: &[Lanes], u: &[Lanes], x: &mut [Lanes], r: &mut [Lanes]) -> Lanes {
    assert!(t.len() == x.len() && u.len() == x.len() && r.len() == x.len());
    let mut squares = [0.0; LANES];
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
fn redirect_body(s: &Lanes, r: &[Lanes], p: &mut [Lanes]) {
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

    fn vectors(n: usize, seed: u8) -> Vec<Lanes> {
        let mut flat = vec![0.0; n * LANES];
        normal::fill(&mut Prg::new(&[seed; 32]), 0, &mut flat);
        flat.as_chunks::<LANES>().0.to_vec()
    }

    #[test]
    fn every_path_is_the_definition() {
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
                    values.push(value(i, j));
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
        let (x, p, r) = (vectors(n, 1), vectors(n, 2), vectors(n, 3));
        let s: Lanes = std::array::from_fn(|lane| 0.5 - lane as f64);
        let mut first = None;
        for cpu in Cpu::all() {
            let (mut t, mut u) = (vectors(n, 8), vectors(n, 9));
            backward(cpu, a, 0.9, &p, &mut t);
            let dots = forward(cpu, a, 0.9, &p, &t, &mut u);
            let (mut x2, mut r2, mut p2) = (x.clone(), r.clone(), p.clone());
            let squares = descend(cpu, &s, &t, &u, &mut x2, &mut r2);
            redirect(cpu, &s, &r, &mut p2);
            for lane in 0..LANES {
                let close =
                    |a: f64, b: f64| assert!((a - b).abs() < 1e-12 * (1.0 + a.abs() + b.abs()));
                let (mut dot, mut square) = (0.0, 0.0);
                for i in 0..n {
                    let above: f64 = (i + 1..n).map(|j| value(i, j) * t[j][lane]).sum();
                    close(t[i][lane] - 0.9 * above, p[i][lane]);
                    let below: f64 = (0..i).map(|j| value(i, j) * u[j][lane]).sum();
                    close(u[i][lane] - 0.9 * below, p[i][lane] - t[i][lane]);
                    dot += p[i][lane] * (t[i][lane] + u[i][lane]);
                    close(x2[i][lane], x[i][lane] + s[lane] * t[i][lane]);
                    close(
                        r2[i][lane],
                        r[i][lane] - s[lane] * (t[i][lane] + u[i][lane]),
                    );
                    square += r2[i][lane] * r2[i][lane];
                    close(p2[i][lane], r[i][lane] + s[lane] * p[i][lane]);
                }
                close(dots[lane], dot);
                close(squares[lane], square);
            }
            let all = (t, u, x2, r2, p2, dots, squares);
            assert_eq!(
                first.get_or_insert(all.clone()),
                &all,
                "{cpu:?}: the same bits"
            );
        }
    }
}
