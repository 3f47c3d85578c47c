//! Rank, size, node and job of this process, from the launcher's environment variables.
//!
//! The first match wins: DTL_* (`dtlrun`), OMPI_COMM_WORLD_* (Open MPI), PMI_* (Hydra: MPICH, Intel
//! MPI), SLURM_* (inside a job step only). Only variables are read. PMI itself is not used: a
//! process that starts a PMI exchange and does not complete it aborts the whole job.

use crate::error::{Error, Result, fail, failure};
use crate::runtime::component::{PendingRanks, Watch};
use crate::sys::os::process;
use crate::sys::sync::wait::{self, Deadline};
use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::AsRawFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};

/// Position of this process in its job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launch {
    /// Rank in the job, 0 to size - 1.
    pub rank: i32,
    /// Number of ranks in the job.
    pub size: i32,
    /// Rank among the ranks on this node.
    pub local_rank: i32,
    /// Number of ranks on this node; 0 if the launcher does not report it.
    pub local_size: i32,
    /// Name that all ranks of the job share and no other job on the node has; empty if unknown.
    pub job: String,
    /// Name of the launcher: "dtlrun", "Open MPI", "Hydra" or "Slurm".
    pub launcher: &'static str,
}

impl Launch {
    /// Returns true if the whole job is known to run on this node.
    pub fn is_one_node(&self) -> bool {
        self.local_size == self.size
    }
}

/// Reads the environment of this process. Returns `None` if no launcher started the process.
pub fn from_environment() -> Result<Option<Launch>> {
    read(&|name| std::env::var(name).ok(), &manager_key)
}

/// Reads environment variables through the function `variable`. `manager` returns a string that
/// identifies the process manager of a Hydra job; its argument is the file descriptor of the PMI
/// socket, if there is one.
pub fn read(
    variable: &dyn Fn(&str) -> Option<String>,
    manager: &dyn Fn(Option<i32>) -> String,
) -> Result<Option<Launch>> {
    let env = Env { variable };
    for reader in [dtl, open_mpi, hydra, slurm] {
        if let Some(launch) = reader(&env, manager)? {
            return Ok(Some(launch));
        }
    }
    Ok(None)
}

/// Prefix of the names of the jobs that `dtl_comm_grow` creates.
pub const GROWN: &str = "grow-";

/// Returns true if MPI has started this process for a call of `dtl_comm_grow`. Such a process has
/// no DTL_RANK, because MPI determines its rank.
pub fn is_of_mpi() -> bool {
    let env = Env { variable: &|name| std::env::var(name).ok() };
    let is_grown = env.text("DTL_JOB").is_some_and(|job| job.starts_with(GROWN));
    is_grown && env.text("DTL_RANK").is_none()
}

/// Requests new processes of the program from the launcher: ranks `first` to `size` - 1 of a new
/// job of `size` ranks. `kind` is the kind of their communicator. They must begin to open it within
/// `limit_ns` nanoseconds. Does not wait for them.
pub fn start_ranks(
    job: &str,
    (first, size): (i32, i32),
    kind: &str,
    limit_ns: u64,
) -> Result<Box<dyn PendingRanks>> {
    let Some(name) = launcher() else {
        return fail!(
            DTL_ERROR_NOT_SUPPORTED,
            "no launcher that starts processes (DTL_LAUNCHER is not set): start the job with \
             dtlrun, or start the processes yourself and let all ranks open a communicator under \
             another job name"
        );
    };
    let request = format!("start {job} {first} {size} {kind}");
    let mut launcher = LauncherSession::begin(&name, &request, limit_ns)?;
    launcher.missing = (first..size).collect();
    Ok(Box::new(launcher))
}

/// In a process that a call of `dtl_comm_grow` has started: waits until all ranks may open the
/// communicator, for `limit_ns` nanoseconds at most. Has no effect in other processes.
pub fn join(launch: &Launch, limit_ns: u64) -> Result<()> {
    let Some(name) = launcher().filter(|_| launch.job.starts_with(GROWN)) else { return Ok(()) };
    let line = format!("join {} {}", launch.job, launch.rank);
    let reply = LauncherSession::begin(&name, &line, limit_ns)
        .and_then(|mut launcher| launcher.next(&|| Ok(())));
    match reply.map_err(|error| error.within("waiting for the ranks that started this process"))? {
        line if line == "go" => Ok(()),
        why => fail!(DTL_ERROR_INVALID_STATE, "job \"{}\": {why}", launch.job),
    }
}

