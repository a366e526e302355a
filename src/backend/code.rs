//! Hash over the machine code of a compiled module and the constants that it reads, independent of paths, symbols and line
//! tables.

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

/// Sections with what code reads, by how their names begin: two tables of constants make two kernels of one code.
const DATA: [&str; 3] = [".rodata", ".data", ".nv.constant"];

/// Key over names and bytes of the sections of `module` that hold code and its data; the path is for messages alone.
///
/// # Errors
/// The bytes are no object file.
pub fn code_sha256(module: &[u8], path: &Path) -> Result<Key, CodeError> {
    let fail = |error| CodeError { path: path.to_owned(), error };
    let file = object::File::parse(module).map_err(fail)?;
    let mut sections = Vec::new();
    for section in file.sections() {
        let name = section.name().map_err(fail)?;
        if section.kind() == SectionKind::Text || DATA.iter().any(|data| name.starts_with(data)) {
            sections.push((name.to_owned(), Key::of_bytes(section.data().map_err(fail)?)));
        }
    }
    sections.sort();
    Ok(Key::of("code/2", &sections))
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
