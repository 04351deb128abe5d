//! Benchmarks only: `cargo bench -p undertone-benches`. `peers/` holds other people's programs.
#![forbid(unsafe_code)]
