//! Benchmarks only: `cargo bench -p undertone-benches`. `peers/` compares with programs of others.
#![forbid(unsafe_code)]
