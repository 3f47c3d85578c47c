//! Locks that a fork can leave locked: every static lock and every start of a thread, with the way
//! in which a forked child detects that a thread of its parent held a lock.

use super::{File, report, sources};

/// Every static lock of the library, with the code that locks it. In a forked child, a lock that a
/// thread of the parent held stays locked forever, so `epoch::another_was_inside` must detect each
/// holder: inside a call, or marked by `aside`.
const STATIC_LOCKS: &[(&str, &[&str])] = &[
    (
        "in calls, by their errands, and by the library's threads at work",
        &[
            "backend/bootstrap/job_id.rs MEMBERS",
            "backend/cuda/discovery.rs LIBRARY",
            "backend/cuda/modules/nvrtc.rs LIBRARY",
            "backend/mpi/coll/reduce_op.rs NAMED",
            "backend/mpi/library/mpi_library.rs FAILED",
            "backend/mpi/library/mpi_library.rs LOADED",
            "backend/nccl/discovery.rs LIBRARY",
            "backend/opencl/driver.rs LIBRARY",
            "backend/rdma/verbs/discovery.rs LIBRARY",
            "backend/shm/transport.rs LOCK",
            "runtime/array/mod.rs ARRAYS",
            "runtime/comm/open/attribute.rs KEYS",
            "runtime/comm/open/attribute.rs NEXT",
            "runtime/comm/p2p/matched_message.rs TABLE",
            "runtime/comm/open/open_kind.rs OPENING",
            "runtime/comm/comm_table.rs OPEN",
            "runtime/comm/progress.rs RUNNING",
            "runtime/comm/p2p/request/mod.rs TABLE",
            "runtime/comm/comm_table.rs TABLE",
            "runtime/types.rs DTYPES",
            "runtime/types.rs OPS",
            "runtime/comm/rma/mod.rs RANDOM",
            "runtime/comm/rma/mod.rs TABLE",
            "runtime/comm/rma/rma_progress.rs SERVED",
            "runtime/comm/rma/rma_progress.rs THREAD",
            "runtime/dispatch/mod.rs DISPATCHERS",
            "runtime/dispatch/mod.rs REGISTRATIONS",
            "runtime/environment/mod.rs STATE",
            "runtime/exec/handles.rs DEFAULTS",
            "runtime/exec/handles.rs EVENTS",
            "runtime/exec/handles.rs EXECUTORS",
            "runtime/exec/handles.rs KERNELS",
            "runtime/exec/handles.rs MODULES",
            "runtime/exec/handles.rs STREAMS",
            "runtime/exec/launch_history.rs HISTORY",
            "runtime/exec/host/thread_pool.rs MACHINE",
            "runtime/exec/host/closure_table.rs PIECES",
            "runtime/explain.rs CHOICES",
            "runtime/memory/mod.rs LEDGER",
            "runtime/memory/drivers.rs DRIVERS",
            "runtime/memory/external.rs KNOWN",
            "runtime/memory/device_only.rs WATCHERS",
            "runtime/memory/registered.rs LIST",
            "runtime/plugins/mod.rs STATE",
            "runtime/policy/mod.rs POLICIES",
            "runtime/memory/mem_pool.rs LABELS",
            "runtime/memory/mem_pool.rs POOLS",
            "runtime/registry/mod.rs NAMED",
            "runtime/registry/mod.rs TABLE",
            "runtime/settings/mod.rs CURRENT",
            "sys/memory/buf.rs PROCESS",
            "sys/compute/elements/mod.rs ALL",
            "sys/compute/elements/simd.rs BEST",
            "sys/sync/wait.rs TICK_NS",
            "sys/os/close_on_fork.rs ASKED",
        ],
    ),
    (
        "tried by dtl_init_after_fork itself",
        &["runtime/lifecycle.rs COUNT", "sys/handles/epoch.rs RECORDS"],
    ),
    (
        "set under COUNT in runtime/lifecycle.rs, read without a lock",
        &["runtime/environment/mod.rs SEARCH_PLUGINS", "runtime/registry/mod.rs EVENTS"],
    ),
    (
        "no lock: a page that a fork wipes",
        &["backend/shm/transport.rs OPENER", "runtime/open_state.rs GATE"],
    ),
    (
        "also by functions that work in every state: `aside` in runtime/open_state.rs",
        &[
            "runtime/enums/instances.rs ADDING",
            "runtime/enums/instances.rs BY_HASH",
            "runtime/enums/instances.rs BY_INDEX",
            "runtime/enums/mod.rs ALL",
            "runtime/log.rs CALLBACK",
            "runtime/log.rs PENDING",
            "runtime/mod.rs TEXTS",
        ],
    ),
    (
        "by threads that leave a call: run_errands in sys/handles/epoch.rs",
        &["sys/handles/epoch.rs LIMBO", "sys/handles/epoch/deferred_work.rs CHORES"],
    ),
    (
        "also by threads that end: Leaving in sys/memory/heap/thread_heap.rs, last_error.rs",
        &[
            "last_error.rs LAST_WORDS",
            "sys/memory/heap/unmap_hooks.rs WATCHERS",
            "sys/memory/heap/page_heap.rs STORE",
        ],
    ),
    (
        "also before and after a traced call: admit and traced in ffi/guard.rs",
        &[
            "runtime/trace/mod.rs LIVES",
            "runtime/trace/mod.rs SINKS",
            "runtime/trace/names.rs NUMBERS",
            "runtime/trace/names.rs NAMES",
        ],
    ),
    (
        "also on threads of a backend: redeem in runtime/exec/host/closure_table.rs",
        &["runtime/exec/host/closure_table.rs ONCE"],
    ),
    (
        "also in the program's own MPI calls: fold and release_all in backend/mpi",
        &[
            "backend/mpi/coll/reduce_op.rs OPERATIONS",
            "backend/mpi/coll/reduce_op.rs OWN",
            "backend/mpi/window.rs LEFT",
        ],
    ),
];
/// Types of statics that are or contain locks.
const LOCK_TYPES: &[&str] = &[
    "Mutex<",
    "RwLock<",
    "OnceLock<",
    "LazyLock<",
    "Once ",
    "HandleTable<",
    "SlotMap<",
    "ProgressList<",
    "VendorLib<",
    "AppendOnlyTable<",
    "IdTable<",
    "OpenState ",
];
/// Every place where the library starts a thread, with the way in which a forked child detects the
/// thread.
const THREADS: &[(&str, &str)] = &[
    ("src/backend/driver/stream_callbacks.rs", "aside while it runs a job"),
    ("src/backend/bootstrap/tcp.rs", "looks names up; takes no lock of the library"),
    ("src/runtime/comm/progress.rs", "within the call that started it"),
    ("src/runtime/comm/rma/rma_progress.rs", "aside while it serves windows"),
    (
        "src/runtime/exec/host/thread_pool.rs",
        "aside while it runs a task; a loop's pieces are within the loop's call",
    ),
    ("src/runtime/exec/host/host_stream.rs", "aside while it runs a task"),
    (
        "src/runtime/trace/file.rs",
        "takes no lock but its trace's own, which a child does not touch",
    ),
    ("src/sys/os/process/mod.rs", "starts a process, no thread"),
    ("src/sys/os/process/mod.rs", "the two functions that start threads"),
];

