//! Co-training: all parties in one process, or one party.

use std::sync::Arc;

use numpy::{IntoPyArray, PyArray1, PyReadonlyArray1, PyReadonlyArray2};
use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use undertone::cotrain::{
    self, Client, Data, Exchange, Inputs, Labels, Learner, LearnerError, Public, Report, Rows,
    Server, Simulation, State, Step, Terms,
};
use undertone::job::Terms as _;
use undertone::label::Features;
use undertone::party::Network;

use crate::arrays::{self, Matrix, contiguous};
use crate::client::{self, Brought, Callbacks, Object, PyClient};
use crate::costs::Spent;
use crate::errors::{self, numbers, of_client, simulation as failed, value};
use crate::options::{self, Stated};
use crate::pool;
use crate::record::{self, PyRecord};
use crate::server::{self, PyServer};
use crate::sessions::Simulated;

/// ε of one vote in one exchange.
#[pyfunction]
pub(crate) fn cotrain_epsilon(rules: Stated) -> PyResult<Option<f64>> {
    Ok(rules.job::<cotrain::Job>()?.noise.per_vote())
}

/// The digest of public rows, float64 of shape [rows, features], as a job prepares them.
#[pyfunction]
pub(crate) fn public_digest(rows: &Bound<'_, PyAny>, standardise: bool) -> PyResult<[u8; 32]> {
    let rows = shared_rows(rows)?;
    let public = Public::prepared(standardise, rows.dim(), rows.values());
    let (public, _) = public.map_err(|error| value(format!("public rows: {error}")))?;
    Ok(public.digest())
}

/// Public rows as they were loaded.
fn shared_rows(rows: &Bound<'_, PyAny>) -> PyResult<Features> {
    let found = arrays::features(rows);
    found.map_err(|error| errors::prefixed(rows.py(), "public rows", &error))
}

fn public(rows: &Bound<'_, PyAny>) -> PyResult<Public> {
    let rows: PyReadonlyArray2<'_, f32> = rows.extract()?;
    let public = Public::new(rows.as_array().ncols(), contiguous(&rows)?.to_vec());
    public.map_err(|error| value(format!("public rows: {error}")))
}

/// A client's rows and labels.
fn data(
    job: &cotrain::Job,
    features: &Bound<'_, PyAny>,
    labels: &Bound<'_, PyAny>,
) -> PyResult<Data> {
    let rows: PyReadonlyArray2<'_, f32> = features.extract()?;
    let data = Data::new(
        rows.as_array().ncols(),
        contiguous(&rows)?.to_vec(),
        all_labels(labels)?,
        job.classes,
    );
    data.map_err(value)
}

/// The labels of rows that all have one.
fn all_labels(labels: &Bound<'_, PyAny>) -> PyResult<Vec<u16>> {
    let labels = arrays::labels(labels)?;
    if let Some(row) = labels.iter().position(Option::is_none) {
        return Err(value(format!(
            "row {row} has no label; leave out rows without a label"
        )));
    }
    Ok(labels.into_iter().flatten().collect())
}

/// A learner in Python: the object that `_cotrain.py` puts around the caller's.
struct PyLearner(Object);

impl PyLearner {
    /// Calls the learner. Its exception stays in this process: peers learn only that it failed.
    fn call<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Bound<'_, PyAny>) -> PyResult<T> + Send + 'static,
    ) -> Result<T, LearnerError> {
        let called = self.0.call(work);
        called.map_err(|_| LearnerError("it raised an exception".into()))
    }
}

impl Learner for PyLearner {
    fn fit(&mut self, rows: Rows<'_>, labels: &[u16]) -> Result<(), LearnerError> {
        let rows = Matrix::from(rows);
        let labels: Vec<i64> = labels.iter().copied().map(i64::from).collect();
        self.call(|learner| {
            let py = learner.py();
            let arguments = (rows.array(py)?, labels.into_pyarray(py));
            learner.call_method1("fit", arguments).map(drop)
        })
    }

