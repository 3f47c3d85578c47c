//! Tests of calls with invalid handles, pointers and structs. The library rejects these calls for
//! every backend.

use crate::kit::prelude::*;
use dtl_binding::Status;

pub(crate) const TESTS: &[(&str, Body)] = functions![
    Tables "abi.handles.":
        nonsense_refused, wrong_type_refused, destroy_of_null_succeeds;
    Tables "abi.calls.":
        null_outputs_refused, null_names_refused,
        struct_size_zero_refused = || info_sized(0, DTL_ERROR_INVALID_ARGUMENT),
        enormous_struct_refused = || info_sized(1 << 20, DTL_ERROR_INCOMPATIBLE_ABI),
        unknown_backend_named, failure_leaves_outputs;
    Tables "abi.texts.":
        version_is_the_kits, statuses_have_names, last_error_is_the_threads;
];

fn nonsense_refused() -> Outcome {
    for id in [1u64, 0xdead_beef, u64::MAX, 1 << 56 | 77 << 36 | 5] {
        let (when, mut count) = (format!("the handle {id:#x}"), 0);
        invalid([
            (call!(dtl_backend_device_count(dtl_backend_t { id }, &raw mut count)), &when),
            (call!(dtl_stream_wait(dtl_stream_t { id }, DTL_TIMEOUT_INFINITE)), &when),
            (call!(dtl_event_wait(dtl_event_t { id }, DTL_TIMEOUT_INFINITE)), &when),
            (call!(dtl_executor_wait(dtl_executor_t { id }, DTL_TIMEOUT_INFINITE)), &when),
            (call!(dtl_comm_size(dtl_comm_t { id }, &raw mut count)), &when),
        ])?;
    }
    Ok(())
}

fn wrong_type_refused() -> Outcome {
    let id = Backend::find("host")?.handle.id;
    invalid([
        (
            call!(dtl_stream_wait(dtl_stream_t { id }, DTL_TIMEOUT_INFINITE)),
            "a backend as a stream",
        ),
        (call!(dtl_kernel_destroy(dtl_kernel_t { id })), "a backend as a kernel"),
        (call!(dtl_comm_destroy(dtl_comm_t { id })), "a backend as a communicator"),
    ])
}

fn destroy_of_null_succeeds() -> Outcome {
    call!(dtl_stream_destroy(DTL_STREAM_NULL))?;
    call!(dtl_event_destroy(DTL_EVENT_NULL))?;
    call!(dtl_executor_destroy(DTL_EXECUTOR_NULL))?;
    call!(dtl_kernel_destroy(DTL_KERNEL_NULL))?;
    call!(dtl_comm_destroy(dtl_comm_t { id: 0 }))?;
    Ok(call!(dtl_backend_unregister(DTL_BACKEND_NULL))?)
}

fn null_outputs_refused() -> Outcome {
    let host = Backend::find("host")?.handle;
    let results = [
        call!(dtl_backend_count(ptr::null_mut())),
        call!(dtl_backend_device_count(host, ptr::null_mut())),
        call!(dtl_backend_get_device(host, ptr::null_mut())),
        call!(dtl_device_info(host, 0, ptr::null_mut())),
        call!(dtl_mem_alloc(host, DTL_MEMORY_HOST, 64, 0, ptr::null_mut())),
        call!(dtl_stream_create(host, 0, 0, ptr::null_mut())),
        call!(dtl_event_create(host, 0, ptr::null_mut())),
        call!(dtl_executor_create(host, ptr::null(), ptr::null_mut())),
    ];
    let each = |result| refused(result, DTL_ERROR_NULL_POINTER, "a NULL output");
    results.into_iter().try_for_each(each)
}

fn null_names_refused() -> Outcome {
    let (host, mut yes, mut out) = (Backend::find("host")?.handle, 0, DTL_BACKEND_NULL);
    let register =
        |name, out| call!(dtl_backend_register(name, ptr::null(), ptr::null_mut(), 0, out));
    let (null, out) = (DTL_ERROR_NULL_POINTER, &raw mut out);
    refused(register(ptr::null(), out), null, "register without a name")?;
    refused(register(c"ctk".as_ptr(), out), null, "register without a table")?;
    let supports = call!(dtl_backend_supports(host, ptr::null(), &raw mut yes));
    refused(supports, null, "supports without a name")
}

/// Calls `dtl_device_info` with this `struct_size` and checks that the call fails with `status`.
fn info_sized(size: u32, status: i32) -> Outcome {
    let host = Backend::find("host")?.handle;
    let mut info = DTL_DEVICE_INFO_INIT;
    info.struct_size = size;
    refused(call!(dtl_device_info(host, 0, &raw mut info)), status, &format!("struct_size {size}"))
}

fn unknown_backend_named() -> Outcome {
    let found = Backend::find("no-such-backend");
    if let Err(Error { status: Status(DTL_ERROR_NOT_FOUND), text, .. }) = &found {
        ensure!(text.contains("host"), "the text does not list the known ones: {text}");
    }
    refused(found, DTL_ERROR_NOT_FOUND, "a name that is none")
}

fn failure_leaves_outputs() -> Outcome {
    let mut count = 12_345;
    let result = call!(dtl_backend_device_count(dtl_backend_t { id: 77 }, &raw mut count));
    ensure!(result.is_err() && count == 12_345, "the refused call wrote {count}");
    let mut stream = dtl_stream_t { id: 99 };
    let result = call!(dtl_stream_create(Backend::find("host")?.handle, 55, 0, &raw mut stream));
    check!(result.is_err() && stream.id == 99, "the refused call wrote a stream")
}

fn version_is_the_kits() -> Outcome {
    let is = dtl_library_abi_version();
    check!(
        is == DTL_ABI_VERSION,
        "the library has ABI version {is}, the kit was built for {DTL_ABI_VERSION}"
    )
}

fn statuses_have_names() -> Outcome {
    const SOME: [i32; 4] =
        [DTL_ERROR_TIMEOUT, DTL_ERROR_TRUNCATED, DTL_ERROR_NATIVE_BACKEND, DTL_ERROR_FORKED];
    for status in [DTL_SUCCESS].into_iter().chain(SOME) {
        let name = name_of(status);
        let known = name.starts_with("DTL_") && name != "DTL_ERROR_UNKNOWN";
        ensure!(known, "status {status} is called {name}");
    }
    check!(name_of(31_337) == "DTL_ERROR_UNKNOWN", "31337 is called {}", name_of(31_337))
}

fn last_error_is_the_threads() -> Outcome {
    let text = |name| Backend::find(name).map_or_else(|refused| refused.text, |_| String::new());
    let mine = text("first-name");
    let theirs = thread::spawn(move || text("second-name")).join().unwrap_or_default();
    let again = call!(dtl_backend_count(ptr::null_mut()));
    let own = again.is_err() && mine.contains("first-name") && theirs.contains("second-name");
    check!(own, "\"{mine}\" and \"{theirs}\"")
}

/// Fails unless each call was rejected with DTL_ERROR_INVALID_HANDLE.
fn invalid<const N: usize>(results: [(Called, &str); N]) -> Outcome {
    let each = |(result, when)| refused(result, DTL_ERROR_INVALID_HANDLE, when);
    results.into_iter().try_for_each(each)
}
