//! The kernels of Undertone: the code that decides its speed, and the only unsafe code.
//!
//! | module | kernel | paths |
//! |---|---|---|
//! | [`bits`] | packed bit matrices, transpose | portable |
//! | [`hamming`] | XOR-popcount distance tiles | portable, AVX2, AVX-512 VPOPCNTDQ |
//! | [`aes`] | a fixed-key permutation, and hashes of blocks made of it | portable (the `aes` crate), AES-NI, VAES |
//! | [`leaves`] | AES streams of the leaves of trees, added up | portable, AES-NI, VAES |
//! | [`transpose`] | 128 rows of bits to blocks | portable, AVX2, AVX-512 |
//! | [`expand`] | vectors over Z_{2^w} of correlated transfers: expanded, corrected, packed, added up | portable, AES-NI, VAES |
//! | [`universal`] | inner products over GF(2⁶⁴) | portable, PCLMULQDQ, VPCLMULQDQ |
//! | [`mont`] | Montgomery arithmetic of eight numbers at once, modulo M and M²: powers, tables, multi-products | portable, AVX-512 IFMA, the same bits everywhere |
//! | [`parts`] | long messages, written part by part | portable |
//! | [`product`] | matrix products modulo 2¹⁶ | portable, AVX2, AVX-512 VNNI |
//! | [`pack`] | numbers of w bits | portable |
//! | [`prg`] | ChaCha20 expansion | those of the `chacha20` crate |
//! | [`sparse`] | sparse products and updates of many vectors at once | portable, AVX2, AVX-512, the same bits everywhere |
//! | [`mask`] | key streams (AES-128-CTR, ChaCha20) added to or subtracted from words | portable, AVX2, AVX-512; ciphers as their crates |
//! | [`normal`] | standard normals from a PRG | portable, the same bits everywhere |
//! | [`project`] | signs of a Gaussian projection | portable, AVX2, AVX-512, the same bits everywhere |
//! | [`wipe`] | vectors that are wiped when they are dropped | portable |
//!
//! [`Cpu`] decides at run time which path is taken. Tests hold every path equal to the portable
//! one, and the portable one to the definition.
#![deny(unsafe_op_in_unsafe_fn)]

pub mod aes;
pub mod bits;
pub mod cpu;
#[doc(hidden)]
pub mod ctgrind;
pub mod expand;
pub mod hamming;
pub mod leaves;
pub mod mask;
pub mod mont;
pub mod normal;
pub mod pack;
pub mod parts;
pub mod prg;
pub mod product;
pub mod project;
#[cfg(target_arch = "x86_64")]
mod simd;
pub mod sparse;
pub mod transpose;
pub mod universal;
pub mod wipe;

pub use bits::BitMatrix;
pub use cpu::Cpu;
pub use prg::Prg;
pub use product::Matrix16;
pub use wipe::Wiped;
