//! The table in the output of `ncu --csv`, found among what else is printed. Every field is quoted. Programs print before and
//! after the table, and through it.

use std::borrow::Cow;

use super::ReadError;

/// A header and the rows below it.
#[derive(Debug, PartialEq)]
pub struct Table<'t> {
    /// Line of the header.
    pub line: usize,
    pub columns: Vec<Cow<'t, str>>,
    pub rows: Vec<Row<'t>>,
}

impl Table<'_> {
    /// Where the column of exactly this name stands first.
    pub fn column(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|column| column == name)
    }

    /// The same, for a column that cannot be done without.
    pub fn require(&self, column: &'static str) -> Result<usize, ReadError> {
        self.column(column).ok_or(ReadError::MissingColumn { line: self.line, column })
    }
}

/// One row, with as many fields as its header.
#[derive(Debug, PartialEq)]
pub struct Row<'t> {
    pub line: usize,
    pub fields: Vec<Cow<'t, str>>,
}

/// Every table in `text`: a header is a line that starts with `"ID"`, a row one whose first field is a number or empty.
/// All other lines belong to somebody else. A section may print a table of its own between the rows, under a header of names of
/// another number; its rows are left out. Rows may end with a comma behind the column `end`; what is missing then is empty.
///
/// # Errors
/// There is no table, or a row that its header does not fit.
pub fn tables<'t>(text: &'t str, end: Option<&str>) -> Result<Vec<Table<'t>>, ReadError> {
    let mut tables: Vec<Table<'_>> = Vec::new();
    let (mut at, mut line) = (0, 1);
    let mut inner = None;
    while at < text.len() {
        let rest = &text[at..];
        let header = rest.starts_with("\"ID\",");
        let mut length = rest.find('\n').map_or(rest.len(), |newline| newline + 1);
        if header || (!tables.is_empty() && starts_row(rest)) {
            let (mut fields, length_of_record) = record(rest).ok_or(ReadError::Truncated { line })?;
            length = length_of_record;
            match tables.last_mut() {
                _ if header => tables.push(Table { line, columns: fields, rows: Vec::new() }),
                Some(table) => {
                    let (found, wanted) = (fields.len(), table.columns.len());
                    let ended = end.and_then(|end| table.column(end)).is_some_and(|end| found == end + 2);
                    if ended && fields.last().is_some_and(|last| last.is_empty()) {
                        fields.resize(wanted, Cow::Borrowed(""));
                    } else if found != wanted && inner == Some(found) {
                        (line, at) = (line + lines(rest, length), at + length);
                        continue;
                    } else if found != wanted {
                        return Err(misfit(found, wanted, &rest[length..], line));
                    }
                    table.rows.push(Row { line, fields });
                }
                None => {}
            }
            inner = None;
        } else if rest.starts_with('"') {
            inner = record(rest).filter(|(_, ended)| *ended == length).map(|(names, _)| names.len());
        }
        (line, at) = (line + lines(rest, length), at + length);
    }
    if tables.is_empty() { Err(ReadError::NoTable) } else { Ok(tables) }
}

/// Line breaks in the first `length` bytes of `text`.
fn lines(text: &str, length: usize) -> usize {
    text.as_bytes()[..length].iter().filter(|&&byte| byte == b'\n').count()
}

/// A row of another length than its header: cut off where the text ends with it, and wrong anywhere else.
fn misfit(found: usize, wanted: usize, rest: &str, line: usize) -> ReadError {
    if found < wanted && rest.is_empty() {
        return ReadError::Truncated { line };
    }
    ReadError::Malformed { line, what: format!("the row has {found} fields and its header {wanted}") }
}

/// Whether a row begins here, whole or cut off.
fn starts_row(text: &str) -> bool {
    let Some(quoted) = text.strip_prefix('"') else { return false };
    let after = quoted.trim_start_matches(|character: char| character.is_ascii_digit());
    after.is_empty() || after == "\"" || after.starts_with("\",")
}

/// The fields of the record that `text` starts with, and where it ends, its line break included. A quote inside a field is
/// doubled, or stands for itself where neither a comma nor the end of the line follows. `None` where a field does not end.
fn record(text: &str) -> Option<(Vec<Cow<'_, str>>, usize)> {
    let bytes = text.as_bytes();
    let (mut fields, mut at) = (Vec::new(), 0);
    loop {
        let (field, end) = field(text, at)?;
        fields.push(field);
        match bytes.get(end) {
            Some(b',') => at = end + 1,
            Some(b'\r') => return Some((fields, end + 1 + usize::from(bytes.get(end + 1) == Some(&b'\n')))),
            Some(_) => return Some((fields, end + 1)),
            None => return Some((fields, end)),
        }
    }
}