/// Returns the statics with a lock in a file, in the form of [`STATIC_LOCKS`].
pub(crate) fn static_locks(file: &File) -> Vec<String> {
    let of_line = |line: &str| {
        let (before, after) = line.trim_start().split_once("static ")?;
        let (name, kind) = after.split_once(": ")?;
        let is_static = before.is_empty() || before.starts_with("pub");
        let kind = format!(
            "{} ",
            kind.split(" = ").next().unwrap_or_default().trim_end_matches(['=', ' '])
        );
        let is_lock = LOCK_TYPES.iter().any(|lock| kind.contains(lock));
        (is_static && is_lock).then(|| format!("{} {name}", file.path.trim_start_matches("src/")))
    };
    file.code().filter_map(|(_, line)| of_line(line)).collect()
}

#[test]
fn a_fork_sees_every_holder_of_a_lock() {
    let library: Vec<File> = sources().into_iter().filter(|file| !file.is_test()).collect();
    let found: Vec<String> = library.iter().flat_map(static_locks).collect();
    let known: Vec<&str> =
        STATIC_LOCKS.iter().flat_map(|(_, locks)| locks.iter().copied()).collect();
    let mut findings = Vec::new();
    for lock in found.iter().filter(|lock| !known.contains(&lock.as_str())) {
        findings.push(format!("src/{lock}: who holds it at a fork? Add it to STATIC_LOCKS"));
    }
    for lock in known.iter().filter(|lock| !found.iter().any(|found| found == *lock)) {
        findings.push(format!("STATIC_LOCKS: there is no {lock} any more"));
    }
    for file in &library {
        let starts = file.code().any(|(_, line)| {
            line.replace("MPI_Comm_spawn(", "").contains("spawn(") || line.contains("spawn_scoped(")
        });
        if starts != THREADS.iter().any(|(path, _)| *path == file.path) {
            findings
                .push(format!("{}: starts threads, or does not any more: see THREADS", file.path));
        }
    }
    report(&findings);
}
