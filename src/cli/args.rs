//! The command line as it is typed.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, CommandFactory as _, Parser, Subcommand, ValueEnum};

use crate::diagnostic::nearest;
use crate::history::Metric;
use crate::manifest::ClockPolicy;
use crate::model::timeline::TracerKind;
use crate::model::{Language, Mode, Timing};

/// Declarative experiments over kernels: true timings, cached results, reports and dev logs.
///
/// `mlarun experiments/var6_sweep.toml` plans the experiment, does what is not done yet, and writes its reports.
#[derive(Debug, Parser)]
#[command(
    name = "mlarun",
    version,
    arg_required_else_help = true,
    subcommand_negates_reqs = true,
    after_help = EXIT_CODES
)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Option<Command>,
    #[command(flatten)]
    pub run: RunArgs,
    #[command(flatten)]
    pub global: Global,
}

const EXIT_CODES: &str = "Exit codes: 0 all well (runs skipped with a reason included), 1 internal error, 2 bad command \
line or manifest, 3 the host lacks something, 4 some runs failed (the rest is kept), 5 a kernel is wrong, 6 a \
regression was found and failing on it was asked for, 7 a checked file is stale, 130 interrupted.";

/// Options of every command.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "General options")]
pub struct Global {
    /// Project folder, which holds kernels/ [default: the nearest one at or above the manifest or this folder]
    #[arg(long, global = true, value_name = "DIR")]
    pub root: Option<PathBuf>,
    /// Where results go [default: out/ in the project folder]
    #[arg(long, global = true, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Where kernels run: `cpu`, `gpu`, or a GPU by number or UUID [default: the first GPU, where there is one]
    #[arg(long, global = true, value_name = "DEVICE", env = "MLARUN_DEVICE", hide_env = true)]
    pub device: Option<String>,
    /// What is done about a GPU's clocks: `lock`, `prefer`, `external` or `observe`, whatever manifests say [default: what
    /// MLARUN_CLOCKS says, else the manifest; `observe` in MLARUN_CLOCKS beats this option]
    #[arg(long, global = true, value_name = "POLICY", value_parser = clock_policy)]
    pub clocks: Option<ClockPolicy>,
    /// Print data as JSON on standard output
    #[arg(long, global = true)]
    pub json: bool,
    /// Say less: once, no progress; twice, no summary
    #[arg(short, long, global = true, action = clap::ArgAction::Count, conflicts_with = "verbose")]
    pub quiet: u8,
    /// Say more: every sample set, every candidate
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub verbose: u8,
    /// When to use colours [default: auto, which honours NO_COLOR]
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto", hide_default_value = true)]
    pub color: ColorWhen,
}

fn clock_policy(text: &str) -> Result<ClockPolicy, String> {
    let named = ClockPolicy::ALL.into_iter().find(|policy| policy.name() == text);
    named.ok_or_else(|| format!("there are {}", ClockPolicy::ALL.map(ClockPolicy::name).join(", ")))
}

/// When output is coloured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ColorWhen {
    Auto,
    Always,
    Never,
}

/// Which experiments, and which of their runs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
pub struct Selection {
    /// Override a manifest key, e.g. `shapes.s=[1,4]` or `modes=event` (may be repeated)
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub sets: Vec<String>,
    /// Only runs for which this holds, e.g. 'version == "v2" && s == 16'
    #[arg(long, value_name = "EXPRESSION")]
    pub only: Option<String>,
    /// Measure again what is already recorded; old results stay
    #[arg(long)]
    pub remeasure: bool,
}

