//! Signs of a Gaussian projection: bit l of row v is `1[Σ_t Π[l,t]·v[t] ≥ 0]`.
//!
//! Π is expanded from a seed in panels of 32 rows, each transposed so that 32 sums advance together
//! through `t = 0, 1, …`:
//!
//! ```text
//! panel[t] = Π[l,t] Π[l+1,t] … Π[l+31,t]      sum[l..l+32] += panel[t] · v[t]
//! ```
//!
//! Every path multiplies, rounds, adds, rounds, in that order (no fused multiply-add), so the bits
//! are the same on every platform and for every number of threads. Π is never held whole.

use rayon::prelude::*;

use crate::bits::BitMatrix;
use crate::cpu::{Cpu, Level};
use crate::normal;
use crate::prg::Prg;

const LANES: usize = 32;
type Panel = Vec<[f64; LANES]>;

/// Expands rows `first..first+32` of Π (`bits` rows of `dim`), transposed; rows past the last are zero.
fn panel(seed: &[u8; 32], bits: usize, dim: usize, first: usize) -> Panel {
    let rows = bits.saturating_sub(first).min(LANES);
    let mut flat = vec![0.0; rows * dim];
    normal::fill(&mut Prg::new(seed), (first * dim) as u64, &mut flat);
    let mut out = vec![[0.0; LANES]; dim];
    for (lane, row) in flat.chunks_exact(dim).enumerate() {
        for (to, from) in out.iter_mut().zip(row) {
            to[lane] = *from;
        }
    }
    out
}

/// The codes of `features` (rows of `dim` values) under the Π of `seed` with `bits` rows.
///
/// # Panics
/// When `dim` is 0 or does not divide the number of values.
pub fn signs(cpu: Cpu, seed: &[u8; 32], bits: usize, features: &[f64], dim: usize) -> BitMatrix {
    assert!(dim > 0 && features.len().is_multiple_of(dim), "rows of {dim} values");
    let rows = features.len() / dim;
    let stride = bits.div_ceil(64);
    let columns: Vec<Vec<u64>> = (0..stride)
        .into_par_iter()
        .map(|word| {
            let low = panel(seed, bits, dim, 64 * word);
            let mut out = vec![0; rows];
            apply(cpu, &low, features, &mut out, 0);
            let high = panel(seed, bits, dim, 64 * word + LANES);
            apply(cpu, &high, features, &mut out, LANES as u32);
            out
        })
        .collect();
    let mut words = vec![0; rows * stride];
    for (row, words) in words.chunks_exact_mut(stride.max(1)).enumerate() {
        for (word, column) in words.iter_mut().zip(&columns) {
            *word = column[row];
        }
    }
    BitMatrix::from_words(rows, bits, words)
}

