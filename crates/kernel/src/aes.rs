//! AES-128 under a public key, as a permutation of 128-bit blocks, and hashes made from it.
//!
//! Guo, Katz, Wang and Yu (*Efficient and Secure Multiparty Computation from Fixed-Key Block
//! Ciphers*, 2020) define what hashes must withstand, and prove two hashes secure for a random
//! permutation π:
//!
//! - [`mmo`](Permutation::mmo), MMO(x) = π(x) ⊕ x, is *correlation robust*: on x ⊕ Δ it looks
//!   random, for distinct known x and an unknown Δ.
//! - [`tmmo`](Permutation::tmmo), TMMO(x, i) = π(π(x) ⊕ i) ⊕ π(x), is *tweakable circular
//!   correlation robust*: the same holds if x repeats under different tweaks i, and if Δ is added
//!   to the result.
//!
//! A block is a `u128`: byte i of it is bits 8i to 8i + 7.
#![allow(clippy::needless_range_loop)] // registers go by number

use aes::Aes128;
use ctr::cipher::{Array, BlockCipherEncrypt, KeyInit};

use crate::cpu::{Cpu, Level};

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
use crate::simd::{Register, middle_keys, rounds, xor};
#[cfg(target_arch = "aarch64")]
use std::arch::aarch64::uint8x16_t;
#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::{__m128i, __m512i};

/// Blocks of a batch.
const BATCH: usize = 16;

/// The round keys of AES-128.
pub(crate) type Schedule = [u128; 11];

/// AES-128 under a public key.
#[derive(Clone)]
pub struct Permutation {
    cpu: Cpu,
    cipher: Aes128,
    schedule: Schedule,
}

impl std::fmt::Debug for Permutation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Permutation(..)")
    }
}

/// The function applied to blocks.
#[derive(Clone, Copy)]
enum Mode {
    Plain,
    Mmo,
    Tmmo { first: u64 },
}

impl Permutation {
    /// AES-128 under `key`.
    pub fn new(cpu: Cpu, key: u128) -> Self {
        Self {
            cpu,
            cipher: cipher(key),
            schedule: schedule(cpu, key),
        }
    }

    /// The processor whose instructions it uses.
    pub fn cpu(&self) -> Cpu {
        self.cpu
    }

    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    pub(crate) fn schedule(&self) -> &Schedule {
        &self.schedule
    }

    /// π(x), for each x.
    pub fn apply(&self, blocks: &mut [u128]) {
        self.run(Mode::Plain, blocks);
    }

    /// MMO(x) = π(x) ⊕ x, for each x.
    pub fn mmo(&self, blocks: &mut [u128]) {
        self.run(Mode::Mmo, blocks);
    }

    /// TMMO(x, i) = π(π(x) ⊕ i) ⊕ π(x), for each x, with tweaks `first`, `first + 1`, …
    pub fn tmmo(&self, first: u64, blocks: &mut [u128]) {
        self.run(Mode::Tmmo { first }, blocks);
    }

    fn run(&self, mode: Mode, blocks: &mut [u128]) {
        match self.cpu.level() {
            // SAFETY: `Cpu` proves the features.
            #[cfg(target_arch = "aarch64")]
            Level::Neon => unsafe { neon(&self.schedule, mode, blocks) },
            // SAFETY: `Cpu` proves the features.
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => unsafe { avx2(&self.schedule, mode, blocks) },
            // SAFETY: `Cpu` proves the features.
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => unsafe { avx512(&self.schedule, mode, blocks) },
            _ => self.portable(mode, blocks),
        }
    }

    fn portable(&self, mode: Mode, blocks: &mut [u128]) {
        let mut work = [0; BATCH];
        for (batch, blocks) in blocks.chunks_mut(BATCH).enumerate() {
            let work = &mut work[..blocks.len()];
            work.copy_from_slice(blocks);
            encrypt(&self.cipher, work);
            match mode {
                Mode::Plain => blocks.copy_from_slice(work),
                Mode::Mmo => blocks.iter_mut().zip(work).for_each(|(x, y)| *x ^= *y),
                Mode::Tmmo { first } => {
                    let first = first.wrapping_add((batch * BATCH) as u64);
                    for (i, (x, y)) in blocks.iter_mut().zip(&mut *work).enumerate() {
                        *x = *y;
                        *y ^= u128::from(first.wrapping_add(i as u64));
                    }
                    encrypt(&self.cipher, work);
                    blocks.iter_mut().zip(work).for_each(|(x, y)| *x ^= *y);
                }
            }
        }
    }
}

