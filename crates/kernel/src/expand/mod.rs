//! Correlated transfers of vectors over Z_{2^w}: steps 15 and 16 of `docs/spec/transfers.md`. One
//! pass over registers expands the keys, makes or applies the corrections, and adds up the vectors.
//!
//! In transfer t the sender has keys `K₀` and `K₁ = K₀ ⊕ Δ`, and a bit `x[a]` for each of its n
//! lanes. The receiver has a choice c and `K_c`. Lane a of `G(K)` is 16 bits of TMMO(K, number of
//! the transfer · 2⁶⁴ + ⌊a/8⌋), see [`aes`](crate::aes).
//!
//! - The sender sends `u[a] = G(K₀)[a] + 1 − 2·x[a] − G(K₁)[a]` and adds `G(K₀)[a]` to its sums.
//! - The receiver adds `G(K_c)[a] + c·u[a]` to its sums, which is `G(K₀)[a] + c·(1 − 2·x[a])`.
//!
//! So the receiver's sums minus the sender's, plus `Σ x[a]`, are `Σ x[a] + c − 2c·x[a]`: the number
//! of bits in which x and c differ.
//!
//! A message has *groups* of 16 transfers, the last maybe with fewer. A lane of a group has the
//! numbers `u[a]` of its transfers, w bits each, in words of 16 bits, from the low bit of the first
//! word on. A group has the first words of all lanes, then the second words of all lanes, and so
//! on.

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod fast;

use std::mem::MaybeUninit;
use std::ops::Range;

use crate::BitMatrix;
use crate::aes::Permutation;
use crate::cpu::Level;
use crate::parts::{Slot, Written};
use crate::wipe::Wiped;

/// Transfers of a group.
pub const GROUP: usize = 16;

/// The number of lanes of sums is a multiple of this.
pub const LANES: usize = 32;

/// Bytes of the message for `count` transfers of `lanes` numbers of `width` bits.
pub fn message_len(width: u32, count: usize, lanes: usize) -> usize {
    let words = |count: usize| (count * width as usize).div_ceil(16);
    2 * lanes * (count / GROUP * words(GROUP) + words(count % GROUP))
}

/// The shape of some transfers.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    /// Bits of a number, from 1 to 16.
    pub width: u32,
    /// Numbers in a transfer.
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

    /// The groups of a message of `count` transfers: the first transfer, the number of transfers,
    /// and the place of their words.
    fn groups(self, count: usize) -> impl Iterator<Item = (usize, usize, Range<usize>)> {
        (0..count).step_by(GROUP).map(move |start| {
            let size = GROUP.min(count - start);
            let bytes = |count| message_len(self.width, count, self.lanes);
            (start, size, bytes(start)..bytes(start + size))
        })
    }
}

/// The sender's side: writes its message and adds to `sums`. `zeros` are the keys `K₀`. Row
/// `rows.start + t` of `offers` has the bits x of transfer t. Each group is passed to `each` once
/// it is written.
///
/// # Panics
/// When the numbers of rows and keys differ, or lengths do not fit the shape.
pub fn send<'a>(
    pi: &Permutation,
    shape: Shape,
    (zeros, delta): (&[u128], u128),
    (offers, rows): (&BitMatrix, Range<usize>),
    sums: &mut [u16],
    mut message: Slot<'a>,
    mut each: impl FnMut(&[u8]),
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
        let offers = std::array::from_fn(|t| {
            if t < size {
                offers.row(rows.start + start + t)
            } else {
                &[]
            }
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
            // SAFETY: `Cpu` proves the features.
            #[cfg(target_arch = "aarch64")]
            Level::Neon => unsafe { fast::send_neon(pi, &group, sums, out) },
            // SAFETY: `Cpu` proves the features.
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => unsafe { fast::send_avx2(pi, &group, sums, out) },
            // SAFETY: `Cpu` proves the features.
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => unsafe { fast::send_avx512(pi, &group, sums, out) },
            _ => group.portable(pi, sums, out),
        }
        // SAFETY: every path has written all bytes of its group.
        each(unsafe { std::slice::from_raw_parts(out.as_ptr().cast(), out.len()) });
    }
    // SAFETY: the groups are the whole message, and every path writes all of its group.
    unsafe { message.written() }
}

