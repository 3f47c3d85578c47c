//! Rank, size, node and job of this process, from the launcher's environment variables.
//!
//! The first match wins: DTL_* (`dtlrun`), OMPI_COMM_WORLD_* (Open MPI), PMI_* (Hydra: MPICH, Intel
//! MPI), SLURM_* (inside a job step only). Only variables are read. PMI itself is not used: a
//! process that starts a PMI exchange and does not complete it aborts the whole job.

use crate::error::{Result, fail};
use crate::sys::os::process;

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
        let (Ok(count), Ok(times)) = (count.parse::<i32>(), times.parse::<i32>()) else {
            return malformed(NAME, &list, "a list as \"4(x2),3\"");
        };
        if node < times {
            return Ok(count);
        }
        node -= times;
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
    if local_size > size {
        return fail!(
            DTL_ERROR_INVALID_ARGUMENT,
            "environment of {launcher}: {local_size} ranks on this node but {size} in the job; \
             unset what is left over from another launcher"
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
