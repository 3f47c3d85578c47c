//! Tests of dtl-info: text, JSON, environment report, exit status.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

use serde_json::Value;
use std::process::{Command, Output};

/// Runs dtl-info with the environment variables `variables`, and without any others that the
/// library reads or that a launcher sets.
fn run(arguments: &[&str], variables: &[(&str, &str)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dtl-info"));
    let ours = ["DTL_", "STEPMESH_", "OMPI_", "PMI", "MPI_", "SLURM_", "OMP_NUM"];
    for (name, _) in std::env::vars_os() {
        if ours.iter().any(|prefix| name.to_string_lossy().starts_with(prefix)) {
            command.env_remove(name);
        }
    }
    command.args(arguments).envs(variables.iter().copied()).output().expect("dtl-info starts")
}

fn out(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("UTF-8")
}

fn err(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).expect("UTF-8")
}

fn json(arguments: &[&str], variables: &[(&str, &str)]) -> Value {
    let output = run(arguments, variables);
    serde_json::from_str(&out(&output)).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

/// Returns the value of the entry `what` in the section "Chosen here" of the report.
fn chosen(what: &str, variables: &[(&str, &str)]) -> String {
    let text = out(&run(&[], variables));
    let (_, section) = text.split_once("Chosen here\n").expect("the section");
    let joined = section.lines().fold(String::new(), |mut joined, line| {
        let continued = line.starts_with("      ");
        joined.push_str(if continued { " " } else { "\n" });
        joined.push_str(line.trim());
        joined
    });
    joined.lines().find_map(|line| line.strip_prefix(what)).expect("the line").trim().to_owned()
}

const MPIRUN: [(&str, &str); 4] = [
    ("OMPI_COMM_WORLD_RANK", "1"),
    ("OMPI_COMM_WORLD_SIZE", "4"),
    ("OMPI_COMM_WORLD_LOCAL_RANK", "1"),
    ("OMPI_COMM_WORLD_LOCAL_SIZE", "4"),
];

#[test]
fn copies_shows_the_methods_of_each_rank() {
    let alone = run(&["--copies"], &[]);
    let text = String::from_utf8_lossy(&alone.stdout).into_owned();
    assert!(alone.status.success() && text.contains("dtlrun -n 2 dtl-info --copies"), "{text}");
    let job = format!("copies-{}", std::process::id());
    let rank = |rank: &str| {
        let place = [("DTL_RANK", rank), ("DTL_SIZE", "2"), ("DTL_JOB", &job), ("DTL_COMM", "shm")];
        run(&["--copies"], &place)
    };
    let (first, second) = std::thread::scope(|scope| {
        let second = scope.spawn(|| rank("1"));
        (rank("0"), second.join().expect("rank 1"))
    });
    let text = String::from_utf8_lossy(&first.stdout).into_owned();
    assert!(first.status.success() && second.status.success(), "{text}");
    assert!(second.stdout.is_empty());
    for part in ["rank 0:", "rank 1:", "messages of 8 to 16 KiB from rank 0: cells", "GB/s"] {
        assert!(text.contains(part), "{part} is missing:\n{text}");
    }
    assert!(text.lines().filter(|line| line.contains("of 512 to 1024 KiB")).count() == 2, "{text}");
}

#[test]
fn the_text_has_everything_and_fits() {
    let output = run(&[], &[]);
    assert!(output.status.success() && err(&output).is_empty(), "{output:?}");
    let text = out(&output);
    let version = env!("CARGO_PKG_VERSION");
    assert!(
        text.starts_with(&format!("libdtl {version}, ABI version 2, licence MIT OR Apache-2.0\n"))
    );
    for part in [
        "Machine",
        "Backends",
        "Devices",
        "Memory kinds",
        "Chosen here",
        "host",
        "null",
        "self",
        "shm",
        "hier",
        "pinned",
    ] {
        assert!(text.contains(part), "no {part} in\n{text}");
    }
    let all = text
        + &out(&run(
            &["--env"],
            &[("DTL_JOB", &"long ".repeat(60)), ("DTL_COMM", &"x".repeat(300))],
        ));
    let bad: Vec<_> =
        all.lines().filter(|line| line.chars().count() > 100 || line.ends_with(' ')).collect();
    assert!(bad.is_empty(), "too wide, or a blank at the end: {bad:#?}");
}

#[test]
fn the_json_says_the_same() {
    let all = json(&["--json"], &[]);
    assert_eq!(
        (all["version"].as_str(), all["abi_version"].as_u64()),
        (Some(env!("CARGO_PKG_VERSION")), Some(2))
    );
    let machine = &all["machine"];
    assert!(
        machine["cpus_online"].as_u64() >= Some(1)
            && machine["memory_bytes"].as_u64() > Some(1 << 20)
    );
    assert!(!machine["cpus_allowed"].as_array().unwrap().is_empty(), "{machine:#}");
    assert!(machine["hostname"].is_string() && machine.get("memory_limit_bytes").is_some());
    let backends = all["backends"].as_array().unwrap();
    let named =
        |name: &str| backends.iter().find(|b| b["name"] == name).expect("a built-in backend");
    let host = named("host");
    assert_eq!((&host["available"], &host["reason"]), (&Value::Bool(true), &Value::Null));
    assert_eq!((&host["builtin"], &host["auto_priority"]), (&Value::Bool(true), &0.into()));
    assert_eq!(host["components"], serde_json::json!(["device", "memory", "transfer"]));
    assert_eq!(
        (&host["devices"][0]["kind"], &host["devices"][0]["index"]),
        (&"cpu".into(), &0.into())
    );
    assert!(host["devices"][0]["total_bytes"].as_u64().unwrap() > 1 << 20);
    let kinds: Vec<_> =
        host["memory_kinds"].as_array().unwrap().iter().map(|kind| &kind["kind"]).collect();
    assert_eq!(kinds, ["host", "device", "pinned", "managed", "shared"]);
    let properties = host["memory_kinds"][0]["properties"].as_array().unwrap();
    assert!(
        properties.contains(&"host_accessible".into()) && properties.contains(&"pageable".into())
    );
    assert_eq!(
        (&named("null")["auto_priority"], &named("null")["devices"][0]["kind"]),
        (&Value::Null, &"none".into())
    );
    assert_eq!(named("shm")["components"], serde_json::json!(["comm"]));
    assert_eq!(named("mpi")["components"], serde_json::json!(["comm"]));
    let rdma = named("rdma");
    assert_eq!(
        (&rdma["components"], &rdma["auto_priority"]),
        (&serde_json::json!(["comm"]), &Value::Null)
    );
    assert!(
        rdma["available"] == true || rdma["reason"].as_str().unwrap().starts_with("no RDMA "),
        "{rdma:#}"
    );
    assert_eq!(
        (&all["default_backend"]["name"], &all["default_backend"]["error"]),
        (&"host".into(), &Value::Null)
    );
    assert_eq!(
        (&all["communicator"]["kind"], &all["communicator"]["launcher"]),
        (&"self".into(), &Value::Null)
    );
}

#[test]
fn the_backend_follows_the_variables() {
    // What stands aside for it, and why, depends on the machine.
    assert!(
        chosen("backend", &[]).starts_with("host: the available one with the highest priority (0)")
    );
    assert!(chosen("backend", &[("DTL_BACKEND", "null")]).starts_with("null: DTL_BACKEND"));
    assert!(chosen("backend", &[("STEPMESH_BACKEND", "CPU")]).starts_with("host: DTL_BACKEND"));
    let misspelt = run(&[], &[("STEPMESH_BAKCEND", "null")]);
    assert!(misspelt.status.success() && out(&misspelt).contains("null: "));
    assert!(err(&misspelt).contains("STEPMESH_BAKCEND is a misspelling"), "{misspelt:?}");
}

#[test]
fn a_backend_that_is_not_there_is_a_failure_that_names_the_known_ones() {
    for arguments in [&[][..], &["--json"]] {
        let output = run(arguments, &[("DTL_BACKEND", "nonsense")]);
        assert_eq!(output.status.code(), Some(1));
        let text = err(&output);
        assert!(
            text.contains("\"nonsense\"") && text.contains("known: host, null, self, threads, shm"),
            "{text}"
        );
    }
    let all = json(&["--json"], &[("DTL_BACKEND", "GPU")]);
    let told = &all["default_backend"];
    let is_alias = match told["name"].as_str() {
        None => told["error"].as_str().unwrap().contains("backend cuda cannot run here"),
        Some(name) => name == "cuda",
    };
    assert!(is_alias, "GPU is an alias: {all:#}");
    assert_eq!(all["backends"].as_array().unwrap().len(), 11, "the rest is shown all the same");
}

#[test]
fn the_communicator_follows_the_launcher_and_is_not_opened() {
    assert_eq!(chosen("communicator", &[]), "self: no launcher's environment was found: one rank");
    // The other three ranks do not exist: opening would fail after the time limit.
    assert_eq!(chosen("communicator", &MPIRUN), "shm: Open MPI started all 4 ranks on this node");
    let slurm = [
        ("SLURM_PROCID", "0"),
        ("SLURM_STEP_NUM_TASKS", "1"),
        ("SLURM_STEP_ID", "0"),
        ("SLURM_LOCALID", "0"),
        ("SLURM_NODEID", "0"),
        ("SLURM_STEP_TASKS_PER_NODE", "1"),
    ];
    assert_eq!(chosen("communicator", &slurm), "self: Slurm started one rank");
    let several = [&MPIRUN[..], &[("DTL_FAKE_NODES", "2x2"), ("DTL_HIER_ACROSS", "shm")]].concat();
    assert_eq!(chosen("communicator", &several), "hier: DTL_FAKE_NODES=2x2 pretends nodes");
    let all = json(&["--json"], &MPIRUN);
    assert_eq!(
        (&all["communicator"]["rank"], &all["communicator"]["size"]),
        (&1.into(), &4.into())
    );
    assert_eq!(all["communicator"]["launcher"], "Open MPI");
}

#[test]
fn a_communicator_that_cannot_be_is_a_failure() {
    // Several nodes, and no MPI to cross them.
    let mut nodes = MPIRUN.to_vec();
    nodes[3].1 = "2";
    nodes.push(("DTL_MPI_LIBRARY", "/no/such/libmpi.so"));
    let between = [
        ("DTL_COMM", "hier"),
        ("DTL_HIER_ACROSS", "rdma"),
        ("DTL_RDMA_LIBRARY", "/no/such/libibverbs.so"),
    ];
    let no_verbs = [("DTL_COMM", "rdma"), ("DTL_RDMA_LIBRARY", "/no/such/libibverbs.so")];
    let cases: [(&[(&str, &str)], &str); 5] = [
        (&nodes, "4 ranks, 2 of them on this node"),
        (&between, "kind \"rdma\": DTL_RDMA_LIBRARY=/no/such/libibverbs.so: "),
        (&no_verbs, "backend rdma cannot run here: DTL_RDMA_LIBRARY=/no/such/libibverbs.so: "),
        (&[("DTL_COMM", "carrier-pigeon")], "known: auto, self, threads, shm"),
        (&[("PMI_RANK", "0")], "PMI_SIZE"),
    ];
    for (variables, text) in cases {
        let output = run(&[], variables);
        assert_eq!(output.status.code(), Some(1), "{variables:?}");
        assert!(err(&output).contains(text), "{variables:?}: {output:?}");
        assert!(chosen("communicator", variables).starts_with("none: "));
    }
    assert_eq!(chosen("communicator", &[("DTL_COMM", "shm")]), "shm: DTL_COMM names it");
}

#[test]
fn the_variables_with_value_and_origin() {
    let set = [("DTL_TIMEOUT", "30s"), ("DTL_LOG", ""), ("DTL_BAKEND", "host")];
    let output = run(&["--env"], &set);
    assert!(output.status.success(), "a variable of another program is no failure: {output:?}");
    let text = out(&output);
    let said = |name: &str| {
        let line = text
            .lines()
            .find(|line| line.split_whitespace().next() == Some(name))
            .unwrap_or_default();
        line.trim_start_matches(name).to_owned()
    };
    for (name, value) in
        [("DTL_TIMEOUT", "\"30s\" (set)"), ("DTL_LOG", "not set (empty)"), ("DTL_COMM", "not set")]
    {
        assert!(said(name).ends_with(&format!("  {value}")), "{name} in\n{text}");
    }
    for (known, _) in dtl::runtime::settings::VARIABLES {
        assert!(said(known).starts_with("  "), "{known} in\n{text}");
    }
    assert!(
        text.contains("queue pairs for each peer and rail, 1 … 4 ") && !text.contains("1 … 8 "),
        "{text}"
    );
    assert!(
        text.contains(
            "warning: unknown environment variable DTL_BAKEND: did you mean DTL_BACKEND?"
        )
    );
    let all = json(&["--env", "--json"], &set);
    let variables = all["variables"].as_array().unwrap();
    assert_eq!(variables.len(), dtl::runtime::settings::VARIABLES.len());
    let timeout = variables.iter().find(|v| v["name"] == "DTL_TIMEOUT").unwrap();
    assert_eq!((&timeout["value"], &timeout["origin"]), (&"30s".into(), &"set".into()));
    assert!(timeout["meaning"].as_str().unwrap().contains("time limit"));
    let backend = variables.iter().find(|v| v["name"] == "DTL_BACKEND").unwrap();
    assert_eq!((&backend["value"], &backend["origin"]), (&Value::Null, &"not set".into()));
    assert_eq!((all["complaints"].as_array().unwrap().len(), &all["error"]), (1, &Value::Null));
}

#[test]
fn a_bad_value_is_a_failure_that_names_it() {
    for arguments in [&["--env"][..], &["--env", "--json"], &[], &["--json"]] {
        let output = run(arguments, &[("DTL_TIMEOUT", "soon")]);
        assert_eq!(output.status.code(), Some(1));
        assert!(err(&output).contains("DTL_TIMEOUT=soon"), "{output:?}");
    }
    assert_eq!(run(&["--nonsense"], &[]).status.code(), Some(2));
}

#[test]
fn names_are_explained() {
    let explained = |name: &str| out(&run(&["explain", name], &[("DTL_COMM", "shm")]));
    let text = explained("dtl_comm_send");
    assert!(text.contains("dtl_status_t dtl_comm_send(") && text.contains("MPI_Send"), "{text}");
    assert_eq!(explained("DTL_ERROR_TIMEOUT"), explained("106"));
    assert!(explained("106").contains("RETURNED BY"));
    let text = explained("DTL_COMM");
    assert!(text.contains("environment variable") && text.contains("\"shm\""), "{text}");
    for (name, part) in [
        ("DTL_CHECK", "#define DTL_CHECK(call)"),
        ("DTL_PLUGIN_INIT", "dtl_plugin_t: "),
        ("MPI_Send", "dtl_comm_send\n"),
        ("cudaMalloc", "dtl_mem_alloc\n"),
        ("libdtl", "1. Names and order."),
        ("dtl_add_backend", "dtl_add_backend(NAME <name> [MODULE | SHARED] [STATIC] SOURCES"),
        ("dtl_add_backend", "share/doc/dtl/how-to/write-a-plugin.md"),
        ("DTL_ADD_ENVIRONMENT", "PACKAGES       Each one is"),
    ] {
        assert!(explained(name).contains(part), "{name}");
    }
}

#[test]
fn an_unknown_name_is_refused_with_its_likes() {
    let output = run(&["explain", "dtl_comm_send", "dtl_comm_sned"], &[]);
    assert_eq!(output.status.code(), Some(1));
    assert!(out(&output).is_empty());
    let text = err(&output);
    assert!(
        text.contains("dtl_comm_sned: did you mean") && text.contains("dtl_comm_send"),
        "{text}"
    );
    let text = err(&run(&["explain", "dtl_add_backends"], &[]));
    assert!(text.contains("did you mean") && text.contains("dtl_add_backend"), "{text}");
    let text = err(&run(&["explain", "4711"], &[]));
    assert!(text.contains("4711") && text.contains("dtl-info --env"), "{text}");
    assert_eq!(run(&["explain"], &[]).status.code(), Some(2));
}
