//! The client and the server on a network, and the command line.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use numpy::{IntoPyArray, PyArrayDyn, PyArrayMethods, PyUntypedArrayMethods};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use undertone::arrays::{Arrays, Values};
use undertone::data::parts::ClassTable;
use undertone::job::record::{Record, default_folder};
use undertone::job::{Agreed, Participant};
use undertone::kdf::Seed;
use undertone::label::{self, LabelNoise};
use undertone::node::client::{self, Config, JoinError, Joined};
use undertone::rounds::{self, Contribution, Mean, Round, Source};

use crate::arrays::{self, contiguous};
use crate::costs::{Cost, costs};
use crate::errors::{self, AbortedError, UndertoneError, value};
use crate::home::{Caller, Home, Leaves};
use crate::options::Stated;
use crate::pool::{self, Ready};
use crate::record::{self, PyRecord};
use crate::table::{self, Stated as Named};

/// How a client reaches its server.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct Link {
    server: String,
    keys: PathBuf,
    server_name: Option<String>,
    retry: f64,
    patience: f64,
    interrupt: Py<PyAny>,
    record: Option<Py<PyRecord>>,
    /// The name of the record, unless it is the client's on its roster.
    record_name: Option<String>,
    records: Option<PathBuf>,
    accept_volatile: bool,
}

impl Link {
    /// How the client reaches its server.
    fn config(&self, py: Python<'_>) -> PyResult<Config> {
        let found =
            undertone_cli::client_config(&self.server, &self.keys, self.server_name.clone());
        let (mut config, warnings) = found.map_err(value)?;
        for warning in warnings {
            let kind = py.get_type::<pyo3::exceptions::PyUserWarning>();
            let text = std::ffi::CString::new(warning).map_err(value)?;
            PyErr::warn(py, &kind, &text, 2)?;
        }
        config.retry = seconds("retry", self.retry)?;
        config.patience = seconds("patience", self.patience)?;
        Ok(config)
    }

    /// The record of the data of the client in `config`.
    fn record(&self, config: &Config) -> PyResult<Record> {
        if let Some(record) = &self.record {
            return record.get().open().map_err(record::refused);
        }
        let folder = self.records.clone();
        let folder = folder.or_else(|| default_folder(Some(&self.keys)));
        let folder =
            folder.ok_or_else(|| value("no folder for records is known; name one (records=)"))?;
        let name = self.record_name.as_deref().unwrap_or(&config.name);
        let opened = Record::open(&folder, name, record::volatile(self.accept_volatile));
        opened.map_err(record::refused)
    }
}

fn seconds(name: &str, seconds: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(seconds).map_err(|error| value(format!("{name}: {error}")))
}

/// Takes part in a job, on a thread of its own. Signals of the process, and exceptions of the
/// functions that it calls, end it. `make` makes the participant.
fn join<P: Participant>(
    py: Python<'_>,
    (mut config, interrupt): (Config, Py<PyAny>),
    record: &Record,
    progress: Option<Py<PyAny>>,
    make: impl FnOnce(&Home) -> P,
) -> PyResult<(Agreed<Ready<P>>, Joined)> {
    let caller = Caller::new(interrupt);
    let home = caller.home();
    let mut participant = Agreed::new(Ready(make(&home)), record.clone());
    if let Some(progress) = progress {
        let progress = Arc::new(progress);
        config.observer = Some(Arc::new(move |phase| {
            let progress = Arc::clone(&progress);
            // Its exception has ended the work.
            let _ = home.call(Leaves::AsItIs, move |py| {
                progress.call1(py, (phase.name,)).map(drop)
            });
        }));
    }
    let (joined, raised) = caller.run(py, |stopped| {
        pool::ready()?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .map_err(value)?;
        let stopped = async {
            let _ = stopped.await;
        };
        let joined = runtime.block_on(client::join(&config, &mut participant, stopped));
        runtime.shutdown_timeout(Duration::from_secs(1));
        Ok::<_, PyErr>(joined)
    });
    let joined = joined?;
    let raised = match raised {
        Some(raised) if raised.leaves == Leaves::AsItIs => return Err(raised.error),
        raised => raised,
    };
    match joined {
        Ok(joined) => Ok((participant, joined)),
        Err(error) => {
            // Peers read less.
            let error = record
                .refused()
                .map_or_else(|| failure(&error), record::refused);
            if let Some(raised) = raised {
                error.set_cause(py, Some(raised.error));
            }
            Err(error)
        }
    }
}

