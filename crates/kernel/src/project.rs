//! Signs of a Gaussian projection: bit l of row v is `1[Σ_t Π[l,t]·v[t] ≥ 0]`.
//!
//! The definition multiplies and adds in double precision, `t = 0, 1, …`, without fused
//! multiply-add. Every path gives the bits of the definition, on every platform and with any number
//! of threads.
//!
//! The fast paths compute in single precision. Π is expanded in panels of 32 rows. Each panel is
//! transposed, so that 32 sums advance together:
//!
//! ```text
//! panel[t] = Π[l,t] Π[l+1,t] … Π[l+31,t]      sum[l..l+32] += panel[t] · v[t]
//! ```
//!
//! A sum of more than 128 products is a sum of sums of 128. So each product takes part in at most
//! `n = 128 + ⌈d/128⌉` roundings, not `d`. With `x = (n + 8)·2⁻²⁴`, the sum differs by at most
//! `x/(1 − x)·‖Π_l‖·‖v‖` from the real number (Higham 2002, 3.1 and 4.2, and Cauchy–Schwarz). The 8
//! covers the rounding of Π and v to single precision and of the bound itself, and the error of the
//! definition. If the sum is farther from zero than that, its sign is the sign of the definition.
//! The others are computed again by the definition: about one in ten thousand with hundreds of
//! features, one in five hundred with 20,000. So are rows so small or large that the definition
//! could underflow or overflow.

use rayon::prelude::*;

use crate::bits::BitMatrix;
use crate::cpu::{Cpu, Level};
use crate::normal;
use crate::prg::Prg;
use crate::wipe::Wiped;

/// Rows of Π in a panel.
const LANES: usize = 32;

/// Products of a sum in single precision; longer sums are sums of such sums.
const TERMS: usize = 128;

/// Rows of features that are rounded at once; for the next ones Π is expanded again. With so many,
/// expanding takes little of the time.
const ROWS: usize = 1 << 14;

/// Some rows of Π.
struct Panel {
    /// The rows, one after the other.
    rows: Wiped<f64>,
    /// Transposed and rounded; lanes past the last row are zero.
    lanes: Wiped<[f32; LANES]>,
    /// For each row, the bound on the error of a sum for features of norm 1.
    slack: [f32; LANES],
}

impl Panel {
    /// Expands rows `first..first+32` of Π (`bits` rows of `dim`).
    fn new(seed: &[u8; 32], bits: usize, dim: usize, first: usize) -> Self {
        let count = bits.saturating_sub(first).min(LANES);
        let mut rows = Wiped::from(vec![0.0; count * dim]);
        normal::fill(&mut Prg::new(seed), (first * dim) as u64, &mut rows);
        let mut lanes = Wiped::from(vec![[0.0; LANES]; dim]);
        let mut slack = [0.0; LANES];
        for (lane, row) in rows.chunks_exact(dim).enumerate() {
            for (to, from) in lanes.iter_mut().zip(row) {
                to[lane] = *from as f32;
            }
            slack[lane] = (norm(row) * relative_error(dim)) as f32;
        }
        Self { rows, lanes, slack }
    }
}

fn norm(row: &[f64]) -> f64 {
    row.iter().map(|value| value * value).sum::<f64>().sqrt()
}

/// Bound on the error of a single-precision sum of `dim` products, relative to the norms.
fn relative_error(dim: usize) -> f64 {
    // Beyond, the definition's own error would count.
    if dim > 1 << 26 {
        return f64::INFINITY;
    }
    let roundings = dim.min(TERMS) + dim.div_ceil(TERMS);
    let x = (roundings + 8) as f64 / f64::from(1 << 24);
    1.01 * x / (1.0 - x)
}

/// Rows of features in single precision. Each is scaled by a power of two so that its largest value
/// is between 1 and 2. Signs do not change.
struct Rounded {
    values: Wiped<f32>,
    /// The norm of each scaled row; infinite where the definition must decide.
    norms: Wiped<f32>,
}

