//! dtl-info: reports the backends and devices that the library finds on this machine, the choices
//! that the library makes automatically, and the reasons for these choices.
//!
//! `facts` queries the library through its safe interface, `environment` reads the environment
//! variables, `plugins` and `manifest` examine plugin files, `probe` loads one in a child process,
//! `text` and `json` write the reports, `copies` exchanges messages in a job. The program does not
//! allocate device memory. `new_backend` writes the sources of a plugin, `explain` shows manual pages.

mod copies;
mod environment;
mod explain;
mod facts;
mod json;
mod library;
mod manifest;
mod new_backend;
mod plugins;
mod probe;
mod text;

use clap::error::{ContextKind, ContextValue};
use clap::{Parser, Subcommand};
use dtl::tooling::settings;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

const AFTER: &str = "\
Exit status: 0, or 1 if what the environment asks for cannot be had (the reason is on standard \
error). \
Of --probe: 0 usable, 1 refused, 3 crashed or ended the process, 4 not done in time.

Keys of --json: version, abi_version, licence; machine: {hostname, cpus_online, cpus_allowed: \
[number], cpu_quota_milli (thousandths of a CPU), cores, threads_per_core, sockets, numa_nodes, \
l1d_bytes, l2_bytes, l3_bytes, memory_bytes, memory_limit_bytes}; backends: [{name, available, \
reason, builtin, \
plugin (its file), auto_priority (null = never chosen), components, devices: [{index, name, kind, \
compute_units, \
total_bytes, free_bytes, numa_node, pci}], memory_kinds: [{kind, name, alignment_bytes, \
properties}]}]; plugins: [{path, origin, \
state (loaded, failed, idle), status, reason, name, version, description, abi_version, backends: \
[name]}]; \
environments: [{name, version, state (idle, starting, started, stopping, failed, unknown), \
available, reason, depends: [text], \
backends: [name]}]; default_backend: {name, why, error}; communicator: {kind, why, error, \
launcher, rank, size}.

Keys of --plugins --json: folders: [{path, origin, fault}]; plugins: [{path, origin, manifest: \
{name, version, \
description, file, entry, abi: [lowest, highest], components, environments}, manifest_error, \
fault}].

Keys of --probe --json: path, result (ok, refused, crashed, hung), step (what was going on), \
signal, status, \
reason, plugin: {name, version, description, abi_version, backends: [{name, components, available, \
reason}]}.

Keys of --env --json: variables: [{name, meaning, value, origin}]; complaints: [text]; error. Keys \
are \
only ever added; what is not known is null.";

/// Show backends, devices, memory, and what would be chosen here and why.
#[derive(Parser)]
#[command(name = "dtl-info", version, after_help = AFTER, max_term_width = 100)]
#[command(args_conflicts_with_subcommands = true)]
struct Options {
    #[command(subcommand)]
    command: Option<Command>,

    /// Show only the environment variables that the library reads
    #[arg(long)]
    env: bool,

    /// Show the plugin files of DTL_PLUGIN_PATH and of the installed folder, and what their
    /// manifests say, without loading them
    #[arg(long, conflicts_with = "env")]
    plugins: bool,

    /// Exchange messages between the ranks of a job, and show by which method the library copies
    /// them and the measured rates: dtlrun -n 2 dtl-info --copies
    #[arg(long, conflicts_with_all = ["env", "plugins", "probe", "json"])]
    copies: bool,

    /// Load a plugin file in a child process and report the result in one line
    #[arg(long, value_name = "FILE", conflicts_with_all = ["env", "plugins"])]
    probe: Option<PathBuf>,

    /// How long the probe may take
    #[arg(long, value_name = "TIME", default_value = "10s", requires = "probe")]
    time_limit: String,

    /// The process of its own
    #[arg(long, value_name = "FILE", hide = true)]
    probe_child: Option<PathBuf>,

    /// Write JSON
    #[arg(long)]
    json: bool,
}

#[derive(Subcommand)]
enum Command {
    /// Write the sources of a new backend: a plugin that compiles and loads, with a comment on each
    /// slot
    NewBackend(new_backend::Options),
    /// Explain a status, a function, a type, a constant or an environment variable
    Explain(explain::Options),
}