fn failure(error: &JoinError) -> PyErr {
    match error {
        JoinError::Config(_) => value(error),
        JoinError::Refused(_) | JoinError::Declined(_) | JoinError::Untrusted { .. } => {
            errors::RefusedError::new_err(error.to_string())
        }
        JoinError::Unreachable { .. } => UndertoneError::new_err(error.to_string()),
        JoinError::Aborted(aborted) => errors::aborted(aborted),
        _ => AbortedError::new_err(error.to_string()),
    }
}

/// Sessions, returns, seconds, and the costs of each phase.
type Spent = (u32, u32, f64, Vec<Cost>);

fn spent(joined: &Joined) -> Spent {
    let seconds = joined.time.as_secs_f64();
    (
        joined.sessions,
        joined.returned,
        seconds,
        costs(&joined.ledger),
    )
}

/// Takes part in a job of label propagation. `columns` are the names of features, or empty. Returns
/// labels, confidences, scores and costs.
#[pyfunction]
#[pyo3(signature = (link, terms, features, labels, columns, bits, classes, noise, progress))]
#[allow(clippy::too_many_arguments)]
pub(crate) fn join_label(
    py: Python<'_>,
    link: Link,
    terms: Stated,
    features: &Bound<'_, PyAny>,
    labels: &Bound<'_, PyAny>,
    columns: Vec<String>,
    bits: Option<usize>,
    classes: Option<Named>,
    noise: Option<(f64, [u8; 32])>,
    progress: Option<Py<PyAny>>,
) -> PyResult<(Py<PyAny>, Spent)> {
    let rows = arrays::rows(features, bits.unwrap_or(0))?;
    let classes = classes.map(Named::classes).transpose()?;
    let name = "this client".to_owned();
    let part = table::part(name, rows.clone(), labels, columns, classes.as_ref())?;
    let own = ClassTable {
        count: part.data.class_count(),
        names: part.data.class_names.clone(),
    };
    let labelling = part.labelling(&own).map_err(value)?;
    let config = link.config(py)?.with_columns(&part.data.columns);
    let record = link.record(&config)?;
    let noise = noise.map(|(epsilon, secret)| (epsilon, Seed::from_bytes(secret)));
    let secret = noise.as_ref().map(|(_, secret)| secret);
    record::bring(&record, rows.digests(), secret)?;
    let mut client = label::Client::new(terms.terms()?, rows, labelling);
    match noise {
        Some(_) if classes.is_none() => {
            return Err(value(
                "with noise on labels, classes must be given: their number must follow neither \
                 from the labels nor from the job",
            ));
        }
        Some((epsilon, secret)) => {
            let noise = LabelNoise::new(epsilon, secret).map_err(value)?;
            client = client.with_label_noise(noise);
        }
        None if classes.is_none() => client = client.with_classes_of_the_job(),
        None => {}
    }
    let (client, joined) = join(py, (config, link.interrupt), &record, progress, |_| client)?;
    let outcome = client.into_output().and_then(|gained| gained.outcome());
    let outcome = outcome.ok_or_else(|| AbortedError::new_err("the job ended without labels"))?;
    let labelled = crate::label::labelled(py, outcome)?;
    Ok((
        labelled.into_pyobject(py)?.into_any().unbind(),
        spent(&joined),
    ))
}

/// Python functions that give a client's arrays for each round, and take means.
struct Functions {
    home: Home,
    contribute: Arc<Py<PyAny>>,
    mean: Option<Arc<Py<PyAny>>>,
    last: Arc<Mutex<Option<Arc<Mean>>>>,
}

fn to_dict<'py>(py: Python<'py>, arrays: &Arrays) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    for array in arrays.iter() {
        let values = match array.values() {
            Values::Single(values) => values.to_vec().into_pyarray(py).into_any(),
            Values::Double(values) => values.to_vec().into_pyarray(py).into_any(),
        };
        let shaped = values.call_method1("reshape", (array.shape().to_vec(),))?;
        dict.set_item(array.name(), shaped)?;
    }
    Ok(dict)
}

