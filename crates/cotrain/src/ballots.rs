//! Votes as counters in words, and the circuit that finds winners.
//!
//! A counter has b = ⌈log₂(m + 1)⌉ bits for m clients, and a word ⌊64/b⌋ counters. A *block* is the
//! smallest number of words with whole rows: one word with one or more rows, or one row in several
//! words. All blocks of a job are alike; the last may have rows that do not exist.

use undertone_garble::{Bit, Builder, Circuit, Number, index_bits};
use undertone_kernel::pack::{pack, packed_len, unpack};
use undertone_kernel::{BitMatrix, Wiped};

/// Most classes.
pub const MAX_CLASSES: usize = 1 << 10;

/// The class of each row, or none.
pub type Labels = Vec<Option<u16>>;

/// Where each counter is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    rows: usize,
    classes: usize,
    /// Bits of a counter.
    bits: usize,
    /// Rows of a block.
    block_rows: usize,
    /// Words of a block.
    block_words: usize,
}

impl Layout {
    /// The layout for the votes of up to `clients` clients.
    ///
    /// # Panics
    /// When there are fewer than 2 classes, more than [`MAX_CLASSES`], or no clients.
    pub fn new(rows: usize, classes: usize, clients: usize) -> Self {
        assert!((2..=MAX_CLASSES).contains(&classes), "{classes} classes");
        assert!(clients > 0, "no clients");
        let bits = index_bits(clients + 1);
        let counters = 64 / bits;
        Self {
            rows,
            classes,
            bits,
            block_rows: (counters / classes).max(1),
            block_words: classes.div_ceil(counters),
        }
    }

    /// The number of blocks.
    pub fn blocks(&self) -> usize {
        self.rows.div_ceil(self.block_rows)
    }

    /// The number of words of a block.
    pub fn block_words(&self) -> usize {
        self.block_words
    }

    /// The number of words.
    pub fn words(&self) -> usize {
        self.blocks() * self.block_words
    }

    /// Bits in use of word `word` of a block.
    fn used(&self, word: usize) -> usize {
        let counters = 64 / self.bits;
        let all = self.block_rows * self.classes;
        (all - word * counters).min(counters) * self.bits
    }

    /// The word, and the bit in it, of a counter.
    fn place(&self, row: usize, class: usize) -> (usize, usize) {
        let (block, row) = (row / self.block_rows, row % self.block_rows);
        let (counters, at) = (64 / self.bits, row * self.classes + class);
        let word = block * self.block_words + at / counters;
        (word, at % counters * self.bits)
    }

    /// The words of a client's ballots.
    ///
    /// # Panics
    /// When the ballots have another number of rows or classes.
    pub fn encode(&self, ballots: &BitMatrix) -> Wiped<u64> {
        assert_eq!(
            (ballots.rows(), ballots.columns()),
            (self.rows, self.classes),
            "ballots"
        );
        let mut words = Wiped::from(vec![0u64; self.words()]);
        for row in 0..self.rows {
            for class in 0..self.classes {
                let (word, bit) = self.place(row, class);
                words[word] |= u64::from(ballots.get(row, class)) << bit;
            }
        }
        words
    }

    /// The counters of a row in summed words.
    ///
    /// # Panics
    /// When there are too few words.
    pub fn counts(&self, words: &[u64], row: usize) -> Vec<u32> {
        let mask = u64::MAX >> (64 - self.bits);
        let counter = |class| {
            let (word, bit) = self.place(row, class);
            (words[word] >> bit & mask) as u32
        };
        (0..self.classes).map(counter).collect()
    }

    /// The labels of summed words, in the clear.
    pub fn labels(&self, words: &[u64], needed: usize) -> Labels {
        let label = |row| winner(&self.counts(words, row), needed);
        (0..self.rows).map(label).collect()
    }

