//! Streams of the leaves of a tree, added up: the inner loop of small-field VOLE (Roy,
//! *SoftSpokenOT*, 2022).
//!
//! Leaf x of q has a stream of bits r_x. The kernel computes Σ r_x and, for every bit b, Σ r_x over
//! the x that have bit b. Sums are exclusive or, so this is Σ x·r_x in GF(q), q a power of two.
//! Streams are made and added in registers.
//!
//! A stream is AES-128 in counter mode under the leaf: block n is the encryption of the number n.
//! [`Leaves::stream`] writes the stream of one leaf.
#![allow(clippy::needless_range_loop)] // registers go by number

use std::ops::Range;

use aes::Aes128;
use zeroize::Zeroize;

use crate::aes::{self as fixed, Schedule};
use crate::cpu::{Cpu, Level};

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
use crate::simd::{Register, middle_keys, rounds, xor};
#[cfg(target_arch = "aarch64")]
use std::arch::aarch64::uint8x16_t;
#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::{__m128i, __m512i};

/// Blocks of a stream in a [`Row`].
pub const BLOCKS: usize = 16;

/// Some blocks of a stream, or of a sum of streams.
pub type Row = [u128; BLOCKS];

/// Bytes of a [`Row`].
pub const ROW_BYTES: usize = 16 * BLOCKS;

/// The keys of some streams. Zeroized on drop.
pub struct Leaves {
    cpu: Cpu,
    /// For the portable path.
    ciphers: Vec<Aes128>,
    /// For the other paths.
    schedules: Vec<Schedule>,
}

impl std::fmt::Debug for Leaves {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Leaves(..)")
    }
}

impl Drop for Leaves {
    fn drop(&mut self) {
        self.schedules.zeroize();
    }
}

impl Leaves {
    /// Leaves with these seeds.
    pub fn new(cpu: Cpu, seeds: &[u128]) -> Self {
        let (mut ciphers, mut schedules) = (Vec::new(), Vec::new());
        match cpu.level() {
            Level::Portable => ciphers = seeds.iter().map(|seed| fixed::cipher(*seed)).collect(),
            Level::Neon | Level::Avx2 | Level::Avx512 => {
                schedules = seeds
                    .iter()
                    .map(|seed| fixed::schedule(cpu, *seed))
                    .collect();
            }
        }
        Self {
            cpu,
            ciphers,
            schedules,
        }
    }

    /// Adds up blocks `16·chunk` to `16·chunk + 15` of the streams of the leaves in `range`. Writes
    /// the sum to `sum`, and to row b of `bits` the sum over the leaves whose place in the range,
    /// from 0, has bit b.
    ///
    /// # Panics
    /// When `range` goes past the last leaf, or is not `2^bits.len()` leaves.
    pub fn sums(&self, range: Range<usize>, chunk: u64, sum: &mut Row, bits: &mut [Row]) {
        assert_eq!(range.len(), 1 << bits.len(), "leaves");
        *sum = [0; BLOCKS];
        bits.fill([0; BLOCKS]);
        let first = chunk * BLOCKS as u64;
        match self.cpu.level() {
            // SAFETY: `Cpu` proves the features.
            #[cfg(target_arch = "aarch64")]
            Level::Neon => unsafe { neon(&self.schedules[range], first, sum, bits) },
            // SAFETY: `Cpu` proves the features.
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => unsafe { avx2(&self.schedules[range], first, sum, bits) },
            // SAFETY: `Cpu` proves the features.
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => unsafe { avx512(&self.schedules[range], first, sum, bits) },
            _ => portable(&self.ciphers[range], first, sum, bits),
        }
    }
}

