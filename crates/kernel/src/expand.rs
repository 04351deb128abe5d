//! Correlated transfers of vectors over Z_{2^w}: keys are expanded, corrections made or applied, and vectors added
//! up, in one pass over registers.
//!
//! In transfer t the sender has keys `K₀` and `K₁ = K₀ ⊕ Δ`, and bits `x[a]`, one for each of its n lanes; the receiver has a
//! choice c and `K_c`. Lane a of `G(K)` is 16 bits of TMMO(K, number of the transfer · 2⁶⁴ + ⌊a/8⌋), see [`aes`](crate::aes).
//!
//! - Sender: sends `u[a] = G(K₀)[a] + 1 − 2·x[a] − G(K₁)[a]`, adds `G(K₀)[a]` to its sums.
//! - Receiver: adds `G(K_c)[a] + c·u[a]` to its sums, which is `G(K₀)[a] + c·(1 − 2·x[a])`.
//!
//! So the receiver's sums less the sender's, plus `Σ x[a]`, are `Σ x[a] + c − 2c·x[a]`, the bits in which x and c differ.
//!
//! A message has *groups* of 16 transfers, the last maybe fewer: for each lane a the numbers `u[a]` of the group's transfers, w bits each,
//! from the low bit of the first word on; words of 16 bits, first those of all lanes, then the second of all, and so on.
#![allow(clippy::needless_range_loop)] // registers go by number

use std::mem::MaybeUninit;
use std::ops::Range;

use crate::BitMatrix;
use crate::aes::Permutation;
use crate::cpu::Level;
use crate::parts::{Slot, Written};

#[cfg(target_arch = "x86_64")]
use crate::simd::{Register, middle_keys, rounds};
#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::{__m128i, __m512i};

/// Transfers of a group.
pub const GROUP: usize = 16;

/// Sums come in multiples of this many lanes.
pub const LANES: usize = 32;

/// Bytes of the message of `count` transfers of `lanes` numbers of `width` bits.
pub fn message_len(width: u32, count: usize, lanes: usize) -> usize {
    let words = |count: usize| (count * width as usize).div_ceil(16);
    2 * lanes * (count / GROUP * words(GROUP) + words(count % GROUP))
}

/// What a kernel needs to know of its transfers.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    /// Bits of a number, from 1 to 16.
    pub width: u32,
    /// Numbers of a transfer.
    pub lanes: usize,
    /// The number of the first transfer.
    pub first: u64,
}

impl Shape {
    fn check(&self, count: usize, sums: usize, message: usize) {
        assert!((1..=16).contains(&self.width), "width {}", self.width);
        assert_eq!(sums, self.lanes.next_multiple_of(LANES), "sums");
        let len = message_len(self.width, count, self.lanes);
        assert_eq!(message, len, "bytes of a message");
    }

    fn number(&self, transfer: usize) -> u128 {
        u128::from(self.first.wrapping_add(transfer as u64)) << 64
    }

    /// The groups of a message of `count` transfers: the first transfer, how many, and where their words are.
    fn groups(self, count: usize) -> impl Iterator<Item = (usize, usize, Range<usize>)> {
        (0..count).step_by(GROUP).map(move |start| {
            let size = GROUP.min(count - start);
            let bytes = |count| message_len(self.width, count, self.lanes);
            (start, size, bytes(start)..bytes(start + size))
        })
    }
}

