//! A model in Python, and its batches.

use numpy::{IntoPyArray, PyArray1, PyReadonlyArray1, PyReadonlyArray2};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use undertone::kdf::Seed;
use undertone::train::{self, Embeddings, Examples, Model, ModelError, Rows, Target};
use zeroize::Zeroizing;

use crate::arrays::{Matrix, contiguous};
use crate::client::Object;
use crate::errors::value;

/// A model in Python: the object that `_train.py` puts around the caller's.
pub(crate) struct PyModel(pub(crate) Object);

impl PyModel {
    /// Calls the model. Its exception stays in this process: peers learn only that it failed.
    fn call<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Bound<'_, PyAny>) -> PyResult<T> + Send + 'static,
    ) -> Result<T, ModelError> {
        let called = self.0.call(work);
        called.map_err(|_| ModelError("it raised an exception".into()))
    }
}

/// Targets as arrays: rows int64, classes int64, weights float32.
type Targets<'py> = (
    Bound<'py, PyArray1<i64>>,
    Bound<'py, PyArray1<i64>>,
    Bound<'py, PyArray1<f32>>,
);

fn targets(py: Python<'_>, targets: Vec<Target>) -> Targets<'_> {
    let rows: Vec<i64> = targets.iter().map(|target| target.row as i64).collect();
    let classes: Vec<i64> = targets.iter().map(|target| target.class.into()).collect();
    let weights: Vec<f32> = targets.iter().map(|target| target.weight).collect();
    (
        rows.into_pyarray(py),
        classes.into_pyarray(py),
        weights.into_pyarray(py),
    )
}

/// The inverse of [`targets`].
#[derive(FromPyObject)]
pub(crate) struct TargetArrays<'py>(
    PyReadonlyArray1<'py, i64>,
    PyReadonlyArray1<'py, i64>,
    PyReadonlyArray1<'py, f32>,
);

impl TargetArrays<'_> {
    fn read(&self) -> PyResult<Vec<Target>> {
        let (rows, classes, weights) = (self.0.as_array(), self.1.as_array(), self.2.as_array());
        if rows.len() != classes.len() || rows.len() != weights.len() {
            return Err(value(format!(
                "targets have {} rows, {} classes and {} weights",
                rows.len(),
                classes.len(),
                weights.len()
            )));
        }
        let target = |((row, class), weight): ((&i64, &i64), &f32)| {
            let target = Target {
                row: usize::try_from(*row).ok()?,
                class: u16::try_from(*class).ok()?,
                weight: *weight,
            };
            Some(target)
        };
        let targets = rows.iter().zip(classes).zip(weights).map(target);
        let targets: Option<_> = targets.collect();
        targets.ok_or_else(|| value("a target has a row below 0, or no class from 0 to 65535"))
    }
}

impl Model for PyModel {
    fn params(&self) -> Vec<f32> {
        let params = self.call(|model| {
            let params: PyReadonlyArray1<'_, f32> = model.call_method0("params")?.extract()?;
            Ok(contiguous(&params)?.to_vec())
        });
        // Of the wrong number, so that the engine stops.
        params.unwrap_or_default()
    }

    fn set_params(&mut self, params: &[f32]) -> Result<(), ModelError> {
        let params = params.to_vec();
        self.call(|model| {
            let params = params.into_pyarray(model.py());
            model.call_method1("set_params", (params,)).map(drop)
        })
    }

    fn embed(&mut self, rows: Rows<'_>) -> Result<Embeddings, ModelError> {
        let rows = Matrix::from(rows);
        self.call(|model| {
            let rows = rows.array(model.py())?;
            let embeddings: PyReadonlyArray2<'_, f32> =
                model.call_method1("embed", (rows,))?.extract()?;
            Ok(Embeddings {
                dim: embeddings.as_array().ncols(),
                values: contiguous(&embeddings)?.to_vec(),
            })
        })
    }

    fn predict(&mut self, rows: Rows<'_>) -> Result<Vec<f32>, ModelError> {
        let rows = Matrix::from(rows);
        self.call(|model| {
            let rows = rows.array(model.py())?;
            let predicted: PyReadonlyArray2<'_, f32> =
                model.call_method1("predict", (rows,))?.extract()?;
            Ok(contiguous(&predicted)?.to_vec())
        })
    }

    fn update(
        &mut self,
        examples: &Examples<'_>,
        schedule: &train::Schedule,
    ) -> Result<(), ModelError> {
        let rows = Matrix::from(examples.rows);
        let (labelled, pseudo) = (examples.labelled.to_vec(), examples.pseudo.to_vec());
        let sizes = (schedule.epochs, schedule.labelled, schedule.pseudo);
        let rates = (
            schedule.learning_rate,
            schedule.weight_decay,
            schedule.consistency,
        );
        let seed = Zeroizing::new(*schedule.seed.expose());
        self.call(move |model| {
            let py = model.py();
            let arguments = (
                rows.array(py)?,
                targets(py, labelled),
                targets(py, pseudo),
                sizes,
                rates,
                PyBytes::new(py, &*seed),
            );
            model.call_method1("update", arguments).map(drop)
        })
    }
}

/// The batches of an update: an iterator of rows, classes and weights.
#[pyclass(module = "undertone._engine")]
pub(crate) struct Batches(train::Batches<'static>);

#[pymethods]
impl Batches {
    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__<'py>(&mut self, py: Python<'py>) -> Option<Targets<'py>> {
        self.0.next().map(|batch| targets(py, batch))
    }
}

/// The batches of targets. `sizes` are epochs, and the labelled and other rows of a batch.
#[pyfunction]
pub(crate) fn batches(
    labelled: TargetArrays<'_>,
    pseudo: TargetArrays<'_>,
    sizes: (usize, usize, usize),
    seed: [u8; 32],
) -> PyResult<Batches> {
    let (labelled, pseudo) = (labelled.read()?, pseudo.read()?);
    let schedule = train::Schedule {
        epochs: sizes.0,
        labelled: sizes.1,
        pseudo: sizes.2,
        learning_rate: 0.0,
        weight_decay: 0.0,
        consistency: 0.0,
        seed: Seed::from_bytes(seed),
    };
    let batches = train::Batches::of(labelled.into(), pseudo.into(), &schedule);
    Ok(Batches(batches))
}
