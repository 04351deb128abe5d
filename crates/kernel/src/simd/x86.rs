//! Registers of x86-64.

use std::arch::x86_64::*;

use super::Register;

impl Register for __m128i {
    const BLOCKS: usize = 1;

    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self {
        // SAFETY: as the caller promises.
        unsafe { _mm_loadu_si128(from.cast()) }
    }

    #[inline(always)]
    unsafe fn broadcast(block: &u128) -> Self {
        // SAFETY: a reference may be read.
        unsafe { Self::load(std::ptr::from_ref(block).cast()) }
    }

    #[inline(always)]
    unsafe fn splat(value: u16) -> Self {
        // SAFETY: SSE2 is part of the target.
        unsafe { _mm_set1_epi16(value as i16) }
    }

    #[inline(always)]
    unsafe fn counter(first: u64) -> Self {
        // SAFETY: SSE2 is part of the target.
        unsafe { _mm_set_epi64x(0, first as i64) }
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u8) {
        // SAFETY: as the caller promises.
        unsafe { _mm_storeu_si128(to.cast(), self) }
    }

    #[inline(always)]
    fn xor(self, other: Self) -> Self {
        // SAFETY: a register exists only where its instructions do. The same below.
        unsafe { _mm_xor_si128(self, other) }
    }

    #[inline(always)]
    fn and(self, other: Self) -> Self {
        // SAFETY: as above.
        unsafe { _mm_and_si128(self, other) }
    }

    #[inline(always)]
    fn round(self, key: Self) -> Self {
        // SAFETY: as above.
        unsafe { _mm_aesenc_si128(self, key) }
    }

    #[inline(always)]
    fn last_round(self, key: Self) -> Self {
        // SAFETY: as above.
        unsafe { _mm_aesenclast_si128(self, key) }
    }

    #[inline(always)]
    fn plus(self, other: Self) -> Self {
        // SAFETY: as above.
        unsafe { _mm_add_epi16(self, other) }
    }

    #[inline(always)]
    fn plus_two(self, bits: u32) -> Self {
        // SAFETY: as above.
        unsafe {
            let one_each = _mm_set_epi16(128, 64, 32, 16, 8, 4, 2, 1);
            let set = _mm_and_si128(_mm_set1_epi16(bits as i16), one_each);
            let minus_one = _mm_cmpeq_epi16(set, one_each);
            _mm_sub_epi16(self, _mm_add_epi16(minus_one, minus_one))
        }
    }

    #[inline(always)]
    fn plus_if(self, bits: u32, other: Self) -> Self {
        // SAFETY: as above.
        unsafe { _mm_add_epi16(self, _mm_and_si128(other, _mm_set1_epi32(bits as i32))) }
    }

    #[inline(always)]
    fn left(self, by: u32) -> Self {
        // SAFETY: as above.
        unsafe { _mm_sll_epi16(self, _mm_cvtsi32_si128(by as i32)) }
    }

    #[inline(always)]
    fn right(self, by: u32) -> Self {
        // SAFETY: as above.
        unsafe { _mm_srl_epi16(self, _mm_cvtsi32_si128(by as i32)) }
    }

    #[inline(always)]
    fn right_with(self, by: u32, next: Self) -> Self {
        // SAFETY: as above.
        unsafe { _mm_or_si128(self.right(by), next.left(16 - by)) }
    }

    #[inline(always)]
    fn select(self, mask: Self, other: Self) -> Self {
        // SAFETY: as above.
        unsafe { _mm_or_si128(_mm_and_si128(mask, self), _mm_andnot_si128(mask, other)) }
    }

    #[inline(always)]
    fn lowest(self) -> Self {
        // SAFETY: as above.
        unsafe { _mm_srai_epi32::<31>(_mm_slli_epi32::<31>(_mm_shuffle_epi32::<0>(self))) }
    }
}

impl Register for __m512i {
    const BLOCKS: usize = 4;

    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self {
        // SAFETY: as the caller promises.
        unsafe { _mm512_loadu_si512(from.cast()) }
    }

    #[inline(always)]
    unsafe fn broadcast(block: &u128) -> Self {
        // SAFETY: a reference may be read, and the caller promises the instructions.
        unsafe { _mm512_broadcast_i32x4(_mm_loadu_si128(std::ptr::from_ref(block).cast())) }
    }

    #[inline(always)]
    unsafe fn splat(value: u16) -> Self {
        // SAFETY: as the caller promises.
        unsafe { _mm512_set1_epi16(value as i16) }
    }

