//! The bodies of the fuzz targets, one function for each target in `fuzz/`. As they are here, every
//! test run compiles them and runs them on all inputs that fuzzers have found.

#![allow(
    clippy::missing_panics_doc,
    reason = "a fuzz target reports a finding by a panic"
)]

pub mod cotrain;
pub mod fedgraph;
pub mod files;
pub mod frames;
pub mod payloads;
pub mod pssl;
pub mod train;

/// The name and the body of a target.
pub type Target = (&'static str, fn(&[u8]));

/// All targets.
pub const TARGETS: [Target; 22] = [
    ("csv", files::csv),
    ("npz", files::npz),
    ("settings", files::settings),
    ("offers", files::offers),
    ("keys", files::keys),
    ("records", files::records),
    ("frames", frames::frames),
    ("bundles", frames::bundles),
    ("links", frames::links),
    ("cells", payloads::cells),
    ("labels", payloads::labels),
    ("sums", payloads::sums),
    ("rounds", payloads::rounds),
    ("train", train::train),
    ("garble", cotrain::garble),
    ("cotrain", cotrain::cotrain),
    ("pssl", pssl::pssl),
    ("fedgraph", fedgraph::fedgraph),
    ("transfers", payloads::transfers),
    ("shade", payloads::shade),
    ("lwe", payloads::lwe),
    ("phe", payloads::phe),
];

/// Runs the target `name`, for [`libfuzzer`](https://llvm.org/docs/LibFuzzer.html).
///
/// # Panics
/// When there is no such target, or it finds an error.
pub fn run(name: &str, bytes: &[u8]) {
    let target = TARGETS.iter().find(|target| target.0 == name);
    let (_, body) = target.expect("a target of this name");
    body(bytes);
}
