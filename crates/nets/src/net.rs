//! A network with its parameters, and how it trains.

use std::fmt;

use candle_core::{Device, Tensor};
use undertone_kdf::Seed;
use undertone_kernel::Prg;
use undertone_party::SessionId;
use undertone_train::{Embeddings, Examples, Model, ModelError, Rows, Schedule, Target};

use crate::augment;
use crate::graph::{Goal, Graph, Outputs, log_softmax};
use crate::kind::{EMBEDDING, Kind, Layer, exported, imported, initial};

/// The decay of a mean teacher in each step: its new parameters are 0.97 of its own and 0.03 of the
/// student's.
pub const TEACHER_DECAY: f32 = 0.97;

/// The standard deviation of the noise that augments feature rows. It suits standardised features.
pub const NOISE: f32 = 0.1;

/// The most rows that are embedded at once, and the most values: those of large images take memory.
const CHUNK: usize = 256;
const CHUNK_VALUES: usize = 1 << 18;

/// A network of one of the [`Kind`]s, perhaps with a mean teacher. It runs on the CPU.
///
/// # Input
/// A network takes the values of rows as they are. Standardise features, and divide the pixels of
/// images by their largest possible value, before training and before every later use.
///
/// # Training
/// [`update`](Model::update) does one step of plain stochastic gradient descent for each batch, as
/// PyTorch's `SGD` without momentum. Weight decay concerns weights and biases. Each row of a batch
/// is augmented with randomness derived from the schedule's seed:
///
/// - [`Kind::Conv`]: the image moves by −1, 0 or 1 pixels in each direction. Zeros move in.
/// - [`Kind::Mlp`]: each value gets Gaussian noise of standard deviation [`NOISE`].
///
/// # Mean teacher
/// [`with_teacher`](Self::with_teacher) adds a teacher: a moving average of the student
/// ([`TEACHER_DECAY`]). The loss of a batch gains a consistency loss, times
/// [`Schedule::consistency`]: the squared difference between the student's and the teacher's
/// probabilities, averaged over rows and classes. The two see different augmentations of the rows.
/// The gradient reaches the student only. [`predict`](Model::predict) asks the teacher.
/// [`embed`](Model::embed) asks the student, as other label propagation with a mean teacher does
/// (Iscen et al. 2019).
#[derive(Clone)]
pub struct Net {
    graph: Graph,
    layers: Vec<Layer>,
    /// The parameters, in the order inside: see [`Layer`].
    student: Vec<f32>,
    teacher: Option<Vec<f32>>,
}

impl Net {
    /// A network whose weights and biases are uniform between ±1/√n for a layer of n inputs, as
    /// PyTorch's are. They depend on `seed` alone.
    ///
    /// # Errors
    /// [`ModelError`] when a size is 0 or above 2¹⁶, or the network has more than 2²⁴ parameters.
    pub fn new(kind: Kind, seed: &Seed) -> Result<Self, ModelError> {
        kind.check()?;
        let params = initial(&kind.layers(), &mut seed.prg());
        Self::assemble(kind, &params, None)
    }

    /// A convolutional network for images of `side` × `side` pixels: see [`Kind::Conv`].
    ///
    /// # Errors
    /// Like [`new`](Self::new).
    pub fn conv(side: usize, classes: usize, seed: &Seed) -> Result<Self, ModelError> {
        Self::new(Kind::Conv { side, classes }, seed)
    }

    /// A multilayer perceptron for rows of `features` values: see [`Kind::Mlp`].
    ///
    /// # Errors
    /// Like [`new`](Self::new).
    pub fn mlp(features: usize, classes: usize, seed: &Seed) -> Result<Self, ModelError> {
        Self::new(Kind::Mlp { features, classes }, seed)
    }

    /// The network with a mean teacher, which starts as a copy of the student.
    #[must_use]
    pub fn with_teacher(mut self) -> Self {
        self.teacher = Some(self.student.clone());
        self
    }

    /// The network's architecture.
    pub fn kind(&self) -> Kind {
        self.graph.kind()
    }

