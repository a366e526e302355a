//! The details page (`ncu --csv --page details`): a row for each metric of each section, and one for what each rule says.

use super::ReadError;
use super::identity::Identity;
use super::number::{number, reading};
use super::table::{Row, Table, tables};
use crate::model::ncu::{Estimate, KernelNames, LaunchId, NcuReport, Rule, RuleKind, Scope, SectionReading};

/// Every launch of the page with its sections and rules; metrics by their exact names stand on the raw page.
///
/// # Errors
/// There is no table, or one that cannot be trusted.
pub fn read_details(text: &str, names: KernelNames) -> Result<NcuReport, ReadError> {
    let mut report = NcuReport { names, launches: Vec::new() };
    for table in tables(text, Some("Metric Value"))? {
        let columns = Columns::of(&table)?;
        for row in &table.rows {
            let id = columns.identity.launch_id(row)?;
            // Rows of one launch follow one another; those of several processes may carry one number.
            let known = report.launches.iter().rposition(|launch| launch.id == id);
            let index = match known {
                Some(index) if report.launches[index].kernel == columns.identity.kernel(row) => index,
                Some(index) => {
                    let (first, kernel) = (&report.launches[index].kernel, columns.identity.kernel(row));
                    let what = format!("launch {} is of `{first}` and of `{kernel}`", id.number);
                    return Err(ReadError::Malformed { line: row.line, what });
                }
                None => {
                    report.launches.push(columns.identity.launch(row)?);
                    report.launches.len() - 1
                }
            };
            let launch = &mut report.launches[index];
            let field = |at: usize| row.fields[at].as_ref();
            if !field(columns.metric).is_empty() {
                let (section, metric) = (field(columns.section), field(columns.metric).to_owned());
                let reading = reading(field(columns.value), field(columns.unit));
                if section == ASKED_FOR {
                    launch.metrics.insert(metric, reading);
                } else {
                    launch.sections.push(SectionReading { section: section.to_owned(), metric, reading });
                }
            } else if let Some(rule) = columns.rule(row)? {
                launch.rules.push(rule);
            } else {
                let what = "the row holds neither a metric nor a rule".to_owned();
                return Err(ReadError::Malformed { line: row.line, what });
            }
        }
    }
    Ok(report)
}

/// The section under which the page shows metrics that were asked for by name.
const ASKED_FOR: &str = "Command line profiler metrics";

struct Columns {
    identity: Identity,
    section: usize,
    metric: usize,
    unit: usize,
    value: usize,
    /// Absent where rules were not applied, and in older versions.
    rule: Option<RuleColumns>,
}

struct RuleColumns {
    name: usize,
    kind: usize,
    description: usize,
    scope: Option<usize>,
    speedup: Option<usize>,
}

impl Columns {
    fn of(table: &Table<'_>) -> Result<Columns, ReadError> {
        let rule = match table.column("Rule Name") {
            Some(name) => Some(RuleColumns {
                name,
                kind: table.require("Rule Type")?,
                description: table.require("Rule Description")?,
                scope: table.column("Estimated Speedup Type"),
                speedup: table.column("Estimated Speedup"),
            }),
            None => None,
        };
        Ok(Columns {
            identity: Identity::of(table)?,
            section: table.require("Section Name")?,
            metric: table.require("Metric Name")?,
            unit: table.require("Metric Unit")?,
            value: table.require("Metric Value")?,
            rule,
        })
    }

    fn rule(&self, row: &Row<'_>) -> Result<Option<Rule>, ReadError> {
        let Some(columns) = &self.rule else { return Ok(None) };
        let field = |at: usize| row.fields[at].as_ref();
        if field(columns.name).is_empty() {
            return Ok(None);
        }
        let optional = |at: Option<usize>| at.map(field).unwrap_or_default();
        let kind = match field(columns.kind) {
            "OPT" => RuleKind::Optimization,
            "INF" => RuleKind::Information,
            "WRN" => RuleKind::Warning,
            "ERR" => RuleKind::Error,
            other => RuleKind::Other(other.to_owned()),
        };
        Ok(Some(Rule {
            section: field(self.section).to_owned(),
            name: field(columns.name).to_owned(),
            kind,
            description: field(columns.description).to_owned(),
            estimate: estimate(optional(columns.scope), optional(columns.speedup), row.line)?,
        }))
    }
}

/// None where the rule gives none, or one of a scope that is not known and so cannot be ranked.
fn estimate(scope: &str, percent: &str, line: usize) -> Result<Option<Estimate>, ReadError> {
    let scope = match scope {
        "global" => Scope::Global,
        "local" => Scope::Local,
        _ => return Ok(None),
    };
    let valid = number(percent.trim()).filter(|percent| *percent >= 0.0);
    let percent = valid.ok_or_else(|| ReadError::Malformed {
        line,
        what: format!("the estimated speed-up `{percent}` is no unambiguous number from 0 up"),
    })?;
    Ok(Some(Estimate { scope, percent }))
}

