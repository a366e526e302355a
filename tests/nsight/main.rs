//! The readers of Nsight Compute and Nsight Systems, over what the real tools wrote (tests/captures).

mod ncu;
mod nsys;
mod reports;
mod timeline;

use std::io::Read;
use std::path::Path;

use flate2::read::GzDecoder;

/// A captured file, decompressed.
fn capture(name: &str) -> Vec<u8> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/captures");
    let mut bytes = Vec::new();
    match std::fs::File::open(folder.join(format!("{name}.gz"))) {
        Ok(file) => GzDecoder::new(file).read_to_end(&mut bytes).expect("it is compressed"),
        Err(_) => {
            std::fs::File::open(folder.join(name)).expect("it is there").read_to_end(&mut bytes).expect("it is read")
        }
    };
    bytes
}

/// A captured file as text.
fn text(name: &str) -> String {
    String::from_utf8(capture(name)).expect("it is text")
}