    /// Whether the network has a mean teacher.
    pub fn has_teacher(&self) -> bool {
        self.teacher.is_some()
    }

    /// A network with parameters in PyTorch's order, of which the caller has checked the number.
    pub(crate) fn assemble(
        kind: Kind,
        student: &[f32],
        teacher: Option<&[f32]>,
    ) -> Result<Self, ModelError> {
        let layers = kind.layers();
        Ok(Self {
            graph: Graph::new(kind).map_err(candle)?,
            student: imported(&layers, student),
            teacher: teacher.map(|teacher| imported(&layers, teacher)),
            layers,
        })
    }

    pub(crate) fn layers(&self) -> &[Layer] {
        &self.layers
    }

    /// Refuses rows of another length than the network's, and values that are not finite.
    fn check(&self, rows: Rows<'_>) -> Result<(), ModelError> {
        let dim = self.kind().dim();
        if rows.dim != dim || !rows.values.len().is_multiple_of(dim) {
            return Err(ModelError(format!(
                "rows of {} values ({} in total): the network takes rows of {dim}",
                rows.dim,
                rows.values.len()
            )));
        }
        match rows.values.iter().position(|value| !value.is_finite()) {
            None => Ok(()),
            Some(at) => Err(ModelError(format!(
                "row {}, value {}: not a finite number",
                at / dim,
                at % dim
            ))),
        }
    }

    fn check_targets(&self, examples: &Examples<'_>) -> Result<(), ModelError> {
        for target in examples.labelled.iter().chain(examples.pseudo) {
            let fits = target.row < examples.rows.len()
                && usize::from(target.class) < self.kind().classes()
                && target.weight.is_finite()
                && target.weight >= 0.0;
            if !fits {
                return Err(ModelError(format!(
                    "target for row {}: class {} of {}, weight {}; there are {} rows",
                    target.row,
                    target.class,
                    self.kind().classes(),
                    target.weight,
                    examples.rows.len()
                )));
            }
        }
        Ok(())
    }

    /// The outputs for rows, augmented if there is a `prg`.
    fn outputs(
        &self,
        weights: &[Tensor],
        rows: Rows<'_>,
        which: impl ExactSizeIterator<Item = usize>,
        prg: Option<&mut Prg>,
    ) -> candle_core::Result<Outputs> {
        let count = which.len();
        let inputs = augment::inputs(self.kind(), rows, which, prg);
        let width = self.layers[0].inputs();
        let shape = (inputs.len() / width, width);
        let inputs = Tensor::from_vec(inputs, shape, &Device::Cpu)?;
        self.graph.outputs(weights, &inputs, count)
    }

    /// Calls `read` with the outputs for all rows, a chunk at a time.
    fn each_chunk(
        &self,
        params: &[f32],
        rows: Rows<'_>,
        mut read: impl FnMut(Outputs) -> candle_core::Result<()>,
    ) -> candle_core::Result<()> {
        let weights = Graph::tensors(&self.layers, params, false)?;
        let chunk = (CHUNK_VALUES / rows.dim).clamp(1, CHUNK);
        for start in (0..rows.len()).step_by(chunk) {
            let which = start..rows.len().min(start + chunk);
            read(self.outputs(&weights, rows, which, None)?)?;
        }
        Ok(())
    }

