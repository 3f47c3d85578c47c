//! Starts the processes of the ranks, with their environment, standard streams and processor
//! binding.

use crate::Failure;
use crate::options::{Bind, Options};
use crate::output;
use std::ffi::OsStr;
use std::fs::File;
use std::io::ErrorKind;
use std::process::{Child, Command, Stdio};
use subprocess::{Setup, allowed_cpus, prepare, random_u64};

/// Process of a rank.
pub(crate) struct Rank {
    /// Number in messages and prefixes: its rank, or the next free number if it was started later.
    pub(crate) number: u32,
    pub(crate) child: Child,
    /// True if the process is not known to have ended.
    pub(crate) runs: bool,
}

/// Job whose ranks are started.
pub(crate) struct Job<'a> {
    pub(crate) name: &'a str,
    pub(crate) size: u32,
    /// Kind of the communicator that the ranks open; `None` if the environment determines it.
    pub(crate) kind: Option<&'a str>,
    /// Name of the socket for requests; empty if there is none.
    pub(crate) launcher: &'a str,
}

/// Rank to start, and the number of its process.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    pub(crate) rank: u32,
    pub(crate) number: u32,
}

/// Starts ranks of a job. If one of them cannot be started, kills those that were already started.
pub(crate) fn start(
    options: &Options,
    job: &Job<'_>,
    places: &[Place],
) -> Result<Vec<Rank>, Failure> {
    let Some((program, arguments)) = options.command.split_first() else {
        return Err(Failure { text: "no program named".to_string(), code: 125 });
    };
    let cpus = cpus(options)?;
    let mut ranks: Vec<Rank> = Vec::new();
    for &Place { rank, number } in places {
        let mut command = Command::new(program);
        command.args(arguments);
        for (name, value) in [("RANK", rank), ("LOCAL_RANK", rank), ("SIZE", job.size)] {
            command.env(format!("DTL_{name}"), value.to_string());
        }
        command.env("DTL_LOCAL_SIZE", job.size.to_string()).env("DTL_JOB", job.name);
        command.env("DTL_LAUNCHER", job.launcher);
        command.envs(job.kind.map(|kind| ("DTL_COMM", kind)));
        command.stdin(if number == 0 { Stdio::inherit() } else { Stdio::null() });
        if options.prefix {
            command.stdout(Stdio::piped()).stderr(Stdio::piped());
        } else if output::was_closed() {
            command.stdout(no_output()?);
        }
        let setup = Setup { cpu: cpus.get(number as usize).copied(), ..Setup::default() };
        prepare(&mut command, setup);
        match command.spawn() {
            Ok(child) => ranks.push(Rank { number, child, runs: true }),
            Err(error) => {
                end(&mut ranks);
                return Err(not_started(program, &error));
            }
        }
    }
    Ok(ranks)
}

/// Returns the standard output for the ranks if standard output of dtlrun is closed: /dev/null,
/// opened for reading only. Writes to it fail, as writes to a closed descriptor do. However, its
/// descriptor number is in use, so that the next file that a rank opens does not get this number.
/// (Rust's runtime has opened /dev/null for the other two streams.)
fn no_output() -> Result<Stdio, Failure> {
    File::open("/dev/null").map(Stdio::from).map_err(|error| Failure::own("/dev/null", &error))
}

/// Kills the processes of the ranks that were already started when the start of another rank
/// failed.
fn end(ranks: &mut [Rank]) {
    for rank in ranks {
        // A process that has ended by itself needs neither.
        let _ = rank.child.kill();
        let _ = rank.child.wait();
    }
}

fn not_started(program: &OsStr, error: &std::io::Error) -> Failure {
    let program = program.to_string_lossy();
    let (why, code) = match error.kind() {
        ErrorKind::NotFound if program.contains('/') => ("there is no such program".into(), 127),
        ErrorKind::NotFound => {
            (format!("program not found; check the name, or give a path as ./{program}"), 127)
        }
        ErrorKind::PermissionDenied => (format!("cannot be run: {error}; is it executable?"), 126),
        _ => (format!("cannot be run: {error}"), 126),
    };
    Failure { text: format!("{program}: {why}"), code }
}

pub(crate) fn job_name() -> std::io::Result<String> {
    Ok(format!("dtlrun-{:016x}{:016x}", random_u64()?, random_u64()?))
}

/// Returns the processors to which the ranks are bound, in rank order; empty if ranks are not
/// bound.
fn cpus(options: &Options) -> Result<Vec<usize>, Failure> {
    if options.bind == Bind::None {
        return Ok(Vec::new());
    }
    let allowed = allowed_cpus().map_err(|error| Failure::own("processors", &error))?;
    // One hardware thread of each core.
    let cores: Vec<usize> =
        allowed.iter().copied().filter(|&cpu| is_first_of_core(cpu, &allowed)).collect();
    if cores.len() < options.ranks as usize {
        return Err(Failure {
            text: format!(
                "--bind=core: {} ranks but {} cores; start fewer ranks or use --bind=none",
                options.ranks,
                cores.len()
            ),
            code: 125,
        });
    }
    Ok(cores)
}

/// Returns true if no allowed processor with a lower number is on the same core.
fn is_first_of_core(cpu: usize, allowed: &[usize]) -> bool {
    let path = format!("/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
    // Without that file every processor counts as a core.
    let list = std::fs::read_to_string(path).unwrap_or_default();
    !siblings(list.trim()).any(|other| other < cpu && allowed.contains(&other))
}

/// Parses a list of numbers such as "0-1,8".
fn siblings(list: &str) -> impl Iterator<Item = usize> + '_ {
    list.split(',').flat_map(|part| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        match (first.parse::<usize>(), last.parse::<usize>()) {
            (Ok(first), Ok(last)) => first..last.saturating_add(1),
            _ => 0..0,
        }
    })
}

#[cfg(test)]
#[path = "tests/ranks.rs"]
mod tests;
