//! Training with propagated labels: all parties in one process, or one party.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use numpy::ndarray::Array2;
use numpy::{IntoPyArray, PyArray1, PyReadonlyArray1, PyReadonlyArray2};
use pyo3::IntoPyObjectExt;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use undertone::kdf::Seed;
use undertone::party::{Ledger, Network, PartyId, SessionId};
use undertone::simulate::TrainingSimulation;
use undertone::training::{
    self, Census, Client, Data, Embeddings, Examples, Memory, Model, ModelError, Place, Report,
    Rows, Sampling, State, Step, Target,
};
use undertone::xclp::LabelNoise;

use crate::arrays;
use crate::drive::{Cost, PyParty, Raised, costs};
use crate::errors::{self, number, simulation, value};
use crate::interrupt;
use crate::options::{self, Keys, LabelRules};

/// The parameters of a job, apart from those of label propagation.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct TrainRules {
    label_rounds: u32,
    rounds: u32,
    labels_from: String,
    sampled: usize,
    groups: Option<usize>,
    epochs: u32,
    learning_rate: Option<f32>,
    weight_decay: f32,
    consistency: f32,
    clip: f32,
    features: usize,
    classes: usize,
    parameters: usize,
}

fn job(rules: &Bound<'_, PyAny>, label_epsilon: Option<f64>) -> PyResult<training::Job> {
    let propagation = rules.extract::<LabelRules>()?.params()?;
    let rules: TrainRules = rules.extract()?;
    let job = training::Job {
        label_rounds: rules.label_rounds,
        rounds: rules.rounds,
        pseudo: rules.labels_from.parse().map_err(value)?,
        propagation,
        sampled: rules.sampled,
        sampling: rules.groups.map_or(Sampling::Free, Sampling::Groups),
        epochs: rules.epochs,
        learning_rate: rules.learning_rate,
        weight_decay: rules.weight_decay,
        consistency: rules.consistency,
        clip: rules.clip,
        label_epsilon,
        features: rules.features,
        classes: rules.classes,
        parameters: rules.parameters,
    };
    job.check().map_err(value)?;
    Ok(job)
}

/// The digest of a job's parameters, by which parties compare them.
#[pyfunction]
pub(crate) fn train_digest(rules: &Bound<'_, PyAny>) -> PyResult<[u8; 32]> {
    Ok(job(rules, None)?.digest())
}

/// A model in Python: the object that `_train.py` puts around the caller's.
struct PyModel {
    model: Py<PyAny>,
    raised: Raised,
}

impl PyModel {
    /// Calls the model. Its exception stays in this process: peers learn only that it failed.
    fn call<T>(
        &self,
        work: impl FnOnce(&Bound<'_, PyAny>) -> PyResult<T>,
    ) -> Result<T, ModelError> {
        let called = Python::attach(|py| work(self.model.bind(py)));
        called.map_err(|error| {
            self.raised.put(error);
            ModelError("it raised an exception".into())
        })
    }
}

pub(crate) fn matrix<'py>(
    py: Python<'py>,
    rows: Rows<'_>,
) -> PyResult<Bound<'py, numpy::PyArray2<f32>>> {
    let matrix = Array2::from_shape_vec((rows.len(), rows.dim), rows.values.to_vec());
    Ok(matrix.map_err(value)?.into_pyarray(py))
}

/// Targets as arrays: rows int64, classes int64, weights float32.
type Targets<'py> = (
    Bound<'py, PyArray1<i64>>,
    Bound<'py, PyArray1<i64>>,
    Bound<'py, PyArray1<f32>>,
);

fn targets<'py>(py: Python<'py>, targets: &[Target]) -> Targets<'py> {
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
            Ok(params.as_slice()?.to_vec())
        });
        // Of the wrong number, so that the engine stops.
        params.unwrap_or_default()
    }

    fn set_params(&mut self, params: &[f32]) -> Result<(), ModelError> {
        self.call(|model| {
            let params = PyArray1::from_slice(model.py(), params);
            model.call_method1("set_params", (params,)).map(drop)
        })
    }

    fn embed(&mut self, rows: Rows<'_>) -> Result<Embeddings, ModelError> {
        self.call(|model| {
            let rows = matrix(model.py(), rows)?;
            let embeddings: PyReadonlyArray2<'_, f32> =
                model.call_method1("embed", (rows,))?.extract()?;
            Ok(Embeddings {
                dim: embeddings.as_array().ncols(),
                values: embeddings.as_slice()?.to_vec(),
            })
        })
    }

    fn predict(&mut self, rows: Rows<'_>) -> Result<Vec<f32>, ModelError> {
        self.call(|model| {
            let rows = matrix(model.py(), rows)?;
            let predicted: PyReadonlyArray2<'_, f32> =
                model.call_method1("predict", (rows,))?.extract()?;
            Ok(predicted.as_slice()?.to_vec())
        })
    }

    fn update(
        &mut self,
        examples: &Examples<'_>,
        schedule: &training::Schedule,
    ) -> Result<(), ModelError> {
        self.call(|model| {
            let py = model.py();
            let sizes = (schedule.epochs, schedule.labelled, schedule.pseudo);
            let rates = (
                schedule.learning_rate,
                schedule.weight_decay,
                schedule.consistency,
            );
            let arguments = (
                matrix(py, examples.rows)?,
                targets(py, examples.labelled),
                targets(py, examples.pseudo),
                sizes,
                rates,
                PyBytes::new(py, schedule.seed.expose()),
            );
            model.call_method1("update", arguments).map(drop)
        })
    }
}

