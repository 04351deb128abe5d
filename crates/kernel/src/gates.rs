//! AND gates of garbled circuits: half-gates (Zahur, Rosulek, Evans, *Two Halves Make a Whole*,
//! EUROCRYPT 2015, figure 2), for many instances of one circuit at once.
//!
//! A wire has the labels W₀ and W₁ = W₀ ⊕ Δ, and the lowest bit of Δ is 1. With H =
//! [TMMO](crate::aes), p the lowest bit of a label W₀, and tweaks j and k = j + 2³², the garbler
//! computes, from the labels A₀ and B₀ of the inputs:
//!
//! - `T_G = H(A₀, j) ⊕ H(A₁, j) ⊕ p_b·Δ`
//! - `T_E = H(B₀, k) ⊕ H(B₁, k) ⊕ A₀`
//! - `C₀ = H(A₀, j) ⊕ p_a·T_G ⊕ H(B₀, k) ⊕ p_b·(T_E ⊕ A₀)`
//!
//! The evaluator has one label of each input, A and B with lowest bits s_a and s_b:
//!
//! - `C = H(A, j) ⊕ s_a·T_G ⊕ H(B, k) ⊕ s_b·(T_E ⊕ A)`
//!
//! In gate g of a circuit the tweak of instance r is `j = 2g·2³² + r`.
#![allow(clippy::needless_range_loop)] // registers go by number

use crate::aes::Permutation;
use crate::cpu::Level;

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
use crate::aes::Schedule;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
use crate::simd::{Register, middle_keys, rounds};
#[cfg(target_arch = "aarch64")]
use std::arch::aarch64::uint8x16_t;
#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::{__m128i, __m512i};

/// The number of instances is a multiple of this.
pub const INSTANCES: usize = 8;

/// Most gates of a circuit.
pub const MAX_GATES: u32 = 1 << 31;

/// The two blocks of a garbled gate: T_G and T_E.
pub type Table = [u128; 2];

/// A gate of some instances.
#[derive(Debug, Clone, Copy)]
pub struct Gate {
    /// The number of the gate among the AND gates of its circuit, below [`MAX_GATES`].
    pub number: u32,
    /// The number of the first instance.
    pub first: u32,
}

impl Gate {
    /// The tweaks of the first instance.
    fn tweaks(self) -> [u64; 2] {
        let tweak = |half| (2 * u64::from(self.number) + half) << 32 | u64::from(self.first);
        [tweak(0), tweak(1)]
    }

    fn check(self, lens: [usize; 4]) {
        let count = lens[0];
        assert!(self.number < MAX_GATES, "gate {}", self.number);
        assert!(count.is_multiple_of(INSTANCES), "{count} instances");
        assert!(lens.iter().all(|len| *len == count), "lengths {lens:?}");
        let end = u64::from(self.first) + count as u64;
        assert!(end <= 1 << 32, "instance {end}");
    }
}