impl Leaves {
    /// Number of leaves.
    pub fn len(&self) -> usize {
        self.ciphers.len().max(self.schedules.len())
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Writes the stream of one leaf from its block `16·chunk` on.
    ///
    /// # Panics
    /// When there is no such leaf, or `out` is not a multiple of [`ROW_BYTES`].
    pub fn stream(&self, leaf: usize, chunk: u64, out: &mut [u8]) {
        let (rows, rest) = out.as_chunks_mut::<ROW_BYTES>();
        assert!(rest.is_empty(), "whole rows");
        let first = chunk * BLOCKS as u64;
        match self.cpu.level() {
            // SAFETY: `Cpu` proves the features.
            #[cfg(target_arch = "aarch64")]
            Level::Neon => unsafe { stream_neon(&self.schedules[leaf], first, rows) },
            // SAFETY: `Cpu` proves the features.
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => unsafe { stream_avx2(&self.schedules[leaf], first, rows) },
            // SAFETY: `Cpu` proves the features.
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => unsafe { stream_avx512(&self.schedules[leaf], first, rows) },
            _ => stream_portable(&self.ciphers[leaf], first, rows),
        }
    }
}

fn stream_portable(cipher: &Aes128, mut first: u64, out: &mut [[u8; ROW_BYTES]]) {
    for bytes in out {
        let mut row: Row = std::array::from_fn(|i| u128::from(first + i as u64));
        fixed::encrypt(cipher, &mut row);
        for (bytes, block) in bytes.chunks_exact_mut(16).zip(&row) {
            bytes.copy_from_slice(&block.to_le_bytes());
        }
        first += BLOCKS as u64;
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,vaes")]
fn stream_avx512(leaf: &Schedule, first: u64, out: &mut [[u8; ROW_BYTES]]) {
    // SAFETY: this function has the features; 4 registers of 4 blocks are a row.
    unsafe { stream_fast::<__m512i, 4>(leaf, first, out) }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,aes")]
fn stream_avx2(leaf: &Schedule, first: u64, out: &mut [[u8; ROW_BYTES]]) {
    // SAFETY: this function has the features; 8 registers divide a row.
    unsafe { stream_fast::<__m128i, 8>(leaf, first, out) }
}

#[cfg(target_arch = "aarch64")]
#[target_feature(enable = "neon,aes")]
fn stream_neon(leaf: &Schedule, first: u64, out: &mut [[u8; ROW_BYTES]]) {
    // SAFETY: this function has the features; 8 registers divide a row.
    unsafe { stream_fast::<uint8x16_t, 8>(leaf, first, out) }
}

/// `N` registers of blocks at a time.
///
/// # Safety
/// The processor has the instructions of `R`, and N registers divide a row.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
#[inline(always)]
unsafe fn stream_fast<R: Register, const N: usize>(
    leaf: &Schedule,
    mut first: u64,
    out: &mut [[u8; ROW_BYTES]],
) {
    const { assert!(BLOCKS.is_multiple_of(N * R::BLOCKS)) };
    for bytes in out {
        for at in (0..BLOCKS).step_by(N * R::BLOCKS) {
            // SAFETY: the caller promises the instructions; all writes are within the row's bytes,
            // as N registers from block `at` on are.
            unsafe {
                let mut counters = [R::splat(0); N];
                for i in 0..N {
                    counters[i] = R::counter(first + (at + i * R::BLOCKS) as u64);
                }
                let values = stream(leaf, counters);
                let to = bytes.as_mut_ptr().add(16 * at);
                for i in 0..N {
                    values[i].store(to.add(i * R::BYTES));
                }
            }
        }
        first += BLOCKS as u64;
    }
}

fn add(to: &mut Row, row: &Row) {
    to.iter_mut().zip(row).for_each(|(to, x)| *to ^= x);
}

fn portable(leaves: &[Aes128], first: u64, sum: &mut Row, bits: &mut [Row]) {
    for (x, cipher) in leaves.iter().enumerate() {
        let mut row: Row = std::array::from_fn(|i| u128::from(first + i as u64));
        fixed::encrypt(cipher, &mut row);
        add(sum, &row);
        for (b, bits) in bits.iter_mut().enumerate() {
            if x >> b & 1 == 1 {
                add(bits, &row);
            }
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,vaes")]
fn avx512(leaves: &[Schedule], first: u64, sum: &mut Row, bits: &mut [Row]) {
    // SAFETY: this function has the features; 4 registers of 4 blocks are a row.
    unsafe { fast::<__m512i, 4>(leaves, first, sum, bits) }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,aes")]
fn avx2(leaves: &[Schedule], first: u64, sum: &mut Row, bits: &mut [Row]) {
    // SAFETY: this function has the features; 4 registers divide a row.
    unsafe { fast::<__m128i, 4>(leaves, first, sum, bits) }
}

#[cfg(target_arch = "aarch64")]
#[target_feature(enable = "neon,aes")]
fn neon(leaves: &[Schedule], first: u64, sum: &mut Row, bits: &mut [Row]) {
    // SAFETY: this function has the features; 4 registers divide a row.
    unsafe { fast::<uint8x16_t, 4>(leaves, first, sum, bits) }
}

/// Four leaves at a time, whose sums stay in registers, `N` registers of blocks at a time.
///
/// # Safety
/// The processor has the instructions of `R`, and N registers divide a row.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
#[inline(always)]
unsafe fn fast<R: Register, const N: usize>(
    leaves: &[Schedule],
    first: u64,
    sum: &mut Row,
    bits: &mut [Row],
) {
    const { assert!(BLOCKS.is_multiple_of(N * R::BLOCKS)) };
    for at in (0..BLOCKS).step_by(N * R::BLOCKS) {
        // SAFETY: the caller promises the instructions; all accesses are within rows, as N
        // registers from `at` on are.
        unsafe {
            let zero = R::splat(0);
            let mut counters = [zero; N];
            for i in 0..N {
                counters[i] = R::counter(first + (at + i * R::BLOCKS) as u64);
            }
            let mut low = [[zero; N]; 2];
            let mut fours = leaves.chunks_exact(4);
            for (four, leaves) in fours.by_ref().enumerate() {
                let mut four_sum = stream(&leaves[0], counters);
                let row = stream(&leaves[1], counters);
                low[0] = xor(low[0], row);
                four_sum = xor(four_sum, row);
                let row = stream(&leaves[2], counters);
                low[1] = xor(low[1], row);
                four_sum = xor(four_sum, row);
                let row = stream(&leaves[3], counters);
                low[0] = xor(low[0], row);
                low[1] = xor(low[1], row);
                four_sum = xor(four_sum, row);
                add_at(sum, at, four_sum);
                for (b, bits) in bits[2..].iter_mut().enumerate() {
                    if four >> b & 1 == 1 {
                        add_at(bits, at, four_sum);
                    }
                }
            }
            // There are one or two leaves if there are fewer than four.
            for (x, leaf) in fours.remainder().iter().enumerate() {
                let row = stream(leaf, counters);
                add_at(sum, at, row);
                if x == 1 {
                    low[0] = xor(low[0], row);
                }
            }
            for (bits, low) in bits.iter_mut().zip(low) {
                add_at(bits, at, low);
            }
        }
    }
}

/// The blocks of a leaf's stream at the given counters.
///
/// # Safety
/// The processor has the instructions of `R`.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
#[inline(always)]
unsafe fn stream<R: Register, const N: usize>(leaf: &Schedule, counters: [R; N]) -> [R; N] {
    // SAFETY: the caller promises the instructions.
    unsafe {
        let keys = middle_keys::<R>(leaf);
        let start = xor(counters, [R::broadcast(&leaf[0]); N]);
        rounds(&keys, start, [R::broadcast(&leaf[10]); N])
    }
}

/// Adds N registers to the row, from block `at` on.
///
/// # Safety
/// The processor has the instructions of `R`, and the row has N registers of blocks from there on.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
#[inline(always)]
unsafe fn add_at<R: Register, const N: usize>(row: &mut Row, at: usize, values: [R; N]) {
    // SAFETY: the caller promises the instructions and the blocks.
    unsafe {
        let row: *mut u8 = row.as_mut_ptr().add(at).cast();
        for i in 0..N {
            let to = row.add(i * R::BYTES);
            R::load(to).xor(values[i]).store(to);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Prg;

    fn seeds(count: usize) -> Vec<u128> {
        let mut prg = Prg::new(&[5; 32]);
        let half = |prg: &mut Prg| u128::from(prg.next_u64());
        (0..count)
            .map(|_| half(&mut prg) << 64 | half(&mut prg))
            .collect()
    }

    #[test]
    fn streams_are_the_definition() {
        let seeds = seeds(3);
        for cpu in Cpu::all() {
            let leaves = Leaves::new(cpu, &seeds);
            assert_eq!(leaves.len(), 3);
            for (leaf, seed) in seeds.iter().enumerate() {
                let mut out = vec![9; 3 * ROW_BYTES];
                leaves.stream(leaf, 1 << 33, &mut out);
                for (n, bytes) in out.chunks(16).enumerate() {
                    let mut block = [(1 << 33) * BLOCKS as u128 + n as u128];
                    crate::aes::Permutation::new(Cpu::portable(), *seed).apply(&mut block);
                    assert_eq!(bytes, block[0].to_le_bytes(), "{:?}", cpu.level());
                }
            }
        }
    }

    #[test]
    fn every_path_is_the_definition() {
        for f in 0..=8 {
            let (before, q) = (3, 1 << f);
            let seeds = seeds(before + q);
            for chunk in [0, 1, 1 << 40] {
                let (mut sum, mut bits) = ([0; BLOCKS], vec![[0; BLOCKS]; f]);
                for (x, seed) in seeds[before..].iter().enumerate() {
                    for n in 0..BLOCKS {
                        let mut block = [u128::from(chunk * BLOCKS as u64 + n as u64)];
                        crate::aes::Permutation::new(Cpu::portable(), *seed).apply(&mut block);
                        sum[n] ^= block[0];
                        for (b, bits) in bits.iter_mut().enumerate() {
                            bits[n] ^= block[0] * (x as u128 >> b & 1);
                        }
                    }
                }
                for cpu in Cpu::all() {
                    let leaves = Leaves::new(cpu, &seeds);
                    let (mut s, mut b) = ([9; BLOCKS], vec![[9; BLOCKS]; f]);
                    leaves.sums(before..before + q, chunk, &mut s, &mut b);
                    assert_eq!((s, b), (sum, bits.clone()), "f = {f}, {:?}", cpu.level());
                }
            }
        }
    }
}
