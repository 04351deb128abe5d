//! Registers of AES blocks: one block in 128 bits (AES-NI, ARM), four in 512 (VAES).
//!
//! Kernels are generic over [`Register`]. They are inlined into functions that are compiled for
//! either size.
#![allow(clippy::needless_range_loop)] // registers go by number

#[cfg(target_arch = "aarch64")]
mod neon;
#[cfg(target_arch = "x86_64")]
mod x86;

/// Lanes of the largest register.
const MAX_LANES: usize = 32;

/// A register of AES blocks, or of 16-bit lanes.
///
/// A value exists only on a processor with its instructions: the functions that make one require
/// them.
pub(crate) trait Register: Copy {
    /// AES blocks in it.
    const BLOCKS: usize;
    /// 16-bit lanes in it.
    const LANES: usize = 8 * Self::BLOCKS;
    /// Bytes in it.
    const BYTES: usize = 16 * Self::BLOCKS;

    /// Reads [`BYTES`](Self::BYTES).
    ///
    /// # Safety
    /// The processor has the instructions, and the bytes may be read.
    unsafe fn load(from: *const u8) -> Self;

    /// The same block everywhere.
    ///
    /// # Safety
    /// The processor has the instructions.
    unsafe fn broadcast(block: &u128) -> Self;

    /// The same value in all lanes.
    ///
    /// # Safety
    /// The processor has the instructions.
    unsafe fn splat(value: u16) -> Self;

    /// Blocks `first`, `first + 1`, …
    ///
    /// # Safety
    /// The processor has the instructions.
    unsafe fn counter(first: u64) -> Self;

    /// Writes [`BYTES`](Self::BYTES).
    ///
    /// # Safety
    /// The bytes may be written.
    unsafe fn store(self, to: *mut u8);

    /// Reads the first `lanes` lanes, fewer than a register has. The others are zero.
    ///
    /// # Safety
    /// The processor has the instructions, and the lanes may be read.
    #[inline(always)]
    unsafe fn load_some(from: *const u8, lanes: usize) -> Self {
        let mut whole = [0u16; MAX_LANES];
        for (i, lane) in whole.iter_mut().enumerate().take(lanes) {
            // SAFETY: as the caller promises.
            *lane = unsafe { from.cast::<u16>().add(i).read_unaligned() };
        }
        // SAFETY: no register has more lanes.
        unsafe { Self::load(whole.as_ptr().cast()) }
    }

    /// Writes the first `lanes` lanes, fewer than a register has.
    ///
    /// # Safety
    /// The lanes may be written.
    #[inline(always)]
    unsafe fn store_some(self, to: *mut u8, lanes: usize) {
        let mut whole = [0u16; MAX_LANES];
        // SAFETY: no register has more lanes.
        unsafe { self.store(whole.as_mut_ptr().cast()) };
        for (i, lane) in whole.into_iter().enumerate().take(lanes) {
            // SAFETY: as the caller promises.
            unsafe { to.cast::<u16>().add(i).write_unaligned(lane) };
        }
    }

    fn xor(self, other: Self) -> Self;
    fn and(self, other: Self) -> Self;
    /// A round of AES.
    fn round(self, key: Self) -> Self;
    /// The last round of AES.
    fn last_round(self, key: Self) -> Self;
    fn plus(self, other: Self) -> Self;
    /// Adds 2 in the lanes whose bit is set.
    fn plus_two(self, bits: u32) -> Self;
    /// Adds `other` in the lanes whose bit of `bits` is set. The bits are all set or all clear.
    fn plus_if(self, bits: u32, other: Self) -> Self;
    /// Lanes shifted to the left.
    fn left(self, by: u32) -> Self;
    /// Lanes shifted to the right.
    fn right(self, by: u32) -> Self;
    /// Lanes of `self` shifted to the right by less than 16, filled up from the low bits of `next`.
    fn right_with(self, by: u32, next: Self) -> Self;
    /// The bits of `self` where `mask` has ones, those of `other` elsewhere.
    fn select(self, mask: Self, other: Self) -> Self;
    /// All ones in the blocks whose lowest bit is set, zeros in the others.
    fn lowest(self) -> Self;

    /// Writes the first block of `pair[0]`, the first block of `pair[1]`, the second blocks, and so
    /// on: twice [`BYTES`](Self::BYTES).
    ///
    /// As written here for registers of one block.
    ///
    /// # Safety
    /// The bytes may be written.
    #[inline(always)]
    unsafe fn store_pairs(pair: [Self; 2], to: *mut u8) {
        // SAFETY: as the caller promises.
        unsafe {
            pair[0].store(to);
            pair[1].store(to.add(Self::BYTES));
        }
    }

    /// Reads what [`store_pairs`](Self::store_pairs) writes.
    ///
    /// # Safety
    /// The processor has the instructions, and the bytes may be read.
    #[inline(always)]
    unsafe fn load_pairs(from: *const u8) -> [Self; 2] {
        // SAFETY: as the caller promises.
        unsafe { [Self::load(from), Self::load(from.add(Self::BYTES))] }
    }
}

// No closures below, nor in other fast kernels: a closure is compiled without the instructions of
// its function.

/// The keys of rounds 1 to 9.
///
/// # Safety
/// The processor has the instructions of `R`.
#[inline(always)]
pub(crate) unsafe fn middle_keys<R: Register>(schedule: &[u128; 11]) -> [R; 9] {
    // SAFETY: the caller promises the instructions.
    unsafe {
        let mut keys = [R::splat(0); 9];
        for i in 0..9 {
            keys[i] = R::broadcast(&schedule[i + 1]);
        }
        keys
    }
}

/// `a ⊕ b`, register by register.
#[inline(always)]
pub(crate) fn xor<R: Register, const N: usize>(mut a: [R; N], b: [R; N]) -> [R; N] {
    for i in 0..N {
        a[i] = a[i].xor(b[i]);
    }
    a
}

/// AES of `N` registers at once, from the state after the first key to before the last. `keys` are
/// those of rounds 1 to 9; the last round adds `last`.
#[inline(always)]
pub(crate) fn rounds<R: Register, const N: usize>(
    keys: &[R; 9],
    mut state: [R; N],
    last: [R; N],
) -> [R; N] {
    for key in keys {
        for i in 0..N {
            state[i] = state[i].round(*key);
        }
    }
    for i in 0..N {
        state[i] = state[i].last_round(last[i]);
    }
    state
}
