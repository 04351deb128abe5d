//! The committed vectors are what this machine computes, on whatever path and number of threads.
#![allow(missing_docs, clippy::unwrap_used)]

use undertone_tests::{root, vectors};

#[test]
fn committed_vectors_are_reproduced() {
    let held = std::fs::read_to_string(root("vectors/undertone.json")).unwrap();
    let made = vectors::to_json(&vectors::make().unwrap()).unwrap();
    assert!(
        held == made,
        "vectors differ: cargo run -p undertone-tests --example make-vectors"
    );
}
