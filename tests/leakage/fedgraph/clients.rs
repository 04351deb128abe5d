//! Digits at clients with different pixels, and what an attacker does with linear maps.

use faer::linalg::solvers::Solve;
use faer::{Mat, Side};
use undertone::fedgraph::{Inputs, Matrix};
use undertone::kernel::Prg;
use undertone::label::Rows;
use undertone_tests::dataset;

/// Rows with a label.
pub(super) const ROWS: usize = 400;
pub(super) const CLASSES: usize = 10;
/// Features of a client.
pub(super) const FEATURES: usize = 12;

/// Clients on a circle of features.
pub(super) struct Clients {
    pub(super) inputs: Vec<Inputs>,
    /// Values of features, from 0 to 1: of rows with a label, and of rows to predict.
    pub(super) values: Vec<[Mat<f64>; 2]>,
    /// Numbers of the features.
    pub(super) features: Vec<Vec<usize>>,
    /// The number of different features.
    pub(super) all: usize,
    /// The classes of rows to predict.
    pub(super) classes: Vec<u16>,
}

impl Clients {
    /// `count` clients. Each begins `stride` features after the one before.
    pub(super) fn new(count: usize, stride: usize, width: usize) -> Self {
        let data = dataset("digits").unwrap();
        let Rows::Features(pixels) = &data.rows else {
            panic!("features");
        };
        let mut prg = Prg::new(&[3; 32]);
        let mut order: Vec<usize> = (0..pixels.rows()).collect();
        prg.shuffle(&mut order);
        let pixel = |row: usize, at: usize| pixels.values()[row * pixels.dim() + at] / 16.0;
        let variance = |at: usize| {
            let values = || order.iter().map(|row| pixel(*row, at));
            let mean = values().sum::<f64>() / order.len() as f64;
            values().map(|value| (value - mean).powi(2)).sum::<f64>() / order.len() as f64
        };
        let mut varied: Vec<usize> = (0..pixels.dim())
            .filter(|at| variance(*at) > 0.005)
            .collect();
        prg.shuffle(&mut varied);
        let all = count * stride;
        assert!(all <= varied.len());
        let labels: Vec<u16> = order.iter().map(|row| data.labels[*row].unwrap()).collect();
        let features: Vec<Vec<usize>> = (0..count)
            .map(|client| (0..FEATURES).map(|k| (client * stride + k) % all).collect())
            .collect();
        let client = |features: &Vec<usize>| {
            let part = |rows: &[usize]| {
                Mat::from_fn(rows.len(), FEATURES, |r, c| {
                    pixel(rows[r], varied[features[c]])
                })
            };
            let values = [part(&order[..ROWS]), part(&order[ROWS..])];
            let own = Perceptron::fit(&values[0], &labels[..ROWS], width, &mut prg);
            let inputs = Inputs {
                columns: features
                    .iter()
                    .map(|number| format!("{number:02}"))
                    .collect(),
                labels: labels[..ROWS].to_vec(),
                embeddings: matrix(&own.embeddings(&values[0])),
                queries: matrix(&own.embeddings(&values[1])),
                probabilities: matrix(&own.probabilities(&values[1])),
            };
            (inputs, values)
        };
        let (inputs, values) = features.iter().map(client).unzip();
        Self {
            inputs,
            values,
            features,
            all,
            classes: labels[ROWS..].to_vec(),
        }
    }

    /// The values of all features of rows to predict.
    pub(super) fn queries(&self) -> Mat<f64> {
        let mut out = Mat::zeros(self.classes.len(), self.all);
        for ([_, values], features) in self.values.iter().zip(&self.features) {
            for (own, feature) in features.iter().enumerate() {
                out.col_mut(*feature).copy_from(values.col(own));
            }
        }
        out
    }
}

/// A perceptron with two hidden layers, the second half as wide as the first, trained by Adam.
struct Perceptron(Vec<Mat<f64>>);

impl Perceptron {
    fn fit(rows: &Mat<f64>, labels: &[u16], width: usize, prg: &mut Prg) -> Self {
        let sizes = [rows.ncols(), 2 * width, width, CLASSES];
        let mut weights: Vec<Mat<f64>> = Vec::new();
        for pair in sizes.windows(2) {
            let most = 1.0 / (pair[0] as f64).sqrt();
            weights.push(Mat::from_fn(pair[0] + 1, pair[1], |_, _| {
                most * (2.0 * prg.unit() - 1.0)
            }));
        }
        let mut moments: Vec<[Mat<f64>; 2]> = weights
            .iter()
            .map(|w| [(); 2].map(|()| Mat::zeros(w.nrows(), w.ncols())))
            .collect();
        let mut own = Self(weights);
        let mut powers = [1.0, 1.0];
        for _ in 0..300 {
            let outputs = own.outputs(rows);
            let mut slopes = softmax(&outputs[2]);
            for (row, label) in labels.iter().enumerate() {
                slopes[(row, usize::from(*label))] -= 1.0;
            }
            slopes *= faer::Scale(1.0 / rows.nrows() as f64);
            powers = [powers[0] * 0.9, powers[1] * 0.999];
            for layer in (0..3).rev() {
                let input = if layer == 0 {
                    rows
                } else {
                    &outputs[layer - 1]
                };
                let gradient = with_ones(input).transpose() * &slopes;
                if layer > 0 {
                    let weights = own.0[layer].subrows(0, input.ncols());
                    let back = &slopes * weights.transpose();
                    slopes = Mat::from_fn(back.nrows(), back.ncols(), |r, c| {
                        back[(r, c)] * f64::from(u8::from(input[(r, c)] > 0.0))
                    });
                }
                let [first, second] = &mut moments[layer];
                let params = &mut own.0[layer];
                for c in 0..gradient.ncols() {
                    for r in 0..gradient.nrows() {
                        let (at, slope) = ((r, c), gradient[(r, c)] + 1e-4 * params[(r, c)]);
                        first[at] = 0.9 * first[at] + 0.1 * slope;
                        second[at] = 0.999 * second[at] + 0.001 * slope * slope;
                        let root = (second[at] / (1.0 - powers[1])).sqrt();
                        params[at] -= 2e-3 * first[at] / (1.0 - powers[0]) / (root + 1e-8);
                    }
                }
            }
        }
        own
    }

