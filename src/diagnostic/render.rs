//! Diagnostics as text for people.

use annotate_snippets::renderer::DecorStyle;
use annotate_snippets::{AnnotationKind, Group, Level, Origin, Renderer, Snippet};

use super::{Diagnostic, Severity, floor_boundary, plain, spelt_out};

/// Whether rendered text holds ANSI colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Colour {
    Never,
    Always,
}

/// Columns beyond which a line is cut around what is underlined.
const WIDTH: usize = 140;

/// One diagnostic: message, `file:line:column`, the line with the place underlined, help. Ends without a newline.
pub fn render(diagnostic: &Diagnostic, colour: Colour) -> String {
    let renderer = match colour {
        Colour::Never => Renderer::plain(),
        Colour::Always => Renderer::styled(),
    };
    // Of what a line of the file holds, the renderer spells out the escapes; those that are left are its own.
    let diagnostic = &spelt_out_in(diagnostic);
    let text = renderer.decor_style(DecorStyle::Ascii).term_width(WIDTH).render(&[group(diagnostic)]);
    spelt_out(&text, |c| if c == '\u{1b}' { c.to_string() } else { c.escape_unicode().to_string() }).into_owned()
}

/// `diagnostic` with words that may be shown.
fn spelt_out_in(diagnostic: &Diagnostic) -> Diagnostic {
    let text = |text: &Option<String>| text.as_ref().map(|text| plain(text).into_owned());
    Diagnostic {
        message: plain(&diagnostic.message).into_owned(),
        label: text(&diagnostic.label),
        help: text(&diagnostic.help),
        ..diagnostic.clone()
    }
}

/// All of them with an empty line between, ending with a newline; empty without any.
pub fn render_all(diagnostics: &[Diagnostic], colour: Colour) -> String {
    let texts: Vec<String> = diagnostics.iter().map(|diagnostic| render(diagnostic, colour) + "\n").collect();
    texts.join("\n")
}

fn group(diagnostic: &Diagnostic) -> Group<'_> {
    let level = match diagnostic.severity {
        Severity::Error => Level::ERROR,
        Severity::Warning => Level::WARNING,
    };
    let title = level.primary_title(diagnostic.message.as_str());
    let name = plain(diagnostic.file.name()).into_owned();
    let group = match &diagnostic.span {
        Some(span) => {
            let (text, span, line) = excerpt(diagnostic.file.text(), span.start, span.end);
            let label = diagnostic.label.as_deref();
            let annotation = AnnotationKind::Primary.span(span).label(label);
            title.element(Snippet::source(text).line_start(line).path(name).annotation(annotation))
        }
        None => title.element(Origin::path(name)),
    };
    match &diagnostic.help {
        Some(help) => group.element(Level::HELP.message(help.as_str())),
        None => group,
    }
}

/// The lines that a place touches, the place within them, and the first line's number. Only the first line's part of
/// a place is kept: what begins there is what is meant.
fn excerpt(text: &str, start: usize, end: usize) -> (&str, std::ops::Range<usize>, usize) {
    let start = floor_boundary(text, start);
    let end = floor_boundary(text, end).max(start);
    let line_start = text[..start].rfind('\n').map_or(0, |newline| newline + 1);
    let line_end = text[start..].find('\n').map_or(text.len(), |newline| start + newline);
    let line = text[line_start..line_end].trim_end_matches('\r');
    let number = text[..line_start].matches('\n').count() + 1;
    let clip = |byte: usize| byte.saturating_sub(line_start).min(line.len());
    (line, clip(start)..clip(end), number)
}

#[cfg(test)]
mod tests {
    use super::super::{Place, SourceFile};
    use super::*;

    fn shown(text: &str, word: &str) -> String {
        let file = SourceFile::new("a.toml", text);
        let start = file.text().find(word).expect("the word is there");
        let place = Place::new(&file, start..start + word.len());
        let diagnostic =
            Diagnostic::error(&place, "unknown key `vesrion`").label("here").help("did you mean `version`?");
        render(&diagnostic, Colour::Never)
    }

    #[test]
    fn the_place_is_underlined() {
        insta::assert_snapshot!(shown("a = 1\nvesrion = 2\nb = 3\n", "vesrion"), @r"
        error: unknown key `vesrion`
         --> a.toml:2:1
          |
        2 | vesrion = 2
          | ^^^^^^^ here
          |
          = help: did you mean `version`?
        ");
    }

    #[test]
    fn carriage_returns_and_byte_order_marks_shift_nothing() {
        let plain = shown("a = 1\nvesrion = 2\n", "vesrion");
        assert_eq!(shown("\u{feff}a = 1\r\nvesrion = 2\r\n", "vesrion"), plain);
        assert_eq!(shown("\u{feff}vesrion = 2", "vesrion"), shown("vesrion = 2", "vesrion"));
    }

    #[test]
    fn a_long_line_is_cut_around_the_place() {
        let text = format!("x = [{} vesrion, {}]", "1, ".repeat(2000), "2, ".repeat(2000));
        let shown = shown(&text, "vesrion");
        assert!(shown.contains("vesrion,"), "{shown}");
        assert!(shown.lines().all(|line| line.chars().count() < 2 * WIDTH), "{shown}");
    }

    #[test]
    fn colour_is_there_when_asked_for_only() {
        let file = SourceFile::new("a.toml", "a");
        let diagnostic = Diagnostic::warning(&Place::new(&file, 0..1), "odd");
        assert!(render(&diagnostic, Colour::Always).contains('\u{1b}'));
        assert!(!render(&diagnostic, Colour::Never).contains('\u{1b}'));
    }

    #[test]
    fn a_place_outside_the_text_or_across_lines_is_clipped() {
        let file = SourceFile::new("a.toml", "µ = 1\nb = 2\n");
        for span in [0..100, 1..3, 90..99, 12..12, 4..8] {
            let rendered = render(&Diagnostic::error(&Place::new(&file, span), "wrong"), Colour::Never);
            assert!(rendered.contains("a.toml:"), "{rendered}");
        }
    }

    #[test]
    fn a_whole_file_has_no_line() {
        let file = SourceFile::new("kernels/c", "");
        insta::assert_snapshot!(render(&Diagnostic::of_file(&file, "not a folder"), Colour::Never), @r"
        error: not a folder
        --> kernels/c
        ");
    }
}
