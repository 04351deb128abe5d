//! A client's own network for vertical learning: a perceptron on the features that the client has.
//! Each hidden layer has half the units of the layer before. Each is an embedding that the client
//! may bring. All clients bring the same layer, and usually the last.

use std::fmt;

use candle_core::{D, Device, Result, Tensor, Var};
use undertone_kdf::Seed;
use undertone_kernel::{Prg, Wiped};
use undertone_party::SessionId;
use undertone_train::{ModelError, Rows};

use crate::graph::log_softmax;

/// Rows of a batch.
const BATCH: usize = 128;
/// Adam's step size, its decays and its least denominator; the decay of weights.
const RATE: f32 = 1e-3;
const DECAYS: [f32; 2] = [0.9, 0.999];
const EPSILON: f32 = 1e-8;
const WEIGHT_DECAY: f32 = 1e-4;
/// Most hidden layers, and most parameters.
const MAX_LAYERS: usize = 16;
const MAX_PARAMS: usize = 1 << 24;

/// λ of the privacy score: how much a change of the embedding counts against one of the row.
const STRICTNESS: f64 = 10_000.0;
/// The scale of the Laplace noise from which changes of rows start.
const START: f32 = 0.001;
/// The most that a value of a row, and a weight, changes in an iteration.
const MOST: [f32; 2] = [1e-2, 1e-4];
const ITERATIONS: usize = 50;
/// Rows that the score looks at.
const SCORED: usize = 128;

/// Values of rows, each feature scaled to values from 0 to 1 over these rows, as a [`Local`]
/// network takes them.
pub fn unit_scale(values: &[f64], dim: usize) -> Vec<f32> {
    let column = |feature: usize| values.iter().skip(feature).step_by(dim).copied();
    let ranges: Vec<(f64, f64)> = (0..dim)
        .map(|feature| {
            let low = column(feature).fold(f64::INFINITY, f64::min);
            let high = column(feature).fold(f64::NEG_INFINITY, f64::max);
            (low, (high - low).max(f64::MIN_POSITIVE))
        })
        .collect();
    let scaled = values.iter().zip(ranges.iter().cycle());
    scaled
        .map(|(value, (low, range))| ((value - low) / range) as f32)
        .collect()
}

/// How a [`Local`] network is built and trained.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LocalSettings {
    /// The number of classes.
    pub classes: usize,
    /// Units of the last hidden layer. Each layer before has twice those of the next.
    pub width: usize,
    /// The number of hidden layers.
    pub layers: usize,
    /// Passes over all rows.
    pub epochs: usize,
}

impl LocalSettings {
    /// Layers of 256, 128 and 64 units, 100 epochs.
    pub fn new(classes: usize) -> Self {
        Self {
            classes,
            width: 64,
            layers: 3,
            epochs: 100,
        }
    }

    /// The number of units of hidden layer `layer`, from 1.
    pub fn units(&self, layer: usize) -> usize {
        let halvings = self.layers.saturating_sub(layer) as u32;
        self.width
            .saturating_mul(1usize.checked_shl(halvings).unwrap_or(usize::MAX))
    }

    /// Rows and columns of the weights of each layer.
    fn shapes(&self, features: usize) -> Vec<(usize, usize)> {
        let mut inputs = features;
        let mut shapes = Vec::new();
        for layer in 1..=self.layers.min(MAX_LAYERS) {
            shapes.push((inputs, self.units(layer)));
            inputs = self.units(layer);
        }
        shapes.push((inputs, self.classes));
        shapes
    }
}

/// The privacy scores of the hidden layers, and the layer that they recommend.
#[derive(Debug, Clone, PartialEq)]
pub struct Depth {
    /// For each layer how far rows can move without a change of its values: the mean square of a
    /// value's change.
    pub scores: Vec<f64>,
    /// The last layer before the score falls, from 1.
    pub chosen: usize,
}

