//! Step 5 and step 6 for all numbers they may meet.

use undertone_kernel::pack;

use super::{SESSION, SUITE, seed, words};
use crate::params::{CLASSES, Params};
use crate::{Headers, KeyOwner, Masks, sample};

/// Opens every `z` of `due` with the code of the key owner, and compares with its `U`.
fn open(params: &'static Params, due: &[(u64, u64)]) {
    let owner = KeyOwner::new(params, SESSION, SUITE, seed(1), 1);
    let mut secret = vec![0; params.n];
    sample::ternary(&mut words(&seed(1), "lwe key", &[0]), &mut secret);
    let minus = secret.iter().position(|s| *s as i8 == -1).unwrap();
    // Header j has the number j where the secret is −1: z is V·2^(h−v) + j.
    let drop = params.h - params.v;
    let mut bytes = Vec::new();
    for low in 0..1 << drop {
        let mut values = vec![0; params.n];
        values[minus] = low;
        pack::pack_words(params.h, &values, &mut bytes);
    }
    let headers = Headers::new(params, &bytes);
    let mut waiting = vec![Vec::new(); 1 << drop];
    for (z, residue) in due {
        waiting[(z & ((1 << drop) - 1)) as usize].push((z >> drop, *residue));
    }
    let calls = waiting.iter().map(Vec::len).max().unwrap();
    for call in 0..calls {
        let now: Vec<Option<&(u64, u64)>> = waiting.iter().map(|of| of.get(call)).collect();
        let answers: Vec<u64> = now.iter().map(|one| one.map_or(0, |one| one.0)).collect();
        // The number of ones of the row, from 0 to L, moves the result.
        let weight = (call * 37 % (params.bits + 1)) as u16;
        let opened = owner.open(&headers, &answers, 0..1, &[weight]);
        for (one, opened) in now.iter().zip(opened.iter()) {
            if let Some((_, residue)) = one {
                let due = (residue + u64::from(weight)) % params.t;
                assert_eq!(u64::from(*opened), due, "{params:?}");
            }
        }
    }
}

/// Every U is found again under all noise below Q/2t: at both ends of what the limit allows, next
/// to them, and without noise.
#[test]
fn residues_are_found_up_to_the_limit() {
    for params in &CLASSES {
        let (t, q_modulus) = (i128::from(params.t), 1i128 << params.q);
        let unit = 1i128 << (params.q - params.h);
        let mut due = Vec::new();
        for residue in 0..params.t {
            let center = i128::from(params.tau().wrapping_mul(residue) & params.mask());
            // τU is a multiple of Q/t, plus U/t. The noise e is within the limit if U + e·t is
            // between −Q/2 and Q/2.
            let least = -(q_modulus / 2 + i128::from(residue) - 1).div_euclid(t);
            let most = (q_modulus / 2 - i128::from(residue) - 1).div_euclid(t);
            let first = (center + least + unit - 1).div_euclid(unit);
            let last = (center + most).div_euclid(unit);
            assert!(first * unit - center < least + unit && last * unit - center > most - unit);
            let middle = (center + unit / 2).div_euclid(unit);
            for z in [first, first + 1, middle, last - 1, last] {
                due.push((z.rem_euclid(1 << params.h) as u64, residue));
            }
        }
        open(params, &due);
    }
}

/// Every number of the smallest class opens to the U that is nearest.
#[test]
#[ignore = "all 2^20 numbers of a header of the smallest class"]
fn residues_are_found_at_length() {
    let params = &CLASSES[0];
    let (t, whole) = (params.t, 1u64 << params.h);
    // u with τ·t = 1 + u·Q.
    let u = ((u128::from(params.tau()) * u128::from(t)) >> params.q) as u64;
    let mut due = Vec::new();
    // 2^(h−1) is as near to one residue as to another.
    for z in (0..whole).filter(|z| *z != whole / 2) {
        let near = (0..t)
            .min_by_key(|residue| {
                let distance = (z * t).abs_diff(u * residue % t * whole);
                distance.min(whole * t - distance)
            })
            .unwrap();
        due.push((z, near));
    }
    open(params, &due);
}

/// LWE-13: every distance up to 2t − 2 is told apart from the one with the same residue, and none
/// above the length of codes passes.
#[test]
fn distances_are_unmasked() {
    for params in &CLASSES {
        let t = params.t as usize;
        let count = 2 * t - 1;
        let masks = Masks::new(params, SUITE, seed(2), count);
        let mut drawn = vec![0; count];
        for row in [0, 3] {
            masks.fill(row, 0, &mut drawn);
            assert!(drawn.iter().all(|mask| *mask < params.t));
            let residues: Vec<u16> = (0..count)
                .map(|distance| ((distance + drawn[distance] as usize) % t) as u16)
                .collect();
            let mut packed = Vec::new();
            pack::pack(params.width(), &residues, &mut packed);
            for flip in [0, 1] {
                let right: Vec<u8> = (0..count).map(|d| (d & 1) as u8 ^ flip).collect();
                let unmask = |bits| masks.unmask(bits, row..row + 1, &[flip], 0, &right, &packed);
                let due: Vec<u16> = (0..count as u16).collect();
                assert_eq!(unmask(params.bits), Some(due));
                assert_eq!(unmask(params.bits - 1), None);
            }
        }
        masks.fill(0, 0, &mut drawn[..1]);
        let mut packed = Vec::new();
        pack::pack(params.width(), &[params.t as u16], &mut packed);
        assert_eq!(
            masks.unmask(params.bits, 0..1, &[0], 0, &[0], &packed),
            None
        );
    }
}

/// Masks of a block of columns are those of the whole row.
#[test]
fn masks_do_not_depend_on_blocks() {
    let masks = Masks::new(&CLASSES[1], SUITE, seed(2), 100);
    let mut whole = [0; 100];
    masks.fill(5, 0, &mut whole);
    let mut part = [0; 31];
    masks.fill(5, 17, &mut part);
    assert_eq!(part, whole[17..48]);
    let mut next = [0; 100];
    masks.fill(6, 0, &mut next);
    assert_ne!(next, whole);
}
