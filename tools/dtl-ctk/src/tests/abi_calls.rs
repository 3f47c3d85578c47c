//! Tests of calls with wrong handles, pointers and structs: whatever the backend, the library
//! answers.

use crate::api::name_of;
use crate::kit::calls::{Backend, no_device_info};
use crate::kit::catalog::{Group, tests_of_tables};
use crate::kit::outcome::{Outcome, call, called, ensure, refused};
use dtl_sys::*;
use std::ptr;

pub(crate) const GROUPS: &[Group] = &[
    Group {
        slot: "handles of every kind",
        needs: &[],
        rule: "A stale, foreign or wrong handle answers DTL_ERROR_INVALID_HANDLE; destroying a \
            null one is success.",
        usually: "The library and the header that the kit was built with do not belong together.",
        tests: tests_of_tables![
            "abi.handles.nonsense_refused": "numbers that never were handles" => nonsense;
            "abi.handles.wrong_type_refused": "a backend's handle where a stream is \
             wanted" => wrong_type;
            "abi.handles.destroy_of_null_succeeds": "null handles of all types" => null_destroy;
        ],
    },
    Group {
        slot: "outputs and structs",
        needs: &[],
        rule: "A NULL output is DTL_ERROR_NULL_POINTER. Structs start with struct_size; a longer \
            one with garbage \
               behind what is known is DTL_ERROR_INCOMPATIBLE_ABI. Failed calls write no outputs.",
        usually: "The library and the header that the kit was built with do not belong together.",
        tests: tests_of_tables![
            "abi.calls.null_outputs_refused": "NULL where an output is wanted" => null_outputs;
            "abi.calls.null_names_refused": "NULL where a name is wanted" => null_names;
            "abi.calls.struct_size_zero_refused": "dtl_device_info with struct_size 0" => info_zero;
            "abi.calls.enormous_struct_refused": "dtl_device_info with struct_size \
             2^20" => info_enormous;
            "abi.calls.unknown_backend_named": "the text of DTL_ERROR_NOT_FOUND lists the known \
             ones" => not_found;
            "abi.calls.failure_leaves_outputs": "a refused call writes nothing" => outputs_stay;
        ],
    },
    Group {
        slot: "versions and texts",
        needs: &[],
        rule: "Every status has a name and a message; the last error belongs to the thread.",
        usually: "The library and the header that the kit was built with do not belong together.",
        tests: tests_of_tables![
            "abi.texts.version_is_the_kits": "the library's ABI version is the one the kit was \
             built for" => version;
            "abi.texts.statuses_have_names": "all known statuses, and a number that is \
             none" => names;
            "abi.texts.last_error_is_the_threads": "a failure on another thread leaves this one's \
             text" => last_error;
        ],
    },
];

fn nonsense() -> Outcome {
    for id in [1u64, 0xdead_beef, u64::MAX, 1 << 56 | 77 << 36 | 5] {
        let when = format!("the handle {id:#x}");
        let mut count = 0;
        let result = call!(dtl_backend_device_count(dtl_backend_t { id }, &raw mut count));
        refused(result, DTL_ERROR_INVALID_HANDLE, &when)?;
        refused(
            called("dtl_stream_synchronize", dtl_stream_synchronize(dtl_stream_t { id })),
            DTL_ERROR_INVALID_HANDLE,
            &when,
        )?;
        refused(
            called("dtl_event_sync", dtl_event_sync(dtl_event_t { id })),
            DTL_ERROR_INVALID_HANDLE,
            &when,
        )?;
        refused(
            called("dtl_executor_synchronize", dtl_executor_synchronize(dtl_executor_t { id })),
            DTL_ERROR_INVALID_HANDLE,
            &when,
        )?;
        refused(
            call!(dtl_comm_size(dtl_comm_t { id }, &raw mut count)),
            DTL_ERROR_INVALID_HANDLE,
            &when,
        )?;
    }
    Ok(())
}

fn wrong_type() -> Outcome {
    let id = Backend::find("host")?.handle.id;
    refused(
        called("dtl_stream_synchronize", dtl_stream_synchronize(dtl_stream_t { id })),
        DTL_ERROR_INVALID_HANDLE,
        "a backend as a stream",
    )?;
    refused(
        called("dtl_kernel_destroy", dtl_kernel_destroy(dtl_kernel_t { id })),
        DTL_ERROR_INVALID_HANDLE,
        "a backend as a kernel",
    )?;
    refused(
        called("dtl_comm_destroy", dtl_comm_destroy(dtl_comm_t { id })),
        DTL_ERROR_INVALID_HANDLE,
        "a backend as a communicator",
    )
}

fn null_destroy() -> Outcome {
    called("dtl_stream_destroy", dtl_stream_destroy(dtl_stream_t { id: 0 }))?;
    called("dtl_event_destroy", dtl_event_destroy(dtl_event_t { id: 0 }))?;
    called("dtl_executor_destroy", dtl_executor_destroy(dtl_executor_t { id: 0 }))?;
    called("dtl_kernel_destroy", dtl_kernel_destroy(dtl_kernel_t { id: 0 }))?;
    called("dtl_comm_destroy", dtl_comm_destroy(dtl_comm_t { id: 0 }))?;
    Ok(call!(dtl_backend_unregister(dtl_backend_t { id: 0 }))?)
}

