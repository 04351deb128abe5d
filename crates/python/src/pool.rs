//! The threads on which the engine works, in a process that was forked, too.
//!
//! Threads do not survive a fork, and rayon's global pool, once made, is never made again: work of
//! a forked process would wait forever for threads that only its parent has. So in a process that
//! was forked after its parent had used the engine, each thread that works has a pool of its own,
//! which ends with it. In all other processes the global pool does the work.

use std::cell::RefCell;
use std::sync::atomic::{AtomicU32, Ordering};

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use rayon::{ThreadPool, ThreadPoolBuilder};
use undertone::job::{Next, Participant, SessionContext, Unwilling};
use undertone::party::{Abort, Inbox, Party, Phase, Script, Step};

/// The process whose global pool may be used: the first one that used the engine. 0 for none.
static FIRST: AtomicU32 = AtomicU32::new(0);

thread_local! {
    /// The process that made this thread's pool, and the pool.
    static OWN: RefCell<Option<(u32, ThreadPool)>> = const { RefCell::new(None) };
}

/// Makes this thread ready for work of the engine. All work begins with it.
///
/// # Errors
/// An exception in a process that was forked twice, each time by a thread that had used the engine.
pub(crate) fn ready() -> PyResult<()> {
    let me = std::process::id();
    match FIRST.compare_exchange(0, me, Ordering::Relaxed, Ordering::Relaxed) {
        Ok(_) => return Ok(()),
        Err(first) if first == me => return Ok(()),
        Err(_) => {}
    }
    OWN.with_borrow_mut(|own| {
        if own.as_ref().is_some_and(|(process, _)| *process == me) {
            return Ok(());
        }
        let pool = ThreadPoolBuilder::new().use_current_thread().build();
        let pool = pool.map_err(|_| {
            PyRuntimeError::new_err(
                "undertone was used in this process's parent, which was forked itself, and cannot \
                 be used here; start the process with multiprocessing.get_context(\"spawn\")",
            )
        })?;
        *own = Some((me, pool));
        Ok(())
    })
}

/// Works without the interpreter.
pub(crate) fn detach<T: Send>(
    py: Python<'_>,
    work: impl FnOnce() -> PyResult<T> + Send,
) -> PyResult<T> {
    ready()?;
    py.detach(work)
}

/// A client's half whose parties run on threads that are ready for work.
pub(crate) struct Ready<P>(pub(crate) P);

impl<P: Participant> Participant for Ready<P> {
    type Job = P::Job;
    type Terms = P::Terms;
    type Output = P::Output;

    fn terms(&self) -> &P::Terms {
        self.0.terms()
    }

    fn prepare(&mut self, job: &P::Job) -> Result<(), String> {
        self.0.prepare(job)
    }

    fn rows(&self) -> Option<Vec<[u8; 32]>> {
        self.0.rows()
    }

    fn client(
        &mut self,
        job: &P::Job,
        at: SessionContext,
    ) -> Result<Script<'static, P::Output>, Unwilling> {
        let party = Stepped(self.0.client(job, at)?);
        Ok(Script::new(party.phase(), move |io| async move {
            io.run(party).await
        }))
    }

    fn may_repeat(&self) -> bool {
        self.0.may_repeat()
    }

    fn ended(&mut self, output: &P::Output) -> Next {
        self.0.ended(output)
    }
}

/// A party that makes each thread ready on which it takes a step.
struct Stepped<P>(P);

impl<P: Party> Party for Stepped<P> {
    type Output = P::Output;

    fn phase(&self) -> Phase {
        self.0.phase()
    }

    fn step(self, inbox: Inbox) -> Result<Step<Self>, Abort> {
        ready().map_err(|error| Abort::Misuse(error.to_string()))?;
        Ok(match self.0.step(inbox)? {
            Step::Continue { out, need, next } => Step::wait(out, need, Self(next)),
            Step::Done { out, output } => Step::done(out, output),
        })
    }
}
