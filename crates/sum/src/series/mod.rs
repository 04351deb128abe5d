//! Sums in long series from one setup, for clients that all stay to the end.
//!
//! The specification is `docs/spec/series.md`. A series has pairwise masks only. There are no self
//! masks and no shares, so a sum costs one message each way, and nobody can recover the masks of a
//! dropped client. **When a client is missing, the series is dead.** One revealed secret would open
//! all its sums.
//!
//! The words of a sum form *blocks* ([`Layout`]). Each block has clients that contribute to it, and
//! an [`Owner`] that learns its sum: the server, one client, or all clients and not the server.
//!
//! **Who learns what.** The server learns the blocks that it owns. A client learns the blocks that
//! it owns, and those of all clients. This holds against the server together with clients, as long
//! as two contributors of a block are honest, or one that is and an honest owner. All parties
//! follow the protocol. Nothing keeps a server from sending false sums, or a client from adding
//! false words.
//!
//! A sum has a number, a step with a kind. Numbers rise. A [`Series`] masks nothing under a number
//! that is not above the last, cannot be copied, and cannot be made again from what is left after a
//! crash:
//!
//! ```compile_fail,E0382
//! # use undertone_sum::series::{Number, Series, Layout};
//! # fn twice(series: Series, layout: &Layout) -> Result<(), undertone_party::Abort> {
//! let mut again = series;
//! let mut series = series;
//! # Ok(()) }
//! ```
//!
//! ```compile_fail,E0277
//! fn copy<T: Clone>(_: T) {}
//! # fn resume(series: undertone_sum::series::Series) {
//! copy(series);
//! # }
//! ```

mod layout;
mod member;
mod server;

use std::fmt;

use undertone_party::frame::TILE_BYTES;
use undertone_party::{Abort, PartyId, Reader, Writer};

use crate::Word;

pub use layout::{Block, Layout, Owner};
pub use member::{Masked, Opening, Series};
pub use server::Adder;

/// Bytes of the number of a sum, before the words of each message.
const NUMBER_LEN: usize = 5;

/// The number of a sum in its series: a step, and what the sum is for in this step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Number {
    /// The step.
    pub step: u32,
    /// The kind of the sum. In a step kinds rise, too.
    pub kind: u8,
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "step {}, kind {}", self.step, self.kind)
    }
}

impl Number {
    fn write(self, w: &mut Writer) {
        w.u32(self.step);
        w.u8(self.kind);
    }

    /// Checks that it is above `last`, and returns it (SERIES-1).
    fn after(self, last: Option<Self>) -> Result<Self, Abort> {
        match last {
            Some(last) if self <= last => Err(Abort::Misuse(format!(
                "a series is at {last}: a sum with number {self} would use masks again"
            ))),
            _ => Ok(self),
        }
    }
}

/// Messages of an array of `len` words, tile by tile: the number of the sum, then words.
struct Tiles<W> {
    number: Number,
    left: usize,
    word: std::marker::PhantomData<W>,
}

impl<W: Word> Tiles<W> {
    fn new(number: Number, len: usize) -> Self {
        Self {
            number,
            left: len,
            word: std::marker::PhantomData,
        }
    }

    /// The number of words of the next message.
    fn next_len(&self) -> usize {
        self.left.min(TILE_BYTES / W::BYTES)
    }

    /// Writes the next message, with the first of `words`. Returns it and the other words.
    fn write<'a>(&mut self, words: &'a [W]) -> (Vec<u8>, &'a [W]) {
        let (now, rest) = words.split_at(self.next_len());
        let mut w = Writer::with_capacity(NUMBER_LEN + now.len() * W::BYTES);
        self.number.write(&mut w);
        let mut message = w.finish();
        undertone_kernel::mask::append_bytes(now, &mut message);
        self.left -= now.len();
        (message, rest)
    }

    /// Reads the next message: the bytes of its words.
    fn read<'a>(&mut self, from: PartyId, message: &'a [u8]) -> Result<&'a [u8], Abort> {
        let mut r = Reader::new(message);
        let step = r.u32("step").map_err(Abort::malformed(from))?;
        let kind = r.u8("kind").map_err(Abort::malformed(from))?;
        let number = Number { step, kind };
        // SERIES-2.
        if number != self.number {
            let what = format!("it sent {number}, due is {}", self.number);
            return Err(Abort::cheated(from, what));
        }
        // SERIES-3.
        let due = self.next_len() * W::BYTES;
        if r.remaining() != due {
            let what = format!("{} bytes of words, {due} are due", r.remaining());
            return Err(Abort::Malformed { from, what });
        }
        self.left -= self.next_len();
        r.raw(due, "words").map_err(Abort::malformed(from))
    }
}
