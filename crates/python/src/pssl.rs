//! A graph between pairs of clients: all parties in one process, or one party.

use std::sync::Arc;

use numpy::ndarray::Array2;
use numpy::{IntoPyArray, PyArray1, PyArray2, PyReadonlyArray2};
use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use undertone::party::Network;
use undertone::pssl::{Client, Data, Job, Outcome, Report, Server, quantise, simulation};

use crate::arrays::{self, contiguous};
use crate::client::{self, Brought, Callbacks, PyClient};
use crate::costs::{Spent, spent};
use crate::errors::{aborted, number, numbers, simulation as failed, value};
use crate::interrupt;
use crate::options::{self, Stated};
use crate::pool;
use crate::record::{self, PyRecord};
use crate::server::{self, PyServer};

fn data(features: &Bound<'_, PyAny>, labels: &Bound<'_, PyAny>) -> PyResult<Data> {
    let rows: PyReadonlyArray2<'_, u8> = features.extract()?;
    let labels = arrays::labels(labels)?;
    let features = rows.as_array().ncols();
    Data::new(features, contiguous(&rows)?.to_vec(), labels).map_err(value)
}

/// What a client has: labels int64 of shape [rows], scores float64 of shape [rows, classes], for
/// each other client its number, rows and weights of the edges, and the contributors.
type Had<'py> = (
    Bound<'py, PyArray1<i64>>,
    Bound<'py, PyArray2<f64>>,
    Vec<Edges<'py>>,
    Vec<i64>,
);

type Edges<'py> = (i64, Bound<'py, PyArray1<i64>>, Bound<'py, PyArray1<f64>>);

fn had(py: Python<'_>, outcome: Outcome) -> PyResult<Had<'_>> {
    let labels = outcome.labels.iter();
    let labels: Vec<i64> = labels.map(|label| label.map_or(-1, i64::from)).collect();
    let classes = outcome.scores.len() / labels.len().max(1);
    let shape = (labels.len(), classes);
    let scores = Array2::from_shape_vec(shape, outcome.scores).map_err(value)?;
    let edges = outcome.edges.iter().map(|(peer, edges)| {
        let rows: Vec<i64> = edges.iter().map(|edge| edge.row as i64).collect();
        let weights: Vec<f64> = edges.iter().map(|edge| edge.weight).collect();
        (
            number(*peer),
            rows.into_pyarray(py),
            weights.into_pyarray(py),
        )
    });
    Ok((
        labels.into_pyarray(py),
        scores.into_pyarray(py),
        edges.collect(),
        numbers(&outcome.contributors),
    ))
}

/// What the server has: each client and its number of rows, contributors, suspects.
type Learned = (Vec<(i64, usize)>, Vec<i64>, Vec<i64>);

fn learned(report: &Report) -> Learned {
    let clients = report
        .clients
        .iter()
        .map(|(who, rows)| (number(*who), *rows));
    (
        clients.collect(),
        numbers(&report.contributors),
        numbers(&report.suspects),
    )
}

/// All parties in this process.
#[pyfunction]
pub(crate) fn pssl<'py>(
    py: Python<'py>,
    rules: Stated,
    features: Vec<Bound<'py, PyAny>>,
    labels: Vec<Bound<'py, PyAny>>,
    seed: Option<[u8; 32]>,
    progress: Option<Py<PyAny>>,
) -> PyResult<(Vec<Had<'py>>, Learned, Spent)> {
    pool::ready()?;
    let job = rules.job::<Job>()?;
    let clients = features.iter().zip(&labels);
    let clients: PyResult<Vec<_>> = clients.map(|(x, y)| data(x, y).map(Arc::new)).collect();
    let (clients, seed) = (clients?, options::seed(seed)?);
    let run = interrupt::run(py, progress, |tell| {
        let network = Network::new().observe(interrupt::observer(tell));
        simulation(job, clients, seed)
            .and_then(|mut simulation| simulation.run(network))
            .map_err(failed)
    })?;
    let clients = run.clients.into_iter().map(|outcome| {
        let outcome = outcome.map_err(|error| aborted(&error))?;
        had(py, outcome)
    });
    Ok((
        clients.collect::<PyResult<_>>()?,
        learned(&run.report),
        spent(&run.ledgers),
    ))
}

/// A client. `features` are as in a file: the job says how they become bytes.
#[pyfunction]
pub(crate) fn pssl_client(
    terms: Stated,
    features: &Bound<'_, PyAny>,
    labels: &Bound<'_, PyAny>,
    columns: Vec<String>,
    record: Option<&Bound<'_, PyRecord>>,
) -> PyResult<PyClient> {
    let rows = arrays::features(features)?;
    let labels = arrays::labels(labels)?;
    let digests: Vec<_> = record::digests(rows.values(), rows.dim()).collect();
    let mut given = Some((rows, labels));
    let make = move |job: &Job| {
        let (rows, labels) = given.as_ref().ok_or("the rows are in use")?;
        let values = quantise(rows.values(), job.range, job.scale);
        let values = values.map_err(|error| error.to_string())?;
        let data = Data::new(rows.dim(), values, labels.clone());
        let data = data.map_err(|error| error.to_string())?;
        data.check(job).map_err(|error| error.to_string())?;
        given = None;
        Ok(data)
    };
    let convert = |py: Python<'_>, outcome: Outcome| had(py, outcome)?.into_py_any(py);
    let brought = Brought {
        part: Client::new(terms.terms()?, make),
        bring: client::bring(digests, None),
        callbacks: Callbacks::default(),
        convert: Arc::new(convert),
    };
    PyClient::new(brought, columns, record)
}

/// The server.
#[pyfunction]
pub(crate) fn pssl_server(rules: Stated) -> PyResult<PyServer> {
    let convert = |py: Python<'_>, report: Report| learned(&report).into_py_any(py);
    let server = Server::new(rules.job::<Job>()?);
    Ok(PyServer::new(server, Arc::new(convert), server::nothing))
}
