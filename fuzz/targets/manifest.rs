//! Manifests, resolved against the project's own kernels.
#![no_main]

use std::path::Path;
use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use mlarun::catalog::Catalog;

static CATALOG: LazyLock<Catalog> = LazyLock::new(|| Catalog::load(&Path::new(env!("CARGO_MANIFEST_DIR")).join("..")));

fuzz_target!(|text: &[u8]| mlarun::fuzz::manifest(text, &CATALOG));
