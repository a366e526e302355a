//! Reports of ncu mode: what `report.md` says beside the profile's own sections, and the files beside it. Pure; names of files come
//! from names of stages.

use std::path::PathBuf;

use serde::Serialize;

use super::ReportError;
use super::advice;
use super::analysis::{Analysis, Part};
use super::counters::tool;
use super::listing::{HotLine, annotated, hot_lines, listing_csv};
use super::numbers::{ABSENT, cell, counted, fixed, percent, percent_of, three_digits};
use super::opportunities::{Opportunity, Trigger};
use super::verbose;
use crate::conf::Thresholds;
use crate::model::Mode;
use crate::model::quantity::{Reading, Unit};
use crate::model::record::{AnnotationPass, NcuRun, StageMeasurement};
use crate::model::source_view::{Form, SourceView};

/// Hot lines of a stage that report.md shows, and that a listing begins with.
const HOT_LINES: usize = 5;
const HOT_LINES_OF_LISTING: usize = 20;

/// What report.md shows in ncu mode alone.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct NcuView {
    pub tool: String,
    /// A sentence or more for each stage.
    pub diagnosis: Vec<String>,
    pub hot: Vec<HotRow>,
    pub advice: Vec<AdviceGroup>,
    pub replay: Vec<ReplayRow>,
    /// Name of the tool's own report, beside report.md.
    pub report: Option<String>,
    /// Names of the other files.
    pub files: String,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct HotRow {
    pub stage: String,
    pub samples: String,
    pub share: String,
    pub place: String,
    pub text: String,
    pub stalls: String,
}

/// Rules whose estimates are about one and the same thing.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct AdviceGroup {
    pub title: &'static str,
    pub rows: Vec<AdviceRow>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct AdviceRow {
    pub stage: String,
    pub rule: String,
    pub estimate: String,
    /// A metric and its value; none where the text says them.
    pub trigger: Option<String>,
    pub text: String,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct ReplayRow {
    pub stage: String,
    pub passes: String,
    pub saved_mb: String,
}

/// The view of a run in ncu mode; `None` for other runs.
pub(super) fn view(analysis: &Analysis<'_>, thresholds: &Thresholds) -> Option<NcuView> {
    let (pass, run) = of_mode(analysis)?;
    let rules = advice::rules(analysis)?;
    let stages = || pass.stages.iter().enumerate();
    Some(NcuView {
        tool: tool(run),
        diagnosis: analysis.stages.iter().map(|part| diagnosis(part, thresholds)).collect(),
        hot: stages()
            .flat_map(|(index, stage)| {
                let lines = hot_lines(&listings(pass, run, index), HOT_LINES);
                lines.into_iter().map(|line| hot_row(&stage.stage, &line)).collect::<Vec<_>>()
            })
            .collect(),
        advice: [
            ("Of run time, the largest for the pipeline first", &rules.global),
            ("Without an estimate", &rules.unestimated),
            ("Local: of one unit's efficiency, which says nothing about run time", &rules.local),
        ]
        .into_iter()
        .filter(|(_, rules)| !rules.is_empty())
        .map(|(title, rules)| AdviceGroup { title, rows: rules.iter().map(advice_row).collect() })
        .collect(),
        replay: stages().filter_map(|(_, stage)| replay_row(stage)).collect(),
        report: run.report.as_ref().map(|report| cell(&report.name).replace('`', "'")),
        files: file_names(pass, run)
            .into_iter()
            .map(|(path, _)| cell(&path.to_string_lossy()))
            .collect::<Vec<_>>()
            .join(", "),
    })
}

/// Every file beside report.md, by its path relative to it: none outside of ncu mode.
///
/// # Errors
/// A row of a listing has another number of cells than the listing has columns.
pub(super) fn files(analysis: &Analysis<'_>) -> Result<Vec<(PathBuf, String)>, ReportError> {
    let Some((pass, run)) = of_mode(analysis) else { return Ok(Vec::new()) };
    let file = |(path, content): (PathBuf, Content<'_>)| {
        let text = match content {
            Content::Verbose => verbose::text(analysis, pass, run),
            Content::Source { stage, views } => source_text(stage, &views),
            Content::Sass { stage, view } => {
                listing_csv(view).map_err(|source| ReportError::Listing { stage: stage.stage.clone(), source })?
            }
        };
        Ok((path, text))
    };
    file_names(pass, run).into_iter().map(file).collect()
}

/// What stands in a file.
enum Content<'a> {
    Verbose,
    Source { stage: &'a StageMeasurement, views: Vec<&'a SourceView> },
    Sass { stage: &'a StageMeasurement, view: &'a SourceView },
}

fn of_mode<'a>(analysis: &'a Analysis<'_>) -> Option<(&'a AnnotationPass, &'a NcuRun)> {
    analysis.nsight().filter(|_| analysis.run.mode == Mode::Ncu)
}

