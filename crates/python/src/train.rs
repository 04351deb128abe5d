//! Training with propagated labels: all parties in one process, or one party.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use numpy::{IntoPyArray, PyArray1, PyReadonlyArray1, PyReadonlyArray2};
use pyo3::IntoPyObjectExt;
use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use undertone::job::{
    Agreed, Application as _, Checkpoint, Job as _, Record, SessionContext, Terms as _, terms,
};
use undertone::kdf::Seed;
use undertone::label::LabelNoise;
use undertone::party::{Network, PartyId, SessionId};
use undertone::train::{
    Census, Client, Data, Inputs, Job, Report, Server, Simulation, State, Step, Terms,
};

use crate::arrays::{self, contiguous};
use crate::costs::Spent;
use crate::errors::{self, number, numbers, of_client, simulation as failed, value};
use crate::model::PyModel;
use crate::options::{self, Keys, Stated};
use crate::party::{PyParty, Raised};
use crate::pool;
use crate::record::{self, PyRecord};
use crate::sessions::{self, Simulated, client, lock};

fn job(rules: &Stated, label_epsilon: Option<f64>) -> PyResult<Job> {
    let job = Job {
        label_epsilon,
        ..rules.job()?
    };
    job.check().map_err(value)?;
    Ok(job)
}

/// A client's rows and labels.
fn data(
    job: &Job,
    features: &Bound<'_, PyAny>,
    labels: &Bound<'_, PyAny>,
    noise: Option<(f64, Seed)>,
) -> PyResult<Data> {
    let rows: PyReadonlyArray2<'_, f32> = features.extract()?;
    let labelling = arrays::labelling(job.classes, arrays::labels(labels)?)?;
    let data = Data::new(
        rows.as_array().ncols(),
        contiguous(&rows)?.to_vec(),
        labelling,
    );
    let data = data.map_err(value)?;
    match noise {
        None => Ok(data),
        Some((epsilon, secret)) => {
            let noise = LabelNoise::new(epsilon, secret).map_err(value)?;
            let loaded = data.loaded().map_err(value)?;
            data.with_noise(&noise, &loaded).map_err(value)
        }
    }
}

/// What a client did in a session: its kind, the round, rows with pseudo-labels, clipped changes,
/// whether it diverged, and the final model.
type Did<'py> = (
    &'static str,
    u32,
    usize,
    usize,
    bool,
    Option<Bound<'py, PyArray1<f32>>>,
);

fn did(py: Python<'_>, step: Step) -> Did<'_> {
    match step {
        Step::Counted => ("census", 0, 0, 0, false, None),
        Step::Trained(trained) => {
            if let Some(warning) = &trained.warning {
                errors::warn(warning);
            }
            (
                "round",
                trained.number,
                trained.pseudo,
                trained.clipped,
                trained.diverged,
                None,
            )
        }
        Step::Over(model) => ("over", 0, 0, 0, false, Some(model.into_pyarray(py))),
    }
}

/// What a session gave the server: its kind, the round, and the clients that contributed.
type Gave = (&'static str, u32, Vec<i64>);

fn gave(report: &Report) -> Gave {
    match report {
        Report::Counted(census) => {
            let who = census.clients.iter().map(|client| number(client.id));
            ("census", 0, who.collect())
        }
        Report::Trained(round) => {
            let taken = &round.taken;
            ("round", taken.number, numbers(&taken.contributors))
        }
        Report::Over => ("over", 0, Vec::new()),
    }
}

/// All parties of a job in this process, between two sessions.
#[pyclass(frozen, module = "undertone._engine")]
pub(crate) struct Training {
    sessions: Simulated<Simulation>,
}

#[pymethods]
impl Training {
    /// The job of clients with these `models`, from the parameters `first` on.
    #[new]
    #[allow(clippy::too_many_arguments)]
    fn new(
        py: Python<'_>,
        rules: Stated,
        label_epsilon: Option<f64>,
        models: Vec<Py<PyAny>>,
        features: Vec<Bound<'_, PyAny>>,
        labels: Vec<Bound<'_, PyAny>>,
        first: PyReadonlyArray1<'_, f32>,
        seed: Option<[u8; 32]>,
    ) -> PyResult<Self> {
        pool::ready()?;
        let (job, seed) = (job(&rules, label_epsilon)?, options::seed(seed)?);
        let raised = Raised::default();
        let mut clients = Vec::with_capacity(models.len());
        for (place, model) in models.into_iter().enumerate() {
            let (Some(features), Some(labels)) = (features.get(place), labels.get(place)) else {
                return Err(value("each client needs a model, features and labels"));
            };
            let noise = label_epsilon.map(|epsilon| {
                let ids = [place as u32];
                (
                    epsilon,
                    seed.derive(SessionId([0; 32]), "simulated label noise", &ids),
                )
            });
            let data = data(&job, features, labels, noise);
            let data = data.map_err(|error| of_client(py, place, error))?;
            let model = PyModel {
                model,
                raised: raised.clone(),
            };
            let model = Box::new(model);
            clients.push(Client::of(Terms::anything(), Inputs { model, data }));
        }
        let server = Server::new(job, contiguous(&first)?.to_vec());
        let simulation = Simulation::new(server, clients, seed);
        if let Some(error) = raised.take() {
            return Err(error);
        }
        let simulation = simulation.map_err(|error| failed(error.into()))?;
        let sessions = Simulated::new(simulation, raised);
        Ok(Self { sessions })
    }

    /// Runs the next session. Returns what it gave, and what each of its clients did.
    fn step<'py>(
        &self,
        py: Python<'py>,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<(Gave, Vec<(i64, Did<'py>)>)> {
        let session = |simulation: &mut Simulation, network: Network<'_>| {
            let members = simulation.members();
            let run = simulation.run_with(network, &members)?;
            Ok((members, run))
        };
        let step = self
            .sessions
            .step(py, progress, session, |(_, run)| &run.ledgers);
        let (members, run) = step?;
        let mut steps = Vec::with_capacity(run.clients.len());
        for (who, step) in members.into_iter().zip(run.clients) {
            let step = step.map_err(|error| errors::aborted(&error))?;
            steps.push((number(who), did(py, step)));
        }
        Ok((gave(&run.report), steps))
    }

    /// The parameters of the model.
    fn params<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyArray1<f32>>> {
        let params = |state: &State| PyArray1::from_slice(py, &state.model);
        self.sessions
            .look(|simulation| params(simulation.server().state()))
    }

    /// Whether all rounds are over.
    #[getter]
    fn over(&self) -> PyResult<bool> {
        self.sessions
            .look(|simulation| simulation.server().is_over())
    }

    /// The groups of clients.
    #[getter]
    fn groups(&self) -> PyResult<Vec<Vec<i64>>> {
        self.sessions
            .look(|simulation| groups(simulation.server().state()))
    }

    /// What each party has spent so far.
    fn costs(&self) -> PyResult<Spent> {
        self.sessions.costs()
    }
}