/// The sender's side of transfers: writes its message and adds to `sums`. `zeros` are their keys `K₀`; row t of `offers`
/// from `rows.start` on has the bits x of transfer t.
///
/// # Panics
/// When there are not as many rows as keys, or lengths are not those of the shape.
pub fn send<'a>(
    pi: &Permutation,
    shape: Shape,
    (zeros, delta): (&[u128], u128),
    (offers, rows): (&BitMatrix, Range<usize>),
    sums: &mut [u16],
    mut message: Slot<'a>,
) -> Written<'a> {
    shape.check(zeros.len(), sums.len(), message.len());
    assert_eq!(zeros.len(), rows.len(), "rows of offers");
    assert!(rows.end <= offers.rows() && offers.columns() == shape.lanes);
    for (start, size, bytes) in shape.groups(zeros.len()) {
        // π of the keys: K₀ of all transfers, then K₁.
        let mut keys = [0; 2 * GROUP];
        for (t, zero) in zeros[start..start + size].iter().enumerate() {
            (keys[t], keys[GROUP + t]) = (*zero, zero ^ delta);
        }
        pi.apply(&mut keys);
        let offers = std::array::from_fn(|t| match t < size {
            true => offers.row(rows.start + start + t),
            false => &[],
        });
        let group = Offers {
            shape,
            start,
            size,
            keys,
            offers,
        };
        let out = &mut message.bytes()[bytes];
        match pi.cpu().level() {
            Level::Portable => group.portable(pi, sums, out),
            // SAFETY: `Cpu` proves the features.
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => unsafe { send_avx2(pi, &group, sums, out) },
            // SAFETY: `Cpu` proves the features.
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => unsafe { send_avx512(pi, &group, sums, out) },
            #[cfg(not(target_arch = "x86_64"))]
            _ => group.portable(pi, sums, out),
        }
    }
    // SAFETY: the groups are the whole message, and every path writes all of its group.
    unsafe { message.written() }
}

/// The receiver's side: adds to `sums` what comes of `message`. Bit `bits.start + t` of `choices` is the choice of transfer
/// t, counted as in a [`BitMatrix`]'s row.
///
/// # Panics
/// When there are not as many bits as keys, or lengths are not those of the shape.
pub fn receive(
    pi: &Permutation,
    shape: Shape,
    keys: &[u128],
    (choices, bits): (&[u64], Range<usize>),
    sums: &mut [u16],
    message: &[u8],
) {
    shape.check(keys.len(), sums.len(), message.len());
    assert_eq!(keys.len(), bits.len(), "choices");
    assert!(bits.end <= 64 * choices.len(), "choices");
    for (start, size, bytes) in shape.groups(keys.len()) {
        let mut group = Choices {
            shape,
            start,
            size,
            keys: [0; GROUP],
            masks: [0; GROUP],
        };
        for t in 0..size {
            let bit = bits.start + start + t;
            group.keys[t] = keys[start + t];
            group.masks[t] = 0u32.wrapping_sub((choices[bit / 64] >> (bit % 64) & 1) as u32);
        }
        pi.apply(&mut group.keys);
        let message = &message[bytes];
        match pi.cpu().level() {
            Level::Portable => group.portable(pi, sums, message),
            // SAFETY: `Cpu` proves the features.
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => unsafe { receive_avx2(pi, &group, sums, message) },
            // SAFETY: `Cpu` proves the features.
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => unsafe { receive_avx512(pi, &group, sums, message) },
            #[cfg(not(target_arch = "x86_64"))]
            _ => group.portable(pi, sums, message),
        }
    }
}

/// A group of the sender's transfers.
struct Offers<'a> {
    shape: Shape,
    start: usize,
    size: usize,
    keys: [u128; 2 * GROUP],
    offers: [&'a [u64]; GROUP],
}

/// A group of the receiver's transfers.
struct Choices {
    shape: Shape,
    start: usize,
    size: usize,
    keys: [u128; GROUP],
    /// All ones where the choice is 1.
    masks: [u32; GROUP],
}

/// Where number t of a group lies: its word, the bits before it in that word.
fn place(t: usize, width: u32) -> (usize, u32) {
    let bit = t * width as usize;
    (bit / 16, (bit % 16) as u32)
}

/// The lowest `bits` bits, of up to 16.
fn low(bits: u32) -> u16 {
    ((1u32 << bits) - 1) as u16
}

