//! The setup of a protocol run: participants, their keys, and the secrets that they share.
//!
//! | module | contents | who learns what |
//! |---|---|---|
//! | [`group`] | the setup: roster and group seed, two scripts | clients: a seed; server: note 1 |
//! | [`roster`] | hello, roster and their checks | all: public keys and advertisements |
//! | [`identity`] | Ed25519 identities and pins | all: public keys |
//! | [`seal`] | pair channels: X25519, HKDF-SHA256, ChaCha20-Poly1305 | both ends: plaintext |
//! | [`fixed`] | the same channels from one seed, for tests | holder of the seed: everything |
//!
//! Note 1: the server learns nothing, or the seed with [`group::Secrecy::Open`].
//!
//! The specification is `docs/spec/setup.md`.
#![forbid(unsafe_code)]

pub mod fixed;
pub mod group;
pub mod identity;
pub mod roster;
pub mod seal;
pub mod sealed;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
