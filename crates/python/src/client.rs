//! What a client brings to a job of any application, and its part in the job at every door.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};

use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use tokio::runtime::Runtime;
use undertone::job::record::Peers;
use undertone::job::{Agreed, Job as _, Participant, Record, SessionContext};
use undertone::kdf::Seed;
use undertone::node::client::{self, Config, JoinError, Joined};
use undertone::party::SessionId;

use crate::drive::Convert;
use crate::errors::{declined, unwilling, value};
use crate::home::{Home, Leaves};
use crate::options::{self, Keys, Stated};
use crate::party::{PyParty, Raised};
use crate::pool::{self, Ready};
use crate::record::{self, PyRecord};
use crate::sessions::lock;

/// How a client's parties call the functions and objects of the caller.
#[derive(Clone, Default)]
pub(crate) struct Callbacks {
    raised: Raised,
    /// The thread that joined a job on a network. A client that has done that calls nothing
    /// elsewhere, also when its session outlives the call.
    home: Arc<Mutex<Option<Home>>>,
}

impl Callbacks {
    /// Calls `work` with the interpreter: on the thread that joined a job, or on this one. Its
    /// exception stays in this process.
    ///
    /// # Errors
    /// What went wrong, for this side alone.
    pub(crate) fn call<T: Send + 'static>(
        &self,
        work: impl FnOnce(Python<'_>) -> PyResult<T> + Send + 'static,
    ) -> Result<T, String> {
        let home = lock(&self.home).clone();
        match home {
            Some(home) => home.call(Leaves::AsCause, work),
            None => Python::attach(work).map_err(|error| {
                let text = error.to_string();
                self.raised.put(error);
                text
            }),
        }
    }

    /// The first exception, once.
    pub(crate) fn raised(&self) -> &Raised {
        &self.raised
    }
}

/// An object of the caller, such as a model.
#[derive(Clone)]
pub(crate) struct Object {
    object: Arc<Py<PyAny>>,
    callbacks: Callbacks,
}

impl Object {
    pub(crate) fn new(object: Py<PyAny>, callbacks: &Callbacks) -> Self {
        Self {
            object: Arc::new(object),
            callbacks: callbacks.clone(),
        }
    }

    /// Works with the object, as [`Callbacks::call`] does.
    pub(crate) fn call<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Bound<'_, PyAny>) -> PyResult<T> + Send + 'static,
    ) -> Result<T, String> {
        let object = Arc::clone(&self.object);
        self.callbacks.call(move |py| work(object.bind(py)))
    }
}

/// Says to a client's record which rows it brings, once it has one.
pub(crate) type Bring<P> = Box<dyn FnOnce(P, &Record) -> PyResult<P> + Send>;

/// Brings the rows that have these digests. Noise on their labels is drawn from `secret`.
pub(crate) fn bring<P>(digests: Vec<[u8; 32]>, secret: Option<Seed>) -> Bring<P> {
    Box::new(move |part, record| {
        record::bring(record, digests, secret.as_ref())?;
        Ok(part)
    })
}

/// What the constructor of an application's client gives.
pub(crate) struct Brought<P: Participant> {
    pub(crate) part: P,
    pub(crate) bring: Bring<P>,
    pub(crate) callbacks: Callbacks,
    /// Makes the result of a session.
    pub(crate) convert: Convert<P::Output>,
}

/// A client without the type of its application.
trait AnyClient: Send {
    fn name(&self) -> &'static str;
    /// From now on the client's record is this one.
    fn keep_to(&mut self, record: Record) -> PyResult<()>;
    fn agree(&mut self, rules: &Stated, is_signed: bool) -> PyResult<()>;
    fn party(&mut self, rules: &Stated, at: SessionContext) -> PyResult<PyParty>;
    fn join(
        &mut self,
        runtime: &Runtime,
        config: &Config,
        stop: Pin<Box<dyn Future<Output = ()> + Send>>,
    ) -> PyResult<Result<Joined, JoinError>>;
    /// Makes the result of the last session of a job on a network, once.
    fn result(&mut self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>>;
}

/// The error of a caller who names a record too late.
pub(crate) fn fixed() -> PyErr {
    PyValueError::new_err(
        "this client's record is fixed; name it where the client is made, or else before it agrees \
         to a job, and not at both places",
    )
}

enum Part<P: Participant> {
    /// It has no record yet.
    New(P, Bring<P>),
    Agreed(Arc<Mutex<Agreed<Ready<P>>>>),
    Used,
}

struct Typed<P: Participant> {
    part: Part<P>,
    callbacks: Callbacks,
    convert: Convert<P::Output>,
    /// The result of a job on a network.
    output: Option<P::Output>,
}

impl<P: Participant> Typed<P> {
    fn agreed(&self) -> PyResult<&Arc<Mutex<Agreed<Ready<P>>>>> {
        match &self.part {
            Part::Agreed(agreed) => Ok(agreed),
            _ => Err(value(
                "this client is used up: it has taken part in a job on a network, or its record \
                 has refused its rows; make a new one",
            )),
        }
    }
}

impl<P: Participant> AnyClient for Typed<P> {
    fn name(&self) -> &'static str {
        P::Job::NAME
    }

