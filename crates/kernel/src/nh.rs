//! A universal hash of long messages: NH over GF(2)\[x\], then a polynomial over GF(2¹²⁸).
//!
//! The key is a point y of 128 bits and 2048 words, expanded from a seed. A message is a sequence
//! of *strings*, whose lengths are public.
//!
//! 1. Each string is cut into *pieces* of 16 KiB, the last maybe shorter, and each piece is filled
//!    up with zeros to whole blocks of 16 bytes. A block is two words m. NH of a piece is
//!    `Σ (m[2i] ⊕ k[2i])·(m[2i + 1] ⊕ k[2i + 1])`, a sum of products of polynomials without
//!    reduction (Black, Halevi, Krawczyk, Krovetz, Rogaway 1999; Lemire, Kaser 2016).
//! 2. With the pieces N₁ … N_c of all strings the hash is `N₁·y^c + N₂·y^(c − 1) + … + N_c·y` in
//!    `GF(2)[x] / (x¹²⁸ + x⁷ + x² + x + 1)`.
//!
//! Bit i of a number is the coefficient of xⁱ. Two different messages of c pieces have the same
//! hash with probability at most 2⁻⁶⁴ + c·2⁻¹²⁸ over the key: two different pieces have the same NH
//! with probability at most 2⁻⁶⁴.
//!
//! NH takes one product for 16 bytes. Pieces do not depend on each other, so threads share them.

use crate::cpu::Cpu;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
use crate::cpu::Level;
use crate::prg::Prg;
use crate::wipe::{Plain, Wiped};

/// Bytes of a piece.
pub const PIECE: usize = 16 << 10;

/// Words of the key as they lie in a register.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([u64; 8]);

impl Plain for Line {
    const BLANK: Self = Self([0; 8]);
}

/// The key of the hash.
pub struct Key {
    cpu: Cpu,
    /// The point, a vector of one number.
    point: Wiped<u128>,
    lines: Wiped<Line>,
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Key(..)")
    }
}

impl Key {
    /// The key that `seed` gives: 16 bytes of its stream are the point, and the next 16 KiB are the
    /// words.
    pub fn new(cpu: Cpu, seed: &[u8; 32]) -> Self {
        let mut stream = Prg::new(seed);
        let [low, high] = [stream.next_u64(), stream.next_u64()].map(u128::from);
        let mut lines = Wiped::with_capacity(PIECE / size_of::<Line>());
        lines.resize_with(PIECE / size_of::<Line>(), || {
            Line(std::array::from_fn(|_| stream.next_u64()))
        });
        Self {
            cpu,
            point: vec![low | high << 64].into(),
            lines,
        }
    }

    /// The number of pieces of a string of `len` bytes.
    pub fn pieces(len: usize) -> usize {
        len.div_ceil(PIECE)
    }

    /// Appends NH of each piece of `string` to `out`.
    pub fn nh(&self, string: &[u8], out: &mut Wiped<u128>) {
        out.reserve(Self::pieces(string.len()));
        out.extend(string.chunks(PIECE).map(|piece| match self.cpu.level() {
            // SAFETY: `Cpu` proves the features.
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => unsafe { x86::nh_avx2(&self.lines, piece) },
            // SAFETY: `Cpu` proves the features.
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => unsafe { x86::nh_avx512(&self.lines, piece) },
            // SAFETY: `Cpu` proves the features.
            #[cfg(target_arch = "aarch64")]
            Level::Neon => unsafe { arm::nh(&self.lines, piece) },
            _ => portable(&self.lines, piece),
        }));
    }

    /// The hash of a message from the hash `sum` of its first pieces, 0 if there are none, and NH
    /// of the other pieces.
    pub fn fold(&self, sum: u128, pieces: &[u128]) -> u128 {
        let point = self.point[0];
        match self.cpu.level() {
            // SAFETY: `Cpu` proves the features.
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 | Level::Avx512 => unsafe { x86::fold(point, sum, pieces) },
            // SAFETY: `Cpu` proves the features.
            #[cfg(target_arch = "aarch64")]
            Level::Neon => unsafe { arm::fold(point, sum, pieces) },
            _ => pieces.iter().fold(sum, |sum, piece| {
                let parts = cross(sum ^ piece, point).map(|[a, b]| multiply(a, b));
                reduce(parts)
            }),
        }
    }
}

