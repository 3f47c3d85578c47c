//! Tests of all types of the binding that own a handle, and of all functions that return lists. The
//! tests run with the linked library.
//!
//! Needs libdtl.so.0.2: DTL_LIB_DIR=$PWD/build/stage/lib cargo test -p dtl-binding.

#![allow(clippy::unwrap_used, reason = "a call that fails fails the test")]

use dtl_binding::{Backend, Comm, Event, Library, Module, Policy, Source, Stream, sys};
use std::sync::OnceLock;

const NO_LIMIT: u64 = sys::DTL_TIMEOUT_INFINITE;

/// Returns the [`Library`] value that all tests share, so that no test finalizes the library while
/// another test runs.
fn library() -> &'static Library {
    static LIBRARY: OnceLock<Library> = OnceLock::new();
    LIBRARY.get_or_init(|| Library::init().unwrap())
}

fn host() -> Backend {
    library();
    Backend::find("host").unwrap()
}

#[test]
fn versions_and_choices_are_texts() {
    assert_eq!(dtl_binding::version(), env!("CARGO_PKG_VERSION"));
    library();
    Backend::find("auto").unwrap();
    assert!(dtl_binding::explain().unwrap().contains("backend"));
}

#[test]
fn a_failure_has_call_status_and_text() {
    library();
    let error = Backend::find("no-such-backend").unwrap_err();
    assert_eq!(error.call, "dtl_backend_get");
    assert_eq!(error.status, sys::DTL_ERROR_NOT_FOUND);
    assert!(error.text.contains("no-such-backend"), "{error}");
    assert!(error.to_string().ends_with("(DTL_ERROR_NOT_FOUND)"), "{error}");
    assert_eq!(format!("{:?}", error.status), "DTL_ERROR_NOT_FOUND (1)");
    let error = Backend::find("a\0b").unwrap_err();
    assert_eq!(error.status, sys::DTL_ERROR_INVALID_ARGUMENT);
}

#[test]
fn backends_and_devices_are_listed() {
    library();
    let names: Vec<_> =
        dtl_binding::backends().unwrap().map(|backend| backend.name(library()).unwrap()).collect();
    assert!(names.contains(&"host".to_owned()), "{names:?}");
    assert_eq!(host().unavailable().unwrap(), None);
    assert!(host().supports("memory").unwrap());
    assert!(!host().supports("no such feature").unwrap());
    let devices: Vec<_> = host().devices().unwrap().collect();
    assert_eq!(devices.len(), host().device_count().unwrap() as usize);
    devices[0].make_current().unwrap();
    assert_eq!(host().current_device().unwrap(), devices[0]);
    let info = devices[0].info().unwrap();
    assert_eq!(info.kind, sys::DTL_DEVICE_CPU);
    assert!(!dtl_binding::field(&info.name).is_empty());
    assert!(devices[0].memory().unwrap().1 > 0);
    devices[0].synchronize().unwrap();
}

#[test]
fn memory_is_copied_and_filled_inside_its_bounds() {
    let mut memory = host().alloc(sys::DTL_MEMORY_HOST, 64, 0).unwrap();
    memory.fill(0, 7, 64).unwrap();
    memory.write(60, &[1_u8, 2, 3, 4]).unwrap();
    let mut end = [0_u8; 5];
    memory.read(59, &mut end).unwrap();
    assert_eq!(end, [7, 1, 2, 3, 4]);
    // SAFETY: memory of the host, all written, that nothing else uses.
    assert_eq!(unsafe { memory.bytes() }[63], 4);
    // SAFETY: memory of the host, all written, that nothing else uses.
    let bytes = unsafe { memory.bytes_mut() };
    bytes[0] = 9;
    memory.read(0, &mut end).unwrap();
    assert_eq!(end[0], 9);
    for (offset, len) in [(64, 1), (0, 65), (usize::MAX, 2)] {
        let error = memory.fill(offset, 0, len).unwrap_err();
        assert_eq!(error.status, sys::DTL_ERROR_OUT_OF_BOUNDS, "{error}");
    }
    assert!(host().memory_stats().unwrap().live_bytes >= 64);
    let kind = host().memory_kind(sys::DTL_MEMORY_HOST).unwrap();
    assert_ne!(kind.properties & sys::DTL_MEMORY_HOST_ACCESSIBLE, 0);
    memory.free().unwrap();
}

#[test]
fn streams_and_events_end_with_their_owners() {
    let device = host().device(0);
    let stream = Stream::new(device).unwrap();
    let (begin, end) = (Event::new(host(), 0).unwrap(), Event::new(host(), 0).unwrap());
    begin.record(&stream).unwrap();
    end.record(&stream).unwrap();
    Stream::default_of(device).unwrap().wait_event(&end).unwrap();
    end.wait(NO_LIMIT).unwrap();
    assert!(begin.is_complete().unwrap());
    begin.elapsed_ns(&end).unwrap();
    stream.synchronize().unwrap();
    assert!(stream.is_done().unwrap());
    let raw = stream.raw();
    drop(stream);
    let stale = Stream::from_raw(raw).synchronize().unwrap_err();
    assert_eq!(stale.status, sys::DTL_ERROR_INVALID_HANDLE);
    begin.destroy().unwrap();
}