    fn keep_to(&mut self, record: Record) -> PyResult<()> {
        self.part = match std::mem::replace(&mut self.part, Part::Used) {
            Part::New(part, bring) => {
                let part = bring(part, &record)?;
                Part::Agreed(Arc::new(Mutex::new(Agreed::new(Ready(part), record))))
            }
            other => other,
        };
        Ok(())
    }

    fn agree(&mut self, rules: &Stated, is_signed: bool) -> PyResult<()> {
        let job = rules.job::<P::Job>()?;
        let agreed = lock(self.agreed()?).agree_to(job, is_signed);
        agreed.map_err(declined)
    }

    fn party(&mut self, rules: &Stated, at: SessionContext) -> PyResult<PyParty> {
        self.agree(rules, at.credentials.is_some())?;
        let place = (at.me, at.id);
        let agreed = Arc::clone(self.agreed()?);
        let party = lock(&agreed).client(at).map_err(unwilling)?;
        let party = party.map(move |output| {
            lock(&agreed).note(&output);
            output
        });
        let party = PyParty::new(place, party, Arc::clone(&self.convert));
        Ok(party.with_callbacks(self.callbacks.raised().clone()))
    }

    fn join(
        &mut self,
        runtime: &Runtime,
        config: &Config,
        stop: Pin<Box<dyn Future<Output = ()> + Send>>,
    ) -> PyResult<Result<Joined, JoinError>> {
        let agreed = Arc::clone(self.agreed()?);
        self.part = Part::Used;
        let mut agreed = lock(&agreed);
        let joined = runtime.block_on(client::join(config, &mut agreed, stop));
        self.output = agreed.take_output();
        Ok(joined)
    }

    fn result(&mut self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        let output = self.output.take();
        output.map(|output| (self.convert)(py, output)).transpose()
    }
}

/// What a client brings to a job of one application. It takes part in one job.
#[pyclass(frozen, module = "undertone._engine", name = "Client")]
pub(crate) struct PyClient {
    inner: Mutex<Box<dyn AnyClient>>,
    callbacks: Callbacks,
    record: Mutex<Option<Record>>,
    /// The public keys of all clients in the first session, or none.
    keys: Mutex<Option<Vec<[u8; 32]>>>,
    /// The names of the client's columns, or none.
    columns: Vec<String>,
}

impl PyClient {
    /// A client with this record. Without one it must [keep](Self::keep_to) to one later.
    pub(crate) fn new<P: Participant>(
        brought: Brought<P>,
        columns: Vec<String>,
        record: Option<&Bound<'_, PyRecord>>,
    ) -> PyResult<Self> {
        let callbacks = brought.callbacks;
        let client = Self {
            inner: Mutex::new(Box::new(Typed {
                part: Part::New(brought.part, brought.bring),
                callbacks: callbacks.clone(),
                convert: brought.convert,
                output: None,
            })),
            callbacks,
            record: Mutex::default(),
            keys: Mutex::default(),
            columns,
        };
        if let Some(record) = record {
            client.keep_to(record.get().open().map_err(record::refused)?)?;
        }
        Ok(client)
    }

