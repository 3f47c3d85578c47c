//! Devices: count, select, describe.

use crate::abi::devices::device::dtl_device_info_t;
use crate::abi::handle::dtl_backend_t;
use crate::abi::status::dtl_status_t;
use crate::ffi::args::{self, Out};
use crate::ffi::guard::Entry;
use crate::runtime::{array, device};

/// Returns the number of devices of a backend.
///
/// @return DTL_ERROR_UNAVAILABLE: the backend cannot run here. The text has the reason.
///         DTL_ERROR_NOT_SUPPORTED: the backend has no device component.
/// Equivalent: cudaGetDeviceCount.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_backend_device_count(
    backend: dtl_backend_t,
    out_count: *mut i32,
) -> dtl_status_t {
    Entry("dtl_backend_device_count").call(|inside| {
        Out::new(out_count, "out_count")?.put(device::backend(inside, backend)?.device()?.count())
    })
}

/// Sets the current device of the calling thread, and makes its backend the one that
/// DTL_BACKEND_NULL refers to in this thread. Other threads are not affected.
///
/// @param device  0 to the device count - 1.
/// @return DTL_ERROR_OUT_OF_BOUNDS: there is no such device. Nothing changed.
/// Equivalent: cudaSetDevice.
#[unsafe(no_mangle)]
pub extern "C" fn dtl_backend_set_device(backend: dtl_backend_t, device: i32) -> dtl_status_t {
    Entry("dtl_backend_set_device").call(|inside| {
        device::forget_gone(inside);
        device::set(device::backend(inside, backend)?, device)
    })
}

/// Returns the current device of a backend in the calling thread.
/// Equivalent: cudaGetDevice.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_backend_get_device(
    backend: dtl_backend_t,
    out_device: *mut i32,
) -> dtl_status_t {
    Entry("dtl_backend_get_device").call(|inside| {
        Out::new(out_device, "out_device")?.put(device::get(device::backend(inside, backend)?))
    })
}

/// Returns the DLPack device type and id of a device, for arrays shared with other libraries.
///
/// @param out_type  A DLDeviceType of dlpack.h.
/// @param out_id    The device number within that type.
/// @return DTL_ERROR_NOT_SUPPORTED: the devices of the backend have none.
///         DTL_ERROR_OUT_OF_BOUNDS: there is no such device.
/// Equivalent: StepMesh's GetDevice.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_backend_dlpack_device(
    backend: dtl_backend_t,
    device: i32,
    out_type: *mut i32,
    out_id: *mut i32,
) -> dtl_status_t {
    Entry("dtl_backend_dlpack_device").call(|inside| {
        let outputs = (Out::new(out_type, "out_type")?, Out::new(out_id, "out_id")?);
        let backend = device::backend(inside, backend)?;
        device::check(backend, device)?;
        args::put_both(outputs, array::number(backend, device))
    })
}

/// Describes a device.
///
/// @param out_info  Start from DTL_DEVICE_INFO_INIT.
/// @return DTL_ERROR_OUT_OF_BOUNDS: there is no such device.
/// Equivalent: cudaGetDeviceProperties.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_device_info(
    backend: dtl_backend_t,
    device: i32,
    out_info: *mut dtl_device_info_t,
) -> dtl_status_t {
    Entry("dtl_device_info").call(|inside| {
        let backend = device::backend(inside, backend)?;
        // SAFETY: the caller's contract.
        unsafe { args::fill(out_info, "out_info", || device::info(backend, device)) }
    })
}

/// Returns the free and total memory of a device in bytes; 0 means unknown. For the host, neither
/// exceeds the limit of the control group.
///
/// @param device  0 to the device count - 1. For a backend with memory and without devices, 0
///                stands for all of its memory.
/// @return DTL_ERROR_OUT_OF_BOUNDS: there is no such device.
///         DTL_ERROR_NOT_SUPPORTED: the backend does not report it.
/// Equivalent: cudaMemGetInfo.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_device_memory_info(
    backend: dtl_backend_t,
    device: i32,
    out_free_bytes: *mut u64,
    out_total_bytes: *mut u64,
) -> dtl_status_t {
    Entry("dtl_device_memory_info").call(|inside| {
        let free = Out::new(out_free_bytes, "out_free_bytes")?;
        let total = Out::new(out_total_bytes, "out_total_bytes")?;
        let backend = device::backend(inside, backend)?;
        args::put_both((free, total), device::memory_info(backend, device))
    })
}