/// The batches of an update: an iterator of rows, classes and weights.
#[pyclass(module = "undertone._engine")]
pub(crate) struct Batches(std::vec::IntoIter<Vec<Target>>);

#[pymethods]
impl Batches {
    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__<'py>(&mut self, py: Python<'py>) -> Option<Targets<'py>> {
        self.0.next().map(|batch| targets(py, &batch))
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
    let schedule = training::Schedule {
        epochs: sizes.0,
        labelled: sizes.1,
        pseudo: sizes.2,
        learning_rate: 0.0,
        weight_decay: 0.0,
        consistency: 0.0,
        seed: Seed::from_bytes(seed),
    };
    let examples = Examples {
        rows: Rows {
            dim: 1,
            values: &[],
        },
        labelled: &labelled,
        pseudo: &pseudo,
    };
    let batches: Vec<_> = schedule.batches(&examples).collect();
    Ok(Batches(batches.into_iter()))
}

/// A client's rows and labels.
fn data(
    job: &training::Job,
    features: &Bound<'_, PyAny>,
    labels: &Bound<'_, PyAny>,
    noise: Option<(f64, Seed)>,
) -> PyResult<Data> {
    let rows: PyReadonlyArray2<'_, f32> = features.extract()?;
    let labelling = arrays::labelling(job.classes, arrays::labels(labels)?)?;
    let data = Data::new(
        rows.as_array().ncols(),
        rows.as_slice()?.to_vec(),
        labelling,
    );
    let data = data.map_err(value)?;
    match noise {
        None => Ok(data),
        Some((epsilon, secret)) => {
            let noise = LabelNoise::new(epsilon, secret).map_err(value)?;
            data.with_noise(&noise).map_err(value)
        }
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn numbers(who: &[PartyId]) -> Vec<i64> {
    who.iter().copied().map(number).collect()
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
        Step::Trained(trained) => (
            "round",
            trained.number,
            trained.pseudo,
            trained.clipped,
            trained.diverged,
            None,
        ),
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
    inner: Mutex<Inner>,
    job: training::Job,
    raised: Raised,
}

struct Inner {
    simulation: TrainingSimulation,
    ledgers: Vec<(PartyId, Ledger)>,
}

impl Training {
    /// The job, if no session runs.
    fn inner(&self) -> PyResult<MutexGuard<'_, Inner>> {
        self.inner.try_lock().map_err(|_| {
            PyRuntimeError::new_err("a session of this job runs, or has ended in the middle")
        })
    }
}

#[pymethods]
impl Training {
    /// The job of clients with these `models`, from the parameters `first` on.
    #[new]
    #[allow(clippy::too_many_arguments)]
    fn new(
        py: Python<'_>,
        rules: &Bound<'_, PyAny>,
        label_epsilon: Option<f64>,
        models: Vec<Py<PyAny>>,
        features: Vec<Bound<'_, PyAny>>,
        labels: Vec<Bound<'_, PyAny>>,
        first: PyReadonlyArray1<'_, f32>,
        seed: Option<[u8; 32]>,
    ) -> PyResult<Self> {
        let (job, seed) = (job(rules, label_epsilon)?, options::seed(seed)?);
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
            let keep = Box::new(|_: &_| Ok(()));
            clients.push(Client::new(Box::new(model), data, None, keep));
        }
        let first = first.as_slice()?.to_vec();
        let simulation = TrainingSimulation::new(job, clients, first, seed).map_err(simulation)?;
        let ledgers = Vec::new();
        Ok(Self {
            inner: Mutex::new(Inner {
                simulation,
                ledgers,
            }),
            job,
            raised,
        })
    }

    /// Runs the next session. Returns what it gave, and what each of its clients did.
    fn step<'py>(
        &self,
        py: Python<'py>,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<(Gave, Vec<(i64, Did<'py>)>)> {
        let run = interrupt::run(py, progress, |tell| {
            let mut inner = self.inner()?;
            let members = inner.simulation.members();
            let observer = |who: PartyId, phase: undertone::party::Phase| {
                // The other clients would train on, for nothing.
                if let Some(error) = self.raised.take() {
                    interrupt::raise(error);
                }
                tell(&|| format!("{phase}, {who}"));
            };
            let network = Network::new().observe(observer);
            let run = inner.simulation.run_over(network, members);
            if let Some(error) = self.raised.take() {
                return Err(error);
            }
            let run = run.map_err(simulation)?;
            add_ledgers(&mut inner.ledgers, &run.ledgers);
            Ok(run)
        })?;
        let mut steps = Vec::with_capacity(run.clients.len());
        for (who, step) in run.clients {
            let step = step.map_err(|error| errors::aborted(&error))?;
            steps.push((number(who), did(py, step)));
        }
        Ok((gave(&run.report), steps))
    }

    /// The parameters of the model.
    fn params<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyArray1<f32>>> {
        let inner = self.inner()?;
        Ok(PyArray1::from_slice(py, &inner.simulation.state().model))
    }

    /// Whether all rounds are over.
    #[getter]
    fn over(&self) -> PyResult<bool> {
        Ok(self.inner()?.simulation.state().is_over(&self.job))
    }

    /// The groups of clients.
    #[getter]
    fn groups(&self) -> PyResult<Vec<Vec<i64>>> {
        Ok(groups(self.inner()?.simulation.state()))
    }

    /// What each party has spent so far.
    fn costs(&self) -> PyResult<Vec<(i64, Vec<Cost>)>> {
        let inner = self.inner()?;
        let each = inner.ledgers.iter();
        Ok(each
            .map(|(id, ledger)| (number(*id), costs(ledger)))
            .collect())
    }
}