/// Returns the name of the launcher's socket.
fn launcher() -> Option<String> {
    std::env::var("DTL_LAUNCHER").ok().filter(|name| !name.is_empty())
}

/// Fails if a line of the launcher reports that the process of a new rank has ended.
fn fail_if_ended(line: &str) -> Result<()> {
    line.strip_prefix("ended ").map_or(Ok(()), |how| {
        fail!(
            DTL_ERROR_UNAVAILABLE,
            "the process of new rank {how} before all new ranks opened the communicator"
        )
    })
}

/// Connection to the launcher, on which both sides write lines.
struct LauncherSession {
    stream: BufReader<UnixStream>,
    /// Part of the next line that has arrived.
    line: String,
    /// New ranks that have not begun to open the communicator.
    missing: Vec<i32>,
    limit_ns: u64,
    deadline: Deadline,
}

impl LauncherSession {
    /// Connects to the launcher's socket and writes a line. All reads of the session together may
    /// take `limit_ns` nanoseconds.
    fn begin(name: &str, line: &str, limit_ns: u64) -> Result<Self> {
        let connect = || {
            let stream = UnixStream::connect_addr(&SocketAddr::from_abstract_name(name)?)?;
            if process::peer_of(stream.as_raw_fd())?.uid != process::own_uid() {
                return Err(io::Error::other("the socket belongs to another user"));
            }
            writeln!(&stream, "{line}")?;
            stream.set_nonblocking(true).map(|()| BufReader::new(stream))
        };
        let stream = connect()
            .map_err(|error| no_reply(&error).within(&format!("DTL_LAUNCHER=\"{name}\"")))?;
        let (line, missing, deadline) = (String::new(), Vec::new(), Deadline::after(limit_ns));
        Ok(LauncherSession { stream, line, missing, limit_ns, deadline })
    }

    /// Returns the launcher's next line without its line feed. Fails at the time limit, or if
    /// `watch` fails.
    fn next(&mut self, watch: &dyn Fn() -> Result<()>) -> Result<String> {
        let millis = self.limit_ns / 1_000_000;
        let line = wait::poll(self.deadline, || match self.poll()? {
            None => watch().map(|()| None),
            line => Ok(line),
        })?;
        line.ok_or_else(|| {
            failure!(DTL_ERROR_TIMEOUT, "no message from the launcher within {millis} ms")
        })
    }

    /// Returns the launcher's next line without its line feed; `None` if it has not arrived.
    fn poll(&mut self) -> Result<Option<String>> {
        match self.stream.read_line(&mut self.line) {
            Ok(_) if self.line.ends_with('\n') => {
                Ok(Some(std::mem::take(&mut self.line).trim_end().to_owned()))
            }
            Ok(_) => Err(no_reply(&io::ErrorKind::UnexpectedEof.into())),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(no_reply(&error)),
        }
    }

    /// Writes a line, including its line feed, in one write.
    fn write(&self, line: &str) -> Result<()> {
        let mut stream = self.stream.get_ref();
        stream.write_all(line.as_bytes()).map_err(|error| no_reply(&error))
    }
}

impl PendingRanks for LauncherSession {
    fn gather(&mut self, watch: &Watch) -> Result<()> {
        let line = self.next(&**watch)?;
        if line != "started" {
            return fail!(DTL_ERROR_UNAVAILABLE, "the launcher has started no processes: {line}");
        }
        while !self.missing.is_empty() {
            let what = format!("new ranks {:?} have not opened the communicator", self.missing);
            let line = self.next(&**watch).map_err(|error| error.within(&what))?;
            fail_if_ended(&line)?;
            self.missing.retain(|rank| line != format!("joined {rank}"));
        }
        Ok(())
    }

