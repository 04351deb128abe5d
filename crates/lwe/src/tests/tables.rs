//! What is sampled has the distribution of the specification.

use undertone_kernel::negacyclic::Eight;
use undertone_kernel::{Cpu, Prg, cdt};

use super::source::{Side, Small, Source};
use super::statistics::{chi_square, mean_is, normal};
use super::{KEY, gaussians, residues, seed, words};
use crate::params::{CLASSES, Params};
use crate::sample;
use crate::table::{MAX_STEP, Samplers, Wide};

/// More than this many deviations of chi-square happen with probability below 10⁻⁵.
const MOST: f64 = 5.0;

/// How often each number from −64 to 64 occurs.
fn count(numbers: impl Iterator<Item = i64>) -> Vec<u64> {
    let mut counts = vec![0; 2 * MAX_STEP as usize + 1];
    numbers.for_each(|number| counts[(number + MAX_STEP) as usize] += 1);
    counts
}

/// The weights of the numbers from −64 to 64 under a Gaussian.
fn gaussian(centre: f64, deviation: f64) -> Vec<f64> {
    let weight = |u: i64| (-((u as f64 - centre) / deviation).powi(2) / 2.0).exp();
    (-MAX_STEP..=MAX_STEP).map(weight).collect()
}

/// A code of equal bits.
fn constant(params: &Params, bit: bool) -> Vec<u64> {
    vec![u64::from(bit).wrapping_neg(); params.length / 64]
}

/// Errors of keys of `rows` codes of equal bits.
fn errors(params: &Params, bit: bool, rows: u32) -> impl Iterator<Item = i64> {
    (0..rows).flat_map(move |row| {
        let mut words = words(&seed(4), "error", &[row, u32::from(bit)]);
        let mut out = vec![0; params.length];
        let code = constant(params, bit);
        sample::error(Cpu::detect(), params, &code, &mut words, &mut out);
        out.into_iter().map(|e| e as i64)
    })
}

/// Masked rows of `rows` codes of equal bits.
fn masked(params: &Params, bit: bool, rows: u32) -> impl Iterator<Item = i64> {
    (0..rows).flat_map(move |row| {
        let words = words(&seed(5), "row", &[row, u32::from(bit)]);
        let mut out = vec![Eight::default(); params.length];
        let code = constant(params, bit);
        sample::coset(Cpu::detect(), params, &code, words, 6, &mut out);
        out.into_iter().map(|eight| eight.0[6] as i64)
    })
}

fn small_numbers_fit(params: &Params, samples: usize) {
    let rows = samples.div_ceil(params.length) as u32;
    let t = params.t as i64;
    for bit in [false, true] {
        let x = i64::from(bit);
        let counts = count(masked(params, bit, rows).map(|w| {
            assert_eq!((w - x).rem_euclid(t), 0);
            (w - x) / t
        }));
        let due = gaussian(
            -(x as f64) / t as f64,
            params.row_deviation as f64 / t as f64,
        );
        let off = chi_square(&counts, &due);
        assert!(off < MOST, "L = {}, row, bit {x}: {off}", params.bits);
        let counts = count(errors(params, bit, rows));
        let off = chi_square(&counts, &gaussian(2.0 * x as f64 / t as f64, KEY));
        assert!(off < MOST, "L = {}, error, bit {x}: {off}", params.bits);
    }
    let mut secret = vec![0; samples];
    let mut words = words(&seed(6), "secret", &[params.n as u32]);
    sample::secret(Cpu::detect(), params, &mut words, &mut secret);
    let counts = count(secret.iter().map(|s| i64::from(*s as i8)));
    let off = chi_square(&counts, &gaussian(0.0, KEY));
    assert!(off < MOST, "L = {}, secret: {off}", params.bits);
}

#[test]
fn secrets_errors_and_masked_rows_are_gaussian() {
    for params in &CLASSES {
        small_numbers_fit(params, 200_000);
    }
    // The test fails for a deviation that is 2 % larger.
    let params = &CLASSES[0];
    let row = params.row_deviation as f64 / params.t as f64;
    let counts = count(masked(params, false, 160).map(|w| w / params.t as i64));
    assert!(chi_square(&counts, &gaussian(0.0, 1.02 * row)) > 10.0);
    let counts = count(errors(params, false, 160));
    assert!(chi_square(&counts, &gaussian(0.0, 1.02 * KEY)) > 10.0);
}

#[test]
#[ignore = "10^7 samples of each table"]
fn secrets_errors_and_masked_rows_are_gaussian_at_length() {
    for params in &CLASSES {
        small_numbers_fit(params, 10_000_000);
    }
}

