//! A link at the server: which frames may pass, and which ones the receiver has taken.

use std::collections::VecDeque;

use crate::flow::Violation;

/// The frames that have passed on a link and that the receiver has not taken.
#[derive(Default)]
pub(super) struct Passing {
    /// Number of the next frame that may pass.
    next: u32,
    /// Frames below this number have been taken.
    pub(super) taken: u32,
    /// Lengths of the frames from `taken` to `next`.
    lens: VecDeque<usize>,
    /// The sum of `lens`.
    bytes: usize,
}

impl Passing {
    /// Returns whether a frame may pass. Only the next frame may. A repeated frame is not needed. A
    /// frame that came too early will be sent again.
    pub(super) fn pass(&mut self, seq: u32, len: usize, window: usize) -> Result<bool, Violation> {
        // NET-12
        if seq != self.next {
            return Ok(false);
        }
        // NET-13
        if !self.lens.is_empty() && self.bytes + len > window {
            return Err(Violation::Overrun);
        }
        self.next += 1;
        self.lens.push_back(len);
        self.bytes += len;
        Ok(true)
    }

    /// The receiver has taken the frames below `next`. Returns whether this is new.
    pub(super) fn take(&mut self, next: u32) -> Result<bool, Violation> {
        // NET-14
        if next > self.next {
            return Err(Violation::Unsent(next - 1));
        }
        let news = next > self.taken;
        while self.taken < next {
            self.bytes -= self.lens.pop_front().unwrap_or(0);
            self.taken += 1;
        }
        Ok(news)
    }

    /// One end of the link has returned. Frames that were not taken will pass again.
    pub(super) fn rewind(&mut self) {
        self.next = self.taken;
        self.lens.clear();
        self.bytes = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// NET-12, NET-13, NET-14, NET-15
    #[test]
    fn what_passes_is_in_order_and_within_the_window() {
        let mut link = Passing::default();
        assert_eq!(link.pass(0, 300, 100), Ok(true));
        assert_eq!(link.pass(0, 300, 100), Ok(false));
        assert_eq!(link.pass(2, 1, 100), Ok(false));
        assert_eq!(link.pass(1, 1, 100), Err(Violation::Overrun));
        assert_eq!(link.take(2), Err(Violation::Unsent(1)));
        assert_eq!(
            (link.take(1), link.take(1), link.take(0)),
            (Ok(true), Ok(false), Ok(false))
        );
        assert_eq!(link.pass(1, 60, 100), Ok(true));
        assert_eq!(link.pass(2, 60, 100), Err(Violation::Overrun));
        link.rewind();
        assert_eq!(link.pass(1, 60, 100), Ok(true));
        assert_eq!((link.take(2), link.bytes), (Ok(true), 0));
    }
}