/// `mlarun MANIFEST…`
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
pub struct RunArgs {
    /// Experiment manifests
    #[arg(value_name = "MANIFEST")]
    pub manifests: Vec<PathBuf>,
    #[command(flatten)]
    pub selection: Selection,
    /// Print the plan and stop
    #[arg(long)]
    pub dry_run: bool,
    /// Go on after a failed run (the default)
    #[arg(long, conflicts_with = "fail_fast")]
    pub keep_going: bool,
    /// Stop at the first failed run
    #[arg(long)]
    pub fail_fast: bool,
    /// Refuse to start while another mlarun measures on this host, instead of waiting
    #[arg(long)]
    pub no_wait: bool,
    /// Add this device's blocks to the dev logs under docs/kernels
    #[arg(long)]
    pub devlog_add: bool,
    /// Exit with 6 if a comparison ends with SLOWER, or a baseline from a file holds a run that has no result now
    #[arg(long)]
    pub fail_on_regression: bool,
    /// Also write all that is met outside mlarun (files, host, compilers, workers' answers) to a new file, for a replay
    /// elsewhere or a bug report; names of host and user are left out
    #[arg(long, value_name = "FILE", conflicts_with_all = ["dry_run", "replay"])]
    pub record: Option<PathBuf>,
    /// Repeat a recorded call from its recording alone, anywhere; results go to a new folder, which --out can name
    #[arg(long, value_name = "FILE", conflicts_with_all = [
        "manifests", "sets", "only", "remeasure", "dry_run", "keep_going", "fail_fast", "no_wait", "devlog_add",
    ])]
    pub replay: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run experiments (what `mlarun MANIFEST…` does)
    Run(RunArgs),
    /// Show what would be done, and why
    Plan(PlanArgs),
    /// Check manifests and the kernels that they name
    Check(CheckArgs),
    /// Profile one kernel at one shape
    Profile(ProfileArgs),
    /// Verify every kernel of experiments against the float64 reference, and measure nothing
    Verify(VerifyArgs),
    /// Write the reports of experiments again, without running anything
    Report(ReportArgs),
    /// Regenerate dev logs from recorded results, or check them
    Devlog(DevlogArgs),
    /// List kernels, versions and parameters
    List(ListArgs),
    /// Show everything that is recorded of a run
    Show(ShowArgs),
    /// Compare two recorded results field by field
    Diff(DiffArgs),
    /// Measure two versions of a kernel, or two kernels, against one another until a verdict can be given
    Compare(CompareArgs),
    /// Say why a run is fresh or stale, what was tuned for it, and where its records are
    Explain(ExplainArgs),
    /// Show a metric of a kernel over time
    History(HistoryArgs),
    /// Measure experiments against a pinned build within a budget of time, and raise alarms
    Nightly(NightlyArgs),
    /// Keep the kernels as they are now, to be measured beside later ones
    Pin(PinArgs),
    /// Look after recorded results and caches
    Cache(CacheArgs),
    /// Show or calibrate the device
    Device(DeviceArgs),
    /// Find out how far verdicts of this host can be believed: false ones, power, and the smallest change that is seen
    Calibrate(CalibrateArgs),
    /// Show, lock or reset the clocks of GPUs
    Clocks(ClocksArgs),
    /// Clone a version of a kernel as a new one
    NewVersion(NewVersionArgs),
    /// Print the JSON Schema of manifests
    Schema,
    /// Print shell completions
    Completions {
        /// Shell
        shell: clap_complete::Shell,
    },
    /// Answer one request on standard input
    #[command(name = "__worker", hide = true)]
    Worker,
    /// Give clocks back when the program that locked them is gone
    #[command(name = "__clock_watch", hide = true)]
    ClockWatch,
}

/// `mlarun plan`
#[derive(Debug, Clone, Args)]
pub struct PlanArgs {
    /// Experiment manifests
    #[arg(value_name = "MANIFEST", required = true)]
    pub manifests: Vec<PathBuf>,
    #[command(flatten)]
    pub selection: Selection,
    /// Print the run graph for Graphviz
    #[arg(long, conflicts_with = "json")]
    pub dot: bool,
}

/// `mlarun check`
#[derive(Debug, Clone, Args)]
pub struct CheckArgs {
    /// Experiment manifests
    #[arg(value_name = "FILE", required = true)]
    pub manifests: Vec<PathBuf>,
    /// Override a manifest key (may be repeated)
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub sets: Vec<String>,
}

