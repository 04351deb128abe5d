//! The fast paths: one register of lanes at a time, sixteen transfers in each.
#![allow(clippy::needless_range_loop)] // registers go by number

#[cfg(target_arch = "aarch64")]
use std::arch::aarch64::uint8x16_t;
#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::{__m128i, __m512i};
use std::mem::MaybeUninit;

use super::{Choices, GROUP, Offers, low, place};
use crate::aes::Permutation;
use crate::simd::{Register, middle_keys, rounds};

/// Calls a function compiled for the width of the group's shape, so that shifts are constants.
macro_rules! for_width {
    ($fast:ident::<$register:ty>($pi:expr, $group:expr, $sums:expr, $message:expr)) => {
        for_width!(
            $fast, $register, ($pi, $group, $sums, $message),
            1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16
        )
    };
    (
        $fast:ident, $register:ty, ($pi:expr, $group:expr, $sums:expr, $message:expr),
        $($width:literal)*
    ) => {
        match $group.shape.width {
            $($width => $fast::<$register, $width>($pi, $group, $sums, $message),)*
            width => unreachable!("width {width} was checked"),
        }
    };
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi2,vaes")]
pub(super) fn send_avx512(
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
pub(super) fn send_avx2(
    pi: &Permutation,
    group: &Offers<'_>,
    sums: &mut [u16],
    out: &mut [MaybeUninit<u8>],
) {
    // SAFETY: this function has the features; lengths were checked.
    unsafe { for_width!(send_fast::<__m128i>(pi, group, sums, out)) }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi2,vaes")]
pub(super) fn receive_avx512(pi: &Permutation, group: &Choices, sums: &mut [u16], message: &[u8]) {
    // SAFETY: this function has the features; lengths were checked.
    unsafe { for_width!(receive_fast::<__m512i>(pi, group, sums, message)) }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,aes")]
pub(super) fn receive_avx2(pi: &Permutation, group: &Choices, sums: &mut [u16], message: &[u8]) {
    // SAFETY: this function has the features; lengths were checked.
    unsafe { for_width!(receive_fast::<__m128i>(pi, group, sums, message)) }
}

#[cfg(target_arch = "aarch64")]
#[target_feature(enable = "neon,aes")]
pub(super) fn send_neon(
    pi: &Permutation,
    group: &Offers<'_>,
    sums: &mut [u16],
    out: &mut [MaybeUninit<u8>],
) {
    // SAFETY: this function has the features; lengths were checked.
    unsafe { for_width!(send_fast::<uint8x16_t>(pi, group, sums, out)) }
}

#[cfg(target_arch = "aarch64")]
#[target_feature(enable = "neon,aes")]
pub(super) fn receive_neon(pi: &Permutation, group: &Choices, sums: &mut [u16], message: &[u8]) {
    // SAFETY: this function has the features; lengths were checked.
    unsafe { for_width!(receive_fast::<uint8x16_t>(pi, group, sums, message)) }
}

/// Repeats a block for each of the transfers below `$size`, whose places are then constants.
macro_rules! each_below {
    ($size:expr, $first:ident in $($number:literal)*, $body:block) => {
        $(
            if $number < $size {
                let $first = $number;
                $body
            }
        )*
    };
}

/// Writes a word of the message for the lanes of one register, `lanes` of which exist.
///
/// # Safety
/// `2·lanes` bytes may be written.
#[inline(always)]
unsafe fn put<R: Register>(value: R, lanes: usize, to: *mut u8) {
    // SAFETY: the caller promises the bytes.
    unsafe {
        if lanes >= R::LANES {
            value.store(to)
        } else {
            value.store_some(to, lanes)
        }
    }
}

/// The reverse of [`put`].
///
/// # Safety
/// `2·lanes` bytes may be read, and the processor has the instructions of `R`.
#[inline(always)]
unsafe fn get<R: Register>(lanes: usize, from: *const u8) -> R {
    // SAFETY: the caller promises the bytes.
    unsafe {
        if lanes >= R::LANES {
            R::load(from)
        } else {
            R::load_some(from, lanes)
        }
    }
}

/// The ends of the expansion of one key: the state after the first round key, and the summand of
/// the last round.
struct Ends {
    first: u128,
    last: u128,
}

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
/// The processor has the instructions of `R`; `sums` are whole registers for all lanes, and `out`
/// is the group's message.
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
        // For K₁ the complement of G, which is −G − 1.
        let [zero, one] = [0, GROUP].map(|side| Ends::new(pi, group.keys[side + t], number));
        let one = Ends {
            last: !one.last,
            ..one
        };
        [zero, one]
    });
    // SAFETY: the caller promises the instructions and the lengths. A register from lane `a` on
    // lies within sums, which are padded; `put` writes to `lanes - a` lanes of a word of the
    // message.
    unsafe {
        let keys = middle_keys::<R>(pi.schedule());
        let out: *mut u8 = out.as_mut_ptr().cast();
        for a in (0..lanes).step_by(R::LANES) {
            let counter = R::counter((a / 8) as u64);
            let sum: *mut u8 = sums.as_mut_ptr().add(a).cast();
            let mut total = R::load(sum);
            let mut open = R::splat(0);
            each_below!(group.size, pair in 0 2 4 6 8 10 12 14, {
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
                    open = open.select(R::splat(low(shift)), u.left(shift));
                    if shift + WIDTH >= 16 {
                        put(open, lanes - a, out.add(2 * (word * lanes + a)));
                        // Bits of the next word. After a full word none of them are kept.
                        open = u.right(16 - shift);
                    }
                }
            });
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
/// The processor has the instructions of `R`; `sums` are whole registers for all lanes, and
/// `message` is the group's.
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
    // SAFETY: the caller promises the instructions and the lengths. A register from lane `a` on
    // lies within sums, which are padded; `get` reads `lanes - a` lanes of a word of the message.
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
