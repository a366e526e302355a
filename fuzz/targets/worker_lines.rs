//! Lines of a worker's answer.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &[u8]| mlarun::fuzz::worker_lines(text));