    #[inline(always)]
    unsafe fn counter(first: u64) -> Self {
        let n = first as i64;
        // SAFETY: as the caller promises.
        unsafe {
            let ahead = _mm512_set_epi64(0, 3, 0, 2, 0, 1, 0, 0);
            _mm512_add_epi64(ahead, _mm512_set_epi64(0, n, 0, n, 0, n, 0, n))
        }
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u8) {
        // SAFETY: as the caller promises.
        unsafe { _mm512_storeu_si512(to.cast(), self) }
    }

    #[inline(always)]
    unsafe fn load_some(from: *const u8, lanes: usize) -> Self {
        // SAFETY: as the caller promises: lanes that are masked out are not read.
        unsafe { _mm512_maskz_loadu_epi16((1 << lanes) - 1, from.cast()) }
    }

    #[inline(always)]
    unsafe fn store_some(self, to: *mut u8, lanes: usize) {
        // SAFETY: as the caller promises: lanes that are masked out are not written.
        unsafe { _mm512_mask_storeu_epi16(to.cast(), (1 << lanes) - 1, self) }
    }

    #[inline(always)]
    fn xor(self, other: Self) -> Self {
        // SAFETY: a register exists only where its instructions do. The same below.
        unsafe { _mm512_xor_si512(self, other) }
    }

    #[inline(always)]
    fn and(self, other: Self) -> Self {
        // SAFETY: as above.
        unsafe { _mm512_and_si512(self, other) }
    }

    #[inline(always)]
    fn round(self, key: Self) -> Self {
        // SAFETY: as above.
        unsafe { _mm512_aesenc_epi128(self, key) }
    }

    #[inline(always)]
    fn last_round(self, key: Self) -> Self {
        // SAFETY: as above.
        unsafe { _mm512_aesenclast_epi128(self, key) }
    }

    #[inline(always)]
    fn plus(self, other: Self) -> Self {
        // SAFETY: as above.
        unsafe { _mm512_add_epi16(self, other) }
    }

    #[inline(always)]
    fn plus_two(self, bits: u32) -> Self {
        // SAFETY: as above.
        unsafe { _mm512_mask_add_epi16(self, bits, self, _mm512_set1_epi16(2)) }
    }

    #[inline(always)]
    fn plus_if(self, bits: u32, other: Self) -> Self {
        // SAFETY: as above.
        unsafe { _mm512_mask_add_epi16(self, bits, self, other) }
    }

    #[inline(always)]
    fn left(self, by: u32) -> Self {
        // SAFETY: as above.
        unsafe { _mm512_sll_epi16(self, _mm_cvtsi32_si128(by as i32)) }
    }

    #[inline(always)]
    fn right(self, by: u32) -> Self {
        // SAFETY: as above.
        unsafe { _mm512_srl_epi16(self, _mm_cvtsi32_si128(by as i32)) }
    }

    #[inline(always)]
    fn right_with(self, by: u32, next: Self) -> Self {
        // SAFETY: as above.
        unsafe { _mm512_shrdv_epi16(self, next, Self::splat(by as u16)) }
    }

    #[inline(always)]
    fn select(self, mask: Self, other: Self) -> Self {
        // SAFETY: as above.
        unsafe { _mm512_ternarylogic_epi64::<0xca>(mask, self, other) }
    }

    #[inline(always)]
    fn lowest(self) -> Self {
        // SAFETY: as above.
        unsafe {
            let lowest = _mm512_shuffle_epi32::<0>(self);
            _mm512_srai_epi32::<31>(_mm512_slli_epi32::<31>(lowest))
        }
    }

    #[inline(always)]
    unsafe fn store_pairs([a, b]: [Self; 2], to: *mut u8) {
        // SAFETY: as the caller promises.
        unsafe {
            let low = _mm512_set_epi64(11, 10, 3, 2, 9, 8, 1, 0);
            let high = _mm512_set_epi64(15, 14, 7, 6, 13, 12, 5, 4);
            _mm512_permutex2var_epi64(a, low, b).store(to);
            _mm512_permutex2var_epi64(a, high, b).store(to.add(Self::BYTES));
        }
    }

    #[inline(always)]
    unsafe fn load_pairs(from: *const u8) -> [Self; 2] {
        // SAFETY: as the caller promises.
        unsafe {
            let [low, high] = [Self::load(from), Self::load(from.add(Self::BYTES))];
            let first = _mm512_set_epi64(13, 12, 9, 8, 5, 4, 1, 0);
            let second = _mm512_set_epi64(15, 14, 11, 10, 7, 6, 3, 2);
            [
                _mm512_permutex2var_epi64(low, first, high),
                _mm512_permutex2var_epi64(low, second, high),
            ]
        }
    }
}
