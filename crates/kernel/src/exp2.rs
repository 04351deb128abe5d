//! Powers of two with 64 bits after the point: `2^(−f/2⁶⁴)` for integers `f`, in constant time.
//!
//! A power is the fourth power of `e^(−y)` with `y = f·ln 2/2⁶⁶`, which comes from its Taylor
//! series. All numbers are integers, so every path computes the same bits.

/// `⌊2⁶⁴·ln(2)/4⌋`.
const QUARTER: u64 = 3_196_577_161_300_663_914;

/// `⌊2⁶⁴/m!⌋` for m from 13 down to 2, then 1 and 0: both 2⁶⁴ − 1.
const FACTORS: [u64; 14] = {
    let mut out = [u64::MAX; 14];
    let mut factorial: u128 = 1;
    let mut m = 2;
    while m <= 13 {
        factorial *= m as u128;
        out[13 - m] = ((1u128 << 64) / factorial) as u64;
        m += 1;
    }
    out
};

fn high(a: u64, b: u64) -> u64 {
    ((u128::from(a) * u128::from(b)) >> 64) as u64
}

/// `2⁶⁴·2^(−f/2⁶⁴)`, off by less than 16.
pub fn power(fraction: u64) -> u64 {
    let y = high(fraction, QUARTER);
    let sum = FACTORS.iter().fold(0, |sum, factor| factor - high(y, sum));
    let square = high(sum, sum);
    high(square, square)
}

/// [`power`] for four registers, which hide the latency of the multiplications.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
pub(crate) fn four(fractions: [std::arch::x86_64::__m512i; 4]) -> [std::arch::x86_64::__m512i; 4] {
    use std::arch::x86_64::*;
    let mask = _mm512_set1_epi64(0xffff_ffff);
    let high = |a: __m512i, b: __m512i| {
        let (ah, bh) = (_mm512_srli_epi64::<32>(a), _mm512_srli_epi64::<32>(b));
        let low = _mm512_srli_epi64::<32>(_mm512_mul_epu32(a, b));
        let one = _mm512_add_epi64(_mm512_mul_epu32(ah, b), low);
        let two = _mm512_add_epi64(_mm512_mul_epu32(a, bh), _mm512_and_si512(one, mask));
        let carry = _mm512_add_epi64(_mm512_srli_epi64::<32>(one), _mm512_srli_epi64::<32>(two));
        _mm512_add_epi64(_mm512_mul_epu32(ah, bh), carry)
    };
    let quarter = _mm512_set1_epi64(QUARTER as i64);
    let ys = fractions.map(|fraction| high(fraction, quarter));
    let mut sums = [_mm512_setzero_si512(); 4];
    for factor in FACTORS {
        let factor = _mm512_set1_epi64(factor as i64);
        for (sum, y) in sums.iter_mut().zip(ys) {
            *sum = _mm512_sub_epi64(factor, high(y, *sum));
        }
    }
    sums.map(|sum| {
        let square = high(sum, sum);
        high(square, square)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Prg;
    use num_bigint::BigUint;

    /// `⌊2⁶⁴·2^(−f/2⁶⁴)⌋`, by 64 square roots with 256 bits after the point.
    fn definition(fraction: u64) -> u64 {
        let one = BigUint::from(1u32) << 256u32;
        let (mut root, mut out) = (&one >> 1u32, one.clone());
        for bit in (0..64).rev() {
            root = (&root << 256u32).sqrt();
            if fraction >> bit & 1 == 1 {
                out = (out * &root) >> 256u32;
            }
        }
        u64::try_from(out >> 192u32).unwrap_or(u64::MAX)
    }

    #[test]
    fn powers_are_close() {
        let mut prg = Prg::new(&[5; 32]);
        let random = (0..997).map(|_| prg.next_u64());
        for fraction in random.chain([0, 1, u64::MAX, 1 << 63]) {
            let (found, due) = (power(fraction), definition(fraction));
            assert!(found.abs_diff(due) < 16, "{fraction}: {found}, {due}");
        }
    }

    /// Computed by an independent program.
    #[test]
    fn powers_are_the_known_answers() {
        for (fraction, due) in [
            (0, 0xffff_ffff_ffff_fffc),
            (1, 0xffff_ffff_ffff_fffc),
            (1 << 62, 0xd744_fcca_d69d_6af4),
            (1 << 63, 0xb504_f333_f9de_6483),
            (u64::MAX, 0x8000_0000_0000_0003),
        ] {
            assert_eq!(power(fraction), due, "{fraction}");
        }
        let fractions = (0..10_000u64).map(|i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let sum = fractions.map(power).fold(0, u64::wrapping_add);
        assert_eq!(sum, 0xdb42_5e9a_4f90_9ba3);
    }
}