/// AES-128 under `key`.
pub(crate) fn cipher(key: u128) -> Aes128 {
    Aes128::new(&Array::from(key.to_le_bytes()))
}

/// AES of every block.
pub(crate) fn encrypt(cipher: &Aes128, blocks: &mut [u128]) {
    let mut bytes = [Array::default(); BATCH];
    for blocks in blocks.chunks_mut(BATCH) {
        for (bytes, block) in bytes.iter_mut().zip(&*blocks) {
            *bytes = Array::from(block.to_le_bytes());
        }
        cipher.encrypt_blocks(&mut bytes[..blocks.len()]);
        for (block, bytes) in blocks.iter_mut().zip(&bytes) {
            *block = u128::from_le_bytes((*bytes).into());
        }
    }
}

/// The round keys of `key`; zeros where only portable code runs.
pub(crate) fn schedule(cpu: Cpu, key: u128) -> Schedule {
    match cpu.level() {
        // SAFETY: `Cpu` proves the features.
        #[cfg(target_arch = "aarch64")]
        Level::Neon => unsafe { expand(key) },
        // SAFETY: `Cpu` proves the features.
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 | Level::Avx512 => unsafe { expand(key) },
        _ => [0; 11],
    }
}

/// The key expansion of FIPS 197, section 5.2, in constant time.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "aes")]
fn expand(key: u128) -> Schedule {
    use std::arch::x86_64::_mm_aeskeygenassist_si128;

    let mut out = [key; 11];
    macro_rules! round {
        ($i:literal, $constant:literal) => {
            let before = out[$i - 1];
            // SAFETY: a reference may be read; any bits are a block.
            let word = unsafe {
                let assist = _mm_aeskeygenassist_si128::<$constant>(__m128i::broadcast(&before));
                let mut word = 0u128;
                assist.store(std::ptr::from_mut(&mut word).cast());
                word >> 96
            };
            // Each word is the sum of all before it.
            let mut sum = before;
            sum ^= sum << 32;
            sum ^= sum << 64;
            out[$i] = sum ^ word.wrapping_mul(0x0000_0001_0000_0001_0000_0001_0000_0001);
        };
    }
    round!(1, 0x01);
    round!(2, 0x02);
    round!(3, 0x04);
    round!(4, 0x08);
    round!(5, 0x10);
    round!(6, 0x20);
    round!(7, 0x40);
    round!(8, 0x80);
    round!(9, 0x1b);
    round!(10, 0x36);
    out
}

/// As on x86-64. The instruction for a round does without the key and without mixing columns what
/// the expansion needs: it substitutes the bytes of a word that is in all columns.
#[cfg(target_arch = "aarch64")]
#[target_feature(enable = "neon,aes")]
fn expand(key: u128) -> Schedule {
    const CONSTANTS: [u32; 10] = [0x01, 0x02, 0x04, 0x08, 0x10, 0x20, 0x40, 0x80, 0x1b, 0x36];
    use std::arch::aarch64::*;

    let mut out = [key; 11];
    for (i, constant) in CONSTANTS.into_iter().enumerate() {
        let before = out[i];
        let last = vdupq_n_u32((before >> 96) as u32);
        let bytes = vaeseq_u8(vreinterpretq_u8_u32(last), vdupq_n_u8(0));
        let substituted = vgetq_lane_u32::<0>(vreinterpretq_u32_u8(bytes));
        let word = u128::from(substituted.rotate_right(8) ^ constant);
        // Each word is the sum of all before it.
        let mut sum = before;
        sum ^= sum << 32;
        sum ^= sum << 64;
        out[i + 1] = sum ^ word.wrapping_mul(0x0000_0001_0000_0001_0000_0001_0000_0001);
    }
    out
}