/// With a small t centres show: that of w′ is −1/t and that of an error 2/t for a bit 1. So w and
/// `e − (2/t)·y` have mean 0.
#[test]
fn bits_do_not_move_the_mean() {
    let (ones, rows) = ([u64::MAX; 4], 2000);
    let all = |source: &Source, code: &[u64]| -> Vec<f64> {
        let each = (0..rows).map(|row| source.draw(code, row, 1));
        each.flat_map(|numbers| numbers[..256].to_vec()).collect()
    };
    for (side, one, period) in [(Side::Rows, 1.0, 5.0), (Side::Keys, -0.4, 1.0)] {
        let source = || Source::new(side, Small::new(256, 5, 16, 4), 1);
        assert_eq!(source().coset(), (one, period));
        for (code, bit) in [([0; 4], 0.0), (ones, one)] {
            let values = all(&source(), &code);
            let steps = values.iter().map(|value| (value - bit) / period);
            assert!(steps.into_iter().all(|u| (u - u.round()).abs() < 1e-9));
            assert!(mean_is(&values, 0.0).abs() < 4.0);
            // A mean off by what a bit counts would show.
            assert!(mean_is(&values, one).abs() > 20.0);
        }
        // With the table of the other bit, numbers of a bit 1 move by what it counts.
        let values = all(&source().without_centre(), &ones);
        assert!(mean_is(&values, 0.0).abs() > 20.0);
        assert!(mean_is(&values, one).abs() < 4.0);
    }
}

/// All wide Gaussians of a class: with their deviations and t'.
fn all_wide(params: &Params) -> [(&'static Wide, u64, u64); 3] {
    let samplers = Samplers::of(params);
    [
        (&samplers.header, params.header_deviation, 1),
        (&samplers.answer, params.answer_deviation, params.t),
        (&samplers.opening, params.opening_deviation, params.t),
    ]
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
    for (wide, deviation, _) in CLASSES.iter().flat_map(all_wide) {
        halves_fit(deviation, wide, 200_000);
    }
}

#[test]
#[ignore = "10^7 samples of each table"]
fn half_gaussians_fit_at_length() {
    for (wide, deviation, _) in CLASSES.iter().flat_map(all_wide) {
        halves_fit(deviation, wide, 10_000_000);
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
fn wide_fit(wide: &Wide, deviation: u64, t: u64, residue: Option<u64>, samples: usize) {
    // No residue: uniform ones.
    let rhos = match residue {
        Some(residue) => vec![residue; samples],
        None => residues(t, samples, &mut Prg::new(&[8; 32])),
    };
    let ids = [t as u32, rhos[0] as u32, deviation as u32];
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
        residue.map_or(at, |_| (below + rho) / deviation as f64)
    };
    let due: Vec<f64> = (0..96)
        .map(|bin| normal(edge(bin), edge(bin + 1)))
        .collect();
    let off = chi_square(&counts, &due);
    assert!(off < MOST, "{deviation}, t' = {t}, {residue:?}: {off}");
    assert!(mean_is(&values, 0.0).abs() < 4.0);
    let squares: Vec<f64> = values.iter().map(|value| value * value).collect();
    assert!(mean_is(&squares, 1.0).abs() < 4.0);
}

fn all_wide_fit(samples: usize) {
    for (wide, deviation, t) in CLASSES.iter().flat_map(all_wide) {
        wide_fit(wide, deviation, t, Some(0), samples);
        for residue in [Some(1), Some(t / 2), Some(t - 1), None] {
            if t > 1 {
                wide_fit(wide, deviation, t, residue, samples);
            }
        }
    }
}

#[test]
fn wide_gaussians_fit() {
    all_wide_fit(50_000);
}

#[test]
#[ignore = "10^6 wide Gaussians for each of several residues and class"]
fn wide_gaussians_fit_at_length() {
    all_wide_fit(1_000_000);
}

/// The low bits of `g` are even too: the remainder below K has no pattern of its own. For bits
/// next to those that decide on acceptance this holds up to the shape of the Gaussian.
#[test]
fn low_bits_of_wide_gaussians_are_uniform() {
    for params in &CLASSES {
        for (wide, _, t) in &all_wide(params)[1..] {
            let rhos = residues(*t, 100_000, &mut Prg::new(&[9; 32]));
            let drawn = gaussians(wide, words(&seed(9), "low", &[]), &rhos);
            for shift in [0, 8] {
                let mut counts = vec![0; 256];
                drawn
                    .iter()
                    .for_each(|g| counts[(g >> shift & 255) as usize] += 1);
                assert!(chi_square(&counts, &[1.0; 256]) < MOST);
            }
        }
    }
}