fn portable(lines: &[Line], piece: &[u8]) -> u128 {
    let keys = lines.iter().flat_map(|line| line.0.as_chunks::<2>().0);
    piece.chunks(16).zip(keys).fold(0, |sum, (block, [k, l])| {
        let mut bytes = [0; 16];
        bytes[..block.len()].copy_from_slice(block);
        let block = u128::from_le_bytes(bytes);
        sum ^ multiply(block as u64 ^ k, (block >> 64) as u64 ^ l)
    })
}

/// The product of two polynomials, in constant time. Numbers with every fifth bit multiply without
/// a carry that reaches the next such bit: at most 13 ones meet.
fn multiply(a: u64, b: u64) -> u128 {
    let parts = |x: u64| MASKS.map(|mask| u128::from(x) & mask);
    let (a, b) = (parts(a), parts(b));
    let mut product = 0;
    for sum in 0..5 {
        let mut bits = 0;
        for i in 0..5 {
            bits ^= a[i] * b[(5 + sum - i) % 5];
        }
        product |= bits & MASKS[sum];
    }
    product
}

/// For each remainder, the bits whose numbers leave it when divided by five.
const MASKS: [u128; 5] = [
    every_fifth(0),
    every_fifth(1),
    every_fifth(2),
    every_fifth(3),
    every_fifth(4),
];

const fn every_fifth(first: usize) -> u128 {
    let (mut mask, mut at) = (0, first);
    while at < 128 {
        mask |= 1 << at;
        at += 5;
    }
    mask
}

/// The pairs of words whose products make the product of two numbers: for the low half, the middle
/// (two), and the high half.
fn cross(a: u128, b: u128) -> [[u64; 2]; 4] {
    let [a, b] = [a, b].map(|x| [x as u64, (x >> 64) as u64]);
    [[a[0], b[0]], [a[0], b[1]], [a[1], b[0]], [a[1], b[1]]]
}

