//! Counts the bytes that wait to be handled, so that a producer can wait for room.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Notify;

/// Counts bytes that wait to be handled.
#[derive(Debug, Default)]
pub(crate) struct Gauge {
    bytes: AtomicUsize,
    eased: Notify,
}

/// Bytes that count in a [`Gauge`] until this is dropped.
#[derive(Debug)]
pub(crate) struct Load {
    on: Arc<Gauge>,
    bytes: usize,
}

impl Gauge {
    /// Adds `bytes` until the returned value is dropped.
    pub(crate) fn load(own: &Arc<Self>, bytes: usize) -> Load {
        own.bytes.fetch_add(bytes, Ordering::AcqRel);
        Load {
            on: Arc::clone(own),
            bytes,
        }
    }

    /// Waits until fewer than `most` bytes wait.
    pub(crate) async fn below(&self, most: usize) {
        loop {
            let eased = self.eased.notified();
            if self.bytes.load(Ordering::Acquire) < most {
                return;
            }
            eased.await;
        }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.on.bytes.fetch_sub(self.bytes, Ordering::AcqRel);
        // The permit is kept if no task waits yet.
        self.on.eased.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// NET-28
    #[tokio::test]
    async fn who_brings_more_waits_until_there_is_room() {
        let gauge = Arc::<Gauge>::default();
        let mut loads = vec![Gauge::load(&gauge, 6), Gauge::load(&gauge, 6)];
        let waiting = tokio::spawn({
            let gauge = Arc::clone(&gauge);
            async move { gauge.below(12).await }
        });
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        loads.pop();
        waiting.await.unwrap();
        drop(loads);
        gauge.below(1).await;
    }
}
