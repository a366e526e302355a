//! `mlarun --replay FILE`: a recorded call again, from its recording alone.

use std::path::{Path, PathBuf};

use super::args::Global;
use super::carry_out::{How, Sources, carry_out, say};
use super::context::{self, Opened};
use super::exit::{CliError, Exit};
use super::run::bench_error;
use crate::app::{self, Replayed, Tape};
use crate::plan::Wanted;
use crate::recording::Recording;

pub fn run(global: &Global, file: &Path) -> Result<Exit, CliError> {
    if global.root.is_some() || global.device.is_some() || global.clocks.is_some() {
        return Err(CliError::usage(
            "a replay has the project, the device and the clocks of its recording; leave --root, --device and --clocks out",
        ));
    }
    let recording = Recording::read(file).map_err(CliError::usage)?;
    let out = match &global.out {
        Some(out) => out.clone(),
        None => PathBuf::from(file.with_extension("replay").file_name().unwrap_or("replay".as_ref())),
    };
    let header = &recording.header;
    say(global, &format!("{}: recorded {} by mlarun {}", file.display(), header.recorded_at, header.mlarun));
    if recording.cut_short {
        say(global, "warning: the recording was cut short; what it does not hold fails");
    }
    let Replayed { project, manifest, machine, ledger, replayer } =
        app::set_up(&recording, &out).map_err(CliError::usage)?;
    let opened = Opened { project, machine, ledger };
    let call = &recording.call;
    let kind = opened.machine.host.device.id.kind;
    let (experiment, _) = context::resolve(&manifest, &call.sets, &opened.project, kind)?;
    let only = context::filter(call.only.as_deref())?;
    let wanted = Wanted { only: only.as_ref(), remeasure: call.remeasure, dev_logs: true, ..Wanted::default() };
    let bench = opened.workspace().plan(experiment, wanted).map_err(bench_error)?;
    let session = recording.session.as_ref();
    let tape = session.map(|session| Tape::Replay { session, replayer: &replayer });
    if tape.is_none() && bench.plan.counts().to_do() > 0 {
        return Err(CliError::usage(format!(
            "{}: holds nothing that was measured; it was cut short, or made by a mlarun with other keys",
            file.display()
        )));
    }
    let how = How { fail_fast: call.fail_fast, devlog_add: call.devlog_add, fail_on_regression: false };
    let interrupted = context::interruptible()?;
    carry_out(global, Sources { opened: &opened, lease: None, tape }, bench, wanted, how, &interrupted)
}
