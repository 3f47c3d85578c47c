//! Windows: memory of each rank that other ranks access, and the epochs in which they access it.

use crate::buffer::room;
use crate::error::failure;
use crate::lend::{abort, lend, lent};
use crate::library::KeepOpen;
use crate::{Buffer, BufferMut, Comm, Dtype, Error, Operator, Result, call, field, sys};
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::fmt;
use std::marker::PhantomData;
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
    /// [`Window::fenced`] has the operations of an epoch.
    ///
    /// # Errors
    /// See `dtl_win_fence`.
    pub fn fence(&self) -> Result {
        call!(dtl_win_fence(self.handle))
    }

    /// Runs one-sided operations on any ranks in the epoch that the previous fence opened, and ends
    /// it with a fence, which opens the next epoch. Collective. The operations borrow their buffers
    /// until this function returns; it returns when all of them are complete.
    ///
    /// ```
    /// # use dtl_binding::{Comm, Window};
    /// # fn main() -> dtl_binding::Result {
    /// let comm = Comm::world()?;
    /// let (rank, size) = (comm.rank()?, comm.size()?);
    /// let (right, mut got) = ((rank + 1) % size, 0);
    /// let window = Window::allocate(&comm, 4, 4)?;
    /// window.fence()?;
    /// window.fenced(|epoch| epoch.put(&rank, right, 0))?;
    /// window.fenced(|epoch| epoch.get(&mut got, right, 0))?;
    /// assert_eq!(got, rank);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// A value that an operation fetches can be read only after the epoch:
    ///
    /// ```compile_fail,E0503
    /// # use dtl_binding::{Result, Window};
    /// # fn wrong(window: &Window) -> Result {
    /// let mut value = 0_i64;
    /// window.fenced(|epoch| {
    ///     epoch.get(&mut value, 0, 0)?;
    ///     assert!(value > 0);
    ///     Ok(())
    /// })
    /// # }
    /// ```
    ///
    /// A buffer cannot be a variable of the closure:
    ///
    /// ```compile_fail,E0597
    /// # use dtl_binding::{Result, Window};
    /// # fn wrong(window: &Window) -> Result {
    /// window.fenced(|epoch| {
    ///     let value = 1_i64;
    ///     epoch.put(&value, 0, 0)
    /// })
    /// # }
    /// ```
    ///
    /// # Errors
    /// See `dtl_win_fence`. After a failed fence, operations may still use their buffers. This
    /// function then completes them with a lock and an unlock of each of their targets, without a
    /// time limit, before it returns the error of the fence. If a target cannot be locked, because
    /// its process died, it writes the text to standard error and aborts the process; it returns if
    /// the ranks share the memory (`way` of [`Window::info`] begins with "loads"), because each
    /// operation is complete then. A program that has to survive the death of a rank uses
    /// [`Window::lock`], whose end needs no other rank. A failure of the closure counts before a
    /// failure of the fence.
    pub fn fenced<'env, F, R>(&self, f: F) -> Result<R>
    where
        F: for<'scope> FnOnce(&'scope Epoch<'scope, 'env>) -> Result<R>,
    {
        // Dropped last: the epoch is over when the library may be finalized.
        let _open = KeepOpen::enter("dtl_win_fence")?;
        self.epoch(&Used::by_fence(), None, f)
    }

    /// Locks one target, runs one-sided operations, and unlocks the target. `kind` is
    /// DTL_LOCK_SHARED or DTL_LOCK_EXCLUSIVE. The operations borrow their buffers until this
    /// function returns; it returns when all of them are complete.
    ///
    /// ```
    /// # use dtl_binding::{Comm, SUM, Window, sys};
    /// # fn main() -> dtl_binding::Result {
    /// let comm = Comm::world()?;
    /// let counter = Window::allocate(&comm, 8, 8)?;
    /// let mut before = 0_i64;
    /// counter.lock(sys::DTL_LOCK_SHARED, 0, |epoch| {
    ///     epoch.fetch_op(&1, &mut before, 0, 0, SUM)
    /// })?;
    /// println!("rank 0 has counted {before} before");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// A value that an operation fetches can be read only after the epoch:
    ///
    /// ```compile_fail,E0503
    /// # use dtl_binding::{Comm, Result, Window, sys};
    /// # fn wrong(window: &Window) -> Result {
    /// let mut value = 0_i64;
    /// window.lock(sys::DTL_LOCK_SHARED, 0, |epoch| {
    ///     epoch.get(&mut value, 0, 0)?;
    ///     assert!(value > 0);
    ///     Ok(())
    /// })
    /// # }
    /// ```
    ///
    /// # Errors
    /// See `dtl_win_lock` and `dtl_win_unlock`. A time limit does not end the unlock, because the
    /// operations use the buffers until they are complete. A failure of the closure counts before a
    /// failure of the unlock.
    pub fn lock<'env, F, R>(&self, kind: i32, target: i32, f: F) -> Result<R>
    where
        F: for<'scope> FnOnce(&'scope Epoch<'scope, 'env>) -> Result<R>,
    {
        // Dropped last: the epoch is over when the library may be finalized.
        let _open = KeepOpen::enter("dtl_win_lock")?;
        call!(dtl_win_lock(self.handle, kind, target))?;
        self.epoch(&Used::by_lock(), Some(target), f)
    }

    /// Locks all targets with shared locks, runs one-sided operations, and unlocks the targets. The
    /// rules are those of [`Window::lock`].
    ///
    /// # Errors
    /// See `dtl_win_lock_all` and `dtl_win_unlock_all`, and [`Window::lock`].
    pub fn lock_all<'env, F, R>(&self, f: F) -> Result<R>
    where
        F: for<'scope> FnOnce(&'scope Epoch<'scope, 'env>) -> Result<R>,
    {
        // Dropped last: the epoch is over when the library may be finalized.
        let _open = KeepOpen::enter("dtl_win_lock_all")?;
        call!(dtl_win_lock_all(self.handle))?;
        self.epoch(&Used::by_lock(), None, f)
    }

    /// Runs the operations of an open epoch, and ends it.
    fn epoch<'env, F, R>(&self, used: &Used, target: Option<i32>, f: F) -> Result<R>
    where
        F: for<'scope> FnOnce(&'scope Epoch<'scope, 'env>) -> Result<R>,
    {
        let window = self.handle;
        let mut end = End { window, target, is_open: true, used };
        let epoch = Epoch { window, target, used, scope: PhantomData, env: PhantomData };
        let result = f(&epoch);
        let ended = end.run();
        result.and_then(|value| ended.map(|()| value))
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

/// Operations of an epoch that have borrowed buffers.
struct Used {
    /// True if there are any.
    any: Cell<bool>,
    /// Their targets, which a failed fence has to know. `None`: the epoch has locks.
    targets: Option<RefCell<BTreeSet<i32>>>,
}

impl Used {
    fn by_lock() -> Used {
        Used { any: Cell::new(false), targets: None }
    }

    fn by_fence() -> Used {
        Used { any: Cell::new(false), targets: Some(RefCell::default()) }
    }

    fn add(&self, target: i32) {
        self.any.set(true);
        if let Some(targets) = &self.targets {
            targets.borrow_mut().insert(target);
        }
    }
}

/// Ends an epoch: at its end, or when the closure of the epoch panics.
struct End<'a> {
    window: sys::dtl_win_t,
    /// Target that is unlocked. `None`: all ranks.
    target: Option<i32>,
    is_open: bool,
    used: &'a Used,
}

