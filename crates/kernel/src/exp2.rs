//! Powers of two with 64 bits after the point: `2^(−f/2⁶⁴)` for integers `f`, in constant time.
//!
//! The highest four bits of `f` choose a power from a table. The rest gives `e^(−y)` by a Taylor
//! series, where y is below ln(2)/16: terms of degree four and more with 52 bits, the others with
//! 64. All numbers are integers, so every path computes the same bits.

/// `⌊2⁶⁴·ln 2⌋`.
const LN_2: u64 = 12_786_308_645_202_655_659;

/// `⌊2⁶⁴·2^(−i/16)⌋`, and 2⁶⁴ − 1 for i = 0.
const POWERS: [u64; 16] = [
    0xffff_ffff_ffff_ffff,
    0xf525_7d15_2486_cc2c,
    0xeac0_c6e7_dd24_392e,
    0xe0cc_deec_2a94_e111,
    0xd744_fcca_d69d_6af4,
    0xce24_8c15_1f84_80e3,
    0xc567_2a11_5506_dadd,
    0xbd08_a39f_580c_36be,
    0xb504_f333_f9de_6484,
    0xad58_3eea_42a1_4ac6,
    0xa5fe_d6a9_b151_38ea,
    0x9ef5_3260_91a1_11ad,
    0x9837_f051_8db8_a96f,
    0x91c3_d373_ab11_c336,
    0x8b95_c1e3_ea8b_d6e6,
    0x85aa_c367_cc48_7b14,
];

/// `⌊2⁵²/m!⌋` for m from 10 down to 4.
const TAIL: [u64; 7] = {
    let mut out = [0; 7];
    let mut m = 10;
    while m >= 4 {
        out[10 - m] = (1 << 52) / factorial(m as u64);
        m -= 1;
    }
    out
};

/// `⌊2⁶⁴/m!⌋` for m = 3 and 2, then 1 and 0: both 2⁶⁴ − 1.
const HEAD: [u64; 4] = [((1u128 << 64) / 6) as u64, 1 << 63, u64::MAX, u64::MAX];

const fn factorial(m: u64) -> u64 {
    if m == 0 { 1 } else { m * factorial(m - 1) }
}

fn high(a: u64, b: u64) -> u64 {
    ((u128::from(a) * u128::from(b)) >> 64) as u64
}

/// `2⁶⁴·2^(−f/2⁶⁴)`, off by less than 4.
pub fn power(fraction: u64) -> u64 {
    let y = high(fraction & (u64::MAX >> 4), LN_2);
    let short = y >> 12;
    let tail = TAIL.iter().fold(0, |sum, factor| {
        factor - ((u128::from(short) * u128::from(sum)) >> 52) as u64
    });
    let sum = HEAD
        .iter()
        .fold(tail << 12, |sum, factor| factor - high(y, sum));
    // Every entry is read.
    let choice = fraction >> 60;
    let powers = (0..).zip(POWERS);
    let table = powers.fold(0, |chosen, (at, power): (u64, u64)| {
        // All ones where the two are equal.
        let equal = ((at ^ choice).wrapping_sub(1) as i64 >> 63) as u64;
        chosen | power & equal
    });
    high(sum, table)
}

/// [`power`] for four registers, which hide the latency of the multiplications.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512ifma")]
pub(crate) fn four(fractions: [std::arch::x86_64::__m512i; 4]) -> [std::arch::x86_64::__m512i; 4] {
    use std::arch::x86_64::*;
    let splat = |value: u64| _mm512_set1_epi64(value as i64);
    let (mask, zero) = (splat(0xffff_ffff), _mm512_setzero_si512());
    let high = |a: __m512i, b: __m512i| {
        let (ah, bh) = (_mm512_srli_epi64::<32>(a), _mm512_srli_epi64::<32>(b));
        let low = _mm512_srli_epi64::<32>(_mm512_mul_epu32(a, b));
        let one = _mm512_add_epi64(_mm512_mul_epu32(ah, b), low);
        let two = _mm512_add_epi64(_mm512_mul_epu32(a, bh), _mm512_and_si512(one, mask));
        let carry = _mm512_add_epi64(_mm512_srli_epi64::<32>(one), _mm512_srli_epi64::<32>(two));
        _mm512_add_epi64(_mm512_mul_epu32(ah, bh), carry)
    };
    let rest = splat(u64::MAX >> 4);
    let ys = fractions.map(|fraction| high(_mm512_and_si512(fraction, rest), splat(LN_2)));
    let shorts = ys.map(|y| _mm512_srli_epi64::<12>(y));
    let mut sums = [zero; 4];
    for factor in TAIL {
        for (sum, y) in sums.iter_mut().zip(shorts) {
            *sum = _mm512_sub_epi64(splat(factor), _mm512_madd52hi_epu64(zero, y, *sum));
        }
    }
    sums = sums.map(|sum| _mm512_slli_epi64::<12>(sum));
    for factor in HEAD {
        for (sum, y) in sums.iter_mut().zip(ys) {
            *sum = _mm512_sub_epi64(splat(factor), high(y, *sum));
        }
    }
    // SAFETY: eight words each.
    let [low, upper] =
        [0, 8].map(|at| unsafe { _mm512_loadu_si512(POWERS.as_ptr().add(at).cast()) });
    for (sum, fraction) in sums.iter_mut().zip(fractions) {
        let table = _mm512_permutex2var_epi64(low, _mm512_srli_epi64::<60>(fraction), upper);
        *sum = high(*sum, table);
    }
    sums
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
            assert!(found.abs_diff(due) < 4, "{fraction}: {found}, {due}");
        }
    }

    #[test]
    fn the_table_is_right() {
        for (i, power) in POWERS.iter().enumerate().skip(1) {
            // The sixteenth power of 2^(64 − i/16).
            let due = BigUint::from(1u32) << (1024 - i);
            let of = |value: u64| BigUint::from(value).pow(16);
            assert!(of(*power) <= due && due < of(power + 1), "{i}");
        }
        assert_eq!(POWERS[0], u64::MAX);
    }

    /// Computed by an independent program.
    #[test]
    fn powers_are_the_known_answers() {
        for (fraction, due) in [
            (0, 0xffff_ffff_ffff_fffe),
            (1, 0xffff_ffff_ffff_fffe),
            (1 << 62, 0xd744_fcca_d69d_6af3),
            (1 << 63, 0xb504_f333_f9de_6483),
            (u64::MAX, 0x8000_0000_0000_0000),
        ] {
            assert_eq!(power(fraction), due, "{fraction}");
        }
        let fractions = (0..10_000u64).map(|i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let sum = fractions.map(power).fold(0, u64::wrapping_add);
        assert_eq!(sum, 0xdb42_5e9a_4f90_7d75);
    }
}
