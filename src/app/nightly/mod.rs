//! A night on this host: what experiments offer, what is measured against the pinned build, and what is kept of it.

mod hook;
mod keep;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use jiff::{SignedDuration, Timestamp};

use super::artifacts::write_text;
use super::compare::{CompareError, Compared, Pair, Side};
use super::experiment::{Bench, BenchError, Control, Workspace};
use super::pin::Pin;
use super::project::Project;
use super::publish::PublishError;
use crate::device::clocks::boot;
use crate::execute::{Observer, Pace};
use crate::failpoint;
use crate::manifest::{self, Experiment};
use crate::model::protocol::FailureKind;
use crate::model::{Key, Mode};
use crate::nightly::{self, Begun, Circumstances, Host, Measured, Offer, Outcome, Report, Situation, State, Subject};
use crate::pairs::Standing;
use crate::plan::{self, SubjectState, Wanted};
use crate::stats::DriftRule;

pub use hook::{HookError, LIMIT as HOOK_LIMIT, call as call_hook};
pub use keep::{KeepError, Kept};

/// Pairs of processes that a session of usual spread needs: what an estimate is made of.
const USUAL_ROUNDS: f64 = 12.0;

/// What a night is about.
pub struct Nightly<'a> {
    pub workspace: Workspace<'a>,
    pub pin: &'a Pin,
    /// The pinned kernels.
    pub pinned: &'a Project,
    pub benches: &'a [Bench],
}

/// A night cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum NightError {
    #[error(transparent)]
    Keep(#[from] KeepError),
    #[error(transparent)]
    Compare(#[from] CompareError),
}

/// What a night has to measure.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Due {
    pub offers: Vec<Offer>,
    /// What cannot be offered, and why.
    pub notes: Vec<String>,
}

/// How a night is told to go.
pub struct Call<'a> {
    pub kept: &'a Kept,
    pub observer: &'a mut dyn Observer,
    pub interrupted: Arc<AtomicBool>,
    /// The program that serves as worker.
    pub worker: PathBuf,
}

/// Plans every experiment whole, as if nothing were recorded: what is known then is the key of each subject, and how long it
/// takes.
///
/// # Errors
/// See [`PlanError`](crate::plan::PlanError).
pub fn plan_all(
    workspace: &Workspace<'_>,
    experiments: Vec<Experiment>,
    wanted: Wanted<'_>,
) -> Result<Vec<Bench>, BenchError> {
    let wanted = Wanted { remeasure: true, dev_logs: false, ..wanted };
    experiments.into_iter().map(|experiment| workspace.plan(experiment, wanted)).collect()
}