/// The field that starts at `at`, and where what follows it stands: a comma, a line break or the end.
fn field(text: &str, at: usize) -> Option<(Cow<'_, str>, usize)> {
    let bytes = text.as_bytes();
    let ends = |index: usize| matches!(bytes.get(index), None | Some(b',' | b'\n' | b'\r'));
    if bytes.get(at) != Some(&b'"') {
        // Unquoted: up to the comma or the end of the line. At the end of the text, it may go on.
        let end = (at..bytes.len()).find(|&index| ends(index))?;
        return Some((Cow::Borrowed(&text[at..end]), end));
    }
    let (start, mut index, mut doubled) = (at + 1, at + 1, false);
    loop {
        index += bytes.get(index..)?.iter().position(|&byte| byte == b'"')?;
        if bytes.get(index + 1) == Some(&b'"') {
            doubled = true;
            index += 2;
        } else if ends(index + 1) {
            let inner = &text[start..index];
            let field = if doubled { Cow::Owned(inner.replace("\"\"", "\"")) } else { Cow::Borrowed(inner) };
            return Some((field, index + 1));
        } else {
            index += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn rows(text: &str) -> Result<Vec<Vec<String>>, ReadError> {
        let rows = tables(text, None)?.into_iter().flat_map(|table| table.rows);
        Ok(rows.map(|row| row.fields.into_iter().map(Cow::into_owned).collect()).collect())
    }

    #[test]
    fn a_table_within_the_table_is_left_out() {
        let text = "\"ID\",\"a\",\"b\"\n\"0\",\"1\",\"2\"\n    No links.\n\n\"GPU ID\",\"Name\"\n\"0\",\"H200\"\n\"1\",\"H200\"\n\
                    \"0\",\"3\",\"4\"\n";
        let found = super::tables(text, None).expect("it can be read");
        let rows: Vec<_> = found[0].rows.iter().map(|row| (row.line, row.fields[1].as_ref())).collect();
        assert_eq!(rows, [(2, "1"), (8, "3")]);
        let lone = text.replace("\"GPU ID\",\"Name\"\n", "");
        let error = super::tables(&lone, None).expect_err("nothing announces the short rows").to_string();
        assert!(error.starts_with("line 5: the row has 2 fields and its header 3"), "{error}");
    }

    #[test]
    fn the_table_is_found_among_other_output() {
        let text = "==PROF== Connected\nID,b\n\"quoted\",\"b\"\n\"ID\",\"b\"\n\"\",\"%\"\n\"0\",\"x\"\nsaid in between\n\"so\" it said\n\"1\",\"y\"\n\nreal 0m2\n";
        assert_eq!(
            rows(text),
            Ok(vec![vec!["".into(), "%".into()], vec!["0".into(), "x".into()], vec!["1".into(), "y".into()]])
        );
        assert_eq!(rows("done\n"), Err(ReadError::NoTable));
        assert_eq!(rows(""), Err(ReadError::NoTable));
    }

    #[test]
    fn names_keep_commas_quotes_and_line_breaks() {
        let text = "\"ID\",\"Kernel Name\",\"c\"\r\n\"0\",\"void f<(int)3, a=b>(float*, int)\",\"\"\r\n\"1\",\"a \"\"b\"\" c\",\"\"\"\"\r\n\"2\",\"a \"b\" c\",\"x\ny\"\r\n";
        let found = rows(text).expect("it can be read");
        assert_eq!(found[0], ["0", "void f<(int)3, a=b>(float*, int)", ""]);
        assert_eq!(found[1], ["1", "a \"b\" c", "\""]);
        assert_eq!(found[2], ["2", "a \"b\" c", "x\ny"]);
    }

    #[test]
    fn a_row_of_another_length_is_refused_by_its_line() {
        let text = "said\n\"ID\",\"b\"\n\"0\",\"x\",\"y\"\n\"1\",\"x\"\n";
        let what = "the row has 3 fields and its header 2".to_owned();
        assert_eq!(rows(text), Err(ReadError::Malformed { line: 3, what }));
    }

    /// Wherever the text is cut inside a row, the rest is not taken for a whole table.
    #[test]
    fn a_cut_row_is_noticed_wherever_it_is_cut() {
        let whole = "\"ID\",\"name\",\"c\"\n\"0\",\"x\",\"y\"\n\"1\",\"z\",\"w\"";
        let last = whole.rfind('\n').expect("there is one") + 1;
        for end in last + 1..whole.len() {
            assert_eq!(rows(&whole[..end]), Err(ReadError::Truncated { line: 3 }), "{}", &whole[last..end]);
        }
        assert_eq!(rows(whole).map(|rows| rows.len()), Ok(2));
    }

    #[test]
    fn a_row_may_end_early_where_its_page_does_so() {
        let text = "\"ID\",\"value\",\"rule\",\"c\"\n\"0\",\"x\",\n\"1\",\"\",\"y\",\"z\"\n";
        let found = tables(text, Some("value")).expect("it can be read");
        assert_eq!(found[0].rows[0].fields, ["0", "x", "", ""]);
        assert!(matches!(tables(text, None), Err(ReadError::Malformed { line: 2, .. })));
        let short = tables("\"ID\",\"value\",\"rule\"\n\"0\",\"x\"\n\"1\",\"x\",\n", Some("value"));
        assert!(matches!(short, Err(ReadError::Malformed { line: 2, .. })), "without its comma it is cut off");
    }

    #[test]
    fn a_second_table_has_its_own_columns() {
        let tables = tables("\"ID\",\"a\"\n\"0\",\"x\"\n\"ID\",\"a\",\"b\"\n\"1\",\"y\",\"z\"\n", None)
            .expect("both can be read");
        assert_eq!(
            tables.iter().map(|table| (table.columns.len(), table.rows.len())).collect::<Vec<_>>(),
            [(2, 1), (3, 1)]
        );
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "(\"ID\",\"a\"\n)?([\"\\n\\r,0-9aé]{0,6}){0,12}") {
            drop(tables(&text, Some("a")));
        }

        #[test]
        fn what_is_quoted_is_read_back(names in prop::collection::vec("[a-z\",=<>() \\n]{0,8}", 1..5)) {
            let mut text = "\"ID\",\"name\"\n".to_owned();
            for (number, name) in names.iter().enumerate() {
                text.push_str(&format!("\"{number}\",\"{}\"\n", name.replace('"', "\"\"")));
            }
            let read: Vec<String> = rows(&text).expect("it is well formed").into_iter().map(|mut row| row.remove(1)).collect();
            prop_assert_eq!(read, names);
        }
    }
}
