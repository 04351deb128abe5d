//! What parties can work out from what they see. Attacks succeed on the published protocols, or
//! without one of the protections, and fail on Undertone.
#![allow(missing_docs, clippy::unwrap_used)]

mod cells;
mod coalition;
mod collusion;
mod columns;
mod cotrain;
mod distances;
mod fedgraph;
mod inputs;
mod jacobian;
mod jobs;
mod linear;
mod lwe;
mod lwe_cheats;
mod many_rounds;
mod phe;
mod pssl;
mod pssl_digits;
mod pssl_rank;
mod rewinds;
mod rounds;
mod rows;
mod scaling;
mod sessions;
mod shade;
mod steering;
mod sums;
mod train;

/// Checks that bytes are uniform. χ² with 255 degrees of freedom is above 377 or below 158 with
/// probability 10⁻⁶.
fn assert_uniform(bytes: &[u8], what: &str) {
    let mut counts = [0u32; 256];
    for byte in bytes {
        counts[usize::from(*byte)] += 1;
    }
    let expected = bytes.len() as f64 / 256.0;
    let chi: f64 = counts
        .iter()
        .map(|count| (f64::from(*count) - expected).powi(2) / expected)
        .sum();
    assert!((158.0..377.0).contains(&chi), "{what}: χ² = {chi}");
}