fn groups(state: &State) -> Vec<Vec<i64>> {
    let census = state.census.as_ref();
    let groups = census.map_or(&[][..], |census: &Census| &census.groups);
    groups.iter().map(|group| numbers(group)).collect()
}

/// A client of a job, between two sessions.
#[pyclass(frozen, module = "undertone._engine")]
pub(crate) struct TrainClient {
    client: Mutex<Agreed<Client>>,
    job: Job,
    record: Record,
    raised: Raised,
}

#[pymethods]
impl TrainClient {
    #[new]
    fn new(
        rules: Stated,
        model: Py<PyAny>,
        features: &Bound<'_, PyAny>,
        labels: &Bound<'_, PyAny>,
        noise: Option<(f64, [u8; 32])>,
        terms: Stated,
        record: Option<&Bound<'_, PyRecord>>,
    ) -> PyResult<Self> {
        pool::ready()?;
        let job = job(&rules, None)?;
        let secret = noise.map(|(_, secret)| Seed::from_bytes(secret));
        let noise = noise.map(|(epsilon, secret)| (epsilon, Seed::from_bytes(secret)));
        let data = data(&job, features, labels, noise)?;
        let record = record::given(record)?;
        let rows = data.rows();
        let digests = record::digests(rows.values, rows.dim);
        record::bring(&record, digests, secret.as_ref())?;
        let raised = Raised::default();
        let model = PyModel {
            model,
            raised: raised.clone(),
        };
        let model = Box::new(model);
        let terms = terms::terms(terms.0).map_err(value)?;
        let client = Client::of(terms, Inputs { model, data });
        Ok(Self {
            client: Mutex::new(Agreed::new(client, record.clone())),
            job,
            record,
            raised,
        })
    }

    /// The last round in which the client began to take part, if the job has begun.
    #[getter]
    fn last(&self, py: Python<'_>) -> PyResult<Option<u32>> {
        let census = py.detach(|| self.record.census()).map_err(value)?;
        Ok(census.map(|census| census.last))
    }

    /// The client's party in a session.
    #[allow(clippy::too_many_arguments)]
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
        });
        if let Some(error) = self.raised.take() {
            return Err(error);
        }
        let party = party?;
        let convert = |py: Python<'_>, step: Step| did(py, step).into_py_any(py);
        let party = PyParty::new((me, session), party, Arc::new(convert));
        let party = party.with_callbacks(self.raised.clone());
        Ok(party.with_record(self.record.clone()))
    }
}

/// The server of a job, between two sessions.
#[pyclass(frozen, module = "undertone._engine")]
pub(crate) struct TrainServer {
    server: Arc<Mutex<Server>>,
}

