//! Labels under local differential privacy: a client applies randomised response to its own labels
//! before a run. `docs/spec/label-noise.md` specifies it.
//!
//! With `C` classes and a privacy parameter `ε`, a label is kept with probability
//! `e^ε / (e^ε + C − 1)`. Otherwise it becomes one of the other classes, each equally likely.
//! Whoever sees the result, and whatever the other parties do, no label changes its probability by
//! more than a factor `e^ε`. Neither features nor the choice of labelled rows are covered.
//!
//! # Draws are permanent
//!
//! Independent draws for one label could be averaged until the label shows. So a draw is a function
//! of a [`Seed`] that its client keeps, of the row's content as the client loads it, of the label,
//! and of `C`. It does not depend on the session, on anything that a job names, or on the place of
//! the row. Features count in single precision.
//!
//! - An edited label gets an independent draw. So does a label in a run with another number of
//!   classes, and the label of a row with other content. Each draw adds its `ε` to the bound. It
//!   may show that a label was edited, and that an edit was undone.
//! - Rows of equal content need draws of their own: with one draw for both, different results would
//!   show that their labels differ. Their order tells them apart: the first, the second, and so on.
//!   Keep that order, and append new ones at the end.
//! - If the seed is lost, every label gets a fresh draw.
//!
//! # Different ε
//!
//! A client may choose another `ε` later. Results for several `ε` must then tell no more than the
//! result for the largest of them. To compare one uniform number with several thresholds would not
//! do: where the results differ, the one for the larger `ε` would be the true label.
//!
//! Here a label goes through redraws at the arrival times of a Poisson process of rate 1. A redraw
//! is uniform over all `C` classes. The result for `ε` is the label at the time
//! `T(ε) = −ln q(ε)`, where
//!
//! ```text
//! q(ε) = (e^ε − 1) / (e^ε + C − 1)
//! ```
//!
//! No redraw comes before `T(ε)` with probability `q(ε)`. So a label is kept with probability
//! `q + (1 − q)/C = e^ε / (e^ε + C − 1)`, as it must be. A smaller `ε` is a later time. The process
//! has no memory: whatever came before, the same random map leads from the label at one time to the
//! label at a later time. So the result for the smaller `ε` is a post-processing of the result for
//! the larger one.
//!
//! # Sampling
//!
//! The times are not computed. With uniform `U_1, U_2, …` the product `U_1 ⋯ U_i` is `e^{−t_i}`, so
//! the `i`-th redraw counts if that product is at least `q(ε)`. Products and thresholds have 64
//! bits after the point. A class is `⌊C·w / 2^64⌋` for a word `w`, which is uniform up to 2^-48.
//! The threshold belongs to an `ε` within a factor `1 ± 10^-7` of the one asked for. A later redraw
//! cannot count if an earlier one does not. Redraws after the 64th are omitted: this changes no
//! result's distribution, as every redraw is uniform. Every label takes the same operations.

use std::ops::RangeInclusive;

use rayon::prelude::*;
use undertone_kdf::Seed;
use undertone_kernel::Wiped;
use undertone_party::SessionId;

use crate::input::{InputError, Labelling};
use crate::rows::Rows;

/// Number of redraws of a label. More come before `T(ε)` with a probability below 10^-16.
const REDRAWS: usize = 64;

/// The session id in derivations: draws outlive sessions.
const NO_SESSION: SessionId = SessionId([0; 32]);

/// Noise that one client puts on its own labels. The seed is wiped when this is dropped.
#[derive(Debug)]
pub struct LabelNoise {
    epsilon: f64,
    seed: Seed,
}

impl LabelNoise {
    /// Values of `ε`. At the lower end labels say nothing: of ten classes the true one is kept in
    /// 10.009 of 100 cases. At the upper end nothing is hidden: of two classes one label in five
    /// hundred million changes.
    pub const EPSILON: RangeInclusive<f64> = 0.001..=20.0;

    /// Noise for a privacy parameter `epsilon`. `seed` is a secret of the client's own. It must be
    /// the same in all runs, and must not serve any other purpose.
    ///
    /// # Errors
    /// As [`check`](Self::check).
    pub fn new(epsilon: f64, seed: Seed) -> Result<Self, InputError> {
        Self::check(epsilon)?;
        Ok(Self { epsilon, seed })
    }

