//! Co-training: all parties in one process, or one party.

use std::sync::{Arc, Mutex};

use numpy::{IntoPyArray, PyArray1, PyReadonlyArray1, PyReadonlyArray2};
use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use undertone::cotrain::{
    self, Client, Data, Exchange, Inputs, Labels, Learner, LearnerError, Public, Report, Rows,
    Server, Simulation, State, Step, Terms,
};
use undertone::job::{Agreed, Application as _, Record, SessionContext, Terms as _};
use undertone::party::{Network, PartyId, SessionId};

use crate::arrays::{self, contiguous, matrix};
use crate::costs::Spent;
use crate::errors::{self, numbers, of_client, simulation as failed, value};
use crate::options::{self, Keys, Stated};
use crate::party::{PyParty, Raised};
use crate::pool;
use crate::record::{self, PyRecord};
use crate::sessions::{self, Simulated, client, lock};

/// ε of one vote in one exchange.
#[pyfunction]
pub(crate) fn cotrain_epsilon(rules: Stated) -> PyResult<Option<f64>> {
    Ok(rules.job::<cotrain::Job>()?.noise.per_vote())
}

/// The digest of public rows.
#[pyfunction]
pub(crate) fn public_digest(rows: &Bound<'_, PyAny>) -> PyResult<[u8; 32]> {
    Ok(public(rows)?.digest())
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
    let labels = arrays::labels(labels)?;
    if let Some(row) = labels.iter().position(Option::is_none) {
        return Err(value(format!(
            "row {row} has no label; leave out rows without a label"
        )));
    }
    let data = Data::new(
        rows.as_array().ncols(),
        contiguous(&rows)?.to_vec(),
        labels.into_iter().flatten().collect(),
        job.classes,
    );
    data.map_err(value)
}

/// A learner in Python: the object that `_cotrain.py` puts around the caller's.
struct PyLearner {
    learner: Py<PyAny>,
    raised: Raised,
}

impl PyLearner {
    /// Calls the learner. Its exception stays in this process: peers learn only that it failed.
    fn call<T>(
        &self,
        work: impl FnOnce(&Bound<'_, PyAny>) -> PyResult<T>,
    ) -> Result<T, LearnerError> {
        let called = Python::attach(|py| work(self.learner.bind(py)));
        called.map_err(|error| {
            self.raised.put(error);
            LearnerError("it raised an exception".into())
        })
    }
}

impl Learner for PyLearner {
    fn fit(&mut self, rows: Rows<'_>, labels: &[u16]) -> Result<(), LearnerError> {
        self.call(|learner| {
            let py = learner.py();
            let labels: Vec<i64> = labels.iter().copied().map(i64::from).collect();
            let arguments = (matrix(py, rows)?, labels.into_pyarray(py));
            learner.call_method1("fit", arguments).map(drop)
        })
    }