    fn admit(&mut self) -> Result<Option<u64>> {
        self.write("go\n").map(|()| None)
    }

    fn check(&mut self) -> Result<()> {
        // Errors are ignored: a launcher that has closed the connection reports nothing more.
        while let Ok(Some(line)) = self.poll() {
            fail_if_ended(&line)?;
        }
        Ok(())
    }

    fn settle(&mut self) {
        // Errors are ignored: a launcher that has ended cannot end the processes.
        let _ = self.write("ok\n");
    }
}

fn no_reply(error: &io::Error) -> Error {
    failure!(
        DTL_ERROR_NOT_SUPPORTED,
        "the launcher does not reply: {error}; is dtlrun still running?"
    )
}

/// Returns a string that identifies the process manager of a Hydra job. Hydra passes no job id. Its
/// proxy on this node is the peer of the PMI socket. Without a PMI socket, the parent process is
/// the best guess. The guess is wrong under `mpirun sh -c`, where each rank has its own parent.
fn manager_key(pmi_fd: Option<i32>) -> String {
    let peer = pmi_fd.and_then(|fd| process::peer_of(fd).ok()).map(|peer| peer.pid);
    let pid = peer.filter(|&pid| pid > 0).unwrap_or_else(process::parent_pid);
    // With the start time, a process id that is reused later does not identify the same job.
    format!("{pid}-{}", process::start_time(pid).unwrap_or(0))
}

type Manager<'a> = &'a dyn Fn(Option<i32>) -> String;

fn dtl(env: &Env<'_>, _: Manager<'_>) -> Result<Option<Launch>> {
    let Some((rank, size)) = env.rank_of("DTL_RANK", "DTL_SIZE")? else {
        return Ok(None);
    };
    // A job that was started by hand, without the local variables, is taken to run on one node.
    let local = env.rank_of("DTL_LOCAL_RANK", "DTL_LOCAL_SIZE")?.unwrap_or((rank, size));
    let job = env.text("DTL_JOB").unwrap_or_default();
    launch((rank, size), local, job, "dtlrun")
}

fn open_mpi(env: &Env<'_>, manager: Manager<'_>) -> Result<Option<Launch>> {
    let Some(whole) = env.rank_of("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE")? else {
        return Ok(None);
    };
    let local =
        env.rank_of("OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE")?.unwrap_or(UNKNOWN);
    let job = env.text("PMIX_NAMESPACE").unwrap_or_else(|| manager(None));
    launch(whole, local, format!("pmix-{job}"), "Open MPI")
}

fn hydra(env: &Env<'_>, manager: Manager<'_>) -> Result<Option<Launch>> {
    let Some(whole) = env.rank_of("PMI_RANK", "PMI_SIZE")? else {
        return Ok(None);
    };
    let local = env.rank_of("MPI_LOCALRANKID", "MPI_LOCALNRANKS")?.unwrap_or(UNKNOWN);
    let key = manager(env.integer("PMI_FD")?);
    launch(whole, local, format!("hydra-{key}"), "Hydra")
}

/// First of the step ids that Slurm reserves for the batch script, the interactive shell and so on.
/// In such a step, the environment also contains a rank and a size, although the step does not run
/// that number of tasks.
const SLURM_FIRST_SPECIAL_STEP: u32 = 0xFFFF_FFF0;

fn slurm(env: &Env<'_>, _: Manager<'_>) -> Result<Option<Launch>> {
    let Some(step) = env.text("SLURM_STEP_ID") else {
        return Ok(None);
    };
    match step.parse::<u32>() {
        Ok(id) if id >= SLURM_FIRST_SPECIAL_STEP => return Ok(None),
        Ok(_) => {}
        Err(_) => return malformed("SLURM_STEP_ID", &step, "the number of a job step"),
    }
    let total = if env.text("SLURM_STEP_NUM_TASKS").is_some() {
        "SLURM_STEP_NUM_TASKS"
    } else {
        "SLURM_NTASKS"
    };
    let Some(whole) = env.rank_of("SLURM_PROCID", total)? else {
        return Ok(None);
    };
    let local = match env.integer("SLURM_LOCALID")? {
        Some(rank) => (rank, slurm_tasks_here(env)?),
        None => UNKNOWN,
    };
    let job = format!("slurm-{}-{step}", env.text("SLURM_JOB_ID").unwrap_or_default());
    launch(whole, local, job, "Slurm")
}

