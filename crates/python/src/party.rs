//! A party of any protocol as a Python object.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::ThreadId;

use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyTuple};
use undertone::job::Record;
use undertone::party::{Courier, Limits, Party, PartyId, Phase, SessionId, Status};

use crate::costs::{Cost, costs};
use crate::drive::{Again, Convert, Drive, Driven, Give};
use crate::errors;
use crate::pool;
use crate::record;

/// The first exception of the functions and objects that a party calls. It leaves through the call
/// of the party; peers are told only that the party failed.
#[derive(Clone, Default)]
pub(crate) struct Raised(Arc<Mutex<Option<PyErr>>>);

impl Raised {
    pub(crate) fn put(&self, error: PyErr) {
        let mut first = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        first.get_or_insert(error);
    }

    pub(crate) fn take(&self) -> Option<PyErr> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// Notes which thread works on a party, so that callbacks do not wait for themselves.
struct Working<'a>(&'a Mutex<Option<ThreadId>>);

impl<'a> Working<'a> {
    fn new(thread: &'a Mutex<Option<ThreadId>>) -> Self {
        *thread.lock().unwrap_or_else(PoisonError::into_inner) = Some(std::thread::current().id());
        Self(thread)
    }
}

impl Drop for Working<'_> {
    fn drop(&mut self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

struct Inner {
    drive: Box<dyn Drive>,
    status: Status,
    /// The first error. The party cannot continue after it.
    failed: Option<String>,
    /// The party has taken a step that is in a journal. It takes no others.
    is_replayed: bool,
}

/// Most bytes of a sender that are kept before their turn.
const MAX_EARLY: usize = 1 << 30;

/// A party of a protocol, which does no I/O.
#[pyclass(frozen, module = "undertone._engine", name = "Party")]
pub(crate) struct PyParty {
    inner: Mutex<Inner>,
    give: Option<Arc<dyn Give + Sync>>,
    /// The thread that works on this party. It may be in a callback.
    working: Mutex<Option<ThreadId>>,
    /// What the callbacks raise.
    raised: Raised,
    /// What a client has answered. None for a server.
    record: Option<Record>,
    id: PartyId,
    session: SessionId,
}

impl PyParty {
    /// The party `party` as `id` in `session`.
    pub(crate) fn new<P: Party + Send + 'static>(
        place: (PartyId, SessionId),
        party: P,
        convert: Convert<P::Output>,
    ) -> Self
    where
        P::Output: Send + 'static,
    {
        Self::held(place, party, None, MAX_EARLY, convert)
    }

    /// The same, with at most `max_early` bytes of a sender kept before their turn. With `give` the
    /// party is held at a phase, until it has its values.
    pub(crate) fn held<P: Party + Send + 'static>(
        (id, session): (PartyId, SessionId),
        party: P,
        give: Option<(Phase, Arc<dyn Give + Sync>)>,
        max_early: usize,
        convert: Convert<P::Output>,
    ) -> Self
    where
        P::Output: Send + 'static,
    {
        let courier = Courier::new(id, session, Limits::default(), party).keeping(max_early);
        let courier = match &give {
            Some((phase, _)) => courier.hold_at(*phase),
            None => courier,
        };
        let drive = Box::new(Driven::new(courier, convert));
        Self {
            inner: Mutex::new(Inner {
                drive,
                status: Status::Sending,
                failed: None,
                is_replayed: false,
            }),
            working: Mutex::new(None),
            raised: Raised::default(),
            record: None,
            give: give.map(|(_, give)| give),
            id,
            session,
        }
    }

    /// The same party, which calls functions and objects that put what they raise into `raised`.
    pub(crate) fn with_callbacks(self, raised: Raised) -> Self {
        Self { raised, ..self }
    }

    /// The same party, which claims its answers in `record`.
    pub(crate) fn with_record(self, record: Record) -> Self {
        let record = Some(record);
        Self { record, ..self }
    }

    /// What a failed call raises: the exception of a callback, or the owner's sentence of a
    /// refusal, which say more than the abort that follows from them.
    fn reason(&self, error: PyErr) -> PyErr {
        if let Some(raised) = self.raised.take() {
            return raised;
        }
        let why = self.record.as_ref().and_then(Record::refused);
        match why.filter(|_| errors::is_refusal(&error)) {
            Some(why) => record::refused(why),
            None => error,
        }
    }

    /// Works on the party without the interpreter.
    fn with<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut Inner) -> PyResult<T> + Send,
    ) -> PyResult<T> {
        pool::detach(py, || {
            let working = *self.working.lock().unwrap_or_else(PoisonError::into_inner);
            if working == Some(std::thread::current().id()) {
                return Err(PyRuntimeError::new_err(
                    "a callback must not use the party that calls it",
                ));
            }
            let mut inner = self
                .inner
                .lock()
                .map_err(|_| PyRuntimeError::new_err("an earlier call panicked: this is a bug"))?;
            let _working = Working::new(&self.working);
            work(&mut inner).map_err(|error| self.reason(error))
        })
    }
}