    fn predict(&self, rows: Rows<'_>) -> Result<Vec<u16>, LearnerError> {
        let rows = Matrix::from(rows);
        self.call(|learner| {
            let rows = rows.array(learner.py())?;
            let classes: PyReadonlyArray1<'_, i64> =
                learner.call_method1("predict", (rows,))?.extract()?;
            // The object in Python has checked that these are classes.
            let classes = classes.as_array();
            let classes: Result<_, _> = classes.iter().map(|class| u16::try_from(*class)).collect();
            classes.map_err(value)
        })
    }
}

/// Labels as an array, -1 for none.
fn array<'py>(py: Python<'py>, labels: &[Option<u16>]) -> Bound<'py, PyArray1<i64>> {
    let labels = labels.iter().map(|label| label.map_or(-1, i64::from));
    labels.collect::<Vec<_>>().into_pyarray(py)
}

/// A finished exchange: its number, its contributors, and the numbers of covered and of lost rows.
type Finished = (u32, Vec<i64>, usize, usize);

fn finished(exchange: &Exchange) -> Finished {
    (
        exchange.number,
        numbers(&exchange.contributors),
        exchange.covered,
        exchange.lost,
    )
}

/// What a client did in a session: its kind, the number of the exchange, and the consensus.
type Did<'py> = (&'static str, u32, Option<Bound<'py, PyArray1<i64>>>);

fn did(py: Python<'_>, step: Step) -> Did<'_> {
    match step {
        Step::Voted { number, labels } => ("exchange", number, Some(array(py, &labels))),
        Step::Over(labels) => ("over", 0, labels.map(|labels| array(py, &labels))),
    }
}

/// What a session gave the server: its kind, the exchange, and the consensus.
type Gave<'py> = (
    &'static str,
    Option<Finished>,
    Option<Bound<'py, PyArray1<i64>>>,
);

fn gave<'py>(py: Python<'py>, report: &Report) -> Gave<'py> {
    match report {
        Report::Voted(exchange, labels) => (
            "exchange",
            Some(finished(exchange)),
            Some(array(py, labels)),
        ),
        Report::Over => ("over", None, None),
    }
}

fn consensus<'py>(py: Python<'py>, state: &State) -> Option<Bound<'py, PyArray1<i64>>> {
    let labels: Option<&Labels> = state.labels.as_ref();
    labels.map(|labels| array(py, labels))
}

/// All parties of a job in this process, between two sessions.
#[pyclass(frozen, module = "undertone._engine")]
pub(crate) struct Cotraining(Simulated<Simulation>);

#[pymethods]
impl Cotraining {
    /// The job of clients with these `learners`.
    #[new]
    #[allow(clippy::too_many_arguments)]
    fn new(
        py: Python<'_>,
        rules: Stated,
        learners: Vec<Py<PyAny>>,
        features: Vec<Bound<'_, PyAny>>,
        labels: Vec<Bound<'_, PyAny>>,
        shared: &Bound<'_, PyAny>,
        allow_unanimous: bool,
        seed: Option<[u8; 32]>,
    ) -> PyResult<Self> {
        pool::ready()?;
        let (job, seed) = (rules.job::<cotrain::Job>()?, options::seed(seed)?);
        // The clients refuse it, too. Here all of them have the reason at once.
        if !allow_unanimous && let Some(contributors) = job.unanimous(learners.len()) {
            return Err(value(format!(
                "{} of {contributors} clients is all of them: every row with a consensus would \
                 tell everybody's vote; lower the quorum, raise min_clients, or pass \
                 allow_unanimous=True",
                job.consensus
            )));
        }
        let shared = Arc::new(public(shared)?);
        let callbacks = Callbacks::default();
        let raised = callbacks.raised().clone();
        let mut clients = Vec::with_capacity(learners.len());
        for (place, learner) in learners.into_iter().enumerate() {
            let (Some(features), Some(labels)) = (features.get(place), labels.get(place)) else {
                return Err(value("each client needs a learner, features and labels"));
            };
            let data = data(&job, features, labels);
            let data = data.map_err(|error| of_client(py, place, error))?;
            let inputs = Inputs {
                learner: Box::new(PyLearner(Object::new(learner, &callbacks))),
                data,
                public: Arc::clone(&shared),
            };
            let terms = Terms {
                allow_unanimous,
                ..Terms::anything()
            };
            clients.push(Client::of(terms, inputs));
        }
        let simulation = Simulation::new(Server::new(job), clients, seed);
        let simulation = simulation.map_err(failed)?;
        Ok(Self(Simulated::new(simulation, raised)))
    }

