//! The transfers of a pair as a stream, made from chunks of an extension.

use std::collections::VecDeque;

use undertone_kernel::Cpu;
use undertone_party::Abort;
use zeroize::Zeroizing;

use super::Pair;
use undertone_ot::extend::{self, CHUNK, Row, Rows};

/// The keys of consecutive transfers.
pub(super) type Keys = Zeroizing<Vec<u128>>;

/// Items that are made and not yet used, in chunks of `PER` items.
#[derive(Debug)]
struct Store<T: zeroize::Zeroize, const PER: usize> {
    chunks: VecDeque<Zeroizing<Vec<T>>>,
    /// Number of items of the first chunk that are used.
    used: usize,
}

impl<T: zeroize::Zeroize + Copy, const PER: usize> Store<T, PER> {
    fn new() -> Self {
        Self {
            chunks: VecDeque::new(),
            used: 0,
        }
    }

    fn len(&self) -> usize {
        PER * self.chunks.len() - self.used
    }

    fn push(&mut self, chunk: impl IntoIterator<Item = T>) {
        self.chunks
            .push_back(Zeroizing::new(chunk.into_iter().collect()));
    }

    /// The item after the next `ahead` items.
    fn get(&self, ahead: usize) -> Option<T> {
        let at = self.used + ahead;
        self.chunks.get(at / PER)?.get(at % PER).copied()
    }

    fn skip(&mut self, count: usize) {
        self.used += count;
        let whole = self.used / PER;
        self.chunks.drain(..whole);
        self.used %= PER;
    }

    /// The next `count` items, or all if there are fewer.
    fn take(&mut self, count: usize) -> Zeroizing<Vec<T>> {
        let mut out = Zeroizing::new(Vec::with_capacity(count));
        while out.len() < count
            && let Some(first) = self.chunks.front()
        {
            let end = PER.min(self.used + count - out.len());
            out.extend_from_slice(&first[self.used..end]);
            self.skip(end - self.used);
        }
        out
    }
}

/// The receiver's end.
#[derive(Debug)]
pub(super) struct Receiving {
    receiver: extend::Receiver,
    chunks: u64,
    keys: Store<u128, CHUNK>,
    choices: Store<u64, { CHUNK / 64 }>,
    /// Number of choices of the first word that are used.
    used: usize,
}

impl Receiving {
    pub(super) fn new(receiver: extend::Receiver) -> Self {
        Self {
            receiver,
            chunks: 0,
            keys: Store::new(),
            choices: Store::new(),
            used: 0,
        }
    }

    /// Makes the transfers of `chunks` more chunks and appends their corrections.
    pub(super) fn extend(&mut self, chunks: u64, corrections: &mut Vec<u8>) {
        let (mut choices, mut rows) = (Zeroizing::new(Row::default()), Rows::default());
        for chunk in self.chunks..self.chunks + chunks {
            self.receiver
                .chunk(chunk, CHUNK / 64, &mut choices, &mut rows, corrections);
            let mut keys = Zeroizing::new(vec![0; CHUNK]);
            rows.keys(Cpu::detect(), &mut keys);
            self.keys.chunks.push_back(keys);
            let words = choices
                .iter()
                .flat_map(|row| [*row as u64, (*row >> 64) as u64]);
            self.choices.push(words);
        }
        self.chunks += chunks;
    }

    /// The number of chunks made.
    pub(super) fn chunks(&self) -> u64 {
        self.chunks
    }

    /// The keys of the next `count` transfers. Appends the corrections of those that were not made
    /// ahead.
    pub(super) fn take(&mut self, count: usize, corrections: &mut Vec<u8>) -> Keys {
        let missing = count.saturating_sub(self.keys.len()).div_ceil(CHUNK);
        self.extend(missing as u64, corrections);
        self.keys.take(count)
    }

    /// The next `bits` choices, as the words of a row.
    ///
    /// # Errors
    /// [`Abort::Internal`] when they have not been made.
    pub(super) fn choices(&mut self, bits: usize) -> Result<Zeroizing<Vec<u64>>, Abort> {
        let shift = self.used;
        if 64 * self.choices.len() < shift + bits {
            return Err(Abort::Internal("choices have not been made".into()));
        }
        let word = |at: usize| self.choices.get(at).unwrap_or(0);
        let aligned = |at: usize| match shift {
            0 => word(at),
            _ => word(at) >> shift | word(at + 1) << (64 - shift),
        };
        let mut out = Zeroizing::new((0..bits.div_ceil(64)).map(aligned).collect::<Vec<u64>>());
        if let Some(last) = out.last_mut() {
            *last &= u64::MAX >> (bits.wrapping_neg() % 64);
        }
        self.choices.skip((shift + bits) / 64);
        self.used = (shift + bits) % 64;
        Ok(out)
    }
}

/// The sender's end.
#[derive(Debug)]
pub(super) struct Sending {
    sender: extend::Sender,
    pair: Pair,
    chunks: u64,
    keys: Store<u128, CHUNK>,
}

impl Sending {
    pub(super) fn new(sender: extend::Sender, pair: Pair) -> Self {
        Self {
            sender,
            pair,
            chunks: 0,
            keys: Store::new(),
        }
    }

    pub(super) fn delta(&self) -> u128 {
        self.sender.delta()
    }

    /// Bytes of the next offline message. `None` when all corrections have arrived.
    pub(super) fn due(&self) -> Option<usize> {
        let left = self.pair.ahead() - self.chunks;
        let chunks = left.min(self.pair.chunks_per_message());
        (chunks > 0).then(|| chunks as usize * self.pair.chunk_len())
    }

    /// Makes the transfers of the chunks with these corrections.
    pub(super) fn extend(&mut self, corrections: &[u8]) {
        let mut rows = Rows::default();
        for corrections in corrections.chunks_exact(self.pair.chunk_len()) {
            self.sender.chunk(self.chunks, corrections, &mut rows);
            self.chunks += 1;
            let mut keys = Zeroizing::new(vec![0; CHUNK]);
            rows.keys(Cpu::detect(), &mut keys);
            self.keys.chunks.push_back(keys);
        }
    }

    /// Bytes of the corrections that `count` more transfers need.
    pub(super) fn corrections_len(&self, count: usize) -> usize {
        count.saturating_sub(self.keys.len()).div_ceil(CHUNK) * self.pair.chunk_len()
    }

    /// The keys of the next `count` transfers.
    ///
    /// # Errors
    /// [`Abort::Internal`] when they have not been made.
    pub(super) fn take(&mut self, count: usize) -> Result<Keys, Abort> {
        if self.keys.len() < count {
            Err(Abort::Internal("transfers have not been made".into()))
        } else {
            Ok(self.keys.take(count))
        }
    }
}
