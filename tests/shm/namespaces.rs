//! Ranks in namespaces of their own, as in containers: each rank is started by unshare(1).

use super::{exe, job, myself, text};
use std::process::{Child, Command, Stdio};

/// Starts both ranks of a job in their own namespaces; returns their output, or `None` if namespaces
/// are not allowed here.
fn in_namespaces(name: &str, options: &[&str], timeout_ms: u32, case: &str) -> Option<Vec<String>> {
    let unshare = || {
        let mut command = Command::new("unshare");
        command.args(["--map-root-user"]).args(options);
        command
    };
    if !unshare().arg("true").output().is_ok_and(|output| output.status.success()) {
        println!("skipped: unshare {} is not allowed here", options.join(" "));
        return None;
    }
    let job = job(name);
    let start = |rank: u32| {
        let mut command = unshare();
        myself(command.arg(exe())).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
            .env("DTL_TEST_CASE", case)
            .env("DTL_TEST_TIMEOUT_MS", timeout_ms.to_string())
            .envs([("DTL_JOB", job.as_str()), ("DTL_SIZE", "2")])
            .env("DTL_RANK", rank.to_string());
        command.spawn().expect("a rank starts")
    };
    let ranks: Vec<Child> = (0..2).map(start).collect();
    Some(ranks.into_iter().map(|rank| text(&rank.wait_with_output().expect("ends"))).collect())
}

#[test]
fn ranks_in_other_pid_namespaces_are_refused() {
    let options = ["--pid", "--fork", "--kill-child"];
    let Some(ranks) = in_namespaces("pid-namespaces", &options, 60_000, "open_only") else {
        return;
    };
    for said in ranks {
        let expected = "DTL_ERROR_UNAVAILABLE: rank 1 is in another PID namespace (container) \
                        than rank 0; start them in one (docker, podman: --pid=host)";
        assert!(said.contains(expected), "{said}");
    }
}

#[test]
fn ranks_in_other_network_namespaces_are_missing() {
    let Some(ranks) = in_namespaces("net-namespaces", &["--net"], 500, "open_only") else { return };
    let expected = [
        "DTL_ERROR_TIMEOUT: rank 1 of 2 missing after 500 ms: not started, started with another job \
         name, on another node or in a container with its own network",
        "DTL_ERROR_TIMEOUT: rank 0 is missing after 500 ms: it did not open the communicator on \
         this node, in this network namespace (container)",
    ];
    for (said, expected) in ranks.iter().zip(expected) {
        assert!(said.contains(expected), "{said}");
    }
}

/// The kernel denies the copy between processes of different user namespaces.
#[test]
fn ranks_in_other_user_namespaces_copy_through_shared_memory() {
    let Some(ranks) = in_namespaces("user-namespaces", &[], 60_000, "traffic") else { return };
    for said in ranks {
        assert!(said.contains("case passed"), "{said}");
    }
}
