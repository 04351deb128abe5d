//! Step 7 for all numbers it may meet.

use undertone_kernel::pack;

use crate::Decoder;
use crate::params::{CLASSES, Params};

/// The distances for each `z`, between two rows with the parity of `odd`.
fn decode(params: &'static Params, bits: usize, zs: &[u64], odd: u8) -> (Vec<u16>, u64) {
    let mask = (1 << params.v) - 1;
    // Openings of all sizes.
    let opened: Vec<u64> = (0..zs.len() as u64)
        .map(|at| (at * 40_503) & mask)
        .collect();
    let pairs = zs.iter().zip(&opened);
    let given: Vec<u64> = pairs.map(|(z, b)| (z + b) & mask).collect();
    let packed = |values: &[u64]| {
        let mut out = Vec::new();
        pack::pack_words(params.v, values, &mut out);
        out
    };
    // Only the exclusive or of parities counts.
    let parities: Vec<u8> = (0..zs.len()).map(|_| 1 ^ odd).collect();
    let decoder = Decoder { params, bits };
    decoder.distances(&[1], &parities, &packed(&given), &packed(&opened))
}

/// u, with τ·t = 1 + u·Q.
fn unit(params: &Params) -> u64 {
    ((u128::from(params.tau()) * u128::from(params.t)) >> params.q) as u64
}

/// Every number `z` gives the distance whose multiple is nearest, with the parity that is given.
#[test]
fn every_number_gives_the_nearest_residue() {
    for params in &CLASSES {
        let (t, whole) = (params.t, 1u64 << params.v);
        // The d for each u·d modulo t.
        let mut of = vec![0; t as usize];
        (0..t).for_each(|d| of[(unit(params) * d % t) as usize] = d);
        let zs: Vec<u64> = (0..whole).collect();
        for odd in [0, 1] {
            let (found, _) = decode(params, 2 * params.bits, &zs, odd);
            for (z, found) in zs.iter().zip(found) {
                // 2^(v−1) is as near to one as to another.
                if *z != whole / 2 {
                    let near = (z * t) / whole + u64::from(z * t % whole > whole / 2);
                    let d = of[(near % t) as usize];
                    let due = if d & 1 == u64::from(odd) { d } else { d + t };
                    assert_eq!(u64::from(found), due, "{params:?}, {z}");
                }
            }
        }
    }
}

/// `c̄·d + Z` gives d for all Z below the limit `Q/2t`, less the rounding of answers and openings.
#[test]
fn distances_are_found_up_to_the_limit() {
    for params in &CLASSES {
        let (q, t) = (1i128 << params.q, i128::from(params.t));
        let step = 1i128 << (params.q - params.v);
        let u = i128::from(unit(params));
        let mut numbers = Vec::new();
        let mut due = Vec::new();
        for d in 0..=params.bits as i128 {
            // t·(c̄·d + Z), where Z is in ℤ + d/t.
            let limit = q / 2 - step * t - 1;
            let least = -(limit + d).div_euclid(t);
            let most = (limit - d).div_euclid(t);
            for z in [least, least + 1, 0, most - 1, most] {
                let exact = u * q * d + z * t + d;
                assert_eq!(exact.rem_euclid(t), 0);
                numbers.push((exact / t).rem_euclid(q));
                due.push(d as u16);
            }
        }
        // Answer and opening are rounded apart. Between them lies any pad.
        let round = |a: i128| ((a + step / 2) / step) as u64 & ((1 << params.v) - 1);
        let pad = |at: usize| (at as i128 * 0x9E37_79B9_7F4A_7C15) % q;
        let zs = numbers.iter().enumerate().map(|(at, number)| {
            let z = round((number + pad(at)) % q).wrapping_sub(round(pad(at)));
            z & ((1 << params.v) - 1)
        });
        let zs: Vec<u64> = zs.collect();
        for odd in [0, 1] {
            let (found, above) = decode(params, params.bits, &zs, odd);
            for (found, due) in found.iter().zip(&due) {
                if due & 1 == u16::from(odd) {
                    assert_eq!(found, due, "{params:?}");
                }
            }
            // The others are off by t, and too large if d + t is: from L − t + 1 on.
            let large = |d: &&u16| {
                let d = usize::from(**d) % params.t as usize;
                d & 1 != usize::from(odd) && d + params.t as usize > params.bits
            };
            assert_eq!(above, due.iter().filter(large).count() as u64);
        }
    }
}

/// LWE-13: a distance above the length of codes counts as this length, and is counted.
#[test]
fn distances_above_the_length_are_cut() {
    for params in &CLASSES {
        let (t, whole) = (params.t, 1u64 << params.v);
        // The z of each distance up to 2t − 2.
        let zs: Vec<u64> = (0..2 * t - 1)
            .map(|d| ((unit(params) * d % t) * whole + t / 2) / t % whole)
            .collect();
        let half = params.bits / 2;
        for bits in [1, half, params.bits - 1, params.bits] {
            for odd in [0, 1] {
                let (found, above) = decode(params, bits, &zs, odd);
                let mut count = 0;
                for (d, found) in found.iter().enumerate() {
                    if d & 1 == usize::from(odd) {
                        assert_eq!(usize::from(*found), d.min(bits));
                    }
                    count += u64::from(usize::from(*found) == bits);
                }
                // Those that are equal to `bits` are not above it.
                let equal = zs.iter().enumerate().filter(|(d, _)| {
                    let residue = d % t as usize;
                    let due = if residue & 1 == usize::from(odd) {
                        residue
                    } else {
                        residue + t as usize
                    };
                    due == bits
                });
                assert_eq!(above, count - equal.count() as u64);
            }
        }
    }
}