/// `mlarun verify`
#[derive(Debug, Clone, Args)]
#[command(
    after_help = "A kernel whose tiling was tuned is verified with that tiling, any other with its declared default: \
verifying never tunes. Outputs are compared whole on the kernel's reduced shape and by sampled rows on the shape itself. \
memcheck watches both shapes, racecheck the reduced one. --remeasure verifies again what is recorded as right."
)]
pub struct VerifyArgs {
    /// Experiment manifests
    #[arg(value_name = "MANIFEST", required = true)]
    pub manifests: Vec<PathBuf>,
    #[command(flatten)]
    pub selection: Selection,
    /// Choose this for the pipeline's tiling, whatever was tuned, in every kernel that has the choice, e.g. splits=64 (may
    /// be repeated)
    #[arg(long, value_name = "NAME=VALUE")]
    pub tile: Vec<String>,
    /// Verify once more under compute-sanitizer, each time [tools: memcheck,racecheck]
    #[arg(long, value_name = "TOOLS", num_args = 0..=1, require_equals = true, default_missing_value = "memcheck,racecheck")]
    pub sanitize: Option<String>,
    /// Stop at the first kernel that is not right
    #[arg(long)]
    pub fail_fast: bool,
    /// Refuse to start while another mlarun measures on this host, instead of waiting
    #[arg(long)]
    pub no_wait: bool,
}

/// `mlarun profile`
#[derive(Debug, Clone, Args)]
#[command(after_help = "Parameters of the kernel are options of the form --NAME=VALUE or --NAME VALUE, e.g. --b=32 \
--s=16 --t=4096 --dtype=bfloat16; `mlarun list KERNEL` shows them.")]
pub struct ProfileArgs {
    /// Kernel
    pub kernel: String,
    /// Version, or `latest` [default: v0, the base version]
    pub version: Option<String>,
    /// Mode: annotation, event, ncu, nsys, or disabled
    #[arg(long = "prof_type", visible_alias = "prof-type", value_name = "MODE", default_value = "annotation")]
    pub prof_type: ProfType,
    /// Only verify the output (with --prof_type=disabled)
    #[arg(long)]
    pub check: bool,
    /// Verify once more under compute-sanitizer (with --prof_type=disabled) [tools: memcheck,racecheck]
    #[arg(long, value_name = "TOOLS", num_args = 0..=1, require_equals = true, default_missing_value = "memcheck,racecheck")]
    pub sanitize: Option<String>,
    /// Language of the kernel [default: c on a CPU, cuda on a GPU]
    #[arg(long, value_name = "LANGUAGE")]
    pub language: Option<Language>,
    /// Folder for the artifacts [default: out/profiles/MODE/KERNEL/PARAMS/TIMESTAMP]
    #[arg(long, value_name = "DIR")]
    pub out_dir: Option<PathBuf>,
    /// Sample sets, each a fresh process, in event mode
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub bench_runs: Option<u32>,
    /// What traces in nsys mode: nsys or cupti [default: nsys where there is one that can be used]
    #[arg(long, value_name = "TOOL")]
    pub tool: Option<TracerKind>,
    /// The stage that alone is profiled (with --prof_type=ncu)
    #[arg(long, value_name = "NAME")]
    pub stage: Option<String>,
    /// Measure again what is already recorded; old results stay
    #[arg(long)]
    pub remeasure: bool,
    /// Refuse to start while another mlarun measures on this host, instead of waiting
    #[arg(long)]
    pub no_wait: bool,
    /// A parameter of the kernel; --NAME=VALUE and --NAME VALUE mean the same (may be repeated)
    #[arg(long = PARAMETER, value_name = "NAME=VALUE")]
    pub parameters: Vec<String>,
}

const PARAMETER: &str = "param";

/// Commands whose options may be parameters of a kernel.
const WITH_PARAMETERS: [&str; 3] = ["profile", "compare", "history"];

