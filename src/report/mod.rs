//! Reports from plain data: profiles, experiments, result files and dev logs. Pure but for reading templates; the same
//! input gives the same bytes, with times from the records alone. Knows nothing of plan, store or devices.

mod analysis;
pub mod attribution;
mod bottleneck;
mod bounded;
pub mod calibration;
pub mod devlog;
mod differences;
mod input;
pub mod listing;
pub mod numbers;
pub mod opportunities;
mod render;
mod results;
mod sift;
mod summary;
mod timeline;
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
}

/// An experiment with all its numbers worked out, ready to be rendered.
#[derive(Debug)]
pub struct Report<'a> {
    input: &'a Input,
    analyses: Vec<Option<Analysis<'a>>>,
}

impl<'a> Report<'a> {
    /// Works out the numbers of every run.
    ///
    /// # Errors
    /// A run without records, with records of another mode, or with samples that are no times.
    pub fn new(input: &'a Input, thresholds: &Thresholds) -> Result<Report<'a>, ReportError> {
        let analyses = input.runs.iter().map(|run| analyse(run, thresholds)).collect::<Result<_, _>>()?;
        Ok(Report { input, analyses })
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
        let view = view::profile(self.input, &self.analyses, index, analysis);
        Ok(Some(renderer.render(Template::Profile, &view)?))
    }

    /// Files beside report.md of the run at `index`, by name: those of a timeline.
    pub fn files(&self, index: usize) -> Vec<(&'static str, String)> {
        let traced = self.analyses.get(index).and_then(Option::as_ref).and_then(|analysis| analysis.traced.as_ref());
        let Some((traced, run)) = traced.zip(self.input.runs.get(index)) else { return Vec::new() };
        traced.files(&format!("{} {} at {}", run.id.kernel, run.id.version, run.label))
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