/// A perceptron with ReLU, trained by Adam.
#[derive(Clone)]
pub struct Local {
    settings: LocalSettings,
    features: usize,
    params: Wiped<f32>,
}

impl fmt::Debug for Local {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Local({} features, {:?}, ..)",
            self.features, self.settings
        )
    }
}

fn candle(error: candle_core::Error) -> ModelError {
    ModelError(format!("candle: {error}"))
}

fn tensor(values: &[f32], shape: (usize, usize)) -> Result<Tensor> {
    Tensor::from_slice(values, shape, &Device::Cpu)
}

/// The outputs of the hidden layers, after the ReLU, and the logits.
fn outputs(weights: &[Tensor], rows: &Tensor, layers: usize) -> Result<Vec<Tensor>> {
    let mut out = Vec::with_capacity(layers);
    let mut x = rows.clone();
    for (layer, pair) in weights.chunks_exact(2).enumerate().take(layers) {
        x = x.matmul(&pair[0])?.broadcast_add(&pair[1])?;
        if 2 * (layer + 1) < weights.len() {
            x = x.relu()?;
        }
        out.push(x.clone());
    }
    Ok(out)
}

impl Local {
    /// Trains a network on `rows` and their `labels`. Its weights, and the order of the rows,
    /// follow from `seed`.
    ///
    /// # Errors
    /// [`ModelError`] when there are no rows, sizes do not fit, or a value is not finite.
    pub fn fit(
        rows: Rows<'_>,
        labels: &[u16],
        settings: LocalSettings,
        seed: &Seed,
    ) -> std::result::Result<Self, ModelError> {
        let sizes = [
            settings.classes,
            settings.width,
            settings.layers,
            settings.epochs,
        ];
        let shapes = settings.shapes(rows.dim);
        let cells =
            |(inputs, outputs): &(usize, usize)| inputs.saturating_add(1).saturating_mul(*outputs);
        let count = shapes.iter().map(cells).fold(0, usize::saturating_add);
        let too_many = count > MAX_PARAMS || settings.layers > MAX_LAYERS;
        if sizes.contains(&0) || rows.dim == 0 || too_many {
            return Err(ModelError(format!(
                "{settings:?} for rows of {} values: sizes must be above 0, layers at most \
                 {MAX_LAYERS}, and parameters at most {MAX_PARAMS}",
                rows.dim
            )));
        }
        let class = |label: &u16| usize::from(*label) < settings.classes;
        if labels.len() != rows.len() || labels.is_empty() || !labels.iter().all(class) {
            return Err(ModelError(format!(
                "{} labels for {} rows: each row needs one of {} classes",
                labels.len(),
                rows.len(),
                settings.classes
            )));
        }
        let none = SessionId([0; 32]);
        let mut prg = seed.derive(none, "local weights", &[]).prg();
        let mut params = Wiped::with_capacity(count);
        for (inputs, outputs) in shapes {
            let most = 1.0 / (inputs as f64).sqrt();
            for _ in 0..(inputs + 1) * outputs {
                params.push((most * (2.0 * prg.unit() - 1.0)) as f32);
            }
        }
        let mut local = Self {
            settings,
            features: rows.dim,
            params,
        };
        local.check(rows)?;
        let mut prg = seed.derive(none, "local batches", &[]).prg();
        local.train(rows, labels, &mut prg).map_err(candle)?;
        Ok(local)
    }

    fn check(&self, rows: Rows<'_>) -> std::result::Result<(), ModelError> {
        if rows.dim != self.features || !rows.values.len().is_multiple_of(rows.dim) {
            return Err(ModelError(format!(
                "rows of {} values: the network takes rows of {}",
                rows.dim, self.features
            )));
        }
        match rows.values.iter().position(|value| !value.is_finite()) {
            None => Ok(()),
            Some(at) => Err(ModelError(format!(
                "row {}, value {}: not a finite number",
                at / rows.dim,
                at % rows.dim
            ))),
        }
    }

