//! Progress, and Ctrl-C, while Rust works.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::{Duration, Instant};

use pyo3::prelude::*;
use undertone::party::{At, Watch};

use crate::pool;

/// Carries an exception out of a callback that cannot return one.
struct Raised(PyErr);

/// Ends the work of [`run`] with an exception.
pub(crate) fn raise(error: PyErr) -> ! {
    resume_unwind(Box::new(Raised(error)))
}

/// The shortest time between two looks at the interpreter.
const EVERY: Duration = Duration::from_millis(50);

/// Tells what the parties of a run do.
pub(crate) fn observer<'a>(tell: &'a mut dyn FnMut(&dyn Fn() -> String)) -> impl FnMut(&At) + 'a {
    let mut watch = Watch::new();
    move |at| {
        watch.see(at);
        tell(&|| watch.say());
    }
}

/// Runs `work` without the interpreter. `work` gets a function that it calls now and then, with a
/// message that says what it does. This function handles signals, and passes the message to
/// `progress`. An exception of either ends the work.
pub(crate) fn run<T: Send>(
    py: Python<'_>,
    progress: Option<Py<PyAny>>,
    work: impl FnOnce(&mut dyn FnMut(&dyn Fn() -> String)) -> PyResult<T> + Send,
) -> PyResult<T> {
    let work = || {
        let mut last = Instant::now();
        let mut tell = |message: &dyn Fn() -> String| {
            if last.elapsed() < EVERY {
                return;
            }
            last = Instant::now();
            let told = Python::attach(|py| {
                py.check_signals()?;
                match &progress {
                    Some(progress) => progress.call1(py, (message(),)).map(drop),
                    None => Ok(()),
                }
            });
            if let Err(error) = told {
                raise(error);
            }
        };
        work(&mut tell)
    };
    pool::detach(py, || match catch_unwind(AssertUnwindSafe(work)) {
        Ok(result) => result,
        Err(panic) => match panic.downcast::<Raised>() {
            Ok(raised) => Err(raised.0),
            Err(panic) => resume_unwind(panic),
        },
    })
}