impl Inner {
    /// Refuses steps that no journal would have.
    fn may_step(&self) -> PyResult<()> {
        if self.is_replayed {
            return Err(PyValueError::new_err(
                "this party has been replayed; its next step takes a new party and replay()",
            ));
        }
        Ok(())
    }

    /// Notes a failure of the party.
    fn note<T>(&mut self, result: PyResult<T>) -> PyResult<T> {
        if let Err(error) = &result {
            self.failed.get_or_insert_with(|| error.to_string());
        }
        result
    }
}

#[pymethods]
impl PyParty {
    /// Takes a frame of `sender`.
    fn push(&self, py: Python<'_>, sender: i64, frame: &[u8]) -> PyResult<()> {
        let from = errors::party(sender)?;
        self.with(py, |inner| {
            inner.may_step()?;
            let pushed = inner.drive.push(from, frame.to_vec());
            pushed.map_err(errors::courier)
        })
    }

    /// Says that `who` has dropped out.
    fn gone(&self, py: Python<'_>, who: i64) -> PyResult<()> {
        let who = errors::party(who)?;
        self.with(py, |inner| {
            inner.drive.gone(who);
            Ok(())
        })
    }

    /// Abandons the protocol.
    fn abandon(&self, py: Python<'_>) -> PyResult<()> {
        self.with(py, |inner| {
            inner.drive.abandon();
            Ok(())
        })
    }