/// Adds what parties spent in a session to what they have spent before.
pub(crate) fn add_ledgers(total: &mut Vec<(PartyId, Ledger)>, session: &[(PartyId, Ledger)]) {
    for (who, ledger) in session {
        match total.iter_mut().find(|(id, _)| id == who) {
            Some((_, total)) => total.add(ledger),
            None => total.push((*who, ledger.clone())),
        }
    }
}

/// The same exception, with the client in its text.
pub(crate) fn of_client(py: Python<'_>, place: usize, error: PyErr) -> PyErr {
    let text = format!("client {place}: {}", error.value(py));
    PyErr::from_type(error.get_type(py), text)
}

fn groups(state: &State) -> Vec<Vec<i64>> {
    let census = state.census.as_ref();
    let groups = census.map_or(&[][..], |census: &Census| &census.groups);
    groups.iter().map(|group| numbers(group)).collect()
}

/// A client of a job, between two sessions.
#[pyclass(frozen, module = "undertone._engine")]
pub(crate) struct TrainClient {
    client: Client,
    job: training::Job,
    raised: Raised,
}

#[pymethods]
impl TrainClient {
    /// `keep` takes the memory, in bytes, whenever it has changed.
    #[new]
    #[allow(clippy::too_many_arguments)]
    fn new(
        rules: &Bound<'_, PyAny>,
        model: Py<PyAny>,
        features: &Bound<'_, PyAny>,
        labels: &Bound<'_, PyAny>,
        noise: Option<(f64, [u8; 32])>,
        memory: Option<&[u8]>,
        keep: Py<PyAny>,
    ) -> PyResult<Self> {
        let job = job(rules, None)?;
        let noise = noise.map(|(epsilon, secret)| (epsilon, Seed::from_bytes(secret)));
        let data = data(&job, features, labels, noise)?;
        let memory = memory.map(Memory::read).transpose();
        let memory = memory.map_err(|error| value(format!("memory: {error}")))?;
        let raised = Raised::default();
        let model = PyModel {
            model,
            raised: raised.clone(),
        };
        let failed = raised.clone();
        let keep = move |memory: &Memory| {
            let bytes = memory.write();
            let kept = Python::attach(|py| keep.call1(py, (PyBytes::new(py, &bytes),)).map(drop));
            kept.map_err(|error| {
                failed.put(error);
                // The server receives this text.
                "the memory cannot be kept".to_owned()
            })
        };
        let client = Client::new(Box::new(model), data, memory, Box::new(keep));
        Ok(Self {
            client,
            job,
            raised,
        })
    }

    /// The last round in which the client began to take part, if the job has begun.
    #[getter]
    fn last(&self, py: Python<'_>) -> Option<u32> {
        py.detach(|| self.client.last())
    }

