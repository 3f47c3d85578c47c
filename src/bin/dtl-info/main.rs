//! dtl-info: what this library finds on this machine, and what it would choose and why.
//!
//! `facts` asks the library, `environment` looks at the variables, `text` and `json` write. It opens
//! no communicator and allocates nothing on a device.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program speaks to its user")]

mod environment;
mod facts;
mod json;
mod text;

use clap::Parser;
use std::io::{ErrorKind, Write};
use std::process::ExitCode;

const AFTER: &str = "\
Exit status: 0, or 1 if what the environment asks for cannot be had (the reason is on standard error).

Keys of --json: version, abi_version, licence; machine: {hostname, cpus_online, cpus_allowed: \
[number], cpu_quota_milli (thousandths of a CPU), cores, threads_per_core, sockets, numa_nodes, \
l1d_bytes, l2_bytes, l3_bytes, memory_bytes, memory_limit_bytes}; backends: [{name, available, reason, builtin, \
auto_priority (null = never chosen), components, devices: [{index, name, kind, compute_units, \
total_bytes, free_bytes, numa_node, pci}], memory_kinds: [{kind, name, alignment_bytes, properties}]}]; \
default_backend: {name, why, error}; communicator: {kind, why, error, launcher, rank, size}.

Keys of --env --json: variables: [{name, meaning, value, origin}]; complaints: [text]; error. Keys are \
only ever added; what is not known is null.";

/// Show backends, devices, memory, and what would be chosen here and why.
#[derive(Parser)]
#[command(name = "dtl-info", version, after_help = AFTER, max_term_width = 100)]
struct Options {
    /// Show the environment variables that the library reads instead
    #[arg(long)]
    env: bool,

    /// Write JSON
    #[arg(long)]
    json: bool,
}

fn main() -> ExitCode {
    let options = Options::parse();
    let (report, errors) = if options.env { environment(options.json) } else { machine(options.json) };
    if let Err(error) = std::io::stdout().write_all(report.as_bytes()) {
        // `dtl-info | head` is no failure.
        if error.kind() != ErrorKind::BrokenPipe {
            eprintln!("dtl-info: standard output: {error}");
            return ExitCode::FAILURE;
        }
    }
    for error in &errors {
        eprintln!("dtl-info: {error}");
    }
    if errors.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The report on the variables and the errors in them.
fn environment(as_json: bool) -> (String, Vec<String>) {
    let environment = environment::read();
    let report = if as_json { json::environment(&environment) } else { text::environment(&environment) };
    (report, environment.error.into_iter().collect())
}

/// The report on this machine and what could not be chosen.
fn machine(as_json: bool) -> (String, Vec<String>) {
    match facts::gather() {
        Ok(facts) => {
            let report = if as_json { json::facts(&facts) } else { text::facts(&facts) };
            let choices = [facts.backend.err(), facts.communicator.err()];
            (report, choices.into_iter().flatten().collect())
        }
        Err(error) => (String::new(), vec![error.to_string()]),
    }
}
