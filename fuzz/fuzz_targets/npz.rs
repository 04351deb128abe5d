//! Any bytes as an archive.
#![no_main]

use std::io::Cursor;

use libfuzzer_sys::fuzz_target;
use undertone::data::{Kind, from_npz};

fuzz_target!(|bytes: &[u8]| {
    for kind in [Kind::Features, Kind::Codes] {
        let _ = from_npz(Cursor::new(bytes), kind);
    }
});