    /// Frames that are due, as (receiver, frame), about `most` bytes of them.
    fn poll<'py>(&self, py: Python<'py>, most: usize) -> PyResult<Bound<'py, PyList>> {
        let frames = self.with(py, |inner| {
            inner.may_step()?;
            let mut frames = Vec::new();
            let mut send = |to, frame| frames.push((to, frame));
            let polled = inner.drive.poll(most, &mut send);
            // The notices first. The next call returns the same error.
            if polled.is_ok() || frames.is_empty() {
                inner.status = inner.note(polled.map_err(|error| errors::aborted(&error)))?;
            }
            Ok(frames)
        });
        let list = PyList::empty(py);
        for (to, frame) in frames? {
            let to = errors::number(to).into_pyobject(py)?.into_any();
            list.append(PyTuple::new(py, [to, PyBytes::new(py, &frame).into_any()])?)?;
        }
        Ok(list)
    }

    /// Takes a bundle of frames. Returns the bundle of all frames that are due.
    fn exchange<'py>(&self, py: Python<'py>, bundle: &[u8]) -> PyResult<Bound<'py, PyBytes>> {
        let out = self.with(py, |inner| {
            inner.may_step()?;
            let mut out = Vec::new();
            let status = inner.drive.exchange(bundle, &mut out);
            inner.status = inner.note(status.map_err(errors::courier))?;
            Ok(out)
        })?;
        Ok(PyBytes::new(py, &out))
    }

    /// Where the client has no record, it has one in memory from now on.
    fn simulate(&self) {
        if let Some(record) = &self.record {
            record.simulate();
        }
    }

    /// Gives the values that are due at the upload. Returns how many were clipped.
    fn contribute(
        &self,
        py: Python<'_>,
        arrays: &Bound<'_, PyAny>,
        weight: f64,
    ) -> PyResult<usize> {
        let give = self.give.as_ref();
        let give = give.ok_or_else(|| PyValueError::new_err("this party takes no values"))?;
        let clipped = crate::arrays::with_values(py, arrays, |values| {
            give.values(values, weight, None).map_err(errors::misuse)
        })?;
        self.with(py, |inner| {
            inner.drive.release();
            Ok(())
        })?;
        Ok(clipped)
    }

    /// Runs this new party again over the messages `past`, and takes `message`. `values` returns
    /// arrays, weight, and how many of the arrays the record knows, or None for all, when they are
    /// due; `sent` is their digest if an earlier message has sent them. Returns the reply.
    #[allow(clippy::too_many_arguments)]
    fn replay<'py>(
        &self,
        py: Python<'py>,
        journal: PathBuf,
        past: Vec<Vec<u8>>,
        message: &[u8],
        values: Py<PyAny>,
        sent: Option<[u8; 32]>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let again = Again {
            journal,
            session: self.session,
            past,
            message,
            sent,
        };
        let give = self.give.as_deref();
        let mut input = || {
            Python::attach(|py| {
                let give = give.ok_or_else(|| PyValueError::new_err("no values are taken"))?;
                let given = values.call0(py)?;
                let (arrays, weight, known): (Bound<'_, PyAny>, f64, Option<usize>) =
                    given.extract(py)?;
                crate::arrays::with_values(py, &arrays, |values| {
                    give.values(values, weight, known).map_err(errors::misuse)
                })?;
                Ok(())
            })
        };
        let reply = self.with(py, |inner| {
            inner.may_step()?;
            inner.is_replayed = true;
            let give = give.map(|give| give as &dyn Give);
            let stepped = inner.drive.again(again, give, &mut input);
            let (reply, status) = inner.note(stepped)?;
            inner.status = status;
            Ok(reply)
        })?;
        Ok(PyBytes::new(py, &reply))
    }

    /// sending, waiting, held or done.
    #[getter]
    fn status(&self, py: Python<'_>) -> PyResult<&'static str> {
        self.with(py, |inner| Ok(name(inner.status)))
    }

    #[getter]
    fn done(&self, py: Python<'_>) -> PyResult<bool> {
        self.with(py, |inner| Ok(inner.drive.is_done()))
    }

    #[getter]
    fn failed(&self, py: Python<'_>) -> PyResult<Option<String>> {
        self.with(py, |inner| Ok(inner.failed.clone()))
    }

    /// The digest of the values that were given, by which the record knows them.
    #[getter]
    fn sent(&self) -> Option<[u8; 32]> {
        self.give.as_ref().and_then(|give| give.sent())
    }

    #[getter]
    fn waits_for(&self, py: Python<'_>) -> PyResult<Vec<i64>> {
        self.with(py, |inner| {
            let waits = inner.drive.waits_for();
            Ok(waits.into_iter().map(errors::number).collect())
        })
    }

    #[getter]
    fn phase(&self, py: Python<'_>) -> PyResult<&'static str> {
        self.with(py, |inner| Ok(inner.drive.phase().name))
    }

    #[getter]
    fn id(&self) -> i64 {
        errors::number(self.id)
    }

    /// For each phase: name, bytes sent, bytes received, messages, rounds, seconds.
    fn costs(&self, py: Python<'_>) -> PyResult<Vec<Cost>> {
        self.with(py, |inner| {
            Ok(inner.drive.ledger().map(costs).unwrap_or_default())
        })
    }

    /// The result, once.
    fn result(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        let converted = self.with(py, |inner| Ok(inner.drive.result()))?;
        converted.map(|convert| convert(py)).transpose()
    }
}

/// The status of a party in Python.
fn name(status: Status) -> &'static str {
    match status {
        Status::Sending => "sending",
        Status::Waiting => "waiting",
        Status::Held => "held",
        Status::Done => "done",
    }
}
