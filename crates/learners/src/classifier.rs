//! The learner: checks of the input, the classes that occur, and the kinds behind them.

use std::fmt;

use undertone_cotrain::learner::{Learner, LearnerError, Rows};
use undertone_kdf::Seed;
use undertone_party::SessionId;

use crate::boosted::Boosted;
use crate::kind::{Kind, TREES};
use crate::linear::Logistic;
use crate::perceptron::Perceptron;
use crate::trees::{Forest, Tree};

/// The largest magnitude of a value that a learner takes. Larger ones would overflow in products.
pub const LARGEST: f32 = 1e9;

/// A learner of one of the [`Kind`]s.
pub struct Classifier {
    kind: Kind,
    classes: usize,
    trees: u16,
    seed: Seed,
    learned: Option<Learned>,
}

/// What a fit leaves behind.
struct Learned {
    /// The number of values in a row.
    dim: usize,
    /// The classes that occurred, ascending. Models know a class by its place here.
    classes: Vec<u16>,
    /// Absent where only one class occurred.
    model: Option<Box<dyn Model>>,
}

/// A trained model of at least two classes.
pub(crate) trait Model: Send {
    /// The place of each row's class.
    fn predict(&self, rows: Rows<'_>) -> Result<Vec<u16>, LearnerError>;
}

/// Rows whose labels are places in a list of `classes` classes. Every class occurs, and there are
/// at least two.
#[derive(Clone, Copy)]
pub(crate) struct Task<'a> {
    pub(crate) rows: Rows<'a>,
    pub(crate) labels: &'a [u16],
    pub(crate) classes: usize,
}

impl Classifier {
    /// A learner for labels below `classes`. Its randomness comes from `seed`.
    pub fn new(kind: Kind, classes: usize, seed: &Seed) -> Self {
        let none = SessionId([0; 32]);
        Self {
            kind,
            classes,
            trees: TREES,
            seed: seed.expand(none, "learner", kind.name().as_bytes()),
            learned: None,
        }
    }

    /// Trains `trees` trees in a [`Kind::Forest`]. Other kinds ignore it.
    #[must_use]
    pub fn with_trees(mut self, trees: u16) -> Self {
        self.trees = trees;
        self
    }

    /// What it trains.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    fn model(&self, task: Task<'_>) -> Result<Box<dyn Model>, LearnerError> {
        Ok(match self.kind {
            Kind::Tree => Box::new(Tree::fit(task, &self.seed)?),
            Kind::Forest => Box::new(Forest::fit(task, self.trees, &self.seed)?),
            Kind::Boosted => Box::new(Boosted::fit(task)?),
            Kind::Logistic => Box::new(Logistic::fit(task)?),
            Kind::Mlp => Box::new(Perceptron::fit(task, &self.seed)?),
        })
    }
}

impl Learner for Classifier {
    fn fit(&mut self, rows: Rows<'_>, labels: &[u16]) -> Result<(), LearnerError> {
        self.learned = None;
        check(rows)?;
        if rows.is_empty() {
            return Err(refused("there are no rows to learn from".into()));
        }
        if labels.len() != rows.len() {
            return Err(refused(format!(
                "{} rows have {} labels",
                rows.len(),
                labels.len()
            )));
        }
        let above = |label: &u16| usize::from(*label) >= self.classes;
        if let Some(row) = labels.iter().position(above) {
            return Err(refused(format!(
                "row {row}: label {} is not below the number of classes, {}",
                labels[row], self.classes
            )));
        }
        let mut classes = labels.to_vec();
        classes.sort_unstable();
        classes.dedup();
        let model = if classes.len() == 1 {
            None
        } else {
            let place = |label: &u16| classes.partition_point(|class| class < label) as u16;
            let places: Vec<u16> = labels.iter().map(place).collect();
            Some(self.model(Task {
                rows,
                labels: &places,
                classes: classes.len(),
            })?)
        };
        self.learned = Some(Learned {
            dim: rows.dim,
            classes,
            model,
        });
        Ok(())
    }

    fn predict(&self, rows: Rows<'_>) -> Result<Vec<u16>, LearnerError> {
        let learned = self
            .learned
            .as_ref()
            .ok_or_else(|| refused("it has not learned anything yet".into()))?;
        check(rows)?;
        if rows.dim != learned.dim {
            return Err(refused(format!(
                "rows have {} values; it learned from rows of {}",
                rows.dim, learned.dim
            )));
        }
        match &learned.model {
            _ if rows.is_empty() => Ok(Vec::new()),
            None => Ok(vec![learned.classes[0]; rows.len()]),
            Some(model) => Ok(model
                .predict(rows)?
                .into_iter()
                .map(|place| learned.classes[usize::from(place)])
                .collect()),
        }
    }
}

/// Refuses rows without values or with a rest, and values outside ±[`LARGEST`].
fn check(rows: Rows<'_>) -> Result<(), LearnerError> {
    if rows.dim == 0 || !rows.values.len().is_multiple_of(rows.dim) {
        return Err(refused(format!(
            "{} values are not rows of {}",
            rows.values.len(),
            rows.dim
        )));
    }
    let outside = |value: &f32| value.is_nan() || value.abs() > LARGEST;
    match rows.values.iter().position(outside) {
        None => Ok(()),
        Some(at) => Err(refused(format!(
            "row {}, value {}: {} is not between -{LARGEST:e} and {LARGEST:e}",
            at / rows.dim,
            at % rows.dim,
            rows.values[at]
        ))),
    }
}

pub(crate) fn refused(text: String) -> LearnerError {
    LearnerError(text)
}

/// The place of the largest score. Ties go to the lowest place.
pub(crate) fn largest(scores: impl Iterator<Item = f64>) -> u16 {
    let mut best = (0, f64::NEG_INFINITY);
    for (place, score) in scores.enumerate() {
        if score > best.1 {
            best = (place, score);
        }
    }
    best.0 as u16
}

impl fmt::Debug for Classifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Classifier")
            .field("kind", &self.kind)
            .field("classes", &self.classes)
            .field("fitted", &self.learned.is_some())
            .finish_non_exhaustive()
    }
}
