//! Logistic regression: its loss, minimised by smartcore's L-BFGS.
//!
//! smartcore's own logistic regression is not used. It iterates to the last bit of a sum over all
//! rows (20 s for 1400 rows of 64 values and ten classes), and its line search panics when it
//! finds no descent.

use smartcore::optimization::first_order::FirstOrderOptimizer;
use smartcore::optimization::first_order::lbfgs::LBFGS;
use smartcore::optimization::line_search::{LineSearchMethod, LineSearchResult};
use undertone_cotrain::learner::{LearnerError, Rows};

use crate::classifier::{Model, Task, largest};

/// The most iterations, and the largest slope of the mean loss at which they stop.
const ITERATIONS: usize = 300;
const SLOPE: f64 = 1e-4;

pub(crate) struct Logistic {
    classes: usize,
    /// For each output the weights of a row's values, then the intercept.
    weights: Vec<f64>,
}

impl Logistic {
    pub(crate) fn fit(task: Task<'_>) -> Result<Self, LearnerError> {
        let loss = Loss::new(task);
        let optimiser = LBFGS {
            max_iter: ITERATIONS,
            g_atol: SLOPE,
            ..LBFGS::default()
        };
        let start = vec![0.0; outputs(task.classes) * (task.rows.dim + 1)];
        let found = optimiser.optimize(
            &|weights: &Vec<f64>| loss.value(weights),
            &|slopes: &mut Vec<f64>, weights: &Vec<f64>| loss.slopes(weights, slopes),
            &start,
            &Backtracking,
        );
        Ok(Self {
            classes: task.classes,
            weights: found.x,
        })
    }
}

impl Model for Logistic {
    fn predict(&self, rows: Rows<'_>) -> Result<Vec<u16>, LearnerError> {
        let mut scores = vec![0.0; self.classes];
        Ok((0..rows.len())
            .map(|row| {
                let values = rows.row(row).iter().copied().map(f64::from);
                score(&self.weights, values, &mut scores);
                largest(scores.iter().copied())
            })
            .collect())
    }
}

/// Two classes need one output: the score of the class at place 0 is zero.
fn outputs(classes: usize) -> usize {
    if classes == 2 { 1 } else { classes }
}

/// The score of each class for a row.
fn score(weights: &[f64], values: impl ExactSizeIterator<Item = f64> + Clone, scores: &mut [f64]) {
    let dim = values.len();
    scores[0] = 0.0;
    let first = scores.len() - weights.len() / (dim + 1);
    for (score, weights) in scores[first..].iter_mut().zip(weights.chunks(dim + 1)) {
        let products = values
            .clone()
            .zip(weights)
            .map(|(value, weight)| value * weight);
        *score = products.sum::<f64>() + weights[dim];
    }
}

/// The mean over the rows of the negative log-likelihood, plus half the squared weights over the
/// number of rows. Intercepts have no penalty.
struct Loss<'a> {
    values: Vec<f64>,
    dim: usize,
    labels: &'a [u16],
    classes: usize,
}

impl<'a> Loss<'a> {
    fn new(task: Task<'a>) -> Self {
        Self {
            values: task.rows.values.iter().copied().map(f64::from).collect(),
            dim: task.rows.dim,
            labels: task.labels,
            classes: task.classes,
        }
    }

    /// Calls `each` with every row, its label and its scores.
    fn each(&self, weights: &[f64], mut each: impl FnMut(&[f64], usize, &mut [f64])) {
        let mut scores = vec![0.0; self.classes];
        for (row, label) in self.values.chunks(self.dim).zip(self.labels) {
            score(weights, row.iter().copied(), &mut scores);
            each(row, usize::from(*label), &mut scores);
        }
    }

    fn value(&self, weights: &[f64]) -> f64 {
        let mut loss = 0.0;
        self.each(weights, |_, label, scores| {
            let most = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let sum: f64 = scores.iter().map(|score| (score - most).exp()).sum();
            loss += sum.ln() + most - scores[label];
        });
        let squares = |weights: &[f64]| {
            weights[..self.dim]
                .iter()
                .map(|weight| weight * weight)
                .sum()
        };
        let penalty: f64 = weights.chunks(self.dim + 1).map::<f64, _>(squares).sum();
        (loss + penalty / 2.0) / self.labels.len() as f64
    }

    fn slopes(&self, weights: &[f64], slopes: &mut [f64]) {
        slopes.fill(0.0);
        let first = self.classes - outputs(self.classes);
        self.each(weights, |row, label, scores| {
            let most = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            scores
                .iter_mut()
                .for_each(|score| *score = (*score - most).exp());
            let sum: f64 = scores.iter().sum();
            scores.iter_mut().for_each(|score| *score /= sum);
            scores[label] -= 1.0;
            for (slopes, error) in slopes.chunks_mut(self.dim + 1).zip(&scores[first..]) {
                for (slope, value) in slopes.iter_mut().zip(row) {
                    *slope += error * value;
                }
                slopes[self.dim] += error;
            }
        });
        let count = self.labels.len() as f64;
        for (slopes, weights) in slopes
            .chunks_mut(self.dim + 1)
            .zip(weights.chunks(self.dim + 1))
        {
            for (slope, weight) in slopes[..self.dim].iter_mut().zip(weights) {
                *slope += weight;
            }
            slopes.iter_mut().for_each(|slope| *slope /= count);
        }
    }
}

/// Halves the step until the loss descends by enough (Armijo), and gives up after a while: the
/// optimiser then stops, as nothing changes any more.
struct Backtracking;

impl LineSearchMethod<f64> for Backtracking {
    fn search(
        &self,
        f: &dyn Fn(f64) -> f64,
        _df: &dyn Fn(f64) -> f64,
        alpha: f64,
        f0: f64,
        df0: f64,
    ) -> LineSearchResult<f64> {
        const HALVINGS: usize = 100;
        let mut alpha = alpha;
        for _ in 0..HALVINGS {
            let f_x = f(alpha);
            if f_x <= f0 + 1e-4 * alpha * df0 {
                return LineSearchResult { alpha, f_x };
            }
            alpha /= 2.0;
        }
        LineSearchResult {
            alpha: 0.0,
            f_x: f0,
        }
    }
}
