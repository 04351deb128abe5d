//! A graph network over clients with different features: all parties in one process, or one party.

use std::sync::Arc;

use numpy::ndarray::Array2;
use numpy::{IntoPyArray, PyArray2, PyReadonlyArray2};
use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use undertone::fedgraph::{
    Checkpoint, Graph, Inputs, Job, Keep, Kept, Matrix, Outcome, Place, Report, Terms, client,
    server,
};
use undertone::job::terms;
use undertone::party::{Network, PartyId, SessionId};
use undertone::simulate::GraphSimulation;

use crate::arrays::{self, contiguous};
use crate::costs::{Spent, spent};
use crate::errors::{aborted, declined, misuse, numbers, of_client, simulation, value};
use crate::interrupt;
use crate::options::{self, Keys, Stated};
use crate::party::{PyParty, Raised};
use crate::pool;
use crate::record::{self, PyRecord};

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
    fn inputs(self, job: &Job) -> PyResult<Arc<Inputs>> {
        let labels = arrays::labels(&self.labels)?;
        if let Some(row) = labels.iter().position(Option::is_none) {
            return Err(value(format!(
                "row {row} has no label; give rows without a label as rows to predict"
            )));
        }
        let inputs = Inputs {
            columns: self.columns,
            labels: labels.into_iter().flatten().collect(),
            embeddings: matrix(&self.embeddings)?,
            probabilities: matrix(&self.probabilities)?,
            queries: matrix(&self.queries)?,
        };
        inputs.check(job).map_err(value)?;
        Ok(Arc::new(inputs))
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
        let inputs = own.inputs(&job);
        inputs.map_err(|error| of_client(py, place, error))
    });
    let clients = each.collect::<PyResult<Vec<_>>>()?;
    let run = interrupt::run(py, progress, |tell| {
        let network = Network::new().observe(|who, phase| tell(&|| format!("{phase}, {who}")));
        let run = GraphSimulation::new(job, clients, seed).run_over(network);
        run.map_err(simulation)
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

/// Functions in Python that take what a party keeps: its last two checkpoints, as bytes, and the
/// votes.
struct Keeper {
    keep: Option<Py<PyAny>>,
    voted: Option<Py<PyAny>>,
    raised: Raised,
}

impl Keeper {
    fn into_keep(self, mut saved: Vec<Checkpoint>) -> Keep {
        Box::new(move |kept| {
            let called = match kept {
                Kept::Votes(votes) => self.votes(votes),
                Kept::Checkpoint(checkpoint) => {
                    // A run that continues from the older one keeps the other anew.
                    saved.retain(|saved| saved.step() < checkpoint.step());
                    saved.insert(0, checkpoint.clone());
                    saved.truncate(2);
                    self.checkpoints(&Checkpoint::write_all(&saved))
                }
            };
            called.map_err(|error| {
                self.raised.put(error);
                // Peers receive this text.
                "the checkpoint cannot be kept".to_owned()
            })
        })
    }

    fn votes(&self, votes: &Matrix) -> PyResult<()> {
        let Some(voted) = &self.voted else {
            return Ok(());
        };
        Python::attach(|py| {
            let votes = floats(py, Some(votes.clone()))?;
            voted.call1(py, (votes,)).map(drop)
        })
    }

    fn checkpoints(&self, bytes: &[u8]) -> PyResult<()> {
        let Some(keep) = &self.keep else {
            return Ok(());
        };
        Python::attach(|py| keep.call1(py, (PyBytes::new(py, bytes),)).map(drop))
    }
}

fn read(saved: Option<&[u8]>) -> PyResult<Vec<Checkpoint>> {
    let saved = saved.map(Checkpoint::read_all).transpose();
    let saved = saved.map_err(|error| value(format!("saved: {error}")))?;
    Ok(saved.unwrap_or_default())
}

/// A client's party.
#[pyfunction]
#[allow(clippy::too_many_arguments)]
pub(crate) fn fedgraph_client(
    rules: Stated,
    session: [u8; 32],
    index: usize,
    brought: Brought<'_>,
    saved: Option<&[u8]>,
    terms: Stated,
    keep: Option<Py<PyAny>>,
    voted: Py<PyAny>,
    credentials: Option<Keys>,
    record: Option<&Bound<'_, PyRecord>>,
    rows: Option<PyReadonlyArray2<'_, f64>>,
    seed: Option<[u8; 32]>,
) -> PyResult<PyParty> {
    pool::ready()?;
    let (job, session) = (rules.job::<Job>()?, SessionId(session));
    let me = options::client(index, job.clients)?;
    let terms: Terms = terms.terms()?;
    terms::holds(&terms, &job, credentials.is_some()).map_err(declined)?;
    let record = record::given(record)?;
    if rows.is_none() && record.folder().is_some() {
        return Err(value(
            "rows is missing: the record must know the rows as they were loaded; embeddings are \
             others after each training of the own network",
        ));
    }
    let loaded = rows.as_ref().unwrap_or(&brought.embeddings);
    let digests = record::digests(contiguous(loaded)?, loaded.as_array().ncols());
    record::bring(&record, digests, None)?;
    record::know(&record, credentials.as_ref());
    let (inputs, saved) = (brought.inputs(&job)?, read(saved)?);
    let raised = Raised::default();
    let keeper = Keeper {
        keep,
        voted: Some(voted),
        raised: raised.clone(),
    };
    let place = Place {
        session,
        me,
        seed: options::seed(seed)?,
        credentials: credentials.map(|keys| keys.credentials(me)).transpose()?,
        record: record.clone(),
        min_network: terms.min_network,
        show_embeddings: terms.show_embeddings,
        keep: keeper.into_keep(saved.clone()),
        saved,
    };
    let party = client(job, inputs, place).map_err(misuse)?;
    let convert = |py: Python<'_>, outcome: Outcome| had(py, outcome)?.into_py_any(py);
    let party = PyParty::new((me, session), party, Arc::new(convert));
    Ok(party.with_callbacks(raised).with_record(record))
}

/// The server's party.
#[pyfunction]
pub(crate) fn fedgraph_server(
    rules: Stated,
    session: [u8; 32],
    saved: Option<&[u8]>,
    keep: Option<Py<PyAny>>,
    seed: Option<[u8; 32]>,
) -> PyResult<PyParty> {
    pool::ready()?;
    let (job, session) = (rules.job::<Job>()?, SessionId(session));
    let (ids, saved) = (options::all(job.clients)?, read(saved)?);
    let raised = Raised::default();
    let keeper = Keeper {
        keep,
        voted: None,
        raised: raised.clone(),
    };
    let keep = keeper.into_keep(saved.clone());
    let party = server(job, session, ids, options::seed(seed)?, saved, keep).map_err(misuse)?;
    let convert = |py: Python<'_>, report: Report| learned(py, report)?.into_py_any(py);
    let place = (PartyId::SERVER, session);
    let party = PyParty::new(place, party, Arc::new(convert));
    Ok(party.with_callbacks(raised))
}
