//! Any bytes as CSV.
#![no_main]

use libfuzzer_sys::fuzz_target;
use undertone::data::from_csv;

fuzz_target!(|bytes: &[u8]| {
    let _ = from_csv(bytes);
});
