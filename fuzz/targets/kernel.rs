//! `kernel.toml` of packages in C and in CUDA, beside the sources of flash_mla.
#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &[u8]| mlarun::fuzz::kernel(text, &Path::new(env!("CARGO_MANIFEST_DIR")).join("..")));
