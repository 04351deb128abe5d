//! What is sampled has the distribution of the specification.

use undertone_kernel::mask::Suite;
use undertone_kernel::{Cpu, Prg, cdt};

use super::statistics::{chi_square, mean_is, normal};
use super::{Rows, SESSION, Small, gaussians, residues, seed, words};
use crate::params::{CLASSES, Params};
use crate::sample::{Words, binomial, ternary};
use crate::table::{MAX_STEP, Samplers, Wide};

/// More than this many deviations of chi-square happen with probability below 10⁻⁵.
const MOST: f64 = 5.0;

/// How often each w′ of a bit `x` occurs among `samples`.
fn steps(params: &Params, x: u8, samples: usize) -> Vec<u64> {
    let tables = &Samplers::of(params).coset;
    let mut counts = vec![0; 2 * MAX_STEP as usize + 1];
    let mut prg = Prg::new(&[x + 5; 32]);
    let choices = [u64::from(x).wrapping_neg(); 64];
    let (mut randoms, mut out) = (vec![0; 16 * 4096], vec![0; 4096]);
    for _ in 0..samples.div_ceil(4096) {
        prg.fill(&mut randoms);
        cdt::sample(Cpu::detect(), tables, &choices, &randoms, &mut out);
        out.iter().for_each(|step| counts[*step as usize] += 1);
    }
    counts
}

fn steps_fit(params: &Params, samples: usize) {
    let deviation = params.row_deviation as f64;
    for x in [0u8, 1] {
        let due: Vec<f64> = (-MAX_STEP..=MAX_STEP)
            .map(|u| {
                let value = (u * params.t as i64 + i64::from(x)) as f64 / deviation;
                (-value * value / 2.0).exp()
            })
            .collect();
        let counts = steps(params, x, samples);
        let off = chi_square(&counts, &due);
        assert!(off < MOST, "L = {}, bit {x}: {off}", params.bits);
    }
}

#[test]
fn masked_rows_are_gaussian() {
    CLASSES.iter().for_each(|params| steps_fit(params, 200_000));
    // The test fails for a deviation that is 2 % larger.
    let counts = steps(&CLASSES[0], 0, 200_000);
    let wrong = |u: i64| (-(u as f64 * 513.0 / (1.02 * 2355.0)).powi(2) / 2.0).exp();
    let due: Vec<f64> = (-MAX_STEP..=MAX_STEP).map(wrong).collect();
    assert!(chi_square(&counts, &due) > 10.0);
}

#[test]
#[ignore = "10^7 samples of each table"]
fn masked_rows_are_gaussian_at_length() {
    CLASSES
        .iter()
        .for_each(|params| steps_fit(params, 10_000_000));
}

/// With a small t the centre of w′ shows: it is −1/t for a bit 1, so that w has mean 0.
#[test]
fn masked_bits_do_not_move_the_mean() {
    let small = Small::new(256, 5, 16, 4, 16);
    let rows = Rows::new(&small, 1);
    let mut values = [Vec::new(), Vec::new()];
    for (values, bits) in values.iter_mut().zip([0, u64::MAX]) {
        for row in 0..2000 {
            rows.draw(&[bits; 4], 256, words(&seed(1), "row", &[row]), values);
        }
        let x = f64::from(u8::from(bits != 0));
        assert!(values.iter().all(|w| (w - x).rem_euclid(5.0) == 0.0));
        assert!(mean_is(values, 0.0).abs() < 4.0);
    }
    // The same numbers under the table of the other bit: w of a bit 1 moves by 1.
    values[0].iter_mut().for_each(|w| *w += 1.0);
    assert!(mean_is(&values[0], 0.0).abs() > 20.0);
}

/// The half Gaussian under a wide one.
fn halves_fit(deviation: u64, wide: &Wide, samples: usize) {
    let k = f64::from(1u32 << (deviation.ilog2() - 1));
    let mut counts = vec![0; 65];
    let mut prg = Prg::new(&[6; 32]);
    let (mut randoms, mut out) = (vec![0; 16 * 4096], vec![0; 4096]);
    for _ in 0..samples.div_ceil(4096) {
        prg.fill(&mut randoms);
        cdt::sample(Cpu::detect(), &wide.table, &[0; 64], &randoms, &mut out);
        out.iter().for_each(|step| counts[*step as usize] += 1);
    }
    assert_eq!(counts[64], 0);
    let due: Vec<f64> = (0..64)
        .map(|u| (-(f64::from(u) * k / deviation as f64).powi(2) / 2.0).exp())
        .collect();
    let off = chi_square(&counts[..64], &due);
    assert!(off < MOST, "{deviation}: {off}");
}

#[test]
fn half_gaussians_fit() {
    for params in &CLASSES {
        let samplers = Samplers::of(params);
        halves_fit(params.header_deviation, &samplers.header, 200_000);
        halves_fit(params.answer_deviation, &samplers.answer, 200_000);
    }
}

#[test]
#[ignore = "10^7 samples of each table"]
fn half_gaussians_fit_at_length() {
    for params in &CLASSES {
        let samplers = Samplers::of(params);
        halves_fit(params.header_deviation, &samplers.header, 10_000_000);
        halves_fit(params.answer_deviation, &samplers.answer, 10_000_000);
    }
}

