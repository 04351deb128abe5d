//! The transfers of a pair as a stream, from chunks of an extension.

use std::collections::VecDeque;

use undertone_kernel::Cpu;
use undertone_party::Abort;
use zeroize::Zeroizing;

use super::Pair;
use crate::ot::extend::{self, CHUNK, Row, Rows};

/// The keys of consecutive transfers.
pub(super) type Keys = Zeroizing<Vec<u128>>;

/// What is left of a chunk.
fn take<T: Clone>(left: &mut Vec<T>, count: usize) -> Vec<T> {
    let rest = left.split_off(count);
    std::mem::replace(left, rest)
}

/// The receiver's end.
#[derive(Debug)]
pub(super) struct Receiving {
    receiver: extend::Receiver,
    pair: Pair,
    next: u64,
    keys: Keys,
    /// Words of choices, from the one that has the first choice that is left.
    choices: Zeroizing<Vec<u64>>,
    /// Choices of that word that are used.
    used: usize,
}

impl Receiving {
    pub(super) fn new(receiver: extend::Receiver, pair: Pair) -> Self {
        Self {
            receiver,
            pair,
            next: 0,
            keys: Keys::default(),
            choices: Zeroizing::default(),
            used: 0,
        }
    }

    /// Corrections of chunks `first..end`, without their keys.
    pub(super) fn corrections(&self, first: u64, end: u64) -> Vec<u8> {
        let mut out = Vec::with_capacity((end - first) as usize * self.pair.chunk_len() + 16);
        let (mut choices, mut rows) = (Row::default(), Rows::new());
        for chunk in first..end {
            self.receiver
                .chunk(chunk, CHUNK / 64, &mut choices, &mut rows, &mut out);
        }
        out
    }

    /// Makes `count` more transfers; appends the corrections of chunks that were not ahead.
    pub(super) fn prepare(&mut self, count: usize, corrections: &mut Vec<u8>) -> Keys {
        let (mut choices, mut rows) = (Row::default(), Rows::new());
        let mut dropped = Vec::new();
        while self.keys.len() < count {
            let to = match self.next < self.pair.ahead() {
                true => &mut dropped,
                false => &mut *corrections,
            };
            self.receiver
                .chunk(self.next, CHUNK / 64, &mut choices, &mut rows, to);
            dropped.clear();
            self.next += 1;
            let start = self.keys.len();
            self.keys.resize(start + CHUNK, 0);
            rows.keys(Cpu::detect(), &mut self.keys[start..]);
            let words = choices
                .iter()
                .flat_map(|block| [*block as u64, (*block >> 64) as u64]);
            self.choices.extend(words);
        }
        Keys::new(take(&mut self.keys, count))
    }

    /// The next choices, as bits of a row's words.
    pub(super) fn choices(&mut self, bits: usize) -> Vec<u64> {
        let mut out = Vec::with_capacity(bits.div_ceil(64));
        for start in (0..bits).step_by(64) {
            let at = self.used + start;
            let low = self.choices[at / 64] >> (at % 64);
            let high = match (at % 64, self.choices.get(at / 64 + 1)) {
                (0, _) | (_, None) => 0,
                (shift, Some(word)) => word << (64 - shift),
            };
            let kept = u64::MAX >> (64 - (bits - start).min(64));
            out.push((low | high) & kept);
        }
        self.used += bits;
        take(&mut self.choices, self.used / 64);
        self.used %= 64;
        out
    }
}

/// The sender's end.
#[derive(Debug)]
pub(super) struct Sending {
    sender: extend::Sender,
    pair: Pair,
    next: u64,
    keys: Keys,
    /// Corrections of whole chunks that are not used, and how many chunks they are.
    corrections: VecDeque<Vec<u8>>,
    ahead: u64,
}

impl Sending {
    pub(super) fn new(sender: extend::Sender, pair: Pair) -> Self {
        Self {
            sender,
            pair,
            next: 0,
            keys: Keys::default(),
            corrections: VecDeque::new(),
            ahead: 0,
        }
    }

    pub(super) fn delta(&self) -> u128 {
        self.sender.delta()
    }

    /// Bytes of the next offline message, or nothing when all corrections are there.
    pub(super) fn due(&self) -> Option<usize> {
        let left = self.pair.ahead() - self.ahead;
        let chunks = left.min(self.pair.chunks_per_message());
        (chunks > 0).then(|| chunks as usize * self.pair.chunk_len())
    }

    /// Keeps corrections of whole chunks.
    pub(super) fn keep(&mut self, corrections: &[u8]) {
        let chunks = corrections.chunks_exact(self.pair.chunk_len());
        self.ahead += chunks.len() as u64;
        self.corrections.extend(chunks.map(<[u8]>::to_vec));
    }

    /// Bytes of corrections that come with a tile of `count` transfers.
    pub(super) fn corrections_len(&self, count: usize) -> usize {
        let chunks = count.saturating_sub(self.keys.len()).div_ceil(CHUNK);
        chunks.saturating_sub(self.corrections.len()) * self.pair.chunk_len()
    }

    /// Makes `count` more transfers. `corrections` are [`corrections_len`](Self::corrections_len).
    ///
    /// # Errors
    /// [`Abort::Internal`] when there are too few.
    pub(super) fn prepare(&mut self, count: usize, corrections: &[u8]) -> Result<Keys, Abort> {
        self.corrections.extend(
            corrections
                .chunks_exact(self.pair.chunk_len())
                .map(<[u8]>::to_vec),
        );
        let mut rows = Rows::new();
        while self.keys.len() < count {
            let chunk = self.corrections.pop_front();
            let chunk = chunk.ok_or_else(|| Abort::Internal("corrections are missing".into()))?;
            self.sender.chunk(self.next, &chunk, &mut rows);
            self.next += 1;
            let start = self.keys.len();
            self.keys.resize(start + CHUNK, 0);
            rows.keys(Cpu::detect(), &mut self.keys[start..]);
        }
        Ok(Keys::new(take(&mut self.keys, count)))
    }
}