/// The remainder of the product with these parts.
fn reduce([low, one, other, high]: [u128; 4]) -> u128 {
    let middle = one ^ other;
    let (low, high) = (low ^ middle << 64, high ^ middle >> 64);
    let times = |x: u128| x ^ x << 1 ^ x << 2 ^ x << 7;
    let beyond = high >> 127 ^ high >> 126 ^ high >> 121;
    low ^ times(high) ^ times(beyond)
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use super::{Line, cross, reduce};

    #[inline]
    #[target_feature(enable = "sse2")]
    fn to_number(register: __m128i) -> u128 {
        let mut number = 0u128;
        // SAFETY: a `u128` has 16 bytes.
        unsafe { _mm_storeu_si128((&raw mut number).cast(), register) };
        number
    }

    #[target_feature(enable = "avx2,pclmulqdq")]
    pub(super) fn nh_avx2(lines: &[Line], piece: &[u8]) -> u128 {
        let mut sums = [_mm_setzero_si128(); 4];
        for (line, bytes) in lines.iter().zip(piece.chunks(64)) {
            let mut whole = [0; 64];
            let bytes: &[u8] = if bytes.len() == 64 {
                bytes
            } else {
                whole[..bytes.len()].copy_from_slice(bytes);
                &whole[..bytes.len().next_multiple_of(16)]
            };
            let (blocks, _) = bytes.as_chunks::<16>();
            for ((sum, block), key) in sums.iter_mut().zip(blocks).zip(line.0.as_chunks::<2>().0) {
                // SAFETY: block and key have 16 bytes each.
                let x = unsafe {
                    let key = _mm_loadu_si128(key.as_ptr().cast());
                    _mm_xor_si128(key, _mm_loadu_si128(block.as_ptr().cast()))
                };
                *sum = _mm_xor_si128(*sum, _mm_clmulepi64_si128::<0x10>(x, x));
            }
        }
        let [a, b, c, d] = sums;
        to_number(_mm_xor_si128(_mm_xor_si128(a, b), _mm_xor_si128(c, d)))
    }

    #[target_feature(enable = "avx512f,avx512bw,vpclmulqdq,avx2,pclmulqdq")]
    pub(super) fn nh_avx512(lines: &[Line], piece: &[u8]) -> u128 {
        let mut sums = [_mm512_setzero_si512(); 4];
        let (fours, rest) = piece.as_chunks::<256>();
        let (keys, _) = lines.as_chunks::<4>();
        for (four, keys) in fours.iter().zip(keys) {
            let (lines, _) = four.as_chunks::<64>();
            for ((sum, data), key) in sums.iter_mut().zip(lines).zip(keys) {
                // SAFETY: data and key have 64 bytes each, and the key is aligned.
                let x = unsafe {
                    let key = _mm512_load_si512(key.0.as_ptr().cast());
                    _mm512_xor_si512(key, _mm512_loadu_si512(data.as_ptr().cast()))
                };
                *sum = _mm512_xor_si512(*sum, _mm512_clmulepi64_epi128::<0x10>(x, x));
            }
        }
        for (bytes, line) in rest.chunks(64).zip(&lines[4 * fours.len()..]) {
            let words = 2 * bytes.len().div_ceil(16);
            // SAFETY: bytes and words that are masked out are not read.
            let x = unsafe {
                let data = u64::MAX >> (64 - bytes.len());
                let data = _mm512_maskz_loadu_epi8(data, bytes.as_ptr().cast());
                let key = _mm512_maskz_loadu_epi64(0xff >> (8 - words), line.0.as_ptr().cast());
                _mm512_xor_si512(key, data)
            };
            sums[0] = _mm512_xor_si512(sums[0], _mm512_clmulepi64_epi128::<0x10>(x, x));
        }
        let [a, b, c, d] = sums;
        let sum = _mm512_xor_si512(_mm512_xor_si512(a, b), _mm512_xor_si512(c, d));
        to_number(_mm512_extracti32x4_epi32::<0>(sum))
            ^ to_number(_mm512_extracti32x4_epi32::<1>(sum))
            ^ to_number(_mm512_extracti32x4_epi32::<2>(sum))
            ^ to_number(_mm512_extracti32x4_epi32::<3>(sum))
    }

    #[target_feature(enable = "avx2,pclmulqdq")]
    pub(super) fn fold(point: u128, mut sum: u128, pieces: &[u128]) -> u128 {
        for piece in pieces {
            let mut parts = [0; 4];
            for (part, [a, b]) in parts.iter_mut().zip(cross(sum ^ piece, point)) {
                let [a, b] = [_mm_cvtsi64_si128(a as i64), _mm_cvtsi64_si128(b as i64)];
                *part = to_number(_mm_clmulepi64_si128::<0>(a, b));
            }
            sum = reduce(parts);
        }
        sum
    }
}

#[cfg(target_arch = "aarch64")]
mod arm {
    use std::arch::aarch64::vmull_p64;

    use super::{Line, cross, reduce};

    #[target_feature(enable = "neon,aes")]
    pub(super) fn nh(lines: &[Line], piece: &[u8]) -> u128 {
        let keys = lines.iter().flat_map(|line| line.0.as_chunks::<2>().0);
        let mut sum = 0;
        for (block, [k, l]) in piece.chunks(16).zip(keys) {
            let mut bytes = [0; 16];
            bytes[..block.len()].copy_from_slice(block);
            let block = u128::from_le_bytes(bytes);
            sum ^= vmull_p64(block as u64 ^ k, (block >> 64) as u64 ^ l);
        }
        sum
    }