/// Eight lanes of G for each of `count` blocks from `first` on. `key` is π(K).
fn expand(pi: &Permutation, key: u128, number: u128, lanes: &mut [u16]) {
    let mut blocks = [0; 16];
    for (at, lanes) in lanes.chunks_mut(8 * blocks.len()).enumerate() {
        let count = lanes.len().div_ceil(8);
        for (b, block) in blocks[..count].iter_mut().enumerate() {
            *block = key ^ number ^ (at * 16 + b) as u128;
        }
        pi.apply(&mut blocks[..count]);
        for (lanes, block) in lanes.chunks_mut(8).zip(blocks) {
            let bytes = (block ^ key).to_le_bytes();
            let (words, _) = bytes.as_chunks::<2>();
            for (lane, word) in lanes.iter_mut().zip(words) {
                *lane = u16::from_le_bytes(*word);
            }
        }
    }
}

impl Offers<'_> {
    fn portable(&self, pi: &Permutation, sums: &mut [u16], out: &mut [MaybeUninit<u8>]) {
        let Shape { width, lanes, .. } = self.shape;
        let (mut zero, mut one) = (vec![0; lanes], vec![0; lanes]);
        let mut words = vec![0u16; out.len() / 2];
        for t in 0..self.size {
            let number = self.shape.number(self.start + t);
            expand(pi, self.keys[t], number, &mut zero);
            expand(pi, self.keys[GROUP + t], number, &mut one);
            let (word, shift) = place(t, width);
            let (row, next) = words[lanes * word..].split_at_mut(lanes);
            for (sum, zero) in sums.iter_mut().zip(&zero) {
                *sum = sum.wrapping_add(*zero);
            }
            // u takes the place of G(K₀).
            for (at, zero) in zero.chunks_mut(64).enumerate() {
                let one = &one[64 * at..];
                for (i, (zero, one)) in zero.iter_mut().zip(one).enumerate() {
                    let x = (self.offers[t][at] >> i & 1) as u16;
                    let u = zero.wrapping_sub(*one).wrapping_add(1).wrapping_sub(2 * x);
                    *zero = u & low(width);
                }
            }
            for (row, u) in row.iter_mut().zip(&zero) {
                *row |= u << shift;
            }
            if shift + width > 16 {
                for (next, u) in next.iter_mut().zip(&zero) {
                    *next |= u >> (16 - shift);
                }
            }
        }
        for (out, word) in out.chunks_exact_mut(2).zip(words) {
            let [low, high] = word.to_le_bytes().map(MaybeUninit::new);
            (out[0], out[1]) = (low, high);
        }
    }
}

impl Choices {
    fn portable(&self, pi: &Permutation, sums: &mut [u16], message: &[u8]) {
        let Shape { width, lanes, .. } = self.shape;
        let mut chosen = vec![0; lanes];
        for t in 0..self.size {
            expand(
                pi,
                self.keys[t],
                self.shape.number(self.start + t),
                &mut chosen,
            );
            let (word, shift) = place(t, width);
            let (row, next) = message[2 * lanes * word..].split_at(2 * lanes);
            for (a, g) in chosen.iter().enumerate() {
                let mut u = word_at(row, a) >> shift;
                if shift + width > 16 {
                    u |= word_at(next, a) << (16 - shift);
                }
                let received = g.wrapping_add(u & self.masks[t] as u16);
                sums[a] = sums[a].wrapping_add(received);
            }
        }
    }
}

fn word_at(row: &[u8], lane: usize) -> u16 {
    u16::from_le_bytes([row[2 * lane], row[2 * lane + 1]])
}

