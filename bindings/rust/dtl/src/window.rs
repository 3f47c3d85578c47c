//! Windows: memory of each rank that other ranks access. One-sided operations (put, get,
//! accumulate) are called through `sys`, because they use their buffers until an epoch ends. The
//! functions of this module create windows, and open and close epochs.

use crate::{Comm, Result, call, sys};
use std::ptr;

/// Window: memory that each rank of a communicator makes accessible to the other ranks.
///
/// Destroyed on drop. Destruction is collective: it waits for the other ranks.
#[derive(Debug)]
pub struct Window {
    handle: sys::dtl_win_t,
}

impl Window {
    /// Creates a window with zeroed memory that the library allocates. Collective.
    ///
    /// # Errors
    /// See `dtl_win_allocate`.
    pub fn allocate(comm: &Comm, size_bytes: u64, disp_unit: u64) -> Result<Window> {
        let (mut base, mut handle) = (ptr::null_mut(), sys::DTL_WIN_NULL);
        let (comm, base, out) = (comm.raw(), &raw mut base, &raw mut handle);
        // SAFETY: the outputs are locals.
        unsafe { call!(dtl_win_allocate(comm, size_bytes, disp_unit, base, out)) }?;
        Ok(Window { handle })
    }

    /// Takes ownership of a window.
    ///
    /// # Safety
    /// Nothing else may destroy the window, and nothing may use the window memory after this value
    /// is dropped.
    #[must_use]
    pub unsafe fn from_raw(handle: sys::dtl_win_t) -> Window {
        Window { handle }
    }

    /// Returns the handle, for use with the functions in [`sys`].
    #[must_use]
    pub fn raw(&self) -> sys::dtl_win_t {
        self.handle
    }

    /// Describes the window memory of one rank. The address is set only for the calling rank.
    ///
    /// # Errors
    /// See `dtl_win_info`.
    pub fn info(&self, rank: i32) -> Result<sys::dtl_win_info_t> {
        let mut info = sys::DTL_WIN_INFO_INIT;
        // SAFETY: the output is a local with its size.
        unsafe { call!(dtl_win_info(self.handle, rank, &raw mut info)) }?;
        Ok(info)
    }

    /// Ends the epoch that the previous fence opened and opens a new epoch. Collective.
    ///
    /// # Errors
    /// See `dtl_win_fence`.
    pub fn fence(&self) -> Result {
        call!(dtl_win_fence(self.handle))
    }

    /// Opens an access epoch to one target. `kind` is DTL_LOCK_SHARED or DTL_LOCK_EXCLUSIVE.
    ///
    /// # Errors
    /// See `dtl_win_lock`.
    pub fn lock(&self, kind: i32, target: i32) -> Result {
        call!(dtl_win_lock(self.handle, kind, target))
    }

    /// Ends the access epoch to one target.
    ///
    /// # Errors
    /// See `dtl_win_unlock`.
    pub fn unlock(&self, target: i32) -> Result {
        call!(dtl_win_unlock(self.handle, target))
    }

    /// Opens an access epoch to all ranks, with shared locks.
    ///
    /// # Errors
    /// See `dtl_win_lock_all`.
    pub fn lock_all(&self) -> Result {
        call!(dtl_win_lock_all(self.handle))
    }

    /// Ends the access epoch to all ranks.
    ///
    /// # Errors
    /// See `dtl_win_unlock_all`.
    pub fn unlock_all(&self) -> Result {
        call!(dtl_win_unlock_all(self.handle))
    }

    /// Completes the operations on one target.
    ///
    /// # Errors
    /// See `dtl_win_flush`.
    pub fn flush(&self, target: i32) -> Result {
        call!(dtl_win_flush(self.handle, target))
    }

    /// Completes the operations on all targets.
    ///
    /// # Errors
    /// See `dtl_win_flush_all`.
    pub fn flush_all(&self) -> Result {
        call!(dtl_win_flush_all(self.handle))
    }

    /// Destroys the window now. Reports a failure, which a drop cannot. Collective.
    ///
    /// # Errors
    /// See `dtl_win_destroy`. After a failure, the window continues to exist without an owner.
    pub fn destroy(self) -> Result {
        let handle = self.handle;
        std::mem::forget(self);
        // SAFETY: the owner gives it up. The memory is reached by address only, in unsafe code,
        // which must not outlive the window.
        unsafe { call!(dtl_win_destroy(handle)) }
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        // SAFETY: the owner goes. The memory is reached by address only, in unsafe code, which must
        // not outlive the window. A drop has nobody to report a failure to; `destroy` reports it.
        let _ = unsafe { sys::dtl_win_destroy(self.handle) };
    }
}