#[cfg(target_arch = "aarch64")]
#[target_feature(enable = "neon,aes")]
fn neon(schedule: &Schedule, mode: Mode, blocks: &mut [u128]) {
    // SAFETY: this function has the features.
    unsafe { fast::<uint8x16_t, 8>(schedule, mode, blocks) }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,vaes")]
fn avx512(schedule: &Schedule, mode: Mode, blocks: &mut [u128]) {
    // SAFETY: this function has the features.
    unsafe { fast::<__m512i, 4>(schedule, mode, blocks) }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,aes")]
fn avx2(schedule: &Schedule, mode: Mode, blocks: &mut [u128]) {
    // SAFETY: this function has the features.
    unsafe { fast::<__m128i, 8>(schedule, mode, blocks) }
}

/// `N` registers at a time. The last batch is filled up.
///
/// # Safety
/// The processor has the instructions of `R`.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
#[inline(always)]
unsafe fn fast<R: Register, const N: usize>(schedule: &Schedule, mode: Mode, blocks: &mut [u128]) {
    const { assert!(N * R::BLOCKS <= BATCH) };
    let size = N * R::BLOCKS;
    let mut batches = blocks.chunks_exact_mut(size);
    let mut at = 0;
    // SAFETY: the caller promises the instructions; every batch has N registers of blocks.
    unsafe {
        let keys = middle_keys::<R>(schedule);
        for blocks in &mut batches {
            batch::<R, N>(schedule, &keys, mode, at, blocks);
            at += size as u64;
        }
        let rest = batches.into_remainder();
        if !rest.is_empty() {
            let mut full = [0; BATCH];
            full[..rest.len()].copy_from_slice(rest);
            batch::<R, N>(schedule, &keys, mode, at, &mut full[..size]);
            rest.copy_from_slice(&full[..rest.len()]);
        }
    }
}

/// N registers of blocks; the first block is number `at`.
///
/// # Safety
/// The processor has the instructions of `R`, and there are N registers of blocks.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
#[inline(always)]
unsafe fn batch<R: Register, const N: usize>(
    schedule: &Schedule,
    keys: &[R; 9],
    mode: Mode,
    at: u64,
    blocks: &mut [u128],
) {
    let to: *mut u8 = blocks.as_mut_ptr().cast();
    // SAFETY: the caller promises the instructions and N registers of blocks.
    unsafe {
        let first_key = [R::broadcast(&schedule[0]); N];
        let last_key = [R::broadcast(&schedule[10]); N];
        let mut x = first_key;
        for i in 0..N {
            x[i] = R::load(to.add(i * R::BYTES));
        }
        let start = xor(x, first_key);
        let out = match mode {
            Mode::Plain => rounds(keys, start, last_key),
            Mode::Mmo => rounds(keys, start, xor(x, last_key)),
            Mode::Tmmo { first } => {
                let y = rounds(keys, start, last_key);
                let mut tweaks = first_key;
                for i in 0..N {
                    let number = first.wrapping_add(at + (i * R::BLOCKS) as u64);
                    tweaks[i] = R::counter(number).xor(first_key[i]);
                }
                rounds(keys, xor(y, tweaks), xor(y, last_key))
            }
        };
        for i in 0..N {
            out[i].store(to.add(i * R::BYTES));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// FIPS 197, appendix B.
    #[test]
    fn is_aes() {
        let block = |text: &str| u128::from_str_radix(text, 16).unwrap().swap_bytes();
        let key = block("2b7e151628aed2a6abf7158809cf4f3c");
        for cpu in Cpu::all() {
            let mut x = [block("3243f6a8885a308d313198a2e0370734")];
            Permutation::new(cpu, key).apply(&mut x);
            assert_eq!(x, [block("3925841d02dc09fbdc118597196a0b32")]);
        }
    }

    proptest! {
        #[test]
        fn every_path_is_the_definition(
            key: u128, first: u64, blocks in prop::collection::vec(any::<u128>(), 0..70),
        ) {
            let pi = Permutation::new(Cpu::portable(), key);
            let one = |x: u128| {
                let mut x = [x];
                pi.apply(&mut x);
                x[0]
            };
            let mmo: Vec<u128> = blocks.iter().map(|x| one(*x) ^ x).collect();
            let tweaked = |(i, x): (usize, &u128)| {
                let y = one(*x);
                one(y ^ u128::from(first.wrapping_add(i as u64))) ^ y
            };
            let tmmo: Vec<u128> = blocks.iter().enumerate().map(tweaked).collect();
            for cpu in Cpu::all() {
                let pi = Permutation::new(cpu, key);
                let mut hashed = blocks.clone();
                pi.mmo(&mut hashed);
                prop_assert_eq!(&hashed, &mmo);
                let mut hashed = blocks.clone();
                pi.tmmo(first, &mut hashed);
                prop_assert_eq!(&hashed, &tmmo);
            }
        }
    }
}
