//! Arguments that several functions share.

use std::sync::Arc;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDict, PyTuple};
use undertone::hamming::{Backend, Phe};
use undertone::job::record::{Peer, Peers};
use undertone::job::settle::hex;
use undertone::job::{Entries, Job, Known, settle};
use undertone::kdf::Seed;
use undertone::label::Params;
use undertone::party::PartyId;
use undertone::setup::identity::{Credentials, Identity, Pins};
use undertone::{cotrain, pssl};
use zeroize::Zeroize;

use crate::errors::value;

/// What a caller states of a job: a dictionary. A value of `None` is not stated.
pub(crate) struct Stated(pub(crate) Entries);

impl<'py> FromPyObject<'_, 'py> for Stated {
    type Error = PyErr;

    fn extract(stated: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let stated = stated.cast::<PyDict>()?;
        let mut entries = Entries::new();
        for (key, given) in stated.iter().filter(|(_, given)| !given.is_none()) {
            let key: String = key.extract()?;
            let entry = if given.is_instance_of::<PyBool>() {
                given.extract::<bool>()?.into()
            } else if let Ok(bytes) = given.cast::<PyBytes>() {
                hex::write(bytes.as_bytes()).into()
            } else if let Ok(whole) = given.extract::<u64>() {
                whole.into()
            } else if let Ok(negative) = given.extract::<i64>() {
                negative.into()
            } else if let Ok(real) = given.extract::<f64>() {
                if !real.is_finite() {
                    return Err(value(format!("{key}: is not finite")));
                }
                real.into()
            } else {
                let why = |_| value(format!("{key}: is no number, text or truth value"));
                given.extract::<String>().map_err(why)?.into()
            };
            entries.insert(key, entry);
        }
        Ok(Self(entries))
    }
}

impl Stated {
    /// The job that follows. Callers state the server that sums withstand.
    pub(crate) fn job<J: Job>(&self) -> PyResult<J> {
        settle(self.0.clone(), Known::new(false)).map_err(value)
    }
}

/// The digest of a job, by which parties compare their jobs.
#[pyfunction]
pub(crate) fn job_digest(application: &str, rules: Stated) -> PyResult<[u8; 32]> {
    match application {
        cotrain::Job::NAME => Ok(rules.job::<cotrain::Job>()?.digest()),
        pssl::Job::NAME => Ok(rules.job::<pssl::Job>()?.digest()),
        _ => Err(value(format!("{application} is no application"))),
    }
}

/// The given seed, or one from the operating system.
pub(crate) fn seed(seed: Option<[u8; 32]>) -> PyResult<Seed> {
    match seed {
        Some(seed) => Ok(Seed::from_bytes(seed)),
        None => Seed::from_os().map_err(value),
    }
}

/// Most clients of a session.
const MAX_CLIENTS: usize = 1 << 16;

/// The clients of a session.
pub(crate) fn all(clients: usize) -> PyResult<Vec<PartyId>> {
    if clients > MAX_CLIENTS {
        return Err(PyValueError::new_err(format!(
            "{clients} clients; at most {MAX_CLIENTS} are allowed"
        )));
    }
    Ok((0..clients).map(PartyId::client).collect())
}

/// Client `index` of `clients`.
pub(crate) fn client(index: usize, clients: usize) -> PyResult<PartyId> {
    let ids = all(clients)?;
    ids.get(index).copied().ok_or_else(|| {
        PyValueError::new_err(format!(
            "client {index} of {clients}; clients are numbered from 0"
        ))
    })
}

/// A client's private key (PEM), the public keys of all clients in order, and their names or none.
#[derive(FromPyObject)]
pub(crate) struct Keys(String, Vec<[u8; 32]>, Vec<String>);

impl Drop for Keys {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl Keys {
    /// The clients, by their public keys.
    pub(crate) fn peers(&self) -> Arc<Peers> {
        let peer = |(index, key): (usize, &[u8; 32])| {
            let name = self.2.get(index).cloned().unwrap_or_default();
            (PartyId::client(index), Peer { key: *key, name })
        };
        Arc::new(self.1.iter().enumerate().map(peer).collect())
    }

    pub(crate) fn credentials(&self, me: PartyId) -> PyResult<Credentials> {
        let identity = Identity::from_pem(&self.0).map_err(value)?;
        let own = me.index().and_then(|index| self.1.get(index));
        if own != Some(&identity.public()) {
            return Err(PyValueError::new_err(format!(
                "the private key of {me} does not belong to its public key"
            )));
        }
        let pins = self.1.iter().enumerate();
        let pins = Pins::new(pins.map(|(index, key)| (PartyId::client(index), *key)));
        Ok(Credentials {
            identity,
            pins: pins.map_err(|error| value(error.to_string()))?,
        })
    }
}

/// The parameters of label propagation.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct LabelRules {
    bits: usize,
    neighbours: usize,
    alpha: f64,
    variant: String,
    backend: String,
    min_clients: usize,
    malicious_server: bool,
    suite: String,
}

impl LabelRules {
    pub(crate) fn params(&self) -> PyResult<Params> {
        let params = Params {
            bits: self.bits,
            neighbours: self.neighbours,
            alpha: self.alpha,
            variant: self.variant.parse().map_err(value)?,
            backend: backend(&self.backend)?,
            phe: Phe::default(),
            min_clients: self.min_clients,
            trust: self.malicious_server.into(),
            suite: self.suite.parse().map_err(value)?,
            job: None,
        };
        params.check().map_err(value)?;
        Ok(params)
    }
}

pub(crate) fn backend(name: &str) -> PyResult<Backend> {
    name.parse().map_err(value)
}

/// Adds the names of backends: the default one, all, and those that a client accepts by default.
pub(crate) fn backends(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let names = |backends: &[Backend]| {
        let names = backends.iter().map(Backend::to_string);
        PyTuple::new(module.py(), names.collect::<Vec<_>>())
    };
    module.add("BACKEND", Backend::default().to_string())?;
    module.add("BACKENDS", names(&Backend::ALL)?)?;
    module.add("ACCEPTED", names(&Backend::accepted())?)
}
