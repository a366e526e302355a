//! Files of records.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &[u8]| mlarun::fuzz::record(text));