/// Turns the `--NAME=VALUE` and `--NAME VALUE` of commands that take parameters and that are no options of ours into
/// `--param NAME=VALUE`.
pub fn with_parameters(arguments: Vec<OsString>) -> Vec<OsString> {
    let mut command = Cli::command();
    command.build();
    let taken = arguments.iter().filter_map(|argument| argument.to_str()).find(|word| WITH_PARAMETERS.contains(word));
    let Some(taking) = taken.and_then(|name| command.find_subcommand(name)) else { return arguments };
    let known: Vec<String> = taking
        .get_arguments()
        .flat_map(|argument| argument.get_long_and_visible_aliases().unwrap_or_default())
        .map(str::to_owned)
        .collect();
    // The name of a parameter, and the value where it stands behind a `=`.
    let parameter = |argument: &OsString| -> Option<(String, Option<String>)> {
        let text = argument.to_str()?.strip_prefix("--")?;
        let (name, value) = text.split_once('=').map_or((text, None), |(name, value)| (name, Some(value)));
        let is_name = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') && !name.is_empty();
        let is_known = known.iter().any(|known| known == name);
        (is_name && !is_known).then(|| (name.to_owned(), value.map(str::to_owned)))
    };
    // What may stand behind `--NAME`; another option may not, as then the name is a mistyped flag.
    let is_value = |argument: &OsString| {
        argument.to_str().is_some_and(|text| !text.starts_with('-') || text.parse::<f64>().is_ok())
    };
    let mut made = Vec::new();
    let mut rest = arguments.into_iter().peekable();
    while let Some(argument) = rest.next() {
        let behind = parameter(&argument).and_then(|(name, value)| {
            let value = value.or_else(|| rest.next_if(is_value)?.into_string().ok())?;
            Some(format!("--{PARAMETER}={name}={value}"))
        });
        made.push(behind.map_or(argument, OsString::from));
    }
    made
}

/// What to say where the first argument is neither a command nor a file but nearly a command.
pub fn mistyped_command(arguments: &[OsString]) -> Option<String> {
    let word = arguments.get(1)?.to_str().filter(|word| !word.starts_with('-'))?;
    let command = Cli::command();
    let commands: Vec<&str> =
        command.get_subcommands().filter(|command| !command.is_hide_set()).map(clap::Command::get_name).collect();
    if commands.contains(&word) || word == "help" || std::path::Path::new(word).exists() {
        return None;
    }
    let near = nearest(word, commands)?;
    Some(format!("there is no command and no manifest `{word}`; did you mean `mlarun {near}`?"))
}

/// Mode of a single shot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ProfType {
    Annotation,
    Event,
    Ncu,
    Nsys,
    Disabled,
}

impl ProfType {
    /// The mode; `None` where nothing is profiled.
    pub fn mode(self) -> Option<Mode> {
        match self {
            ProfType::Annotation => Some(Mode::Annotation),
            ProfType::Event => Some(Mode::Event),
            ProfType::Ncu => Some(Mode::Ncu),
            ProfType::Nsys => Some(Mode::Nsys),
            ProfType::Disabled => None,
        }
    }
}

/// `mlarun report`
#[derive(Debug, Clone, Args)]
pub struct ReportArgs {
    /// Experiment manifests
    #[arg(value_name = "MANIFEST", required = true)]
    pub manifests: Vec<PathBuf>,
    /// Override a manifest key (may be repeated)
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub sets: Vec<String>,
}

/// `mlarun devlog`
#[derive(Debug, Clone, Args)]
pub struct DevlogArgs {
    /// Kernels [default: all that have committed records]
    #[arg(value_name = "KERNEL")]
    pub kernels: Vec<String>,
    /// Change nothing; exit with 7 if a log is not what its records say
    #[arg(long)]
    pub check: bool,
}

/// `mlarun list`
#[derive(Debug, Clone, Args)]
pub struct ListArgs {
    /// Kernel to show in full
    pub kernel: Option<String>,
}

/// `mlarun show`
#[derive(Debug, Clone, Args)]
pub struct ShowArgs {
    /// Key of a run or a subject, or the first digits of it
    #[arg(value_name = "RUN")]
    pub key: String,
}