    /// Checks that `epsilon` is in [`EPSILON`](Self::EPSILON).
    ///
    /// # Errors
    /// [`InputError::Parameter`].
    pub fn check(epsilon: f64) -> Result<(), InputError> {
        // NOISE-1
        if Self::EPSILON.contains(&epsilon) {
            return Ok(());
        }
        Err(InputError::Parameter {
            name: "label epsilon",
            value: epsilon.to_string(),
            range: "a number from 0.001 to 20",
        })
    }

    /// The privacy parameter.
    pub fn epsilon(&self) -> f64 {
        self.epsilon
    }

    /// The probability that noise for `epsilon` keeps a label of `classes` classes.
    pub fn kept(epsilon: f64, classes: usize) -> f64 {
        let others = classes as f64 - 1.0;
        1.0 / (1.0 + others * (-epsilon).exp())
    }

    /// The labels that the client brings to a run instead of its `own`. `rows` are the client's
    /// rows as it loads them, before anything that a job asks for changes them: a server that could
    /// change them would have fresh draws. The same rows have labels, and each label is a draw.
    /// Only the client sees `own`. Assume that everybody sees the result.
    ///
    /// # Errors
    /// [`InputError::Shape`] when `own` and `rows` differ in their number of rows.
    pub fn apply(&self, rows: &Rows, own: &Labelling) -> Result<Labelling, InputError> {
        // NOISE-2
        if rows.len() != own.rows() {
            return Err(InputError::Shape {
                what: "labels: rows",
                have: own.rows(),
                due: rows.len(),
            });
        }
        let keys: Vec<Seed> = (0..rows.len())
            .into_par_iter()
            .map(|row| self.key(rows, row))
            .collect();
        let occurrences = occurrences(&keys);
        let classes = own.classes();
        let threshold = threshold(self.epsilon, classes);
        let draw = |row: usize| {
            let label = own.labels()[row]?;
            let ids = [occurrences[row], u32::from(label), classes as u32];
            let seed = keys[row].derive(NO_SESSION, "label noise", &ids);
            Some(draw(&seed, label, classes, threshold))
        };
        let labels = (0..rows.len()).into_par_iter().map(draw).collect();
        own.with_labels(labels)
    }

    /// The key of a row's content. Equal rows have equal keys, at any place.
    fn key(&self, rows: &Rows, row: usize) -> Seed {
        let (kind, width, bytes) = match rows {
            Rows::Features(features) => (0, features.dim(), 4 * features.dim()),
            Rows::Codes(codes) => {
                let bits = codes.bits().columns();
                (1, bits, 8 * bits.div_ceil(64))
            }
        };
        let mut content = Wiped::with_capacity(5 + bytes);
        content.push(kind);
        content.extend((width as u32).to_le_bytes());
        match rows {
            Rows::Features(features) => {
                let values = &features.values()[row * width..][..width];
                // Single precision, so that rows of either precision share their draws. The
                // addition turns −0 into 0.
                let words = values.iter().map(|value| (*value as f32 + 0.0).to_bits());
                content.extend(words.flat_map(u32::to_le_bytes));
            }
            Rows::Codes(codes) => {
                let words = codes.bits().row(row).iter();
                content.extend(words.flat_map(|word| word.to_le_bytes()));
            }
        }
        self.seed.expand(NO_SESSION, "row of labels", &content)
    }
}

/// For each key the number of equal keys before it.
fn occurrences(keys: &[Seed]) -> Vec<u32> {
    let mut order: Vec<usize> = (0..keys.len()).collect();
    // The sort is stable: equal keys stay in their order.
    order.sort_by_key(|row| keys[*row].expose());
    let mut out = vec![0; keys.len()];
    for pair in order.windows(2) {
        if keys[pair[0]].expose() == keys[pair[1]].expose() {
            out[pair[1]] = out[pair[0]] + 1;
        }
    }
    out
}

