//! The protocols of Undertone, each a pair of [`Party`](undertone_party::Party)s.
//!
//! | module | protocol | who learns what |
//! |---|---|---|
//! | [`group`] | roster and group seed | clients: a seed; the server: nothing, unless it may |
//! | [`identity`], [`roster`] | Ed25519 identities, the keys of all clients | everybody: public keys |
//! | [`ot`] | oblivious transfer: base, extension, random, correlated, chosen | receiver: one of two keys; sender: not which |
//! | [`paillier`] | Paillier's cryptosystem: keys, encryption, sums, slots | the owner of a key: plaintexts |
//! | [`seal`] | pair channels: X25519, HKDF-SHA256, ChaCha20-Poly1305 | the two ends: the plaintext |
//! | [`hamming`] | distances between all rows of all clients | the server: distances, and what the [`Backend`](hamming::Backend) says |
//! | [`sum`] | secure sums, for the server or everybody, and rows of sums for their owners | the sum, or its rows |
//!
//! No module here knows what the numbers mean; [`undertone-xclp`](https://crates.io/crates/undertone-xclp) does.
#![forbid(unsafe_code)]

pub mod group;
pub mod hamming;
pub mod identity;
pub mod kdf;
pub mod ot;
pub mod paillier;
pub mod roster;
pub mod seal;
pub mod sum;
pub mod tiles;
