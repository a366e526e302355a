//! What a report is made of: plain data that the composer gathers from plan, store and catalogue. No arithmetic, no text.

use crate::model::calibration::HostCalibration;
use crate::model::protocol::FailureKind;
use crate::model::record::Record;
use crate::model::{DeviceId, KernelId, Mode, Peaks, Shape, Tiling};
use crate::pairs::Standing;
use crate::roofline::Cost;
use crate::stats::verdict::Verdict;

/// An experiment with the outcome of each of its runs.
#[derive(Debug, Clone)]
pub struct Input {
    /// Name of the experiment.
    pub experiment: String,
    /// In the plan's order, which is that of every table.
    pub runs: Vec<Run>,
    /// In the manifest's order of baselines; the first one of a run fills its exact table.
    pub comparisons: Vec<Comparison>,
    /// What the host's verdicts are worth at the clocks of the experiment, where it was calibrated.
    pub host: Option<HostCalibration>,
    /// What baselines from files hold and the experiment does not.
    pub gone: Vec<Gone>,
}

impl Input {
    /// Comparisons that ended with SLOWER, and runs of baselines that have no result now.
    pub fn regressions(&self) -> usize {
        let is_slower = |comparison: &&Comparison| {
            comparison.standing.judged().is_some_and(|judged| judged.judgement.verdict == Verdict::Slower)
        };
        self.comparisons.iter().filter(is_slower).count() + self.gone.len()
    }
}

/// A run of a baseline's file without a counterpart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gone {
    /// The file.
    pub baseline: String,
    /// The run, as people call it.
    pub run: String,
    /// What became of it here.
    pub reason: String,
}

/// One point of the experiment.
#[derive(Debug, Clone)]
pub struct Run {
    pub id: KernelId,
    pub shape: Shape,
    /// The parameters that name the run in tables: those that the experiment gives, and b, s, t and dtype.
    pub label: Shape,
    pub mode: Mode,
    pub tiling: Tiling,
    /// The device that it is planned for.
    pub device: DeviceId,
    /// Work by the cost model, of each stage that is launched at this shape, in launch order.
    pub costs: Vec<StageCost>,
    /// Peaks for the roofline; where there are none, nothing is said about it.
    pub peaks: Option<Peaks>,
    pub outcome: Outcome,
    /// What is said of its measurements that do not count, if there are any.
    pub left_out: Option<String>,
}

/// Work of one stage.
#[derive(Debug, Clone, PartialEq)]
pub struct StageCost {
    pub stage: String,
    pub cost: Cost,
}

/// What became of a run.
#[derive(Debug, Clone)]
pub enum Outcome {
    /// Its records, all of the run's mode, in the order in which they were taken.
    Measured(Vec<Record>),
    /// Not run, for a reason that is no fault (e.g. a mode that needs a GPU).
    Skipped { reason: String },
    /// Run without a result.
    Failed { kind: FailureKind, reason: String },
}

/// A run beside one of its baselines.
#[derive(Debug, Clone, PartialEq)]
pub struct Comparison {
    /// The verdict, corrected for the table that all comparisons of the experiment are.
    pub standing: Standing,
    /// Index into [`Input::runs`].
    pub run: usize,
    /// Name of the baseline as the manifest has it, e.g. `previous` or `flash_mla`.
    pub name: String,
    pub baseline: Baseline,
}

/// The other side of a comparison.
#[derive(Debug, Clone, PartialEq)]
pub enum Baseline {
    /// Index into [`Input::runs`].
    Run(usize),
    /// A result of another experiment or host.
    Recorded(Recorded),
    /// There is none, e.g. `previous` of the base version.
    Missing { reason: String },
}

/// A run of a results file.
#[derive(Debug, Clone, PartialEq)]
pub struct Recorded {
    pub id: KernelId,
    /// Nanoseconds: end to end and cold, or the sum of the stages.
    pub ns: f64,
    pub cost: Option<Cost>,
    /// Name of the device that it was measured on.
    pub device: String,
    /// File that it was read from.
    pub file: String,
}