impl Rounded {
    fn new(features: &[&[f64]], dim: usize) -> Self {
        // Between these bounds no product or sum of the definition overflows or underflows.
        let ordinary = 2f64.powi(-900)..2f64.powi(900);
        let mut values = Wiped::with_capacity(features.len() * dim);
        let mut norms = Wiped::with_capacity(features.len());
        let mut scaled = Wiped::from(vec![0.0; dim]);
        for row in features {
            let largest = row
                .iter()
                .fold(0.0, |most: f64, value| most.max(value.abs()));
            if !ordinary.contains(&largest) {
                let len = values.len() + dim;
                values.resize(len, 0.0);
                norms.push(f32::INFINITY);
                continue;
            }
            let scale = libm::scalbn(1.0, -libm::ilogb(largest));
            for (to, from) in scaled.iter_mut().zip(*row) {
                *to = from * scale;
            }
            values.extend(scaled.iter().map(|value| *value as f32));
            norms.push(norm(&scaled) as f32);
        }
        Self { values, norms }
    }
}

/// The codes of `features` (rows of `dim` finite values) under the Π of `seed`, with `bits` rows.
///
/// # Panics
/// When `dim` is 0 or does not divide the number of values.
pub fn signs(cpu: Cpu, seed: &[u8; 32], bits: usize, features: &[f64], dim: usize) -> BitMatrix {
    let mut codes = signs_together(cpu, seed, bits, &[features], dim);
    codes.pop().unwrap_or_default()
}

/// The codes of several parts, each as [`signs`] gives them. Π is expanded for all parts together.
///
/// # Panics
/// When `dim` is 0 or does not divide the number of values of a part.
pub fn signs_together(
    cpu: Cpu,
    seed: &[u8; 32],
    bits: usize,
    parts: &[&[f64]],
    dim: usize,
) -> Vec<BitMatrix> {
    let is_whole = |part: &&[f64]| dim > 0 && part.len().is_multiple_of(dim);
    assert!(parts.iter().all(is_whole), "rows of {dim} values");
    let stride = bits.div_ceil(64);
    let zero = |part: &&[f64]| Wiped::from(vec![0; part.len() / dim * stride]);
    let mut codes: Vec<Wiped<u64>> = parts.iter().map(zero).collect();
    let features: Vec<&[f64]> = parts
        .iter()
        .flat_map(|part| part.chunks_exact(dim))
        .collect();
    let mut due = codes
        .iter_mut()
        .flat_map(|codes| codes.chunks_exact_mut(stride.max(1)));
    for features in features.chunks(ROWS) {
        let columns = columns(cpu, seed, bits, features, dim);
        for (row, words) in due.by_ref().take(features.len()).enumerate() {
            for (word, column) in words.iter_mut().zip(&columns) {
                *word = column[row];
            }
        }
    }
    let matrix = |(words, part): (Wiped<u64>, &&[f64])| {
        BitMatrix::from_words(part.len() / dim, bits, words.into_inner())
    };
    codes.into_iter().zip(parts).map(matrix).collect()
}

/// The codes of some rows, column after column: 64 bits of each row.
fn columns(
    cpu: Cpu,
    seed: &[u8; 32],
    bits: usize,
    features: &[&[f64]],
    dim: usize,
) -> Vec<Wiped<u64>> {
    let rounded = match cpu.level() {
        Level::Portable => None,
        _ => Some(Rounded::new(features, dim)),
    };
    (0..bits.div_ceil(64))
        .into_par_iter()
        .map(|word| {
            let mut out = Wiped::from(vec![0; features.len()]);
            for half in (0..64 / LANES).filter(|half| 64 * word + half * LANES < bits) {
                let shift = (half * LANES) as u32;
                let panel = Panel::new(seed, bits, dim, 64 * word + half * LANES);
                match &rounded {
                    None => apply_exact(&panel, features, &mut out, shift),
                    Some(rounded) => apply(cpu, &panel, features, rounded, &mut out, shift),
                }
            }
            out
        })
        .collect()
}

