//! report-verbose.md of ncu mode: every section, rule and metric of every launch. Thousands of rows, so that it is written directly
//! and not through a template. Pure.

use std::fmt::{Display, Write};

use super::analysis::Analysis;
use super::counters::tool;
use super::ncu::launched;
use super::numbers::{cell, percent};
use crate::model::ncu::{Launch, Rule, RuleKind, Scope};
use crate::model::record::{AnnotationPass, NcuRun};

/// The whole file.
pub(super) fn text(analysis: &Analysis<'_>, pass: &AnnotationPass, run: &NcuRun) -> String {
    let mut text = Text(String::new());
    let id = cell(&analysis.run.id.to_string());
    text.line(format_args!("# {}: {id} at {}", tool(run), cell(&analysis.run.shape.to_string())));
    for stage in &pass.stages {
        text.line("");
        text.line(format_args!("## Stage {}", cell(&stage.stage)));
        let Some(launch) = &stage.launch else {
            text.line("No launch of it was profiled.");
            continue;
        };
        text.line(format_args!("Kernel {}: {}.", cell(&launch.kernel), launched(stage)));
        sections(&mut text, launch);
        rules(&mut text, launch);
        metrics(&mut text, launch);
    }
    text.0
}

struct Text(String);

impl Text {
    fn line(&mut self, line: impl Display) {
        writeln!(self.0, "{line}").expect("a string takes every text");
    }

    fn head(&mut self, title: impl Display) {
        self.line(format_args!("\n### {title}\n| Metric | Value |\n|--------|-------|"));
    }

    fn row(&mut self, name: &str, value: impl Display) {
        self.line(format_args!("| {} | {} |", cell(name), cell(&value.to_string())));
    }
}

/// Sections in the order in which they first appear.
fn sections(text: &mut Text, launch: &Launch) {
    let mut names: Vec<&str> = Vec::new();
    for shown in &launch.sections {
        if !names.contains(&shown.section.as_str()) {
            names.push(&shown.section);
        }
    }
    for name in names {
        text.head(cell(name));
        for shown in launch.sections.iter().filter(|shown| shown.section == name) {
            text.row(&shown.metric, &shown.reading);
        }
    }
}

fn rules(text: &mut Text, launch: &Launch) {
    if launch.rules.is_empty() {
        return;
    }
    text.line("\n### Rules");
    for rule in &launch.rules {
        let (name, section) = (cell(&rule.name), cell(&rule.section));
        text.line(format_args!("- **{name}** ({section}; {}): {}", meaning(rule), cell(&rule.description)));
    }
}

fn meaning(rule: &Rule) -> String {
    let kind = match &rule.kind {
        RuleKind::Optimization => "to gain",
        RuleKind::Information => "to know",
        RuleKind::Warning => "warning",
        RuleKind::Error => "not applied",
        RuleKind::Other(other) => other,
    };
    let estimate = rule.estimate.map_or(String::new(), |estimate| {
        let of = match estimate.scope {
            Scope::Global => "global: est. {} of run time",
            Scope::Local => "local: {} of one unit's efficiency",
        };
        format!(", {}", of.replace("{}", &percent(Some(estimate.percent))))
    });
    format!("{}{estimate}", cell(kind))
}

fn metrics(text: &mut Text, launch: &Launch) {
    text.head("All metrics");
    launch.metrics.iter().for_each(|(name, reading)| text.row(name, reading));
}