    /// The circuit of a block. Both parties input the words of a block, the bits in use of each,
    /// one word after the other; the sum of both modulo 2^(bits in use) has the counters. The
    /// output is a label for each row, of [`label_bits`](Self::label_bits) bits: the class with the
    /// most votes if it has `needed` votes, otherwise the number of classes.
    pub fn circuit(&self, needed: usize) -> Circuit {
        let inputs: usize = (0..self.block_words).map(|word| self.used(word)).sum();
        let mut builder = Builder::new(inputs, inputs);
        let mut counters: Vec<Number> = Vec::new();
        let mut first = 0;
        for word in 0..self.block_words {
            let bits = first..first + self.used(word);
            first = bits.end;
            let helper: Vec<Bit> = bits.clone().map(|i| builder.garbler(i)).collect();
            let server: Vec<Bit> = bits.map(|i| builder.evaluator(i)).collect();
            let sum = builder.add(&helper, &server);
            counters.extend(sum.chunks(self.bits).map(<[Bit]>::to_vec));
        }
        let mut outputs = Vec::new();
        for counters in counters.chunks(self.classes) {
            let (mut label, most) = builder.argmax(counters);
            let width = self.label_bits() as usize;
            label.resize(width, Bit::constant(false));
            if needed > 0 {
                let none = builder.number(self.classes as u64, width);
                let is_too_few = match u64::try_from(needed) {
                    Ok(needed) if needed >> self.bits == 0 => {
                        let needed = builder.number(needed, self.bits);
                        builder.less(&most, &needed)
                    }
                    _ => Bit::constant(true),
                };
                label = builder.select(is_too_few, &none, &label);
            }
            outputs.extend(label);
        }
        builder.finish(&outputs)
    }

    /// The bits of `blocks` as inputs of the circuit: a row for each block. `words` are the words
    /// of these blocks, one block after the other.
    ///
    /// # Panics
    /// When the number of words is no multiple of a block's.
    pub fn inputs(&self, words: &[u64]) -> BitMatrix {
        let used: Vec<usize> = (0..self.block_words).map(|word| self.used(word)).collect();
        let columns = used.iter().sum();
        assert!(words.len().is_multiple_of(self.block_words), "whole blocks");
        let mut bits = BitMatrix::zero(words.len() / self.block_words, columns);
        for (r, words) in words.chunks(self.block_words).enumerate() {
            let mut first = 0;
            for (word, used) in words.iter().zip(&used) {
                for i in 0..*used {
                    bits.set(r, first + i, word >> i & 1 == 1);
                }
                first += used;
            }
        }
        bits
    }

    /// Bits of a label.
    pub fn label_bits(&self) -> u32 {
        index_bits(self.classes + 1) as u32
    }

    /// The labels of the rows of block `block` in the circuit's output. Rows that do not exist have
    /// none. Values beyond the classes are no label.
    pub fn decode(&self, block: usize, output: u64) -> impl Iterator<Item = (usize, Option<u16>)> {
        let (width, this) = (self.label_bits(), *self);
        let first = block * self.block_rows;
        let rows = first..(first + self.block_rows).min(self.rows);
        rows.enumerate().map(move |(i, row)| {
            let value = output >> (i as u32 * width) & ((1 << width) - 1);
            (row, (value < this.classes as u64).then_some(value as u16))
        })
    }
}

/// The class with the most votes, of several the lowest, if it has `needed` votes.
pub fn winner(counts: &[u32], needed: usize) -> Option<u16> {
    let best = (0..counts.len()).rev().max_by_key(|class| counts[*class])?;
    (counts[best] as usize >= needed).then_some(best as u16)
}

/// Labels as they travel: ⌈log₂(C + 1)⌉ bits each, C for none.
pub fn write_labels(labels: &[Option<u16>], classes: usize) -> Vec<u8> {
    let value = |label: &Option<u16>| label.unwrap_or(classes as u16);
    let values: Vec<u16> = labels.iter().map(value).collect();
    let mut bytes = Vec::new();
    pack(index_bits(classes + 1) as u32, &values, &mut bytes);
    bytes
}

/// Bytes of [`write_labels`].
pub fn labels_len(rows: usize, classes: usize) -> usize {
    packed_len(index_bits(classes + 1) as u32, rows)
}

/// Reads labels. None if the length is wrong, or a value is beyond the classes.
pub fn read_labels(bytes: &[u8], rows: usize, classes: usize) -> Option<Labels> {
    if bytes.len() != labels_len(rows, classes) {
        return None;
    }
    let mut values = vec![0; rows];
    unpack(index_bits(classes + 1) as u32, bytes, &mut values);
    let label = |value: u16| match usize::from(value) {
        value if value > classes => None,
        value => Some((value < classes).then_some(value as u16)),
    };
    values.into_iter().map(label).collect()
}