/// Garbles `gate`: from the labels A₀ and B₀ of each instance, its table and C₀.
///
/// # Panics
/// When lengths differ or are no multiple of [`INSTANCES`], or a number is out of range.
#[inline]
pub fn garble(
    pi: &Permutation,
    delta: u128,
    gate: Gate,
    [a, b]: [&[u128]; 2],
    c: &mut [u128],
    tables: &mut [Table],
) {
    gate.check([a.len(), b.len(), c.len(), tables.len()]);
    match pi.cpu().level() {
        // SAFETY: `Cpu` proves the features; lengths are checked.
        #[cfg(target_arch = "aarch64")]
        Level::Neon => unsafe { garble_neon(pi.schedule(), delta, gate, [a, b], c, tables) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => unsafe { garble_avx2(pi.schedule(), delta, gate, [a, b], c, tables) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => unsafe { garble_avx512(pi.schedule(), delta, gate, [a, b], c, tables) },
        _ => garble_portable(pi, delta, gate, [a, b], c, tables),
    }
}

/// Evaluates `gate`: from one label of each input and the table, the label C of each instance.
///
/// # Panics
/// As [`garble`].
#[inline]
pub fn evaluate(
    pi: &Permutation,
    gate: Gate,
    [a, b]: [&[u128]; 2],
    tables: &[Table],
    c: &mut [u128],
) {
    gate.check([a.len(), b.len(), c.len(), tables.len()]);
    match pi.cpu().level() {
        // SAFETY: `Cpu` proves the features; lengths are checked.
        #[cfg(target_arch = "aarch64")]
        Level::Neon => unsafe { evaluate_neon(pi.schedule(), gate, [a, b], tables, c) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => unsafe { evaluate_avx2(pi.schedule(), gate, [a, b], tables, c) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => unsafe { evaluate_avx512(pi.schedule(), gate, [a, b], tables, c) },
        _ => evaluate_portable(pi, gate, [a, b], tables, c),
    }
}

/// `value` if the lowest bit of `label` is set, otherwise zero.
fn if_lowest(label: u128, value: u128) -> u128 {
    0u128.wrapping_sub(label & 1) & value
}

fn garble_portable(
    pi: &Permutation,
    delta: u128,
    gate: Gate,
    [a, b]: [&[u128]; 2],
    c: &mut [u128],
    tables: &mut [Table],
) {
    let [j, k] = gate.tweaks();
    for start in (0..a.len()).step_by(INSTANCES) {
        let at = start as u64;
        let hash = |labels: &[u128], flip: u128, tweak: u64| {
            let mut out: [u128; INSTANCES] = std::array::from_fn(|i| labels[start + i] ^ flip);
            pi.tmmo(tweak + at, &mut out);
            out
        };
        let [a0, a1] = [hash(a, 0, j), hash(a, delta, j)];
        let [b0, b1] = [hash(b, 0, k), hash(b, delta, k)];
        for i in 0..INSTANCES {
            let (a, b) = (a[start + i], b[start + i]);
            let garbler = a0[i] ^ a1[i] ^ if_lowest(b, delta);
            let without = b0[i] ^ b1[i];
            c[start + i] = a0[i] ^ if_lowest(a, garbler) ^ b0[i] ^ if_lowest(b, without);
            tables[start + i] = [garbler, without ^ a];
        }
    }
}

fn evaluate_portable(
    pi: &Permutation,
    gate: Gate,
    [a, b]: [&[u128]; 2],
    tables: &[Table],
    c: &mut [u128],
) {
    let [j, k] = gate.tweaks();
    for start in (0..a.len()).step_by(INSTANCES) {
        let at = start as u64;
        let hash = |labels: &[u128], tweak: u64| {
            let mut out: [u128; INSTANCES] = std::array::from_fn(|i| labels[start + i]);
            pi.tmmo(tweak + at, &mut out);
            out
        };
        let (ha, hb) = (hash(a, j), hash(b, k));
        for i in 0..INSTANCES {
            let (a, b) = (a[start + i], b[start + i]);
            let [garbler, evaluator] = tables[start + i];
            c[start + i] = ha[i] ^ if_lowest(a, garbler) ^ hb[i] ^ if_lowest(b, evaluator ^ a);
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,vaes")]
unsafe fn garble_avx512(
    schedule: &Schedule,
    delta: u128,
    gate: Gate,
    inputs: [&[u128]; 2],
    c: &mut [u128],
    tables: &mut [Table],
) {
    // SAFETY: this function has the features; the caller promises the lengths.
    unsafe { garble_fast::<__m512i>(schedule, delta, gate, inputs, c, tables) }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,aes")]
unsafe fn garble_avx2(
    schedule: &Schedule,
    delta: u128,
    gate: Gate,
    inputs: [&[u128]; 2],
    c: &mut [u128],
    tables: &mut [Table],
) {
    // SAFETY: this function has the features; the caller promises the lengths.
    unsafe { garble_fast::<__m128i>(schedule, delta, gate, inputs, c, tables) }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,vaes")]
unsafe fn evaluate_avx512(
    schedule: &Schedule,
    gate: Gate,
    inputs: [&[u128]; 2],
    tables: &[Table],
    c: &mut [u128],
) {
    // SAFETY: this function has the features; the caller promises the lengths.
    unsafe { evaluate_fast::<__m512i, 4>(schedule, gate, inputs, tables, c) }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,aes")]
unsafe fn evaluate_avx2(
    schedule: &Schedule,
    gate: Gate,
    inputs: [&[u128]; 2],
    tables: &[Table],
    c: &mut [u128],
) {
    // SAFETY: this function has the features; the caller promises the lengths.
    unsafe { evaluate_fast::<__m128i, 8>(schedule, gate, inputs, tables, c) }
}

#[cfg(target_arch = "aarch64")]
#[target_feature(enable = "neon,aes")]
unsafe fn garble_neon(
    schedule: &Schedule,
    delta: u128,
    gate: Gate,
    inputs: [&[u128]; 2],
    c: &mut [u128],
    tables: &mut [Table],
) {
    // SAFETY: this function has the features; the caller promises the lengths.
    unsafe { garble_fast::<uint8x16_t>(schedule, delta, gate, inputs, c, tables) }
}

#[cfg(target_arch = "aarch64")]
#[target_feature(enable = "neon,aes")]
unsafe fn evaluate_neon(
    schedule: &Schedule,
    gate: Gate,
    inputs: [&[u128]; 2],
    tables: &[Table],
    c: &mut [u128],
) {
    // SAFETY: this function has the features; the caller promises the lengths.
    unsafe { evaluate_fast::<uint8x16_t, 8>(schedule, gate, inputs, tables, c) }
}

/// TMMO of `x` under `tweaks`.
///
/// # Safety
/// The processor has the instructions of `R`.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
#[inline(always)]
unsafe fn tmmo<R: Register, const N: usize>(
    schedule: &Schedule,
    keys: &[R; 9],
    mut x: [R; N],
    mut tweaks: [R; N],
) -> [R; N] {
    // SAFETY: the caller promises the instructions.
    unsafe {
        let (first, last) = (R::broadcast(&schedule[0]), R::broadcast(&schedule[10]));
        for i in 0..N {
            x[i] = x[i].xor(first);
        }
        let y = rounds(keys, x, [last; N]);
        let mut last = [last; N];
        for i in 0..N {
            tweaks[i] = tweaks[i].xor(y[i]).xor(first);
            last[i] = last[i].xor(y[i]);
        }
        rounds(keys, tweaks, last)
    }
}

/// Two registers of instances at a time, eight registers of hashes.
///
/// # Safety
/// The processor has the instructions of `R`, and all slices have as many instances, a multiple of
/// [`INSTANCES`].
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
#[inline(always)]
unsafe fn garble_fast<R: Register>(
    schedule: &Schedule,
    delta: u128,
    gate: Gate,
    [a, b]: [&[u128]; 2],
    c: &mut [u128],
    tables: &mut [Table],
) {
    const { assert!(INSTANCES.is_multiple_of(2 * R::BLOCKS)) };
    let [j, k] = gate.tweaks();
    // SAFETY: the caller promises the instructions and the lengths: each turn reads and writes the
    // blocks from `at` on, 2 registers of them.
    unsafe {
        let keys = middle_keys::<R>(schedule);
        let delta = R::broadcast(&delta);
        let zero = R::splat(0);
        for at in (0..a.len()).step_by(2 * R::BLOCKS) {
            let (mut x, mut tweaks) = ([zero; 8], [zero; 8]);
            for i in 0..2 {
                let from = at + i * R::BLOCKS;
                let a = R::load(a.as_ptr().add(from).cast());
                let b = R::load(b.as_ptr().add(from).cast());
                let (j, k) = (R::counter(j + from as u64), R::counter(k + from as u64));
                for (n, label) in [a, a.xor(delta), b, b.xor(delta)].into_iter().enumerate() {
                    x[4 * i + n] = label;
                    tweaks[4 * i + n] = if n < 2 { j } else { k };
                }
            }
            let h = tmmo(schedule, &keys, x, tweaks);
            for i in 0..2 {
                let from = at + i * R::BLOCKS;
                let (a, b) = (x[4 * i], x[4 * i + 2]);
                let [a0, a1, b0, b1] = [h[4 * i], h[4 * i + 1], h[4 * i + 2], h[4 * i + 3]];
                let garbler = a0.xor(a1).xor(b.lowest().and(delta));
                let without = b0.xor(b1);
                let out = a0.xor(a.lowest().and(garbler));
                let out = out.xor(b0).xor(b.lowest().and(without));
                out.store(c.as_mut_ptr().add(from).cast());
                R::store_pairs(
                    [garbler, without.xor(a)],
                    tables.as_mut_ptr().add(from).cast(),
                );
            }
        }
    }
}

/// `N` registers of hashes at a time, of N/2 registers of instances.
///
/// # Safety
/// As [`garble_fast`].
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
#[inline(always)]
unsafe fn evaluate_fast<R: Register, const N: usize>(
    schedule: &Schedule,
    gate: Gate,
    [a, b]: [&[u128]; 2],
    tables: &[Table],
    c: &mut [u128],
) {
    const { assert!(N.is_multiple_of(2) && INSTANCES.is_multiple_of(N / 2 * R::BLOCKS)) };
    let [j, k] = gate.tweaks();
    // SAFETY: the caller promises the instructions and the lengths: each turn reads and writes the
    // blocks from `at` on, N/2 registers of them.
    unsafe {
        let keys = middle_keys::<R>(schedule);
        let zero = R::splat(0);
        for at in (0..a.len()).step_by(N / 2 * R::BLOCKS) {
            let (mut x, mut tweaks) = ([zero; N], [zero; N]);
            for i in 0..N / 2 {
                let from = at + i * R::BLOCKS;
                x[2 * i] = R::load(a.as_ptr().add(from).cast());
                x[2 * i + 1] = R::load(b.as_ptr().add(from).cast());
                tweaks[2 * i] = R::counter(j + from as u64);
                tweaks[2 * i + 1] = R::counter(k + from as u64);
            }
            let h = tmmo(schedule, &keys, x, tweaks);
            for i in 0..N / 2 {
                let from = at + i * R::BLOCKS;
                let (a, b) = (x[2 * i], x[2 * i + 1]);
                let [garbler, evaluator] = R::load_pairs(tables.as_ptr().add(from).cast());
                let out = h[2 * i].xor(a.lowest().and(garbler));
                let out = out.xor(h[2 * i + 1]).xor(b.lowest().and(evaluator.xor(a)));
                out.store(c.as_mut_ptr().add(from).cast());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Cpu, Prg};

    fn blocks(prg: &mut Prg, count: usize) -> Vec<u128> {
        let mut word = || u128::from(prg.next_u64());
        (0..count).map(|_| word() << 64 | word()).collect()
    }

    #[test]
    fn a_garbled_gate_is_an_and() {
        let mut prg = Prg::new(&[1; 32]);
        let delta = blocks(&mut prg, 1)[0] | 1;
        for count in [0, 8, 24] {
            let gate = Gate {
                number: 5,
                first: 1 << 20,
            };
            let (a, b) = (blocks(&mut prg, count), blocks(&mut prg, count));
            for cpu in Cpu::all() {
                let pi = Permutation::new(cpu, 77);
                let (mut c, mut tables) = (vec![0; count], vec![[0; 2]; count]);
                garble(&pi, delta, gate, [&a, &b], &mut c, &mut tables);
                for (x, y) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
                    let label = |zeros: &[u128], bit: u128| -> Vec<u128> {
                        zeros.iter().map(|zero| zero ^ (bit * delta)).collect()
                    };
                    let mut out = vec![0; count];
                    let inputs = [label(&a, x), label(&b, y)];
                    evaluate(&pi, gate, [&inputs[0], &inputs[1]], &tables, &mut out);
                    assert_eq!(out, label(&c, x & y), "{:?}", cpu.level());
                }
            }
        }
    }

    #[test]
    fn every_path_is_the_definition() {
        let mut prg = Prg::new(&[2; 32]);
        let delta = blocks(&mut prg, 1)[0] | 1;
        for (number, first) in [(0, 0), (3, 40), (MAX_GATES - 1, u32::MAX - 15)] {
            let gate = Gate { number, first };
            let (a, b) = (blocks(&mut prg, 16), blocks(&mut prg, 16));
            let pi = Permutation::new(Cpu::portable(), 9);
            let hash = |x: u128, half: u64, r: usize| {
                let mut x = [x];
                let tweak = (2 * u64::from(number) + half) << 32 | (u64::from(first) + r as u64);
                pi.tmmo(tweak, &mut x);
                x[0]
            };
            let one = |r: usize| {
                let (pa, pb) = (a[r] & 1, b[r] & 1);
                let [a0, a1] = [hash(a[r], 0, r), hash(a[r] ^ delta, 0, r)];
                let [b0, b1] = [hash(b[r], 1, r), hash(b[r] ^ delta, 1, r)];
                let garbler = a0 ^ a1 ^ (pb * delta);
                let evaluator = b0 ^ b1 ^ a[r];
                let c = a0 ^ (pa * garbler) ^ b0 ^ (pb * (evaluator ^ a[r]));
                (c, [garbler, evaluator])
            };
            let (due, due_tables): (Vec<u128>, Vec<Table>) = (0..16).map(one).unzip();
            for cpu in Cpu::all() {
                let pi = Permutation::new(cpu, 9);
                let (mut c, mut tables) = (vec![0; 16], vec![[0; 2]; 16]);
                garble(&pi, delta, gate, [&a, &b], &mut c, &mut tables);
                assert_eq!((&c, &tables), (&due, &due_tables), "{:?}", cpu.level());
                let mut out = vec![0; 16];
                evaluate(&pi, gate, [&a, &b], &due_tables, &mut out);
                assert_eq!(out, due, "{:?}", cpu.level());
            }
        }
    }
}
