//! The distribution of hints does not depend on codes: of `ζ = (w, η)·M + g + ρ/t`, which the
//! server and key owners see, and of `ξ = (e', −s)·M + γ + ρ/t`, which the server and evaluators
//! see.

use undertone_kernel::Prg;

use super::linear::Matrix;
use super::source::{Side, Small, Source};
use super::statistics::{chi_square, mean_is, normal, two_samples};
use super::{gaussians, random, residues, seed, words};
use crate::evaluator::hide;
use crate::params::CLASSES;
use crate::table::Wide;

/// Source of hints for many rows.
pub(super) struct Hints {
    pub(super) source: Source,
    noise: Wide,
    /// The deviation of the noise, an integer.
    pub(super) deviation: u64,
}

impl Hints {
    pub(super) fn new(source: Source, deviation: f64) -> Self {
        let deviation = deviation.round() as u64;
        Self {
            noise: Wide::new(deviation, source.small.t),
            source,
            deviation,
        }
    }

    /// The hint for each of `codes`, row after row, by someone who knows `known`.
    pub(super) fn draw<'a>(
        &self,
        known: &Matrix,
        codes: impl Iterator<Item = &'a [u64]>,
        byte: u8,
    ) -> Matrix {
        let Small { l, t, n, .. } = self.source.small;
        let mut secret = Vec::new();
        let mut noise = Vec::new();
        for (row, code) in codes.enumerate() {
            secret.extend(self.source.draw(code, row, byte));
            let residue = self.source.residue(code);
            let words = words(&seed(byte), "noise", &[row as u32]);
            let g = gaussians(&self.noise, words, &vec![residue; known.columns]);
            noise.extend(g.iter().map(|g| *g as f64 + residue as f64 / t as f64));
        }
        let secret = Matrix {
            columns: l + n,
            entries: secret,
        };
        let noise = Matrix {
            columns: known.columns,
            entries: noise,
        };
        secret.times(known).plus(1.0, &noise, 1.0)
    }

    /// `D^(1/2)·M`
    pub(super) fn scaled(&self, known: &Matrix) -> Matrix {
        let mut out = known.clone();
        for (at, row) in out.entries.chunks_exact_mut(known.columns).enumerate() {
            let deviation = self.source.deviation(at);
            row.iter_mut().for_each(|entry| *entry *= deviation);
        }
        out
    }

    /// `Mᵀ·D·M + σ²`, the covariance of the hint.
    fn covariance(&self, known: &Matrix) -> Matrix {
        let scaled = self.scaled(known);
        let own = vec![(self.deviation as f64).powi(2); known.columns];
        let hint = scaled.transpose().times(&scaled);
        hint.plus(1.0, &Matrix::diagonal(&own), 1.0)
    }
}

fn column(values: &Matrix, column: usize) -> Vec<f64> {
    (0..values.rows())
        .map(|row| values.row(row)[column])
        .collect()
}

/// Whether all eigenvalues of `found`, relative to `due`, are between `1 − close` and `1 + close`.
fn is_close(found: &Matrix, due: &Matrix, close: f64) -> bool {
    let below = found.plus(1.0, due, close - 1.0).cholesky().is_some();
    let above = found.plus(-1.0, due, 1.0 + close).cholesky().is_some();
    below && above
}

fn covariance_of(values: &Matrix) -> Matrix {
    let products = values.transpose().times(values);
    products.plus(1.0 / values.rows() as f64, &products, 0.0)
}

/// With `scale` times the noise of the rules.
fn covariance_is_as_claimed(side: Side, count: usize, scale: f64, close: f64) {
    let small = Small::new(256, 5, 64, 64);
    let source = Source::new(side, small, 1);
    let known = source.known(6, true, 11);
    let hints = Hints::new(source, small.noise(side, 6) * scale);
    let due = hints.covariance(&known);
    let codes = random(count, 256, &mut Prg::new(&[12; 32]));
    let drawn = hints.draw(&known, (0..count).map(|row| codes.row(row)), 13);
    let found = covariance_of(&drawn);
    assert!(is_close(&found, &due, close), "{found:?} {due:?}");
    // The test tells this covariance from one without the second part: η, or secrets.
    let mut without = known.clone();
    without.entries[256 * 6..].fill(0.0);
    assert!(!is_close(&found, &hints.covariance(&without), close));
    for at in 0..6 {
        assert!(mean_is(&column(&drawn, at), 0.0).abs() < 4.0);
    }
}

#[test]
fn hints_have_the_covariance_of_the_argument() {
    covariance_is_as_claimed(Side::Rows, 10_000, 0.3, 0.06);
    covariance_is_as_claimed(Side::Keys, 10_000, 0.3, 0.06);
}

#[test]
#[ignore = "2·10^5 rows of either side"]
fn hints_have_the_covariance_of_the_argument_at_length() {
    covariance_is_as_claimed(Side::Rows, 200_000, 1.0, 0.02);
    covariance_is_as_claimed(Side::Keys, 200_000, 1.0, 0.02);
}

/// The largest difference between hints of zeros and of ones: of distribution functions, over
/// several columns.
fn difference(hints: &Hints, known: &Matrix, count: usize) -> f64 {
    let words = hints.source.small.l / 64;
    let (zeros, ones) = (vec![0; words], vec![u64::MAX; words]);
    let of = |code: &[u64], byte| hints.draw(known, (0..count).map(|_| code), byte);
    let (zeros, ones) = (of(&zeros, 21), of(&ones, 22));
    let most = (0..known.columns).map(|at| {
        let (mut zeros, mut ones) = (column(&zeros, at), column(&ones, at));
        two_samples(&mut zeros, &mut ones)
    });
    most.fold(0.0, f64::max)
}

