//! A universal hash of rows of bits: inner products over GF(2⁶⁴).
//!
//! The field is `GF(2)[x] / (x⁶⁴ + x⁴ + x³ + x + 1)`. Bit i of a word is the coefficient of xⁱ. Two
//! different rows of n words collide with probability n·2⁻⁶⁴ if the point is drawn after the words
//! are fixed. The hash is linear: the hash of a sum is the sum of the hashes.

use crate::cpu::{Cpu, Level};

/// `point`, `point²`, … `point^count`.
pub fn powers(cpu: Cpu, point: u64, count: usize) -> Vec<u64> {
    let mut power = 1;
    (0..count)
        .map(|_| {
            power = hash(cpu, &[power], &[point]);
            power
        })
        .collect()
}

/// `Σ words[i]·powers[i]`.
///
/// # Panics
/// When the numbers of words and powers differ.
pub fn hash(cpu: Cpu, powers: &[u64], words: &[u64]) -> u64 {
    assert_eq!(powers.len(), words.len(), "words");
    reduce(match cpu.level() {
        // SAFETY: `Cpu` proves the features.
        #[cfg(target_arch = "aarch64")]
        Level::Neon => unsafe { neon(powers, words) },
        // SAFETY: `Cpu` proves the features.
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => unsafe { avx2(powers, words) },
        // SAFETY: `Cpu` proves the features.
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => unsafe { avx512(powers, words) },
        _ => portable(powers, words),
    })
}

fn portable(powers: &[u64], words: &[u64]) -> u128 {
    let pairs = powers.iter().zip(words);
    pairs.fold(0, |sum, (a, b)| sum ^ multiply(*a, *b))
}

/// The product of two polynomials, in constant time.
fn multiply(a: u64, b: u64) -> u128 {
    (0..64).fold(0, |sum, i| {
        let chosen = 0u64.wrapping_sub(b >> i & 1) & a;
        sum ^ u128::from(chosen) << i
    })
}

/// The remainder of a product.
fn reduce(product: u128) -> u64 {
    let fold = |high: u64| {
        let high = u128::from(high);
        high ^ high << 1 ^ high << 3 ^ high << 4
    };
    let once = fold((product >> 64) as u64);
    let twice = fold((once >> 64) as u64);
    (product ^ once ^ twice) as u64
}

/// Two sums, so that one product need not wait for the other.
#[cfg(target_arch = "aarch64")]
#[target_feature(enable = "neon,aes")]
fn neon(powers: &[u64], words: &[u64]) -> u128 {
    use std::arch::aarch64::vmull_p64;

    let (a, rest_a) = powers.as_chunks::<2>();
    let (b, rest_b) = words.as_chunks::<2>();
    let mut sums = [0; 2];
    for (a, b) in a.iter().zip(b) {
        sums[0] ^= vmull_p64(a[0], b[0]);
        sums[1] ^= vmull_p64(a[1], b[1]);
    }
    for (a, b) in rest_a.iter().zip(rest_b) {
        sums[0] ^= vmull_p64(*a, *b);
    }
    sums[0] ^ sums[1]
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,pclmulqdq")]
fn avx2(powers: &[u64], words: &[u64]) -> u128 {
    use std::arch::x86_64::*;
    let (a, rest_a) = powers.as_chunks::<2>();
    let (b, rest_b) = words.as_chunks::<2>();
    let mut sums = [_mm_setzero_si128(); 2];
    for (a, b) in a.iter().zip(b) {
        // SAFETY: two words are read of each.
        let (a, b) = unsafe {
            (
                _mm_loadu_si128(a.as_ptr().cast()),
                _mm_loadu_si128(b.as_ptr().cast()),
            )
        };
        sums[0] = _mm_xor_si128(sums[0], _mm_clmulepi64_si128::<0x00>(a, b));
        sums[1] = _mm_xor_si128(sums[1], _mm_clmulepi64_si128::<0x11>(a, b));
    }
    let mut sum = 0u128;
    // SAFETY: a `u128` has 16 bytes.
    unsafe { _mm_storeu_si128((&raw mut sum).cast(), _mm_xor_si128(sums[0], sums[1])) };
    for (a, b) in rest_a.iter().zip(rest_b) {
        let product = _mm_clmulepi64_si128::<0x00>(
            _mm_cvtsi64_si128(*a as i64),
            _mm_cvtsi64_si128(*b as i64),
        );
        let mut rest = 0u128;
        // SAFETY: a `u128` has 16 bytes.
        unsafe { _mm_storeu_si128((&raw mut rest).cast(), product) };
        sum ^= rest;
    }
    sum
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,vpclmulqdq,avx2,pclmulqdq")]
fn avx512(powers: &[u64], words: &[u64]) -> u128 {
    use std::arch::x86_64::*;
    let (a, rest_a) = powers.as_chunks::<8>();
    let (b, rest_b) = words.as_chunks::<8>();
    let mut sums = [_mm512_setzero_si512(); 2];
    for (a, b) in a.iter().zip(b) {
        // SAFETY: eight words are read of each.
        let (a, b) = unsafe {
            (
                _mm512_loadu_si512(a.as_ptr().cast()),
                _mm512_loadu_si512(b.as_ptr().cast()),
            )
        };
        sums[0] = _mm512_xor_si512(sums[0], _mm512_clmulepi64_epi128::<0x00>(a, b));
        sums[1] = _mm512_xor_si512(sums[1], _mm512_clmulepi64_epi128::<0x11>(a, b));
    }
    let mut four = [0u128; 4];
    // SAFETY: four `u128` have 64 bytes.
    unsafe { _mm512_storeu_si512((&raw mut four).cast(), _mm512_xor_si512(sums[0], sums[1])) };
    four.iter()
        .fold(avx2(rest_a, rest_b), |sum, part| sum ^ part)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Long division, bit by bit.
    fn remainder(mut product: u128) -> u64 {
        for i in (64..128).rev() {
            if product >> i & 1 == 1 {
                product ^= (1 << 64 | 0b11011) << (i - 64);
            }
        }
        product as u64
    }

    proptest! {
        #[test]
        fn every_path_is_the_definition(words: Vec<u64>, point: u64) {
            let powers = powers(Cpu::detect(), point, words.len());
            let mut power = 1;
            let mut sum = 0;
            for (word, found) in words.iter().zip(&powers) {
                power = remainder(multiply(power, point));
                prop_assert_eq!(power, *found);
                sum ^= remainder(multiply(power, *word));
            }
            for cpu in Cpu::all() {
                prop_assert_eq!(hash(cpu, &powers, &words), sum);
            }
        }
    }

    #[test]
    fn products_are_those_of_polynomials() {
        assert_eq!(multiply(0b11, 0b101), 0b1111);
        assert_eq!(multiply(1 << 63, 1 << 63), 1 << 126);
        assert_eq!(reduce(1 << 64), 0b11011);
    }
}