/// Calls a function compiled for the width of the group's shape, so that shifts are constants.
#[cfg(target_arch = "x86_64")]
macro_rules! for_width {
    ($fast:ident::<$register:ty>($pi:expr, $group:expr, $sums:expr, $message:expr)) => {
        for_width!(
            $fast, $register, ($pi, $group, $sums, $message),
            1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16
        )
    };
    ($fast:ident, $register:ty, ($pi:expr, $group:expr, $sums:expr, $message:expr), $($width:literal)*) => {
        match $group.shape.width {
            $($width => $fast::<$register, $width>($pi, $group, $sums, $message),)*
            width => unreachable!("width {width} was checked"),
        }
    };
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi2,vaes")]
fn send_avx512(
    pi: &Permutation,
    group: &Offers<'_>,
    sums: &mut [u16],
    out: &mut [MaybeUninit<u8>],
) {
    // SAFETY: this function has the features; lengths were checked.
    unsafe { for_width!(send_fast::<__m512i>(pi, group, sums, out)) }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,aes")]
fn send_avx2(pi: &Permutation, group: &Offers<'_>, sums: &mut [u16], out: &mut [MaybeUninit<u8>]) {
    // SAFETY: this function has the features; lengths were checked.
    unsafe { for_width!(send_fast::<__m128i>(pi, group, sums, out)) }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi2,vaes")]
fn receive_avx512(pi: &Permutation, group: &Choices, sums: &mut [u16], message: &[u8]) {
    // SAFETY: this function has the features; lengths were checked.
    unsafe { for_width!(receive_fast::<__m512i>(pi, group, sums, message)) }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,aes")]
fn receive_avx2(pi: &Permutation, group: &Choices, sums: &mut [u16], message: &[u8]) {
    // SAFETY: this function has the features; lengths were checked.
    unsafe { for_width!(receive_fast::<__m128i>(pi, group, sums, message)) }
}

/// A word of the message for the lanes of one register, of which `lanes` exist.
///
/// # Safety
/// `2·lanes` bytes may be written.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn put<R: Register>(value: R, lanes: usize, to: *mut u8) {
    // SAFETY: the caller promises the bytes.
    unsafe {
        match lanes >= R::LANES {
            true => value.store(to),
            false => value.store_some(to, lanes),
        }
    }
}

/// The reverse of [`put`].
///
/// # Safety
/// `2·lanes` bytes may be read, and the processor has the instructions of `R`.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn get<R: Register>(lanes: usize, from: *const u8) -> R {
    // SAFETY: the caller promises the bytes.
    unsafe {
        match lanes >= R::LANES {
            true => R::load(from),
            false => R::load_some(from, lanes),
        }
    }
}

/// What expands one key: the state after the first round key, and what the last round adds.
#[cfg(target_arch = "x86_64")]
struct Ends {
    first: u128,
    last: u128,
}

#[cfg(target_arch = "x86_64")]
impl Ends {
    fn new(pi: &Permutation, key: u128, number: u128) -> Self {
        let schedule = pi.schedule();
        Self {
            first: key ^ schedule[0] ^ number,
            last: key ^ schedule[10],
        }
    }
}

/// One register of G of four keys.
///
/// # Safety
/// The processor has the instructions of `R`.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn expand_register<R: Register>(keys: &[R; 9], ends: [&Ends; 4], counter: R) -> [R; 4] {
    // SAFETY: the caller promises the instructions.
    unsafe {
        let (mut start, mut last) = ([counter; 4], [counter; 4]);
        for i in 0..4 {
            start[i] = R::broadcast(&ends[i].first).xor(counter);
            last[i] = R::broadcast(&ends[i].last);
        }
        rounds(keys, start, last)
    }
}

/// # Safety
/// The processor has the instructions of `R`; `sums` are whole registers for all lanes, and `out` the group's message.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn send_fast<R: Register, const WIDTH: u32>(
    pi: &Permutation,
    group: &Offers<'_>,
    sums: &mut [u16],
    out: &mut [MaybeUninit<u8>],
) {
    let lanes = group.shape.lanes;
    let ends: [[Ends; 2]; GROUP] = std::array::from_fn(|t| {
        let number = group.shape.number(group.start + t);
        // Of K₁ the complement of G, which is −G − 1.
        let [zero, one] = [0, GROUP].map(|side| Ends::new(pi, group.keys[side + t], number));
        let one = Ends {
            last: !one.last,
            ..one
        };
        [zero, one]
    });
    // SAFETY: the caller promises the instructions and the lengths. A register from lane `a` on lies within sums, which are padded;
    // `put` writes to `lanes - a` lanes of a word of the message.
    unsafe {
        let keys = middle_keys::<R>(pi.schedule());
        let out: *mut u8 = out.as_mut_ptr().cast();
        let mut masks = [R::splat(0); GROUP];
        for t in 0..GROUP {
            masks[t] = R::splat(low(place(t, WIDTH).1));
        }
        for a in (0..lanes).step_by(R::LANES) {
            let counter = R::counter((a / 8) as u64);
            let sum: *mut u8 = sums.as_mut_ptr().add(a).cast();
            let mut total = R::load(sum);
            let mut open = R::splat(0);
            for pair in (0..group.size).step_by(2) {
                let [e, f] = [&ends[pair], &ends[pair + 1]];
                let g = expand_register(&keys, [&e[0], &e[1], &f[0], &f[1]], counter);
                for (t, zero, not_one) in [(pair, g[0], g[1]), (pair + 1, g[2], g[3])] {
                    if t == group.size {
                        break;
                    }
                    let bits = (group.offers[t][a / 64] >> (a % 64)) as u32;
                    total = total.plus(zero);
                    let u = zero.plus(not_one).plus_two(!bits);
                    let (word, shift) = place(t, WIDTH);
                    open = open.select(masks[t], u.left(shift));
                    if shift + WIDTH >= 16 {
                        put(open, lanes - a, out.add(2 * (word * lanes + a)));
                        // Bits of the next word; after a full one none that are kept.
                        open = u.right(16 - shift);
                    }
                }
            }
            let (word, shift) = place(group.size, WIDTH);
            if shift > 0 {
                let last = open.and(R::splat(low(shift)));
                put(last, lanes - a, out.add(2 * (word * lanes + a)));
            }
            total.store(sum);
        }
    }
}

