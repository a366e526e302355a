//! The plan as a graph: steps as nodes, what must come before as edges. Pure.

use super::{BaselineSubject, Plan, RunState, Subject, SubjectState};

/// The graph of `plan` in the language of Graphviz.
pub fn dot(name: &str, plan: &Plan) -> String {
    let mut text = format!("digraph {} {{\n  rankdir=LR;\n  node [shape=box];\n", quoted(name));
    for (index, subject) in plan.subjects.iter().enumerate() {
        subject_nodes(index, subject, &mut text);
    }
    for (index, comparison) in plan.comparisons.iter().enumerate() {
        if let BaselineSubject::Subject(baseline) = comparison.baseline {
            let label = format!("compare with {}", comparison.name);
            text.push_str(&format!("  c{index} [label={}, shape=ellipse];\n", quoted(&label)));
            for (number, _) in plan.subjects[comparison.candidate].runs.iter().enumerate() {
                text.push_str(&format!("  s{}r{number} -> c{index};\n", comparison.candidate));
            }
            for (number, _) in plan.subjects[baseline].runs.iter().enumerate() {
                text.push_str(&format!("  s{baseline}r{number} -> c{index};\n"));
            }
        }
    }
    text.push_str("}\n");
    text
}

fn subject_nodes(index: usize, subject: &Subject, text: &mut String) {
    let what = format!("{}\\n{}", subject.id, subject.shape);
    let mut before = None;
    let mut chain = |node: String, label: &str, color: &str, text: &mut String| {
        text.push_str(&format!("  {node} [label={}, color={color}];\n", quoted(&format!("{label}\\n{what}"))));
        if let Some(before) = before.replace(node.clone()) {
            text.push_str(&format!("  {before} -> {node};\n"));
        }
    };
    if let SubjectState::AfterTune { tunings, .. } = &subject.state {
        for (number, tuning) in tunings.iter().enumerate() {
            chain(format!("s{index}t{number}"), &format!("tune {}", tuning.target), "orange", text);
        }
    }
    let is_to_do = subject.runs.iter().any(|run| matches!(run.state, RunState::Stale(_) | RunState::AfterTune));
    if is_to_do {
        chain(format!("s{index}c"), "compile", "orange", text);
        chain(format!("s{index}v"), "verify", "orange", text);
    }
    for (number, run) in subject.runs.iter().enumerate() {
        let color = match run.state {
            RunState::Fresh => "green",
            RunState::Stale(_) | RunState::AfterTune => "orange",
            RunState::Skipped { .. } => "gray",
            RunState::Refused { .. } => "red",
        };
        let node = format!("s{index}r{number}");
        let label = format!("measure {}\\n{what}", run.mode);
        text.push_str(&format!("  {node} [label={}, color={color}];\n", quoted(&label)));
        if is_to_do {
            text.push_str(&format!("  s{index}v -> {node};\n"));
        }
    }
}

/// A Graphviz string; `\n` stays the line break that it is there.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('"', "\\\""))
}
