//! `--set key=value`: the command line's say, put into the manifest's tree before it is read.

use std::sync::Arc;

use crate::diagnostic::{Diagnostic, Place, SourceFile};
use crate::spanned::{Entry, Kind, Node, Table, parse_value};

/// Sections of a manifest; any other key is one of `[experiment]`.
const SECTIONS: [&str; 7] = ["schema", "experiment", "shapes", "clocks", "protocol", "devlog", "target"];
/// Kinds of device that a manifest may override keys for.
const TARGETS: [&str; 2] = ["cpu", "gpu"];

/// Puts `set`, a `key=value`, into `document`, and into its target overrides where they replace that key.
pub fn apply(document: &mut Node, set: &str, diagnostics: &mut Vec<Diagnostic>) {
    let file = SourceFile::new("--set", set);
    let Some((key, _)) = file.text().split_once('=') else {
        let place = Place::new(&file, 0..file.text().len());
        let diagnostic = Diagnostic::error(&place, "an override has the form key=value").label("no `=` here");
        diagnostics.push(diagnostic.help("for example --set shapes.s=[1,4]"));
        return;
    };
    let Some(mut path) = path(&file, key, diagnostics) else { return };
    let Some(value) = value(&file, key.len() + 1, diagnostics) else { return };
    if !SECTIONS.contains(&path[0].0.as_str()) {
        path.insert(0, ("experiment".to_owned(), path[0].1.clone()));
    }
    for kind in TARGETS {
        // In a target the experiment's keys and the shapes stand side by side.
        let within = if path[0].0 == "experiment" { &path[1..] } else { &path[..] };
        if let Some(target) = within.first().and_then(|(key, _)| overriding(document, kind, key)) {
            insert(target, within, &value, diagnostics);
        }
    }
    insert(document, &path, &value, diagnostics);
}

/// Keys of a dotted path with their places.
fn path(file: &Arc<SourceFile>, key: &str, diagnostics: &mut Vec<Diagnostic>) -> Option<Vec<(String, Place)>> {
    let mut path = Vec::new();
    let mut start = 0;
    for part in key.split('.') {
        let name = part.trim();
        let place = Place::new(file, start..start + part.len());
        if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-') {
            let message = format!("`{key}` is not a key: names of letters, digits, `_` and `-`, joined by dots");
            diagnostics.push(Diagnostic::error(&place, message).label("not a name"));
            return None;
        }
        path.push((name.to_owned(), place));
        start += part.len() + 1;
    }
    Some(path)
}

/// The TOML value from byte `start` on; a bare word stands for a string.
fn value(file: &Arc<SourceFile>, start: usize, diagnostics: &mut Vec<Diagnostic>) -> Option<Node> {
    let text = file.text().get(start..).unwrap_or_default();
    match parse_value(file, start) {
        Ok(value) => Some(value),
        Err(_) if is_bare_word(text) => {
            let at = Place::new(file, start..file.text().len());
            Some(Node { at, kind: Kind::Text(text.to_owned()) })
        }
        Err(found) => {
            diagnostics.extend(found);
            None
        }
    }
}

fn is_bare_word(text: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-.@/".contains(&byte))
}

/// The target table of `kind`, if it replaces `key`.
fn overriding<'d>(document: &'d mut Node, kind: &str, key: &str) -> Option<&'d mut Node> {
    let target = table_mut(document)?.get_mut("target")?;
    let target = &mut table_mut(&mut target.value)?.get_mut(kind)?.value;
    table_mut(target)?.get(key).is_some().then_some(target)
}

fn table_mut(node: &mut Node) -> Option<&mut Table> {
    match &mut node.kind {
        Kind::Table(table) => Some(table),
        _ => None,
    }
}

fn insert(node: &mut Node, path: &[(String, Place)], value: &Node, diagnostics: &mut Vec<Diagnostic>) {
    let Some(((key, key_at), rest)) = path.split_first() else { return };
    let described = node.kind.described();
    let Some(table) = table_mut(node) else {
        let message = format!("`{key}` cannot be set: what it would stand in is {described}");
        diagnostics.push(Diagnostic::error(key_at, message).label("no table to set it in"));
        return;
    };
    if table.get(key).is_none() {
        let empty = Node { at: key_at.clone(), kind: Kind::Table(Table::default()) };
        table.entries.push(Entry { key: key.clone(), key_at: key_at.clone(), value: empty });
    }
    let Some(entry) = table.get_mut(key) else { return };
    if rest.is_empty() {
        entry.key_at = key_at.clone();
        entry.value = value.clone();
    } else {
        insert(&mut entry.value, rest, value, diagnostics);
    }
}