    fn outputs(&self, rows: &Mat<f64>) -> Vec<Mat<f64>> {
        let first = positive(&(with_ones(rows) * &self.0[0]));
        let second = positive(&(with_ones(&first) * &self.0[1]));
        let logits = with_ones(&second) * &self.0[2];
        vec![first, second, logits]
    }

    fn embeddings(&self, rows: &Mat<f64>) -> Mat<f64> {
        self.outputs(rows).swap_remove(1)
    }

    fn probabilities(&self, rows: &Mat<f64>) -> Mat<f64> {
        softmax(&self.outputs(rows)[2])
    }
}

fn softmax(logits: &Mat<f64>) -> Mat<f64> {
    let mut out = Mat::from_fn(logits.nrows(), logits.ncols(), |r, c| {
        let most = logits.row(r).iter().copied().fold(f64::MIN, f64::max);
        (logits[(r, c)] - most).exp()
    });
    for r in 0..out.nrows() {
        let sum: f64 = out.row(r).iter().sum();
        (0..out.ncols()).for_each(|c| out[(r, c)] /= sum);
    }
    out
}

fn with_ones(rows: &Mat<f64>) -> Mat<f64> {
    Mat::from_fn(rows.nrows(), rows.ncols() + 1, |r, c| {
        if c < rows.ncols() { rows[(r, c)] } else { 1.0 }
    })
}

pub(super) fn positive(values: &Mat<f64>) -> Mat<f64> {
    Mat::from_fn(values.nrows(), values.ncols(), |r, c| {
        values[(r, c)].max(0.0)
    })
}

pub(super) fn matrix(values: &Mat<f64>) -> Matrix {
    let rows = values.row_iter().flat_map(|row| row.iter().copied());
    Matrix::new(values.nrows(), values.ncols(), rows.collect()).unwrap()
}

pub(super) fn mat(values: &Matrix) -> Mat<f64> {
    of(values.rows(), values.columns(), values.values())
}

/// A matrix of these values, row after row.
pub(super) fn of(rows: usize, columns: usize, values: &[f64]) -> Mat<f64> {
    assert_eq!(values.len(), rows * columns);
    Mat::from_fn(rows, columns, |r, c| values[r * columns + c])
}

pub(super) fn side_by_side(parts: &[&Mat<f64>]) -> Mat<f64> {
    let rows = parts[0].nrows();
    let mut out = Mat::zeros(rows, parts.iter().map(|part| part.ncols()).sum());
    let mut start = 0;
    for part in parts {
        out.subcols_mut(start, part.ncols()).copy_from(part);
        start += part.ncols();
    }
    out
}

/// Every second row.
fn half(values: &Mat<f64>, first: usize) -> Mat<f64> {
    let rows = (values.nrows() - first).div_ceil(2);
    Mat::from_fn(rows, values.ncols(), |r, c| values[(2 * r + first, c)])
}

fn means(values: &Mat<f64>) -> Vec<f64> {
    let columns = values.col_iter();
    columns
        .map(|column| column.iter().sum::<f64>() / values.nrows() as f64)
        .collect()
}

fn without(values: &Mat<f64>, means: &[f64]) -> Mat<f64> {
    Mat::from_fn(values.nrows(), values.ncols(), |r, c| {
        values[(r, c)] - means[c]
    })
}

/// A linear regression with an intercept and a little ridge.
pub(super) struct Linear {
    inputs: Vec<f64>,
    outputs: Vec<f64>,
    slopes: Mat<f64>,
}

impl Linear {
    pub(super) fn fit(inputs: &Mat<f64>, outputs: &Mat<f64>) -> Self {
        let (mean_in, mean_out) = (means(inputs), means(outputs));
        let (x, y) = (without(inputs, &mean_in), without(outputs, &mean_out));
        let ridge = Mat::<f64>::identity(x.ncols(), x.ncols()) * faer::Scale(RIDGE);
        let gram = x.transpose() * &x + ridge;
        Self {
            slopes: gram.llt(Side::Lower).unwrap().solve(x.transpose() * y),
            inputs: mean_in,
            outputs: mean_out,
        }
    }

    pub(super) fn of(&self, inputs: &Mat<f64>) -> Mat<f64> {
        let out = without(inputs, &self.inputs) * &self.slopes;
        Mat::from_fn(out.nrows(), out.ncols(), |r, c| {
            out[(r, c)] + self.outputs[c]
        })
    }
}

const RIDGE: f64 = 0.01;

/// R², the share of the variance of `values` that `guess` explains, over all columns.
pub(super) fn explained(values: &Mat<f64>, guess: &Mat<f64>) -> f64 {
    let spread = without(values, &means(values)).squared_norm_l2();
    1.0 - (values - guess).squared_norm_l2() / spread
}

/// R² of a regression from what an attacker sees of rows to their values: it knows every second
/// row, and guesses the others.
pub(super) fn told(seen: &Mat<f64>, values: &Mat<f64>) -> f64 {
    let linear = Linear::fit(&half(seen, 0), &half(values, 0));
    explained(&half(values, 1), &linear.of(&half(seen, 1)))
}