/// How far `g`, for `residue`, is from a Gaussian with centre −residue/t, which is even at the
/// scale of single numbers.
fn narrow(deviation: u64, t: u64, residue: u64, center: f64, samples: usize) -> f64 {
    let wide = Wide::new(deviation, t);
    let ids = [deviation as u32, t as u32, residue as u32];
    let rhos = vec![residue; samples];
    let most = 8 * deviation as i64;
    let mut counts = vec![0; 2 * most as usize + 1];
    for g in gaussians(&wide, words(&seed(7), "narrow", &ids), &rhos) {
        counts[(g + most) as usize] += 1;
    }
    let due: Vec<f64> = (-most..=most)
        .map(|g| (-((g as f64 - center) / deviation as f64).powi(2) / 2.0).exp())
        .collect();
    chi_square(&counts, &due)
}

#[test]
fn narrow_gaussians_fit_at_every_number() {
    for (deviation, t) in [
        (2, 5),
        (3, 7),
        (4, 513),
        (5, 3),
        (11, 8193),
        (16, 1),
        (63, 9),
    ] {
        for residue in [0, 1, t / 2, t - 1] {
            if residue < t {
                let center = -(residue as f64) / t as f64;
                let off = narrow(deviation, t, residue, center, 100_000);
                assert!(off < MOST, "{deviation}, {residue}/{t}: {off}");
            }
        }
    }
    // Without the centre, and with the opposite one, the test fails.
    assert!(narrow(4, 513, 256, 0.0, 100_000) > 50.0);
    assert!(narrow(4, 513, 256, 256.0 / 513.0, 100_000) > 50.0);
}

/// `t·g + ρ` as a Gaussian of deviation tσ, in bins of an eighth of it.
fn wide_fit(params: &Params, samples: usize) {
    let samplers = Samplers::of(params);
    let residue_lists = [
        vec![0],
        vec![1],
        vec![params.t / 2],
        vec![params.t - 1],
        vec![],
    ];
    let answers = residue_lists
        .iter()
        .map(|list| (&samplers.answer, params.answer_deviation, params.t, list));
    let header = (
        &samplers.header,
        params.header_deviation,
        1,
        &residue_lists[0],
    );
    for (wide, deviation, t, list) in answers.chain([header]) {
        // No residue in the list: uniform ones, as in the protocol.
        let rhos = match list.first() {
            Some(residue) => vec![*residue; samples],
            None => residues(t, samples, &mut Prg::new(&[8; 32])),
        };
        let ids = [t as u32, rhos[0] as u32];
        let drawn = gaussians(wide, words(&seed(8), "wide", &ids), &rhos);
        let scale = (t * deviation) as f64;
        let mut values = Vec::new();
        let mut counts = vec![0; 96];
        for (g, rho) in drawn.iter().zip(&rhos) {
            let value = (*g as f64 * t as f64 + *rho as f64) / scale;
            values.push(value);
            counts[((value + 6.0) * 8.0).clamp(0.0, 95.0) as usize] += 1;
        }
        let edge = |bin: usize| {
            // Edges lie between two integers g.
            let at = bin as f64 / 8.0 - 6.0;
            let rho = rhos[0] as f64 / t as f64;
            let below = (at * deviation as f64 - rho).ceil() - 0.5;
            if list.is_empty() {
                at
            } else {
                (below + rho) / deviation as f64
            }
        };
        let due: Vec<f64> = (0..96)
            .map(|bin| normal(edge(bin), edge(bin + 1)))
            .collect();
        let off = chi_square(&counts, &due);
        assert!(off < MOST, "L = {}, t' = {t}, {list:?}: {off}", params.bits);
        assert!(mean_is(&values, 0.0).abs() < 4.0);
        let squares: Vec<f64> = values.iter().map(|value| value * value).collect();
        assert!(mean_is(&squares, 1.0).abs() < 4.0);
    }
}

#[test]
fn wide_gaussians_fit() {
    CLASSES.iter().for_each(|params| wide_fit(params, 50_000));
}

#[test]
#[ignore = "10^6 wide Gaussians for each of several residues and class"]
fn wide_gaussians_fit_at_length() {
    CLASSES
        .iter()
        .for_each(|params| wide_fit(params, 1_000_000));
}

/// The low bits of `g` are even too: the remainder below K has no pattern of its own.
#[test]
fn low_bits_of_wide_gaussians_are_uniform() {
    for params in &CLASSES {
        let wide = &Samplers::of(params).answer;
        let rhos = residues(params.t, 100_000, &mut Prg::new(&[9; 32]));
        let mut counts = vec![0; 256];
        for g in gaussians(wide, words(&seed(9), "low", &[]), &rhos) {
            counts[(g & 255) as usize] += 1;
        }
        assert!(chi_square(&counts, &[1.0; 256]) < MOST);
    }
}

/// Differences of bits have their binomial distributions.
#[test]
fn differences_of_bits_fit() {
    let stream = || Words::new(Suite::ChaCha20, &seed(3).derive(SESSION, "bits", &[]));
    let mut bytes = vec![0; 100_000];
    ternary(&mut stream(), &mut bytes);
    let mut counts = [0; 3];
    bytes
        .iter()
        .for_each(|s| counts[(*s as i8 + 1) as usize] += 1);
    assert!(chi_square(&counts, &[1.0, 2.0, 1.0]) < MOST);
    let mut numbers = vec![0; 100_000];
    binomial(&mut stream(), &mut numbers);
    let mut counts = [0; 5];
    numbers
        .iter()
        .for_each(|e| counts[(*e as i64 + 2) as usize] += 1);
    assert!(chi_square(&counts, &[1.0, 4.0, 6.0, 4.0, 1.0]) < MOST);
}
