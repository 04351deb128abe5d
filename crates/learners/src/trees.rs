//! A decision tree and a random forest, by smartcore.

use smartcore::ensemble::random_forest_classifier::{
    RandomForestClassifier, RandomForestClassifierParameters,
};
use smartcore::error::Failed;
use smartcore::linalg::basic::matrix::DenseMatrix;
use smartcore::tree::decision_tree_classifier::{
    DecisionTreeClassifier, DecisionTreeClassifierParameters,
};
use undertone_fedct::learner::{LearnerError, Rows};
use undertone_kdf::Seed;

use crate::classifier::{Model, Task, refused};

type Matrix = DenseMatrix<f64>;
type Labels = Vec<u16>;

pub(crate) struct Tree(DecisionTreeClassifier<f64, u16, Matrix, Labels>);

impl Tree {
    pub(crate) fn fit(task: Task<'_>, seed: &Seed) -> Result<Self, LearnerError> {
        let parameters = DecisionTreeClassifierParameters {
            seed: Some(seed.prg().next_u64()),
            ..Default::default()
        };
        let rows = matrix(task.rows, true)?;
        DecisionTreeClassifier::fit(&rows, &task.labels.to_vec(), parameters)
            .map(Self)
            .map_err(failed)
    }
}

impl Model for Tree {
    fn predict(&self, rows: Rows<'_>) -> Result<Vec<u16>, LearnerError> {
        self.0.predict(&matrix(rows, false)?).map_err(failed)
    }
}

pub(crate) struct Forest(RandomForestClassifier<f64, u16, Matrix, Labels>);

impl Forest {
    pub(crate) fn fit(task: Task<'_>, trees: u16, seed: &Seed) -> Result<Self, LearnerError> {
        if trees == 0 {
            return Err(refused("a forest needs a tree at least".into()));
        }
        let parameters = RandomForestClassifierParameters {
            n_trees: trees,
            m: Some(task.rows.dim.isqrt()),
            seed: seed.prg().next_u64(),
            ..Default::default()
        };
        let rows = matrix(task.rows, true)?;
        RandomForestClassifier::fit(&rows, &task.labels.to_vec(), parameters)
            .map(Self)
            .map_err(failed)
    }
}

impl Model for Forest {
    fn predict(&self, rows: Rows<'_>) -> Result<Vec<u16>, LearnerError> {
        self.0.predict(&matrix(rows, false)?).map_err(failed)
    }
}

/// The rows as a matrix of smartcore, stored by columns or by rows. In `f64` the midpoint of two
/// different values lies between them.
pub(crate) fn matrix(rows: Rows<'_>, by_columns: bool) -> Result<Matrix, LearnerError> {
    let values = if by_columns {
        columns(rows)
    } else {
        rows.values.iter().copied().map(f64::from).collect()
    };
    DenseMatrix::new(rows.len(), rows.dim, values, by_columns).map_err(failed)
}

/// The values, column by column.
pub(crate) fn columns(rows: Rows<'_>) -> Vec<f64> {
    (0..rows.dim)
        .flat_map(|column| (0..rows.len()).map(move |row| f64::from(rows.row(row)[column])))
        .collect()
}

pub(crate) fn failed(error: Failed) -> LearnerError {
    refused(format!("smartcore: {error}"))
}