    /// Weights and bias of each layer. Gradients reach them if `trained`.
    fn tensors(&self, params: &[f32], trained: bool) -> Result<Vec<Tensor>> {
        let mut rest = params;
        let mut out = Vec::new();
        for (inputs, outputs) in self.settings.shapes(self.features) {
            let (weights, after) = rest.split_at(inputs * outputs);
            let (bias, after) = after.split_at(outputs);
            for (values, shape) in [(weights, (inputs, outputs)), (bias, (1, outputs))] {
                let tensor = tensor(values, shape)?;
                out.push(if trained {
                    Var::from_tensor(&tensor)?.into_inner()
                } else {
                    tensor
                });
            }
            rest = after;
        }
        Ok(out)
    }

    fn train(&mut self, rows: Rows<'_>, labels: &[u16], prg: &mut Prg) -> Result<()> {
        let mut order: Vec<usize> = (0..labels.len()).collect();
        let mut moments = [
            vec![0.0f32; self.params.len()],
            vec![0.0; self.params.len()],
        ];
        let mut powers = [1.0f32; 2];
        let classes = self.settings.classes;
        for _ in 0..self.settings.epochs {
            prg.shuffle(&mut order);
            for batch in order.chunks(BATCH) {
                let values: Vec<f32> = batch
                    .iter()
                    .flat_map(|row| rows.row(*row))
                    .copied()
                    .collect();
                let inputs = tensor(&values, (batch.len(), rows.dim))?;
                let mut targets = vec![0.0; batch.len() * classes];
                for (target, row) in targets.chunks_exact_mut(classes).zip(batch) {
                    target[usize::from(labels[*row])] = 1.0 / batch.len() as f32;
                }
                let targets = tensor(&targets, (batch.len(), classes))?;
                let weights = self.tensors(&self.params, true)?;
                let mut out = outputs(&weights, &inputs, self.settings.layers + 1)?;
                let Some(logits) = out.pop() else { continue };
                let loss = (log_softmax(&logits)? * targets)?.sum_all()?.neg()?;
                let gradients = loss.backward()?;
                let mut slopes = Vec::with_capacity(self.params.len());
                for weights in &weights {
                    match gradients.get(weights) {
                        Some(slope) => slopes.extend(slope.flatten_all()?.to_vec1::<f32>()?),
                        None => slopes.resize(slopes.len() + weights.elem_count(), 0.0),
                    }
                }
                for (power, decay) in powers.iter_mut().zip(DECAYS) {
                    *power *= decay;
                }
                let [first, second] = &mut moments;
                let moments = first.iter_mut().zip(second.iter_mut());
                let params = self.params.iter_mut().zip(slopes);
                for ((param, slope), (mean, square)) in params.zip(moments) {
                    let slope = slope + WEIGHT_DECAY * *param;
                    *mean = DECAYS[0] * *mean + (1.0 - DECAYS[0]) * slope;
                    *square = DECAYS[1] * *square + (1.0 - DECAYS[1]) * slope * slope;
                    let (mean, square) = (*mean / (1.0 - powers[0]), *square / (1.0 - powers[1]));
                    *param -= RATE * mean / (square.sqrt() + EPSILON);
                }
            }
        }
        Ok(())
    }

    fn values(&self, rows: Rows<'_>, layer: usize) -> Result<Tensor> {
        let weights = self.tensors(&self.params, false)?;
        let inputs = tensor(rows.values, (rows.len(), rows.dim))?;
        let mut out = outputs(&weights, &inputs, layer)?;
        out.pop().map_or(Ok(inputs), Ok)
    }

    /// The class probabilities of rows: rows × classes.
    ///
    /// # Errors
    /// [`ModelError`] when the rows have another length, or a value is not finite.
    pub fn probabilities(&self, rows: Rows<'_>) -> std::result::Result<Vec<f32>, ModelError> {
        self.check(rows)?;
        if rows.is_empty() {
            return Ok(Vec::new());
        }
        let logits = self.values(rows, self.settings.layers + 1);
        let shares = logits.and_then(|logits| log_softmax(&logits)?.exp());
        let shares = shares.and_then(|shares| shares.flatten_all()?.to_vec1());
        shares.map_err(candle)
    }

