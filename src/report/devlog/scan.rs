//! Finds borders and sections in a log. Markdown's own rules say what is code, where borders are mere text.

use std::ops::Range;

use pulldown_cmark::{CodeBlockKind, Event, HeadingLevel, Parser, Tag};

use super::Identity;
use crate::model::Version;

const BEGIN: &str = "<!-- mlarun:performance begin ";
const CLOSE: &str = " -->";
const END: &str = "<!-- mlarun:performance end -->";

/// A log whose borders cannot be trusted. The file stays as it is.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DevlogError {
    #[error("line {line}: a performance block begins and never ends; restore `{END}` after its table")]
    Unended { line: usize },
    #[error("line {line}: a performance block ends that never began; remove the line, or restore its begin border")]
    Unbegun { line: usize },
    #[error("line {line}: this begin border does not say what it belongs to ({reason}); restore it from history")]
    Border { line: usize, reason: String },
    #[error("lines {first} and {second}: two performance blocks of {identity}; remove one of them")]
    DoubledBlock { identity: Box<Identity>, first: usize, second: usize },
    #[error("lines {first} and {second}: two sections of {version}; remove or rename one of them")]
    DoubledSection { version: Version, first: usize, second: usize },
    #[error("line {line}: a code fence opens and never closes, so that all below it is code; close it")]
    UnclosedFence { line: usize },
}

/// A block found in a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Found {
    pub identity: Identity,
    /// Line of the begin border, counted from 1.
    pub line: usize,
    /// Bytes between the borders' lines.
    pub owned: Range<usize>,
}

/// A version's section: from its heading to the next one of the same or a higher rank.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Section {
    pub version: Version,
    pub line: usize,
    pub range: Range<usize>,
}

/// What a log is made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Scan {
    pub blocks: Vec<Found>,
    pub sections: Vec<Section>,
}

/// The begin border of a block. Its JSON holds no `--` and no `>`, so that it cannot end the comment.
pub(super) fn begin_border(identity: &Identity) -> String {
    let json = serde_json::to_string(identity).expect("an identity is JSON");
    format!("{BEGIN}{}{CLOSE}", json.replace("--", "-\\u002d").replace('>', "\\u003e"))
}

/// The end border of every block.
pub(super) const fn end_border() -> &'static str {
    END
}

/// Finds blocks and sections of `text`.
pub(super) fn scan(text: &str) -> Result<Scan, DevlogError> {
    let outline = outline(text)?;
    Ok(Scan { blocks: blocks(text, &outline.code)?, sections: sections(text, &outline.headings)? })
}

struct Outline {
    code: Vec<Range<usize>>,
    /// Start of each top-level heading of rank 1 to 3.
    headings: Vec<usize>,
}

fn outline(text: &str) -> Result<Outline, DevlogError> {
    let (mut code, mut headings, mut depth) = (Vec::new(), Vec::new(), 0_usize);
    for (event, range) in Parser::new(text).into_offset_iter() {
        match event {
            Event::Start(tag) => {
                match tag {
                    Tag::CodeBlock(kind) => {
                        check_fence(text, &kind, &range)?;
                        code.push(range);
                    }
                    Tag::Heading { level, .. } if depth == 0 && level <= HeadingLevel::H3 => headings.push(range.start),
                    _ => {}
                }
                depth += 1;
            }
            Event::End(_) => depth -= 1,
            _ => {}
        }
    }
    Ok(Outline { code, headings })
}

/// Refuses a fence that runs to the end of the text.
fn check_fence(text: &str, kind: &CodeBlockKind<'_>, range: &Range<usize>) -> Result<(), DevlogError> {
    let runs_to_the_end = text[range.end..].trim().is_empty();
    if matches!(kind, CodeBlockKind::Indented) || !runs_to_the_end {
        return Ok(());
    }
    let block = text[range.clone()].trim_end();
    let mark = block.trim_start().chars().next().unwrap_or('`');
    let run = |line: &str| line.chars().take_while(|character| *character == mark).count();
    let opening = run(block.trim_start());
    let closed = block.rsplit_once('\n').is_some_and(|(_, last)| {
        let last = last.trim_matches(|character: char| character.is_whitespace() || character == '>');
        run(last) >= opening && last.chars().all(|character| character == mark)
    });
    if closed { Ok(()) } else { Err(DevlogError::UnclosedFence { line: line_of(text, range.start) }) }
}

fn blocks(text: &str, code: &[Range<usize>]) -> Result<Vec<Found>, DevlogError> {
    let mut found: Vec<Found> = Vec::new();
    let mut open: Option<(Identity, usize, usize)> = None;
    let mut start = 0;
    for (index, whole) in text.split_inclusive('\n').enumerate() {
        let (line, end) = (index + 1, start + whole.len());
        let content = whole.trim_end();
        let is_code = code.iter().any(|range| range.contains(&start));
        if content.starts_with(BEGIN.trim_end()) && !is_code {
            if let Some((_, line, _)) = open {
                return Err(DevlogError::Unended { line });
            }
            open = Some((identity(content, line)?, line, end));
        } else if content == END && !is_code {
            let (identity, begun, from) = open.take().ok_or(DevlogError::Unbegun { line })?;
            if let Some(first) = found.iter().find(|block| block.identity == identity) {
                let identity = Box::new(identity);
                return Err(DevlogError::DoubledBlock { identity, first: first.line, second: begun });
            }
            found.push(Found { identity, line: begun, owned: from..start });
        }
        start = end;
    }
    match open {
        Some((_, line, _)) => Err(DevlogError::Unended { line }),
        None => Ok(found),
    }
}

fn identity(border: &str, line: usize) -> Result<Identity, DevlogError> {
    let json = border.strip_prefix(BEGIN).and_then(|rest| rest.strip_suffix(CLOSE));
    let json = json.ok_or(DevlogError::Border { line, reason: "it is cut short".to_owned() })?;
    serde_json::from_str(json).map_err(|error| DevlogError::Border { line, reason: error.to_string() })
}

fn sections(text: &str, headings: &[usize]) -> Result<Vec<Section>, DevlogError> {
    let ends = headings.iter().skip(1).copied().chain([text.len()]);
    let mut sections: Vec<Section> = Vec::new();
    for (&start, end) in headings.iter().zip(ends) {
        let Some(version) = section_version(&text[start..end]) else { continue };
        let line = line_of(text, start);
        if let Some(first) = sections.iter().find(|section| section.version == version) {
            return Err(DevlogError::DoubledSection { version, first: first.line, second: line });
        }
        sections.push(Section { version, line, range: start..end });
    }
    Ok(sections)
}

/// Version of a heading `### V<N>`, alone or before a colon.
fn section_version(section: &str) -> Option<Version> {
    let title = section.lines().next()?.trim_start().strip_prefix("###")?.trim();
    let number = title.split(':').next()?.trim().strip_prefix('V')?;
    format!("v{number}").parse().ok()
}

fn line_of(text: &str, offset: usize) -> usize {
    text[..offset].matches('\n').count() + 1
}
