//! Pseudo-labels: classes with confidences for the rows that have no label.

use undertone_job::record::Answering;
use undertone_kdf::Seed;
use undertone_label::{self as label, Codes, Features, Labelling, Labels, Params, solo};
use undertone_party::Abort;

use crate::model::{Embeddings, Target};

/// The rows of embeddings that have a direction: all values are finite, and not all are zero. A
/// diverging model gives others.
pub(crate) struct Directed {
    /// Values of an embedding.
    dim: usize,
    /// The numbers of these rows.
    rows: Vec<usize>,
    /// Their embeddings. None when there are no such rows.
    features: Option<Features>,
    /// Their labels.
    labelling: Labelling,
}

impl Directed {
    pub(crate) fn new(embeddings: &Embeddings, labelling: &Labelling) -> Result<Self, Abort> {
        let Embeddings { dim, values } = embeddings;
        let count = values.len().checked_div(*dim).unwrap_or(0);
        if count != labelling.rows() || values.len() != count * dim {
            return Err(Abort::Misuse(format!(
                "the model gives {count} embeddings for {} rows",
                labelling.rows()
            )));
        }
        let has_direction = |row: &usize| {
            let row = &values[row * dim..(row + 1) * dim];
            row.iter().all(|value| value.is_finite()) && row.iter().any(|value| *value != 0.0)
        };
        let rows: Vec<usize> = (0..count).filter(has_direction).collect();
        let of = |row: &usize| values[row * dim..(row + 1) * dim].iter();
        let kept: Vec<f64> = rows
            .iter()
            .flat_map(of)
            .map(|value| f64::from(*value))
            .collect();
        let labels = rows.iter().map(|row| labelling.labels()[*row]).collect();
        let features = if rows.is_empty() {
            None
        } else {
            Some(Features::new(*dim, kept)?)
        };
        Ok(Self {
            dim: (*dim).max(1),
            features,
            labelling: labelling.with_labels(labels)?,
            rows,
        })
    }

    /// What the client brings to label propagation: these rows and their labels. A client without
    /// any such row brings one without a label, and does not use the result.
    pub(crate) fn input(&self, answering: Answering) -> Result<label::Input, Abort> {
        let (features, labelling) = match &self.features {
            Some(features) => (features.clone(), self.labelling.clone()),
            None => {
                let one = Features::new(self.dim, vec![1.0; self.dim])?;
                (one, self.labelling.with_labels(vec![None])?)
            }
        };
        let rows = label::Rows::Features(features);
        Ok(label::Input::new(rows, labelling, answering))
    }

    /// The targets of the rows that `own` gives no label, by the `labels` of these rows.
    pub(crate) fn targets(&self, labels: &Labels, own: &Labelling) -> Vec<Target> {
        let decided = labels.classes().iter().zip(labels.confidences());
        let target = |(row, (class, confidence)): (&usize, (&Option<u16>, &f64))| {
            let weight = *confidence as f32;
            let is_due = own.labels()[*row].is_none() && weight > 0.0;
            let class = class.filter(|_| is_due)?;
            Some(Target {
                row: *row,
                class,
                weight,
            })
        };
        self.rows.iter().zip(decided).filter_map(target).collect()
    }

    /// Label propagation on these rows alone.
    pub(crate) fn propagate(
        &self,
        params: &Params,
        projection: &Seed,
        own: &Labelling,
    ) -> Result<Vec<Target>, Abort> {
        let Some(features) = &self.features else {
            return Ok(Vec::new());
        };
        let codes = Codes::hash(features, projection, params.bits);
        let labels = solo::propagate(&codes, &self.labelling, params)?;
        Ok(self.targets(&labels, own))
    }
}

/// The model's own predictions as pseudo-labels. The confidence is `1 − H(p)/ln C`.
pub(crate) fn predicted(probabilities: &[f32], own: &Labelling) -> Result<Vec<Target>, Abort> {
    let classes = own.classes();
    if probabilities.len() != own.rows() * classes {
        return Err(Abort::Misuse(format!(
            "the model predicts {} values for {} rows of {classes} classes",
            probabilities.len(),
            own.rows()
        )));
    }
    let predict = |row: usize| {
        let probabilities = &probabilities[row * classes..(row + 1) * classes];
        let mut best = 0;
        let mut entropy = 0.0;
        for (class, p) in probabilities.iter().enumerate() {
            if *p > probabilities[best] {
                best = class;
            }
            if *p > 0.0 {
                entropy -= p * p.ln();
            }
        }
        let weight = 1.0 - entropy / (classes as f32).ln();
        // A row of numbers that are none has no class.
        (probabilities[best] > 0.0 && weight > 0.0).then_some(Target {
            row,
            class: best as u16,
            weight: weight.min(1.0),
        })
    };
    Ok(own.unlabelled().filter_map(predict).collect())
}

/// The labelled rows as targets.
pub(crate) fn labelled(own: &Labelling) -> Vec<Target> {
    let target = |row: usize| {
        let class = own.labels()[row]?;
        Some(Target {
            row,
            class,
            weight: 1.0,
        })
    };
    (0..own.rows()).filter_map(target).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn predictions_are_weighted_by_their_certainty() {
        let own = Labelling::new(2, vec![None, Some(1), None, None, None]).unwrap();
        let nan = f32::NAN;
        let probabilities = [0.0, 1.0, 1.0, 0.0, 0.5, 0.5, 0.9, 0.1, nan, nan];
        let targets = predicted(&probabilities, &own).unwrap();
        assert_eq!(
            (targets[0].row, targets[0].class, targets[0].weight),
            (0, 1, 1.0)
        );
        // Row 2 says nothing, row 4 is no number.
        assert_eq!((targets.len(), targets[1].row, targets[1].class), (2, 3, 0));
        assert!((targets[1].weight - 0.531).abs() < 1e-3);
        assert!(predicted(&probabilities[1..], &own).is_err());
    }

    #[test]
    fn rows_without_direction_are_left_out() {
        let own = Labelling::new(2, vec![Some(0), Some(1), None, None, None]).unwrap();
        let values = vec![1.0, 0.1, 0.1, 1.0, 0.0, 0.0, f32::NAN, 1.0, 0.1, 0.9];
        let directed = Directed::new(&Embeddings { dim: 2, values }, &own).unwrap();
        assert_eq!(directed.rows, [0, 1, 4]);
        let params = Params::default();
        let seed = Seed::from_bytes([1; 32]);
        let targets = directed.propagate(&params, &seed, &own).unwrap();
        assert_eq!((targets.len(), targets[0].row, targets[0].class), (1, 4, 1));
        assert!(targets[0].weight > 0.0);
        let nothing = Embeddings {
            dim: 2,
            values: vec![0.0; 10],
        };
        let nothing = Directed::new(&nothing, &own).unwrap();
        assert_eq!(nothing.propagate(&params, &seed, &own), Ok(Vec::new()));
    }
}
