//! Printing: data to standard output, remarks and errors to standard error.

use std::io::{IsTerminal as _, Write as _};

use comfy_table::presets;
use comfy_table::{ContentArrangement, Table};
use serde::Serialize;

use super::args::ColorWhen;
use super::exit::{CliError, Exit};
use crate::diagnostic::{self, Colour, Diagnostic, Severity, plain, spelt_out};
use crate::report::numbers::counted;

/// Writes text to standard output. A reader that has gone (`mlarun … | head`) is no error.
pub fn text(text: &str) -> Result<(), CliError> {
    write(&plain(text))
}

/// Writes the text of a JSON value to standard output.
pub fn json_text(text: &str) -> Result<(), CliError> {
    write(&spelt_out(text, |c| format!("\\u{:04x}", u32::from(c))))
}

fn write(text: &str) -> Result<(), CliError> {
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(CliError::internal(format!("standard output: {error}")))
        }
        _ => Ok(()),
    }
}

/// Writes a line to standard error. A terminal that has gone, or a log on a full disk, must not end a measurement.
pub fn note(line: &str) {
    coloured(&plain(line));
}

/// As [`note`], for text whose only control characters are ours.
fn coloured(line: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{line}");
}

/// Writes a value as indented JSON.
pub fn json<T: Serialize>(value: &T) -> Result<(), CliError> {
    let mut out = serde_json::to_string_pretty(value).map_err(CliError::internal)?;
    out.push('\n');
    json_text(&out)
}

/// A table of plain lines, without borders.
pub fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled).set_header(header);
    table
}

/// A table's text, with no space at the ends of lines.
pub fn table_text(table: &Table) -> String {
    table.to_string().lines().map(|line| format!("{}\n", line.trim())).collect()
}

fn colour(when: ColorWhen) -> Colour {
    let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    match when {
        ColorWhen::Always => Colour::Always,
        ColorWhen::Auto if std::io::stderr().is_terminal() && !no_color => Colour::Always,
        ColorWhen::Auto | ColorWhen::Never => Colour::Never,
    }
}

/// A diagnostic for programs.
#[derive(Serialize)]
pub struct Finding {
    severity: &'static str,
    file: String,
    /// Both from 1; `null` where the whole file is meant.
    line: Option<usize>,
    column: Option<usize>,
    message: String,
    label: Option<String>,
    help: Option<String>,
}

impl Finding {
    pub fn of(diagnostic: &Diagnostic) -> Finding {
        let position = diagnostic.span.as_ref().map(|span| diagnostic.file.position(span.start));
        Finding {
            severity: match diagnostic.severity {
                Severity::Error => "error",
                Severity::Warning => "warning",
            },
            file: diagnostic.file.name().to_owned(),
            line: position.map(|(line, _)| line),
            column: position.map(|(_, column)| column),
            message: diagnostic.message.clone(),
            label: diagnostic.label.clone(),
            help: diagnostic.help.clone(),
        }
    }
}

/// Prints diagnostics to standard error.
pub fn diagnostics(diagnostics: &[Diagnostic], when: ColorWhen) {
    if !diagnostics.is_empty() {
        coloured(diagnostic::render_all(diagnostics, colour(when)).trim_end());
    }
}

/// Prints an error to standard error and gives its exit code.
pub fn report_error(error: &CliError, when: ColorWhen) -> Exit {
    match error {
        CliError::Diagnostics(_, found) => {
            diagnostics(found, when);
            let errors = found.iter().filter(|diagnostic| diagnostic.is_error()).count();
            note(&format!("mlarun: {}; nothing was run", counted(errors, "error")));
        }
        CliError::Message(_, message) => note(&format!("mlarun: {message}")),
    }
    error.exit()
}
