//! Records of answers.

use std::path::PathBuf;
use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use undertone::job::record::{Peers, Record, RecordError, TOLD, Volatile, default_folder};
use undertone::kdf::Seed;

use crate::errors::{self, value};
use crate::options::Keys;

/// What a record says: the day on which it was made, rows, answers (day, text), allowances (day,
/// what, reason, whether it is used), and what is left.
type Shown = (
    String,
    usize,
    Vec<(String, String)>,
    Vec<(String, &'static str, String, bool)>,
    Vec<String>,
);

enum Store {
    /// It is opened for each party: what a party says of its rows and its roster is its own.
    Disk {
        records: PathBuf,
        name: String,
        volatile: Volatile,
    },
    Memory(Record),
}

/// The record of answers of a client's data.
#[pyclass(frozen, module = "undertone._engine", name = "Record")]
pub(crate) struct PyRecord(Store);

pub(crate) fn volatile(accepted: bool) -> Volatile {
    if accepted {
        Volatile::Accepted
    } else {
        Volatile::Refused
    }
}

impl PyRecord {
    /// A handle of its own for one party.
    pub(crate) fn open(&self) -> Result<Record, RecordError> {
        match &self.0 {
            Store::Disk {
                records,
                name,
                volatile,
            } => Record::open(records, name, *volatile),
            Store::Memory(record) => Ok(record.clone()),
        }
    }
}

/// The folder of records: the given one, or the usual one.
fn folder(records: Option<PathBuf>) -> PyResult<PathBuf> {
    records
        .or_else(|| default_folder(None))
        .ok_or_else(|| value("this user has no home folder; name the folder of records (records=)"))
}

#[pymethods]
impl PyRecord {
    /// The record `name` in the folder `records`.
    #[new]
    fn new(name: String, records: Option<PathBuf>, accept_volatile: bool) -> PyResult<Self> {
        let store = Store::Disk {
            records: folder(records)?,
            name,
            volatile: volatile(accept_volatile),
        };
        let record = Self(store);
        record.open().map_err(value)?;
        Ok(record)
    }

    /// Makes it.
    #[staticmethod]
    fn create(name: String, records: Option<PathBuf>, accept_volatile: bool) -> PyResult<Self> {
        let (records, volatile) = (folder(records)?, volatile(accept_volatile));
        Record::create(&records, &name, volatile).map_err(value)?;
        Ok(Self(Store::Disk {
            records,
            name,
            volatile,
        }))
    }

    /// One in memory, or the one whose bytes these are.
    #[staticmethod]
    fn simulated(bytes: Option<&[u8]>) -> PyResult<Self> {
        let record = match bytes {
            None => Record::simulated(),
            Some(bytes) => Record::from_bytes(bytes).map_err(value)?,
        };
        Ok(Self(Store::Memory(record)))
    }

    /// What it holds; None on disk.
    fn state<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let Store::Memory(record) = &self.0 else {
            return Ok(None);
        };
        let bytes = record.to_bytes().map_err(value)?;
        Ok(bytes.map(|bytes| PyBytes::new(py, &bytes)))
    }

    /// Its name; None in memory.
    #[getter]
    fn name(&self) -> Option<&str> {
        match &self.0 {
            Store::Disk { name, .. } => Some(name),
            Store::Memory(_) => None,
        }
    }

    /// Its own folder; None in memory.
    #[getter]
    fn folder(&self) -> Option<PathBuf> {
        match &self.0 {
            Store::Disk { records, name, .. } => Some(records.join(name)),
            Store::Memory(_) => None,
        }
    }

    /// Lets the owner allow `what` once.
    fn allow(&self, py: Python<'_>, what: &str, reason: &str) -> PyResult<()> {
        let what = what
            .parse()
            .map_err(|why| value(format!("what is {why}")))?;
        let allowed = py.detach(|| self.open()?.allow(what, reason));
        allowed.map_err(value)
    }

    fn shown(&self, py: Python<'_>) -> PyResult<Shown> {
        let shown = py.detach(|| self.open()?.shown()).map_err(value)?;
        let allowed = shown.allowed.into_iter();
        let allowed = allowed.map(|(day, what, reason, used)| (day, what.name(), reason, used));
        Ok((
            shown.made,
            shown.rows,
            shown.answers,
            allowed.collect(),
            shown.left,
        ))
    }
}

/// The record that a party is given. Without one the party refuses, unless it is simulated.
pub(crate) fn given(record: Option<&Bound<'_, PyRecord>>) -> PyResult<Record> {
    match record {
        None => Ok(Record::none()),
        Some(record) => record.get().open().map_err(refused),
    }
}

/// Says whose keys the clients of a session have. Without keys a record on disk must not take the
/// clients for those of an earlier session.
pub(crate) fn know(record: &Record, keys: Option<&Keys>) {
    match keys {
        Some(keys) => record.know(keys.peers()),
        None if record.folder().is_some() => record.know(Arc::new(Peers::new())),
        None => {}
    }
}

/// Says which rows a party brings, and from which secret the noise on their labels is drawn.
pub(crate) fn bring(
    record: &Record,
    rows: impl IntoIterator<Item = [u8; 32]>,
    secret: Option<&Seed>,
) -> PyResult<()> {
    if record.folder().is_none() && !record.is_simulated() {
        return Ok(());
    }
    record.bring("this client's data", rows).map_err(refused)?;
    match secret {
        None => Ok(()),
        Some(secret) => record.label_secret(secret).map_err(refused),
    }
}

/// The digests of rows with so many values each.
pub(crate) fn digests<T: Copy + Into<f64>>(
    values: &[T],
    dim: usize,
) -> impl Iterator<Item = [u8; 32]> {
    use undertone::job::record::row;
    let rows = values.chunks_exact(dim.max(1));
    rows.map(|values| row(values.iter().map(|value| (*value).into())))
}

/// What a record does not allow, for its owner. The attribute `told` is for peers.
pub(crate) fn refused(why: impl std::fmt::Display) -> PyErr {
    Python::attach(|py| {
        let raised = errors::RefusedError::new_err(why.to_string());
        let _ = raised.value(py).setattr("told", TOLD);
        raised
    })
}
