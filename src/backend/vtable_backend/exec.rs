//! Adapter from a C exec table to [`Exec`].

use super::{BackendObject, call, slot, whole};
use crate::abi::backend::vtable::dtl_exec_vtable_t;
use crate::abi::devices::exec::dtl_range_fn_t;
use crate::abi::runtime::dtl_task_fn_t;
use crate::abi::status::DTL_ERROR_INVALID_ARGUMENT;
use crate::error::{Error, Result};
use crate::runtime::component::{Exec, ExecGroups, HostExec, Launch, Token};
use crate::sys::memory::buf::Addr;
use std::sync::Arc;

pub(super) struct NativeExec {
    owner: Arc<BackendObject>,
    table: dtl_exec_vtable_t,
    groups: ExecGroups,
    /// True if the table has the slots of host execution.
    has_host: bool,
}

impl NativeExec {
    pub(super) fn new(owner: Arc<BackendObject>, table: &dtl_exec_vtable_t) -> Result<Self> {
        let streams = whole(
            "exec",
            "streams",
            &[
                ("stream_create", table.stream_create.is_some()),
                ("stream_destroy", table.stream_destroy.is_some()),
                ("stream_synchronize", table.stream_synchronize.is_some()),
            ],
        )?;
        let events = whole(
            "exec",
            "events",
            &[
                ("event_create", table.event_create.is_some()),
                ("event_destroy", table.event_destroy.is_some()),
                ("event_record", table.event_record.is_some()),
                ("event_query", table.event_query.is_some()),
            ],
        )?;
        let has_host = whole(
            "exec",
            "host execution",
            &[
                ("execute", table.execute.is_some()),
                ("parallel_for", table.parallel_for.is_some()),
                ("max_parallelism", table.max_parallelism.is_some()),
            ],
        )?;
        if events && !streams {
            return Err(Error::new(
                DTL_ERROR_INVALID_ARGUMENT,
                "exec.stream_create is NULL: the event slots need the stream slots beside them",
            ));
        }
        Ok(NativeExec { owner, table: *table, groups: ExecGroups { streams, events }, has_host })
    }
}

impl Exec for NativeExec {
    fn groups(&self) -> ExecGroups {
        self.groups
    }

    fn host(&self) -> Option<&dyn HostExec> {
        self.has_host.then_some(self as _)
    }

    fn stream_create(&self, device: i32, flags: u64) -> Result<Token> {
        let mut stream = std::ptr::null_mut();
        call!(
            self.owner,
            "exec.stream_create",
            slot!(self, stream_create),
            device,
            flags,
            &raw mut stream
        )?;
        self.owner.not_null("exec.stream_create", stream)
    }

    fn stream_destroy(&self, stream: Token) -> Result<()> {
        call!(self.owner, "exec.stream_destroy", slot!(self, stream_destroy), stream.ptr())
    }

    fn stream_synchronize(&self, stream: Token) -> Result<()> {
        call!(self.owner, "exec.stream_synchronize", slot!(self, stream_synchronize), stream.ptr())
    }

    fn stream_query(&self, stream: Token) -> Option<Result<bool>> {
        let slot = self.table.stream_query?;
        let mut done = 0;
        let answer = call!(self.owner, "exec.stream_query", slot, stream.ptr(), &raw mut done);
        Some(answer.and_then(|()| self.owner.boolean("exec.stream_query", done)))
    }

    fn stream_wait_event(&self, stream: Token, event: Token) -> Option<Result<()>> {
        let slot = self.table.stream_wait_event?;
        Some(call!(self.owner, "exec.stream_wait_event", slot, stream.ptr(), event.ptr()))
    }

    fn stream_host_callback(
        &self,
        stream: Token,
        task: dtl_task_fn_t,
        user: Addr,
    ) -> Option<Result<()>> {
        let slot = self.table.stream_host_callback?;
        Some(call!(self.owner, "exec.stream_host_callback", slot, stream.ptr(), task, user.ptr()))
    }

    fn event_create(&self, flags: u64) -> Result<Token> {
        let mut event = std::ptr::null_mut();
        call!(self.owner, "exec.event_create", slot!(self, event_create), flags, &raw mut event)?;
        self.owner.not_null("exec.event_create", event)
    }

    fn event_destroy(&self, event: Token) -> Result<()> {
        call!(self.owner, "exec.event_destroy", slot!(self, event_destroy), event.ptr())
    }

    #[inline]
    fn event_record(&self, event: Token, stream: Token) -> Result<()> {
        call!(self.owner, "exec.event_record", slot!(self, event_record), event.ptr(), stream.ptr())
    }

    fn event_query(&self, event: Token) -> Result<bool> {
        let mut done = 0;
        call!(
            self.owner,
            "exec.event_query",
            slot!(self, event_query),
            event.ptr(),
            &raw mut done
        )?;
        self.owner.boolean("exec.event_query", done)
    }

    fn event_sync(&self, event: Token) -> Option<Result<()>> {
        let slot = self.table.event_sync?;
        Some(call!(self.owner, "exec.event_sync", slot, event.ptr()))
    }

    fn event_elapsed(&self, start: Token, stop: Token) -> Option<Result<u64>> {
        let slot = self.table.event_elapsed?;
        let mut ns = 0;
        Some(
            call!(self.owner, "exec.event_elapsed", slot, start.ptr(), stop.ptr(), &raw mut ns)
                .map(|()| ns),
        )
    }

    fn launch(&self, stream: Token, launch: &Launch<'_>) -> Option<Result<()>> {
        let slot = self.table.launch?;
        // An `Addr` has the layout of a pointer, so an array of them is an array of pointers.
        let args: Vec<_> = launch.args.iter().map(|arg| arg.ptr().cast_const()).collect();
        let (sizes, count) = (launch.sizes.as_ptr(), launch.args.len() as u32);
        let shape = &raw const *launch.shape;
        let user = launch.user.ptr();
        Some(call!(
            self.owner,
            "exec.launch",
            slot,
            stream.ptr(),
            shape,
            launch.function,
            user,
            args.as_ptr(),
            sizes,
            count
        ))
    }
}

impl HostExec for NativeExec {
    fn execute(&self, task: dtl_task_fn_t, user: Addr) -> Result<()> {
        call!(self.owner, "exec.execute", slot!(self, execute), task, user.ptr())
    }

    fn parallel_for(
        &self,
        range: (u64, u64),
        grain: u64,
        body: dtl_range_fn_t,
        user: Addr,
    ) -> Result<()> {
        let (begin, end) = range;
        call!(
            self.owner,
            "exec.parallel_for",
            slot!(self, parallel_for),
            begin,
            end,
            grain,
            body,
            user.ptr()
        )
    }

    fn max_parallelism(&self) -> Result<u32> {
        let mut threads = 0;
        call!(self.owner, "exec.max_parallelism", slot!(self, max_parallelism), &raw mut threads)?;
        Ok(threads.max(1))
    }

    fn suggested_parallelism(&self) -> Option<Result<u32>> {
        let slot = self.table.suggested_parallelism?;
        let mut threads = 0;
        let answer = call!(self.owner, "exec.suggested_parallelism", slot, &raw mut threads);
        Some(answer.map(|()| threads.max(1)))
    }
}
