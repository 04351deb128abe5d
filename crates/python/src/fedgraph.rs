//! A graph network over clients with different features: all parties in one process, or one party.

use std::path::PathBuf;
use std::sync::Arc;

use numpy::ndarray::Array2;
use numpy::{IntoPyArray, PyArray2, PyReadonlyArray2};
use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use undertone::fedgraph::{
    Client, Graph, Inputs, Job, Matrix, Outcome, Report, Server, simulation,
};
use undertone::job::Record;
use undertone::party::Network;

use crate::arrays::{self, contiguous};
use crate::client::{self, Callbacks, Object, PyClient};
use crate::costs::{Spent, spent};
use crate::errors::{aborted, numbers, of_client, simulation as failed, value};
use crate::interrupt;
use crate::options::{self, Stated};
use crate::pool;
use crate::record::{self, PyRecord};
use crate::server::{self, PyServer};

/// What a client brings: names of features, labels int64 of shape [rows], the others float64 of
/// shape [rows, width], [queries, classes] and [queries, width].
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct Brought<'py> {
    columns: Vec<String>,
    labels: Bound<'py, PyAny>,
    embeddings: PyReadonlyArray2<'py, f64>,
    probabilities: PyReadonlyArray2<'py, f64>,
    queries: PyReadonlyArray2<'py, f64>,
}

impl Brought<'_> {
    fn inputs(self) -> PyResult<Inputs> {
        let labels = arrays::labels(&self.labels)?;
        if let Some(row) = labels.iter().position(Option::is_none) {
            return Err(value(format!(
                "row {row} has no label; give rows without a label as rows to predict"
            )));
        }
        Ok(Inputs {
            columns: self.columns,
            labels: labels.into_iter().flatten().collect(),
            embeddings: matrix(&self.embeddings)?,
            probabilities: matrix(&self.probabilities)?,
            queries: matrix(&self.queries)?,
        })
    }
}

fn matrix(array: &PyReadonlyArray2<'_, f64>) -> PyResult<Matrix> {
    let (rows, columns) = array.as_array().dim();
    let matrix = Matrix::new(rows, columns, contiguous(array)?.to_vec());
    matrix.ok_or_else(|| value("an array has another size than its shape"))
}

type Floats<'py> = Bound<'py, PyArray2<f64>>;

fn floats<'py>(py: Python<'py>, matrix: Option<Matrix>) -> PyResult<Option<Floats<'py>>> {
    let array = |matrix: Matrix| {
        let shape = (matrix.rows(), matrix.columns());
        let array = Array2::from_shape_vec(shape, matrix.values().to_vec());
        Ok(array.map_err(value)?.into_pyarray(py))
    };
    matrix.map(array).transpose()
}

/// The clients in the graph network, and the neighbours of each client.
type Drawn = (Vec<i64>, Vec<Vec<i64>>);

fn drawn(graph: &Graph) -> Drawn {
    let places = |places: &[usize]| places.iter().map(|place| *place as i64).collect();
    let members: Vec<usize> = graph.members().collect();
    let clients = 0..graph.clients();
    let neighbours = clients.map(|client| places(graph.neighbours(client)));
    (places(&members), neighbours.collect())
}

/// What a client has: votes, predictions of the graph network, the loss, and the graph.
type Had<'py> = (Option<Floats<'py>>, Option<Floats<'py>>, Option<f64>, Drawn);

fn had(py: Python<'_>, outcome: Outcome) -> PyResult<Had<'_>> {
    Ok((
        floats(py, outcome.votes)?,
        floats(py, outcome.graph)?,
        outcome.loss,
        drawn(&outcome.clients),
    ))
}

/// What the server has: clients, the graph, the number of clusters, the loss, and predictions.
type Learned<'py> = (Vec<i64>, Drawn, usize, Option<f64>, Option<Floats<'py>>);

fn learned(py: Python<'_>, report: Report) -> PyResult<Learned<'_>> {
    Ok((
        numbers(&report.clients),
        drawn(&report.graph),
        report.clusters,
        report.loss,
        floats(py, report.predicted)?,
    ))
}

/// All parties in this process.
#[pyfunction]
pub(crate) fn fedgraph<'py>(
    py: Python<'py>,
    rules: Stated,
    clients: Vec<Brought<'py>>,
    seed: Option<[u8; 32]>,
    progress: Option<Py<PyAny>>,
) -> PyResult<(Vec<Had<'py>>, Learned<'py>, Spent)> {
    pool::ready()?;
    let (job, seed) = (rules.job::<Job>()?, options::seed(seed)?);
    let each = clients.into_iter().enumerate();
    let each = each.map(|(place, own)| {
        let inputs = own.inputs().and_then(|inputs| {
            inputs.check(&job).map_err(value)?;
            Ok(Arc::new(inputs))
        });
        inputs.map_err(|error| of_client(py, place, error))
    });
    let clients = each.collect::<PyResult<Vec<_>>>()?;
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
        learned(py, run.report)?,
        spent(&run.ledgers),
    ))
}

/// A client. The record must know `rows` as they were loaded: embeddings are others after each
/// training of the own network. `voted` gets the votes.
#[pyfunction]
pub(crate) fn fedgraph_client(
    terms: Stated,
    brought: Brought<'_>,
    rows: Option<PyReadonlyArray2<'_, f64>>,
    checkpoint: Option<PathBuf>,
    voted: Py<PyAny>,
    record: Option<&Bound<'_, PyRecord>>,
) -> PyResult<PyClient> {
    let has_rows = rows.is_some();
    let loaded = rows.as_ref().unwrap_or(&brought.embeddings);
    let dim = loaded.as_array().ncols();
    let digests: Vec<_> = record::digests(contiguous(loaded)?, dim).collect();
    let inputs = Arc::new(brought.inputs()?);
    let callbacks = Callbacks::default();
    let voted = Object::new(voted, &callbacks);
    let on_votes = move |votes: &Matrix| {
        let votes = votes.clone();
        let called = voted.call(move |voted| {
            let votes = floats(voted.py(), Some(votes))?;
            voted.call1((votes,)).map(drop)
        });
        // Peers receive this text.
        called.map_err(|_| "the votes cannot be kept".to_owned())
    };
    let ready = move |part: Client, record: &Record| {
        if !has_rows && record.folder().is_some() {
            return Err(value(
                "rows is missing: the record must know the rows as they were loaded; embeddings \
                 are others after each training of the own network",
            ));
        }
        record::bring(record, digests, None)?;
        let file = checkpoint.or_else(|| Some(record.folder()?.join("fedgraph")));
        Ok(match file {
            Some(file) => part.with_checkpoint(&file),
            None => part,
        })
    };
    let convert = |py: Python<'_>, outcome: Outcome| had(py, outcome)?.into_py_any(py);
    let brought = client::Brought {
        part: Client::of(terms.terms()?, options::seed(None)?, inputs).on_votes(on_votes),
        bring: Box::new(ready),
        callbacks,
        convert: Arc::new(convert),
    };
    PyClient::new(brought, Vec::new(), record)
}

/// The server.
#[pyfunction]
pub(crate) fn fedgraph_server(rules: Stated) -> PyResult<PyServer> {
    let convert = |py: Python<'_>, report: Report| learned(py, report)?.into_py_any(py);
    let server = Server::new(rules.job::<Job>()?);
    Ok(PyServer::new(server, Arc::new(convert), server::nothing))
}