impl End<'_> {
    /// Ends the epoch. Returns when nothing accesses its buffers any more.
    fn run(&mut self) -> Result {
        let Some(targets) = &self.used.targets else { return self.unlock() };
        self.is_open = false;
        let fenced = call!(dtl_win_fence(self.window));
        if fenced.is_err() {
            targets.borrow().iter().for_each(|target| self.release(*target));
        }
        fenced
    }

    /// Unlocks. Returns when nothing accesses the buffers of the epoch any more.
    fn unlock(&mut self) -> Result {
        loop {
            let (call, status) = match self.target {
                Some(target) => ("dtl_win_unlock", sys::dtl_win_unlock(self.window, target)),
                None => ("dtl_win_unlock_all", sys::dtl_win_unlock_all(self.window)),
            };
            match status {
                // The epoch continues: the operations still use their buffers.
                sys::DTL_ERROR_TIMEOUT => {}
                // A call through `sys` has ended the epoch. Operations that it has not completed, in
                // an epoch that it began, would use their buffers for an unknown time.
                sys::DTL_ERROR_INVALID_STATE if self.used.any.get() => {
                    abort(&failure(call, status));
                }
                _ => {
                    self.is_open = false;
                    return lent(call, status);
                }
            }
        }
    }

    /// Completes the operations on a target after a fence has failed.
    fn release(&self, target: i32) {
        const CALL: &str = "dtl_win_lock";
        loop {
            match sys::dtl_win_lock(self.window, sys::DTL_LOCK_SHARED, target) {
                sys::DTL_SUCCESS => {
                    let (window, target, used) = (self.window, Some(target), self.used);
                    // The failure of the fence counts.
                    let _ = End { window, target, is_open: true, used }.unlock();
                    return;
                }
                sys::DTL_ERROR_TIMEOUT => {}
                // No operation on such a target has started.
                sys::DTL_ERROR_INVALID_RANK => return,
                // The closure of a lock has this epoch inside, and that lock can flush.
                sys::DTL_ERROR_INVALID_STATE
                    if sys::dtl_win_flush(self.window, target) == sys::DTL_SUCCESS =>
                {
                    return;
                }
                // Where ranks share the memory, operations are complete when their calls return.
                status if !self.is_shared() => abort(&failure(CALL, status)),
                _ => return,
            }
        }
    }

    /// Returns true if operations are complete when their calls return.
    fn is_shared(&self) -> bool {
        let mut info = sys::DTL_WIN_INFO_INIT;
        // SAFETY: the output is a local with its size.
        let described = unsafe { call!(dtl_win_info(self.window, 0, &raw mut info)) };
        described.is_ok() && field(&info.way).starts_with("loads")
    }
}

