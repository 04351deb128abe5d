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

/// A symmetric sparse matrix, row after row.
#[derive(Debug, Clone, Copy)]
pub struct Rows<'a> {
    /// Row `i` holds entries `starts[i]..starts[i + 1]`.
    pub starts: &'a [usize],
    /// The column of each entry.
    pub columns: &'a [u32],
    /// The value of each entry.
    pub values: &'a [f64],
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
    /// `y = x − α·A·x`; returns `⟨x, y⟩` of each vector.
    ///
    /// # Panics
    /// When a column or row of `a` is outside the vectors.
    shifted_product = shifted_product_body(a: Rows<'_>, alpha: f64, x: &[Lanes], y: &mut [Lanes]) -> Lanes
}

dispatched! {
    /// `x += s·p` and `r −= s·q`; returns `⟨r, r⟩` of each vector.
    ///
    /// # Panics
    /// When the vectors differ in length.
    descend = descend_body(s: &Lanes, p: &[Lanes], q: &[Lanes], x: &mut [Lanes], r: &mut [Lanes]) -> Lanes
}

dispatched! {
    /// `p = r + s·p`.
    ///
    /// # Panics
    /// When the vectors differ in length.
    redirect = redirect_body(s: &Lanes, r: &[Lanes], p: &mut [Lanes])
}

#[inline(always)]
fn shifted_product_body(a: Rows<'_>, alpha: f64, x: &[Lanes], y: &mut [Lanes]) -> Lanes {
    let mut dots = [0.0; LANES];
    for (i, (y, own)) in y.iter_mut().zip(x).enumerate() {
        let entries = a.starts[i]..a.starts[i + 1];
        let mut sum = [0.0; LANES];
        for (column, value) in a.columns[entries.clone()].iter().zip(&a.values[entries]) {
            let other = &x[*column as usize];
            for q in 0..LANES {
                sum[q] += value * other[q];
            }
        }
        for q in 0..LANES {
            let out = own[q] - alpha * sum[q];
            dots[q] += out * own[q];
            y[q] = out;
        }
    }
    dots
}

#[inline(always)]
fn descend_body(s: &Lanes, p: &[Lanes], q: &[Lanes], x: &mut [Lanes], r: &mut [Lanes]) -> Lanes {
    assert!(p.len() == x.len() && q.len() == x.len() && r.len() == x.len());
    let mut squares = [0.0; LANES];
    for i in 0..x.len() {
        for lane in 0..LANES {
            x[i][lane] += s[lane] * p[i][lane];
            let rest = r[i][lane] - s[lane] * q[i][lane];
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
        // Row i holds columns i·j mod n for j in 0..i mod 5, repeated columns allowed.
        let (mut starts, mut columns, mut values) = (vec![0], vec![], vec![]);
        for i in 0..n {
            for j in 0..i % 5 {
                columns.push((i * j % n) as u32);
                values.push(0.1 * (i + j) as f64);
            }
            starts.push(columns.len());
        }
        let rows = Rows {
            starts: &starts,
            columns: &columns,
            values: &values,
        };
        let (x, p, q, r) = (vectors(n, 1), vectors(n, 2), vectors(n, 3), vectors(n, 4));
        let s: Lanes = std::array::from_fn(|lane| 0.5 - lane as f64);
        for cpu in Cpu::all() {
            let mut y = vec![[0.0; LANES]; n];
            let dots = shifted_product(cpu, rows, 0.9, &x, &mut y);
            let (mut x2, mut r2, mut p2) = (x.clone(), r.clone(), p.clone());
            let squares = descend(cpu, &s, &p, &q, &mut x2, &mut r2);
            redirect(cpu, &s, &r, &mut p2);
            for lane in 0..LANES {
                let (mut dot, mut square) = (0.0, 0.0);
                for i in 0..n {
                    let mut sum = 0.0;
                    for e in starts[i]..starts[i + 1] {
                        sum += values[e] * x[columns[e] as usize][lane];
                    }
                    let expected = x[i][lane] - 0.9 * sum;
                    assert_eq!(y[i][lane], expected, "{cpu:?}");
                    dot += expected * x[i][lane];
                    assert_eq!(x2[i][lane], x[i][lane] + s[lane] * p[i][lane]);
                    let rest = r[i][lane] - s[lane] * q[i][lane];
                    assert_eq!(r2[i][lane], rest);
                    square += rest * rest;
                    assert_eq!(p2[i][lane], r[i][lane] + s[lane] * p[i][lane]);
                }
                assert_eq!(dots[lane], dot);
                assert_eq!(squares[lane], square);
            }
        }
    }
}
