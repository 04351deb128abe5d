//! What the parties of a client's sessions share.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use undertone_party::Abort;

/// What a client keeps between sessions, such as its model. A party of an earlier session may still
/// run when the next one begins. Only the last party may use the state.
pub struct Shared<T>(Arc<Inner<T>>);

struct Inner<T> {
    state: Mutex<T>,
    /// The number of turns that began.
    turns: AtomicU64,
}

impl<T> Clone for Shared<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T: fmt::Debug> fmt::Debug for Shared<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.state.fmt(f)
    }
}

impl<T> Shared<T> {
    /// This state.
    pub fn new(state: T) -> Self {
        Self(Arc::new(Inner {
            state: Mutex::new(state),
            turns: AtomicU64::new(0),
        }))
    }

    /// The state. Waits while a party uses it.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The state, unless a party uses it.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        match self.0.state.try_lock() {
            Ok(state) => Some(state),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// The turn of a new party. Those of earlier parties end.
    pub fn turn(&self) -> Turn<T> {
        Turn {
            number: self.0.turns.fetch_add(1, Ordering::SeqCst) + 1,
            shared: self.clone(),
        }
    }
}

/// A party's right to use the state.
#[derive(Debug)]
pub struct Turn<T> {
    shared: Shared<T>,
    number: u64,
}

impl<T> Turn<T> {
    /// The state.
    ///
    /// # Errors
    /// The turn has ended.
    pub fn lock(&self) -> Result<MutexGuard<'_, T>, Abort> {
        let state = self.shared.lock();
        if self.shared.0.turns.load(Ordering::SeqCst) == self.number {
            Ok(state)
        } else {
            Err(Abort::Misuse("another session has begun".into()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_ends_when_the_next_one_begins() {
        let shared = Shared::new(1);
        let held = shared.lock();
        assert!(shared.try_lock().is_none());
        drop(held);
        assert_eq!(shared.try_lock().as_deref(), Some(&1));
        let first = shared.turn();
        *first.lock().unwrap() = 2;
        let second = shared.turn();
        assert!(first.lock().is_err());
        assert_eq!(*second.lock().unwrap(), 2);
        assert_eq!(*shared.lock(), 2);
    }
}
