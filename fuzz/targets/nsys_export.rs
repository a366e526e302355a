//! Databases as Nsight Systems exports them.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| mlarun::fuzz::nsys_export(bytes));
