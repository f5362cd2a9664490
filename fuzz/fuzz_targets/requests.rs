//! `cargo +nightly fuzz run requests`: throws bytes at the parsers of every request.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tidegate_server::fuzzing::requests(data));