/// `mlarun compare`
#[derive(Debug, Clone, Args)]
#[command(
    after_help = "A and B are each a kernel and a version (flash_mla:v1; flash_mla alone means its latest), the folder of a \
package (kernels/c/mla/flash_mla_v1), or either as it was committed at a git revision (flash_mla:v1@HEAD~3). Parameters of \
the kernels are options of the form --NAME=VALUE or --NAME VALUE, e.g. --b=32 --s=16 --t=4096.\n\n\
Both sides run in fresh processes, in pairs whose order is drawn, and are looked at after 8, 12, 16, 24 and 32 rounds, until \
one of FASTER, SLOWER and SAME can be said of B beside A with at most 1 false in 1,000; docs/verdicts.md explains the rule. Equal machine code is \
not run. Nothing is taken from earlier measurements, and every sample set is kept.\n\n\
Exit codes: 0 whatever the verdict, 4 if a side failed, 5 if a side's output is wrong, 6 for SLOWER with --fail-on-regression, \
130 interrupted."
)]
pub struct CompareArgs {
    /// The baseline
    #[arg(value_name = "A")]
    pub baseline: String,
    /// The candidate
    #[arg(value_name = "B")]
    pub candidate: String,
    /// Language of the kernels [default: c on a CPU, cuda on a GPU]
    #[arg(long, value_name = "LANGUAGE")]
    pub language: Option<Language>,
    /// Rounds after which it ends at the latest; below 8 there is no verdict [default: as many as the last look needs]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: Option<u32>,
    /// Time after which no further round begins, e.g. 90s, 6m or 1h
    #[arg(long, value_name = "TIME")]
    pub budget: Option<String>,
    /// What is judged: cold_isolated, warm_isolated or warm_batched
    #[arg(long, value_name = "TIMING", default_value = "cold_isolated", value_parser = timing)]
    pub timing: Timing,
    /// Exit with 6 if B is SLOWER
    #[arg(long)]
    pub fail_on_regression: bool,
    /// Refuse to start while another mlarun measures on this host, instead of waiting
    #[arg(long)]
    pub no_wait: bool,
    /// A parameter of the kernels; --NAME=VALUE and --NAME VALUE mean the same (may be repeated)
    #[arg(long = PARAMETER, value_name = "NAME=VALUE")]
    pub parameters: Vec<String>,
}

fn timing(text: &str) -> Result<Timing, String> {
    let named = Timing::ALL.into_iter().find(|timing| timing.name() == text);
    named.ok_or_else(|| format!("there are {}", Timing::ALL.map(Timing::name).join(", ")))
}

/// `mlarun diff`
#[derive(Debug, Clone, Args)]
pub struct DiffArgs {
    /// Key of a run or a subject, or the first digits of it
    #[arg(value_name = "A")]
    pub a: String,
    /// Another one
    #[arg(value_name = "B")]
    pub b: String,
}

/// `mlarun explain`
#[derive(Debug, Clone, Args)]
#[command(after_help = "With --json, a key is explained with everything that it is the hash of.")]
pub struct ExplainArgs {
    /// Manifest, or the key of a run (or the first digits of it)
    #[arg(value_name = "RUN")]
    pub run: String,
    #[command(flatten)]
    pub selection: Selection,
}

/// `mlarun history`
#[derive(Debug, Clone, Args)]
#[command(
    after_help = "A point is one session's median over its processes. Changes of device, driver, clocks, compiler and \
machine code are marked. Numbers of different sessions show where to look; a verdict needs both sides in one session. \
Parameters select shapes, as options of the form --NAME=VALUE, e.g. --s=16 --t=4096."
)]
pub struct HistoryArgs {
    /// Kernel
    pub kernel: String,
    /// Version, e.g. v2 [default: all]
    pub version: Option<String>,
    /// What to follow: cold_isolated (or duration), warm_isolated, warm_batched, sm_mhz, power_w, temperature_c, error,
    /// stage.NAME or counter.NAME
    #[arg(long, value_name = "METRIC", default_value = "duration")]
    pub metric: Metric,
    /// From when on: 2026-03-01, 2026-03-01T04:00, or how long ago, e.g. 12h, 30d, '3 months' [default: all]
    #[arg(long, value_name = "WHEN")]
    pub since: Option<String>,
    /// Language of the kernel [default: all]
    #[arg(long, value_name = "LANGUAGE")]
    pub language: Option<Language>,
    /// Print the points as CSV on standard output
    #[arg(long, conflicts_with = "json")]
    pub csv: bool,
    /// Also write the plot to this file, as an SVG picture
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
    /// A parameter of the shape; --NAME=VALUE and --NAME VALUE mean the same (may be repeated)
    #[arg(long = PARAMETER, value_name = "NAME=VALUE")]
    pub parameters: Vec<String>,
}