#[pymethods]
impl TrainServer {
    /// A new job from the parameters `first` on, or the one whose state is given.
    #[new]
    fn new(
        rules: Stated,
        first: Option<PyReadonlyArray1<'_, f32>>,
        state: Option<&[u8]>,
    ) -> PyResult<Self> {
        let job = job(&rules, None)?;
        let state = match (first, state) {
            (_, Some(state)) => {
                State::read(state, &job).map_err(|why| value(format!("state: {why}")))?
            }
            (Some(first), None) => State::new(contiguous(&first)?.to_vec()),
            (None, None) => return Err(value("give params or state")),
        };
        let server = Arc::new(Mutex::new(Server::resume(job, state)));
        Ok(Self { server })
    }

    /// The clients of the next session, of those that are present.
    fn members(&self, present: Vec<i64>, seed: Option<[u8; 32]>) -> PyResult<Vec<i64>> {
        let present = sessions::clients(present)?;
        let mut prg = options::seed(seed)?.prg();
        Ok(numbers(&lock(&self.server).members(&present, &mut prg)))
    }

    /// Begins the next session, of these clients. The caller keeps the state before it sends
    /// anything.
    fn begin(
        &self,
        members: Vec<i64>,
        session: [u8; 32],
        seed: Option<[u8; 32]>,
    ) -> PyResult<PyParty> {
        pool::ready()?;
        let (members, session) = (sessions::clients(members)?, SessionId(session));
        let at = SessionContext::new(session, PartyId::SERVER, options::seed(seed)?);
        let party = lock(&self.server).server(at, members);
        let party = party.map_err(errors::misuse)?;
        let shared = Arc::clone(&self.server);
        let convert = move |py: Python<'_>, report: Report| {
            lock(&shared).ended(Ok(&report));
            gave(&report).into_py_any(py)
        };
        let place = (PartyId::SERVER, session);
        Ok(PyParty::new(place, party, Arc::new(convert)))
    }

    /// The state in bytes.
    fn state<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        let bytes = py.detach(|| lock(&self.server).state().write());
        PyBytes::new(py, &bytes)
    }

    /// The parameters of the model.
    fn params<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<f32>> {
        PyArray1::from_slice(py, &lock(&self.server).state().model)
    }

    /// The last round begun.
    #[getter]
    fn begun(&self) -> u32 {
        lock(&self.server).state().begun
    }

    /// The clients of the job, once the census has counted them.
    #[getter]
    fn clients(&self) -> Option<Vec<i64>> {
        let server = lock(&self.server);
        let clients = &server.state().census.as_ref()?.clients;
        Some(clients.iter().map(|client| number(client.id)).collect())
    }

    /// The groups of clients.
    #[getter]
    fn groups(&self) -> Vec<Vec<i64>> {
        groups(lock(&self.server).state())
    }

    /// Whether all rounds are over. Clients may still wait for the final model.
    #[getter]
    fn over(&self) -> bool {
        let server = lock(&self.server);
        server.state().census.is_some() && server.is_over()
    }

    /// The rounds that are finished, and their contributors.
    #[getter]
    fn taken(&self) -> Vec<(u32, Vec<i64>)> {
        let server = lock(&self.server);
        let taken = server.state().taken.iter();
        taken
            .map(|taken| (taken.number, numbers(&taken.contributors)))
            .collect()
    }
}

/// The file in which a server keeps the state of a job, and with it what it needs to continue.
#[pyclass(frozen, module = "undertone._engine")]
pub(crate) struct TrainCheckpoint {
    file: Checkpoint,
    found: Option<Vec<u8>>,
}

#[pymethods]
impl TrainCheckpoint {
    #[new]
    fn new(py: Python<'_>, path: PathBuf, rules: Stated) -> PyResult<Self> {
        let job = job(&rules, None)?;
        let (digest, most) = (job.digest(), State::max_bytes(&job));
        let opened = py.detach(|| Checkpoint::open(&path, "train in Python", &digest, most));
        let (file, found) = opened.map_err(value)?;
        Ok(Self { file, found })
    }

    /// What an earlier process has left in the file.
    #[getter]
    fn found<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyBytes>> {
        self.found.as_ref().map(|found| PyBytes::new(py, found))
    }

    /// Replaces the content. It is on disk when this returns.
    fn save(&self, py: Python<'_>, content: &[u8]) -> PyResult<()> {
        let saved = py.detach(|| self.file.save(content));
        saved.map_err(|error| PyOSError::new_err(error.to_string()))
    }

    /// Removes the file, if it exists.
    fn remove(&self, py: Python<'_>) -> PyResult<()> {
        let removed = py.detach(|| self.file.remove());
        removed.map_err(|error| PyOSError::new_err(error.to_string()))
    }
}
