//! The source pages (`ncu --csv --page source`): a listing a kernel, and with `cuda,sass` one a kernel and file. Every field is
//! quoted, and quotes in the source are printed as they are: a row is taken apart from both ends.

use super::ReadError;
use super::number::{integer, number};
use crate::model::source_view::{Cell, SourceRow, SourceView};

/// Every listing of the page, in its order.
///
/// # Errors
/// There is no listing, or a row that its header does not fit.
pub fn read_source(text: &str) -> Result<Vec<SourceView>, ReadError> {
    let mut views: Vec<SourceView> = Vec::new();
    let (mut function, mut file, mut layout) = (None, None, None);
    let mut ended = 0;
    for (index, content) in text.split_inclusive('\n').enumerate() {
        let line = index + 1;
        ended += content.len();
        let content = content.trim_end_matches(['\n', '\r']);
        let Some(row) = content.strip_prefix('"') else { continue };
        // The kernel's own row ends with a comma.
        let Some(row) = row.strip_suffix("\",").or_else(|| row.strip_suffix('"')) else {
            let truncated = ended == text.len();
            if truncated && layout.is_some() {
                return Err(ReadError::Truncated { line });
            }
            continue;
        };
        let fields: Vec<&str> = row.split("\",\"").collect();
        match fields[..] {
            ["Kernel Name" | "Function Name", name] => function = Some(name.to_owned()),
            ["File Path", path] => file = Some(path.to_owned()),
            ["Address" | "Line No", "Source", ..] => {
                let new = Layout::of(&fields);
                let columns = fields[new.cells..].iter().map(|&name| name.to_owned()).collect();
                views.push(SourceView { function: function.clone(), file: file.take(), columns, rows: Vec::new() });
                layout = Some(new);
            }
            _ => match (&layout, views.last_mut()) {
                (Some(layout), Some(view)) => view.rows.push(layout.row(&fields, line, ended == text.len())?),
                _ => continue,
            },
        }
    }
    if views.is_empty() { Err(ReadError::NoTable) } else { Ok(views) }
}

/// Where things stand in the rows below a header.
struct Layout {
    fields: usize,
    /// Lines of source come first, instructions below theirs.
    lines: bool,
    /// The second column of sources, that of the instructions below a line.
    both: bool,
    /// The first column of counts.
    cells: usize,
}

impl Layout {
    fn of(header: &[&str]) -> Layout {
        let lines = header[0] == "Line No";
        let both = lines && header.get(2..4) == Some(&["Address", "Source"]);
        Layout { fields: header.len(), lines, both, cells: if both { 4 } else { 2 } }
    }

    fn row(&self, fields: &[&str], line: usize, last: bool) -> Result<SourceRow, ReadError> {
        let Some(surplus) = fields.len().checked_sub(self.fields) else {
            let (found, wanted) = (fields.len(), self.fields);
            let what = format!("the row has {found} fields and its header {wanted}");
            return Err(if last { ReadError::Truncated { line } } else { ReadError::Malformed { line, what } });
        };
        // Quotes and commas of the source itself look like borders of fields, and they all stand in the first source.
        let source = fields[1..=1 + surplus].join("\",\"");
        let at = |column: usize| fields[column + surplus];
        let wrong = |what: &str| ReadError::Malformed { line, what: format!("`{}` is no {what}", fields[0]) };
        let (number, address, text) = if !self.lines {
            (None, Some(address(fields[0]).ok_or_else(|| wrong("address"))?), source.trim().to_owned())
        } else if self.both && [fields[0], at(2), at(3)] == ["", GAP, GAP] {
            (None, None, GAP.to_owned())
        } else if self.both && fields[0].is_empty() {
            (None, Some(address(at(2)).ok_or_else(|| wrong("row of an instruction"))?), at(3).trim().to_owned())
        } else if self.both && [at(2), at(3)] != ["-", "-"] {
            return Err(wrong("line of source alone"));
        } else {
            let number = integer(fields[0]).and_then(|number| u32::try_from(number).ok());
            (Some(number.ok_or_else(|| wrong("number of a line"))?), None, source)
        };
        let cells = fields[self.cells + surplus..].iter().map(|text| cell(text)).collect();
        Ok(SourceRow { line: number, address, text, cells })
    }
}

/// Stands where instructions of other lines lie between.
const GAP: &str = "...";

fn address(text: &str) -> Option<u64> {
    u64::from_str_radix(text.strip_prefix("0x")?, 16).ok()
}

fn cell(text: &str) -> Cell {
    match (text, number(text)) {
        (_, Some(number)) => Cell::Number(number),
        ("" | "-" | "n/a" | "nan" | "-nan", None) => Cell::Absent(()),
        (text, None) => Cell::Text(text.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const BOTH: &str = "\
\"File Path\",\"/src/a.cu\"
\"Function Name\",\"f<(int)3>\"
\"Line No\",\"Source\",\"Address\",\"Source\",\"# Samples\",\"Address Space\"
\"4\",\"extern \"C\" void f(printf(\"a\",\"b\"))\",\"-\",\"-\",\"1,020\",\"-\"
\"\",\"\",\"0x7f00\",\"      LDG.E R1, [R2]\",\"20\",\"Global\"
";

    #[test]
    fn quotes_of_the_source_are_kept() {
        let views = read_source(BOTH).expect("it can be read");
        let [view] = &views[..] else { panic!("there is one listing") };
        assert_eq!((view.function.as_deref(), view.file.as_deref()), (Some("f<(int)3>"), Some("/src/a.cu")));
        assert_eq!(view.columns, ["# Samples", "Address Space"]);
        let [line, instruction] = &view.rows[..] else { panic!("there are two rows") };
        assert_eq!((line.line, line.text.as_str()), (Some(4), "extern \"C\" void f(printf(\"a\",\"b\"))"));
        assert_eq!(line.cells, [Cell::Number(1020.0), Cell::Absent(())]);
        assert_eq!((instruction.address, instruction.text.as_str()), (Some(0x7f00), "LDG.E R1, [R2]"));
        assert_eq!(instruction.cells, [Cell::Number(20.0), Cell::Text("Global".to_owned())]);
    }

    #[test]
    fn a_cut_listing_is_noticed() {
        let whole = BOTH.trim_end();
        let last = whole.rfind('\n').expect("there are lines") + 1;
        for end in last + 1..whole.len() {
            assert_eq!(read_source(&whole[..end]), Err(ReadError::Truncated { line: 5 }), "{}", &whole[last..end]);
        }
        let error = read_source(&BOTH.replace("\"1,020\",", "")).expect_err("a field is missing").to_string();
        assert_eq!(error, "line 4: `4` is no line of source alone");
        let error = read_source(&BOTH.replace("\"0x7f00\",", "")).expect_err("a field is missing").to_string();
        assert_eq!(
            error,
            "line 5: Nsight Compute's output ends in the middle of a row; profile again, with room on the disk"
        );
    }

    #[test]
    fn what_is_no_listing_is_none() {
        assert_eq!(read_source("\"quoted\"\n\"Kernel Name\",\"a\",\n"), Err(ReadError::NoTable));
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "(\"Address\",\"Source\",\"n\"\n)?([\"\\n\\r,0-9axé]{0,6}){0,12}") {
            drop(read_source(&text));
        }
    }
}
