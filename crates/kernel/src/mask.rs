//! Masks: key streams added to words, or subtracted from them.
//!
//! Blocks are added where the cipher makes them, in registers or in the first-level cache. Callers
//! with many streams over the same words should apply all of them to [`TILE_BYTES`] of words at a
//! time, so that the words stay in the cache, too.

use std::fmt;
use std::hint::black_box;
use std::marker::PhantomData;

use aes::Aes128;
use chacha20::ChaCha20LegacyCore;
use ctr::CtrCore;
use ctr::cipher::array::{Array, ArraySize};
use ctr::cipher::common::{Block, BlockSizeUser, ParBlocks};
use ctr::cipher::typenum::Unsigned;
use ctr::cipher::{
    KeyIvInit, StreamCipherBackend, StreamCipherClosure, StreamCipherCore, StreamCipherSeekCore,
};
use ctr::flavors::Ctr64BE;
use subtle::Choice;
use zeroize::{Zeroize, Zeroizing};

use crate::cpu::Cpu;
#[cfg(target_arch = "x86_64")]
use crate::cpu::Level;

/// Bytes of words to which all streams should be applied before the next.
pub const TILE_BYTES: usize = 16 << 10;

/// Elements of `Z_{2^16}`, `Z_{2^32}` or `Z_{2^64}`.
pub trait Word:
    Copy + Default + PartialEq + fmt::Debug + Send + Sync + Zeroize + private::Sealed + 'static
{
    /// Bytes of a word.
    const BYTES: usize;
    /// The sum, modulo 2^bits.
    #[must_use]
    fn plus(self, other: Self) -> Self;
    /// The difference, modulo 2^bits.
    #[must_use]
    fn minus(self, other: Self) -> Self;
    /// The word of [`BYTES`](Self::BYTES) little-endian bytes.
    ///
    /// # Panics
    /// When `bytes` has not [`BYTES`](Self::BYTES) bytes.
    fn from_le(bytes: &[u8]) -> Self;
    /// Writes its bytes, little-endian.
    ///
    /// # Panics
    /// When `out` has not [`BYTES`](Self::BYTES) bytes.
    fn write_le(self, out: &mut [u8]);
    /// The lowest bits of `value`.
    fn truncate(value: u64) -> Self;
    /// The word as a two's complement number.
    fn to_signed(self) -> i64;
    /// Bitwise and with the lowest bits of `mask`.
    #[must_use]
    fn and(self, mask: u64) -> Self;
    /// [`Stream::apply`] for these words. It is here so that the cipher is compiled in this crate,
    /// and not in each crate that calls it, with whatever optimisation that has.
    fn apply(stream: &mut Stream, at: usize, op: Op, words: &mut [Self]);
}

mod private {
    pub trait Sealed {}
    impl Sealed for u16 {}
    impl Sealed for u32 {}
    impl Sealed for u64 {}
}

macro_rules! word {
    ($word:ty, $signed:ty) => {
        impl Word for $word {
            const BYTES: usize = size_of::<$word>();

            #[inline(always)]
            fn plus(self, other: Self) -> Self {
                self.wrapping_add(other)
            }

            #[inline(always)]
            fn minus(self, other: Self) -> Self {
                self.wrapping_sub(other)
            }

            #[inline(always)]
            fn from_le(bytes: &[u8]) -> Self {
                let mut array = [0; size_of::<$word>()];
                array.copy_from_slice(bytes);
                Self::from_le_bytes(array)
            }

            #[inline(always)]
            fn write_le(self, out: &mut [u8]) {
                out.copy_from_slice(&self.to_le_bytes());
            }

            #[inline(always)]
            fn truncate(value: u64) -> Self {
                value as $word
            }

            #[inline(always)]
            fn to_signed(self) -> i64 {
                (self as $signed).into()
            }

            #[inline(always)]
            fn and(self, mask: u64) -> Self {
                self & mask as $word
            }

            fn apply(stream: &mut Stream, at: usize, op: Op, words: &mut [Self]) {
                match &mut stream.cipher {
                    Cipher::Aes(core) => apply(&mut **core, at, op, words),
                    Cipher::ChaCha(core) => apply(&mut **core, at, op, words),
                }
            }
        }
    };
}

word!(u16, i16);
word!(u32, i32);
word!(u64, i64);

