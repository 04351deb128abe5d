//! The kinds of learners.

use undertone_cotrain::Learner;
use undertone_kdf::Seed;

use crate::Classifier;

/// The number of trees of a random forest.
pub const TREES: u16 = 100;

/// What a learner trains. The parameters are the defaults of scikit-learn, or of XGBoost for
/// [`Boosted`](Self::Boosted), unless noted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// A decision tree: Gini impurity, no limit of depth, a row in a leaf at least.
    Tree,
    /// A random forest: [`TREES`] such trees with √d features a split. Each tree learns from a
    /// sample of the rows of each class, with replacement. The trees vote; ties go to the lowest
    /// class.
    Forest,
    /// Boosted trees: 100 rounds of depth 6, learning rate 0.3, L2 penalty 1. With more than two
    /// classes, one such model for each class against all others, where XGBoost has a softmax.
    Boosted,
    /// Logistic regression, multinomial with more than two classes, with an L2 penalty (C = 1).
    Logistic,
    /// A multilayer perceptron with two hidden layers of 64 values, as
    /// [`undertone_nets::Kind::Mlp`]. It standardises the rows it learns from by their own means
    /// and deviations.
    Mlp,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 5] = [
        Self::Tree,
        Self::Forest,
        Self::Boosted,
        Self::Logistic,
        Self::Mlp,
    ];

    /// The kind of this name: `tree`, `forest`, `boosted`, `logistic` or `mlp`.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// The name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tree => "tree",
            Self::Forest => "forest",
            Self::Boosted => "boosted",
            Self::Logistic => "logistic",
            Self::Mlp => "mlp",
        }
    }

    /// A learner of this kind for labels below `classes`. Its randomness comes from `seed`.
    pub fn learner(self, classes: usize, seed: &Seed) -> Box<dyn Learner> {
        Box::new(Classifier::new(self, classes, seed))
    }
}
