#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| undertone_tests::fuzz::run("cells", bytes));