/// Appends the little-endian bytes of `words`.
pub fn append_bytes<W: Word>(words: &[W], out: &mut Vec<u8>) {
    if cfg!(target_endian = "little") {
        // SAFETY: words are plain integers; any byte of them may be read.
        let bytes =
            unsafe { std::slice::from_raw_parts(words.as_ptr().cast::<u8>(), size_of_val(words)) };
        return out.extend_from_slice(bytes);
    }
    let start = out.len();
    out.resize(start + words.len() * W::BYTES, 0);
    for (word, bytes) in words.iter().zip(out[start..].chunks_exact_mut(W::BYTES)) {
        word.write_le(bytes);
    }
}

/// The words of little-endian `bytes`. An incomplete last word is left out.
pub fn from_bytes<W: Word>(bytes: &[u8]) -> impl Iterator<Item = W> {
    bytes.chunks_exact(W::BYTES).map(W::from_le)
}

/// The operation with a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Op {
    /// Addition.
    Add,
    /// Subtraction.
    Subtract,
}

impl Op {
    /// The inverse operation.
    #[must_use]
    pub fn inverse(self) -> Self {
        match self {
            Self::Add => Self::Subtract,
            Self::Subtract => Self::Add,
        }
    }
}

/// Adds the little-endian words in `bytes` to `words`, or subtracts them.
///
/// # Panics
/// When the lengths do not fit.
pub fn combine<W: Word>(cpu: Cpu, op: Op, words: &mut [W], bytes: &[u8]) {
    assert_eq!(bytes.len(), words.len() * W::BYTES, "bytes of words");
    match cpu.level() {
        // SAFETY: `Cpu` proves the features.
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => unsafe { combine_avx2(op, words, bytes) },
        // SAFETY: `Cpu` proves the features.
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => unsafe { combine_avx512(op, words, bytes) },
        _ => combine_words(op, words, bytes),
    }
}

#[inline(always)]
fn combine_words<W: Word>(op: Op, words: &mut [W], bytes: &[u8]) {
    let bytes = bytes.chunks_exact(W::BYTES);
    match op {
        Op::Add => {
            for (word, bytes) in words.iter_mut().zip(bytes) {
                *word = word.plus(W::from_le(bytes));
            }
        }
        Op::Subtract => {
            for (word, bytes) in words.iter_mut().zip(bytes) {
                *word = word.minus(W::from_le(bytes));
            }
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn combine_avx2<W: Word>(op: Op, words: &mut [W], bytes: &[u8]) {
    combine_words(op, words, bytes);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn combine_avx512<W: Word>(op: Op, words: &mut [W], bytes: &[u8]) {
    combine_words(op, words, bytes);
}

/// Adds `values` to `words` if `choice` is 1. In constant time.
///
/// # Panics
/// When the lengths do not fit.
pub fn add_if<W: Word>(cpu: Cpu, choice: Choice, words: &mut [W], values: &[W]) {
    assert_eq!(values.len(), words.len(), "words");
    let mask = 0u64.wrapping_sub(choice.unwrap_u8().into());
    match cpu.level() {
        // SAFETY: `Cpu` proves the features.
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => unsafe { add_masked_avx2(mask, words, values) },
        // SAFETY: `Cpu` proves the features.
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => unsafe { add_masked_avx512(mask, words, values) },
        _ => add_masked(mask, words, values),
    }
}

#[inline(always)]
fn add_masked<W: Word>(mask: u64, words: &mut [W], values: &[W]) {
    // Opaque: otherwise the compiler makes a branch of it.
    let mask = black_box(mask);
    for (word, value) in words.iter_mut().zip(values) {
        *word = word.plus(value.and(mask));
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn add_masked_avx2<W: Word>(mask: u64, words: &mut [W], values: &[W]) {
    add_masked(mask, words, values);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn add_masked_avx512<W: Word>(mask: u64, words: &mut [W], values: &[W]) {
    add_masked(mask, words, values);
}

/// The stream cipher of a session's masks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Suite {
    /// AES-128 in counter mode (NIST SP 800-38A): fastest where the processor has AES instructions.
    Aes128Ctr,
    /// ChaCha20: fastest on other processors.
    ChaCha20,
}

impl Suite {
    /// All suites.
    pub const ALL: [Self; 2] = [Self::Aes128Ctr, Self::ChaCha20];

    /// The number on the wire.
    pub fn to_wire(self) -> u8 {
        match self {
            Self::Aes128Ctr => 0,
            Self::ChaCha20 => 1,
        }
    }
}

impl fmt::Display for Suite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Aes128Ctr => "aes128ctr",
            Self::ChaCha20 => "chacha20",
        })
    }
}

impl std::str::FromStr for Suite {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Self::ALL
            .into_iter()
            .find(|suite| suite.to_string() == name)
            .ok_or_else(|| {
                format!("unknown stream cipher {name}; there are aes128ctr and chacha20")
            })
    }
}

enum Cipher {
    Aes(Box<CtrCore<Aes128, Ctr64BE>>),
    ChaCha(Box<ChaCha20LegacyCore>),
}

/// The key stream of 32 secret bytes. Zeroized on drop.
///
/// AES-128-CTR: bytes 0 to 15 are the key, the first counter block is bytes 16 to 23 and eight zero
/// bytes, big-endian. ChaCha20: as [`Prg`](crate::Prg).
pub struct Stream {
    cipher: Cipher,
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Stream(..)")
    }
}

