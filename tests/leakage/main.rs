//! What who can work out from what they see: attacks that succeed on what is published, or without one
//! of our measures, and fail on ours.
#![allow(missing_docs, clippy::unwrap_used)]

mod coalition;
mod collusion;
mod columns;
mod distances;
mod phe;
mod rounds;
mod sessions;
mod shade;
mod sums;

/// Holds bytes to the uniform distribution: χ² with 255 degrees of freedom is above 377, or below 158, once in
/// 10⁶.
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