fn file_names<'a>(pass: &'a AnnotationPass, run: &'a NcuRun) -> Vec<(PathBuf, Content<'a>)> {
    let mut files = vec![(PathBuf::from("report-verbose.md"), Content::Verbose)];
    for (index, stage) in pass.stages.iter().enumerate() {
        let name = file_name(&stage.stage, index);
        let views = listings(pass, run, index);
        let sass = views.iter().copied().filter(|view| view.form() == Form::Sass);
        let sass: Vec<_> = sass
            .enumerate()
            .map(|(number, view)| {
                let suffix = if number == 0 { String::new() } else { format!("-{}", number + 1) };
                (["sass", &format!("{name}{suffix}.csv")].iter().collect(), Content::Sass { stage, view })
            })
            .collect();
        if !views.is_empty() {
            let path = ["source", &format!("{name}.txt")].iter().collect();
            files.push((path, Content::Source { stage, views }));
        }
        files.extend(sass);
    }
    files
}

/// A stage's name as a file's; records may come from elsewhere.
fn file_name(stage: &str, index: usize) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    match !stage.is_empty() && stage.bytes().all(plain) {
        true => stage.to_owned(),
        false => format!("stage-{index}"),
    }
}

/// The listings of the stage at `index`, by line and of machine code. The tool lists kernels in the order of their launches: of two
/// stages that launch one kernel, each has its own. Where there are other listings than launches, as another subject launched
/// the kernel too, all of them are the stage's.
fn listings<'a>(pass: &AnnotationPass, run: &'a NcuRun, index: usize) -> Vec<&'a SourceView> {
    let kernel = |stage: &StageMeasurement| stage.launch.as_ref().map(|launch| launch.kernel.clone());
    let Some(own) = kernel(&pass.stages[index]) else { return Vec::new() };
    let is_own = |stage: &&StageMeasurement| kernel(stage).as_ref() == Some(&own);
    let launches = pass.stages.iter().filter(is_own).count();
    let place = pass.stages[..index].iter().filter(is_own).count();
    let views: Vec<&SourceView> = run.sources.iter().filter(|view| view.function.as_ref() == Some(&own)).collect();
    let alike = |view: &SourceView, other: &SourceView| view.file == other.file && view.form() == other.form();
    let kept = |(at, view): (usize, &&'a SourceView)| {
        let all = views.iter().filter(|other| alike(view, other)).count();
        let before = views[..at].iter().filter(|other| alike(view, other)).count();
        (all != launches || before == place).then_some(*view)
    };
    views.iter().enumerate().filter_map(kept).collect()
}

/// The hot lines, and below them every line of every file.
fn source_text(stage: &StageMeasurement, views: &[&SourceView]) -> String {
    let hot = hot_lines(views, HOT_LINES_OF_LISTING);
    let mut text = format!("Hot lines of stage {}\n\n", crate::diagnostic::plain(&stage.stage));
    if hot.is_empty() {
        text.push_str("no samples were taken\n");
    }
    for line in &hot {
        let share = percent_of(Some(line.share));
        let (samples, place) = (fixed(Some(line.samples), 0), place(line));
        text.push_str(&format!("{samples:>9} {share:>6} {place:>30}  {}    <- {}\n", line.text, stalls(line)));
    }
    let lines: Vec<&SourceView> = views.iter().copied().filter(|view| view.form() == Form::Lines).collect();
    text.push('\n');
    text.push_str(&annotated(if lines.is_empty() { views } else { &lines }));
    text
}

/// File and line, or address of an instruction; files without their folders.
fn place(line: &HotLine) -> String {
    let file = line.file.as_deref().map(|file| file.rsplit('/').next().unwrap_or(file)).unwrap_or_default();
    match (line.line, line.address) {
        (Some(number), _) => format!("{file}:{number}"),
        (None, Some(address)) => format!("{address:#x}"),
        (None, None) => ABSENT.to_owned(),
    }
}

/// The three reasons that warps waited for most.
fn stalls(line: &HotLine) -> String {
    let told: Vec<String> = line.stalls.iter().take(3).map(|(reason, samples)| format!("{reason} {samples}")).collect();
    if told.is_empty() { ABSENT.to_owned() } else { told.join(", ") }
}

fn hot_row(stage: &str, line: &HotLine) -> HotRow {
    HotRow {
        stage: cell(stage),
        samples: fixed(Some(line.samples), 0),
        share: percent_of(Some(line.share)),
        place: cell(&place(line)),
        text: cell(&line.text),
        stalls: cell(&stalls(line)),
    }
}

fn diagnosis(part: &Part, thresholds: &Thresholds) -> String {
    let sick = advice::unhealthy(part, thresholds);
    let told = |sick: &advice::Unhealthy| format!("{} {} ({}: {})", sick.label, sick.value, sick.otherwise, sick.hint);
    let sick: Vec<String> = sick.iter().map(told).collect();
    let known = part.diagnosis.as_ref().map_or("nothing decides on its bottleneck".to_owned(), |diagnosis| {
        format!("{}, as {}", diagnosis.label(), diagnosis.reason)
    });
    let sick = if sick.is_empty() { String::new() } else { format!(". Not healthy: {}", sick.join("; ")) };
    cell(&format!("{}: {known}{sick}.", part.name))
}