impl Stream {
    /// The stream of `seed`.
    pub fn new(suite: Suite, seed: &[u8; 32]) -> Self {
        let cipher = match suite {
            Suite::ChaCha20 => {
                let core = ChaCha20LegacyCore::new(seed.into(), &[0; 8].into());
                Cipher::ChaCha(Box::new(core))
            }
            Suite::Aes128Ctr => {
                let mut key = Zeroizing::new([0; 16]);
                key.copy_from_slice(&seed[..16]);
                let mut first = [0; 16];
                first[..8].copy_from_slice(&seed[16..24]);
                let core = CtrCore::new((&*key).into(), &first.into());
                Cipher::Aes(Box::new(core))
            }
        };
        Self { cipher }
    }

    /// Adds the stream, from its word `at` on, to `words`, or subtracts it.
    pub fn apply<W: Word>(&mut self, at: usize, op: Op, words: &mut [W]) {
        W::apply(self, at, op, words);
    }

    /// Writes the stream from its start, in whole blocks: the cipher alone, for comparison.
    ///
    /// # Panics
    /// When `out` is not a multiple of 64 bytes.
    pub fn fill(&mut self, out: &mut [u8]) {
        assert!(out.len().is_multiple_of(64), "whole blocks");
        match &mut self.cipher {
            Cipher::Aes(core) => fill(&mut **core, out),
            Cipher::ChaCha(core) => fill(&mut **core, out),
        }
    }
}

fn fill<C: StreamCipherCore + StreamCipherSeekCore<Counter = u64>>(core: &mut C, out: &mut [u8]) {
    let (blocks, _) = Array::slice_as_chunks_mut(out);
    core.set_block_pos(0);
    core.write_keystream_blocks(blocks);
}

fn apply<C, W>(core: &mut C, at: usize, op: Op, mut words: &mut [W])
where
    C: StreamCipherCore + StreamCipherSeekCore<Counter = u64>,
    W: Word,
{
    let per_block = C::BlockSize::USIZE / W::BYTES;
    core.set_block_pos((at / per_block) as u64);
    // The end of a block, then whole blocks, then the start of a block.
    let skipped = at % per_block;
    if skipped > 0 {
        let (head, rest) = words.split_at_mut(words.len().min(per_block - skipped));
        let from = skipped * W::BYTES;
        part(core, op, head, from);
        words = rest;
    }
    let whole = words.len() / per_block * per_block;
    let (middle, tail) = words.split_at_mut(whole);
    core.process_with_backend(Apply {
        op,
        words: middle,
        block: PhantomData::<C::BlockSize>,
    });
    if !tail.is_empty() {
        part(core, op, tail, 0);
    }
}

/// Applies the next block, from its byte `from` on.
fn part<C: StreamCipherCore, W: Word>(core: &mut C, op: Op, words: &mut [W], from: usize) {
    let mut block = Array::<u8, C::BlockSize>::default();
    core.write_keystream_block(&mut block);
    combine_words(op, words, &block[from..from + words.len() * W::BYTES]);
    wipe(&mut block);
}

/// Overwrites a key stream, whole registers at a time.
#[inline(always)]
fn wipe<T: Default>(secret: &mut T) {
    *secret = T::default();
    zeroize::optimization_barrier(secret);
}

/// Applies whole blocks as they are made. It is compiled with the instructions of the cipher, so
/// that the processor adds one batch while it makes the next.
struct Apply<'a, W, S> {
    op: Op,
    words: &'a mut [W],
    block: PhantomData<S>,
}