/// The Python layer has made these arrays float32 or float64, row after row.
fn from_dict(dict: &Bound<'_, PyDict>) -> PyResult<Arrays> {
    let mut arrays = Arrays::new();
    for (name, array) in dict.iter() {
        let name: String = name.extract()?;
        let pushed = if let Ok(array) = array.cast::<PyArrayDyn<f32>>() {
            let array = array.try_readonly().map_err(value)?;
            arrays.push(name, array.shape().to_vec(), contiguous(&array)?.to_vec())
        } else if let Ok(array) = array.cast::<PyArrayDyn<f64>>() {
            let array = array.try_readonly().map_err(value)?;
            arrays.push(name, array.shape().to_vec(), contiguous(&array)?.to_vec())
        } else {
            return Err(value(format!(
                "array {name}: a float32 or float64 array of numpy is needed"
            )));
        };
        pushed.map_err(value)?;
    }
    Ok(arrays)
}

impl Source for Functions {
    fn contribute(&mut self, round: &Round) -> Result<Contribution, String> {
        let (contribute, round) = (Arc::clone(&self.contribute), round.clone());
        let asked = self.home.call(Leaves::AsCause, move |py| {
            let mean = round
                .mean
                .as_ref()
                .map(|mean| to_dict(py, &mean.arrays))
                .transpose()?;
            let given = contribute.call1(py, (round.number, round.attempt, mean))?;
            let (arrays, weight): (Bound<'_, PyDict>, f64) = given.extract(py)?;
            let arrays = from_dict(&arrays)?;
            Ok(Contribution { arrays, weight })
        });
        // Peers are told that this client leaves, and not why.
        asked.map_err(|error| format!("the function contribute failed: {error}"))
    }

    fn mean(&mut self, mean: &Arc<Mean>) -> Result<(), String> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        *last = Some(Arc::clone(mean));
        drop(last);
        let Some(function) = &self.mean else {
            return Ok(());
        };
        let (function, mean) = (Arc::clone(function), Arc::clone(mean));
        let told = self.home.call(Leaves::AsCause, move |py| {
            let who = errors::numbers(&mean.contributors);
            let arrays = to_dict(py, &mean.arrays)?;
            let arguments = (mean.round, arrays, mean.weight, who);
            function.call1(py, arguments).map(drop)
        });
        told.map_err(|error| format!("the function mean failed: {error}"))
    }

    fn coarse(&mut self, warning: &str) {
        errors::warn(&format!("the mean shows little of {warning}"));
    }
}

/// Takes part in a job of rounds of sums or means. Returns the last mean and the costs.
#[pyfunction]
#[pyo3(signature = (link, terms, contribute, mean, progress))]
pub(crate) fn join_sum(
    py: Python<'_>,
    link: Link,
    terms: Stated,
    contribute: Py<PyAny>,
    mean: Option<Py<PyAny>>,
    progress: Option<Py<PyAny>>,
) -> PyResult<(Option<Py<PyAny>>, Spent)> {
    let terms = terms.terms()?;
    let last = Arc::default();
    let config = link.config(py)?;
    let record = link.record(&config)?;
    let (_, joined) = join(py, (config, link.interrupt), &record, progress, |home| {
        let functions = Functions {
            home: home.clone(),
            contribute: Arc::new(contribute),
            mean: mean.map(Arc::new),
            last: Arc::clone(&last),
        };
        rounds::Client::new(terms, functions)
    })?;
    let last = last.lock().unwrap_or_else(PoisonError::into_inner).take();
    let last = last.map(|mean| to_dict(py, &mean.arrays)).transpose()?;
    Ok((last.map(|last| last.into_any().unbind()), spent(&joined)))
}

/// Runs the command line, which `own` starts as another process. Returns the exit code.
#[pyfunction]
pub(crate) fn main(
    py: Python<'_>,
    arguments: Vec<std::ffi::OsString>,
    own: Vec<std::ffi::OsString>,
) -> PyResult<u8> {
    undertone_cli::started_by(own);
    pool::detach(py, || Ok(undertone_cli::main(arguments)))
}