fn advice_row(rule: &Opportunity) -> AdviceRow {
    let stage = rule.estimate_percent.map(|estimate| percent(Some(estimate)));
    let estimate = match (stage, rule.pipeline_percent) {
        (Some(stage), Some(pipeline)) => {
            format!("est. {stage} of the stage, {}% of the pipeline", fixed(Some(pipeline), 1))
        }
        (Some(stage), None) => format!("local: {stage}"),
        (None, _) => "est. gain unknown".to_owned(),
    };
    AdviceRow {
        stage: cell(&rule.stage),
        rule: cell(&rule.rule),
        estimate,
        trigger: match &rule.trigger {
            Trigger::Metric { .. } => Some(cell(&rule.trigger.to_string())),
            Trigger::Said { .. } => None,
        },
        text: cell(&rule.description),
    }
}

fn replay_row(stage: &StageMeasurement) -> Option<ReplayRow> {
    let replay = stage.launch.as_ref()?.replay();
    let passes = match &replay.passes {
        Reading::Number { value, .. } => fixed(Some(*value), 0),
        _ => ABSENT.to_owned(),
    };
    let saved = replay.saved_bytes.in_unit(Unit::BYTE).map(|bytes| bytes / 1e6);
    Some(ReplayRow { stage: cell(&stage.stage), passes, saved_mb: three_digits(saved) })
}

/// What a launch was launched with.
pub(super) fn launched(stage: &StageMeasurement) -> String {
    let Some(launch) = &stage.launch else { return ABSENT.to_owned() };
    let dimensions = |found: Option<[u32; 3]>| match found {
        Some([x, y, z]) => format!("{x} x {y} x {z}"),
        None => ABSENT.to_owned(),
    };
    let replay = launch.replay();
    let passes = match replay.passes {
        Reading::Number { value, .. } => counted(value, "pass"),
        _ => ABSENT.to_owned(),
    };
    format!("grid {}, block {}, {passes}", dimensions(launch.grid), dimensions(launch.block))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ncu::{Launch, LaunchId};
    use crate::model::protocol::{Counters, Verification};
    use crate::model::source_view::SourceRow;

    fn stage(name: &str, kernel: &str) -> StageMeasurement {
        let launch = Launch {
            id: LaunchId { process: None, number: 0 },
            kernel: kernel.to_owned(),
            grid: None,
            block: None,
            device: None,
            context: None,
            stream: None,
            capability: None,
            metrics: Default::default(),
            sections: Vec::new(),
            rules: Vec::new(),
        };
        let counters = Counters::Counted(Default::default());
        StageMeasurement { stage: name.to_owned(), ns: vec![1.0], counters, launch: Some(launch) }
    }

    fn view(function: &str, text: &str) -> SourceView {
        let row = SourceRow { line: Some(1), address: None, text: text.to_owned(), cells: Vec::new() };
        SourceView {
            function: Some(function.to_owned()),
            file: Some("a.cu".to_owned()),
            columns: vec![],
            rows: vec![row],
        }
    }

    fn listed(stages: &[(&str, &str)], sources: &[(&str, &str)], index: usize) -> Vec<String> {
        let verification = Verification {
            relative_frobenius: 0.0,
            worst_row: 0.0,
            worst_row_index: 0,
            rows_compared: 1,
            rows_total: 1,
            output_sha256: String::new(),
            same_bits: None,
        };
        let run = NcuRun {
            version: String::new(),
            asked: Vec::new(),
            sources: sources.iter().map(|(function, text)| view(function, text)).collect(),
            report: None,
        };
        let stages = stages.iter().map(|(name, kernel)| stage(name, kernel)).collect();
        let pass = AnnotationPass { ncu: None, stages, verification };
        listings(&pass, &run, index).into_iter().map(|view| view.rows[0].text.clone()).collect()
    }

    #[test]
    fn each_stage_has_its_own_listing() {
        let stages = [("a", "gemm"), ("b", "gemm_v2"), ("c", "gemm")];
        let sources = [("gemm", "1"), ("gemm_v2", "2"), ("gemm", "3")];
        assert_eq!(listed(&stages, &sources, 0), ["1"]);
        assert_eq!(listed(&stages, &sources, 1), ["2"]);
        assert_eq!(listed(&stages, &sources, 2), ["3"]);
        assert_eq!(listed(&stages[..1], &sources, 0), ["1", "3"], "whose they are is not known");
        assert!(listed(&stages, &[], 0).is_empty());
    }

    #[test]
    fn no_stage_names_a_file_elsewhere() {
        assert_eq!(file_name("latent", 0), "latent");
        for odd in ["", "..", "a/b", "/etc", "a\0", "a.b", "\u{e9}"] {
            assert_eq!(file_name(odd, 3), "stage-3", "{odd:?}");
        }
    }
}