    fn predict(&self, rows: Rows<'_>) -> Result<Vec<u16>, LearnerError> {
        self.call(|learner| {
            let rows = matrix(learner.py(), rows)?;
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
        let raised = Raised::default();
        let mut clients = Vec::with_capacity(learners.len());
        for (place, learner) in learners.into_iter().enumerate() {
            let (Some(features), Some(labels)) = (features.get(place), labels.get(place)) else {
                return Err(value("each client needs a learner, features and labels"));
            };
            let data = data(&job, features, labels);
            let data = data.map_err(|error| of_client(py, place, error))?;
            let learner = PyLearner {
                learner,
                raised: raised.clone(),
            };
            let inputs = Inputs {
                learner: Box::new(learner),
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
        let simulation = simulation.map_err(|error| failed(error.into()))?;
        Ok(Self(Simulated::new(simulation, raised)))
    }

    /// Runs the next session. Returns whether the job is over.
    fn step(&self, py: Python<'_>, progress: Option<Py<PyAny>>) -> PyResult<bool> {
        let session = |simulation: &mut Simulation, network: Network<'_>| {
            simulation.run(network).map_err(Into::into)
        };
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

/// A client of a job, between two sessions.
#[pyclass(frozen, module = "undertone._engine")]
pub(crate) struct CotrainClient {
    client: Mutex<Agreed<Client>>,
    job: cotrain::Job,
    record: Record,
    raised: Raised,
}

#[pymethods]
impl CotrainClient {
    #[new]
    #[allow(clippy::too_many_arguments)]
    fn new(
        rules: Stated,
        learner: Py<PyAny>,
        features: &Bound<'_, PyAny>,
        labels: &Bound<'_, PyAny>,
        shared: &Bound<'_, PyAny>,
        terms: Stated,
        record: Option<&Bound<'_, PyRecord>>,
    ) -> PyResult<Self> {
        pool::ready()?;
        let job = rules.job::<cotrain::Job>()?;
        let (data, shared) = (data(&job, features, labels)?, Arc::new(public(shared)?));
        let record = record::given(record)?;
        let rows = data.rows();
        record::bring(&record, record::digests(rows.values, rows.dim), None)?;
        let raised = Raised::default();
        let learner = PyLearner {
            learner,
            raised: raised.clone(),
        };
        let inputs = Inputs {
            learner: Box::new(learner),
            data,
            public: shared,
        };
        inputs.check(&job).map_err(value)?;
        let terms = terms.terms()?;
        Ok(Self {
            client: Mutex::new(Agreed::new(Client::of(terms, inputs), record.clone())),
            job,
            record,
            raised,
        })
    }

    /// The last exchange in which the client voted; 0 before the first.
    #[getter]
    fn last(&self, py: Python<'_>) -> PyResult<u32> {
        py.detach(|| self.record.last_vote()).map_err(value)
    }

    /// The client's party in a session.
    fn party(
        &self,
        py: Python<'_>,
        index: i64,
        session: [u8; 32],
        credentials: Option<Keys>,
        seed: Option<[u8; 32]>,
    ) -> PyResult<PyParty> {
        pool::ready()?;
        let (me, session) = (client(index)?, SessionId(session));
        let is_signed = credentials.is_some();
        record::know(&self.record, credentials.as_ref());
        let at = SessionContext {
            credentials: credentials.map(|keys| keys.credentials(me)).transpose()?,
            ..SessionContext::new(session, me, options::seed(seed)?)
        };
        let party = py.detach(|| {
            let mut client = lock(&self.client);
            let agreed = client.agree_to(self.job.clone(), is_signed);
            agreed.map_err(errors::declined)?;
            client.client(at).map_err(errors::unwilling)
        })?;
        let convert = |py: Python<'_>, step: Step| did(py, step).into_py_any(py);
        let party = PyParty::new((me, session), party, Arc::new(convert));
        let party = party.with_callbacks(self.raised.clone());
        Ok(party.with_record(self.record.clone()))
    }
}

/// The server of a job, between two sessions.
#[pyclass(frozen, module = "undertone._engine")]
pub(crate) struct CotrainServer {
    server: Arc<Mutex<Server>>,
}

#[pymethods]
impl CotrainServer {
    /// A new job, or the one whose state is given.
    #[new]
    fn new(rules: Stated, state: Option<&[u8]>) -> PyResult<Self> {
        let job = rules.job::<cotrain::Job>()?;
        let state = state.map(|state| State::read(state, &job)).transpose();
        let state = state.map_err(|why| value(format!("state: {why}")))?;
        Ok(Self {
            server: Arc::new(Mutex::new(Server::resume(job, state.unwrap_or_default()))),
        })
    }

    /// Begins the next session, of these clients. The caller keeps the state before it sends
    /// anything. Returns the clients in order, and the party.
    fn begin(
        &self,
        members: Vec<i64>,
        session: [u8; 32],
        seed: Option<[u8; 32]>,
    ) -> PyResult<(Vec<i64>, PyParty)> {
        pool::ready()?;
        let (members, session) = (sessions::clients(members)?, SessionId(session));
        let mut server = lock(&self.server);
        let needed = server.needed(members.len());
        if members.len() < needed {
            return Err(value(format!(
                "no session can begin with clients {:?}: {needed} are needed",
                numbers(&members)
            )));
        }
        let at = SessionContext::new(session, PartyId::SERVER, options::seed(seed)?);
        let party = server.server(at, members.clone()).map_err(errors::misuse)?;
        drop(server);
        let shared = Arc::clone(&self.server);
        let convert = move |py: Python<'_>, report: Report| {
            lock(&shared).ended(Ok(&report));
            gave(py, &report).into_py_any(py)
        };
        let place = (PartyId::SERVER, session);
        let party = PyParty::new(place, party, Arc::new(convert));
        Ok((numbers(&members), party))
    }

    /// The state in bytes.
    fn state<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        let bytes = py.detach(|| {
            let server = lock(&self.server);
            server.state().write(server.job())
        });
        PyBytes::new(py, &bytes)
    }

    /// The last consensus.
    fn labels<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyArray1<i64>>> {
        consensus(py, lock(&self.server).state())
    }

    /// The last exchange begun.
    #[getter]
    fn begun(&self) -> u32 {
        lock(&self.server).state().begun
    }

    /// Whether no exchange is left. Clients may still wait for the last consensus.
    #[getter]
    fn over(&self) -> bool {
        lock(&self.server).is_over()
    }

    /// Whether the last two consensuses are the same.
    #[getter]
    fn settled(&self) -> bool {
        lock(&self.server).state().settled
    }

    /// The exchanges that are finished.
    #[getter]
    fn exchanges(&self) -> Vec<Finished> {
        let server = lock(&self.server);
        server.state().exchanges.iter().map(finished).collect()
    }
}