fn hints_do_not_depend_on_codes(side: Side, count: usize) {
    let small = Small::new(256, 5, 16, 4);
    let source = || Source::new(side, small, 1);
    let mut known = source().known(4, true, 15);
    let noise = small.noise(side, 4);
    // Columns of equal entries, which add up the means of all bits, and random ones. The first is
    // nearly as long as the noise allows.
    let most = noise / source().deviation(0) / 16.0;
    for at in 0..256 {
        *known.at(at, 0) = (0.9 * most).floor();
        *known.at(at, 1) = 0.25;
    }
    let found = difference(&Hints::new(source(), noise), &known, count);
    println!("{side:?}: {found}");
    // Of four columns, each above 2.2 with probability 10⁻⁴.
    assert!(found < 2.2, "{side:?}: {found}");
    // With the table of a bit 0 for a bit 1, whose mean is not 0 then, the test fails.
    let wrong = Hints::new(source().without_centre(), noise);
    let found = difference(&wrong, &known, count);
    println!("{side:?}, without centre: {found}");
    assert!(found > 5.0, "{side:?}: {found}");
}

#[test]
fn hints_of_zeros_and_ones_have_one_distribution() {
    hints_do_not_depend_on_codes(Side::Rows, 6000);
    hints_do_not_depend_on_codes(Side::Keys, 6000);
}

#[test]
#[ignore = "10^5 rows of either code"]
fn hints_of_zeros_and_ones_have_one_distribution_at_length() {
    hints_do_not_depend_on_codes(Side::Rows, 100_000);
    hints_do_not_depend_on_codes(Side::Keys, 100_000);
}

/// Masked rows too narrow to smooth the lattice show x in the hint: the test above would see it.
#[test]
fn narrow_masked_rows_show_codes() {
    let mut small = Small::new(256, 65, 16, 4);
    small.row_deviation = 16;
    let source = Source::new(Side::Rows, small, 32);
    let mut known = source.known(4, true, 15);
    known.entries.fill(0.0);
    *known.at(0, 0) = 1.0;
    let found = difference(&Hints::new(source, 8.0), &known, 3000);
    assert!(found > 5.0, "{found}");
}

/// Hints with too little noise show y, also with the right centre: a number of a key is on the
/// coset of its bit.
#[test]
fn hints_without_noise_show_codes() {
    for side in [Side::Rows, Side::Keys] {
        let small = Small::new(256, 5, 16, 4);
        let source = Source::new(side, small, 1);
        let mut known = source.known(4, true, 15);
        known.entries.fill(0.0);
        // In units that make the cosets 50 wide.
        *known.at(0, 0) = 50.0 / source.coset().1;
        let found = difference(&Hints::new(source, 4.0), &known, 12_000);
        assert!(found > 5.0, "{side:?}: {found}");
    }
}

/// With zeros for keys the hint is `g + ρ/t`. It has mean 0 and one distribution for all ρ. Without
/// the centre `−ρ/t` the mean tells ρ, and with the other sign of γ, too.
#[test]
fn the_centre_hides_residues() {
    let params = &CLASSES[0];
    let (deviation, t, count) = (4, params.t, 100_000);
    let wide = Wide::new(deviation, t);
    // The hint for `residue` in answers that are made for `centre`, before rounding. `sign` is that
    // of the noise.
    let hint = |residue: u64, centre: u64, sign: f64, byte| -> Vec<f64> {
        let stream = words(&seed(byte), "answer", &[residue as u32]);
        let (mut residues, mut values) = (vec![centre; count], vec![0; count]);
        hide(params, &wide, stream, &mut residues, &mut values);
        let message = params.tau().wrapping_mul(centre);
        let noise = values.iter().map(|value| value.wrapping_sub(message));
        let shift = residue as f64 / t as f64;
        noise
            .map(|noise| sign * noise as i64 as f64 + shift)
            .collect()
    };
    for residue in [0, 1, 128, 256, 385, 512] {
        let with = hint(residue, residue, 1.0, 31);
        assert!(mean_is(&with, 0.0).abs() < 4.0);
        let squares: Vec<f64> = with.iter().map(|zeta| zeta * zeta).collect();
        assert!(mean_is(&squares, 16.0).abs() < 4.0);
        if residue >= 128 {
            let without = hint(residue, 0, 1.0, 31);
            assert!(mean_is(&without, 0.0) > 15.0);
            let off = mean_is(&without, residue as f64 / t as f64);
            assert!(off.abs() < 4.0, "{off}");
            let other = hint(residue, residue, -1.0, 31);
            let off = mean_is(&other, 2.0 * residue as f64 / t as f64);
            assert!(mean_is(&other, 0.0) > 30.0 && off.abs() < 4.0);
        }
    }
    // All residues together: one Gaussian.
    let rhos = residues(t, count, &mut Prg::new(&[32; 32]));
    let drawn = gaussians(&wide, words(&seed(33), "answer", &[]), &rhos);
    let mut counts = [0; 64];
    for (g, rho) in drawn.iter().zip(&rhos) {
        let zeta = *g as f64 + *rho as f64 / t as f64;
        counts[((zeta + 16.0) * 2.0).clamp(0.0, 63.0) as usize] += 1;
    }
    let edge = |at: usize| (at as f64 / 2.0 - 16.0) / 4.0;
    let due: Vec<f64> = (0..64).map(|at| normal(edge(at), edge(at + 1))).collect();
    let off = chi_square(&counts, &due);
    assert!(off < 5.0, "{off}");
}
