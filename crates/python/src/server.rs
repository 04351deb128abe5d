//! The server of a job of any application, between two sessions.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use pyo3::prelude::*;
use undertone::job::{Application, Next, SessionContext};
use undertone::kdf::Seed;
use undertone::party::{Abort, Aborted, Inbox, Party, PartyId, Phase, SessionId, Step};

use crate::drive::Convert;
use crate::errors::{misuse, numbers, value};
use crate::options;
use crate::party::PyParty;
use crate::pool;
use crate::sessions::{self, lock};

/// What the server of an application shows of its state, by name.
pub(crate) type Look<A> = fn(Python<'_>, &A, &str) -> PyResult<Py<PyAny>>;

/// A server whose application has no state that it shows.
pub(crate) fn nothing<A>(_: Python<'_>, _: &A, what: &str) -> PyResult<Py<PyAny>> {
    Err(value(format!("the server has no {what}")))
}

/// The server of an application.
pub(crate) struct Typed<A: Application> {
    application: Arc<Mutex<A>>,
    is_done: Arc<Mutex<bool>>,
    convert: Convert<A::Report>,
    look: Look<A>,
}

/// A server without the type of its application.
trait AnyServer: Send + Sync {
    fn restore(&self, path: PathBuf) -> PyResult<()>;
    fn members(&self, present: &[PartyId], seed: &Seed) -> Vec<PartyId>;
    fn needed(&self, present: usize) -> usize;
    fn number(&self) -> u32;
    fn is_done(&self) -> bool;
    fn party(&self, members: Vec<PartyId>, at: SessionContext) -> PyResult<PyParty>;
    fn look(&self, py: Python<'_>, what: &str) -> PyResult<Py<PyAny>>;
}

impl<A: Application> AnyServer for Typed<A> {
    fn restore(&self, path: PathBuf) -> PyResult<()> {
        let mut application = lock(&self.application);
        application.restore(&path).map_err(value)?;
        application.ready().map_err(value)
    }

    fn members(&self, present: &[PartyId], seed: &Seed) -> Vec<PartyId> {
        let mut application = lock(&self.application);
        let eligible = application.eligible();
        let able = |id: &PartyId| eligible.as_ref().is_none_or(|all| all.contains(id));
        let present: Vec<_> = present.iter().copied().filter(able).collect();
        application.members(&present, &mut seed.prg())
    }

    fn needed(&self, present: usize) -> usize {
        lock(&self.application).needed(present)
    }

    fn number(&self) -> u32 {
        lock(&self.application).number()
    }

    fn is_done(&self) -> bool {
        *lock(&self.is_done)
    }

    fn party(&self, members: Vec<PartyId>, at: SessionContext) -> PyResult<PyParty> {
        let place = (at.me, at.id);
        let party = lock(&self.application).server(at, members);
        let (application, is_done) = (Arc::clone(&self.application), Arc::clone(&self.is_done));
        let ended = move |report: Result<&A::Report, &Aborted>| {
            let next = lock(&application).ended(report);
            *lock(&is_done) = next == Next::Done;
        };
        let party = Watched {
            party: party.map_err(misuse)?,
            ended,
        };
        Ok(PyParty::new(place, party, Arc::clone(&self.convert)))
    }

    fn look(&self, py: Python<'_>, what: &str) -> PyResult<Py<PyAny>> {
        (self.look)(py, &lock(&self.application), what)
    }
}

/// A server's party whose end its application learns.
struct Watched<P, F> {
    party: P,
    ended: F,
}

impl<P, F> Party for Watched<P, F>
where
    P: Party,
    F: FnOnce(Result<&P::Output, &Aborted>) + Send,
{
    type Output = P::Output;

    fn phase(&self) -> Phase {
        self.party.phase()
    }

    fn step(self, inbox: Inbox) -> Result<Step<Self>, Abort> {
        let Self { party, ended } = self;
        let phase = party.phase();
        match party.step(inbox) {
            Ok(Step::Continue { out, need, next }) => {
                Ok(Step::wait(out, need, Self { party: next, ended }))
            }
            Ok(Step::Done { out, output }) => {
                ended(Ok(&output));
                Ok(Step::done(out, output))
            }
            Err(cause) => {
                let party = PartyId::SERVER;
                ended(Err(&Aborted {
                    party,
                    phase,
                    cause: cause.clone(),
                }));
                Err(cause)
            }
        }
    }
}

/// The server of a job, between two sessions.
#[pyclass(frozen, module = "undertone._engine", name = "Server")]
pub(crate) struct PyServer(Box<dyn AnyServer>);

impl PyServer {
    pub(crate) fn new<A: Application>(
        application: A,
        convert: Convert<A::Report>,
        look: Look<A>,
    ) -> Self {
        Self(Box::new(Typed {
            application: Arc::new(Mutex::new(application)),
            is_done: Arc::default(),
            convert,
            look,
        }))
    }
}

#[pymethods]
impl PyServer {
    /// Keeps the state of the job in a file, and continues the job in that file.
    fn restore(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        py.detach(|| self.0.restore(path))
    }

    /// The clients of the next session, of those that are present.
    fn members(&self, present: Vec<i64>, seed: Option<[u8; 32]>) -> PyResult<Vec<i64>> {
        let present = sessions::clients(present)?;
        Ok(numbers(&self.0.members(&present, &options::seed(seed)?)))
    }

    /// Begins the next session with those of the clients that are present. What the server must
    /// remember is on disk when this returns. Returns the session's number, its clients, and the
    /// server's party.
    fn begin(
        &self,
        py: Python<'_>,
        present: Vec<i64>,
        session: [u8; 32],
        seed: Option<[u8; 32]>,
    ) -> PyResult<(u32, Vec<i64>, PyParty)> {
        let (present, session) = (sessions::clients(present)?, SessionId(session));
        let seed = options::seed(seed)?;
        let draws = seed.derive(session, "members of a session", &[]);
        let members = self.0.members(&present, &draws);
        let needed = self.0.needed(present.len());
        if members.len() < needed {
            return Err(value(format!(
                "no session can begin: of the clients {:?} {} can take part, {needed} are needed",
                numbers(&present),
                members.len()
            )));
        }
        let number = self.0.number();
        let at = SessionContext {
            number,
            ..SessionContext::new(session, PartyId::SERVER, seed)
        };
        let clients = numbers(&members);
        let party = pool::detach(py, || self.0.party(members, at))?;
        Ok((number, clients, party))
    }

    /// Whether the job is over: its last session has ended.
    #[getter]
    fn done(&self) -> bool {
        self.0.is_done()
    }

    /// A part of the state, by name.
    fn look(&self, py: Python<'_>, what: &str) -> PyResult<Py<PyAny>> {
        self.0.look(py, what)
    }
}
