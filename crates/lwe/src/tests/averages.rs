//! Averages over many runs: the same row of an evaluator under many masks, or the same row of a key
//! owner under many keys. Nothing of it adds up.

use undertone_kernel::Prg;

use super::attack::{estimate, hint_norm};
use super::hint::Hints;
use super::random;
use super::source::{Side, Small, Source};

/// The correlation of `values` with the bits of a code.
fn correlation(values: &[f64], code: &[u64]) -> f64 {
    let count = values.len() as f64;
    let bits = (0..values.len()).map(|at| (code[at / 64] >> (at % 64) & 1) as f64);
    let bits: Vec<f64> = bits.collect();
    let mean = |values: &[f64]| values.iter().sum::<f64>() / count;
    let (one, other) = (mean(values), mean(&bits));
    let (mut both, mut squares) = (0.0, [0.0; 2]);
    for (value, bit) in values.iter().zip(&bits) {
        both += (value - one) * (bit - other);
        squares[0] += (value - one).powi(2);
        squares[1] += (bit - other).powi(2);
    }
    both / (squares[0] * squares[1]).sqrt()
}

/// What the posterior means of `count` runs show of one code: the largest correlation of its bits
/// with the sums of the means, and of their sines and cosines, modulo the period of cosets.
fn shown(hints: &Hints, known: &super::linear::Matrix, count: usize) -> f64 {
    let l = hints.source.small.l;
    let code = random(1, l, &mut Prg::new(&[91; 32]));
    let code = code.row(0);
    let estimate = estimate(hints, known);
    let turn = 2.0 * std::f64::consts::PI / hints.source.coset().1;
    let mut sums = [(); 3].map(|()| vec![0.0; l]);
    for part in 0..count.div_ceil(500) {
        let runs = 500.min(count - 500 * part);
        let drawn = hints.draw(known, (0..runs).map(|_| code), 100 + part as u8);
        let means = drawn.times(&estimate);
        for means in means.entries.chunks_exact(l) {
            for (at, mean) in means.iter().enumerate() {
                sums[0][at] += mean;
                sums[1][at] += (mean * turn).cos();
                sums[2][at] += (mean * turn).sin();
            }
        }
    }
    let each = sums.iter().map(|sums| correlation(sums, code).abs());
    each.fold(0.0, f64::max)
}

fn averages_show_nothing(count: usize) {
    for side in [Side::Rows, Side::Keys] {
        let small = Small::new(256, 5, 16, 4);
        let source = || Source::new(side, small, 1);
        let known = source().known(512, true, 92);
        let noise = hint_norm(&source(), &known);
        let found = shown(&Hints::new(source(), noise), &known, count);
        println!("{side:?}: {found}");
        // Correlations of 256 bits with what does not depend on them have a deviation of 1/16.
        assert!(found < 0.25, "{side:?}: {found}");
        // Without the centre of a bit 1 the mean shows it.
        let without = Hints::new(source().without_centre(), noise);
        let found = shown(&without, &known, count);
        println!("{side:?}, without centre: {found}");
        assert!(found > 0.4, "{side:?}: {found}");
        // With less noise the cosets show.
        let less = Hints::new(source(), noise / 64.0);
        let found = shown(&less, &known, count / 4);
        println!("{side:?}, less noise: {found}");
        assert!(found > 0.9, "{side:?}: {found}");
    }
}

#[test]
fn averages_over_runs_show_nothing() {
    averages_show_nothing(4000);
}

#[test]
#[ignore = "64,000 runs of either side"]
fn averages_over_runs_show_nothing_at_length() {
    averages_show_nothing(64_000);
}