/// The definition of a bit.
fn exact(pi: &[f64], v: &[f64]) -> bool {
    let mut sum = 0.0;
    for (p, v) in pi.iter().zip(v) {
        sum += p * v;
    }
    sum >= 0.0
}

/// The definition for a panel. Every lane of a row advances as in [`exact`].
fn apply_exact(panel: &Panel, features: &[&[f64]], out: &mut [u64], shift: u32) {
    const GROUP: usize = 8;
    let dim = panel.lanes.len();
    for (group, rows) in panel.rows.chunks(GROUP * dim).enumerate() {
        let mut transposed = Wiped::from(vec![[0.0; GROUP]; dim]);
        for (lane, row) in rows.chunks_exact(dim).enumerate() {
            for (to, from) in transposed.iter_mut().zip(row) {
                to[lane] = *from;
            }
        }
        for (out, row) in out.iter_mut().zip(features) {
            let mut sums = [0.0; GROUP];
            for (value, lanes) in row.iter().zip(transposed.iter()) {
                for (sum, lane) in sums.iter_mut().zip(lanes) {
                    *sum += lane * value;
                }
            }
            for (lane, sum) in sums.iter().enumerate() {
                *out |= u64::from(*sum >= 0.0) << ((group * GROUP + lane) as u32 + shift);
            }
        }
    }
}

/// Signs of 32 sums, and a mask of those that are too near zero to be sure.
#[derive(Clone, Copy)]
struct Signs {
    positive: u32,
    unsure: u32,
}