    #[target_feature(enable = "neon,aes")]
    pub(super) fn fold(point: u128, mut sum: u128, pieces: &[u128]) -> u128 {
        for piece in pieces {
            let mut parts = [0; 4];
            for (part, [a, b]) in parts.iter_mut().zip(cross(sum ^ piece, point)) {
                *part = vmull_p64(a, b);
            }
            sum = reduce(parts);
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The product of two polynomials, bit by bit.
    fn product(a: u64, b: u64) -> u128 {
        let bits = (0..64).filter(|i| b >> i & 1 == 1);
        bits.fold(0, |sum, i| sum ^ u128::from(a) << i)
    }

    /// The product in the field, bit by bit: Horner's rule with a reduction at each step.
    fn field_product(a: u128, b: u128) -> u128 {
        (0..128).rev().fold(0, |sum, i| {
            let doubled = if sum >> 127 == 1 {
                sum << 1 ^ 0b1000_0111
            } else {
                sum << 1
            };
            if b >> i & 1 == 1 {
                doubled ^ a
            } else {
                doubled
            }
        })
    }

    /// The hash by its definition.
    fn definition(seed: &[u8; 32], strings: &[Vec<u8>]) -> u128 {
        let mut stream = Prg::new(seed);
        let mut word = || stream.next_u64();
        let point = u128::from(word()) | u128::from(word()) << 64;
        let keys: Vec<u64> = (0..PIECE / 8).map(|_| word()).collect();
        let mut hash = 0;
        for piece in strings.iter().flat_map(|string| string.chunks(PIECE)) {
            let mut filled = piece.to_vec();
            filled.resize(piece.len().next_multiple_of(16), 0);
            let (words, _) = filled.as_chunks::<8>();
            let words: Vec<u64> = words.iter().map(|word| u64::from_le_bytes(*word)).collect();
            let pairs = words.chunks(2).zip(keys.chunks(2));
            let nh = pairs.fold(0, |sum, (m, k)| sum ^ product(m[0] ^ k[0], m[1] ^ k[1]));
            hash = field_product(hash ^ nh, point);
        }
        hash
    }

    fn string(len: usize, seed: u8) -> Vec<u8> {
        let mut out = vec![0; len];
        Prg::new(&[seed; 32]).fill(&mut out);
        out
    }

    fn check(seed: u8, strings: &[Vec<u8>]) {
        let due = definition(&[seed; 32], strings);
        for cpu in Cpu::all() {
            let key = Key::new(cpu, &[seed; 32]);
            // All pieces at once, and string by string.
            let (mut all, mut sum) = (Wiped::default(), 0);
            for string in strings {
                let mut some = Wiped::default();
                key.nh(string, &mut some);
                assert_eq!(some.len(), Key::pieces(string.len()));
                sum = key.fold(sum, &some);
                all.extend(some.iter());
            }
            assert_eq!(key.fold(0, &all), due, "{:?}", cpu.level());
            assert_eq!(sum, due, "{:?}", cpu.level());
        }
    }

    proptest! {
        #[test]
        fn every_path_is_the_definition(
            strings in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..700), 0..5),
            seed: u8,
        ) {
            check(seed, &strings);
        }

        #[test]
        fn products_are_those_of_polynomials(a: u64, b: u64) {
            assert_eq!(multiply(a, b), product(a, b));
        }
    }

    #[test]
    fn long_strings_are_cut_into_pieces() {
        for len in [PIECE - 1, PIECE, PIECE + 1, 2 * PIECE + 77] {
            check(3, &[string(len, 1), string(40, 2)]);
        }
        assert_eq!(multiply(u64::MAX, u64::MAX), product(u64::MAX, u64::MAX));
    }

    /// A change of any byte, and of the order of strings, changes the hash.
    #[test]
    fn messages_that_differ_have_different_hashes() {
        let key = Key::new(Cpu::detect(), &[4; 32]);
        let hash = |strings: &[&[u8]]| {
            let mut pieces = Wiped::default();
            strings
                .iter()
                .for_each(|string| key.nh(string, &mut pieces));
            key.fold(0, &pieces)
        };
        let (mut a, b) = (string(300, 1), string(300, 2));
        let due = hash(&[&a, &b]);
        assert_ne!(hash(&[&b, &a]), due);
        assert_ne!(hash(&[&a]), due);
        for at in 0..a.len() {
            a[at] ^= 0x10;
            assert_ne!(hash(&[&a, &b]), due, "byte {at}");
            a[at] ^= 0x10;
        }
    }
}
