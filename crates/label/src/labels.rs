//! Labels: the class of each row, with a confidence.

use undertone_kernel::Wiped;

use crate::input::Labelling;
use crate::scores::Scores;

/// A class, or none, and a confidence for each of a client's rows. Wiped when dropped.
#[derive(Clone, PartialEq)]
pub struct Labels {
    classes: Wiped<Option<u16>>,
    confidences: Wiped<f64>,
}

impl std::fmt::Debug for Labels {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Labels({} rows, ..)", self.classes.len())
    }
}

impl Labels {
    /// Decides on the labels of all rows. Labelled rows keep their label, with confidence 1. An
    /// unlabelled row gets the class of its largest score, with confidence `1 − H(z/Σz)/ln C`. Ties
    /// go to the smaller class. A row that no label reaches gets none, with confidence 0.
    ///
    /// # Panics
    /// When the number of rows of `scores` is not the number of unlabelled rows.
    pub fn decide(labelling: &Labelling, scores: &Scores) -> Self {
        let unlabelled = labelling.rows() - labelling.labelled().count();
        assert_eq!(scores.rows(), unlabelled, "rows of scores");
        let mut scores = scores.iter();
        let decide = |label: &Option<u16>| match label {
            Some(class) => (Some(*class), 1.0),
            None => scores.next().map_or((None, 0.0), most_likely),
        };
        let mut classes = Wiped::with_capacity(labelling.rows());
        let mut confidences = Wiped::with_capacity(labelling.rows());
        for (class, confidence) in labelling.labels().iter().map(decide) {
            classes.push(class);
            confidences.push(confidence);
        }
        Self {
            classes,
            confidences,
        }
    }

    /// Gives each row that has a label in `labelling` that label, with confidence 1. With this, a
    /// client that brought noisy labels to a run keeps its own.
    ///
    /// # Panics
    /// When `labelling` has another number of rows.
    pub fn restore(&mut self, labelling: &Labelling) {
        assert_eq!(
            labelling.rows(),
            self.classes.len(),
            "rows of the labelling"
        );
        for (row, label) in labelling.labels().iter().enumerate() {
            if label.is_some() {
                (self.classes[row], self.confidences[row]) = (*label, 1.0);
            }
        }
    }

    /// For each row its class, or none.
    pub fn classes(&self) -> &[Option<u16>] {
        &self.classes
    }

    /// For each row its confidence, from 0 to 1.
    pub fn confidences(&self) -> &[f64] {
        &self.confidences
    }
}

fn most_likely(scores: &[f64]) -> (Option<u16>, f64) {
    let total: f64 = scores.iter().sum();
    if total <= 0.0 {
        return (None, 0.0);
    }
    let mut best = 0;
    let mut entropy = 0.0;
    for (class, score) in scores.iter().enumerate() {
        if *score > scores[best] {
            best = class;
        }
        let share = score / total;
        if share > 0.0 {
            entropy -= share * share.ln();
        }
    }
    let confidence = 1.0 - entropy / (scores.len() as f64).ln();
    (Some(best as u16), confidence.clamp(0.0, 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ties_unreached_rows_and_given_labels() {
        let labelling = Labelling::new(3, vec![None, Some(2), None, None]).unwrap();
        let scores = Scores::new(3, vec![0.0, 2.0, 2.0, 0.0, 0.0, 0.0, 5.0, 0.0, 0.0]);
        let labels = Labels::decide(&labelling, &scores);
        assert_eq!(labels.classes(), [Some(1), Some(2), None, Some(0)]);
        let tie = 1.0 - 2f64.ln() / 3f64.ln();
        assert!((labels.confidences()[0] - tie).abs() < 1e-15);
        assert_eq!(labels.confidences()[1..], [1.0, 0.0, 1.0]);
    }

    #[test]
    fn own_labels_are_restored() {
        let scores = || Scores::new(3, vec![0.0, 2.0, 2.0]);
        let noisy = Labelling::new(3, vec![Some(0), None, Some(2)]).unwrap();
        let own = Labelling::new(3, vec![Some(1), None, Some(2)]).unwrap();
        let mut labels = Labels::decide(&noisy, &scores());
        labels.restore(&own);
        assert_eq!(labels, Labels::decide(&own, &scores()));
    }
}
