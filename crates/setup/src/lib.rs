//! The setup of a protocol run: who takes part, with which keys, and what they share.
//!
//! | module | what it holds | who learns what |
//! |---|---|---|
//! | [`group`] | the setup itself: roster and group seed, two scripts | clients: a seed; the server: nothing, unless it may |
//! | [`roster`] | hello and roster, and their checks | everybody: public keys and advertisements |
//! | [`identity`] | Ed25519 identities, and the pins of others' | everybody: public keys |
//! | [`seal`] | pair channels: X25519, HKDF-SHA256, ChaCha20-Poly1305 | the two ends: the plaintext |
//! | [`fixed`] | the same channels from one seed, for tests and simulations | whoever has the seed: everything |
//!
//! The specification is PROTOCOLS.md, *Setup*.
#![forbid(unsafe_code)]

pub mod fixed;
pub mod group;
pub mod identity;
pub mod roster;
pub mod seal;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
