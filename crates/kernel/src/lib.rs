//! The kernels of Undertone: the code that decides its speed, and the only unsafe code.
//!
//! | module | kernel | paths |
//! |---|---|---|
//! | [`bits`] | packed bit matrices, transpose | portable |
//! | [`hamming`] | XOR-popcount distance tiles | portable, AVX2, AVX-512 VPOPCNTDQ |
//! | [`aes`] | a fixed-key permutation, hashes of blocks | portable (1), AES-NI, VAES |
//! | [`gates`] | garbled AND gates | portable (1), AES-NI, VAES |
//! | [`leaves`] | AES streams of the leaves of trees, summed | portable, AES-NI, VAES |
//! | [`transpose`] | 128 rows of bits to blocks | portable, AVX2, AVX-512 |
//! | [`expand`] | correlated vectors over Z_{2^w} | portable, AES-NI, VAES |
//! | [`universal`] | inner products over GF(2⁶⁴) | portable, PCLMULQDQ, VPCLMULQDQ |
//! | [`nh`] | a hash of long messages | portable, PCLMULQDQ, VPCLMULQDQ |
//! | [`mont`] | Montgomery arithmetic modulo M and M² | portable, AVX2, AVX-512 IFMA (2) |
//! | [`parts`] | long messages, written part by part | portable |
//! | [`product`] | matrix products modulo 2¹⁶ | portable, AVX2, AVX-512 VNNI |
//! | [`product52`] | matrix products modulo 2⁵² | portable, AVX2, AVX-512 IFMA |
//! | [`signed`] | inner products with small signed numbers | portable, AVX2, AVX-512 VNNI |
//! | [`negacyclic`] | products of polynomials modulo X²⁵⁶ + 1 | portable, AVX-512 IFMA |
//! | [`cdt`] | samples from tables of thresholds | portable, AVX2, AVX-512 |
//! | [`gaussian`] | candidates for wide Gaussians | portable, AVX-512 IFMA |
//! | [`exp2`] | powers of two with 64 bits after the point | portable, AVX-512 |
//! | [`pack`] | numbers of w bits | portable |
//! | [`prg`] | ChaCha20 expansion | those of the `chacha20` crate |
//! | [`dense`] | products of dense matrices | portable, AVX2, AVX-512 (2) |
//! | [`sparse`] | sparse products of many vectors | portable, AVX2, AVX-512 (2) |
//! | [`mask`] | key streams added to words | portable, AVX2, AVX-512 (3) |
//! | [`normal`] | standard normals from a PRG | portable (2) |
//! | [`project`] | signs of a Gaussian projection | portable, AVX2, AVX-512 (2) |
//! | [`rows`] | a view of feature rows | portable |
//! | [`wipe`] | vectors that are wiped on drop | portable |
//!
//! 1. By the `aes` crate.
//! 2. The same bits on every path and platform, floating point included.
//! 3. The ciphers, AES-128-CTR and ChaCha20, have the paths of their crates.
//!
//! [`Cpu`] selects the path at run time. Tests hold every path equal to the portable one, and the
//! portable one to the definition.
#![deny(unsafe_op_in_unsafe_fn)]

pub mod aes;
pub mod bits;
pub mod cdt;
pub mod cpu;
#[doc(hidden)]
pub mod ctgrind;
pub mod dense;
pub mod exp2;
pub mod expand;
pub mod gates;
pub mod gaussian;
pub mod hamming;
pub mod leaves;
pub mod mask;
pub mod mont;
pub mod negacyclic;
pub mod nh;
pub mod normal;
pub mod pack;
pub mod parts;
pub mod prg;
pub mod product;
pub mod product52;
pub mod project;
pub mod rows;
pub mod signed;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
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
