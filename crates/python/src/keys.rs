//! Keys, rosters and journals.

use std::path::PathBuf;

use pyo3::prelude::*;
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
