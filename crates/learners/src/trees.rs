//! A decision tree and a random forest, by smartcore.

use rayon::prelude::*;
use smartcore::ensemble::random_forest_classifier::{
    RandomForestClassifier, RandomForestClassifierParameters,
};
use smartcore::error::Failed;
use smartcore::linalg::basic::matrix::DenseMatrix;
use smartcore::tree::decision_tree_classifier::{
    DecisionTreeClassifier, DecisionTreeClassifierParameters,
};
use undertone_cotrain::learner::{LearnerError, Rows};
use undertone_kdf::Seed;

use crate::classifier::{Model, Task, largest, refused};

type Matrix = DenseMatrix<f64>;
type Labels = Vec<u16>;

pub(crate) struct Tree {
    tree: DecisionTreeClassifier<f64, u16, Matrix, Labels>,
    /// The columns in the order in which the tree sees them.
    order: Vec<usize>,
}

impl Tree {
    /// Of splits that are equally good the tree takes the one of the column that it sees first. So
    /// that clients' trees differ, it sees the columns in a random order, as scikit-learn's does.
    pub(crate) fn fit(task: Task<'_>, seed: &Seed) -> Result<Self, LearnerError> {
        let mut order: Vec<usize> = (0..task.rows.dim).collect();
        seed.prg().shuffle(&mut order);
        let rows = matrix(task.rows, &order)?;
        let parameters = DecisionTreeClassifierParameters::default();
        let tree = DecisionTreeClassifier::fit(&rows, &task.labels.to_vec(), parameters);
        Ok(Self {
            tree: tree.map_err(failed)?,
            order,
        })
    }
}

impl Model for Tree {
    fn predict(&self, rows: Rows<'_>) -> Result<Vec<u16>, LearnerError> {
        self.tree
            .predict(&matrix(rows, &self.order)?)
            .map_err(failed)
    }
}

/// Forests of one tree each, so that threads share the work.
pub(crate) struct Forest {
    trees: Vec<RandomForestClassifier<f64, u16, Matrix, Labels>>,
    classes: usize,
}

impl Forest {
    pub(crate) fn fit(task: Task<'_>, trees: u16, seed: &Seed) -> Result<Self, LearnerError> {
        if trees == 0 {
            return Err(refused("a forest needs a tree at least".into()));
        }
        let rows = in_order(task.rows)?;
        let labels = task.labels.to_vec();
        let mut prg = seed.prg();
        let seeds: Vec<u64> = (0..trees).map(|_| prg.next_u64()).collect();
        let fit = |seed| {
            let parameters = RandomForestClassifierParameters {
                n_trees: 1,
                m: Some(task.rows.dim.isqrt()),
                seed,
                ..Default::default()
            };
            RandomForestClassifier::fit(&rows, &labels, parameters).map_err(failed)
        };
        Ok(Self {
            trees: seeds.into_par_iter().map(fit).collect::<Result<_, _>>()?,
            classes: task.classes,
        })
    }
}

impl Model for Forest {
    fn predict(&self, rows: Rows<'_>) -> Result<Vec<u16>, LearnerError> {
        let matrix = in_order(rows)?;
        let mut votes = vec![0u32; rows.len() * self.classes];
        for tree in &self.trees {
            let places = tree.predict(&matrix).map_err(failed)?;
            for (votes, place) in votes.chunks_mut(self.classes).zip(places) {
                votes[usize::from(place)] += 1;
            }
        }
        Ok(votes
            .chunks(self.classes)
            .map(|votes| largest(votes.iter().copied().map(f64::from)))
            .collect())
    }
}

fn in_order(rows: Rows<'_>) -> Result<Matrix, LearnerError> {
    let order: Vec<usize> = (0..rows.dim).collect();
    matrix(rows, &order)
}

/// These columns of the rows, as a matrix of smartcore. In `f64` the midpoint of two different
/// values lies between them.
fn matrix(rows: Rows<'_>, order: &[usize]) -> Result<Matrix, LearnerError> {
    let values = columns(rows, order.iter().copied());
    DenseMatrix::new(rows.len(), rows.dim, values, true).map_err(failed)
}

/// The values of these columns, one after the other.
pub(crate) fn columns(rows: Rows<'_>, order: impl Iterator<Item = usize>) -> Vec<f64> {
    order
        .flat_map(|column| (0..rows.len()).map(move |row| f64::from(rows.row(row)[column])))
        .collect()
}

fn failed(error: Failed) -> LearnerError {
    refused(format!("smartcore: {error}"))
}