/// The receiver's side: adds to `sums`, given `message`. Bit `bits.start + t` of `choices` is the
/// choice of transfer t, counted as in a row of a [`BitMatrix`]. Each group is passed to `each`
/// before it is used.
///
/// # Panics
/// When the numbers of bits and keys differ, or lengths do not fit the shape.
pub fn receive(
    pi: &Permutation,
    shape: Shape,
    keys: &[u128],
    (choices, bits): (&[u64], Range<usize>),
    sums: &mut [u16],
    message: &[u8],
    mut each: impl FnMut(&[u8]),
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
        each(message);
        match pi.cpu().level() {
            // SAFETY: `Cpu` proves the features.
            #[cfg(target_arch = "aarch64")]
            Level::Neon => unsafe { fast::receive_neon(pi, &group, sums, message) },
            // SAFETY: `Cpu` proves the features.
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => unsafe { fast::receive_avx2(pi, &group, sums, message) },
            // SAFETY: `Cpu` proves the features.
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => unsafe { fast::receive_avx512(pi, &group, sums, message) },
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

/// The place of number t of a group: its word, and the bits before it in that word.
fn place(t: usize, width: u32) -> (usize, u32) {
    let bit = t * width as usize;
    (bit / 16, (bit % 16) as u32)
}

/// The lowest `bits` bits, of up to 16.
fn low(bits: u32) -> u16 {
    ((1u32 << bits) - 1) as u16
}

/// Lanes of G, eight a block. `key` is π(K). `number` is the transfer's, in the upper half of a
/// block. The lower half counts blocks.
fn expand(pi: &Permutation, key: u128, number: u128, lanes: &mut [u16]) {
    let mut blocks = [0; 16];
    for (at, lanes) in lanes.chunks_mut(8 * blocks.len()).enumerate() {
        let count = lanes.len().div_ceil(8);
        for (b, block) in blocks[..count].iter_mut().enumerate() {
            *block = key ^ number ^ (at * 16 + b) as u128;
        }
        pi.apply(&mut blocks[..count]);
        let words = |block: u128| -> [u16; 8] {
            std::array::from_fn(|lane| ((block ^ key) >> (16 * lane)) as u16)
        };
        let (whole, rest) = lanes.as_chunks_mut();
        for (lanes, block) in whole.iter_mut().zip(blocks) {
            *lanes = words(block);
        }
        if !rest.is_empty() {
            rest.copy_from_slice(&words(blocks[count - 1])[..rest.len()]);
        }
    }
}

impl Offers<'_> {
    fn portable(&self, pi: &Permutation, sums: &mut [u16], out: &mut [MaybeUninit<u8>]) {
        let Shape { width, lanes, .. } = self.shape;
        let [mut zero, mut one] = [(); 2].map(|()| Wiped::from(vec![0; lanes]));
        let mut words = vec![0u16; out.len() / 2];
        for t in 0..self.size {
            let number = self.shape.number(self.start + t);
            expand(pi, self.keys[t], number, &mut zero);
            expand(pi, self.keys[GROUP + t], number, &mut one);
            let (word, shift) = place(t, width);
            let (row, next) = words[lanes * word..].split_at_mut(lanes);
            for (sum, zero) in sums.iter_mut().zip(zero.iter()) {
                *sum = sum.wrapping_add(*zero);
            }
            // u replaces G(K₀).
            for (at, zero) in zero.chunks_mut(64).enumerate() {
                let one = &one[64 * at..];
                for (i, (zero, one)) in zero.iter_mut().zip(one).enumerate() {
                    let x = (self.offers[t][at] >> i & 1) as u16;
                    let u = zero.wrapping_sub(*one).wrapping_add(1).wrapping_sub(2 * x);
                    *zero = u & low(width);
                }
            }
            for (row, u) in row.iter_mut().zip(zero.iter()) {
                *row |= u << shift;
            }
            if shift + width > 16 {
                for (next, u) in next.iter_mut().zip(zero.iter()) {
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
        let mut chosen = Wiped::from(vec![0; lanes]);
        for t in 0..self.size {
            expand(
                pi,
                self.keys[t],
                self.shape.number(self.start + t),
                &mut chosen,
            );
            let (word, shift) = place(t, width);
            let mask = self.masks[t] as u16;
            let (words, _) = message[2 * lanes * word..].as_chunks();
            let (row, next) = words.split_at(lanes);
            let both = sums.iter_mut().zip(chosen.iter());
            if shift + width > 16 {
                for (((sum, g), low), high) in both.zip(row).zip(next) {
                    let u = u16::from_le_bytes(*low) >> shift
                        | u16::from_le_bytes(*high) << (16 - shift);
                    *sum = sum.wrapping_add(g.wrapping_add(u & mask));
                }
            } else {
                for ((sum, g), word) in both.zip(row) {
                    let u = u16::from_le_bytes(*word) >> shift;
                    *sum = sum.wrapping_add(g.wrapping_add(u & mask));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bits::tests::random;
    use crate::{Cpu, Prg, parts};
    use proptest::prelude::*;
    use std::sync::Mutex;

    fn block(prg: &mut Prg) -> u128 {
        u128::from(prg.next_u64()) << 64 | u128::from(prg.next_u64())
    }

    fn check(width: u32, count: usize, lanes: usize, seed: u8) {
        let mut prg = Prg::new(&[seed; 32]);
        let delta = block(&mut prg);
        let zeros: Vec<u128> = (0..count).map(|_| block(&mut prg)).collect();
        let choices = random(1, count + 3, seed);
        let x = random(count + 2, lanes, seed);
        let key = |t: usize| {
            if choices.get(0, 3 + t) {
                zeros[t] ^ delta
            } else {
                zeros[t]
            }
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
            let (written, mut read) = (Mutex::new(Vec::new()), Vec::new());
            let (message, mut sums) =
                parts::message(0, vec![(r.clone(), len)], |mut sums, slot| {
                    let (keys, offers) = ((&zeros[..], delta), (&x, 2..count + 2));
                    let each = |group: &[u8]| written.lock().unwrap().extend_from_slice(group);
                    let sent = send(&pi, shape, keys, offers, &mut sums, slot, each);
                    (sent, sums)
                });
            r = sums.pop().unwrap();
            let wanted = (choices.row(0), 3..count + 3);
            let each = |group: &[u8]| read.extend_from_slice(group);
            receive(&pi, shape, &keys, wanted, &mut t, &message, each);
            assert_eq!(
                (written.into_inner().unwrap(), &read),
                (message.clone(), &message)
            );
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

    /// Number by number, from the formulae above.
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
            let sent = send(&pi, shape, keys, offers, &mut sums, slot, |_| ());
            (sent, sums)
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
        for (a, found) in sums.into_iter().enumerate().take(lanes) {
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
                    let byte = u16::from(message[2 * (lanes * word + a) + at % 16 / 8]);
                    let sent = byte >> (at % 8) & 1;
                    assert_eq!(sent, u >> i & 1, "lane {a}, transfer {t}, bit {i}");
                }
            }
            assert_eq!(found, sum);
        }
    }
}