    /// The client's party in a session.
    #[allow(clippy::too_many_arguments)]
    fn party(
        &self,
        py: Python<'_>,
        index: i64,
        session: [u8; 32],
        credentials: Option<Keys>,
        max_peer_rows: Option<usize>,
        seed: Option<[u8; 32]>,
    ) -> PyResult<PyParty> {
        let (me, session) = (client(index)?, SessionId(session));
        let place = Place {
            session,
            me,
            seed: options::seed(seed)?,
            credentials: credentials.map(|keys| keys.credentials(me)).transpose()?,
            max_peer_rows,
        };
        let party = py.detach(|| self.client.party(self.job, place));
        if let Some(error) = self.raised.take() {
            return Err(error);
        }
        let party = party.map_err(errors::misuse)?;
        let convert = |py: Python<'_>, step: Step| did(py, step).into_py_any(py);
        let party = PyParty::new((me, session), party, None, MAX_EARLY, Arc::new(convert));
        Ok(party.with_callbacks(self.raised.clone()))
    }
}

/// Most bytes of a sender that are kept before their turn.
pub(crate) const MAX_EARLY: usize = 1 << 30;

pub(crate) fn client(index: i64) -> PyResult<PartyId> {
    if index < 0 {
        return Err(value(format!(
            "client {index}; clients are numbered from 0"
        )));
    }
    errors::party(index)
}

/// The server of a job, between two sessions.
#[pyclass(frozen, module = "undertone._engine")]
pub(crate) struct TrainServer {
    job: training::Job,
    state: Arc<Mutex<State>>,
}

#[pymethods]
impl TrainServer {
    /// A new job from the parameters `first` on, or the one whose state is given.
    #[new]
    fn new(
        rules: &Bound<'_, PyAny>,
        first: Option<PyReadonlyArray1<'_, f32>>,
        state: Option<&[u8]>,
    ) -> PyResult<Self> {
        let job = job(rules, None)?;
        let state = match (first, state) {
            (_, Some(state)) => {
                State::read(state, &job).map_err(|why| value(format!("state: {why}")))?
            }
            (Some(first), None) => State::new(first.as_slice()?.to_vec()),
            (None, None) => return Err(value("give params or state")),
        };
        let state = Arc::new(Mutex::new(state));
        Ok(Self { job, state })
    }

    /// The clients of the next session, of those that are present.
    fn members(&self, present: Vec<i64>, seed: Option<[u8; 32]>) -> PyResult<Vec<i64>> {
        let mut present: Vec<PartyId> = present.into_iter().map(client).collect::<PyResult<_>>()?;
        present.sort_unstable();
        present.dedup();
        let mut prg = options::seed(seed)?.prg();
        Ok(numbers(
            &lock(&self.state).members(&self.job, &present, &mut prg),
        ))
    }

    /// Begins the next session, of these clients. The caller keeps the state before it sends
    /// anything.
    fn begin(
        &self,
        members: Vec<i64>,
        session: [u8; 32],
        seed: Option<[u8; 32]>,
    ) -> PyResult<PyParty> {
        let mut members: Vec<PartyId> = members.into_iter().map(client).collect::<PyResult<_>>()?;
        members.sort_unstable();
        members.dedup();
        let session = SessionId(session);
        let server = training::Server {
            job: self.job,
            session,
            members,
            seed: options::seed(seed)?,
        };
        let mut state = lock(&self.state);
        let is_over = state.is_over(&self.job);
        state.begin(&self.job);
        let party = server.party(&state, is_over).map_err(errors::misuse)?;
        drop(state);
        let shared = Arc::clone(&self.state);
        let convert = move |py: Python<'_>, report: Report| {
            lock(&shared).take(&report);
            gave(&report).into_py_any(py)
        };
        let place = (PartyId::SERVER, session);
        Ok(PyParty::new(
            place,
            party,
            None,
            MAX_EARLY,
            Arc::new(convert),
        ))
    }

    /// The state in bytes.
    fn state<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        let bytes = py.detach(|| lock(&self.state).write());
        PyBytes::new(py, &bytes)
    }

    /// The parameters of the model.
    fn params<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<f32>> {
        PyArray1::from_slice(py, &lock(&self.state).model)
    }

    /// The last round begun.
    #[getter]
    fn begun(&self) -> u32 {
        lock(&self.state).begun
    }

    /// The clients of the job, once the census has counted them.
    #[getter]
    fn clients(&self) -> Option<Vec<i64>> {
        let state = lock(&self.state);
        let clients = &state.census.as_ref()?.clients;
        Some(clients.iter().map(|client| number(client.id)).collect())
    }

    /// The groups of clients.
    #[getter]
    fn groups(&self) -> Vec<Vec<i64>> {
        groups(&lock(&self.state))
    }

    /// Whether all rounds are over. Clients may still wait for the final model.
    #[getter]
    fn over(&self) -> bool {
        let state = lock(&self.state);
        state.census.is_some() && state.is_over(&self.job)
    }

    /// The rounds that are finished, and their contributors.
    #[getter]
    fn taken(&self) -> Vec<(u32, Vec<i64>)> {
        let state = lock(&self.state);
        let taken = state.taken.iter();
        taken
            .map(|taken| (taken.number, numbers(&taken.contributors)))
            .collect()
    }
}