/// ORs the 32 signs of every row, shifted left by `shift`, into `out`.
fn apply(
    cpu: Cpu,
    panel: &Panel,
    features: &[&[f64]],
    rounded: &Rounded,
    out: &mut [u64],
    shift: u32,
) {
    let dim = panel.lanes.len();
    let count = panel.rows.len() / dim;
    let mut settle = |row: usize, signs: Signs| {
        let mut positive = signs.positive;
        let mut unsure = signs.unsure;
        while unsure != 0 {
            let lane = unsure.trailing_zeros() as usize;
            unsure &= unsure - 1;
            if lane < count {
                let pi = &panel.rows[lane * dim..(lane + 1) * dim];
                let sign = exact(pi, features[row]);
                positive = positive & !(1 << lane) | u32::from(sign) << lane;
            }
        }
        out[row] |= u64::from(positive) << shift;
    };
    match cpu.level() {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a `Cpu` of this level exists only where these instructions do.
        Level::Avx512 => unsafe { x86::apply_avx512(panel, rounded, &mut settle) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: as above.
        Level::Avx2 => unsafe { x86::apply_avx2(panel, rounded, &mut settle) },
        #[cfg(target_arch = "aarch64")]
        // SAFETY: as above.
        Level::Neon => unsafe { arm::apply_neon(panel, rounded, &mut settle) },
        _ => unreachable!("the portable path is the definition"),
    }
}

/// Applies `$kernel` to blocks of `$block` rows, and row by row to the rest.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
macro_rules! by_blocks {
    ($panel:ident, $rounded:ident, $settle:ident, $kernel:ident, $block:literal) => {{
        let dim = $panel.lanes.len();
        let count = $rounded.norms.len();
        let whole = count / $block * $block;
        for at in (0..whole).step_by($block) {
            let values = &$rounded.values[at * dim..(at + $block) * dim];
            let norms = &$rounded.norms[at..at + $block];
            for (r, signs) in $kernel::<$block>($panel, values, norms)
                .into_iter()
                .enumerate()
            {
                $settle(at + r, signs);
            }
        }
        for at in whole..count {
            let values = &$rounded.values[at * dim..(at + 1) * dim];
            let [signs] = $kernel::<1>($panel, values, &$rounded.norms[at..at + 1]);
            $settle(at, signs);
        }
    }};
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{LANES, Panel, Rounded, Signs, TERMS};
    use std::arch::x86_64::*;

    /// # Safety
    /// Needs AVX-512 F and DQ.
    #[target_feature(enable = "avx512f,avx512dq")]
    pub(super) unsafe fn apply_avx512(
        panel: &Panel,
        rounded: &Rounded,
        settle: &mut impl FnMut(usize, Signs),
    ) {
        by_blocks!(panel, rounded, settle, block_avx512, 12);
    }

    /// Twelve rows by two registers: 24 sums, 2 of the panel and 1 feature fill 27 of 32 registers.
    #[target_feature(enable = "avx512f,avx512dq")]
    fn block_avx512<const R: usize>(panel: &Panel, rows: &[f32], norms: &[f32]) -> [Signs; R] {
        let dim = panel.lanes.len();
        assert!(rows.len() == R * dim && norms.len() == R);
        let mut kept = [[_mm512_setzero_ps(); 2]; R];
        for (part, lanes) in panel.lanes.chunks(TERMS).enumerate() {
            let mut sums = [[_mm512_setzero_ps(); 2]; R];
            for (t, lanes) in lanes.iter().enumerate() {
                // SAFETY: `lanes` holds 2 · 16 values.
                let p: [__m512; 2] =
                    std::array::from_fn(|c| unsafe { _mm512_loadu_ps(lanes.as_ptr().add(16 * c)) });
                for (r, sums) in sums.iter_mut().enumerate() {
                    // SAFETY: r < R and part · TERMS + t < dim.
                    let v = unsafe { *rows.get_unchecked(r * dim + part * TERMS + t) };
                    let v = _mm512_set1_ps(v);
                    for (sum, p) in sums.iter_mut().zip(p) {
                        *sum = _mm512_fmadd_ps(p, v, *sum);
                    }
                }
            }
            // Up to here sums are indexed by constants only, so that they stay in registers.
            for r in 0..R {
                kept[r][0] = _mm512_add_ps(kept[r][0], sums[r][0]);
                kept[r][1] = _mm512_add_ps(kept[r][1], sums[r][1]);
            }
        }
        std::array::from_fn(|r| {
            let mut signs = Signs {
                positive: 0,
                unsure: 0,
            };
            for (c, sum) in kept[r].into_iter().enumerate() {
                // SAFETY: `slack` holds 2 · 16 values.
                let slack = unsafe { _mm512_loadu_ps(panel.slack.as_ptr().add(16 * c)) };
                let slack = _mm512_mul_ps(slack, _mm512_set1_ps(norms[r]));
                let positive = _mm512_cmp_ps_mask::<_CMP_GE_OQ>(sum, _mm512_setzero_ps());
                // Not greater: also where a sum or a bound is not a number.
                let unsure = _mm512_cmp_ps_mask::<_CMP_NGT_UQ>(_mm512_abs_ps(sum), slack);
                signs.positive |= u32::from(positive) << (16 * c);
                signs.unsure |= u32::from(unsure) << (16 * c);
            }
            signs
        })
    }

    /// # Safety
    /// Needs AVX2 and FMA.
    #[target_feature(enable = "avx2,fma")]
    pub(super) unsafe fn apply_avx2(
        panel: &Panel,
        rounded: &Rounded,
        settle: &mut impl FnMut(usize, Signs),
    ) {
        by_blocks!(panel, rounded, settle, block_avx2, 3);
    }

    /// Three rows by four registers: 12 sums and 1 feature; the panel is read from memory.
    #[target_feature(enable = "avx2,fma")]
    fn block_avx2<const R: usize>(panel: &Panel, rows: &[f32], norms: &[f32]) -> [Signs; R] {
        let dim = panel.lanes.len();
        assert!(rows.len() == R * dim && norms.len() == R);
        let mut kept = [[_mm256_setzero_ps(); LANES / 8]; R];
        for (part, lanes) in panel.lanes.chunks(TERMS).enumerate() {
            let mut sums = [[_mm256_setzero_ps(); LANES / 8]; R];
            for (t, lanes) in lanes.iter().enumerate() {
                for (r, sums) in sums.iter_mut().enumerate() {
                    // SAFETY: r < R and part · TERMS + t < dim.
                    let v = unsafe { *rows.get_unchecked(r * dim + part * TERMS + t) };
                    let v = _mm256_set1_ps(v);
                    for (c, sum) in sums.iter_mut().enumerate() {
                        // SAFETY: 8·c + 8 ≤ 32.
                        let p = unsafe { _mm256_loadu_ps(lanes.as_ptr().add(8 * c)) };
                        *sum = _mm256_fmadd_ps(p, v, *sum);
                    }
                }
            }
            // As above.
            for r in 0..R {
                for c in 0..LANES / 8 {
                    kept[r][c] = _mm256_add_ps(kept[r][c], sums[r][c]);
                }
            }
        }
        std::array::from_fn(|r| {
            let mut signs = Signs {
                positive: 0,
                unsure: 0,
            };
            for (c, sum) in kept[r].into_iter().enumerate() {
                // SAFETY: 8·c + 8 ≤ 32.
                let slack = unsafe { _mm256_loadu_ps(panel.slack.as_ptr().add(8 * c)) };
                let slack = _mm256_mul_ps(slack, _mm256_set1_ps(norms[r]));
                let positive = _mm256_cmp_ps::<_CMP_GE_OQ>(sum, _mm256_setzero_ps());
                let magnitude = _mm256_andnot_ps(_mm256_set1_ps(-0.0), sum);
                // Not greater: also where a sum or a bound is not a number.
                let unsure = _mm256_cmp_ps::<_CMP_NGT_UQ>(magnitude, slack);
                signs.positive |= (_mm256_movemask_ps(positive) as u32) << (8 * c);
                signs.unsure |= (_mm256_movemask_ps(unsure) as u32) << (8 * c);
            }
            signs
        })
    }
}

#[cfg(target_arch = "aarch64")]
mod arm {
    use super::{LANES, Panel, Rounded, Signs, TERMS};
    use std::arch::aarch64::*;

    /// # Safety
    /// Needs NEON.
    #[target_feature(enable = "neon")]
    pub(super) unsafe fn apply_neon(
        panel: &Panel,
        rounded: &Rounded,
        settle: &mut impl FnMut(usize, Signs),
    ) {
        by_blocks!(panel, rounded, settle, block_neon, 2);
    }

    /// Two rows by eight registers: 16 sums, 8 of the panel and 2 features fill 26 of 32 registers.
    #[target_feature(enable = "neon")]
    fn block_neon<const R: usize>(panel: &Panel, rows: &[f32], norms: &[f32]) -> [Signs; R] {
        let dim = panel.lanes.len();
        assert!(rows.len() == R * dim && norms.len() == R);
        let mut kept = [[vdupq_n_f32(0.0); LANES / 4]; R];
        for (part, lanes) in panel.lanes.chunks(TERMS).enumerate() {
            let mut sums = [[vdupq_n_f32(0.0); LANES / 4]; R];
            for (t, lanes) in lanes.iter().enumerate() {
                // SAFETY: 4·c + 4 ≤ 32.
                let p: [float32x4_t; LANES / 4] =
                    std::array::from_fn(|c| unsafe { vld1q_f32(lanes.as_ptr().add(4 * c)) });
                for (r, sums) in sums.iter_mut().enumerate() {
                    // SAFETY: r < R and part · TERMS + t < dim.
                    let v = unsafe { *rows.get_unchecked(r * dim + part * TERMS + t) };
                    for (sum, p) in sums.iter_mut().zip(p) {
                        *sum = vfmaq_n_f32(*sum, p, v);
                    }
                }
            }
            // Sums are indexed by constants only, so that they stay in registers.
            for r in 0..R {
                for c in 0..LANES / 4 {
                    kept[r][c] = vaddq_f32(kept[r][c], sums[r][c]);
                }
            }
        }
        let mut out = [Signs {
            positive: 0,
            unsure: 0,
        }; R];
        for (r, signs) in out.iter_mut().enumerate() {
            for (c, sum) in kept[r].into_iter().enumerate() {
                // SAFETY: 4·c + 4 ≤ 32.
                let slack = unsafe { vld1q_f32(panel.slack.as_ptr().add(4 * c)) };
                let slack = vmulq_n_f32(slack, norms[r]);
                signs.positive |= mask(vcgezq_f32(sum)) << (4 * c);
                // Not greater: also where a sum or a bound is not a number.
                signs.unsure |= mask(vmvnq_u32(vcgtq_f32(vabsq_f32(sum), slack))) << (4 * c);
            }
        }
        out
    }

    /// The lowest bit of each lane.
    #[target_feature(enable = "neon")]
    fn mask(lanes: uint32x4_t) -> u32 {
        const PLACES: [u32; 4] = [1, 2, 4, 8];
        // SAFETY: four lanes are read.
        let places = unsafe { vld1q_u32(PLACES.as_ptr()) };
        vaddvq_u32(vandq_u32(lanes, places))
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
                out.set(r, l, exact(row, v));
            }
        }
        out
    }

    fn agree(seed: &[u8; 32], bits: usize, features: &[f64], dim: usize) {
        let expected = naive(seed, bits, features, dim);
        for cpu in Cpu::all() {
            assert_eq!(signs(cpu, seed, bits, features, dim), expected, "{cpu:?}");
        }
    }

    /// Also parts without rows, and rows beyond those that are rounded at once.
    #[test]
    fn parts_get_their_own_codes() {
        let (dim, bits) = (2, 65);
        let mut features = vec![0.0; dim * (ROWS + 20)];
        normal::fill(&mut Prg::new(&[3; 32]), 0, &mut features);
        let (first, rest) = features.split_at(dim * 7);
        let (second, third) = rest.split_at(dim * ROWS);
        let parts = [&[][..], first, second, &[], third];
        for cpu in Cpu::all() {
            let own = parts.map(|part| naive(&[5; 32], bits, part, dim));
            let together = signs_together(cpu, &[5; 32], bits, &parts, dim);
            assert_eq!(together, own, "{cpu:?}");
            assert_eq!(signs_together(cpu, &[5; 32], bits, &[], dim), []);
            assert_eq!(signs(cpu, &[5; 32], 0, first, dim), BitMatrix::zero(7, 0));
        }
    }

    proptest! {
        #[test]
        fn every_path_gives_the_same_bits(
            rows in 0usize..30, dim in 1usize..40, bits in 1usize..200, seed: [u8; 32],
            exponents in prop::collection::vec(-300i32..300, 30),
        ) {
            let mut features = vec![0.0; rows * dim];
            normal::fill(&mut Prg::new(&[1; 32]), 0, &mut features);
            for (row, exponent) in features.chunks_exact_mut(dim).zip(exponents) {
                row.iter_mut().for_each(|value| *value *= 2f64.powi(exponent));
            }
            agree(&seed, bits, &features, dim);
        }

        /// Rows orthogonal to rows of Π: sums far below single precision decide the sign.
        #[test]
        fn sums_near_zero_are_settled_exactly(dim in 2usize..300, seed: [u8; 32]) {
            let bits = 40;
            let mut pi = vec![0.0; bits * dim];
            normal::fill(&mut Prg::new(&seed), 0, &mut pi);
            let mut features = vec![0.0; bits * dim];
            normal::fill(&mut Prg::new(&[9; 32]), 0, &mut features);
            for (v, p) in features.chunks_exact_mut(dim).zip(pi.chunks_exact(dim)) {
                for _ in 0..2 {
                    let along: f64 = v.iter().zip(p).map(|(v, p)| v * p).sum();
                    let square: f64 = p.iter().map(|p| p * p).sum();
                    v.iter_mut().zip(p).for_each(|(v, p)| *v -= along / square * p);
                }
            }
            agree(&seed, bits, &features, dim);
        }
    }

    #[test]
    fn extreme_values() {
        let tiny = f64::MIN_POSITIVE;
        for row in [
            [1e150, -1e150, 1.0],
            [tiny, -tiny, tiny / 4.0],
            [1e-300, 1e150, 0.0],
            [0.0, 0.0, 1e-310],
            [5e-324, 0.0, 0.0],
            [-5e-324, 0.0, 0.0],
        ] {
            agree(&[4; 32], 300, &row, 3);
        }
    }
}
