//! What jobs of many sessions have in common.

use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use undertone::job::simulation::SimulationError;
use undertone::party::{At, Ledger, Network, PartyId};

use crate::costs::{self, Spent};
use crate::errors::{self, simulation, value};
use crate::interrupt;
use crate::party::Raised;

/// All parties of a job in this process, between two sessions.
pub(crate) struct Simulated<S> {
    inner: Mutex<Inner<S>>,
    raised: Raised,
}

struct Inner<S> {
    simulation: S,
    ledgers: Vec<(PartyId, Ledger)>,
}

impl<S: Send> Simulated<S> {
    /// The parties call objects that put what they raise into `raised`.
    pub(crate) fn new(simulation: S, raised: Raised) -> Self {
        let ledgers = Vec::new();
        Self {
            inner: Mutex::new(Inner {
                simulation,
                ledgers,
            }),
            raised,
        }
    }

    fn inner(&self) -> PyResult<MutexGuard<'_, Inner<S>>> {
        self.inner.try_lock().map_err(|_| {
            PyRuntimeError::new_err("a session of this job runs, or has ended in the middle")
        })
    }

    /// Looks at the simulation, if no session runs.
    pub(crate) fn look<T>(&self, look: impl FnOnce(&S) -> T) -> PyResult<T> {
        Ok(look(&self.inner()?.simulation))
    }

    /// Runs the next session.
    pub(crate) fn step<T: Send>(
        &self,
        py: Python<'_>,
        progress: Option<Py<PyAny>>,
        run: impl FnOnce(&mut S, Network<'_>) -> Result<T, SimulationError> + Send,
        ledgers: fn(&T) -> &[(PartyId, Ledger)],
    ) -> PyResult<T> {
        interrupt::run(py, progress, |tell| {
            let mut inner = self.inner()?;
            let mut observer = interrupt::observer(tell);
            let observer = |at: &At| {
                // The other clients would learn on, for nothing.
                if let Some(error) = self.raised.take() {
                    interrupt::raise(error);
                }
                observer(at);
            };
            let ran = run(&mut inner.simulation, Network::new().observe(observer));
            if let Some(error) = self.raised.take() {
                return Err(error);
            }
            let ran = ran.map_err(simulation)?;
            costs::add(&mut inner.ledgers, ledgers(&ran));
            Ok(ran)
        })
    }

    /// What each party has spent so far.
    pub(crate) fn costs(&self) -> PyResult<Spent> {
        Ok(costs::spent(&self.inner()?.ledgers))
    }
}

/// A client's number in Python.
pub(crate) fn client(index: i64) -> PyResult<PartyId> {
    if index < 0 {
        return Err(value(format!(
            "client {index}; clients are numbered from 0"
        )));
    }
    errors::party(index)
}

/// The clients with these numbers, in order, each once.
pub(crate) fn clients(numbers: Vec<i64>) -> PyResult<Vec<PartyId>> {
    let mut clients: Vec<PartyId> = numbers.into_iter().map(client).collect::<PyResult<_>>()?;
    clients.sort_unstable();
    clients.dedup();
    Ok(clients)
}

/// The state, also after a panic: each change of it is complete.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
