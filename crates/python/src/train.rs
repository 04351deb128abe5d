//! Training with propagated labels: all parties in one process, or one party.

use std::sync::Arc;

use numpy::{IntoPyArray, PyArray1, PyReadonlyArray1, PyReadonlyArray2};
use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use undertone::job::Terms as _;
use undertone::kdf::Seed;
use undertone::label::LabelNoise;
use undertone::party::{Network, SessionId};
use undertone::train::{
    Census, Client, Data, Inputs, Job, Report, Server, Simulation, State, Step, Terms,
};

use crate::arrays::{self, contiguous};
use crate::client::{self, Brought, Callbacks, Object, PyClient};
use crate::costs::Spent;
use crate::errors::{self, number, numbers, of_client, simulation as failed, value};
use crate::model::PyModel;
use crate::options::{self, Stated};
use crate::pool;
use crate::record::PyRecord;
use crate::server::{self, PyServer};
use crate::sessions::Simulated;
use crate::table::{self, Stated as Named};

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
        let callbacks = Callbacks::default();
        let raised = callbacks.raised().clone();
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
            let model = Box::new(PyModel(Object::new(model, &callbacks)));
            clients.push(Client::of(Terms::anything(), Inputs { model, data }));
        }
        let server = Server::new(job, contiguous(&first)?.to_vec());
        let simulation = Simulation::new(server, clients, seed);
        if let Some(error) = raised.take() {
            return Err(error);
        }
        let simulation = simulation.map_err(failed)?;
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

/// A client. `classes` are what it states of them; with `noise` it must.
#[pyfunction]
#[allow(clippy::too_many_arguments)]
pub(crate) fn train_client(
    terms: Stated,
    model: Py<PyAny>,
    features: &Bound<'_, PyAny>,
    labels: &Bound<'_, PyAny>,
    columns: Vec<String>,
    classes: Option<Named>,
    noise: Option<(f64, [u8; 32])>,
    record: Option<&Bound<'_, PyRecord>>,
) -> PyResult<PyClient> {
    let rows = arrays::rows(features, 0)?;
    let is_stated = classes.is_some();
    if noise.is_some() && !is_stated {
        return Err(value(
            "noise needs classes: with another number of classes every label is drawn anew, so the \
             server must not choose it",
        ));
    }
    let own = table::labelling(&rows, labels, columns.clone(), classes)?;
    if !is_stated && !own.names().is_empty() {
        return Err(value(
            "labels are names; state all classes (classes=), in an order that all clients share",
        ));
    }
    let (digests, mut secret) = (rows.digests(), None);
    let noise = match noise {
        None => None,
        Some((epsilon, bytes)) => {
            secret = Some(Seed::from_bytes(bytes));
            Some(LabelNoise::new(epsilon, Seed::from_bytes(bytes)).map_err(value)?)
        }
    };
    let callbacks = Callbacks::default();
    let model = Object::new(model, &callbacks);
    let mut loaded = Some(rows);
    let make = move |job: &Job| {
        if is_stated && own.classes() != job.classes {
            return Err(format!(
                "the job has {} classes, this client has {} (classes)",
                job.classes,
                own.classes()
            ));
        }
        let rows = loaded.as_ref().ok_or("the rows are in use")?;
        let data = Data::for_job(job, rows, &own, noise.as_ref())?;
        let model = Box::new(PyModel(model.clone()));
        let inputs = Inputs { model, data };
        inputs.check(job)?;
        loaded = None;
        Ok(inputs)
    };
    let convert = |py: Python<'_>, step: Step| did(py, step).into_py_any(py);
    let brought = Brought {
        part: Client::new(terms.terms()?, make),
        bring: client::bring(digests, secret),
        callbacks,
        convert: Arc::new(convert),
    };
    PyClient::new(brought, columns, record)
}

/// The server, from the parameters `first` on.
#[pyfunction]
pub(crate) fn train_server(rules: Stated, first: PyReadonlyArray1<'_, f32>) -> PyResult<PyServer> {
    let server = Server::new(job(&rules, None)?, contiguous(&first)?.to_vec());
    let convert = |py: Python<'_>, report: Report| gave(&report).into_py_any(py);
    Ok(PyServer::new(server, Arc::new(convert), look))
}

/// The server's state: the model's parameters, the last round begun, the clients of the job once
/// the census has counted them, their groups, whether all rounds are over, and the rounds that are
/// finished with their contributors.
fn look(py: Python<'_>, server: &Server, what: &str) -> PyResult<Py<PyAny>> {
    let state = server.state();
    match what {
        "params" => PyArray1::from_slice(py, &state.model).into_py_any(py),
        "begun" => state.begun.into_py_any(py),
        "clients" => {
            let census = state.census.as_ref();
            let clients = census.map(|census| census.clients.iter());
            let clients = clients.map(|all| all.map(|client| number(client.id)));
            clients.map(Vec::from_iter).into_py_any(py)
        }
        "groups" => groups(state).into_py_any(py),
        "over" => (state.census.is_some() && server.is_over()).into_py_any(py),
        "rounds" => {
            let taken = state.taken.iter();
            let taken = taken.map(|taken| (taken.number, numbers(&taken.contributors)));
            taken.collect::<Vec<_>>().into_py_any(py)
        }
        _ => server::nothing(py, server, what),
    }
}