    /// Runs the next session. Returns whether the job is over.
    fn step(&self, py: Python<'_>, progress: Option<Py<PyAny>>) -> PyResult<bool> {
        let session = |simulation: &mut Simulation, network: Network<'_>| simulation.run(network);
        let run = self.0.step(py, progress, session, |run| &run.ledgers)?;
        for step in run.clients {
            step.map_err(|error| errors::aborted(&error))?;
        }
        Ok(run.report == Report::Over)
    }

    /// The last consensus.
    fn labels<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyArray1<i64>>>> {
        self.0
            .look(|simulation| consensus(py, simulation.server().state()))
    }

    /// Whether the last two consensuses are the same.
    #[getter]
    fn settled(&self) -> PyResult<bool> {
        self.0
            .look(|simulation| simulation.server().state().settled)
    }

    /// The exchanges that are finished.
    #[getter]
    fn exchanges(&self) -> PyResult<Vec<Finished>> {
        let all = |state: &State| state.exchanges.iter().map(finished).collect();
        self.0.look(|simulation| all(simulation.server().state()))
    }

    /// What each party has spent so far.
    fn costs(&self) -> PyResult<Spent> {
        self.0.costs()
    }
}

/// A client with its learner, its rows and the public rows, all as in files: the job says how they
/// are prepared.
#[pyfunction]
pub(crate) fn cotrain_client(
    terms: Stated,
    learner: Py<PyAny>,
    features: &Bound<'_, PyAny>,
    labels: &Bound<'_, PyAny>,
    columns: Vec<String>,
    shared: &Bound<'_, PyAny>,
    record: Option<&Bound<'_, PyRecord>>,
) -> PyResult<PyClient> {
    let (own, shared) = (arrays::features(features)?, shared_rows(shared)?);
    let labels = all_labels(labels)?;
    let digests = record::digests(own.values(), own.dim()).collect();
    let callbacks = Callbacks::default();
    let learner = Object::new(learner, &callbacks);
    let mut given = Some((own, shared));
    let make = move |job: &cotrain::Job| {
        let (own, shared) = given.as_ref().ok_or("the rows are in use")?;
        let text = |error: cotrain::DataError| error.to_string();
        let public = Public::prepared(job.standardise, shared.dim(), shared.values());
        let (public, scaler) = public.map_err(|error| format!("public rows: {error}"))?;
        let values = scaler.apply(own.values());
        let data = Data::new(own.dim(), values, labels.clone(), job.classes).map_err(text)?;
        let inputs = Inputs {
            learner: Box::new(PyLearner(learner.clone())),
            data,
            public: Arc::new(public),
        };
        inputs.check(job)?;
        given = None;
        Ok(inputs)
    };
    let convert = |py: Python<'_>, step: Step| did(py, step).into_py_any(py);
    let brought = Brought {
        part: Client::new(terms.terms()?, make),
        bring: client::bring(digests, None),
        callbacks,
        convert: Arc::new(convert),
    };
    PyClient::new(brought, columns, record)
}

/// The server.
#[pyfunction]
pub(crate) fn cotrain_server(rules: Stated) -> PyResult<PyServer> {
    let server = Server::new(rules.job::<cotrain::Job>()?);
    let convert = |py: Python<'_>, report: Report| gave(py, &report).into_py_any(py);
    Ok(PyServer::new(server, Arc::new(convert), look))
}

/// The server's state: the last consensus, the last exchange begun, whether no exchange is left,
/// whether the last two consensuses are the same, and the exchanges that are finished.
fn look(py: Python<'_>, server: &Server, what: &str) -> PyResult<Py<PyAny>> {
    let state = server.state();
    match what {
        "labels" => consensus(py, state).into_py_any(py),
        "begun" => state.begun.into_py_any(py),
        "over" => server.is_over().into_py_any(py),
        "settled" => state.settled.into_py_any(py),
        "exchanges" => {
            let all = state.exchanges.iter().map(finished);
            all.collect::<Vec<_>>().into_py_any(py)
        }
        _ => server::nothing(py, server, what),
    }
}
