//! The noise under distances: what it consists of, and how large it is.

use undertone_kernel::Cpu;
use undertone_kernel::cdt::Tables;
use undertone_kernel::negacyclic::Eight;

use super::pairs::{Key, Run, bits, centered, pairs};
use super::statistics::deviation;
use super::{KEY, uniform};
use crate::params::{CLASSES, Params};
use crate::table::{Samplers, coset_thresholds, error_thresholds};
use crate::{Matrix, Scratch};

/// The deviations of the terms of the noise, in the order of [`Pair::terms`].
fn predicted(params: &Params) -> [f64; 7] {
    let [l, n] = [params.length, params.n].map(|count| (count as f64).sqrt());
    let rounding = uniform(params.q - params.v);
    [
        params.row_deviation as f64 * KEY * l,
        params.header_deviation as f64 * KEY * n,
        uniform(params.q - params.h) * KEY * n,
        params.answer_deviation as f64,
        params.opening_deviation as f64,
        rounding,
        rounding,
    ]
}

fn norm(terms: &[f64]) -> f64 {
    terms.iter().map(|term| term * term).sum::<f64>().sqrt()
}

/// The most noise that still gives the distance.
fn limit(params: &Params) -> f64 {
    2f64.powi(params.q as i32 - 1) / params.t as f64
}

/// What is sent is exactly what both sides compute from their secrets. The identities hold, the
/// noise is the sum of its terms, and each term has its deviation.
fn terms_add_up(params: &'static Params, rows: usize, columns: usize, close: f64) {
    let mut terms: [Vec<f64>; 7] = Default::default();
    let mut total = Vec::new();
    for pair in pairs(&Run::new(params, rows, columns)) {
        let [v, g] = pair.whole(params);
        assert_eq!(pair.answer, pair.rounded(params, v));
        assert_eq!(pair.opening, pair.rounded(params, g));
        let gamma = pair.drawn[1];
        assert_eq!(pair.identities(params, gamma), [true; 3]);
        if gamma != 0 {
            // With the other sign of γ, which is in (1) and (3).
            assert_eq!(pair.identities(params, -gamma), [false, true, false]);
        }
        let (parts, noise) = pair.terms(params);
        assert_eq!(parts.iter().sum::<i64>(), noise);
        assert!((noise as f64) < 0.7 * limit(params));
        assert_eq!(i64::from(pair.found), pair.distance);
        for (term, part) in terms.iter_mut().zip(parts) {
            term.push(part as f64);
        }
        total.push(noise as f64);
    }
    assert_eq!(total.len(), rows * columns);
    let due = predicted(params);
    let all = terms.iter().zip(due).chain([(&total, norm(&due))]);
    for (at, (term, due)) in all.enumerate() {
        let ratio = deviation(term) / due;
        println!("L = {}, term {at}: {ratio}", params.bits);
        assert!(
            (ratio - 1.0).abs() < close,
            "L = {}, {at}: {ratio}",
            params.bits
        );
    }
    let most = total.iter().fold(0f64, |most, noise| most.max(noise.abs()));
    println!(
        "L = {}: at most {} of the limit",
        params.bits,
        most / limit(params)
    );
}

#[test]
fn noise_is_the_sum_of_its_terms() {
    terms_add_up(&CLASSES[0], 66, 256, 0.03);
    for params in &CLASSES[1..] {
        terms_add_up(params, 16, 24, 0.15);
    }
}

#[test]
#[ignore = "65,536 distances of each class, with all products written out"]
fn noise_is_the_sum_of_its_terms_at_length() {
    CLASSES
        .iter()
        .for_each(|params| terms_add_up(params, 128, 512, 0.015));
}

/// The thresholds of the numbers with the other sign.
fn mirrored(thresholds: &[u128]) -> Vec<u128> {
    thresholds
        .iter()
        .rev()
        .map(|threshold| !threshold)
        .collect()
}

