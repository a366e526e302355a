//! The columns of a page that say which launch a row is about.

use super::ReadError;
use super::number::integer;
use super::table::{Row, Table};
use crate::model::ncu::{Launch, LaunchId};

/// Columns that describe a launch and are no metrics; versions differ in which of them they print.
const NAMES: [&str; 12] = [
    "ID",
    "Process ID",
    "Process Name",
    "Host Name",
    "Kernel Name",
    "Kernel Time",
    "Context",
    "Stream",
    "Block Size",
    "Grid Size",
    "Device",
    "CC",
];

/// Where the columns stand; the launch's number and its kernel are always there.
pub struct Identity {
    number: usize,
    kernel: usize,
    process: Option<usize>,
    context: Option<usize>,
    stream: Option<usize>,
    block: Option<usize>,
    grid: Option<usize>,
    device: Option<usize>,
    capability: Option<usize>,
}

impl Identity {
    /// # Errors
    /// A column that cannot be done without is missing.
    pub fn of(table: &Table<'_>) -> Result<Identity, ReadError> {
        Ok(Identity {
            number: table.require("ID")?,
            kernel: table.require("Kernel Name")?,
            process: table.column("Process ID"),
            context: table.column("Context"),
            stream: table.column("Stream"),
            block: table.column("Block Size"),
            grid: table.column("Grid Size"),
            device: table.column("Device"),
            capability: table.column("CC"),
        })
    }

    /// Whether the column of this name describes the launch: one of those above, or a range of NVTX.
    pub fn describes(column: &str) -> bool {
        NAMES.contains(&column) || column.contains("Push/Pop_Range") || column.contains("Start/Stop_Range")
    }

    /// # Errors
    /// The row has no number or no kernel.
    pub fn launch_id(&self, row: &Row<'_>) -> Result<LaunchId, ReadError> {
        let wrong = |what: &str, at: usize| {
            let what = format!("`{}` is no {what}", row.fields[at]);
            ReadError::Malformed { line: row.line, what }
        };
        let number = integer(&row.fields[self.number]).ok_or_else(|| wrong("number of a launch", self.number))?;
        let process = match self.process {
            Some(at) => Some(integer(&row.fields[at]).ok_or_else(|| wrong("process ID", at))?),
            None => None,
        };
        Ok(LaunchId { process, number })
    }

    /// The launch that a row is about, without metrics.
    ///
    /// # Errors
    /// The row has no number or no kernel.
    pub fn launch(&self, row: &Row<'_>) -> Result<Launch, ReadError> {
        let kernel = row.fields[self.kernel].as_ref();
        if kernel.is_empty() {
            return Err(ReadError::Malformed { line: row.line, what: "the row names no kernel".to_owned() });
        }
        let field = |at: Option<usize>| at.map(|at| row.fields[at].as_ref());
        let number = |at: Option<usize>| field(at).and_then(integer);
        Ok(Launch {
            id: self.launch_id(row)?,
            kernel: kernel.to_owned(),
            grid: field(self.grid).and_then(dimensions),
            block: field(self.block).and_then(dimensions),
            device: number(self.device).and_then(|device| u32::try_from(device).ok()),
            context: number(self.context),
            stream: number(self.stream),
            capability: field(self.capability).and_then(|text| text.parse().ok()),
            metrics: Default::default(),
            sections: Vec::new(),
            rules: Vec::new(),
        })
    }

    /// The kernel's name.
    pub fn kernel<'r>(&self, row: &'r Row<'_>) -> &'r str {
        &row.fields[self.kernel]
    }
}

/// `(256, 1, 1)`.
fn dimensions(text: &str) -> Option<[u32; 3]> {
    let inner = text.trim().strip_prefix('(')?.strip_suffix(')')?;
    let mut numbers = inner.split(", ").map(|number| integer(number).and_then(|number| u32::try_from(number).ok()));
    let found = [numbers.next()??, numbers.next()??, numbers.next()??];
    numbers.next().is_none().then_some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dimensions_are_three_numbers() {
        assert_eq!(dimensions("(4096, 2, 1)"), Some([4096, 2, 1]));
        assert_eq!(dimensions("(4,096, 2, 1)"), Some([4096, 2, 1]));
        for text in ["(1, 1)", "(1, 1, 1, 1)", "1, 1, 1", "(a, 1, 1)", "(-1, 1, 1)", "", "(4294967296, 1, 1)"] {
            assert_eq!(dimensions(text), None, "{text}");
        }
    }

    #[test]
    fn ranges_of_nvtx_are_no_metrics() {
        assert!(Identity::describes("Kernel Time"));
        assert!(Identity::describes("Id:Domain:Start/Stop_Range:PL_Type:PL_Value:CLR_Type:Color:Msg_Type:Msg"));
        assert!(!Identity::describes("gpu__time_duration.sum"));
    }
}