    fn inner(&self) -> PyResult<MutexGuard<'_, Box<dyn AnyClient>>> {
        self.inner.try_lock().map_err(|_| {
            PyRuntimeError::new_err(
                "this client takes part in a job on a network; wait for its end",
            )
        })
    }

    /// The names of the client's columns, or none.
    pub(crate) fn columns(&self) -> &[String] {
        &self.columns
    }

    /// Whether the client's record is fixed: it has one, or has agreed to a job without.
    pub(crate) fn has_record(&self) -> bool {
        lock(&self.record).is_some()
    }

    /// The client's record, which is `usual` from now on if it has none.
    pub(crate) fn record(&self, usual: impl FnOnce() -> PyResult<Record>) -> PyResult<Record> {
        if let Some(record) = &*lock(&self.record) {
            return Ok(record.clone());
        }
        let record = usual()?;
        self.keep_to(record.clone())?;
        Ok(record)
    }

    /// The client's record, to read it. None is fixed by that.
    fn looked_up(&self) -> Record {
        lock(&self.record).clone().unwrap_or_else(Record::none)
    }

    fn keep_to(&self, record: Record) -> PyResult<()> {
        self.inner()?.keep_to(record.clone())?;
        *lock(&self.record) = Some(record);
        Ok(())
    }

    /// Takes part in a job on a network, from the thread `home` on. The client is used up.
    pub(crate) fn join(
        &self,
        config: &Config,
        home: Home,
        stop: impl Future<Output = ()> + Send + 'static,
    ) -> PyResult<Result<Joined, JoinError>> {
        let mut inner = self.inner()?;
        pool::ready()?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .map_err(value)?;
        *lock(&self.callbacks.home) = Some(home);
        let joined = inner.join(&runtime, config, Box::pin(stop));
        runtime.shutdown_timeout(std::time::Duration::from_secs(1));
        joined
    }

    /// The result of the job on a network.
    pub(crate) fn result(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        self.inner()?.result(py)
    }
}

#[pymethods]
impl PyClient {
    /// The application, as users type it.
    #[getter]
    fn application(&self) -> PyResult<&'static str> {
        Ok(self.inner()?.name())
    }

    #[getter(has_record)]
    fn is_fixed(&self) -> bool {
        self.has_record()
    }

    /// The names of the client's columns, or none.
    #[getter(columns)]
    fn names(&self) -> Vec<String> {
        self.columns.clone()
    }

    /// Agrees to a job. `is_signed` says whether the client knows a key of every client.
    fn agree(&self, py: Python<'_>, rules: Stated, is_signed: bool) -> PyResult<()> {
        self.record(|| Ok(Record::none()))?;
        let agreed = pool::detach(py, || self.inner()?.agree(&rules, is_signed));
        self.callbacks.raised().take().map_or(agreed, Err)
    }

    /// From now on the client's record is this one.
    fn keep(&self, record: Option<&Bound<'_, PyRecord>>) -> PyResult<()> {
        if self.has_record() {
            return Err(fixed());
        }
        self.keep_to(record::given(record)?)
    }

    /// The client's party in session `number` of a job.
    #[allow(clippy::too_many_arguments)]
    fn session(
        &self,
        py: Python<'_>,
        rules: Stated,
        session: [u8; 32],
        index: usize,
        number: u32,
        credentials: Option<Keys>,
        seed: Option<[u8; 32]>,
    ) -> PyResult<PyParty> {
        let (me, session) = (options::party(index)?, SessionId(session));
        let record = self.record(|| Ok(Record::none()))?;
        // One record: it compares clients by the keys of one roster.
        let keys = credentials.as_ref().map(Keys::public).unwrap_or_default();
        if *lock(&self.keys).get_or_insert_with(|| keys.to_vec()) != keys {
            return Err(value(
                "the public keys are others than in this client's first session",
            ));
        }
        let peers = match &credentials {
            Some(keys) => Some(keys.peers()),
            // A record on disk must not take the clients for those of an earlier session.
            None => record.folder().map(|_| Arc::new(Peers::new())),
        };
        let at = SessionContext {
            number,
            peers,
            credentials: credentials.map(|keys| keys.credentials(me)).transpose()?,
            ..SessionContext::new(session, me, options::seed(seed)?)
        };
        let party = pool::detach(py, || self.inner()?.party(&rules, at));
        let party = self.callbacks.raised().take().map_or(party, Err)?;
        Ok(party.with_record(record))
    }

    /// The last round of training in which the record lets the client have begun, if it has a
    /// census.
    fn last_round(&self, py: Python<'_>) -> PyResult<Option<u32>> {
        let record = self.looked_up();
        let census = py.detach(|| record.census()).map_err(value)?;
        Ok(census.map(|census| census.last))
    }

    /// The last exchange of co-training in which the client voted; 0 before the first.
    fn last_vote(&self, py: Python<'_>) -> PyResult<u32> {
        let record = self.looked_up();
        py.detach(|| record.last_vote()).map_err(value)
    }
}