impl Nightly<'_> {
    /// The clocks that the first experiment asks for hold for all.
    fn clocks(&self) -> manifest::Clocks {
        let first = self.benches.first().map(|bench| bench.experiment.clocks);
        first.unwrap_or(manifest::Clocks { policy: manifest::ClockPolicy::Prefer, sm_mhz: None, mem_mhz: None })
    }

    /// The host as this night finds it.
    pub fn situation(&self) -> Situation {
        let device = &self.workspace.machine.host.device;
        let name = match &device.id.uuid {
            Some(uuid) => format!("{} ({uuid})", device.id.name),
            None => device.id.name.clone(),
        };
        let clocks = self.benches.first().map(|bench| bench.protocols.clocks).unwrap_or_default();
        Situation {
            device: name,
            pin_name: self.pin.name.clone(),
            pin: self.pin.key,
            boot: boot(),
            circumstances: Circumstances {
                driver: device.gpu.as_ref().map(|gpu| gpu.driver.clone()),
                compiler: self.workspace.machine.backend.toolchain().compiler.to_string(),
                clocks: clocks.to_string(),
            },
        }
    }

    /// The subjects that experiments list and the pinned build has.
    pub fn due(&self, state: &State) -> Due {
        let mut due = Due::default();
        let mut seen: BTreeSet<Subject> = BTreeSet::new();
        let mut unpinned: BTreeSet<String> = BTreeSet::new();
        for (bench, subject) in self.listed() {
            let named = Subject { id: subject.id.clone(), shape: subject.shape.clone() };
            if subject.run(Mode::Event).is_none() || !seen.insert(named.clone()) {
                continue;
            }
            if let SubjectState::Refused { reason } = &subject.state {
                due.notes.push(format!("{named} cannot run here: {reason}"));
            } else if self.pinned.catalog.package(&subject.id).is_err() {
                unpinned.insert(subject.id.to_string());
            } else {
                let sets = f64::from(bench.protocols.rounds.max(1));
                let process_ns = subject.estimate_ns(Mode::Event) / sets;
                let estimate_s = 2.0 * USUAL_ROUNDS * process_ns / 1e9;
                due.offers.push(Offer { candidate: candidate(subject), subject: named, estimate_s });
            }
        }
        if !unpinned.is_empty() {
            let names = unpinned.into_iter().collect::<Vec<_>>().join(", ");
            let name = &self.pin.name;
            due.notes.push(format!(
                "not in the pinned build: {names}; `mlarun pin {name} --replace` pins what there is now"
            ));
        }
        due.notes.extend(self.gone(state, &seen));
        due
    }

    fn listed(&self) -> impl Iterator<Item = (&Bench, &plan::Subject)> {
        let subjects = self.benches.iter().flat_map(|bench| bench.plan.subjects.iter().map(move |one| (bench, one)));
        subjects.filter(|(_, subject)| subject.listed)
    }

    /// Subjects that earlier nights have measured and that no experiment lists any more.
    fn gone(&self, state: &State, listed: &BTreeSet<Subject>) -> Option<String> {
        let situation = self.situation();
        let is_ours = |track: &&nightly::Track| track.device == situation.device && track.pin == situation.pin;
        let tracks = state.tracks.iter().filter(is_ours);
        let gone: Vec<String> =
            tracks.filter(|track| !listed.contains(&track.subject)).map(|track| track.subject.to_string()).collect();
        (!gone.is_empty()).then(|| format!("measured in earlier nights and listed no more: {}", gone.join(", ")))
    }

    /// Begins a night, or goes on with one that ended early.
    pub fn begin(&self, state: &mut State, due: &Due, budget: SignedDuration, now: Timestamp) -> Begun {
        let begun = nightly::begin(state, &self.situation(), budget, now);
        if let Some(tonight) = &mut state.tonight {
            for note in &due.notes {
                if !tonight.notes.contains(note) {
                    tonight.notes.push(note.clone());
                }
            }
        }
        begun
    }

    /// Measures until the budget is spent, nothing is due or the user interrupts; the caller holds the lease.
    ///
    /// # Errors
    /// The state or a result cannot be kept, the clocks cannot be had, or the device is gone. The same call goes on later.
    pub fn run(&self, state: &mut State, due: &Due, begun: Begun, call: Call<'_>) -> Result<(), NightError> {
        let mut host = Here { nightly: self, until: begun.until, call };
        nightly::run(&mut host, &due.offers, &self.situation(), begun.until, &DriftRule::default(), state)
    }

    /// Writes report.md, report.json and report.xml into `folder`.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn write(&self, report: &Report, folder: &Path) -> Result<(), PublishError> {
        let invalid = |error: &dyn std::fmt::Display| PublishError::Invalid(format!("the night's report: {error}"));
        write_text(&folder.join("report.json"), &report.json().map_err(|error| invalid(&error))?)?;
        write_text(&folder.join("report.xml"), &report.junit().map_err(|error| invalid(&error))?)?;
        write_text(&folder.join("report.md"), &report.markdown())
    }
}

/// Key of what would be measured. One whose tiling is not known yet is told by what it is made of.
fn candidate(subject: &plan::Subject) -> Key {
    match &subject.state {
        SubjectState::Ready(ready) => ready.key,
        SubjectState::AfterTune { tunings, .. } => {
            let keys: Vec<_> = tunings.iter().map(|tuning| (tuning.target.to_string(), tuning.key)).collect();
            Key::of("untuned/1", &(&subject.id, &subject.shape, keys))
        }
        SubjectState::Refused { reason } => Key::of("refused/1", reason),
    }
}

/// This host, as nights know it.
struct Here<'n, 'c> {
    nightly: &'n Nightly<'n>,
    until: Timestamp,
    call: Call<'c>,
}

impl Host for Here<'_, '_> {
    type Error = NightError;

    fn now(&self) -> Timestamp {
        Timestamp::now()
    }

    fn keep(&mut self, state: &State) -> Result<(), NightError> {
        Ok(self.call.kept.keep(state)?)
    }

