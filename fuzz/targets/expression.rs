//! Expressions: parsed and evaluated.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &[u8]| mlarun::fuzz::expression(text));
