//! What `nsys profile` says: which files it left, and what went wrong. It exits with 0 although it could not import.

/// What was said.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Log {
    /// The report that it wrote.
    pub report: Option<String>,
    /// The recording that it left, before it is imported.
    pub recording: Option<String>,
    /// Lines that tell of a failure.
    pub problems: Vec<String>,
}

impl Log {
    /// The recording that stayed without a report.
    pub fn unimported(&self) -> Option<&str> {
        if self.report.is_some() { None } else { self.recording.as_deref() }
    }
}

/// Reads what was said; lines of the program's own are passed over.
pub fn read_log(text: &str) -> Log {
    let mut log = Log::default();
    let mut generated = false;
    for line in text.lines().map(str::trim_end) {
        if let Some(path) = line.strip_prefix(['\t', ' ']).filter(|_| generated) {
            let path = path.trim_start();
            if path.ends_with(".nsys-rep") || path.ends_with(".qdrep") {
                log.report = Some(path.to_owned());
            } else if path.ends_with(".qdstrm") {
                log.recording = Some(path.to_owned());
            }
            continue;
        }
        generated = line == "Generated:";
        let lower = line.to_ascii_lowercase();
        let tells = ["importer", "error", "no reports", "failed"].iter().any(|word| lower.contains(word));
        if tells && !line.contains("Processing events") {
            log.problems.push(line.trim_start().to_owned());
        }
    }
    log
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_follows_generated_is_a_file() {
        let log =
            read_log("\t/tmp/a.nsys-rep\nGenerated:\n    /tmp/b.nsys-rep\n\t/tmp/c.sqlite\ndone\n\t/tmp/d.nsys-rep\n");
        assert_eq!((log.report.as_deref(), log.recording), (Some("/tmp/b.nsys-rep"), None));
        assert_eq!(read_log("").report, None);
    }

    #[test]
    fn a_recording_that_became_a_report_is_imported() {
        let both = read_log("Generated:\n\t/tmp/a.qdstrm\n\t/tmp/a.nsys-rep\n");
        assert_eq!(both.unimported(), None);
        assert_eq!(read_log("Generated:\n\t/tmp/a.qdstrm\n").unimported(), Some("/tmp/a.qdstrm"));
    }
}
