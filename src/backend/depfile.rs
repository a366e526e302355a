//! Reads the dependency file that a C compiler writes (`-MD`). Pure.

use std::path::PathBuf;

/// The text is no rule of make.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the compiler's dependency file has no `target: files` rule but begins with `{0}`; is this compiler known to write them?"
)]
pub struct DepfileError(pub String);

/// Files that the rule in `text` depends on, in order.
///
/// # Errors
/// The text has no rule.
pub fn parse(text: &str) -> Result<Vec<PathBuf>, DepfileError> {
    let (_, files) = text.split_once(": ").ok_or_else(|| DepfileError(text.chars().take(60).collect()))?;
    let mut found = Vec::new();
    let mut word = String::new();
    let mut characters = files.chars().peekable();
    while let Some(c) = characters.next() {
        match (c, characters.peek()) {
            ('\\', Some('\n')) => {}
            ('\\', Some(&next @ (' ' | '#' | '\\'))) | ('$', Some(&next @ '$')) => {
                word.push(next);
                characters.next();
            }
            (c, _) if c.is_whitespace() => found.extend(finished(&mut word)),
            (c, _) => word.push(c),
        }
    }
    found.extend(finished(&mut word));
    Ok(found)
}

fn finished(word: &mut String) -> Option<PathBuf> {
    Some(std::mem::take(word)).filter(|word| !word.is_empty()).map(PathBuf::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn continued_lines_and_escapes_are_read() {
        let files = parse("module.so: a.c /usr/include/b.h \\\n with\\ space.h money$$.h\n").expect("a rule");
        assert_eq!(files, ["a.c", "/usr/include/b.h", "with space.h", "money$.h"].map(PathBuf::from));
    }

    #[test]
    fn a_text_without_a_rule_is_refused() {
        assert_eq!(parse("nothing"), Err(DepfileError("nothing".into())));
    }
}
