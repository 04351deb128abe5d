//! The server's view of a link: what may pass, and what has been taken.

use std::collections::VecDeque;

use crate::flow::Violation;

/// What has passed on a link, and has not been taken.
#[derive(Default)]
pub(super) struct Passing {
    /// Number of the next frame that may pass.
    next: u32,
    /// Frames below this number have been taken.
    pub(super) taken: u32,
    /// Lengths of those between.
    lens: VecDeque<usize>,
    bytes: usize,
}

impl Passing {
    /// Lets a frame pass whose turn it is. One that came before, or comes before its turn, is sent again if it is needed.
    pub(super) fn pass(&mut self, seq: u32, len: usize, window: usize) -> Result<bool, Violation> {
        if seq != self.next {
            return Ok(false);
        }
        if !self.lens.is_empty() && self.bytes + len > window {
            return Err(Violation::Overrun);
        }
        self.next += 1;
        self.lens.push_back(len);
        self.bytes += len;
        Ok(true)
    }

    /// Frames below `next` have been taken; tells whether that is news.
    pub(super) fn take(&mut self, next: u32) -> Result<bool, Violation> {
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

    /// One end has returned: what has not been taken will pass again.
    pub(super) fn rewind(&mut self) {
        self.next = self.taken;
        self.lens.clear();
        self.bytes = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
