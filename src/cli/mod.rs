//! The command line: arguments in, exit code out. Everything that is printed is printed here.

mod args;
mod cache;
mod calibrate;
mod carry_out;
mod check;
mod clocks;
mod compare;
mod context;
mod device;
mod devlog;
mod diff;
mod exit;
mod explain;
mod history;
mod list;
mod new_version;
mod nightly;
mod output;
mod pin;
mod plan;
mod profile;
mod progress;
mod replay;
mod report;
mod run;
mod show;
mod verify;

use std::ffi::OsString;
use std::process::ExitCode;
use std::sync::Arc;

use clap::{CommandFactory as _, FromArgMatches as _};

use args::{Cli, Command};
use exit::{CliError, Exit};

/// Runs the program with the process's arguments.
pub fn main() -> ExitCode {
    // A write beyond a limit on the size of files is then an error with words, as one on a full disk is.
    let _ = signal_hook::flag::register(rustix::process::Signal::XFSZ.as_raw(), Arc::default());
    let arguments: Vec<OsString> = std::env::args_os().collect();
    // The worker's path is short: no argument parsing before its clock-critical work.
    if arguments.get(1).is_some_and(|argument| argument == "__worker") {
        return crate::worker::main();
    }
    if arguments.get(1).is_some_and(|argument| argument == crate::backend::GUARD) {
        return crate::backend::guard(arguments.into_iter().skip(2));
    }
    if arguments.get(1).is_some_and(|argument| argument == crate::device::clocks::WATCH) {
        return crate::device::clocks::watch();
    }
    if let Some(message) = args::mistyped_command(&arguments) {
        return output::report_error(&CliError::usage(message), args::ColorWhen::Auto).into();
    }
    let matches = Cli::command().try_get_matches_from(args::with_parameters(arguments));
    let cli = match matches.and_then(|matches| Cli::from_arg_matches(&matches)) {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version are no mistakes, and go to standard output.
            let exit = if error.use_stderr() { Exit::Usage } else { Exit::Success };
            return if error.print().is_ok() { exit.into() } else { Exit::Internal.into() };
        }
    };
    let color = cli.global.color;
    match dispatch(cli) {
        Ok(exit) => exit.into(),
        Err(error) => output::report_error(&error, color).into(),
    }
}

fn dispatch(cli: Cli) -> Result<Exit, CliError> {
    let global = &cli.global;
    if cli.command.is_some() && cli.run != args::RunArgs::default() {
        return Err(CliError::usage(
            "manifests and options of a run stand before a command; put them behind it, or leave the command out",
        ));
    }
    match cli.command {
        None => run::run(global, &cli.run),
        Some(Command::Run(args)) => run::run(global, &args),
        Some(Command::Plan(args)) => plan::run(global, &args),
        Some(Command::Check(args)) => check::run(global, &args),
        Some(Command::Profile(args)) => profile::run(global, &args),
        Some(Command::Verify(args)) => verify::run(global, &args),
        Some(Command::Report(args)) => report::run(global, &args),
        Some(Command::Devlog(args)) => devlog::run(global, &args),
        Some(Command::List(args)) => list::run(global, &args),
        Some(Command::Show(args)) => show::run(global, &args),
        Some(Command::Compare(args)) => compare::run(global, &args),
        Some(Command::Diff(args)) => diff::run(global, &args),
        Some(Command::Explain(args)) => explain::run(global, &args),
        Some(Command::History(args)) => history::run(global, &args),
        Some(Command::Nightly(args)) => nightly::run(global, &args),
        Some(Command::Pin(args)) => pin::run(global, &args),
        Some(Command::Cache(args)) => cache::run(global, &args),
        Some(Command::Device(args)) => device::run(global, &args),
        Some(Command::Calibrate(args)) => calibrate::run(global, &args),
        Some(Command::NewVersion(args)) => new_version::run(global, &args),
        Some(Command::Schema) => {
            output::json(&crate::manifest::json_schema())?;
            Ok(Exit::Success)
        }
        Some(Command::Completions { shell }) => {
            clap_complete::generate(shell, &mut Cli::command(), "mlarun", &mut std::io::stdout());
            Ok(Exit::Success)
        }
        Some(Command::Clocks(args)) => clocks::run(global, &args),
        Some(Command::Worker | Command::ClockWatch) => Ok(Exit::Usage),
    }
}
