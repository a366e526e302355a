//! Puts blocks into a log, and tells which ones are stale. Pure: text in, text out.

use super::scan::{Found, Scan, Section, begin_border, end_border, scan};
use super::{Block, DevlogError, Identity};

/// Which blocks may be added that a log does not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Adding {
    /// Those of a device that the log already has a block of.
    KnownDevices,
    /// All of them.
    AnyDevice,
}

/// A log with its blocks brought up to date.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Updated {
    pub text: String,
    /// Blocks of devices that the log does not have and that were not to be added.
    pub left_out: Vec<Identity>,
}

/// A block that a log should have otherwise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stale {
    pub identity: Identity,
    /// Line of its begin border; `None` for a block that is missing.
    pub line: Option<usize>,
    pub reason: StaleReason,
}

/// What is wrong with a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StaleReason {
    /// Its record is there, the block is not.
    Missing,
    /// It is not what its record renders to.
    Differs,
    /// It has no record.
    WithoutRecord,
}

impl std::fmt::Display for Stale {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let what = match self.reason {
            StaleReason::Missing => "has a record and no block",
            StaleReason::Differs => "is not what its record says",
            StaleReason::WithoutRecord => "has a block and no record",
        };
        match self.line {
            Some(line) => write!(f, "line {line}: {} {what}", self.identity),
            None => write!(f, "{} {what}", self.identity),
        }
    }
}

/// `text` with every one of `blocks`: replaced between its borders where the log has it, else added at the end of its
/// version's section, which is added in the order of versions where it is missing. Every other byte stays.
///
/// # Errors
/// Borders, sections or fences that cannot be trusted; see [`DevlogError`].
pub fn update(text: &str, blocks: &[Block], adding: Adding) -> Result<Updated, DevlogError> {
    let known: Vec<String> = scan(text)?.blocks.into_iter().map(|block| block.identity.device).collect();
    let newline = Newline::of(text);
    let mut updated = Updated { text: text.to_owned(), left_out: Vec::new() };
    for block in blocks {
        let scan = scan(&updated.text)?;
        if let Some(found) = scan.blocks.iter().find(|found| found.identity == block.identity) {
            updated.text.replace_range(found.owned.clone(), &newline.convert(&block.body));
        } else if adding == Adding::AnyDevice || known.contains(&block.identity.device) {
            updated.text = insert(&updated.text, &scan, block, newline);
        } else {
            updated.left_out.push(block.identity.clone());
        }
    }
    // What was written must be readable again.
    scan(&updated.text)?;
    Ok(updated)
}

/// Blocks of `text` that differ from `blocks`, which are those of all the log's records. Line endings do not count.
///
/// # Errors
/// As [`update`].
pub fn check(text: &str, blocks: &[Block]) -> Result<Vec<Stale>, DevlogError> {
    let found = scan(text)?.blocks;
    let same = |found: &Found, block: &Block| text[found.owned.clone()].replace("\r\n", "\n") == block.body;
    let mut stale = Vec::new();
    for block in blocks {
        let (line, reason) = match found.iter().find(|found| found.identity == block.identity) {
            Some(found) if same(found, block) => continue,
            Some(found) => (Some(found.line), StaleReason::Differs),
            None => (None, StaleReason::Missing),
        };
        stale.push(Stale { identity: block.identity.clone(), line, reason });
    }
    let without_record = found.iter().filter(|found| blocks.iter().all(|block| block.identity != found.identity));
    stale.extend(without_record.map(|found| Stale {
        identity: found.identity.clone(),
        line: Some(found.line),
        reason: StaleReason::WithoutRecord,
    }));
    Ok(stale)
}

fn insert(text: &str, scan: &Scan, block: &Block, newline: Newline) -> String {
    let bordered = format!("{}\n{}{}\n\n{}", begin_border(&block.identity), block.body, end_border(), block.notes);
    let (boundary, chunk) = match scan.sections.iter().find(|section| section.version == block.identity.version) {
        Some(section) => (section.range.end, bordered),
        None => (place_of_section(text, &scan.sections, block), format!("{}\n{bordered}", block.section)),
    };
    insert_before(text, boundary, &newline.convert(&chunk), newline)
}

/// Before the first later version, else after the last earlier one, else at the end.
fn place_of_section(text: &str, sections: &[Section], block: &Block) -> usize {
    let later = sections.iter().find(|section| section.version > block.identity.version);
    let place = later.map(|section| section.range.start).or(sections.last().map(|section| section.range.end));
    place.unwrap_or(text.len())
}

/// Inserts `chunk`, set off by blank lines, behind the last line before `boundary` that is not blank. A missing line
/// break at the end of the text stays missing.
fn insert_before(text: &str, boundary: usize, chunk: &str, newline: Newline) -> String {
    let filled = text[..boundary].trim_end().len();
    let rest_of_line = text[filled..].find('\n').map(|offset| filled + offset + 1);
    let at = rest_of_line.unwrap_or(text.len());
    let (before, after) = text.split_at(at);
    let nl = newline.text();
    let mut out = before.to_owned();
    if !before.is_empty() {
        out.push_str(if rest_of_line.is_some() {
            nl
        } else if newline == Newline::CrLf {
            "\r\n\r\n"
        } else {
            "\n\n"
        });
    }
    out.push_str(chunk.trim_end_matches(['\r', '\n']));
    let ends_with_break = rest_of_line.is_some() || text.is_empty();
    if ends_with_break {
        out.push_str(nl);
    }
    if !after.is_empty() && !after.starts_with(['\r', '\n']) {
        out.push_str(nl);
    }
    out.push_str(after);
    out
}

/// Line ending of a log: the one that most of its lines have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Newline {
    Lf,
    CrLf,
}

impl Newline {
    fn of(text: &str) -> Newline {
        let crlf = text.matches("\r\n").count();
        if 2 * crlf > text.matches('\n').count() { Newline::CrLf } else { Newline::Lf }
    }

    const fn text(self) -> &'static str {
        match self {
            Newline::Lf => "\n",
            Newline::CrLf => "\r\n",
        }
    }

    fn convert(self, text: &str) -> String {
        text.replace('\n', self.text())
    }
}
