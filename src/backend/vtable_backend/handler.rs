//! Adapter from the C functions of a dispatch handler to [`Handler`].

use super::foreign_error;
use crate::abi::devices::dispatch::*;
use crate::abi::handle::dtl_event_t;
use crate::abi::status::DTL_SUCCESS;
use crate::error::{Result, fail};
use crate::last_error::Mark;
use crate::runtime::dispatch::{Handler, Query};
use crate::runtime::exec::event::Event;
use crate::runtime::exec::handles;
use crate::sys::memory::buf::Addr;
use std::sync::atomic::{AtomicBool, Ordering};

/// Functions of a dispatch handler, with the `user` data that `destroy` releases.
pub struct NativeHandler {
    name: String,
    predicate: dtl_dispatch_predicate_fn_t,
    invoke: dtl_dispatch_fn_t,
    destroy: dtl_dispatch_destroy_fn_t,
    user: Addr,
    /// True if the caller retains ownership of the `user` data, so that `destroy` is not called.
    is_disowned: AtomicBool,
}

impl NativeHandler {
    /// Wraps the functions of a handler's C descriptor; each function receives the descriptor's
    /// `user` pointer.
    pub fn new(name: &str, handler: &dtl_dispatch_handler_t) -> Self {
        let &dtl_dispatch_handler_t { predicate, invoke, destroy, user, .. } = handler;
        let (user, is_disowned) = (Addr::new(user), AtomicBool::new(false));
        NativeHandler { name: name.to_owned(), predicate, invoke, destroy, user, is_disowned }
    }
}

impl Handler for NativeHandler {
    fn accepts(&self, query: &Query) -> Result<bool> {
        let Some(predicate) = self.predicate else { return Ok(true) };
        let before = Mark::now();
        // SAFETY: the program registered this function for exactly these arguments, and the query
        // outlives the call.
        let answer = unsafe { predicate(query, self.user.ptr()) };
        if answer < 0 {
            return Err(foreign_error(
                &format!("the predicate of handler \"{}\"", self.name),
                answer.saturating_neg(),
                before,
            ));
        }
        Ok(answer > 0)
    }

    fn invoke(&self, query: &Query, event: Option<&mut dtl_event_t>) -> Result<()> {
        let Some(invoke) = self.invoke else {
            return fail!(DTL_ERROR_INTERNAL, "handler \"{}\" has no function", self.name);
        };
        let mut event = event;
        let place = event.as_deref_mut().map_or(std::ptr::null_mut(), std::ptr::from_mut);
        let before = Mark::now();
        // SAFETY: the program registered this function for exactly these arguments, and the query
        // outlives the call. `place` is null or points to an event of the caller.
        let status = unsafe { invoke(query, place, self.user.ptr()) };
        if status != DTL_SUCCESS {
            return Err(foreign_error(&format!("handler \"{}\"", self.name), status, before));
        }
        match event {
            Some(event) if event.id != 0 && !handles::is_live::<Event>(event.id) => fail!(
                DTL_ERROR_NATIVE_BACKEND,
                "handler \"{}\" has succeeded and wrote {:#x} to out_event, which is not the \
                 handle of an event",
                self.name,
                event.id
            ),
            _ => Ok(()),
        }
    }

    fn forget(&self) {
        self.is_disowned.store(true, Ordering::Relaxed);
    }
}

impl Drop for NativeHandler {
    fn drop(&mut self) {
        if let Some(destroy) = self.destroy.filter(|_| !self.is_disowned.load(Ordering::Relaxed)) {
            // SAFETY: the program registered this function for exactly this argument. It is called
            // once, after the last use.
            unsafe { destroy(self.user.ptr()) }
        }
    }
}
