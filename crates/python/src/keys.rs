//! Keys, rosters, and files that a face keeps.

use std::path::PathBuf;

use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use undertone::job::Checkpoint;
use undertone::node::Roster;
use undertone::party::SessionId;
use undertone::replay;
use undertone::setup::identity::Identity;

use crate::errors::{self, value};
use crate::options;

/// Deletes the journals in `folder` of all sessions but `session`.
#[pyfunction]
pub(crate) fn keep_journal(py: Python<'_>, folder: PathBuf, session: [u8; 32]) -> PyResult<()> {
    py.detach(|| replay::keep_only(&folder, SessionId(session)).map_err(errors::replay))
}

/// A new private key, as PEM.
#[pyfunction]
pub(crate) fn generate_key() -> PyResult<String> {
    let pem = Identity::from_seed(&options::seed(None)?).to_pem();
    Ok(pem.map_err(value)?.to_string())
}

/// The public key, 32 bytes, of a private key (PEM).
#[pyfunction]
pub(crate) fn public_key(pem: &str) -> PyResult<[u8; 32]> {
    Ok(Identity::from_pem(pem).map_err(value)?.public())
}

/// The clients of a roster (TOML), in order: name and public key.
#[pyfunction]
pub(crate) fn read_roster(text: &str) -> PyResult<Vec<(String, Option<[u8; 32]>)>> {
    let roster = Roster::parse(text).map_err(value)?;
    let entries = roster.entries().iter();
    Ok(entries
        .map(|entry| (entry.name.clone(), entry.key))
        .collect())
}

/// Most bytes that a face keeps beside the state of a job.
const MAX_BESIDE: usize = 1 << 24;

/// A file in which a face keeps what it needs, beside the state of the job `offer`, to continue.
#[pyclass(frozen, module = "undertone._engine", name = "Checkpoint")]
pub(crate) struct PyCheckpoint {
    file: Checkpoint,
    found: Option<Vec<u8>>,
}

#[pymethods]
impl PyCheckpoint {
    #[new]
    fn new(py: Python<'_>, path: PathBuf, offer: &[u8]) -> PyResult<Self> {
        let name = "a face in Python";
        let opened = py.detach(|| Checkpoint::open(&path, name, offer, MAX_BESIDE));
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
