//! Recordings, unpacked.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &[u8]| mlarun::fuzz::recording(text));