/// `mlarun nightly`
#[derive(Debug, Clone, Args)]
#[command(
    after_help = "What an end interrupted goes first, then what one session suspects, what is stale, what was undecided, and \
what is oldest. An alarm needs two sessions. The alarm hook gets the alarms as JSON on standard input and MLARUN_ALARMS, \
MLARUN_NIGHT and MLARUN_REPORT; the alive hook MLARUN_EVENT (begun, ended or failed), MLARUN_NIGHT and, at the end, MLARUN_EXIT. \
Both are commands for /bin/sh and have a minute."
)]
pub struct NightlyArgs {
    /// Experiment manifests
    #[arg(value_name = "MANIFEST", required = true)]
    pub manifests: Vec<PathBuf>,
    /// Time that the night may take, e.g. 3h or 90m
    #[arg(long, value_name = "TIME", default_value = "3h", value_parser = budget)]
    pub budget: jiff::SignedDuration,
    /// Pinned build to measure against (`mlarun pin`)
    #[arg(long, value_name = "NAME", default_value = crate::app::pin::DEFAULT_PIN)]
    pub pin: String,
    /// Exit with 6 while an alarm stands
    #[arg(long)]
    pub fail_on_regression: bool,
    /// Folder for report.md, report.json and report.xml (JUnit) [default: out/nightly/NIGHT]
    #[arg(long, value_name = "FOLDER")]
    pub report: Option<PathBuf>,
    /// Command that is called with new alarms; where it fails, the next night tries again
    #[arg(long, value_name = "COMMAND")]
    pub alarm_hook: Option<String>,
    /// Command that is called when a night begins and when it ends
    #[arg(long, value_name = "COMMAND")]
    pub alive_hook: Option<String>,
    /// Also bring the experiments' reports and the dev logs up to date
    #[arg(long)]
    pub devlog: bool,
    /// Override a manifest key in all of them (may be repeated)
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub sets: Vec<String>,
    /// Only subjects for which this holds, e.g. 'version == "v2" && s == 16'
    #[arg(long, value_name = "EXPRESSION")]
    pub only: Option<String>,
    /// Refuse to start while another mlarun measures on this host, instead of waiting
    #[arg(long)]
    pub no_wait: bool,
}

fn budget(text: &str) -> Result<jiff::SignedDuration, String> {
    let budget: Option<jiff::SignedDuration> = text.parse().ok();
    budget
        .filter(|budget| budget.is_positive())
        .ok_or_else(|| "a time is a number with h, m or s, e.g. 3h or 90m".to_owned())
}

/// `mlarun pin`
#[derive(Debug, Clone, Args)]
#[command(
    after_help = "Sources, tunings and compiled modules are kept below out/pins; what is to be measured should have been run \
before, so that it is tuned and compiled. A pin made again of the same kernels is the same pin."
)]
pub struct PinArgs {
    /// Name of the pin [default: reference]
    pub name: Option<String>,
    /// Put this build in the place of the one that has the name
    #[arg(long, conflicts_with_all = ["list", "remove"])]
    pub replace: bool,
    /// List what is pinned
    #[arg(long, conflicts_with_all = ["name", "remove"])]
    pub list: bool,
    /// Remove the pin
    #[arg(long)]
    pub remove: bool,
}

/// `mlarun cache`
#[derive(Debug, Clone, Args)]
pub struct CacheArgs {
    #[command(subcommand)]
    pub command: CacheCommand,
}

#[derive(Debug, Clone, Subcommand)]
pub enum CacheCommand {
    /// List recorded results
    Ls,
    /// Show one record as it is stored
    Show {
        /// Key of a run or a subject, or the first digits of it
        key: String,
    },
    /// Read every record again and set aside what does not check out
    Verify,
    /// Remove old results; what dev logs refer to stays
    Gc {
        /// Keep what is younger, e.g. 90d
        #[arg(long, value_name = "AGE")]
        keep: Option<String>,
        /// Remove the oldest until the rest is smaller, e.g. 20G
        #[arg(long, value_name = "SIZE")]
        max_size: Option<String>,
        /// Say what would be removed
        #[arg(long)]
        dry_run: bool,
    },
}

