//! Shamir's secret sharing over GF(2⁸), byte by byte (Shamir 1979; field of AES, x⁸+x⁴+x³+x+1).
//!
//! Constant-time in the secret: shares and secrets are multiplied by public numbers only, points
//! and Lagrange coefficients.

use undertone_kernel::Prg;
use zeroize::Zeroizing;

/// Most holders of one secret: the nonzero elements of the field.
pub const MAX_HOLDERS: usize = 255;

/// The powers α^i of the generator α = 3, twice, and the logarithms. For public numbers only.
const TABLES: ([u8; 510], [u8; 256]) = {
    let (mut exp, mut log) = ([0; 510], [0; 256]);
    let (mut power, mut i) = (1u8, 0);
    while i < 255 {
        exp[i] = power;
        exp[i + 255] = power;
        log[power as usize] = i as u8;
        power ^= double(power);
        i += 1;
    }
    (exp, log)
};

const fn double(x: u8) -> u8 {
    (x << 1) ^ (0x1b & 0u8.wrapping_sub(x >> 7))
}

/// The quotient of two public numbers. `b` is not zero.
fn divide_public(a: u8, b: u8) -> u8 {
    if a == 0 {
        return 0;
    }
    let (exp, log) = &TABLES;
    exp[usize::from(log[usize::from(a)]) + 255 - usize::from(log[usize::from(b)])]
}

fn multiply_public(a: u8, b: u8) -> u8 {
    if a == 0 || b == 0 {
        return 0;
    }
    let (exp, log) = &TABLES;
    exp[usize::from(log[usize::from(a)]) + usize::from(log[usize::from(b)])]
}

/// `secret` times `public`, without a branch or an index that depends on `secret`.
fn scale<const N: usize>(secret: &mut [u8; N], public: u8) {
    let mut product = Zeroizing::new([0; N]);
    for bit in 0..8 {
        if public >> bit & 1 == 1 {
            for (p, s) in product.iter_mut().zip(secret.iter()) {
                *p ^= s;
            }
        }
        for s in secret.iter_mut() {
            *s = double(*s);
        }
    }
    *secret = *product;
}

fn add<const N: usize>(to: &mut [u8; N], other: &[u8; N]) {
    for (a, b) in to.iter_mut().zip(other) {
        *a ^= b;
    }
}

/// Shares of `secret` at points 1 to `holders`. Any `threshold` of them reconstruct it; fewer are
/// uniform. Coefficients come from `prg`, that of x first.
///
/// # Panics
/// When there are more than [`MAX_HOLDERS`] holders, or the threshold is not from 1 to `holders`.
pub fn split<const N: usize>(
    secret: &[u8; N],
    threshold: usize,
    holders: usize,
    prg: &mut Prg,
) -> Vec<Zeroizing<[u8; N]>> {
    assert!((1..=holders).contains(&threshold) && holders <= MAX_HOLDERS);
    let mut coefficients = Vec::with_capacity(threshold - 1);
    for _ in 1..threshold {
        let mut coefficient = Zeroizing::new([0; N]);
        prg.fill(&mut *coefficient);
        coefficients.push(coefficient);
    }
    let share = |point: usize| {
        let mut sum = Zeroizing::new([0; N]);
        for coefficient in coefficients.iter().rev() {
            add(&mut sum, coefficient);
            scale(&mut sum, point as u8);
        }
        add(&mut sum, secret);
        sum
    };
    (1..=holders).map(share).collect()
}

/// The secret of `shares`, each with its point. Points are distinct and not 0. The number of shares
/// is at least the threshold. False or too few shares give a wrong secret.
pub fn combine<const N: usize>(shares: &[(u8, &[u8; N])]) -> Zeroizing<[u8; N]> {
    let mut secret = Zeroizing::new([0; N]);
    for (i, (point, share)) in shares.iter().enumerate() {
        let (mut above, mut below) = (1, 1);
        for (j, (other, _)) in shares.iter().enumerate() {
            if i != j {
                above = multiply_public(above, *other);
                below = multiply_public(below, other ^ point);
            }
        }
        let mut term = Zeroizing::new(**share);
        scale(&mut term, divide_public(above, below));
        add(&mut secret, &term);
    }
    secret
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn tables_are_the_field() {
        for a in 0..=255 {
            for b in 0..=255 {
                let mut product = [a];
                scale(&mut product, b);
                assert_eq!(product[0], multiply_public(a, b));
                if b != 0 {
                    assert_eq!(divide_public(product[0], b), a);
                }
            }
        }
        // FIPS 197, section 4.2.
        assert_eq!(multiply_public(0x57, 0x83), 0xc1);
    }

    proptest! {
        #[test]
        fn any_threshold_of_shares_give_the_secret(
            secret: [u8; 7], threshold in 1usize..12, more in 0usize..9, seed: u8, picks: u64,
        ) {
            let holders = threshold + more;
            let shares = split(&secret, threshold, holders, &mut Prg::new(&[seed; 32]));
            let mut points: Vec<usize> = (0..holders).collect();
            let mut state = picks | 1;
            for i in (1..holders).rev() {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                points.swap(i, (state >> 33) as usize % (i + 1));
            }
            let of = |count: usize| -> Vec<_> {
                points[..count].iter().map(|p| (*p as u8 + 1, &*shares[*p])).collect()
            };
            prop_assert_eq!(*combine(&of(threshold)), secret);
            prop_assert_eq!(*combine(&of(holders)), secret);
            if threshold > 1 {
                prop_assert_ne!(*combine(&of(threshold - 1)), secret, "2⁻⁵⁶ by chance");
            }
        }

        /// One byte at a time against another implementation.
        #[test]
        fn another_implementation_reads_our_shares(
            secret: [u8; 4], threshold in 2usize..9, more in 0usize..5, seed: u8,
        ) {
            let holders = threshold + more;
            let shares = split(&secret, threshold, holders, &mut Prg::new(&[seed; 32]));
            for (byte, expected) in secret.iter().enumerate() {
                let theirs: Vec<Vec<u8>> = (more..holders)
                    .map(|at| vec![at as u8 + 1, shares[at][byte]])
                    .collect();
                let combined = vsss_rs::Gf256::combine_array(&theirs).unwrap();
                prop_assert_eq!(&combined[..], &[*expected][..]);
            }
        }
    }

    /// Fewer shares than the threshold reveal nothing: every secret is equally likely.
    #[test]
    fn a_share_too_few_is_uniform() {
        let mut counts = [0u32; 256];
        for seed in 0..2048u32 {
            let mut key = [0; 32];
            key[..4].copy_from_slice(&seed.to_le_bytes());
            let shares = split(&[42; 16], 3, 5, &mut Prg::new(&key));
            for byte in combine(&[(2, &shares[1]), (4, &shares[3])]).iter() {
                counts[usize::from(*byte)] += 1;
            }
        }
        // 32768 bytes in 256 bins: χ² with 255 degrees of freedom is above 377 once in 10⁶.
        let chi: f64 = counts
            .iter()
            .map(|c| (f64::from(*c) - 128.0).powi(2) / 128.0)
            .sum();
        assert!(chi < 377.0, "χ² = {chi}");
    }
}
