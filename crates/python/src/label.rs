//! Label propagation: all parties in one process, or one party.

use std::sync::Arc;

use numpy::ndarray::Array2;
use numpy::{IntoPyArray, PyArray1, PyArray2};
use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use undertone::data::parts;
use undertone::job::simulation::SimulationError;
use undertone::kdf::Seed;
use undertone::label::{
    Client, Ended, Gained, Job, LabelNoise, Outcome, Report, RunError, Server, run,
};

use crate::arrays;
use crate::client::{self, Brought, Callbacks, PyClient};
use crate::costs::{Spent, spent};
use crate::errors::{self, numbers, simulation, value};
use crate::interrupt;
use crate::options;
use crate::pool;
use crate::record::PyRecord;
use crate::server::{self, PyServer};
use crate::table::{self, Stated as Named};

/// Labels int64 of shape [n], confidences float64 of shape [n], and scores float64 of shape
/// [unlabelled rows, classes].
type Labelled<'py> = (
    Bound<'py, PyArray1<i64>>,
    Bound<'py, PyArray1<f64>>,
    Bound<'py, PyArray2<f64>>,
);

pub(crate) fn labelled(py: Python<'_>, outcome: Outcome) -> PyResult<Labelled<'_>> {
    if let Some(warning) = &outcome.warning {
        errors::warn(warning);
    }
    let classes = outcome.labels.classes().iter();
    let classes: Vec<i64> = classes.map(|class| class.map_or(-1, i64::from)).collect();
    let shape = (outcome.scores.rows(), outcome.scores.classes());
    let scores = outcome.scores.iter().flatten().copied().collect();
    Ok((
        classes.into_pyarray(py),
        outcome.labels.confidences().to_vec().into_pyarray(py),
        Array2::from_shape_vec(shape, scores)
            .map_err(value)?
            .into_pyarray(py),
    ))
}

/// What the server has learned: clients, contributors, how scores were solved for, and of each row
/// its neighbours: their numbers (int64, -1 where there are fewer) and distances (int64).
type Learned<'py> = (
    Vec<i64>,
    Vec<i64>,
    String,
    Bound<'py, PyArray2<i64>>,
    Bound<'py, PyArray2<i64>>,
);

fn learned<'py>(py: Python<'py>, report: &Report) -> Learned<'py> {
    if let Some(warning) = &report.warning {
        errors::warn(warning);
    }
    let near = &report.distances;
    let shape = (near.rows(), near.k());
    let mut ids = Array2::from_elem(shape, -1_i64);
    let mut distances = Array2::from_elem(shape, -1_i64);
    for row in 0..near.rows() {
        for (place, (distance, id)) in near.nearest(row).enumerate() {
            ids[(row, place)] = id as i64;
            distances[(row, place)] = distance.into();
        }
    }
    (
        numbers(&report.clients),
        numbers(&report.contributors),
        format!("{:?}", report.method).to_lowercase(),
        ids.into_pyarray(py),
        distances.into_pyarray(py),
    )
}

