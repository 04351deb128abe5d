//! Candidates for discrete Gaussians of a large deviation, and their acceptance.
//!
//! A candidate for a residue ρ modulo t is `g = z + u·K` or `−(z + u·K) − 1`, where u comes from a
//! half Gaussian of deviation σ/K and z is uniform below K. It is accepted with probability 2^−x,
//! where `x = m·(m + 2uKt)·log₂(e)/(2t²σ²)` and `m = |t·g + ρ| − uKt`. What is accepted has the
//! distribution `D_{ℤ, σ, −ρ/t}`. `docs/spec/lwe.md`, *Wide Gaussians*, defines every bit.
//!
//! All numbers are integers, and time depends on nothing. The AVX-512 path works with numbers of 52
//! bits (IFMA), and computes powers of two as [`exp2`] does.

use crate::cpu::Cpu;
#[cfg(target_arch = "x86_64")]
use crate::cpu::Level;
use crate::exp2;

/// Candidates of a block.
pub const BLOCK: usize = 64;

/// How candidates are made and accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scale {
    /// t, below 2¹⁴.
    pub t: u64,
    /// log₂ K, at most 25.
    pub log_k: u32,
    /// `⌊2^shift·log₂(e)/(2·(tσ)²)⌋`.
    pub factor: u64,
    /// From 64 to 155.
    pub shift: u32,
}

/// Largest integer part of x that counts.
const MOST: u64 = 38;

/// Replaces each ρ of `numbers` by the number of its candidate, if that is accepted. Bit `i` of the
/// result is 1 if candidate `i` is. `steps` are the u, and `words` are two random words for each
/// candidate: first words of all, then second ones.
pub fn accept(
    cpu: Cpu,
    scale: &Scale,
    steps: &[u8; BLOCK],
    words: &[[u64; BLOCK]; 2],
    numbers: &mut [u64; BLOCK],
) -> u64 {
    match cpu.level() {
        // SAFETY: `Cpu` proves the features.
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => unsafe { avx512(scale, steps, words, numbers) },
        _ => portable(scale, steps, words, numbers),
    }
}