    fn measure(&mut self, offer: &Offer) -> Result<Measured, NightError> {
        let left = self.until.duration_since(Timestamp::now());
        let pace = Pace { budget: Some(left.try_into().unwrap_or_default()), ..Pace::default() };
        let compared = self.compare(offer, &pace);
        failpoint::here("nightly.measured");
        match compared {
            // What the user has cut short decides nothing, and is measured again.
            Ok(compared) if compared.cut_short && self.is_interrupted() => Err(CompareError::Interrupted.into()),
            Ok(compared) => Ok(measured(&compared)),
            Err(CompareError::Refused { name, reason }) => {
                Ok(unjudged(Outcome::Failed { reason: format!("{name}: {reason}"), is_wrong: false }))
            }
            Err(error) => Err(error.into()),
        }
    }

    fn is_interrupted(&self) -> bool {
        self.call.interrupted.load(Ordering::Relaxed)
    }
}

impl Here<'_, '_> {
    fn compare(&mut self, offer: &Offer, pace: &Pace) -> Result<Compared, CompareError> {
        let Nightly { workspace, pinned, pin, .. } = self.nightly;
        let id = &offer.subject.id;
        let pair = Pair {
            candidate: Side { project: workspace.project, id: id.clone(), revision: None },
            baseline: Side { project: pinned, id: id.clone(), revision: Some(pin.origin()) },
            shape: offer.subject.shape.clone(),
        };
        let mut control = Control {
            observer: self.call.observer,
            interrupted: Arc::clone(&self.call.interrupted),
            fail_fast: false,
            worker: self.call.worker.clone(),
            tape: None,
        };
        let mut compared = workspace.compare_at(&self.nightly.clocks(), &[pair], pace, &mut control)?;
        compared.pop().ok_or(CompareError::Interrupted)
    }
}

/// What nights know of a comparison.
fn measured(compared: &Compared) -> Measured {
    match (&compared.standing, &compared.failure) {
        (Standing::SameCode, _) => unjudged(Outcome::SameCode),
        (Standing::Judged(judged), _) => {
            let judgement = &judged.judgement;
            let interval = judgement.interval();
            let outcome = Outcome::Judged {
                verdict: judgement.verdict,
                change: judgement.effect.map(|effect| effect.change()),
                low: interval.map(|(low, _)| low),
                high: interval.map(|(_, high)| high),
                rounds: judgement.rounds,
            };
            let candidate = compared.records.as_ref().map(|records| records.0.subject);
            Measured { session: judged.session.clone(), outcome, threshold: judgement.rule.threshold, candidate }
        }
        (Standing::Unjudged(_), Some(failure)) => {
            let reason = format!("{}: {}", failure.name.id, failure.failure.message);
            unjudged(Outcome::Failed { reason, is_wrong: failure.failure.kind == FailureKind::WrongOutput })
        }
        (Standing::Unjudged(unjudged_for), None) => {
            unjudged(Outcome::Failed { reason: unjudged_for.to_string(), is_wrong: false })
        }
    }
}

fn unjudged(outcome: Outcome) -> Measured {
    Measured { session: Timestamp::now().to_string(), outcome, threshold: f64::MAX, candidate: None }
}

/// Gives alarms that nobody has been told of to the operator's command; where it fails, the next night tries again. Without a
/// command, the report alone tells them.
///
/// # Errors
/// The state cannot be kept.
pub fn tell(
    state: &mut State,
    kept: &Kept,
    command: Option<&str>,
    report: &Path,
) -> Result<Option<HookError>, KeepError> {
    if state.untold.is_empty() {
        return Ok(None);
    }
    if let Some(command) = command {
        let variables = [
            ("MLARUN_ALARMS", state.untold.len().to_string()),
            ("MLARUN_NIGHT", state.tonight.as_ref().map(|night| night.id.clone()).unwrap_or_default()),
            ("MLARUN_REPORT", report.display().to_string()),
        ];
        let input = serde_json::to_vec_pretty(&state.untold).unwrap_or_default();
        if let Err(error) = call_hook(command, &variables, &input, HOOK_LIMIT) {
            return Ok(Some(error));
        }
        failpoint::here("nightly.told");
    }
    state.untold.clear();
    kept.keep(state)?;
    Ok(None)
}