    /// One step of gradient descent.
    fn step(
        &mut self,
        rows: Rows<'_>,
        batch: &[Target],
        schedule: &Schedule,
        prg: &mut Prg,
    ) -> candle_core::Result<()> {
        let which = || batch.iter().map(|target| target.row);
        let weights = Graph::tensors(&self.layers, &self.student, true)?;
        let logits = self.outputs(&weights, rows, which(), Some(prg))?.logits;
        let mut teacher = None;
        if let (Some(params), true) = (&self.teacher, schedule.consistency > 0.0) {
            let weights = Graph::tensors(&self.layers, params, false)?;
            let logits = self.outputs(&weights, rows, which(), Some(prg))?.logits;
            let probabilities = log_softmax(&logits)?.exp()?;
            teacher = Some((probabilities, f64::from(schedule.consistency)));
        }
        let goal = Goal {
            targets: targets(batch, self.kind().classes())?,
            teacher,
        };
        let gradients = goal.loss(&logits)?.backward()?;

        let mut start = 0;
        for tensor in &weights {
            let count = tensor.elem_count();
            let params = &mut self.student[start..start + count];
            if let Some(gradient) = gradients.get(tensor) {
                let gradient = gradient.flatten_all()?.to_vec1::<f32>()?;
                for (param, slope) in params.iter_mut().zip(gradient) {
                    *param -= schedule.learning_rate * (slope + schedule.weight_decay * *param);
                }
            }
            start += count;
        }
        if let Some(teacher) = &mut self.teacher {
            for (mean, param) in teacher.iter_mut().zip(&self.student) {
                *mean = TEACHER_DECAY * *mean + (1.0 - TEACHER_DECAY) * *param;
            }
        }
        Ok(())
    }
}

/// The classes of a batch: see [`Goal::targets`].
fn targets(batch: &[Target], classes: usize) -> candle_core::Result<Tensor> {
    let mut values = vec![0.0; batch.len() * classes];
    for (row, target) in values.chunks_mut(classes).zip(batch) {
        row[usize::from(target.class)] = target.weight / batch.len() as f32;
    }
    Tensor::from_vec(values, (batch.len(), classes), &Device::Cpu)
}

fn candle(error: candle_core::Error) -> ModelError {
    ModelError(format!("candle: {error}"))
}

impl Model for Net {
    fn params(&self) -> Vec<f32> {
        let mut params = exported(&self.layers, &self.student);
        if let Some(teacher) = &self.teacher {
            params.extend(exported(&self.layers, teacher));
        }
        params
    }

    fn set_params(&mut self, params: &[f32]) -> Result<(), ModelError> {
        let own = self.student.len();
        let want = if self.teacher.is_some() { 2 * own } else { own };
        if params.len() != want {
            return Err(ModelError(format!(
                "{} parameters given: the network has {want}",
                params.len()
            )));
        }
        let (student, teacher) = params.split_at(own);
        self.student = imported(&self.layers, student);
        if let Some(own) = &mut self.teacher {
            *own = imported(&self.layers, teacher);
        }
        Ok(())
    }

    fn embed(&mut self, rows: Rows<'_>) -> Result<Embeddings, ModelError> {
        self.check(rows)?;
        let mut values = Vec::with_capacity(rows.len() * EMBEDDING);
        self.each_chunk(&self.student, rows, |outputs| {
            values.extend(outputs.embeddings.flatten_all()?.to_vec1::<f32>()?);
            Ok(())
        })
        .map_err(candle)?;
        Ok(Embeddings {
            dim: EMBEDDING,
            values,
        })
    }

    fn predict(&mut self, rows: Rows<'_>) -> Result<Vec<f32>, ModelError> {
        self.check(rows)?;
        let mut values = Vec::with_capacity(rows.len() * self.kind().classes());
        let params = self.teacher.as_ref().unwrap_or(&self.student);
        self.each_chunk(params, rows, |outputs| {
            let probabilities = log_softmax(&outputs.logits)?.exp()?;
            values.extend(probabilities.flatten_all()?.to_vec1::<f32>()?);
            Ok(())
        })
        .map_err(candle)?;
        Ok(values)
    }

    fn update(&mut self, examples: &Examples<'_>, schedule: &Schedule) -> Result<(), ModelError> {
        self.check(examples.rows)?;
        self.check_targets(examples)?;
        let augmentation = schedule
            .seed
            .expand(SessionId([0; 32]), "augmentation", &[]);
        let mut prg = augmentation.prg();
        for batch in schedule.batches(examples) {
            self.step(examples.rows, &batch, schedule, &mut prg)
                .map_err(candle)?;
        }
        Ok(())
    }
}

impl fmt::Debug for Net {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Net")
            .field("kind", &self.kind())
            .field("teacher", &self.has_teacher())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
