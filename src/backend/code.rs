//! Hash over the machine code of a compiled module, independent of paths, symbols and line tables.

use std::path::{Path, PathBuf};

use object::{Object as _, ObjectSection as _, SectionKind};

use crate::model::Key;

/// The module cannot be read as an object file.
#[derive(Debug, thiserror::Error)]
#[error("{}: no object file that could be read: {error}", path.display())]
pub struct CodeError {
    pub path: PathBuf,
    pub error: object::Error,
}

/// Key over names and bytes of the code sections of `module`, whose path is for messages alone.
///
/// # Errors
/// The bytes are no object file.
pub fn code_sha256(module: &[u8], path: &Path) -> Result<Key, CodeError> {
    let fail = |error| CodeError { path: path.to_owned(), error };
    let file = object::File::parse(module).map_err(fail)?;
    let mut sections = Vec::new();
    for section in file.sections().filter(|section| section.kind() == SectionKind::Text) {
        let name = section.name().map_err(fail)?.to_owned();
        sections.push((name, Key::of_bytes(section.data().map_err(fail)?)));
    }
    sections.sort();
    Ok(Key::of("code/1", &sections))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_are_no_object_file_are_refused_by_name() {
        let error = code_sha256(b"text", Path::new("a/module.so")).expect_err("no object file");
        assert!(error.to_string().starts_with("a/module.so: no object file"), "{error}");
    }
}