    /// The values of hidden layer `layer`, from 1, after the ReLU: rows ×
    /// [units](LocalSettings::units).
    ///
    /// # Errors
    /// [`ModelError`] when there is no such layer, the rows have another length, or a value is not
    /// finite.
    pub fn embeddings(
        &self,
        rows: Rows<'_>,
        layer: usize,
    ) -> std::result::Result<Vec<f32>, ModelError> {
        self.check(rows)?;
        if !(1..=self.settings.layers).contains(&layer) {
            return Err(ModelError(format!(
                "layer {layer}: the network has layers 1 to {}",
                self.settings.layers
            )));
        }
        if rows.is_empty() {
            return Ok(Vec::new());
        }
        let values = self.values(rows, layer);
        values
            .and_then(|values| values.flatten_all()?.to_vec1())
            .map_err(candle)
    }

    /// The privacy scores of all layers (Section 3.1 of the paper): how far the rows can move while
    /// the embedding stays, also if the weights move a little. Ascent on the rows takes turns with
    /// descent on the weights. The score is a heuristic, and promises nothing.
    ///
    /// # Errors
    /// [`ModelError`] when the rows have another length, there are none, or a value is not finite.
    pub fn depth(&self, rows: Rows<'_>, seed: &Seed) -> std::result::Result<Depth, ModelError> {
        self.check(rows)?;
        if rows.is_empty() {
            return Err(ModelError("the privacy score needs a row".into()));
        }
        let count = rows.len().min(SCORED);
        let rows = Rows {
            values: &rows.values[..count * rows.dim],
            dim: rows.dim,
        };
        let scores = (1..=self.settings.layers).map(|layer| {
            let seed = seed.derive(SessionId([0; 32]), "privacy score", &[layer as u32]);
            self.score(rows, layer, &mut seed.prg()).map_err(candle)
        });
        let scores = scores.collect::<std::result::Result<Vec<f64>, ModelError>>()?;
        let falls = scores.windows(2).position(|pair| pair[1] < pair[0]);
        Ok(Depth {
            chosen: falls.map_or(scores.len(), |layer| layer + 1),
            scores,
        })
    }

