//! Logistic regression, by smartcore.

use smartcore::linalg::basic::matrix::DenseMatrix;
use smartcore::linear::logistic_regression::{LogisticRegression, LogisticRegressionParameters};
use undertone_fedct::learner::{LearnerError, Rows};

use crate::classifier::{Model, Task};
use crate::trees::{failed, matrix};

pub(crate) struct Logistic(LogisticRegression<f64, u16, DenseMatrix<f64>, Vec<u16>>);

impl Logistic {
    pub(crate) fn fit(task: Task<'_>) -> Result<Self, LearnerError> {
        // Half the squared weights times alpha: scikit-learn's 1/C.
        let parameters = LogisticRegressionParameters::default().with_alpha(1.0);
        let rows = matrix(task.rows, false)?;
        LogisticRegression::fit(&rows, &task.labels.to_vec(), parameters)
            .map(Self)
            .map_err(failed)
    }
}

impl Model for Logistic {
    fn predict(&self, rows: Rows<'_>) -> Result<Vec<u16>, LearnerError> {
        self.0.predict(&matrix(rows, false)?).map_err(failed)
    }
}
