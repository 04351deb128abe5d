//! Registers of ARM.
//!
//! The methods lack the feature AES, as those of x86 do. They are inlined into functions that have
//! it, and its instructions after them.
#![allow(unknown_lints)] // the next is younger than the oldest compiler
#![allow(inline_always_mismatching_target_features)]

use std::arch::aarch64::*;

use super::Register;

impl Register for uint8x16_t {
    const BLOCKS: usize = 1;

    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self {
        // SAFETY: as the caller promises.
        unsafe { vld1q_u8(from) }
    }

    #[inline(always)]
    unsafe fn broadcast(block: &u128) -> Self {
        // SAFETY: a reference may be read.
        unsafe { Self::load(std::ptr::from_ref(block).cast()) }
    }

    #[inline(always)]
    unsafe fn splat(value: u16) -> Self {
        // SAFETY: as the caller promises.
        unsafe { vreinterpretq_u8_u16(vdupq_n_u16(value)) }
    }

    #[inline(always)]
    unsafe fn counter(first: u64) -> Self {
        // SAFETY: as the caller promises.
        unsafe { vreinterpretq_u8_u64(vcombine_u64(vcreate_u64(first), vcreate_u64(0))) }
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u8) {
        // SAFETY: as the caller promises.
        unsafe { vst1q_u8(to, self) }
    }

    #[inline(always)]
    fn xor(self, other: Self) -> Self {
        // SAFETY: a register exists only where its instructions do. The same below.
        unsafe { veorq_u8(self, other) }
    }

    #[inline(always)]
    fn and(self, other: Self) -> Self {
        // SAFETY: as above.
        unsafe { vandq_u8(self, other) }
    }

    // ARM adds a key before a round, x86 after it. With zero before it, rounds are the same; the
    // compiler moves the key after one round to the place before the next.
    #[inline(always)]
    fn round(self, key: Self) -> Self {
        // SAFETY: as above.
        unsafe { veorq_u8(vaesmcq_u8(vaeseq_u8(self, vdupq_n_u8(0))), key) }
    }

    #[inline(always)]
    fn last_round(self, key: Self) -> Self {
        // SAFETY: as above.
        unsafe { veorq_u8(vaeseq_u8(self, vdupq_n_u8(0)), key) }
    }

    #[inline(always)]
    fn plus(self, other: Self) -> Self {
        // SAFETY: as above.
        unsafe { bytes(vaddq_u16(lanes(self), lanes(other))) }
    }

    #[inline(always)]
    fn plus_two(self, bits: u32) -> Self {
        const ONE_EACH: [u16; 8] = [1, 2, 4, 8, 16, 32, 64, 128];
        // SAFETY: as above; eight lanes are read.
        unsafe {
            let minus_one = vtstq_u16(vdupq_n_u16(bits as u16), vld1q_u16(ONE_EACH.as_ptr()));
            bytes(vsubq_u16(lanes(self), vaddq_u16(minus_one, minus_one)))
        }
    }

    #[inline(always)]
    fn plus_if(self, bits: u32, other: Self) -> Self {
        // SAFETY: as above.
        unsafe { self.plus(other.and(vreinterpretq_u8_u32(vdupq_n_u32(bits)))) }
    }

    #[inline(always)]
    fn left(self, by: u32) -> Self {
        // SAFETY: as above.
        unsafe { bytes(vshlq_u16(lanes(self), vdupq_n_s16(by as i16))) }
    }

    #[inline(always)]
    fn right(self, by: u32) -> Self {
        // SAFETY: as above.
        unsafe { bytes(vshlq_u16(lanes(self), vdupq_n_s16(-(by as i16)))) }
    }

    #[inline(always)]
    fn right_with(self, by: u32, next: Self) -> Self {
        // SAFETY: as above.
        unsafe { vorrq_u8(self.right(by), next.left(16 - by)) }
    }

    #[inline(always)]
    fn select(self, mask: Self, other: Self) -> Self {
        // SAFETY: as above.
        unsafe { vbslq_u8(mask, self, other) }
    }

    #[inline(always)]
    fn lowest(self) -> Self {
        // SAFETY: as above.
        unsafe {
            let first = vdupq_laneq_s32::<0>(vreinterpretq_s32_u8(self));
            vreinterpretq_u8_s32(vshrq_n_s32::<31>(vshlq_n_s32::<31>(first)))
        }
    }
}

#[inline(always)]
fn lanes(register: uint8x16_t) -> uint16x8_t {
    // SAFETY: a register exists only where its instructions do.
    unsafe { vreinterpretq_u16_u8(register) }
}

#[inline(always)]
fn bytes(lanes: uint16x8_t) -> uint8x16_t {
    // SAFETY: as above.
    unsafe { vreinterpretq_u8_u16(lanes) }
}
