//! Tests of `launch`.

use super::*;
use crate::abi::status::DTL_ERROR_INVALID_ARGUMENT;

fn launch_of(pairs: &[(&str, &str)]) -> Result<Option<Launch>> {
    let find = |name: &str| pairs.iter().find(|pair| pair.0 == name).map(|pair| pair.1.to_string());
    read(&find, &|fd| fd.map_or("parent".to_string(), |fd| format!("fd{fd}")))
}

fn place(launch: &Launch) -> (i32, i32, i32, i32, &str, &str) {
    (launch.rank, launch.size, launch.local_rank, launch.local_size, &launch.job, launch.launcher)
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
    assert_eq!(place(&found(&[("DTL_RANK", "0"), ("DTL_SIZE", "2")])), (0, 2, 0, 2, "", "dtlrun"));
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
            "of 3 and rank",
        ),
    ];
    for (pairs, name, value) in cases {
        let error = launch_of(pairs).expect_err("malformed");
        assert_eq!(error.status(), DTL_ERROR_INVALID_ARGUMENT);
        assert!(error.text().contains(name) && error.text().contains(value), "{error}");
    }
    let mut other = SLURM;
    for tasks in ["4", "4(x-2147483648),3", "-3(x9)"] {
        other[4].1 = tasks;
        assert!(launch_of(&other).expect_err("none").text().contains("SLURM_STEP_TASKS_PER_NODE"));
    }
    other[4].1 = "4(x2),1";
    assert!(launch_of(&other).expect_err("the second of 1").text().contains("local rank 1 of 1"));
}