#[test]
fn source_is_compiled_and_launched() {
    let device = host().device(0);
    let text = b"#include \"dtl_kernel.h\"\n\
        DTL_KERNEL(add, (DTL_GLOBAL int*, to), (int, what)) { to[DTL_GLOBAL_ID(0)] += what; }\n";
    let source = Source { language: 0, bytes: text, options: &[] };
    let module = match Module::compile(device, &source) {
        Ok(module) => module,
        Err(error) if error.status == sys::DTL_ERROR_UNAVAILABLE => {
            eprintln!("skipped: {error}");
            return;
        }
        Err(error) => panic!("{error}"),
    };
    module.log().unwrap();
    let kernel = module.kernel("add", Some("pi")).unwrap();
    let stream = Stream::new(device).unwrap();
    let mut cells = [1_i32, 2];
    let to = cells.as_mut_ptr().expose_provenance().to_ne_bytes();
    let shape = sys::dtl_launch_t { block: [2, 1, 1], ..sys::DTL_LAUNCH_INIT };
    // SAFETY: an address of two integers and an integer; nothing else uses them until the end.
    unsafe { kernel.launch(&stream, &shape, &[&to, &5_i32.to_ne_bytes()]) }.unwrap();
    stream.synchronize().unwrap();
    assert_eq!(cells, [6, 7]);
    let wrong = Source { bytes: b"this is no C", ..source };
    let error = Module::compile(device, &wrong).unwrap_err();
    assert_eq!(error.status, sys::DTL_ERROR_COMPILE_FAILED);
    assert!(!Module::failure().unwrap().is_empty());
}

#[test]
fn communicators_are_described_and_split() {
    library();
    let ranks = Comm::threads(2, NO_LIMIT).unwrap();
    std::thread::scope(|scope| {
        for comm in &ranks {
            scope.spawn(move || exchange(comm));
        }
    });
}

fn exchange(comm: &Comm) {
    let rank = comm.rank().unwrap();
    assert_eq!(comm.info().unwrap().rank, rank);
    let mut buffer = vec![0_u8; 64];
    // SAFETY: the buffer lives until its registration ends.
    unsafe { comm.register_buffer(buffer.as_mut_ptr(), buffer.len()) }.unwrap();
    comm.deregister_buffer(buffer.as_ptr()).unwrap();
    let error = comm.deregister_buffer(buffer.as_ptr()).unwrap_err();
    assert_eq!(error.status, sys::DTL_ERROR_NOT_FOUND);
    let copy = comm.dup().unwrap();
    assert!(copy.split(None, 0).unwrap().is_none());
    let alone = comm.split(Some(rank), 0).unwrap().unwrap();
    assert_eq!(alone.size().unwrap(), 1);
    assert!(comm.dump().unwrap().contains("rank"));
    assert_eq!(Comm::world().unwrap().size().unwrap(), 1);
}

#[test]
fn a_wrong_number_of_ranks_is_a_failure() {
    library();
    for size in [0, -1, i32::MIN] {
        assert_eq!(Comm::threads(size, 0).unwrap_err().status, sys::DTL_ERROR_INVALID_ARGUMENT);
    }
}

#[test]
fn registries_and_the_node_are_listed() {
    library();
    dtl_binding::plugins().unwrap();
    for environment in dtl_binding::environments().unwrap() {
        environment.unavailable().unwrap();
    }
    let kinds = dtl_binding::members(sys::DTL_ENUM_MEMORY).unwrap();
    assert!(kinds.contains(&sys::DTL_MEMORY_HOST));
    dtl_binding::member_name(sys::DTL_MEMORY_HOST).unwrap();
    assert!(dtl_binding::topology().unwrap().cpus_online > 0);
    assert!(!dtl_binding::affinity().unwrap().is_empty());
}

#[test]
fn policies_return_what_the_task_returns() {
    library();
    let defaults = sys::DTL_POLICY_OPTS_INIT;
    let key = sys::dtl_task_key_t { task: 1, variant: 0 };
    let policy = Policy::new("round_robin", &[10, 20, 30], &defaults).unwrap();
    let run = |_| policy.submit_and_wait(key, NO_LIMIT, |resource| Ok(resource + 1)).unwrap();
    let mut chosen: Vec<_> = (0..6).map(run).collect();
    assert_eq!(chosen[..3], chosen[3..]);
    chosen.sort_unstable();
    assert_eq!(chosen, [11, 11, 21, 21, 31, 31]);
    let fixed = sys::dtl_policy_opts_t { fixed_index: 2, ..defaults };
    let policy = Policy::new("fixed", &[10, 20, 30], &fixed).unwrap();
    let failure = policy.submit_and_wait(key, NO_LIMIT, |_| Backend::find("nothing")).unwrap_err();
    assert_eq!(failure.call, "dtl_backend_get");
    assert!(failure.text.contains("nothing"), "{failure}");
    let panic = std::panic::catch_unwind(|| {
        policy.submit_and_wait::<_, ()>(key, NO_LIMIT, |resource| panic!("on {resource}"))
    });
    assert_eq!(panic.unwrap_err().downcast_ref::<String>().unwrap(), "on 30");
    let error = Policy::new("no such policy", &[1], &defaults).unwrap_err();
    assert_eq!(error.status, sys::DTL_ERROR_NOT_FOUND);
}
