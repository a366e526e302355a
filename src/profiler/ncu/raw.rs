//! The raw page (`ncu --csv --page raw`): one row a launch, one column a metric, units in the row below the header.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use super::ReadError;
use super::identity::Identity;
use super::number::reading;
use super::table::{Row, Table, tables};
use crate::model::ncu::{KernelNames, NcuReport};
use crate::model::quantity::Reading;

/// Every launch of the page, in its order.
///
/// # Errors
/// There is no table, or one that cannot be trusted.
pub fn read_raw(text: &str, names: KernelNames) -> Result<NcuReport, ReadError> {
    let mut launches = Vec::new();
    for table in tables(text, None)? {
        let identity = Identity::of(&table)?;
        let Some((units, rows)) = table.rows.split_first() else { continue };
        let number = table.require("ID")?;
        if !units.fields[number].is_empty() {
            let what = "the row of units is missing below the header".to_owned();
            return Err(ReadError::Malformed { line: units.line, what });
        }
        let metrics = metric_columns(&table);
        for row in rows {
            let mut launch = identity.launch(row)?;
            launch.metrics = readings(&table, &metrics, units, row);
            launches.push(launch);
        }
    }
    Ok(NcuReport { names, launches })
}

fn metric_columns(table: &Table<'_>) -> Vec<usize> {
    let columns = table.columns.iter().enumerate();
    columns.filter(|(_, name)| !name.is_empty() && !Identity::describes(name)).map(|(index, _)| index).collect()
}

/// The readings of a row by name. A name that stands twice with different values has none.
fn readings(table: &Table<'_>, columns: &[usize], units: &Row<'_>, row: &Row<'_>) -> BTreeMap<String, Reading> {
    let mut found = BTreeMap::new();
    for &column in columns {
        let new = reading(&row.fields[column], &units.fields[column]);
        match found.entry(table.columns[column].clone().into_owned()) {
            Entry::Vacant(entry) => drop(entry.insert(new)),
            Entry::Occupied(mut entry) if *entry.get() != new => {
                let reason = format!("it stands twice in the table: {} and {new}", entry.get());
                entry.insert(Reading::Absent { reason });
            }
            Entry::Occupied(_) => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ncu::LaunchId;
    use crate::model::quantity::Unit;

    const PAGE: &str = "\
\"ID\",\"Process ID\",\"Kernel Name\",\"gpu__time_duration.sum\",\"x.sum\",\"x.sum\",\"Memory Throughput\",\"Memory Throughput\"
\"\",\"\",\"\",\"us\",\"\",\"\",\"%\",\"Gbyte/s\"
\"0\",\"11\",\"gemm\",\"1,234.50\",\"3\",\"3\",\"46.5\",\"27\"
\"0\",\"12\",\"gemm_v2\",\"n/a\",\"3\",\"4\",\"46.5\",\"27\"
";

    fn read(text: &str) -> Result<NcuReport, ReadError> {
        read_raw(text, KernelNames::Function)
    }

    #[test]
    fn launches_of_several_processes_are_told_apart() {
        let report = read(PAGE).expect("it can be read");
        let ids: Vec<_> = report.launches.iter().map(|launch| launch.id).collect();
        assert_eq!(ids, [11, 12].map(|process| LaunchId { process: Some(process), number: 0 }));
    }

    #[test]
    fn a_doubled_name_has_a_value_only_where_both_agree() {
        let report = read(PAGE).expect("it can be read");
        let [first, second] = &report.launches[..] else { panic!("there are two launches") };
        assert_eq!(first.metrics["gpu__time_duration.sum"].in_unit(Unit::NANOSECOND), Some(1_234_500.0));
        assert_eq!(first.metrics["x.sum"].in_unit(Unit::ONE), Some(3.0));
        let twice = |text: &str| Reading::Absent { reason: format!("it stands twice in the table: {text}") };
        assert_eq!(first.metrics["Memory Throughput"], twice("46.5% and 27000000000 byte/s"));
        assert_eq!(second.metrics["x.sum"], twice("3 and 4"));
        assert_eq!(second.metrics["gpu__time_duration.sum"], Reading::Absent { reason: "n/a".to_owned() });
    }

    #[test]
    fn a_page_without_units_is_refused() {
        let cut: String =
            PAGE.lines().enumerate().filter(|(index, _)| *index != 1).map(|(_, line)| format!("{line}\n")).collect();
        let error = read(&cut).expect_err("numbers without units").to_string();
        assert_eq!(error, "line 2: the row of units is missing below the header");
    }

    #[test]
    fn columns_that_are_needed_are_named_and_others_are_not_needed() {
        let error = read(&PAGE.replace("Kernel Name", "Kernel")).expect_err("no kernels").to_string();
        assert!(error.contains("no column `Kernel Name`"), "{error}");
        let older = read(&PAGE.replace("\"Process ID\"", "\"Kernel Time\"")).expect("other columns may be absent");
        assert!(older.launches.iter().all(|launch| launch.id.process.is_none()));
        assert!(!older.launches[0].metrics.contains_key("Kernel Time"));
    }

    #[test]
    fn a_launch_without_number_or_name_is_refused_by_row() {
        let error = read(&PAGE.replace("\"gemm_v2\"", "\"\"")).expect_err("no name").to_string();
        assert_eq!(error, "line 4: the row names no kernel");
        let error = read(&PAGE.replace("\"12\"", "\"1,2\"")).expect_err("no process").to_string();
        assert_eq!(error, "line 4: `1,2` is no process ID");
    }
}