/// `q(ε)·2^64`, rounded.
fn threshold(epsilon: f64, classes: usize) -> u128 {
    const ONE: u128 = 1 << 64;
    // 1 − q has more digits than q where q is near 1.
    let redrawn = classes as f64 / (epsilon.exp_m1() + classes as f64);
    ONE - (redrawn * ONE as f64).round() as u128
}

/// The last redraw that counts, or `label` if none does.
fn draw(seed: &Seed, label: u16, classes: usize, threshold: u128) -> u16 {
    let mut prg = seed.prg();
    let mut product: u128 = 1 << 64;
    let mut drawn = label;
    for _ in 0..REDRAWS {
        product = (product * u128::from(prg.next_u64())) >> 64;
        let class = ((u128::from(prg.next_u64()) * classes as u128) >> 64) as u16;
        let counts = u16::from(product >= threshold).wrapping_neg();
        drawn = drawn & !counts | class & counts;
    }
    drawn
}

#[cfg(test)]
mod tests {
    use undertone_kernel::BitMatrix;

    use super::*;
    use crate::codes::Codes;
    use crate::input::Features;

    const SEED: [u8; 32] = [7; 32];

    fn noise(epsilon: f64) -> LabelNoise {
        LabelNoise::new(epsilon, Seed::from_bytes(SEED)).unwrap()
    }

    /// Rows of one feature.
    fn rows(values: impl IntoIterator<Item = usize>) -> Rows {
        let values = values.into_iter().map(|value| value as f64 + 1.0).collect();
        Rows::Features(Features::new(1, values).unwrap())
    }

    fn all(label: u16, count: usize, classes: usize) -> Labelling {
        Labelling::new(classes, vec![Some(label); count]).unwrap()
    }

    /// The draws of `count` different rows with this label.
    fn draws(epsilon: f64, label: u16, count: usize, classes: usize) -> Vec<usize> {
        let labels = noise(epsilon).apply(&rows(0..count), &all(label, count, classes));
        let labels = labels.unwrap().labels().to_vec();
        labels.into_iter().flatten().map(usize::from).collect()
    }

    /// Refuses counts that are unlikely under these probabilities: if chi-square is five or more
    /// deviations above its mean.
    fn assert_follows(counts: &[usize], probabilities: &[f64], what: &str) {
        let total = counts.iter().sum::<usize>() as f64;
        assert!(
            (probabilities.iter().sum::<f64>() - 1.0).abs() < 1e-9,
            "{what}"
        );
        let cells = counts.iter().zip(probabilities);
        let chi: f64 = cells
            .map(|(count, p)| (*count as f64 - total * p).powi(2) / (total * p))
            .sum();
        let freedom = (counts.len() - 1) as f64;
        let most = freedom + 5.0 * (2.0 * freedom).sqrt();
        assert!(chi < most, "{what}: {chi} is above {most}; {counts:?}");
    }

    fn table(
        pairs: impl Iterator<Item = (usize, usize)>,
        rows: usize,
        columns: usize,
    ) -> Vec<usize> {
        let mut out = vec![0; rows * columns];
        pairs.for_each(|(a, b)| out[a * columns + b] += 1);
        out
    }

    /// The probability of each class for a label 0.
    fn expected(epsilon: f64, classes: usize) -> Vec<f64> {
        let weight = |class| if class == 0 { epsilon.exp() } else { 1.0 };
        let total = epsilon.exp() + classes as f64 - 1.0;
        (0..classes).map(|class| weight(class) / total).collect()
    }

    #[test]
    fn labels_follow_the_formula() {
        for classes in [2, 3, 10] {
            for epsilon in [0.1, 1.0, 3.0] {
                let mut counts = vec![0; classes];
                for class in draws(epsilon, 0, 30_000, classes) {
                    counts[class] += 1;
                }
                let what = format!("{classes} classes, {epsilon}");
                assert_follows(&counts, &expected(epsilon, classes), &what);
                assert!(
                    (LabelNoise::kept(epsilon, classes) - expected(epsilon, classes)[0]).abs()
                        < 1e-12
                );
            }
        }
    }

