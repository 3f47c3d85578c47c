//! Discovery of libibverbs and of its devices.

use super::functions::Functions;
use crate::backend::vendor_lib::{Names, VendorLib};
use crate::from_c::text_at;
use crate::runtime::settings;
use crate::sys::memory::buf::Addr;
use crate::sys::os::process;

static LIBRARY: VendorLib<Functions> = VendorLib::new(Names {
    name: "RDMA verbs",
    part: "library",
    soname: "libibverbs.so.1",
    variable: "DTL_RDMA_LIBRARY",
    wanted: "rdma-core's libibverbs.so.1",
    advice: "install rdma-core's library where the loader finds it (Debian: libibverbs1 and \
             ibverbs-providers), or name it with DTL_RDMA_LIBRARY",
});

/// List of RDMA devices. A device can be opened only while the list that contains it exists.
pub(crate) struct DeviceList {
    calls: &'static Functions,
    list: *mut *mut std::ffi::c_void,
    count: usize,
}

impl DeviceList {
    /// Lists the RDMA devices. If no device is found, `Err` contains the reason.
    pub(crate) fn get(calls: &'static Functions) -> std::result::Result<Self, String> {
        let mut count = 0;
        // SAFETY: `count` has room for an int.
        let list = unsafe { (calls.ibv_get_device_list)(&raw mut count) };
        if list.is_null() {
            let error = std::io::Error::last_os_error();
            return Err(match error.raw_os_error() {
                Some(libc::ENOSYS) => {
                    "no RDMA device: the kernel has no RDMA support (module ib_uverbs; ENOSYS)"
                        .to_owned()
                }
                Some(libc::EPERM | libc::EACCES) => {
                    format!(
                        "no RDMA device: /dev/infiniband may not be opened ({error}): ask for \
                         access to it"
                    )
                }
                _ => format!("no RDMA device: ibv_get_device_list: {error}"),
            });
        }
        let list = DeviceList { calls, list, count: usize::try_from(count).unwrap_or(0) };
        if list.count == 0 {
            return Err("no RDMA device: the kernel knows of none (ibv_devices and \"rdma link\" \
                show them)"
                .to_owned());
        }
        Ok(list)
    }

    /// Returns each device with its name.
    pub(crate) fn devices(&self) -> Vec<(Addr, String)> {
        let of = |index| {
            // SAFETY: the list has `count` entries, and `index` is below `count`.
            let device = unsafe { self.list.add(index) };
            // SAFETY: `device` points to an entry of the list.
            let device = unsafe { *device };
            // SAFETY: `device` is a device of the list, and its name lives as long as the list.
            let name = unsafe { (self.calls.ibv_get_device_name)(device) };
            // SAFETY: libibverbs returned the name, which is null or NUL-terminated.
            (Addr::new(device), unsafe { text_at(name) }.unwrap_or_default())
        };
        (0..self.count).map(of).collect()
    }
}

impl Drop for DeviceList {
    fn drop(&mut self) {
        // SAFETY: libibverbs returned the list, which is freed once; opened devices do not need it.
        unsafe { (self.calls.ibv_free_device_list)(self.list) }
    }
}

/// Loads libibverbs; `Err` is the reason why it cannot be loaded or finds no RDMA devices.
pub fn find() -> std::result::Result<&'static Functions, String> {
    let settings = settings::current();
    // Occupies descriptors 0 to 2 so that libibverbs opens no file as a standard stream.
    let _places = process::occupy_standard();
    let named = settings.fabric.get("DTL_RDMA_LIBRARY").map(String::as_str);
    // SAFETY: the library is libibverbs by its name, or the user vouches for the library.
    let calls = unsafe { LIBRARY.load(named) }?;
    DeviceList::get(calls).map(|_| calls)
}
