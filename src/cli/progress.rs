//! What a person sees while a plan is executed: bars on a terminal, lines elsewhere. Goes to standard error.

use std::io::IsTerminal as _;
use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::args::Global;
use super::output;
use crate::execute::{Event, Observer};
use crate::model::clocks::ClockState;
use crate::report::numbers::{counted, duration};
use crate::report::verdict;

/// How much is said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Detail {
    /// Failures and warnings.
    Quiet,
    /// Each step once.
    Normal,
    /// Every sample set.
    Verbose,
}

/// Shows the events of a session.
pub struct Progress {
    detail: Detail,
    bars: MultiProgress,
    /// Advances by the estimated milliseconds of what is done, so that its ETA is the plan's.
    overall: ProgressBar,
    /// Modules compiled or candidates tried, while that goes on.
    step: Option<ProgressBar>,
    is_terminal: bool,
}

impl Progress {
    /// For a plan whose measurements are estimated to take `estimate_ns`.
    pub fn new(global: &Global, estimate_ns: f64) -> Progress {
        let detail = match (global.quiet, global.verbose) {
            (1.., _) => Detail::Quiet,
            (_, 1..) => Detail::Verbose,
            _ => Detail::Normal,
        };
        let is_terminal = std::io::stderr().is_terminal() && detail != Detail::Quiet;
        let target = if is_terminal { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bars = MultiProgress::with_draw_target(target);
        let overall = bars.add(ProgressBar::new(milliseconds(estimate_ns)));
        overall.set_style(style("{spinner} [{elapsed_precise}] {wide_bar} eta {eta}  {msg}"));
        if is_terminal {
            overall.enable_steady_tick(Duration::from_millis(200));
        }
        Progress { detail, bars, overall, step: None, is_terminal }
    }

    /// A line that stays.
    fn line(&self, text: &str) {
        if self.is_terminal {
            self.bars.suspend(|| output::note(text));
        } else {
            output::note(text);
        }
    }

    fn note(&self, text: &str) {
        if self.detail != Detail::Quiet {
            self.line(text);
        }
    }

    fn detail(&self, text: &str) {
        if self.detail == Detail::Verbose {
            self.line(text);
        }
    }

    fn start_step(&mut self, length: usize, what: String) {
        self.end_step();
        let bar = self.bars.insert_before(&self.overall, ProgressBar::new(length as u64));
        bar.set_style(style("  {msg} {wide_bar} {pos}/{len}"));
        bar.set_message(what);
        self.step = Some(bar);
    }

    fn advance_step(&mut self) {
        if let Some(bar) = &self.step {
            bar.inc(1);
        }
    }

    fn end_step(&mut self) {
        if let Some(bar) = self.step.take() {
            bar.finish_and_clear();
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.end_step();
        self.overall.finish_and_clear();
    }
}

impl Observer for Progress {
    fn observe(&mut self, event: &Event) {
        match event {
            Event::Clocks { state, reason: Some(reason) } => {
                self.line(&format!("clocks: {}: {reason}", clocks(*state)))
            }
            Event::Clocks { state, reason: None } => self.detail(&format!("clocks: {}", clocks(*state))),
            Event::Compiling { modules } => {
                self.note(&format!("compiling {}", counted(modules, "module")));
                self.start_step(*modules, "compiling".to_owned());
            }
            Event::Compiled | Event::CandidateTried => self.advance_step(),
            Event::Tuning { name, target, candidates, rejected } => {
                self.note(&format!(
                    "tuning {name}: {target}, {} ({rejected} rejected)",
                    counted(candidates, "candidate")
                ));
                self.start_step(*candidates, format!("tuning {target}"));
            }
            Event::Tuned { name, target, chosen, median_ns, tried } => {
                self.end_step();
                let time = duration(*median_ns);
                self.note(&format!("tuned {name}: {target} {chosen} ({time}, best of {tried})"));
            }
            Event::Verifying { name } => {
                self.end_step();
                self.overall.set_message(format!("verifying {name}"));
                self.detail(&format!("verifying {name}"));
            }
            Event::Verified { name, relative_frobenius } => {
                self.note(&format!("verified {name} (relative error {relative_frobenius:.1e})"));
            }
            Event::Sanitizing { name, tool } => {
                self.overall.set_message(format!("{tool} {name}"));
                self.detail(&format!("{tool} watches {name}"));
            }
            Event::Sanitized { name, tool } => self.note(&format!("{tool} found nothing in {name}")),
            Event::Measuring { name, mode, round, rounds, .. } => {
                self.end_step();
                self.overall.set_message(format!("{mode} {name} {}/{rounds}", round + 1));
            }
            Event::Measured { name, mode, round, rounds, median_ns, estimate_ns } => {
                self.overall.inc(milliseconds(*estimate_ns));
                let time = median_ns.map(|ns| format!(": {}", duration(ns))).unwrap_or_default();
                let text = format!("measured {name}, {mode} {}/{rounds}{time}", round + 1);
                if round + 1 == *rounds { self.note(&text) } else { self.detail(&text) }
            }
            Event::Looked { candidate, baseline, judgement } => {
                let told = verdict::told(judgement);
                self.note(&format!("{candidate} beside {baseline}, {}: {told}", counted(judgement.rounds, "round")));
            }
            Event::Retrying { name, reason } => self.line(&format!("retrying {name} once: {reason}")),
            Event::Failed { name, mode, reason } => {
                let mode = mode.map(|mode| format!(", {mode}")).unwrap_or_default();
                self.line(&format!("FAILED {name}{mode}: {reason}"));
            }
        }
    }
}

fn clocks(state: ClockState) -> String {
    match state.held() {
        Some(frequencies) => format!("locked at {frequencies}"),
        None => "unlocked".to_owned(),
    }
}

fn milliseconds(ns: f64) -> u64 {
    (ns / 1e6).ceil() as u64
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).expect("the template is a literal that parses")
}