/// The launches of the raw page with the sections and rules of the details page of the same report.
///
/// # Errors
/// The two pages are of different reports.
pub fn join(mut raw: NcuReport, details: NcuReport) -> Result<NcuReport, JoinError> {
    for detailed in details.launches {
        let found = raw.launches.iter_mut().find(|launch| launch.id == detailed.id && launch.kernel == detailed.kernel);
        let launch = found.ok_or(JoinError { id: detailed.id, kernel: detailed.kernel })?;
        launch.sections = detailed.sections;
        launch.rules = detailed.rules;
    }
    Ok(raw)
}

/// A launch of the details page that the raw page does not have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "launch {} of `{kernel}` stands on Nsight Compute's details page and not on its raw page: they are of different reports; \
     print both again from one report",
    id.number
)]
pub struct JoinError {
    pub id: LaunchId,
    pub kernel: String,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::quantity::{Reading, Unit};

    const HEADER: &str = "\"ID\",\"Process ID\",\"Kernel Name\",\"Section Name\",\"Metric Name\",\"Metric Unit\",\"Metric Value\",\
\"Rule Name\",\"Rule Type\",\"Rule Description\",\"Estimated Speedup Type\",\"Estimated Speedup\"\n";

    fn page(rows: &[&str]) -> String {
        rows.iter().fold(HEADER.to_owned(), |page, row| page + row + "\n")
    }

    fn read(rows: &[&str]) -> Result<NcuReport, ReadError> {
        read_details(&page(rows), KernelNames::Function)
    }

    #[test]
    fn units_may_change_by_row() {
        let report = read(&[
            r#""0","9","a","Speed","Duration","us","77.12","","","","","""#,
            r#""1","9","b","Speed","Duration","ms","1.14","","","","","""#,
        ])
        .expect("it can be read");
        let durations: Vec<_> =
            report.launches.iter().map(|launch| launch.shown("Duration", Unit::NANOSECOND).map(f64::round)).collect();
        assert_eq!(durations, [Some(77_120.0), Some(1_140_000.0)]);
    }

    #[test]
    fn rules_carry_their_estimates() {
        let report = read(&[
            r#""0","9","a","Occupancy","","","","TheoreticalOccupancy","OPT","limited, by registers","global","8.703""#,
            r#""0","9","a","Occupancy","","","","Other","NEW","text","regional","5""#,
            r#""0","9","a","Occupancy","","","","CPIStall","INF","look","","""#,
        ])
        .expect("it can be read");
        let rules = &report.launches[0].rules;
        assert_eq!(rules[0].estimate, Some(Estimate { scope: Scope::Global, percent: 8.703 }));
        assert_eq!((&rules[0].kind, rules[0].description.as_str()), (&RuleKind::Optimization, "limited, by registers"));
        assert_eq!((&rules[1].kind, rules[1].estimate), (&RuleKind::Other("NEW".to_owned()), None));
        assert_eq!((&rules[2].kind, rules[2].estimate), (&RuleKind::Information, None));
    }

    #[test]
    fn rows_that_say_nothing_clear_are_refused() {
        let empty = r#""0","9","a","Speed","","","","","","","","""#;
        assert_eq!(
            read(&[empty]).expect_err("it is empty").to_string(),
            "line 2: the row holds neither a metric nor a rule"
        );
        let estimate = r#""0","9","a","Speed","","","","R","OPT","d","global","8,7""#;
        assert_eq!(
            read(&[estimate]).expect_err("it is ambiguous").to_string(),
            "line 2: the estimated speed-up `8,7` is no unambiguous number from 0 up"
        );
        let metric = |kernel| format!(r#""0","9","{kernel}","Speed","Duration","us","1","","","","","""#);
        assert_eq!(
            read(&[&metric("a"), &metric("b")]).expect_err("two kernels").to_string(),
            "line 3: launch 0 is of `a` and of `b`"
        );
    }

    #[test]
    fn older_pages_have_no_rules() {
        let text = "\"ID\",\"Kernel Name\",\"Section Name\",\"Metric Name\",\"Metric Unit\",\"Metric Value\"\n\
                    \"0\",\"a\",\"S\",\"M\",\"furlong\",\"1\"\n";
        let report = read_details(text, KernelNames::Function).expect("it can be read");
        assert_eq!(report.launches[0].id.process, None);
        let unknown = Reading::UnknownUnit { text: "1".to_owned(), unit: "furlong".to_owned() };
        assert_eq!(report.launches[0].sections[0].reading, unknown);
    }

    #[test]
    fn pages_of_different_reports_are_not_joined() {
        let details = read(&[r#""3","9","a","Speed","Duration","us","1","","","","","""#]).expect("it can be read");
        let other = NcuReport { names: KernelNames::Function, launches: Vec::new() };
        let error = join(other, details).expect_err("there is no launch 3").to_string();
        assert!(error.starts_with("launch 3 of `a`") && error.contains("print both again"), "{error}");
    }
}