    /// The ε that follows from the threshold, from the smallest to the largest.
    #[test]
    fn thresholds_give_the_epsilon_that_was_asked_for() {
        for classes in [2, 10, 65_536] {
            for epsilon in [0.001, 0.01, 0.5, 1.0, 5.0, 10.0, 20.0] {
                let c = classes as f64;
                let kept = threshold(epsilon, classes);
                let redrawn = ((1u128 << 64) - kept) as f64;
                // The probability of the true label over that of any other:
                // (q + (1 − q)/C) / ((1 − q)/C).
                let given = (c * kept as f64 / redrawn).ln_1p();
                let error = (given / epsilon - 1.0).abs();
                assert!(error < 1e-7, "{classes} classes, {epsilon}: {given}");
            }
        }
    }

    #[test]
    fn draws_depend_on_the_row_alone_and_not_on_where_it_stands() {
        let count = 200;
        let labels: Vec<Option<u16>> = (0..count).map(|row| Some(row as u16 % 5)).collect();
        let whole = Labelling::new(5, labels.clone()).unwrap();
        let first = noise(1.0).apply(&rows(0..count), &whole).unwrap();
        assert_ne!(first, whole);
        assert_eq!(noise(1.0).apply(&rows(0..count), &whole).unwrap(), first);

        let mut turned = labels.clone();
        turned.reverse();
        let turned = Labelling::new(5, turned).unwrap();
        let backwards = noise(1.0).apply(&rows((0..count).rev()), &turned).unwrap();
        let mut backwards = backwards.labels().to_vec();
        backwards.reverse();
        assert_eq!(backwards, first.labels());

        // Every third row, among others that have no label.
        let some: Vec<usize> = (0..count).step_by(3).collect();
        let mut own: Vec<Option<u16>> = some.iter().map(|row| labels[*row]).collect();
        own.extend([None; 50]);
        let own = Labelling::new(5, own).unwrap();
        let with_others = rows(some.iter().copied().chain(1000..1050));
        let drawn = noise(1.0).apply(&with_others, &own).unwrap();
        let due: Vec<Option<u16>> = some.iter().map(|row| first.labels()[*row]).collect();
        assert_eq!(drawn.labels()[..some.len()], due);
        assert_eq!(drawn.labels()[some.len()..], [None; 50]);

        let other = LabelNoise::new(1.0, Seed::from_bytes([8; 32])).unwrap();
        assert_ne!(other.apply(&rows(0..count), &whole).unwrap(), first);
    }

    /// A client that keeps its seed keeps its draws: this must not change between versions.
    #[test]
    fn draws_are_those_of_every_version() {
        let of_features: String = draws(1.0, 3, 40, 10).iter().map(usize::to_string).collect();
        assert_eq!(of_features, "3663093314642605656308830762796895217330");
        let bits: Vec<u64> = (0..40).collect();
        let codes = Rows::Codes(Codes::from_bits(BitMatrix::from_words(40, 60, bits)));
        let of_codes = noise(1.0).apply(&codes, &all(3, 40, 10)).unwrap();
        let of_codes = of_codes.labels().iter().flatten();
        let of_codes: String = of_codes.map(u16::to_string).collect();
        assert_eq!(of_codes, "4460343534327833244319154613581739936056");
    }

    /// The result for one ε and the result for a smaller one tell together what the first tells.
    /// With one uniform number for both ε, a wrong label would stay wrong, and the same.
    #[test]
    fn a_smaller_epsilon_is_a_post_processing() {
        let (classes, count) = (4, 60_000);
        let q = |epsilon: f64| epsilon.exp_m1() / (epsilon.exp_m1() + classes as f64);
        for (small, large) in [(0.5, 1.5), (1.0, 1.1), (0.1, 4.0)] {
            let pairs = draws(large, 0, count, classes);
            let pairs = pairs.into_iter().zip(draws(small, 0, count, classes));
            let stays = q(small) / q(large);
            let mut probabilities = Vec::new();
            for (a, first) in expected(large, classes).into_iter().enumerate() {
                for b in 0..classes {
                    let same = if a == b { stays } else { 0.0 };
                    probabilities.push(first * (same + (1.0 - stays) / classes as f64));
                }
            }
            let counts = table(pairs, classes, classes);
            assert_follows(&counts, &probabilities, &format!("{small}, {large}"));
        }
    }