    fn score(&self, rows: Rows<'_>, layer: usize, prg: &mut Prg) -> Result<f64> {
        let shape = (rows.len(), rows.dim);
        let inputs = tensor(rows.values, shape)?;
        let due = self.values(rows, layer)?;
        let laplace = |_| {
            let draw = prg.unit() - 0.5;
            let size = -libm::log(1.0 - 2.0 * draw.abs() + f64::MIN_POSITIVE);
            START * (size.copysign(draw) as f32)
        };
        let mut change: Vec<f32> = (0..rows.values.len()).map(laplace).collect();
        let mut params = self.params.clone();
        let clip = |slope: f32, most: f32| slope.clamp(-most, most);
        let cells = rows.values.len() as f64;
        for _ in 0..ITERATIONS {
            for is_ascent in [true, false] {
                let moved = Var::from_tensor(&tensor(&change, shape)?)?;
                let weights = self.tensors(&params, !is_ascent)?;
                let mut out = outputs(&weights, &(&inputs + moved.as_tensor())?, layer)?;
                let Some(embedded) = out.pop() else { continue };
                let kept = (embedded - &due)?.sqr()?.sum(D::Minus1)?.sum_all()?;
                if is_ascent {
                    let goal = (moved.sqr()?.sum_all()? - (kept * STRICTNESS)?)?;
                    let gradients = goal.backward()?;
                    if let Some(slope) = gradients.get(moved.as_tensor()) {
                        let slopes = slope.flatten_all()?.to_vec1::<f32>()?;
                        let pairs = change.iter_mut().zip(slopes);
                        pairs.for_each(|(value, slope)| *value += clip(slope, MOST[0]));
                    }
                } else {
                    let gradients = kept.backward()?;
                    let mut at = 0;
                    for weights in &weights {
                        if let Some(slope) = gradients.get(weights) {
                            let slopes = slope.flatten_all()?.to_vec1::<f32>()?;
                            let pairs = params[at..].iter_mut().zip(slopes);
                            pairs.for_each(|(value, slope)| *value -= clip(slope, MOST[1]));
                        }
                        at += weights.elem_count();
                    }
                }
            }
        }
        let squares: f64 = change.iter().map(|value| f64::from(*value).powi(2)).sum();
        Ok(squares / cells)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(count: usize) -> (Vec<f32>, Vec<u16>) {
        let mut prg = Seed::from_bytes([4; 32]).prg();
        let mut values = Vec::new();
        let labels = (0..count).map(|row| (row % 3) as u16).collect::<Vec<_>>();
        for label in &labels {
            for feature in 0..4 {
                let centre = if feature == usize::from(*label) {
                    1.0
                } else {
                    0.0
                };
                values.push(centre + 0.4 * (prg.unit() as f32 - 0.5));
            }
        }
        (values, labels)
    }

    #[test]
    fn it_learns_and_its_layers_are_embeddings() {
        let (values, labels) = rows(200);
        let rows = Rows {
            values: &values,
            dim: 4,
        };
        let settings = LocalSettings {
            width: 16,
            epochs: 30,
            ..LocalSettings::new(3)
        };
        let seed = Seed::from_bytes([1; 32]);
        let local = Local::fit(rows, &labels, settings, &seed).unwrap();
        let shares = local.probabilities(rows).unwrap();
        let right = shares
            .chunks_exact(3)
            .zip(&labels)
            .filter(|(shares, label)| {
                let most = shares.iter().copied().fold(0.0, f32::max);
                shares[usize::from(**label)] == most
            });
        assert!(right.count() > 190);
        for layer in 1..=3 {
            let values = local.embeddings(rows, layer).unwrap();
            assert_eq!(values.len(), 200 * settings.units(layer));
            assert_eq!(settings.units(layer), 16 << (3 - layer));
            assert!(values.iter().all(|value| *value >= 0.0));
        }
        assert!(
            local
                .embeddings(rows, 4)
                .unwrap_err()
                .0
                .contains("layers 1 to 3")
        );
        let again = Local::fit(rows, &labels, settings, &seed).unwrap();
        assert_eq!(again.probabilities(rows).unwrap(), shares);

        let depth = local.depth(rows, &seed).unwrap();
        assert_eq!(depth.scores.len(), 3);
        assert!((1..=3).contains(&depth.chosen));
        assert!(
            depth
                .scores
                .iter()
                .all(|score| score.is_finite() && *score > 0.0)
        );
        assert_eq!(local.depth(rows, &seed).unwrap(), depth);
    }

    #[test]
    fn wrong_inputs_are_refused() {
        let (values, labels) = rows(20);
        let rows = Rows {
            values: &values,
            dim: 4,
        };
        let seed = Seed::from_bytes([1; 32]);
        let fit = |labels: &[u16], settings| Local::fit(rows, labels, settings, &seed);
        let settings = LocalSettings::new(3);
        assert!(fit(&labels[1..], settings).is_err());
        assert!(fit(&labels, LocalSettings::new(2)).is_err());
        assert!(
            fit(
                &labels,
                LocalSettings {
                    width: 0,
                    ..settings
                }
            )
            .is_err()
        );
        let mut broken = values.clone();
        broken[5] = f32::NAN;
        let rows = Rows {
            values: &broken,
            dim: 4,
        };
        let error = Local::fit(rows, &labels, settings, &seed).unwrap_err();
        assert!(error.0.contains("row 1, value 1"), "{error:?}");
    }
}