/// Returns the number of tasks that the Slurm job step runs on this node, from a list like
/// "4(x2),3"; 0 = unknown.
fn slurm_tasks_here(env: &Env<'_>) -> Result<i32> {
    const NAME: &str = "SLURM_STEP_TASKS_PER_NODE";
    let (Some(list), Some(node)) = (env.text(NAME), env.integer("SLURM_NODEID")?) else {
        return Ok(0);
    };
    let mut node = node;
    for entry in list.split(',') {
        let (count, times) =
            entry.strip_suffix(')').and_then(|e| e.split_once("(x")).unwrap_or((entry, "1"));
        let (Ok(count), Ok(times)) = (count.parse::<u16>(), times.parse::<u16>()) else {
            return malformed(NAME, &list, "a list as \"4(x2),3\"");
        };
        if node < i32::from(times) {
            return Ok(count.into());
        }
        node -= i32::from(times);
    }
    malformed(NAME, &list, "an entry for the node of SLURM_NODEID")
}

/// Values of the node-local rank and of the number of ranks on this node if the launcher does not
/// report them.
const UNKNOWN: (i32, i32) = (0, 0);

fn launch(
    whole: (i32, i32),
    local: (i32, i32),
    job: String,
    launcher: &'static str,
) -> Result<Option<Launch>> {
    let ((rank, size), (local_rank, local_size)) = (whole, local);
    if local_size > size || (local_size > 0 && local_rank >= local_size) {
        return fail!(
            DTL_ERROR_INVALID_ARGUMENT,
            "environment of {launcher}: local rank {local_rank} of {local_size} and rank {rank} of \
             {size} contradict each other; unset the variables of another launcher"
        );
    }
    Ok(Some(Launch { rank, size, local_rank, local_size, job, launcher }))
}

fn malformed<T>(name: &str, value: &str, wanted: &str) -> Result<T> {
    fail!(
        DTL_ERROR_INVALID_ARGUMENT,
        "environment variable {name}=\"{value}\": {wanted} expected; correct or unset it"
    )
}

struct Env<'a> {
    variable: &'a dyn Fn(&str) -> Option<String>,
}

impl Env<'_> {
    /// Returns the value of a variable. An empty value counts as unset, because scripts unset
    /// variables this way.
    fn text(&self, name: &str) -> Option<String> {
        (self.variable)(name).filter(|value| !value.is_empty())
    }

    fn integer(&self, name: &str) -> Result<Option<i32>> {
        let Some(text) = self.text(name) else {
            return Ok(None);
        };
        match text.parse::<i32>() {
            Ok(value) if value >= 0 => Ok(Some(value)),
            _ => malformed(name, &text, "a whole number from 0"),
        }
    }

    /// Reads a rank and the number of ranks from two variables; returns `None` if neither variable
    /// is set.
    fn rank_of(&self, rank_name: &str, size_name: &str) -> Result<Option<(i32, i32)>> {
        let (rank, size) = match (self.integer(rank_name)?, self.integer(size_name)?) {
            (Some(rank), Some(size)) => (rank, size),
            (None, None) => return Ok(None),
            (Some(_), None) => return half(rank_name, size_name),
            (None, Some(_)) => return half(size_name, rank_name),
        };
        if size == 0 {
            return malformed(size_name, "0", "a number of ranks from 1");
        }
        if rank >= size {
            return malformed(
                rank_name,
                &rank.to_string(),
                &format!("a rank below {size_name}={size}"),
            );
        }
        Ok(Some((rank, size)))
    }
}

fn half<T>(present: &str, missing: &str) -> Result<T> {
    fail!(
        DTL_ERROR_INVALID_ARGUMENT,
        "environment variable {present} is set but {missing} is not; set both or neither"
    )
}

#[cfg(test)]
#[path = "tests/launch.rs"]
mod tests;