fn null_outputs() -> Outcome {
    let host = Backend::find("host")?.handle;
    let (status, null) = (DTL_ERROR_NULL_POINTER, "a NULL output");
    refused(call!(dtl_backend_count(ptr::null_mut())), status, null)?;
    refused(call!(dtl_backend_device_count(host, ptr::null_mut())), status, null)?;
    refused(call!(dtl_backend_get_device(host, ptr::null_mut())), status, null)?;
    refused(call!(dtl_device_info(host, 0, ptr::null_mut())), status, null)?;
    refused(call!(dtl_mem_alloc(host, DTL_MEMORY_HOST, 64, 0, ptr::null_mut())), status, null)?;
    refused(call!(dtl_stream_create(host, 0, 0, ptr::null_mut())), status, null)?;
    refused(call!(dtl_event_create(host, 0, ptr::null_mut())), status, null)?;
    refused(call!(dtl_executor_create(host, ptr::null(), ptr::null_mut())), status, null)
}

fn null_names() -> Outcome {
    let (host, mut yes) = (Backend::find("host")?.handle, 0);
    let mut out = DTL_BACKEND_NULL;
    let result =
        call!(dtl_backend_register(ptr::null(), ptr::null(), ptr::null_mut(), 0, &raw mut out));
    refused(result, DTL_ERROR_NULL_POINTER, "register without a name")?;
    let result =
        call!(dtl_backend_register(c"ctk".as_ptr(), ptr::null(), ptr::null_mut(), 0, &raw mut out));
    refused(result, DTL_ERROR_NULL_POINTER, "register without a table")?;
    refused(
        call!(dtl_backend_supports(host, ptr::null(), &raw mut yes)),
        DTL_ERROR_NULL_POINTER,
        "supports without a name",
    )
}

/// dtl_device_info with a struct that claims this size.
fn info_sized(size: u32, status: i32) -> Outcome {
    let host = Backend::find("host")?.handle;
    let mut info = no_device_info();
    info.struct_size = size;
    refused(call!(dtl_device_info(host, 0, &raw mut info)), status, &format!("struct_size {size}"))
}

fn info_zero() -> Outcome {
    info_sized(0, DTL_ERROR_INVALID_ARGUMENT)
}

fn info_enormous() -> Outcome {
    info_sized(1 << 20, DTL_ERROR_INCOMPATIBLE_ABI)
}

fn not_found() -> Outcome {
    match Backend::find("no-such-backend") {
        Err(refused) if refused.status == DTL_ERROR_NOT_FOUND => {
            ensure!(
                refused.text.contains("host"),
                "the text does not list the known ones: {}",
                refused.text
            );
            Ok(())
        }
        other => refused(other, DTL_ERROR_NOT_FOUND, "a name that is none"),
    }
}

fn outputs_stay() -> Outcome {
    let mut count = 12_345;
    let result = call!(dtl_backend_device_count(dtl_backend_t { id: 77 }, &raw mut count));
    ensure!(result.is_err() && count == 12_345, "the refused call wrote {count}");
    let mut stream = dtl_stream_t { id: 99 };
    let result = call!(dtl_stream_create(Backend::find("host")?.handle, 55, 0, &raw mut stream));
    ensure!(result.is_err() && stream.id == 99, "the refused call wrote a stream");
    Ok(())
}

fn version() -> Outcome {
    let is = dtl_abi_version();
    ensure!(
        is == DTL_ABI_VERSION,
        "the library has ABI version {is}, the kit was built for {DTL_ABI_VERSION}"
    );
    Ok(())
}

fn names() -> Outcome {
    for status in [
        DTL_SUCCESS,
        DTL_ERROR_TIMEOUT,
        DTL_ERROR_TRUNCATED,
        DTL_ERROR_NATIVE_BACKEND,
        DTL_ERROR_FORKED,
    ] {
        let name = name_of(status);
        ensure!(
            name.starts_with("DTL_") && name != "DTL_ERROR_UNKNOWN",
            "status {status} is called {name}"
        );
    }
    ensure!(name_of(31_337) == "DTL_ERROR_UNKNOWN", "31337 is called {}", name_of(31_337));
    Ok(())
}

fn last_error() -> Outcome {
    let text = |result: crate::kit::outcome::Called<Backend>| {
        result.err().map(|refused| refused.text).unwrap_or_default()
    };
    let mine = text(Backend::find("first-name"));
    let theirs =
        std::thread::spawn(move || text(Backend::find("second-name"))).join().unwrap_or_default();
    let again = call!(dtl_backend_count(ptr::null_mut()));
    ensure!(
        again.is_err() && mine.contains("first-name") && theirs.contains("second-name"),
        "\"{mine}\" and \"{theirs}\""
    );
    Ok(())
}
