//! Rounds of sums or weighted means.

use std::sync::{Arc, Mutex, PoisonError};

use numpy::{IntoPyArray, PyArrayDyn, PyArrayMethods, PyUntypedArrayMethods};
use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use undertone::arrays::{Arrays, Values};
use undertone::rounds::{Client, Contribution, Job, Mean, Report, Round, Server, Source, Step};

use crate::arrays::contiguous;
use crate::client::{Brought, Callbacks, Object, PyClient};
use crate::errors::{self, value};
use crate::options::Stated;
use crate::record::PyRecord;
use crate::server::{self, PyServer};

fn to_dict<'py>(py: Python<'py>, arrays: &Arrays) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    for array in arrays.iter() {
        let values = match array.values() {
            Values::Single(values) => values.to_vec().into_pyarray(py).into_any(),
            Values::Double(values) => values.to_vec().into_pyarray(py).into_any(),
        };
        let shaped = values.call_method1("reshape", (array.shape().to_vec(),))?;
        dict.set_item(array.name(), shaped)?;
    }
    Ok(dict)
}

/// The Python layer has made these arrays float32 or float64, row after row.
fn from_dict(dict: &Bound<'_, PyDict>) -> PyResult<Arrays> {
    let mut arrays = Arrays::new();
    for (name, array) in dict.iter() {
        let name: String = name.extract()?;
        let pushed = if let Ok(array) = array.cast::<PyArrayDyn<f32>>() {
            let array = array.try_readonly().map_err(value)?;
            arrays.push(name, array.shape().to_vec(), contiguous(&array)?.to_vec())
        } else if let Ok(array) = array.cast::<PyArrayDyn<f64>>() {
            let array = array.try_readonly().map_err(value)?;
            arrays.push(name, array.shape().to_vec(), contiguous(&array)?.to_vec())
        } else {
            return Err(value(format!(
                "array {name}: a float32 or float64 array of numpy is needed"
            )));
        };
        pushed.map_err(value)?;
    }
    Ok(arrays)
}

/// A mean: its round, arrays by name, the total weight and the contributors.
fn mean<'py>(py: Python<'py>, mean: &Mean) -> PyResult<Bound<'py, PyAny>> {
    let who = errors::numbers(&mean.contributors);
    (mean.round, to_dict(py, &mean.arrays)?, mean.weight, who).into_bound_py_any(py)
}

/// Python functions that give a client's arrays for each round, and take means.
struct Functions {
    contribute: Object,
    mean: Option<Object>,
    last: Arc<Mutex<Option<Arc<Mean>>>>,
}

impl Source for Functions {
    fn contribute(&mut self, round: &Round) -> Result<Contribution, String> {
        let round = round.clone();
        let asked = self.contribute.call(move |contribute| {
            let mean = round.mean.as_ref();
            let mean = mean.map(|mean| to_dict(contribute.py(), &mean.arrays));
            let given = contribute.call1((round.number, round.attempt, mean.transpose()?))?;
            let (arrays, weight): (Bound<'_, PyDict>, f64) = given.extract()?;
            let arrays = from_dict(&arrays)?;
            Ok(Contribution { arrays, weight })
        });
        // Peers are told that this client leaves, and not why.
        asked.map_err(|error| format!("the function contribute failed: {error}"))
    }

    fn mean(&mut self, given: &Arc<Mean>) -> Result<(), String> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        *last = Some(Arc::clone(given));
        drop(last);
        let Some(function) = &self.mean else {
            return Ok(());
        };
        let given = Arc::clone(given);
        let told = function.call(move |function| {
            let given = mean(function.py(), &given)?;
            function.call1(given.extract::<Bound<'_, pyo3::types::PyTuple>>()?)?;
            Ok(())
        });
        told.map_err(|error| format!("the function mean failed: {error}"))
    }

    fn coarse(&mut self, warning: &str) {
        errors::warn(&format!("the mean shows little of {warning}"));
    }
}

/// A client whose arrays `contribute` gives in each round, and whose means go to `taken`.
#[pyfunction]
pub(crate) fn rounds_client(
    terms: Stated,
    contribute: Py<PyAny>,
    taken: Option<Py<PyAny>>,
    record: Option<&Bound<'_, PyRecord>>,
) -> PyResult<PyClient> {
    let callbacks = Callbacks::default();
    let last = Arc::<Mutex<Option<Arc<Mean>>>>::default();
    let functions = Functions {
        contribute: Object::new(contribute, &callbacks),
        mean: taken.map(|taken| Object::new(taken, &callbacks)),
        last: Arc::clone(&last),
    };
    let convert = move |py: Python<'_>, _: Step| {
        let last = last.lock().unwrap_or_else(PoisonError::into_inner).clone();
        match last {
            Some(last) => Ok(mean(py, &last)?.unbind()),
            None => Ok(py.None()),
        }
    };
    let brought = Brought {
        part: Client::new(terms.terms()?, functions),
        // Its values are known by what is sent.
        bring: Box::new(|part, _| Ok(part)),
        callbacks,
        convert: Arc::new(convert),
    };
    PyClient::new(brought, Vec::new(), record)
}

/// The server of rounds.
#[pyfunction]
pub(crate) fn rounds_server(rules: Stated) -> PyResult<PyServer> {
    let convert = |py: Python<'_>, report: Report| match report {
        Report::Finished(finished) => Ok(mean(py, &finished)?.unbind()),
        _ => Ok(py.None()),
    };
    let look = server::nothing::<Server>;
    Ok(PyServer::new(
        Server::new(rules.job::<Job>()?),
        Arc::new(convert),
        look,
    ))
}
