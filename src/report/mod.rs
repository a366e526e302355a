//! Reports from plain data: profiles, experiments, result files and dev logs. Pure but for reading templates; the same
//! input gives the same bytes, with times from the records alone. Knows nothing of plan, store or devices.

mod advice;
mod analysis;
pub mod attribution;
mod bottleneck;
mod bounded;
pub mod calibration;
mod counters;
pub mod devlog;
mod differences;
mod input;
pub mod listing;
mod ncu;
pub mod numbers;
pub mod opportunities;
mod render;
mod results;
mod sift;
mod summary;
mod timeline;
mod tools;
mod verbose;
pub mod verdict;
mod verification;
mod view;

#[cfg(test)]
mod fixtures;
#[cfg(test)]
mod tests;

pub use analysis::AnalysisError;
pub use bottleneck::{Bottleneck, Diagnosis, Evidence, diagnose};
pub use input::{Baseline, Comparison, Gone, Input, Outcome, Recorded, Run, StageCost};
pub use render::{RenderError, Renderer, template_texts};
pub use results::RESULTS_FORMAT;
pub use sift::{Sifted, sift};
pub use timeline::{agreement as timeline_agreement, summary as timeline_summary};
pub use verification::{Verdict, VerificationReport, VerifiedRow, VerifiedSubject};

use std::path::PathBuf;

use crate::conf::Thresholds;
use analysis::{Analysis, analyse};
use render::Template;

/// No report can be made.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    #[error(transparent)]
    Analysis(#[from] AnalysisError),
    #[error(transparent)]
    Render(#[from] RenderError),
    #[error("results.csv cannot be written: {0}")]
    Csv(#[from] csv::Error),
    #[error("the listing of stage `{stage}` cannot be written: {source}; run `mlarun cache verify`")]
    Listing { stage: String, source: csv::Error },
}

/// An experiment with all its numbers worked out, ready to be rendered.
#[derive(Debug)]
pub struct Report<'a> {
    input: &'a Input,
    analyses: Vec<Option<Analysis<'a>>>,
    thresholds: Thresholds,
}

impl<'a> Report<'a> {
    /// Works out the numbers of every run.
    ///
    /// # Errors
    /// A run without records, with records of another mode, or with samples that are no times.
    pub fn new(input: &'a Input, thresholds: &Thresholds) -> Result<Report<'a>, ReportError> {
        let analyses = input.runs.iter().map(|run| analyse(run, thresholds)).collect::<Result<_, _>>()?;
        Ok(Report { input, analyses, thresholds: thresholds.clone() })
    }

    /// report.md of the run at `index`; `None` when it was not measured.
    ///
    /// # Errors
    /// A template that does not render.
    pub fn profile(&self, renderer: &Renderer, index: usize) -> Result<Option<String>, ReportError> {
        let Some(analysis) = self.analyses.get(index).and_then(Option::as_ref) else { return Ok(None) };
        if let Some(traced) = &analysis.traced {
            let (context, notes) = view::around(analysis);
            let view = timeline::view(analysis.run, traced, context, notes);
            return Ok(Some(renderer.render(Template::Timeline, &view)?));
        }
        let view = view::profile(self.input, &self.analyses, index, analysis, &self.thresholds);
        Ok(Some(renderer.render(Template::Profile, &view)?))
    }

    /// Every file beside report.md of the run at `index`, by its path relative to it: those of a timeline, and what ncu mode lists;
    /// none in the other modes.
    ///
    /// # Errors
    /// A listing that does not fit its columns.
    pub fn files(&self, index: usize) -> Result<Vec<(PathBuf, String)>, ReportError> {
        let Some(analysis) = self.analyses.get(index).and_then(Option::as_ref) else { return Ok(Vec::new()) };
        let Some(traced) = &analysis.traced else { return ncu::files(analysis) };
        let run = analysis.run;
        let files = traced.files(&format!("{} {} at {}", run.id.kernel, run.id.version, run.label));
        Ok(files.into_iter().map(|(name, text)| (PathBuf::from(name), text)).collect())
    }

    /// Median duration of the run at `index` in nanoseconds: end to end and cold in event mode, the sum of the stages in
    /// annotation mode. `None` when it was not measured.
    pub fn duration_ns(&self, index: usize) -> Option<f64> {
        Some(self.analyses.get(index)?.as_ref()?.whole.ns)
    }

    /// report.md of the experiment.
    ///
    /// # Errors
    /// A template that does not render.
    pub fn experiment(&self, renderer: &Renderer) -> Result<String, ReportError> {
        Ok(renderer.render(Template::Experiment, &summary::experiment(self.input, &self.analyses))?)
    }

    /// results.json.
    pub fn results_json(&self) -> String {
        results::json(self.input, &self.analyses)
    }

    /// results.csv.
    ///
    /// # Errors
    /// The CSV writer refuses a line.
    pub fn results_csv(&self) -> Result<String, ReportError> {
        Ok(results::csv(self.input, &self.analyses)?)
    }

    /// Compact dev log record of the event run at `index`; see [`devlog::CompactRecord`]. `annotation` and `previous` are
    /// indices of the run's annotation and of the next lower version's event run. `None` when it was not measured.
    pub fn devlog_record(&self, index: usize, links: devlog::Links) -> Option<devlog::CompactRecord> {
        let of = |index: usize| self.analyses.get(index).and_then(Option::as_ref);
        let previous = links.previous.and_then(of);
        Some(devlog::record(of(index)?, links.annotation.and_then(of), previous, links.shown))
    }
}