/// ORs the 32 signs of every row, shifted left by `shift`, into `out`.
fn apply(cpu: Cpu, panel: &Panel, features: &[f64], out: &mut [u64], shift: u32) {
    match cpu.level() {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a `Cpu` of this level exists only where these instructions do.
        Level::Avx512 => unsafe { x86::apply_avx512(panel, features, out, shift) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: as above.
        Level::Avx2 => unsafe { x86::apply_avx2(panel, features, out, shift) },
        _ => portable(panel, features, out, shift),
    }
}

fn portable(panel: &Panel, features: &[f64], out: &mut [u64], shift: u32) {
    for (out, row) in out.iter_mut().zip(features.chunks_exact(panel.len())) {
        let mut sums = [0.0; LANES];
        for (value, lanes) in row.iter().zip(panel) {
            for (sum, lane) in sums.iter_mut().zip(lanes) {
                *sum += lane * value;
            }
        }
        for (lane, sum) in sums.iter().enumerate() {
            *out |= u64::from(*sum >= 0.0) << (lane as u32 + shift);
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::LANES;
    use std::arch::x86_64::*;

    /// Applies `$kernel` to blocks of `$block` rows, and row by row to the rest.
    macro_rules! by_blocks {
        ($panel:ident, $features:ident, $out:ident, $shift:ident, $kernel:ident, $block:literal) => {{
            let dim = $panel.len();
            let whole = $out.len() / $block * $block;
            for at in (0..whole).step_by($block) {
                let signs = $kernel::<$block>($panel, &$features[at * dim..(at + $block) * dim]);
                for (out, signs) in $out[at..at + $block].iter_mut().zip(signs) {
                    *out |= u64::from(signs) << $shift;
                }
            }
            for at in whole..$out.len() {
                let [signs] = $kernel::<1>($panel, &$features[at * dim..(at + 1) * dim]);
                $out[at] |= u64::from(signs) << $shift;
            }
        }};
    }

    /// # Safety
    /// Needs AVX-512 F and DQ.
    #[target_feature(enable = "avx512f,avx512dq")]
    pub(super) unsafe fn apply_avx512(
        panel: &[[f64; LANES]],
        features: &[f64],
        out: &mut [u64],
        shift: u32,
    ) {
        by_blocks!(panel, features, out, shift, block_avx512, 6);
    }

    /// Six rows by four registers: 24 sums, 4 lanes of the panel and 1 feature fill 29 of 32 registers.
    #[target_feature(enable = "avx512f,avx512dq")]
    fn block_avx512<const R: usize>(panel: &[[f64; LANES]], rows: &[f64]) -> [u32; R] {
        let dim = panel.len();
        assert_eq!(rows.len(), R * dim);
        let mut sums = [[_mm512_setzero_pd(); 4]; R];
        for (t, lanes) in panel.iter().enumerate() {
            // SAFETY: `lanes` holds 4 · 8 values.
            let p: [__m512d; 4] =
                std::array::from_fn(|c| unsafe { _mm512_loadu_pd(lanes.as_ptr().add(8 * c)) });
            for (r, sums) in sums.iter_mut().enumerate() {
                // SAFETY: r < R and t < dim.
                let v = _mm512_set1_pd(unsafe { *rows.get_unchecked(r * dim + t) });
                for (sum, p) in sums.iter_mut().zip(p) {
                    *sum = _mm512_add_pd(*sum, _mm512_mul_pd(p, v));
                }
            }
        }
        sums.map(|sums| {
            let mut signs = 0;
            for (c, sum) in sums.into_iter().enumerate() {
                let mask = _mm512_cmp_pd_mask::<_CMP_GE_OQ>(sum, _mm512_setzero_pd());
                signs |= u32::from(mask) << (8 * c);
            }
            signs
        })
    }

    /// # Safety
    /// Needs AVX2.
    #[target_feature(enable = "avx2")]
    pub(super) unsafe fn apply_avx2(
        panel: &[[f64; LANES]],
        features: &[f64],
        out: &mut [u64],
        shift: u32,
    ) {
        by_blocks!(panel, features, out, shift, block_avx2, 3);
    }

    /// Half a panel at a time: three rows by four registers of 16.
    #[target_feature(enable = "avx2")]
    fn block_avx2<const R: usize>(panel: &[[f64; LANES]], rows: &[f64]) -> [u32; R] {
        let dim = panel.len();
        assert_eq!(rows.len(), R * dim);
        let mut signs = [0; R];
        for half in [0, LANES / 2] {
            let mut sums = [[_mm256_setzero_pd(); 4]; R];
            for (t, lanes) in panel.iter().enumerate() {
                for (r, sums) in sums.iter_mut().enumerate() {
                    // SAFETY: r < R and t < dim.
                    let v = _mm256_set1_pd(unsafe { *rows.get_unchecked(r * dim + t) });
                    for (c, sum) in sums.iter_mut().enumerate() {
                        // SAFETY: half + 4·c + 4 ≤ 32.
                        let p = unsafe { _mm256_loadu_pd(lanes.as_ptr().add(half + 4 * c)) };
                        *sum = _mm256_add_pd(*sum, _mm256_mul_pd(p, v));
                    }
                }
            }
            for (signs, sums) in signs.iter_mut().zip(sums) {
                for (c, sum) in sums.into_iter().enumerate() {
                    let ge = _mm256_cmp_pd::<_CMP_GE_OQ>(sum, _mm256_setzero_pd());
                    *signs |= (_mm256_movemask_pd(ge) as u32) << (half + 4 * c);
                }
            }
        }
        signs
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The definition, from a Π held whole.
    fn naive(seed: &[u8; 32], bits: usize, features: &[f64], dim: usize) -> BitMatrix {
        let mut pi = vec![0.0; bits * dim];
        normal::fill(&mut Prg::new(seed), 0, &mut pi);
        let mut out = BitMatrix::zero(features.len() / dim, bits);
        for (r, v) in features.chunks_exact(dim).enumerate() {
            for (l, row) in pi.chunks_exact(dim).enumerate() {
                let mut sum = 0.0;
                for (p, v) in row.iter().zip(v) {
                    sum += p * v;
                }
                out.set(r, l, sum >= 0.0);
            }
        }
        out
    }

    proptest! {
        #[test]
        fn every_path_gives_the_same_bits(
            rows in 0usize..15, dim in 1usize..40, bits in 1usize..200, seed: [u8; 32],
        ) {
            let mut features = vec![0.0; rows * dim];
            normal::fill(&mut Prg::new(&[1; 32]), 0, &mut features);
            let expected = naive(&seed, bits, &features, dim);
            for cpu in Cpu::all() {
                prop_assert_eq!(&signs(cpu, &seed, bits, &features, dim), &expected, "{:?}", cpu);
            }
        }
    }
}