fn portable(
    scale: &Scale,
    steps: &[u8; BLOCK],
    [first, second]: &[[u64; BLOCK]; 2],
    numbers: &mut [u64; BLOCK],
) -> u64 {
    let Scale {
        t,
        log_k,
        factor,
        shift,
    } = *scale;
    let mut accepted = 0;
    for (i, number) in numbers.iter_mut().enumerate() {
        // All ones for a negative number.
        let sign = (first[i] as i64 >> 63) as u64;
        let z = first[i] & ((1 << log_k) - 1);
        let high = u64::from(steps[i]) << log_k;
        // |t·g + ρ| = K·t·u + z·t + (ρ, or t − ρ).
        let rest = z * t + (*number ^ sign).wrapping_sub(sign).wrapping_add(t & sign);
        let square = u128::from(rest) * u128::from(rest + 2 * high * t);
        // x, 64 bits after the point.
        let below = u128::from(square as u64) * u128::from(factor);
        let above = (square >> 64) * u128::from(factor);
        let x = if shift < 128 {
            (above << (128 - shift)) + (below >> (shift - 64))
        } else {
            (above + (below >> 64)) >> (shift - 128)
        };
        let power = ((x >> 64) as u64).min(MOST);
        let likely = u64::from(second[i] < exp2::power(x as u64));
        let rare = u64::from(first[i] >> 25 & ((1 << power) - 1) == 0);
        accepted |= (likely & rare) << i;
        // −(z + K·u) − 1 for a negative number.
        let mask = (likely & rare).wrapping_neg();
        *number = (((z + high) ^ sign) & mask) | (*number & !mask);
    }
    accepted
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512ifma")]
unsafe fn avx512(
    scale: &Scale,
    steps: &[u8; BLOCK],
    [first, second]: &[[u64; BLOCK]; 2],
    numbers: &mut [u64; BLOCK],
) -> u64 {
    use std::arch::x86_64::*;
    const MASK: u64 = (1 << 52) - 1;
    let splat = |value: u64| _mm512_set1_epi64(value as i64);
    // SAFETY: eight words.
    let load = |from: &[u64; 8]| unsafe { _mm512_loadu_si512(from.as_ptr().cast()) };
    let (zero, mask) = (_mm512_setzero_si512(), splat(MASK));
    let t = splat(scale.t);
    let below_k = splat((1 << scale.log_k) - 1);
    let log_k = _mm_cvtsi32_si128(scale.log_k as i32);
    let factor = [scale.factor & MASK, scale.factor >> 52].map(splat);
    // The 64 bits from `bit` on of a number of four limbs of 52 bits. Limb `j` starts at bit 52j.
    // Shifts by 64 and more give zero.
    let bits_from = |bit: i64, limbs: [__m512i; 4]| {
        let mut out = _mm512_setzero_si512();
        for (limb, start) in limbs.into_iter().zip([0, 52, 104, 156]) {
            let moved = if start < bit {
                _mm512_srl_epi64(limb, _mm_cvtsi64_si128(bit - start))
            } else {
                _mm512_sll_epi64(limb, _mm_cvtsi64_si128(start - bit))
            };
            out = _mm512_or_si512(out, moved);
        }
        out
    };
    let point = i64::from(scale.shift);
    let eights = |words: &[u64; BLOCK], at: usize| {
        let mut eight = [0; 8];
        eight.copy_from_slice(&words[8 * at..8 * at + 8]);
        eight
    };
    let mut accepted = 0u64;
    for half in [0, 4] {
        let mut fractions = [zero; 4];
        let mut powers = [zero; 4];
        let mut candidates = [zero; 4];
        for i in 0..4 {
            let at = half + i;
            let a = load(&eights(first, at));
            let sign = _mm512_srai_epi64::<63>(a);
            let z = _mm512_and_si512(a, below_k);
            // SAFETY: eight bytes.
            let u = unsafe { _mm_loadl_epi64(steps.as_ptr().add(8 * at).cast()) };
            let high = _mm512_sll_epi64(_mm512_cvtepu8_epi64(u), log_k);
            let rho = load(&eights(numbers, at));
            let offset = _mm512_sub_epi64(_mm512_xor_si512(rho, sign), sign);
            let offset = _mm512_add_epi64(offset, _mm512_and_si512(t, sign));
            let rest = _mm512_madd52lo_epu64(offset, z, t);
            let sum = _mm512_madd52lo_epu64(rest, _mm512_add_epi64(high, high), t);
            let square = [
                _mm512_madd52lo_epu64(zero, rest, sum),
                _mm512_madd52hi_epu64(zero, rest, sum),
            ];
            let mut limbs = [zero; 4];
            for (a, square) in square.into_iter().enumerate() {
                for (b, factor) in factor.into_iter().enumerate() {
                    limbs[a + b] = _mm512_madd52lo_epu64(limbs[a + b], square, factor);
                    if a + b + 1 < 4 {
                        limbs[a + b + 1] = _mm512_madd52hi_epu64(limbs[a + b + 1], square, factor);
                    }
                }
            }
            for limb in 0..3 {
                let carry = _mm512_srli_epi64::<52>(limbs[limb]);
                limbs[limb + 1] = _mm512_add_epi64(limbs[limb + 1], carry);
                limbs[limb] = _mm512_and_si512(limbs[limb], mask);
            }
            fractions[i] = bits_from(point - 64, limbs);
            powers[i] = _mm512_min_epu64(bits_from(point, limbs), splat(MOST));
            candidates[i] = _mm512_xor_si512(_mm512_add_epi64(z, high), sign);
        }
        let likely = exp2::four(fractions);
        for i in 0..4 {
            let at = half + i;
            let one = splat(1);
            let likely = _mm512_cmplt_epu64_mask(load(&eights(second, at)), likely[i]);
            let zeros = _mm512_sub_epi64(_mm512_sllv_epi64(one, powers[i]), one);
            let third = _mm512_srli_epi64::<25>(load(&eights(first, at)));
            let both = _mm512_mask_testn_epi64_mask(likely, third, zeros);
            let rho = load(&eights(numbers, at));
            let out = _mm512_mask_mov_epi64(rho, both, candidates[i]);
            // SAFETY: eight words.
            unsafe { _mm512_storeu_si512(numbers.as_mut_ptr().add(8 * at).cast(), out) };
            accepted |= u64::from(both) << (8 * at);
        }
    }
    accepted
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Prg;

    /// Every path computes the same, for scales of all classes and beyond.
    #[test]
    fn every_path_is_the_portable_one() {
        let mut prg = Prg::new(&[5; 32]);
        for (t, log_k, shift) in [
            (1, 10, 86),
            (1, 6, 78),
            (513, 17, 119),
            (2049, 19, 127),
            (2049, 19, 128),
            (8193, 22, 136),
            (8193, 22, 155),
            (8193, 25, 143),
            (8193, 1, 64),
        ] {
            let scale = Scale {
                t,
                log_k,
                factor: prg.next_u64() | 1 << 63,
                shift,
            };
            let mut accepted = 0;
            for round in 0..100 {
                let steps = std::array::from_fn(|_| match round {
                    0 => 63,
                    _ => (prg.next_u64() % 64 * (prg.next_u64() % 64) / 64) as u8,
                });
                let words = std::array::from_fn(|_| std::array::from_fn(|_| prg.next_u64()));
                let numbers: [u64; BLOCK] = std::array::from_fn(|_| prg.next_u64() % t);
                let mut due = numbers;
                let set = accept(Cpu::portable(), &scale, &steps, &words, &mut due);
                accepted += set.count_ones();
                for cpu in Cpu::all() {
                    let mut found = numbers;
                    let found_set = accept(cpu, &scale, &steps, &words, &mut found);
                    assert_eq!((found_set, found), (set, due), "{cpu:?} {scale:?}");
                }
            }
            assert!(accepted > 0 || shift < 100, "{scale:?}");
        }
    }
}
