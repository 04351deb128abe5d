//! Arguments that several functions share.

use std::sync::Arc;

use pyo3::IntoPyObjectExt;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDict, PyTuple};
use serde_json::Value;
use undertone::hamming::Backend;
use undertone::job::record::{Peer, Peers};
use undertone::job::settle::hex;
use undertone::job::{Entries, Job, Known, Terms, entries, from_offer, offer, settle, terms};
use undertone::kdf::Seed;
use undertone::party::PartyId;
use undertone::setup::identity::{Credentials, Identity, Pins};
use undertone::{cotrain, fedgraph, label, pssl, rounds, train};
use zeroize::Zeroize;

use crate::errors::{declined, value};

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
            } else if let Ok(texts) = given.extract::<Vec<String>>() {
                texts.into()
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

    /// The terms of a client.
    pub(crate) fn terms<J, T: Terms<J>>(self) -> PyResult<T> {
        terms::terms(self.0).map_err(value)
    }
}

/// What Python asks of the jobs of an application.
struct Jobs {
    digest: fn(&Stated) -> PyResult<[u8; 32]>,
    offer: fn(&Stated) -> PyResult<Vec<u8>>,
    read: fn(&[u8]) -> PyResult<Entries>,
    check: fn(&Stated, Stated, bool) -> PyResult<()>,
}

impl Jobs {
    fn of<J: Job, T: Terms<J>>() -> Self {
        Self {
            digest: |rules| Ok(rules.job::<J>()?.digest()),
            offer: |rules| Ok(offer(&rules.job::<J>()?)),
            read: |offer| Ok(entries(&from_offer::<J>(offer).map_err(value)?)),
            check: |rules, terms, signed| {
                let terms: T = terms.terms()?;
                terms::holds(&terms, &rules.job::<J>()?, signed).map_err(declined)
            },
        }
    }

    fn named(application: &str) -> PyResult<Self> {
        Ok(match application {
            cotrain::Job::NAME => Self::of::<cotrain::Job, cotrain::Terms>(),
            fedgraph::Job::NAME => Self::of::<fedgraph::Job, fedgraph::Terms>(),
            label::Job::NAME => Self::of::<label::Job, label::Terms>(),
            pssl::Job::NAME => Self::of::<pssl::Job, pssl::Terms>(),
            rounds::Job::NAME => Self::of::<rounds::Job, rounds::Terms>(),
            train::Job::NAME => Self::of::<train::Job, train::Terms>(),
            _ => return Err(value(format!("{application} is no application"))),
        })
    }
}

/// The digest of a job, by which parties compare their jobs.
#[pyfunction]
pub(crate) fn job_digest(application: &str, rules: Stated) -> PyResult<[u8; 32]> {
    (Jobs::named(application)?.digest)(&rules)
}

/// A job as a server offers it.
#[pyfunction]
pub(crate) fn job_offer<'py>(
    py: Python<'py>,
    application: &str,
    rules: Stated,
) -> PyResult<Bound<'py, PyBytes>> {
    let offer = (Jobs::named(application)?.offer)(&rules)?;
    Ok(PyBytes::new(py, &offer))
}

/// The keys and values of an offer.
#[pyfunction]
pub(crate) fn job_read<'py>(
    py: Python<'py>,
    application: &str,
    offer: &[u8],
) -> PyResult<Bound<'py, PyDict>> {
    let values = PyDict::new(py);
    for (key, given) in (Jobs::named(application)?.read)(offer)? {
        values.set_item(key, object(py, given)?)?;
    }
    Ok(values)
}

/// Checks a job against the terms of a client. `signed` says whether it knows a key of every
/// client.
#[pyfunction]
pub(crate) fn check_terms(
    application: &str,
    rules: Stated,
    terms: Stated,
    signed: bool,
) -> PyResult<()> {
    (Jobs::named(application)?.check)(&rules, terms, signed)
}

/// A value of a job in Python.
fn object<'py>(py: Python<'py>, given: Value) -> PyResult<Bound<'py, PyAny>> {
    match given {
        Value::Bool(flag) => flag.into_bound_py_any(py),
        Value::String(text) => text.into_bound_py_any(py),
        Value::Number(number) => match number.as_i64() {
            Some(whole) => whole.into_bound_py_any(py),
            None => number.as_f64().into_bound_py_any(py),
        },
        Value::Array(all) => {
            let all = all.into_iter().map(|one| object(py, one));
            PyTuple::new(py, all.collect::<PyResult<Vec<_>>>()?)?.into_bound_py_any(py)
        }
        Value::Null | Value::Object(_) => Ok(py.None().into_bound(py)),
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

/// The client `index` of a session whose clients it does not know yet.
pub(crate) fn party(index: usize) -> PyResult<PartyId> {
    client(index, MAX_CLIENTS)
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

    /// The public keys of all clients, in order.
    pub(crate) fn public(&self) -> &[[u8; 32]] {
        &self.1
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

/// Adds the names of backends: the default one, and all.
pub(crate) fn backends(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("BACKEND", Backend::default().to_string())?;
    let names = PyTuple::new(module.py(), Backend::ALL.map(|backend| backend.to_string()))?;
    module.add("BACKENDS", names)
}
