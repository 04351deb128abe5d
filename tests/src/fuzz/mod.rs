//! What fuzzers do with their bytes: one function for each target in `fuzz/`, so that every test run compiles them and
//! goes through what they have found.

#![allow(
    clippy::missing_panics_doc,
    reason = "to panic is how a fuzz target tells"
)]

pub mod files;
pub mod frames;
pub mod payloads;

/// A target's name and body.
pub type Target = (&'static str, fn(&[u8]));

/// All targets.
pub const TARGETS: [Target; 13] = [
    ("csv", files::csv),
    ("npz", files::npz),
    ("settings", files::settings),
    ("offers", files::offers),
    ("keys", files::keys),
    ("frames", frames::frames),
    ("links", frames::links),
    ("labels", payloads::labels),
    ("sums", payloads::sums),
    ("rounds", payloads::rounds),
    ("transfers", payloads::transfers),
    ("shade", payloads::shade),
    ("phe", payloads::phe),
];

/// Runs the target of that name; for [`libfuzzer`](https://llvm.org/docs/LibFuzzer.html).
///
/// # Panics
/// When there is none of that name, or it finds something.
pub fn run(name: &str, bytes: &[u8]) {
    let target = TARGETS.iter().find(|target| target.0 == name);
    let (_, body) = target.expect("a target of this name");
    body(bytes);
}