/// Aligned to cache lines.
#[repr(align(64))]
struct Lines<T>(T);

impl<W, S: ArraySize> BlockSizeUser for Apply<'_, W, S> {
    type BlockSize = S;
}

impl<W: Word, S: ArraySize> StreamCipherClosure for Apply<'_, W, S> {
    #[inline(always)]
    fn call<B: StreamCipherBackend<BlockSize = S>>(self, backend: &mut B) {
        let per_block = S::USIZE / W::BYTES;
        let mut batches = self
            .words
            .chunks_exact_mut(per_block * B::ParBlocksSize::USIZE);
        let mut blocks = Lines(ParBlocks::<B>::default());
        for batch in &mut batches {
            backend.gen_par_ks_blocks(&mut blocks.0);
            combine_words(self.op, batch, blocks.0.as_flattened());
        }
        wipe(&mut blocks.0);
        let mut block = Block::<B>::default();
        for words in batches.into_remainder().chunks_exact_mut(per_block) {
            backend.gen_ks_block(&mut block);
            combine_words(self.op, words, &block);
        }
        wipe(&mut block);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The key of NIST SP 800-38A, F.5.1; the first block is that of `openssl enc -aes-128-ecb` of
    /// zeros.
    #[test]
    fn is_aes_in_counter_mode() {
        let mut seed = [0; 32];
        seed[..16].copy_from_slice(&[
            0x2b, 0x7e, 0x15, 0x16, 0x28, 0xae, 0xd2, 0xa6, 0xab, 0xf7, 0x15, 0x88, 0x09, 0xcf,
            0x4f, 0x3c,
        ]);
        let mut out = [0; 64];
        Stream::new(Suite::Aes128Ctr, &seed).fill(&mut out);
        assert_eq!(
            out[..16],
            [
                0x7d, 0xf7, 0x6b, 0x0c, 0x1a, 0xb8, 0x99, 0xb3, 0x3e, 0x42, 0xf0, 0x47, 0xb9, 0x1b,
                0x54, 0x6f
            ]
        );
    }

    #[test]
    fn chacha20_is_that_of_the_prg() {
        let (mut ours, mut theirs) = ([0; 256], [0; 256]);
        Stream::new(Suite::ChaCha20, &[9; 32]).fill(&mut ours);
        crate::Prg::new(&[9; 32]).fill(&mut theirs);
        assert_eq!(ours, theirs);
    }

    fn check<W: Word>(suite: Suite, len: usize, at: usize, op: Op, seed: u8) {
        let mut bytes = vec![0; ((at + len) * W::BYTES).next_multiple_of(64)];
        Stream::new(suite, &[seed; 32]).fill(&mut bytes);
        let start: Vec<W> = (0..len)
            .map(|i| W::truncate((i as u64).wrapping_mul(0x9e37_79b9_97f4_a7c1)))
            .collect();
        let expected: Vec<W> = start
            .iter()
            .zip(bytes[at * W::BYTES..].chunks_exact(W::BYTES))
            .map(|(word, mask)| match op {
                Op::Add => word.plus(W::from_le(mask)),
                Op::Subtract => word.minus(W::from_le(mask)),
            })
            .collect();
        let mut stream = Stream::new(suite, &[seed; 32]);
        let mut words = start.clone();
        stream.apply(at, op, &mut words);
        assert_eq!(words, expected);
        stream.apply(at, op.inverse(), &mut words);
        assert_eq!(words, start);
        for cpu in Cpu::all() {
            let mut words = start.clone();
            let mask = &bytes[at * W::BYTES..(at + len) * W::BYTES];
            combine(cpu, op, &mut words, mask);
            assert_eq!(words, expected, "{:?}", cpu.level());
        }
        let mut sent = Vec::new();
        append_bytes(&start, &mut sent);
        assert!(from_bytes::<W>(&sent).eq(start));
    }

    proptest! {
        #[test]
        fn streams_are_added_from_any_word_on(
            len in 0usize..5000, at in 0usize..100, add: bool, seed: u8, aes: bool,
        ) {
            let op = if add { Op::Add } else { Op::Subtract };
            let suite = if aes { Suite::Aes128Ctr } else { Suite::ChaCha20 };
            check::<u16>(suite, len, at, op, seed);
            check::<u32>(suite, len, at, op, seed);
            check::<u64>(suite, len, at, op, seed);
        }
    }
}
