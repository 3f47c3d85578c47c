//! Backends in the library's registry, and their devices.

use crate::text::c_string;
use crate::{Library, Memory, Result, call, field, sys, text};
use std::any::Any;
use std::cell::RefCell;
use std::ffi::c_char;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{PoisonError, RwLock};

/// Locked for reading while the name of a backend is read, and for writing while one is unregistered,
/// which frees its name.
static NAMES: RwLock<()> = RwLock::new(());

thread_local! {
    /// Drivers whose last use has ended while this thread holds [`NAMES`] for writing. Their drops
    /// may use backends, so they run when the lock is free.
    static ENDED: RefCell<Option<Vec<Box<dyn Any>>>> = const { RefCell::new(None) };
}

/// Drops a driver: now, or at the end of a running [`Backend::unregister`] of this thread.
pub(crate) fn drop_driver(driver: Box<dyn Any>) {
    let mut driver = Some(driver);
    // Fails while the thread ends, which is in no call.
    let _ = ENDED.try_with(|ended| {
        if let Some(list) = ended.borrow_mut().as_mut() {
            list.extend(driver.take());
        }
    });
    drop(driver);
}

/// A backend: a built-in one, or one that a plugin or the program registered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backend {
    handle: sys::dtl_backend_t,
}

/// Returns all backends, available or not, in the order of their registration.
///
/// # Errors
/// See `dtl_backend_count`.
pub fn backends() -> Result<impl Iterator<Item = Backend>> {
    let mut count = 0;
    // SAFETY: the output is a local.
    unsafe { call!(dtl_backend_count(&raw mut count)) }?;
    // One that was unregistered meanwhile makes the list shorter.
    Ok((0..count).map_while(|index| Backend::at(index).ok()))
}

impl Backend {
    /// Finds a backend by its name; "auto" selects the default backend.
    ///
    /// # Errors
    /// See `dtl_backend_get`.
    pub fn find(name: &str) -> Result<Backend> {
        let name = c_string("dtl_backend_get", "name", name)?;
        let mut handle = sys::DTL_BACKEND_NULL;
        // SAFETY: the name ends with NUL; the output is a local.
        unsafe { call!(dtl_backend_get(name.as_ptr(), &raw mut handle)) }?;
        Ok(Backend { handle })
    }

    /// Finds a backend by its name, if it can run on this machine.
    ///
    /// # Errors
    /// See `dtl_backend_require`: the error of a backend that cannot run has the reason.
    pub fn require(name: &str) -> Result<Backend> {
        let name = c_string("dtl_backend_require", "name", name)?;
        let mut handle = sys::DTL_BACKEND_NULL;
        // SAFETY: the name ends with NUL; the output is a local.
        unsafe { call!(dtl_backend_require(name.as_ptr(), &raw mut handle)) }?;
        Ok(Backend { handle })
    }

    fn at(index: u64) -> Result<Backend> {
        let mut handle = sys::DTL_BACKEND_NULL;
        // SAFETY: the output is a local.
        unsafe { call!(dtl_backend_at(index, &raw mut handle)) }?;
        Ok(Backend { handle })
    }

    /// Creates a [`Backend`] from a handle.
    #[must_use]
    pub fn from_raw(handle: sys::dtl_backend_t) -> Backend {
        Backend { handle }
    }

    /// Returns the handle of the backend.
    #[must_use]
    pub fn raw(self) -> sys::dtl_backend_t {
        self.handle
    }

    /// Returns the name of the backend. The borrow of the [`Library`] keeps the library initialized
    /// while the name is read, because the name is valid only while its backend is registered.
    ///
    /// # Errors
    /// See `dtl_backend_info`.
    pub fn name(self, _initialised: &Library) -> Result<String> {
        let _registered = NAMES.read().unwrap_or_else(PoisonError::into_inner);
        let info = self.info()?;
        // SAFETY: the name lives as long as the backend is registered. The borrowed initialization
        // keeps the library from being finalized, and the lock keeps `unregister` out.
        // `dtl_backend_unregister` itself is unsafe: its caller promises that nobody uses the name.
        Ok(unsafe { text::text_of(info.name) })
    }

    /// Removes a registered backend. Its driver is dropped after its last use: in this call, or when
    /// the calls of other threads have returned.
    ///
    /// # Errors
    /// See `dtl_backend_unregister`: DTL_ERROR_BUSY while memory, streams, events, executors or
    /// communicators of the backend exist.
    pub fn unregister(self) -> Result {
        let alone = NAMES.write().unwrap_or_else(PoisonError::into_inner);
        ENDED.set(Some(Vec::new()));
        // SAFETY: nobody uses the name: this crate reads it with the lock only, and others got its
        // address from `info`, under the condition that the backend stays registered.
        let outcome = unsafe { call!(dtl_backend_unregister(self.handle)) };
        let ended = ENDED.take();
        drop(alone);
        // Nobody gets the text of a panic in a drop; the panic hook has written it.
        let drops = ended.into_iter().flatten();
        drops.for_each(|driver| drop(catch_unwind(AssertUnwindSafe(|| drop(driver)))));
        outcome
    }

    /// Returns the components, priority and flags. The name in the result is a pointer; see
    /// [`Backend::name`].
    ///
    /// # Errors
    /// See `dtl_backend_info`.
    pub fn info(self) -> Result<sys::dtl_backend_info_t> {
        let mut info = sys::DTL_BACKEND_INFO_INIT;
        // SAFETY: the output is a local with its size.
        unsafe { call!(dtl_backend_info(self.handle, &raw mut info)) }?;
        Ok(info)
    }

