//! A multilayer perceptron, by candle.

use undertone_cotrain::learner::{LearnerError, Rows};
use undertone_kdf::Seed;
use undertone_nets::Net;
use undertone_party::SessionId;
use undertone_train::{Examples, Model as _, Schedule, Target};

use crate::classifier::{Model, Task, largest, refused};

/// Rows in a batch.
const BATCH: usize = 32;
/// Steps of gradient descent, about.
const STEPS: usize = 1000;
/// The fewest and the most passes over the rows.
const EPOCHS: (usize, usize) = (5, 200);

pub(crate) struct Perceptron {
    net: Net,
    scale: Scale,
    classes: usize,
}

impl Perceptron {
    pub(crate) fn fit(task: Task<'_>, seed: &Seed) -> Result<Self, LearnerError> {
        let none = SessionId([0; 32]);
        let scale = Scale::of(task.rows);
        let values = scale.apply(task.rows);
        let labelled: Vec<Target> = task
            .labels
            .iter()
            .enumerate()
            .map(|(row, class)| Target {
                row,
                class: *class,
                weight: 1.0,
            })
            .collect();
        let batches = task.labels.len().div_ceil(BATCH);
        let schedule = Schedule {
            epochs: (STEPS / batches).clamp(EPOCHS.0, EPOCHS.1),
            labelled: BATCH,
            pseudo: 0,
            learning_rate: 0.1,
            weight_decay: 1e-4,
            consistency: 0.0,
            seed: seed.expand(none, "schedule", &[]),
        };
        let initial = seed.expand(none, "weights", &[]);
        let mut net = Net::mlp(task.rows.dim, task.classes, &initial).map_err(failed)?;
        let examples = Examples {
            rows: Rows {
                dim: task.rows.dim,
                values: &values,
            },
            labelled: &labelled,
            pseudo: &[],
        };
        net.update(&examples, &schedule).map_err(failed)?;
        Ok(Self {
            net,
            scale,
            classes: task.classes,
        })
    }
}

impl Model for Perceptron {
    fn predict(&self, rows: Rows<'_>) -> Result<Vec<u16>, LearnerError> {
        let values = self.scale.apply(rows);
        let rows = Rows {
            dim: rows.dim,
            values: &values,
        };
        let probabilities = self.net.clone().predict(rows).map_err(failed)?;
        Ok(probabilities
            .chunks(self.classes)
            .map(|row| largest(row.iter().copied().map(f64::from)))
            .collect())
    }
}

/// The mean of each column, and the inverse of its deviation.
struct Scale(Vec<(f64, f64)>);

impl Scale {
    fn of(rows: Rows<'_>) -> Self {
        let count = rows.len() as f64;
        let column = |column: usize| {
            let values = || (0..rows.len()).map(|row| f64::from(rows.row(row)[column]));
            let mean = values().sum::<f64>() / count;
            let variance = values().map(|value| (value - mean).powi(2)).sum::<f64>() / count;
            // A constant column is only shifted: its deviation is rounding.
            let constant = variance.sqrt() <= 1e-6 * mean.abs() || variance == 0.0;
            (
                mean,
                if constant {
                    1.0
                } else {
                    variance.sqrt().recip()
                },
            )
        };
        Self((0..rows.dim).map(column).collect())
    }

    /// The rows' values, standardised. Those far from all that was learned are cut off.
    fn apply(&self, rows: Rows<'_>) -> Vec<f32> {
        const FAR: f64 = 1e6;
        rows.values
            .chunks(rows.dim)
            .flat_map(|row| row.iter().zip(&self.0))
            .map(|(value, (mean, inverse))| {
                ((f64::from(*value) - mean) * inverse).clamp(-FAR, FAR) as f32
            })
            .collect()
    }
}

fn failed(error: undertone_train::ModelError) -> LearnerError {
    refused(error.0)
}
