//! Boosted trees, by forust.

use forust_ml::objective::ObjectiveType;
use forust_ml::{GradientBooster, Matrix};
use undertone_cotrain::learner::{LearnerError, Rows};

use crate::classifier::{Model, Task, largest, refused};
use crate::trees::columns;

/// One booster for two classes: for the class at place 1. One for each class where there are more.
pub(crate) struct Boosted(Vec<GradientBooster>);

impl Boosted {
    pub(crate) fn fit(task: Task<'_>) -> Result<Self, LearnerError> {
        let values = columns(task.rows, 0..task.rows.dim);
        let rows = Matrix::new(&values, task.rows.len(), task.rows.dim);
        let places = if task.classes == 2 {
            1..2
        } else {
            0..task.classes
        };
        places
            .map(|place| {
                let inside = |label: &u16| f64::from(u8::from(usize::from(*label) == place));
                let labels: Vec<f64> = task.labels.iter().map(inside).collect();
                let mut booster = booster();
                match booster.fit_unweighted(&rows, &labels, None) {
                    Ok(()) => Ok(booster),
                    Err(error) => Err(refused(format!("forust: {error}"))),
                }
            })
            .collect::<Result<_, _>>()
            .map(Self)
    }
}

/// XGBoost's default parameters.
fn booster() -> GradientBooster {
    GradientBooster::default()
        .set_objective_type(ObjectiveType::LogLoss)
        .set_iterations(100)
        .set_learning_rate(0.3)
        .set_max_depth(6)
        .set_l2(1.0)
        .set_min_leaf_weight(1.0)
        .set_initialize_base_score(true)
        .set_parallel(false)
}

impl Model for Boosted {
    fn predict(&self, rows: Rows<'_>) -> Result<Vec<u16>, LearnerError> {
        let values = columns(rows, 0..rows.dim);
        let rows = Matrix::new(&values, rows.len(), rows.dim);
        let scores: Vec<Vec<f64>> = self.0.iter().map(|one| one.predict(&rows, false)).collect();
        Ok(match &scores[..] {
            [odds] => odds.iter().map(|odds| u16::from(*odds > 0.0)).collect(),
            _ => (0..rows.rows)
                .map(|row| largest(scores.iter().map(|scores| scores[row])))
                .collect(),
        })
    }
}
