//! Rust errors as Python exceptions.

use std::fmt::Display;

use pyo3::create_exception;
use pyo3::exceptions::{PyException, PyUserWarning, PyValueError};
use pyo3::prelude::*;
use undertone::job::record::TOLD;
use undertone::job::simulation::SimulationError;
use undertone::job::{Decline, Unwilling};
use undertone::party::{Abort, Aborted, CourierError, PartyId};
use undertone::replay::ReplayError;

use crate::record;

create_exception!(
    undertone,
    UndertoneError,
    PyException,
    "The base of Undertone's exceptions."
);
create_exception!(
    undertone,
    AbortedError,
    UndertoneError,
    "A protocol ended without a result. `party`, `phase` and `culprit` say where and through whom: \
     numbers of clients, -1 for the server, None if nobody is to blame."
);
create_exception!(
    undertone,
    RefusedError,
    UndertoneError,
    "What is asked for would break a promise to this party, such as one seed for two transcripts."
);

/// The number of a party in Python: -1 for the server.
pub(crate) fn number(id: PartyId) -> i64 {
    id.index().map_or(-1, |index| index as i64)
}

/// The numbers of parties.
pub(crate) fn numbers(who: &[PartyId]) -> Vec<i64> {
    who.iter().copied().map(number).collect()
}

/// The inverse of [`number`].
pub(crate) fn party(number: i64) -> PyResult<PartyId> {
    match number {
        -1 => Ok(PartyId::SERVER),
        0..=0xffff_fffe => Ok(PartyId::client(number as usize)),
        _ => Err(PyValueError::new_err(format!(
            "{number} is no party; clients are numbered from 0, and -1 is the server"
        ))),
    }
}

/// The same exception, with the client in its text.
pub(crate) fn of_client(py: Python<'_>, place: usize, error: PyErr) -> PyErr {
    prefixed(py, &format!("client {place}"), &error)
}

/// The same exception, about `what`.
pub(crate) fn prefixed(py: Python<'_>, what: &str, error: &PyErr) -> PyErr {
    let text = format!("{what}: {}", error.value(py));
    PyErr::from_type(error.get_type(py), text)
}

/// A warning. Where warnings are errors, it must not take results away.
pub(crate) fn warn(text: &str) {
    Python::attach(|py| {
        let Ok(text) = std::ffi::CString::new(text) else {
            return;
        };
        if let Err(error) = PyErr::warn(py, &py.get_type::<PyUserWarning>(), &text, 2) {
            error.write_unraisable(py, None);
        }
    });
}

pub(crate) fn value(error: impl Display) -> PyErr {
    PyValueError::new_err(error.to_string())
}

/// An argument that a party refuses.
pub(crate) fn misuse(error: Abort) -> PyErr {
    value(error)
}

/// A job that a client declines. What others are not told is about the client's own data.
pub(crate) fn declined(why: Decline) -> PyErr {
    if why.told() != why.to_string() {
        return value(why);
    }
    RefusedError::new_err(why.to_string())
}

/// A session in which a client takes no part.
pub(crate) fn unwilling(why: Unwilling) -> PyErr {
    match why {
        Unwilling::Skips(why) => value(why),
        Unwilling::Leaves(cause) => misuse(cause),
    }
}

/// Whether this party has aborted because of its record. [`PyParty`](crate::party::PyParty) has the
/// reason.
pub(crate) fn is_refusal(error: &PyErr) -> bool {
    Python::attach(|py| {
        error.is_instance_of::<RefusedError>(py) && error.value(py).to_string() == TOLD
    })
}

pub(crate) fn aborted(error: &Aborted) -> PyErr {
    if error.cause == Abort::Misuse(TOLD.into()) {
        return record::refused(TOLD);
    }
    Python::attach(|py| {
        let raised = AbortedError::new_err(error.to_string());
        let object = raised.value(py);
        let _ = object.setattr("party", number(error.party));
        let _ = object.setattr("phase", error.phase.name);
        let _ = object.setattr("culprit", error.cause.culprit().map(number));
        raised
    })
}

pub(crate) fn courier(error: CourierError) -> PyErr {
    match error {
        CourierError::Aborted(error) => aborted(&error),
        other => value(other),
    }
}

pub(crate) fn replay(error: ReplayError) -> PyErr {
    match error {
        ReplayError::Party(error) => courier(error),
        other => RefusedError::new_err(other.to_string()),
    }
}

pub(crate) fn simulation(error: SimulationError) -> PyErr {
    match error {
        SimulationError::Aborted(error) => aborted(&error),
        other => UndertoneError::new_err(other.to_string()),
    }
}