impl Drop for End<'_> {
    fn drop(&mut self) {
        if self.is_open {
            // The panic counts.
            let _ = self.run();
        }
    }
}

/// Epoch of one-sided operations, see [`Window::lock`] and [`Window::fenced`]. Displacements are in steps of the target's
/// `disp_unit`.
pub struct Epoch<'scope, 'env: 'scope> {
    window: sys::dtl_win_t,
    /// Target whose operations the end of the epoch completes. `None`: all ranks.
    target: Option<i32>,
    used: &'scope Used,
    scope: PhantomData<&'scope mut &'scope ()>,
    env: PhantomData<&'env mut &'env ()>,
}

impl fmt::Debug for Epoch<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Epoch").field("window", &self.window).finish_non_exhaustive()
    }
}

impl<'scope> Epoch<'scope, '_> {
    /// Fails if the end of this epoch does not complete the operations on a target: another epoch,
    /// which is open for it, may end later than the borrow of the buffers.
    fn begin(&self, call: &'static str, target: i32) -> Result {
        if let Some(own) = self.target.filter(|own| *own != target) {
            let text = format!(
                "target {target}: the epoch is that of target {own}. Use the epoch of the target, \
                 or lock all."
            );
            return Err(Error::state(call, text));
        }
        self.used.add(target);
        Ok(())
    }

    /// Copies elements to a target's part of the window.
    ///
    /// # Errors
    /// See `dtl_win_put`.
    pub fn put<B: Buffer + ?Sized>(&'scope self, buf: &'scope B, target: i32, disp: u64) -> Result {
        let (from, count, dtype) = (buf.as_ptr().cast(), buf.count() as u64, B::Element::dtype()?);
        self.begin("dtl_win_put", target)?;
        // SAFETY: `count` elements, borrowed until the epoch is over.
        unsafe { lend!(dtl_win_put(self.window, from, count, dtype, target, disp)) }
    }

    /// Copies elements from a target's part of the window.
    ///
    /// # Errors
    /// See `dtl_win_get`.
    pub fn get<B: BufferMut + ?Sized>(
        &'scope self,
        buf: &'scope mut B,
        target: i32,
        disp: u64,
    ) -> Result {
        let (count, dtype) = (buf.count() as u64, B::Element::dtype()?);
        let at = buf.as_mut_ptr().cast();
        self.begin("dtl_win_get", target)?;
        // SAFETY: room for `count` elements, borrowed until the epoch is over.
        unsafe { lend!(dtl_win_get(self.window, at, count, dtype, target, disp)) }
    }

    /// Combines elements with those of a target, each atomically.
    ///
    /// # Errors
    /// See `dtl_win_accumulate`.
    pub fn accumulate<B: Buffer + ?Sized>(
        &'scope self,
        buf: &'scope B,
        target: i32,
        disp: u64,
        op: impl Operator<B::Element>,
    ) -> Result {
        let (from, count, dtype) = (buf.as_ptr().cast(), buf.count() as u64, B::Element::dtype()?);
        let (window, op) = (self.window, op.number());
        self.begin("dtl_win_accumulate", target)?;
        // SAFETY: `count` elements, borrowed until the epoch is over.
        unsafe { lend!(dtl_win_accumulate(window, from, count, dtype, target, disp, op)) }
    }

    /// Combines elements with those of a target, each atomically, and fetches the previous ones.
    ///
    /// # Errors
    /// See `dtl_win_get_accumulate`. Also fails if `result` has fewer elements than `buf`.
    pub fn get_accumulate<S, R>(
        &'scope self,
        buf: &'scope S,
        result: &'scope mut R,
        target: i32,
        disp: u64,
        op: impl Operator<R::Element>,
    ) -> Result
    where
        S: Buffer<Element = R::Element> + ?Sized,
        R: BufferMut + ?Sized,
    {
        let (window, dtype, op) = (self.window, R::Element::dtype()?, op.number());
        let (from, count) = (buf.as_ptr().cast(), buf.count());
        room("dtl_win_get_accumulate", "result", result.count(), count)?;
        let (at, count) = (result.as_mut_ptr().cast(), count as u64);
        self.begin("dtl_win_get_accumulate", target)?;
        // SAFETY: `count` elements and room for as many, borrowed until the epoch is over.
        unsafe { lend!(dtl_win_get_accumulate(window, from, at, count, dtype, target, disp, op)) }
    }

    /// Combines one element with that of a target, and fetches the previous one, in one atomic step.
    ///
    /// # Errors
    /// See `dtl_win_fetch_op`.
    pub fn fetch_op<T: Dtype>(
        &'scope self,
        value: &'scope T,
        result: &'scope mut T,
        target: i32,
        disp: u64,
        op: impl Operator<T>,
    ) -> Result {
        let (window, dtype, op) = (self.window, T::dtype()?, op.number());
        let (from, at) = (ptr::from_ref(value).cast(), ptr::from_mut(result).cast());
        self.begin("dtl_win_fetch_op", target)?;
        // SAFETY: one element and room for one, borrowed until the epoch is over.
        unsafe { lend!(dtl_win_fetch_op(window, from, at, dtype, target, disp, op)) }
    }

    /// Stores `value` in an element of a target if that equals `expected`, and fetches the previous
    /// one, in one atomic step.
    ///
    /// # Errors
    /// See `dtl_win_compare_and_swap`.
    pub fn compare_and_swap<T: Dtype>(
        &'scope self,
        value: &'scope T,
        expected: &'scope T,
        result: &'scope mut T,
        target: i32,
        disp: u64,
    ) -> Result {
        let (window, dtype) = (self.window, T::dtype()?);
        let (value, expected) = (ptr::from_ref(value).cast(), ptr::from_ref(expected).cast());
        let at = ptr::from_mut(result).cast();
        self.begin("dtl_win_compare_and_swap", target)?;
        // SAFETY: two elements and room for one, borrowed until the epoch is over.
        unsafe { lend!(dtl_win_compare_and_swap(window, value, expected, at, dtype, target, disp)) }
    }

    /// Completes the operations on one target.
    ///
    /// # Errors
    /// See `dtl_win_flush`.
    pub fn flush(&self, target: i32) -> Result {
        lend!(dtl_win_flush(self.window, target))
    }

    /// Completes the operations on all targets.
    ///
    /// # Errors
    /// See `dtl_win_flush_all`.
    pub fn flush_all(&self) -> Result {
        lend!(dtl_win_flush_all(self.window))
    }
}