    /// Returns the reason why the backend cannot run here; `None` if it can.
    ///
    /// # Errors
    /// See `dtl_backend_is_available`.
    pub fn unavailable(self) -> Result<Option<String>> {
        const ROOM: usize = 4096;
        let (mut yes, mut why) = (0, [0 as c_char; ROOM]);
        let (out, room, no_len) = (why.as_mut_ptr(), ROOM as u64, std::ptr::null_mut());
        // SAFETY: the outputs are locals, the second of `room` bytes.
        unsafe { call!(dtl_backend_is_available(self.handle, &raw mut yes, out, room, no_len)) }?;
        Ok((yes == 0).then(|| field(&why)))
    }

    /// Returns true if the backend has a feature, for example "exec", "modules" or "shared_memory".
    ///
    /// # Errors
    /// See `dtl_backend_supports`.
    pub fn supports(self, feature: &str) -> Result<bool> {
        let feature = c_string("dtl_backend_supports", "feature", feature)?;
        let mut yes = 0;
        // SAFETY: the name ends with NUL; the output is a local.
        unsafe { call!(dtl_backend_supports(self.handle, feature.as_ptr(), &raw mut yes)) }?;
        Ok(yes != 0)
    }

    /// Returns the number of devices.
    ///
    /// # Errors
    /// See `dtl_backend_device_count`.
    pub fn device_count(self) -> Result<i32> {
        let mut count = 0;
        // SAFETY: the output is a local.
        unsafe { call!(dtl_backend_device_count(self.handle, &raw mut count)) }?;
        Ok(count)
    }

    /// Returns all devices.
    ///
    /// # Errors
    /// See `dtl_backend_device_count`.
    pub fn devices(self) -> Result<impl Iterator<Item = Device>> {
        Ok((0..self.device_count()?).map(move |index| self.device(index)))
    }

    /// Returns the device with index `index`. Does not check that the device exists; calls with a
    /// nonexistent device fail.
    #[must_use]
    pub fn device(self, index: i32) -> Device {
        Device { backend: self, index }
    }

    /// Returns the calling thread's current device.
    ///
    /// # Errors
    /// See `dtl_backend_get_device`.
    pub fn current_device(self) -> Result<Device> {
        let mut index = 0;
        // SAFETY: the output is a local.
        unsafe { call!(dtl_backend_get_device(self.handle, &raw mut index)) }?;
        Ok(self.device(index))
    }

    /// Describes a kind of memory.
    ///
    /// # Errors
    /// See `dtl_mem_kind_info`.
    pub fn memory_kind(self, kind: sys::dtl_enum_word_t) -> Result<sys::dtl_mem_kind_info_t> {
        let mut info = sys::DTL_MEM_KIND_INFO_INIT;
        // SAFETY: the output is a local with its size.
        unsafe { call!(dtl_mem_kind_info(self.handle, kind, &raw mut info)) }?;
        Ok(info)
    }

    /// Returns the allocation statistics of the backend.
    ///
    /// # Errors
    /// See `dtl_mem_stats`.
    pub fn memory_stats(self) -> Result<sys::dtl_mem_stats_t> {
        let mut stats = sys::DTL_MEM_STATS_INIT;
        // SAFETY: the output is a local with its size.
        unsafe { call!(dtl_mem_stats(self.handle, &raw mut stats)) }?;
        Ok(stats)
    }

    /// Allocates memory on the calling thread's current device. An alignment of 0 selects the
    /// default of the kind.
    ///
    /// # Errors
    /// See `dtl_mem_alloc`.
    pub fn alloc(
        self,
        kind: sys::dtl_enum_word_t,
        size_bytes: usize,
        alignment: u64,
    ) -> Result<Memory> {
        Memory::alloc(self, kind, size_bytes, alignment)
    }
}

/// Device of a backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Device {
    /// Backend of the device.
    pub backend: Backend,
    /// Index of the device, 0 ... count-1.
    pub index: i32,
}

impl Device {
    /// Returns the properties of the device.
    ///
    /// # Errors
    /// See `dtl_device_info`.
    pub fn info(self) -> Result<sys::dtl_device_info_t> {
        let mut info = sys::DTL_DEVICE_INFO_INIT;
        // SAFETY: the output is a local with its size.
        unsafe { call!(dtl_device_info(self.backend.handle, self.index, &raw mut info)) }?;
        Ok(info)
    }

    /// Returns the free and the total memory of the device in bytes; 0 if unknown.
    ///
    /// # Errors
    /// See `dtl_device_memory_info`.
    pub fn memory(self) -> Result<(u64, u64)> {
        let (mut free, mut total) = (0, 0);
        let (backend, index) = (self.backend.handle, self.index);
        // SAFETY: the outputs are locals.
        unsafe { call!(dtl_device_memory_info(backend, index, &raw mut free, &raw mut total)) }?;
        Ok((free, total))
    }

    /// Makes this device the calling thread's current device, and its backend the current backend.
    ///
    /// # Errors
    /// See `dtl_backend_set_device`.
    pub fn make_current(self) -> Result {
        call!(dtl_backend_set_device(self.backend.handle, self.index))
    }

    /// Waits for all work on the device.
    ///
    /// # Errors
    /// See `dtl_device_wait`.
    pub fn synchronize(self) -> Result {
        call!(dtl_device_wait(self.backend.handle, self.index, sys::DTL_TIMEOUT_INFINITE))
    }
}