/// The labels of all rows of all clients, with all parties in this process, and the names of the
/// classes. `columns` are the names of each client's features, or empty.
#[pyfunction]
#[pyo3(signature = (
    rules, features, labels, columns, classes, label_epsilon, seed, progress
))]
#[allow(clippy::too_many_arguments)]
#[allow(clippy::type_complexity)]
pub(crate) fn label<'py>(
    py: Python<'py>,
    rules: options::Stated,
    features: Vec<Bound<'py, PyAny>>,
    labels: Vec<Bound<'py, PyAny>>,
    columns: Vec<Vec<String>>,
    classes: Option<Named>,
    label_epsilon: Option<f64>,
    seed: Option<[u8; 32]>,
    progress: Option<Py<PyAny>>,
) -> PyResult<(Vec<Labelled<'py>>, Learned<'py>, Spent, Vec<String>)> {
    pool::ready()?;
    let job = rules.job::<Job>()?;
    let classes = classes.map(Named::classes).transpose()?;
    let mut parts = Vec::with_capacity(features.len());
    let brought = features.iter().zip(&labels).zip(columns).enumerate();
    for (client, ((features, labels), columns)) in brought {
        let rows = arrays::rows(features, job.params.bits);
        let rows = rows.map_err(|error| errors::of_client(py, client, error))?;
        let name = format!("client {client}");
        parts.push(table::part(name, rows, labels, columns, classes.as_ref())?);
    }
    let classes = parts::agree(&mut parts).map_err(value)?;
    let mut clients = Vec::with_capacity(parts.len());
    for part in parts {
        let labelling = part.labelling(&classes).map_err(value)?;
        clients.push((part.data.rows, labelling));
    }
    let seed = options::seed(seed)?;
    let run = interrupt::run(py, progress, |tell| {
        let observer = interrupt::observer(tell);
        let run = run(job, clients, label_epsilon, seed, observer);
        let mut run = run.map_err(|error| match error {
            RunError::Simulation(error @ SimulationError::Declined { .. }) => value(error),
            RunError::Simulation(error) => simulation(error),
            error => value(error),
        })?;
        let before = run.scaling.iter().flat_map(|scaling| &scaling.ledgers);
        for ((_, ledger), (_, before)) in run.ledgers.iter_mut().zip(before) {
            ledger.add(before);
        }
        Ok(run)
    })?;
    let mut all = Vec::with_capacity(run.clients.len());
    for outcome in run.clients {
        all.push(labelled(py, outcome)?);
    }
    let learned = learned(py, &run.report);
    Ok((all, learned, spent(&run.ledgers), classes.names))
}

/// A client. `columns` are the names of features, or empty. Without `classes` it takes the number
/// that the job states.
#[pyfunction]
#[allow(clippy::too_many_arguments)]
pub(crate) fn label_client(
    terms: options::Stated,
    features: &Bound<'_, PyAny>,
    labels: &Bound<'_, PyAny>,
    columns: Vec<String>,
    bits: Option<usize>,
    classes: Option<Named>,
    noise: Option<(f64, [u8; 32])>,
    record: Option<&Bound<'_, PyRecord>>,
) -> PyResult<PyClient> {
    let rows = arrays::rows(features, bits.unwrap_or(0))?;
    let is_stated = classes.is_some();
    let own = table::labelling(&rows, labels, columns.clone(), classes)?;
    let digests = rows.digests();
    let mut client = Client::new(terms.terms()?, rows, own);
    let mut secret = None;
    match noise {
        Some(_) if !is_stated => {
            return Err(value(
                "with noise on labels, classes must be given: their number must follow neither \
                 from the labels nor from the job",
            ));
        }
        Some((epsilon, bytes)) => {
            secret = Some(Seed::from_bytes(bytes));
            let noise = LabelNoise::new(epsilon, Seed::from_bytes(bytes)).map_err(value)?;
            client = client.with_label_noise(noise);
        }
        None if !is_stated => client = client.with_classes_of_the_job(),
        None => {}
    }
    let convert = |py: Python<'_>, gained: Gained| match gained.outcome() {
        Some(outcome) => labelled(py, outcome)?.into_py_any(py),
        None => Ok(py.None()),
    };
    let brought = Brought {
        part: client,
        bring: client::bring(digests, secret),
        callbacks: Callbacks::default(),
        convert: Arc::new(convert),
    };
    PyClient::new(brought, columns, record)
}

/// The server.
#[pyfunction]
pub(crate) fn label_server(rules: options::Stated) -> PyResult<PyServer> {
    let convert = |py: Python<'_>, ended: Ended| match ended {
        Ended::Labelled(report) => learned(py, &report).into_py_any(py),
        _ => Ok(py.None()),
    };
    let server = Server::new(rules.job::<Job>()?);
    Ok(PyServer::new(server, Arc::new(convert), server::nothing))
}