    fn assert_independent(a: &[usize], b: &[usize], of_a: &[f64], of_b: &[f64], what: &str) {
        let pairs = a.iter().copied().zip(b.iter().copied());
        let counts = table(pairs, of_a.len(), of_b.len());
        let product = of_a.iter().flat_map(|p| of_b.iter().map(move |q| p * q));
        assert_follows(&counts, &product.collect::<Vec<_>>(), what);
    }

    #[test]
    fn an_edited_label_and_other_classes_are_fresh_draws() {
        let count = 40_000;
        let of_four = draws(1.0, 0, count, 4);
        let mut edited = expected(1.0, 4);
        edited.swap(0, 1);
        let four = expected(1.0, 4);
        assert_independent(&of_four, &draws(1.0, 1, count, 4), &four, &edited, "edited");
        let of_five = draws(1.0, 0, count, 5);
        assert_independent(&of_four, &of_five, &four, &expected(1.0, 5), "classes");
    }

    /// With one draw for both rows, different results would show that their labels differ.
    #[test]
    fn rows_of_equal_content_have_draws_of_their_own() {
        let count = 40_000;
        let twice = rows((0..count).chain(0..count));
        let drawn = noise(1.0).apply(&twice, &all(0, 2 * count, 4)).unwrap();
        let drawn = drawn.labels().iter().flatten();
        let drawn: Vec<usize> = drawn.map(|label| usize::from(*label)).collect();
        // The first of equal rows have the draws that they have alone.
        assert_eq!(drawn[..count], draws(1.0, 0, count, 4));
        let four = expected(1.0, 4);
        assert_independent(&drawn[..count], &drawn[count..], &four, &four, "equal rows");
    }

    #[test]
    fn content_is_what_a_row_holds() {
        let features = |values: &[f64]| Rows::Features(Features::new(2, values.to_vec()).unwrap());
        let codes = |words: &[u64], bits| {
            let bits = BitMatrix::from_words(words.len(), bits, words.to_vec());
            Rows::Codes(Codes::from_bits(bits))
        };
        let key = |rows: &Rows, row| *noise(1.0).key(rows, row).expose();
        let two = features(&[0.0, 1.0, -0.0, 1.0]);
        assert_eq!(key(&two, 0), key(&two, 1));
        let bits = [0f64.to_bits(), 1f64.to_bits()];
        let others = [
            key(&features(&[1.0, 0.0]), 0),
            key(&codes(&[1], 64), 0),
            key(&codes(&[1], 63), 0),
            key(
                &Rows::Codes(Codes::from_bits(BitMatrix::from_words(1, 128, bits.into()))),
                0,
            ),
        ];
        for (index, other) in others.iter().enumerate() {
            assert_ne!(*other, key(&two, 0));
            assert!(!others[..index].contains(other));
        }
        assert_eq!(key(&codes(&[5, 1], 64), 1), others[1]);
    }

    #[test]
    fn one_class_stays() {
        for byte in 0..50 {
            let seed = Seed::from_bytes([byte; 32]);
            assert_eq!(draw(&seed, 0, 1, threshold(0.01, 1)), 0);
        }
    }

    /// NOISE-1, NOISE-2.
    #[test]
    fn what_cannot_be_is_refused() {
        for wrong in [0.0, -1.0, 1e-9, 20.1, f64::NAN, f64::INFINITY] {
            let error = LabelNoise::new(wrong, Seed::from_bytes(SEED)).unwrap_err();
            let due = format!("label epsilon is {wrong}; it must be a number from 0.001 to 20");
            assert_eq!(error.to_string(), due);
        }
        let error = noise(1.0).apply(&rows(0..3), &all(0, 4, 2)).unwrap_err();
        assert_eq!(error.to_string(), "labels: rows: 4 instead of 3");
    }

    #[test]
    fn the_seed_is_not_shown() {
        let shown = format!("{:?}", noise(1.0));
        assert_eq!(shown, "LabelNoise { epsilon: 1.0, seed: Seed(..) }");
    }
}
