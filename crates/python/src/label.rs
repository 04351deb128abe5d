//! Label propagation: all parties in one process, or one party.

use std::sync::Arc;

use numpy::ndarray::Array2;
use numpy::{IntoPyArray, PyArray1, PyArray2};
use pyo3::prelude::*;
use undertone::data::parts;
use undertone::job::{Agreed, Application as _, SessionContext};
use undertone::kdf::Seed;
use undertone::label::{Client, Ended, Gained, Job, LabelNoise, Outcome, Report, Server};
use undertone::party::{PartyId, SessionId};
use undertone::simulate::{Simulation, standardise};

use crate::arrays;
use crate::costs::{Spent, spent};
use crate::errors::{self, declined, misuse, numbers, simulation, unwilling, value};
use crate::interrupt;
use crate::options::{self, Keys};
use crate::party::PyParty;
use crate::pool;
use crate::record::{self, PyRecord};
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
    let params = job.params;
    let classes = classes.map(Named::classes).transpose()?;
    let mut parts = Vec::with_capacity(features.len());
    let brought = features.iter().zip(&labels).zip(columns).enumerate();
    for (client, ((features, labels), columns)) in brought {
        let rows = arrays::rows(features, params.bits);
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
        let mut spent_before = Vec::new();
        if job.standardise {
            let seed = Seed::derive(&seed, SessionId([0; 32]), "scaling", &[]);
            spent_before = standardise(params, &mut clients, seed).map_err(simulation)?;
        }
        let run = Simulation {
            params,
            clients,
            seed,
        };
        let observer = |who: PartyId, phase: undertone::party::Phase| {
            tell(&|| format!("{phase}, {who}"));
        };
        let run = match label_epsilon {
            None => run.run(observer),
            Some(epsilon) => run.run_with_label_noise(epsilon, observer),
        };
        let mut run = run.map_err(simulation)?;
        for ((_, ledger), (_, before)) in run.ledgers.iter_mut().zip(&spent_before) {
            ledger.add(before);
        }
        Ok(run)
    })?;
    let mut all = Vec::with_capacity(run.clients.len());
    for outcome in run.clients {
        let outcome = outcome.map_err(|error| crate::errors::aborted(&error))?;
        all.push(labelled(py, outcome)?);
    }
    let learned = learned(py, &run.report);
    Ok((all, learned, spent(&run.ledgers), classes.names))
}

/// Refuses jobs of two sessions: a party is of one.
fn one_session(job: &Job) -> PyResult<()> {
    if job.standardise {
        return Err(value(
            "standardise takes a session of its own; bring features to one scale before, or join \
             a job on a network",
        ));
    }
    Ok(())
}

/// The client `index` of label propagation.
#[pyfunction]
#[allow(clippy::too_many_arguments)]
pub(crate) fn label_client(
    rules: options::Stated,
    terms: options::Stated,
    session: [u8; 32],
    index: usize,
    clients: usize,
    features: &Bound<'_, PyAny>,
    labels: &Bound<'_, PyAny>,
    classes: Named,
    credentials: Option<Keys>,
    noise: Option<(f64, [u8; 32])>,
    record: Option<&Bound<'_, PyRecord>>,
    seed: Option<[u8; 32]>,
) -> PyResult<PyParty> {
    pool::ready()?;
    let (me, session) = (options::client(index, clients)?, SessionId(session));
    let job = rules.job::<Job>()?;
    one_session(&job)?;
    let rows = arrays::rows(features, job.params.bits)?;
    let own = table::labelling(&rows, labels, classes)?;
    let record = record::given(record)?;
    let noise = noise.map(|(epsilon, secret)| (epsilon, Seed::from_bytes(secret)));
    let secret = noise.as_ref().map(|(_, secret)| secret);
    record::bring(&record, rows.digests(), secret)?;
    record::know(&record, credentials.as_ref());
    let mut client = Client::new(terms.terms()?, rows, own);
    if let Some((epsilon, secret)) = noise {
        client = client.with_label_noise(LabelNoise::new(epsilon, secret).map_err(value)?);
    }
    let mut client = Agreed::new(client, record.clone());
    client
        .agree_to(job, credentials.is_some())
        .map_err(declined)?;
    let at = SessionContext {
        credentials: credentials.map(|keys| keys.credentials(me)).transpose()?,
        ..SessionContext::new(session, me, options::seed(seed)?)
    };
    let party = client.client(at).map_err(unwilling)?;
    let convert = move |py: Python<'_>, gained: Gained| {
        let outcome = gained
            .outcome()
            .ok_or_else(|| value("a session without labels"))?;
        Ok(labelled(py, outcome)?
            .into_pyobject(py)?
            .into_any()
            .unbind())
    };
    let party = PyParty::new((me, session), party, Arc::new(convert));
    Ok(party.with_record(record))
}

/// The server of label propagation.
#[pyfunction]
#[pyo3(signature = (rules, session, clients, seed))]
pub(crate) fn label_server(
    rules: options::Stated,
    session: [u8; 32],
    clients: usize,
    seed: Option<[u8; 32]>,
) -> PyResult<PyParty> {
    pool::ready()?;
    let (ids, session) = (options::all(clients)?, SessionId(session));
    let job = rules.job::<Job>()?;
    one_session(&job)?;
    let at = SessionContext::new(session, PartyId::SERVER, options::seed(seed)?);
    let party = Server::new(job).server(at, ids).map_err(misuse)?;
    let convert = |py: Python<'_>, ended: Ended| match ended {
        Ended::Labelled(report) => Ok(learned(py, &report).into_pyobject(py)?.into_any().unbind()),
        _ => Err(value("a session without labels")),
    };
    let place = (PartyId::SERVER, session);
    Ok(PyParty::new(place, party, Arc::new(convert)))
}
