//! Functions of the caller, which run on the thread that called while the work goes on elsewhere.
//!
//! So Ctrl-C arrives in them as in any Python code, and nothing of the caller runs on when the call
//! has returned.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use pyo3::exceptions::{PyException, PyKeyboardInterrupt, PySystemExit};
use pyo3::prelude::*;
use tokio::sync::oneshot;

/// The time between two looks at signals while no function runs.
const EVERY: Duration = Duration::from_millis(100);

/// Why a function has no result.
const STOPPED: &str = "the caller has stopped";

type Call = Box<dyn FnOnce(Python<'_>) + Send>;

enum Message {
    Call(Call),
    Over,
}

/// How an exception of a function leaves.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Leaves {
    /// As it is.
    AsItIs,
    /// As the cause of the error with which the work ends. `KeyboardInterrupt` and `SystemExit`,
    /// which are no `Exception`, leave as they are.
    AsCause,
}

/// An exception of a function.
pub(crate) struct Raised {
    pub(crate) error: PyErr,
    pub(crate) leaves: Leaves,
}

/// What the threads of a call share.
struct Shared {
    /// Raises an exception in the thread that called (true), or takes that back (false).
    interrupt: Py<PyAny>,
    /// Whether a function runs, and whether it was interrupted. Both change only under the lock of
    /// the interpreter.
    running: AtomicBool,
    interrupted: AtomicBool,
    /// The first exception.
    raised: Mutex<Option<Raised>>,
    /// Asks the work to stop.
    stop: Mutex<Option<oneshot::Sender<()>>>,
}

impl Shared {
    fn raised(&self) -> std::sync::MutexGuard<'_, Option<Raised>> {
        self.raised.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, error: PyErr, leaves: Leaves) {
        self.raised().get_or_insert(Raised { error, leaves });
        if leaves == Leaves::AsItIs {
            // Dropping it resolves the future.
            self.stop
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .take();
        }
    }

    /// Keeps the exception of a function, unless it was raised to end that function.
    fn keep(&self, py: Python<'_>, error: PyErr, leaves: Leaves) {
        let is_exception = error.is_instance_of::<PyException>(py);
        let is_of_user = is_exception
            || error.is_instance_of::<PyKeyboardInterrupt>(py)
            || error.is_instance_of::<PySystemExit>(py);
        if self.interrupted.load(Ordering::Relaxed) && !is_of_user {
            return;
        }
        self.put(error, if is_exception { leaves } else { Leaves::AsItIs });
    }

    fn serve(&self, py: Python<'_>, call: Call) {
        self.running.store(true, Ordering::Relaxed);
        call(py);
        self.running.store(false, Ordering::Relaxed);
        if self.interrupted.load(Ordering::Relaxed) {
            // The exception may still be on its way: then it arrives in this call.
            let _ = self.interrupt.call1(py, (false,));
        }
    }

    /// Ends the function that runs, if one does.
    fn interrupt(&self) {
        Python::attach(|py| {
            if !self.running.load(Ordering::Relaxed) {
                return;
            }
            self.interrupted.store(true, Ordering::Relaxed);
            if let Err(error) = self.interrupt.call1(py, (true,)) {
                error.write_unraisable(py, None);
            }
        });
    }
}

/// The way to the thread that called.
#[derive(Clone)]
pub(crate) struct Home {
    calls: Sender<Message>,
    shared: Arc<Shared>,
}

impl Home {
    /// Calls a function on the thread that called, and waits for it. Its exception stays there.
    ///
    /// # Errors
    /// What went wrong, for this side alone.
    pub(crate) fn call<T: Send + 'static>(
        &self,
        leaves: Leaves,
        function: impl FnOnce(Python<'_>) -> PyResult<T> + Send + 'static,
    ) -> Result<T, String> {
        let (give, given) = mpsc::sync_channel(1);
        let shared = Arc::clone(&self.shared);
        let call = move |py: Python<'_>| {
            if shared.raised().is_some() {
                return;
            }
            let called = function(py).map_err(|error| {
                let text = error.to_string();
                shared.keep(py, error, leaves);
                text
            });
            let _ = give.send(called);
        };
        let stopped = || STOPPED.to_owned();
        let sent = self.calls.send(Message::Call(Box::new(call)));
        sent.map_err(|_| stopped())?;
        given.recv().unwrap_or_else(|_| Err(stopped()))
    }
}

/// The thread that called.
pub(crate) struct Caller {
    home: Home,
    inbox: Receiver<Message>,
    stopped: oneshot::Receiver<()>,
}

impl Caller {
    /// This thread. `interrupt(true)` raises an exception in it that is no `Exception`, and
    /// `interrupt(false)` takes that back.
    pub(crate) fn new(interrupt: Py<PyAny>) -> Self {
        let (calls, inbox) = mpsc::channel();
        let (stop, stopped) = oneshot::channel();
        let shared = Shared {
            interrupt,
            running: AtomicBool::new(false),
            interrupted: AtomicBool::new(false),
            raised: Mutex::default(),
            stop: Mutex::new(Some(stop)),
        };
        let shared = Arc::new(shared);
        Self {
            home: Home { calls, shared },
            inbox,
            stopped,
        }
    }

    /// The way to this thread.
    pub(crate) fn home(&self) -> Home {
        self.home.clone()
    }

    /// Does `work` without the interpreter on a thread of its own, and calls functions for it on
    /// this one. The future that `work` gets resolves when it is to stop. Returns what `work`
    /// returns, and the first exception. No function runs any more.
    pub(crate) fn run<T: Send>(
        self,
        py: Python<'_>,
        work: impl FnOnce(oneshot::Receiver<()>) -> T + Send,
    ) -> (T, Option<Raised>) {
        let Self {
            home,
            inbox,
            stopped,
        } = self;
        let shared = Arc::clone(&home.shared);
        let done = py.detach(|| {
            std::thread::scope(|scope| {
                let over = Over(home);
                let work = scope.spawn(move || {
                    let _over = over;
                    work(stopped)
                });
                loop {
                    match inbox.recv_timeout(EVERY) {
                        Ok(Message::Call(call)) => Python::attach(|py| shared.serve(py, call)),
                        Err(RecvTimeoutError::Timeout) => {
                            if let Err(error) = Python::attach(|py| py.check_signals()) {
                                shared.put(error, Leaves::AsItIs);
                            }
                        }
                        Ok(Message::Over) | Err(RecvTimeoutError::Disconnected) => break,
                    }
                }
                // Whoever still asks for a function learns that none is called any more.
                drop(inbox);
                work.join()
            })
        });
        let raised = shared.raised().take();
        match done {
            Ok(done) => (done, raised),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
}

/// Ends the function that runs when it is dropped, and says that the work is over.
struct Over(Home);

impl Drop for Over {
    fn drop(&mut self) {
        self.0.shared.interrupt();
        let _ = self.0.calls.send(Message::Over);
    }
}
