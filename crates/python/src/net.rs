//! The client and the server on a network, and the command line.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use pyo3::prelude::*;
use undertone::job::record::{Record, default_folder};
use undertone::node::client::{Config, JoinError, Joined};

use crate::client::{self, PyClient};
use crate::costs::{Cost, costs};
use crate::errors::{self, AbortedError, UndertoneError, value};
use crate::home::{Caller, Leaves};
use crate::pool;
use crate::record::{self, PyRecord};

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

    /// Whether the caller says which record it is.
    fn names_a_record(&self) -> bool {
        let is_named = self.record.is_some() || self.record_name.is_some();
        is_named || self.records.is_some() || self.accept_volatile
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

/// Takes part in a job, on a thread of its own, and returns the result. Signals of the process, and
/// exceptions of the functions that it calls, end it.
#[pyfunction]
#[pyo3(signature = (link, client, progress))]
pub(crate) fn join(
    py: Python<'_>,
    link: Link,
    client: &Bound<'_, PyClient>,
    progress: Option<Py<PyAny>>,
) -> PyResult<(Py<PyAny>, Spent)> {
    let own = client.get();
    let mut config = link.config(py)?.with_columns(own.columns());
    if own.has_record() && link.names_a_record() {
        return Err(client::fixed());
    }
    let record = own.record(|| link.record(&config))?;
    let caller = Caller::new(link.interrupt);
    let home = caller.home();
    if let Some(progress) = progress {
        let (progress, home) = (Arc::new(progress), home.clone());
        config.observer = Some(Arc::new(move |phase| {
            let progress = Arc::clone(&progress);
            // Its exception has ended the work.
            let _ = home.call(Leaves::AsItIs, move |py| {
                progress.call1(py, (phase.name,)).map(drop)
            });
        }));
    }
    let (joined, raised) = caller.run(py, |stopped| {
        let stop = async {
            let _ = stopped.await;
        };
        own.join(&config, home, stop)
    });
    let joined = joined?;
    let raised = match raised {
        Some(raised) if raised.leaves == Leaves::AsItIs => return Err(raised.error),
        raised => raised,
    };
    let joined = joined.map_err(|error| {
        // Peers read less.
        let error = record
            .refused()
            .map_or_else(|| failure(&error), record::refused);
        if let Some(raised) = raised {
            error.set_cause(py, Some(raised.error));
        }
        error
    })?;
    let result = own.result(py)?;
    let result = result
        .ok_or_else(|| AbortedError::new_err("the job ended without a result for this client"))?;
    Ok((result, spent(&joined)))
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
