//! What Nsight Systems says and prints.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &[u8]| mlarun::fuzz::nsys_text(text));
