//! Trials of an experiment, side by side.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::Failure;

/// Runs trials side by side, each on one thread. So results do not depend on the number of threads.
pub(crate) fn run_all<T: Sync, R: Send>(
    trials: &[T],
    run: impl Fn(&T) -> Result<R, Failure> + Sync,
) -> Result<Vec<R>, Failure> {
    let next = AtomicUsize::new(0);
    let done: Mutex<Vec<Option<Result<R, Failure>>>> =
        Mutex::new(trials.iter().map(|_| None).collect());
    let work = || -> Result<(), Failure> {
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(1)
            .build()
            .map_err(|error| Failure::new(71, format!("a thread: {error}")))?;
        loop {
            let place = next.fetch_add(1, Ordering::Relaxed);
            let Some(trial) = trials.get(place) else {
                return Ok(());
            };
            let result = pool.install(|| run(trial));
            if result.is_err() {
                // The others need not begin.
                next.store(trials.len(), Ordering::Relaxed);
            }
            done.lock().unwrap_or_else(PoisonError::into_inner)[place] = Some(result);
        }
    };
    let workers = rayon::current_num_threads().min(trials.len());
    let worked: Result<Vec<()>, Failure> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
        let ended = threads.into_iter().map(|thread| {
            let panicked = |_| Err(Failure::new(70, "a thread panicked"));
            thread.join().unwrap_or_else(panicked)
        });
        ended.collect()
    });
    worked?;
    let done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.into_iter().flatten().collect()
}
