//! Registration of the library's memory with a protection domain of the program: memory of the host
//! by its address, memory of a CUDA device as a dma-buf.
//!
//! The crate `ibverbs` keeps its protection domains to itself, and registers only vectors that it
//! has allocated. So the protection domain is one of `ibverbs-sys`.

use dtl_binding::{Backend, Memory, sys};
use ibverbs_sys as ffi;
use std::os::fd::AsRawFd;

/// Access of the local device, which every registration has.
const ACCESS: i32 = ffi::ibv_access_flags::IBV_ACCESS_LOCAL_WRITE.0 as i32;

/// Deregisters a memory region. `None`: the registration was refused.
fn deregister(region: *mut ffi::ibv_mr) -> Option<u32> {
    if region.is_null() {
        return None;
    }
    // SAFETY: a live region.
    let key = unsafe { (*region).lkey };
    // SAFETY: a live region that nothing uses.
    assert_eq!(unsafe { ffi::ibv_dereg_mr(region) }, 0);
    Some(key)
}

/// Registers memory of the host. Returns its key.
fn host(domain: *mut ffi::ibv_pd, memory: &Memory) -> Option<u32> {
    // SAFETY: the memory lives until the region is deregistered.
    deregister(unsafe { ffi::ibv_reg_mr(domain, memory.as_ptr().cast(), memory.size(), ACCESS) })
}

/// Registers memory of a device as a dma-buf. Returns its key.
fn device(domain: *mut ffi::ibv_pd, memory: &Memory) -> Option<u32> {
    let exported = memory.export_dmabuf(0, memory.size()).expect("dtl_mem_export_dmabuf");
    let (fd, start) = (exported.fd.as_raw_fd(), exported.offset);
    let (len, address) = (memory.size(), memory.as_ptr().addr() as u64);
    // SAFETY: the memory and the descriptor live until the region is deregistered.
    deregister(unsafe { ffi::ibv_reg_dmabuf_mr(domain, start, len, address, fd, ACCESS) })
}

/// Registers memory of each kind with the first device.
pub(crate) fn all() {
    let mut count = 0;
    // SAFETY: the output is a local.
    let list = unsafe { ffi::ibv_get_device_list(&raw mut count) };
    assert!(count > 0);
    // SAFETY: the list has `count` devices.
    let first = unsafe { *list };
    // SAFETY: a device of a list that has not been freed.
    let context = unsafe { ffi::ibv_open_device(first) };
    assert!(!context.is_null());
    // SAFETY: the device stays open without the list.
    unsafe { ffi::ibv_free_device_list(list) };
    // SAFETY: an open device.
    let domain = unsafe { ffi::ibv_alloc_pd(context) };
    assert!(!domain.is_null());
    let memory = Backend::find("host").unwrap().alloc(sys::DTL_MEMORY_HOST, 1 << 16, 4096).unwrap();
    let key = host(domain, &memory).expect("ibv_reg_mr");
    println!("{} bytes of the host are registered: key {key}", memory.size());
    match Backend::require("cuda") {
        Ok(cuda) => {
            cuda.device(0).make_current().unwrap();
            let memory = cuda.alloc(sys::DTL_MEMORY_SHARED, 1 << 16, 0).unwrap();
            let key = device(domain, &memory).expect("ibv_reg_dmabuf_mr");
            println!("{} bytes of a CUDA device are registered: key {key}", memory.size());
        }
        Err(error) => println!("no memory of a CUDA device: {error}"),
    }
    // SAFETY: nothing is registered with it any more.
    assert_eq!(unsafe { ffi::ibv_dealloc_pd(domain) }, 0);
    // SAFETY: nothing of the device is left.
    assert_eq!(unsafe { ffi::ibv_close_device(context) }, 0);
}
