//! Text that may be shown: what compilers, kernels and files have said may hold characters that change a terminal, or that
//! show another order than there is.

use std::borrow::Cow;

/// `text` with such characters spelt out: `\u{1b}`. Line ends and tabulators stay.
pub fn plain(text: &str) -> Cow<'_, str> {
    spelt_out(text, |c| c.escape_unicode().to_string())
}

/// `text` with what `spell` makes of each such character.
pub fn spelt_out(text: &str, spell: impl Fn(char) -> String) -> Cow<'_, str> {
    if !text.contains(is_odd) {
        return Cow::Borrowed(text);
    }
    let text = text.replace("\r\n", "\n");
    Cow::Owned(text.chars().map(|c| if is_odd(c) { spell(c) } else { c.to_string() }).collect())
}

fn is_odd(c: char) -> bool {
    let reorders = matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    c.is_control() && !matches!(c, '\n' | '\t') || reorders
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_changes_a_terminal_passes() {
        assert_eq!(plain("µs\n\ta → b"), "µs\n\ta → b");
        assert_eq!(plain("a\u{1b}[2Jb\u{9b}c\rd\u{7}\r\n"), "a\\u{1b}[2Jb\\u{9b}c\\u{d}d\\u{7}\n");
        assert_eq!(plain("\u{202e}cba"), "\\u{202e}cba");
    }
}
