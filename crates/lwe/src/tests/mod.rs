//! Tests of distributions, of the argument in `docs/spec/lwe.md` (*Security*), and of attacks.
//!
//! All of them draw from fixed seeds, with the samplers of the crate.

mod linear;
mod smoothing;
mod statistics;

