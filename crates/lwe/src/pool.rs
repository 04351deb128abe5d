//! Memory that threads use again.

use std::sync::{Mutex, PoisonError};

/// Values that threads borrow. There are as many as threads that borrow at the same time.
pub(crate) struct Pool<T>(Mutex<Vec<T>>);

impl<T: Default> Pool<T> {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(Vec::new()))
    }

    /// Runs `work` with a value that an earlier call has left, or a new one.
    pub(crate) fn with<R>(&self, work: impl FnOnce(&mut T) -> R) -> R {
        let lock = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut value = lock().pop().unwrap_or_default();
        let result = work(&mut value);
        lock().push(value);
        result
    }
}

impl<T> std::fmt::Debug for Pool<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Pool(..)")
    }
}