fn main() -> ExitCode {
    manual::programs::generate::<Options>();
    let options = Options::try_parse().unwrap_or_else(|error| with_usage(error).exit());
    if let Some(file) = &options.probe_child {
        probe::child(file);
        return ExitCode::SUCCESS;
    }
    let (report, errors, status) = match &options.probe {
        Some(file) => probed(file, &options),
        None => {
            let (report, errors) = reported(&options);
            let status = u8::from(!errors.is_empty());
            (report, errors, status)
        }
    };
    if let Err(error) = std::io::stdout().write_all(report.as_bytes()) {
        // `dtl-info | head` is no failure.
        if error.kind() != ErrorKind::BrokenPipe {
            complain(&format!("standard output: {error}"));
            return ExitCode::FAILURE;
        }
    }
    errors.iter().for_each(|error| complain(error));
    ExitCode::from(status)
}

/// Adds the usage line of --probe to an error about its FILE argument.
fn with_usage(mut error: clap::Error) -> clap::Error {
    const PROBE: &str = "Usage: dtl-info --probe FILE [--time-limit TIME], for example:\n  \
        dtl-info --probe ./libmine.so --time-limit 2s";
    let argument = error.get(ContextKind::InvalidArg).map(ToString::to_string);
    if argument.is_some_and(|argument| argument.contains("--probe")) {
        error.insert(ContextKind::Usage, ContextValue::StyledStr(PROBE.into()));
    }
    error
}

/// Prints a line to standard error; ignores a failed write.
fn complain(text: &str) {
    drop(writeln!(std::io::stderr(), "dtl-info: {text}"));
}

/// Returns the report that the options select, and the error messages. If there is no report, it is
/// empty.
fn reported(options: &Options) -> (String, Vec<String>) {
    let report = if let Some(command) = &options.command {
        match command {
            Command::NewBackend(what) => new_backend::run(what),
            Command::Explain(what) => explain::run(what),
        }
    } else if options.copies {
        copies::report().map_err(|error| library::shown(&error))
    } else if options.plugins {
        plugin_files(options.json).map_err(|error| library::shown(&error))
    } else if options.env {
        return environment(options.json);
    } else {
        return machine(options.json);
    };
    report.map_or_else(|error| (String::new(), vec![error]), |text| (text, Vec::new()))
}

/// Loads a plugin file in a child process (--probe). Returns the report, the error messages and the
/// exit status.
fn probed(file: &Path, options: &Options) -> (String, Vec<String>, u8) {
    let report = settings::duration("--time-limit", &options.time_limit)
        .map_err(|error| error.text().to_owned())
        .and_then(|limit| {
            probe::run(file, Duration::from_nanos(limit))
                .map_err(|error| format!("the child process: {error}"))
        });
    match report {
        Ok(report) if options.json => (report.json(), Vec::new(), report.verdict as u8),
        Ok(report) => (report.line(), Vec::new(), report.verdict as u8),
        Err(error) => (String::new(), vec![error], 2),
    }
}

/// Returns the report on the plugin files.
fn plugin_files(as_json: bool) -> dtl_binding::Result<String> {
    let listing = plugins::list()?;
    Ok(if as_json { json::plugins(&listing) } else { text::listing(&listing) })
}

/// Returns the report on the environment variables, and the error about the first rejected value,
/// if any.
fn environment(as_json: bool) -> (String, Vec<String>) {
    let environment = environment::read();
    let report =
        if as_json { json::environment(&environment) } else { text::environment(&environment) };
    (report, environment.error.into_iter().collect())
}

/// Returns the report on this machine, and an error message for each failed choice (of the default
/// backend or of the communicator kind). If the library cannot be initialized, returns an empty
/// report and the error message.
fn machine(as_json: bool) -> (String, Vec<String>) {
    match facts::gather() {
        Ok(facts) => {
            let report = if as_json { json::facts(&facts) } else { text::facts(&facts) };
            let choices = [facts.backend.err(), facts.communicator.err()];
            (report, choices.into_iter().flatten().collect())
        }
        Err(error) => (String::new(), vec![library::shown(&error)]),
    }
}