/// `mlarun device`
#[derive(Debug, Clone, Args)]
pub struct DeviceArgs {
    #[command(subcommand)]
    pub command: DeviceCommand,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Subcommand)]
pub enum DeviceCommand {
    /// Show the active device, its peaks, and what its verdicts are worth
    Show,
    /// Measure this host's peaks: streaming bandwidth and fused multiply-adds, all cores
    Calibrate,
}

/// `mlarun calibrate`
#[derive(Debug, Clone, Args)]
#[command(
    after_help = "Six kernels of mlarun's own, between 5 us and 5 ms, run in turn, each process a fresh one; those of 100 us \
and more also made slower by 0.5, 1 and 2%. What was gathered is kept under out/store/calibrations, and a later call goes on \
from there. The peaks of a CPU are another matter: `mlarun device calibrate`. docs/verdicts.md explains the numbers."
)]
pub struct CalibrateArgs {
    /// Fresh processes of each kernel, those of earlier sittings included
    #[arg(long, value_name = "COUNT", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub processes: u32,
    /// Gather and do not judge
    #[arg(long, conflicts_with = "judge")]
    pub gather: bool,
    /// Start no further process after this time, e.g. 6m; the next call goes on
    #[arg(long, value_name = "TIME")]
    pub budget: Option<String>,
    /// Run no kernel slower: as many processes of identical code in less time
    #[arg(long)]
    pub identical: bool,
    /// Run nothing, and judge what these files hold, or what this host has gathered
    #[arg(long, value_name = "FILE", num_args = 0.., conflicts_with_all = ["budget", "identical"])]
    pub judge: Option<Vec<PathBuf>>,
    /// Comparisons resampled from the processes, for each kernel and number; the default can show that 1 in 1,000 is wrong at most
    #[arg(long, value_name = "COUNT", default_value_t = 2000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub comparisons: u32,
    /// Also write all processes to one file, for `--judge` elsewhere
    #[arg(long, value_name = "FILE")]
    pub export: Option<PathBuf>,
    /// Refuse to start while another mlarun measures on this host, instead of waiting
    #[arg(long)]
    pub no_wait: bool,
}

/// `mlarun clocks`
#[derive(Debug, Clone, Args)]
#[command(
    after_help = "Runs lock clocks and give them back by themselves, as their manifest says. All GPUs are meant, or the \
one that --device names by its number in `nvidia-smi` or its UUID. Locking needs root, or what docs/operations.md says."
)]
pub struct ClocksArgs {
    #[command(subcommand)]
    pub command: ClocksCommand,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Subcommand)]
pub enum ClocksCommand {
    /// Show clocks, what holds them down, and who has locked them
    Status,
    /// Lock clocks until `mlarun clocks reset`
    Lock {
        /// SM clock in MHz [default: `lock_sm_mhz` of the device in conf/devices.toml]
        #[arg(long, value_name = "MHZ", value_parser = clap::value_parser!(u32).range(1..=100_000))]
        sm_mhz: Option<u32>,
        /// Memory clock in MHz, left alone where it cannot be locked [default: `lock_mem_mhz` in conf/devices.toml, if any]
        #[arg(long, value_name = "MHZ", value_parser = clap::value_parser!(u32).range(1..=100_000))]
        mem_mhz: Option<u32>,
    },
    /// Give clocks back, whoever has locked them, unless a run is measuring at them
    Reset {
        /// Only what a run that is gone has left locked
        #[arg(long)]
        stale: bool,
    },
}

/// `mlarun new-version`
#[derive(Debug, Clone, Args)]
pub struct NewVersionArgs {
    /// Kernel
    pub kernel: String,
    /// Version to clone
    pub from: String,
    /// Version to create
    pub to: String,
    /// Language of the kernel
    #[arg(long, value_name = "LANGUAGE", default_value = "c")]
    pub language: Language,
}
