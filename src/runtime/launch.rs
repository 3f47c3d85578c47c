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
    #[must_use]
    pub fn is_one_node(&self) -> bool {
        self.local_size == self.size
    }
}

/// Reads the environment of this process. Returns `None` if no launcher started the process.
pub fn from_environment() -> Result<Option<Launch>> {
    read(&|name| std::env::var(name).ok(), &manager_key)
}

/// Reads an environment through `variable`. `manager` returns a text that identifies the process
/// manager of a Hydra job; its argument is the number of the PMI descriptor, if there is one.
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

/// Returns a text that identifies the process manager of a Hydra job. Hydra passes no job id. Its
/// proxy on this node is the peer of the PMI socket. Without a PMI socket the parent process is the
/// best guess (wrong under `mpirun sh -c`, where each rank has its own parent).
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
/// Such steps set a rank and a size too, but the tasks that these count do not run.
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

/// Returns the number of tasks of the step on this node, from a list like "4(x2),3"; 0 = unknown.
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

/// Local rank and size if the launcher does not report them.
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
             unset what is left \
             over from another launcher"
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
    /// Returns the value of a variable. An empty value counts as unset: scripts unset it this way.
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

    /// Reads a rank and its size; returns `None` if neither variable is set.
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
mod tests {
    use super::*;
    use crate::abi::status::DTL_ERROR_INVALID_ARGUMENT;

    fn launch_of(pairs: &[(&str, &str)]) -> Result<Option<Launch>> {
        let find =
            |name: &str| pairs.iter().find(|pair| pair.0 == name).map(|pair| pair.1.to_string());
        read(&find, &|fd| fd.map_or("parent".to_string(), |fd| format!("fd{fd}")))
    }

    fn place(launch: &Launch) -> (i32, i32, i32, i32, &str, &str) {
        (
            launch.rank,
            launch.size,
            launch.local_rank,
            launch.local_size,
            &launch.job,
            launch.launcher,
        )
    }

    fn found(pairs: &[(&str, &str)]) -> Launch {
        launch_of(pairs).expect("well-formed").expect("a launcher")
    }

    const DTL: [(&str, &str); 5] = [
        ("DTL_RANK", "1"),
        ("DTL_SIZE", "4"),
        ("DTL_LOCAL_RANK", "1"),
        ("DTL_LOCAL_SIZE", "2"),
        ("DTL_JOB", "abc"),
    ];
    const OMPI: [(&str, &str); 5] = [
        ("OMPI_COMM_WORLD_RANK", "2"),
        ("OMPI_COMM_WORLD_SIZE", "3"),
        ("OMPI_COMM_WORLD_LOCAL_RANK", "2"),
        ("OMPI_COMM_WORLD_LOCAL_SIZE", "3"),
        ("PMIX_NAMESPACE", "prterun-1"),
    ];
    const HYDRA: [(&str, &str); 5] = [
        ("PMI_RANK", "0"),
        ("PMI_SIZE", "2"),
        ("PMI_FD", "7"),
        ("MPI_LOCALNRANKS", "2"),
        ("MPI_LOCALRANKID", "0"),
    ];
    const SLURM: [(&str, &str); 7] = [
        ("SLURM_PROCID", "9"),
        ("SLURM_STEP_NUM_TASKS", "11"),
        ("SLURM_LOCALID", "1"),
        ("SLURM_NODEID", "2"),
        ("SLURM_STEP_TASKS_PER_NODE", "4(x2),3"),
        ("SLURM_STEP_ID", "0"),
        ("SLURM_JOB_ID", "77"),
    ];

    #[test]
    fn each_launcher_is_read() {
        assert_eq!(launch_of(&[]).expect("fine"), None);
        assert_eq!(place(&found(&DTL)), (1, 4, 1, 2, "abc", "dtlrun"));
        assert_eq!(place(&found(&OMPI)), (2, 3, 2, 3, "pmix-prterun-1", "Open MPI"));
        assert_eq!(place(&found(&HYDRA)), (0, 2, 0, 2, "hydra-fd7", "Hydra"));
        assert_eq!(place(&found(&SLURM)), (9, 11, 1, 3, "slurm-77-0", "Slurm"));
        assert!(found(&OMPI).is_one_node() && !found(&DTL).is_one_node());
    }

    #[test]
    fn the_order_of_precedence() {
        let mut all = Vec::new();
        for (set, launcher) in [
            (&SLURM[..], "Slurm"),
            (&HYDRA[..], "Hydra"),
            (&OMPI[..], "Open MPI"),
            (&DTL[..], "dtlrun"),
        ] {
            all.extend_from_slice(set);
            assert_eq!(found(&all).launcher, launcher);
        }
    }

    #[test]
    fn slurm_counts_only_inside_a_step() {
        assert_eq!(launch_of(&[("SLURM_PROCID", "0"), ("SLURM_NTASKS", "4")]).expect("fine"), None);
        let batch = [("SLURM_PROCID", "0"), ("SLURM_NTASKS", "4"), ("SLURM_STEP_ID", "4294967291")];
        assert_eq!(launch_of(&batch).expect("fine"), None);
    }

    #[test]
    fn what_is_missing_or_unknown() {
        assert_eq!(
            place(&found(&[("DTL_RANK", "0"), ("DTL_SIZE", "2")])),
            (0, 2, 0, 2, "", "dtlrun")
        );
        let bare = found(&[("PMI_RANK", "0"), ("PMI_SIZE", "2")]);
        assert_eq!(
            (bare.local_size, bare.job.as_str(), bare.is_one_node()),
            (0, "hydra-parent", false)
        );
        assert_eq!(launch_of(&[("DTL_RANK", ""), ("DTL_SIZE", "")]).expect("empty is unset"), None);
    }

    #[test]
    fn malformed_values_are_named() {
        type Case<'a> = (&'a [(&'a str, &'a str)], &'a str, &'a str);
        let cases: [Case<'_>; 8] = [
            (&[("DTL_RANK", "x"), ("DTL_SIZE", "2")], "DTL_RANK", "\"x\""),
            (&[("DTL_RANK", "-1"), ("DTL_SIZE", "2")], "DTL_RANK", "\"-1\""),
            (&[("DTL_RANK", "2"), ("DTL_SIZE", "2")], "DTL_RANK", "\"2\""),
            (&[("DTL_RANK", "0"), ("DTL_SIZE", "0")], "DTL_SIZE", "\"0\""),
            (&[("DTL_RANK", "0")], "DTL_RANK", "DTL_SIZE"),
            (&[("PMI_SIZE", "99999999999"), ("PMI_RANK", "0")], "PMI_SIZE", "99999999999"),
            (&[("SLURM_STEP_ID", "one"), ("SLURM_PROCID", "0")], "SLURM_STEP_ID", "one"),
            (
                &[
                    ("DTL_RANK", "0"),
                    ("DTL_SIZE", "2"),
                    ("DTL_LOCAL_RANK", "0"),
                    ("DTL_LOCAL_SIZE", "3"),
                ],
                "dtlrun",
                "3 ranks",
            ),
        ];
        for (pairs, name, value) in cases {
            let error = launch_of(pairs).expect_err("malformed");
            assert_eq!(error.status(), DTL_ERROR_INVALID_ARGUMENT);
            assert!(error.text().contains(name) && error.text().contains(value), "{error}");
        }
        let mut short = SLURM;
        short[4].1 = "4";
        assert!(
            launch_of(&short).expect_err("no entry").text().contains("SLURM_STEP_TASKS_PER_NODE")
        );
    }
}