/// # Safety
/// The processor has the instructions of `R`; `sums` are whole registers for all lanes, and `message` is the group's.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn receive_fast<R: Register, const WIDTH: u32>(
    pi: &Permutation,
    group: &Choices,
    sums: &mut [u16],
    message: &[u8],
) {
    let lanes = group.shape.lanes;
    let ends: [Ends; GROUP] = std::array::from_fn(|t| {
        let number = group.shape.number(group.start + t);
        Ends::new(pi, group.keys[t], number)
    });
    // SAFETY: the caller promises the instructions and the lengths. A register from lane `a` on lies within sums, which are padded;
    // `get` reads `lanes - a` lanes of a word of the message.
    unsafe {
        let keys = middle_keys::<R>(pi.schedule());
        let message = message.as_ptr();
        for a in (0..lanes).step_by(R::LANES) {
            let counter = R::counter((a / 8) as u64);
            let sum: *mut u8 = sums.as_mut_ptr().add(a).cast();
            let mut total = R::load(sum);
            for four in (0..group.size).step_by(4) {
                let ends: [&Ends; 4] = [
                    &ends[four],
                    &ends[four + 1],
                    &ends[four + 2],
                    &ends[four + 3],
                ];
                let g = expand_register(&keys, ends, counter);
                for (i, g) in g.into_iter().enumerate() {
                    let t = four + i;
                    if t == group.size {
                        break;
                    }
                    let (word, shift) = place(t, WIDTH);
                    let from = message.add(2 * (word * lanes + a));
                    let first = get::<R>(lanes - a, from);
                    let u = if shift + WIDTH > 16 {
                        first.right_with(shift, get(lanes - a, from.add(2 * lanes)))
                    } else {
                        first.right(shift)
                    };
                    total = total.plus(g).plus_if(group.masks[t], u);
                }
            }
            total.store(sum);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bits::tests::random;
    use crate::{Cpu, Prg, parts};
    use proptest::prelude::*;

    fn block(prg: &mut Prg) -> u128 {
        u128::from(prg.next_u64()) << 64 | u128::from(prg.next_u64())
    }

    fn check(width: u32, count: usize, lanes: usize, seed: u8) {
        let mut prg = Prg::new(&[seed; 32]);
        let delta = block(&mut prg);
        let zeros: Vec<u128> = (0..count).map(|_| block(&mut prg)).collect();
        let choices = random(1, count + 3, seed);
        let x = random(count + 2, lanes, seed);
        let key = |t: usize| match choices.get(0, 3 + t) {
            true => zeros[t] ^ delta,
            false => zeros[t],
        };
        let keys: Vec<u128> = (0..count).map(key).collect();
        let first = prg.next_u64();
        let shape = Shape {
            width,
            lanes,
            first,
        };
        let padded = lanes.next_multiple_of(LANES);
        let mut expected = None;
        for cpu in Cpu::all() {
            let pi = Permutation::new(cpu, 77);
            let (mut r, mut t) = (vec![5; padded], vec![7; padded]);
            let len = message_len(width, count, lanes);
            let (message, mut sums) =
                parts::message(0, vec![(r.clone(), len)], |mut sums, slot| {
                    let (keys, offers) = ((&zeros[..], delta), (&x, 2..count + 2));
                    (send(&pi, shape, keys, offers, &mut sums, slot), sums)
                });
            r = sums.pop().unwrap();
            let bits = 3..count + 3;
            receive(&pi, shape, &keys, (choices.row(0), bits), &mut t, &message);
            r.truncate(lanes);
            t.truncate(lanes);
            for a in 0..lanes {
                let differ = |i: &usize| x.get(2 + i, a) != choices.get(0, 3 + i);
                let distance = (0..count).filter(differ).count() as u16;
                let ones = (0..count).filter(|i| x.get(2 + i, a)).count() as u16;
                let offered = r[a].wrapping_sub(5).wrapping_sub(ones);
                let found = t[a].wrapping_sub(7).wrapping_sub(offered);
                assert_eq!(found & low(width), distance & low(width));
            }
            let first = expected.get_or_insert((message.clone(), r.clone(), t.clone()));
            assert_eq!(*first, (message, r, t), "{:?}", cpu.level());
        }
    }

    proptest! {
        #[test]
        fn every_path_is_the_portable_one_and_gives_distances(
            width in 1u32..=16, count in 0usize..70, lanes in 1usize..140, seed: u8,
        ) {
            check(width, count, lanes, seed);
        }
    }

    /// Number by number, from the module's text.
    #[test]
    fn messages_are_the_definition() {
        let (width, count, lanes) = (11, 19, 9);
        let mut prg = Prg::new(&[3; 32]);
        let delta = block(&mut prg);
        let zeros: Vec<u128> = (0..count).map(|_| block(&mut prg)).collect();
        let x = random(count, lanes, 4);
        let pi = Permutation::new(Cpu::portable(), 1);
        let shape = Shape {
            width,
            lanes,
            first: 1000,
        };
        let len = message_len(width, count, lanes);
        let (message, mut sums) = parts::message(0, vec![((), len)], |(), slot| {
            let mut sums = vec![0; LANES];
            let (keys, offers) = ((&zeros[..], delta), (&x, 0..count));
            (send(&pi, shape, keys, offers, &mut sums, slot), sums)
        });
        let sums = sums.pop().unwrap();
        let one = |x: u128| {
            let mut x = [x];
            pi.apply(&mut x);
            x[0]
        };
        let g = |key: u128, t: usize, a: usize| {
            let tweak = (1000 + t as u128) << 64 | (a / 8) as u128;
            ((one(one(key) ^ tweak) ^ one(key)) >> (16 * (a % 8))) as u16
        };
        for a in 0..lanes {
            let mut sum = 0u16;
            for (t, zero) in zeros.iter().enumerate() {
                let bit = x.get(t, a) as u16;
                sum = sum.wrapping_add(g(*zero, t, a));
                let u = g(*zero, t, a)
                    .wrapping_add(1)
                    .wrapping_sub(2 * bit)
                    .wrapping_sub(g(zero ^ delta, t, a));
                for i in 0..width as usize {
                    let at = t % GROUP * width as usize + i;
                    let word = t / GROUP * width as usize + at / 16;
                    let sent = word_at(&message[2 * lanes * word..], a) >> (at % 16) & 1;
                    assert_eq!(sent, u >> i & 1, "lane {a}, transfer {t}, bit {i}");
                }
            }
            assert_eq!(sums[a], sum);
        }
    }
}