/// A key consists of the errors of the table for its code: with errors without their centre, or
/// with the centre of the other sign, it is another. The same holds for masked rows. Histograms
/// would hardly show it.
#[test]
fn centres_have_their_sign() {
    for params in &CLASSES {
        let run = Run::new(params, 12, 12);
        let samplers = Samplers::of(params);
        let wrong = |of: fn(&Params, u8) -> Vec<u128>| {
            let [zero, one] = [0, 1].map(|bit| of(params, bit));
            let without = Tables::new([&zero, &zero]);
            [without, Tables::new([&zero, &mirrored(&one)])]
        };
        let mut bytes = Vec::new();
        for row in 0..12 {
            bytes.extend(run.owner().keys(row..row + 1));
        }
        let hint = run.hint(&bytes);
        let mut same = [[0; 2]; 2];
        for (row, bytes) in bytes.chunks(params.key_len()).enumerate() {
            let Key { secret, error, key } = run.key(row, bytes);
            // A·s
            let lanes: Vec<Eight> = secret.iter().map(|s| Eight([*s as u64; 8])).collect();
            let mut products = vec![Eight::default(); params.length];
            let scratch = &mut Scratch::default();
            run.ring
                .column(Cpu::detect(), scratch, &lanes, &mut products);
            let y = bits(run.y.row(row), params.length);
            let step = 2 * params.tau() as i64;
            let rest = key
                .iter()
                .zip(&products)
                .zip(&y)
                .map(|((key, product), y)| {
                    let rest = key.wrapping_sub(product.0[0] as i64).wrapping_add(step * y);
                    centered(params.q, rest)
                });
            assert_eq!(rest.collect::<Vec<_>>(), error);
            let masked = run.masked(&hint, row, &samplers.coset);
            for (at, tables) in wrong(error_thresholds).iter().enumerate() {
                same[0][at] += usize::from(run.error(row, tables) == error);
            }
            for (at, tables) in wrong(coset_thresholds).iter().enumerate() {
                same[1][at] += usize::from(run.masked(&hint, row, tables) == masked);
            }
        }
        // Each number is another with probability 2/t or 1/t, or twice that for the other sign.
        let [[none, other], [row_none, row_other]] = same;
        assert!(
            none < 6 && other < 4 && row_none < 10 && row_other < 6,
            "{same:?}"
        );
    }
}

/// The table in `docs/spec/lwe.md`, *Correctness*: log₂ of the deviation, limit/deviation, and
/// −log₂ of the probability of a wrong distance and of the proved bound.
const TABLE: [(f64, f64, [f64; 2]); 5] = [
    (23.5, 10.98, [90.0, 85.0]),
    (23.5, 11.18, [94.0, 89.0]),
    (24.7, 9.67, [71.0, 66.0]),
    (25.7, 9.69, [71.0, 66.0]),
    (26.7, 9.82, [73.0, 68.0]),
];

/// The specification takes the largest norms of a key. Its figures are exact for those, and little
/// worse than those for typical keys.
#[test]
fn probabilities_of_wrong_distances_are_those_of_the_specification() {
    for (params, (bits, ratio, unlikely)) in CLASSES.iter().zip(TABLE) {
        let typical = predicted(params);
        let mut worst = typical;
        let norm_of = |count: usize| 1.0 + 10.0 / (count as f64).sqrt();
        worst[0] *= super::wider(KEY) * norm_of(params.length);
        worst[1] *= super::wider(KEY) * norm_of(params.n);
        worst[2] *= super::wider(KEY) * norm_of(params.n);
        let found = limit(params) / norm(&worst);
        // 2·exp(−z²/2), and the tail of a Gaussian: that times (1 − 1/z² + …)/(z·√(2π)).
        let proved = found * found / 2.0 * std::f64::consts::LOG2_E - 1.0;
        let square = found.powi(-2);
        let tail = found * (2.0 * std::f64::consts::PI).sqrt();
        let wrong = proved + (tail / (1.0 - square + 3.0 * square * square)).log2();
        let log = norm(&worst).log2();
        let all = format!("L = {}: 2^{log}, {found}, {wrong}, {proved}", params.bits);
        println!("{all}");
        assert!((log - bits).abs() < 0.051, "{all}");
        assert!((found - ratio).abs() < 0.0051, "{all}");
        // The table rounds to probabilities that are larger.
        for (found, due) in [wrong, proved].iter().zip(unlikely) {
            assert!(*found >= due && *found < due + 1.0, "{all}");
        }
        let typical = limit(params) / norm(&typical);
        assert!(typical > ratio && typical < 1.1 * ratio, "{all}, {typical}");
    }
}

fn noise_is_as_predicted(params: &'static Params, rows: usize, columns: usize, close: f64) {
    let run = Run::new(params, rows, columns);
    let pairs = pairs(&run);
    let noise: Vec<f64> = pairs
        .iter()
        .map(|pair| pair.terms(params).1 as f64)
        .collect();
    let wrong = pairs
        .iter()
        .filter(|pair| i64::from(pair.found) != pair.distance);
    assert_eq!(wrong.count(), 0);
    let ratio = deviation(&noise) / norm(&predicted(params));
    let most = noise.iter().fold(0f64, |most, noise| most.max(noise.abs())) / limit(params);
    println!("L = {}: deviation {ratio}, maximum {most}", params.bits);
    assert!((ratio - 1.0).abs() < close, "L = {}: {ratio}", params.bits);
    assert!(most < 0.7, "L = {}: {most}", params.bits);
}

#[test]
#[ignore = "10^6 distances of each class"]
fn noise_has_the_deviation_of_the_specification_at_length() {
    CLASSES
        .iter()
        .for_each(|params| noise_is_as_predicted(params, 1000, 1000, 0.01));
}
