//! Adapter from a C table of execution functions (exec table) to [`Exec`].

use super::{NativeComponent, call, presence, whole};
use crate::abi::backend::vtable::dtl_exec_vtable_t;
use crate::error::{Result, fail};
use crate::runtime::component::{Exec, ExecGroups, HostExec, Launch, RangeCall, TaskCall, Token};

/// Checks the slots (functions) for streams, events and host execution in an exec table: each group
/// must be complete or absent, and events require streams.
pub(super) fn check(table: &dtl_exec_vtable_t) -> Result<()> {
    let slots = presence!(table, stream_create, stream_destroy, stream_synchronize);
    let streams = whole("exec", "streams", slots)?;
    let slots = presence!(table, event_create, event_destroy, event_record, event_query);
    let events = whole("exec", "events", slots)?;
    let slots = presence!(table, execute, parallel_for, max_parallelism);
    whole("exec", "host execution", slots)?;
    let slots = presence!(table, stream_priorities, stream_create_with_priority);
    let priorities = whole("exec", "priorities", slots)?;
    if (events || priorities) && !streams {
        return fail!(
            DTL_ERROR_INVALID_ARGUMENT,
            "exec.stream_create is NULL: the {} slots need the stream slots beside them",
            if events { "event" } else { "priorities" }
        );
    }
    Ok(())
}

impl Exec for NativeComponent<dtl_exec_vtable_t> {
    fn groups(&self) -> ExecGroups {
        let (streams, events) =
            (self.table.stream_create.is_some(), self.table.event_create.is_some());
        ExecGroups { streams, events }
    }

    fn host(&self) -> Option<&dyn HostExec> {
        self.table.execute.is_some().then_some(self as _)
    }

    fn stream_priorities(&self, device: i32) -> Result<(i32, i32)> {
        if self.table.stream_priorities.is_none() {
            return Ok((0, 0));
        }
        let (mut least, mut greatest) = (0, 0);
        call!(self.exec.stream_priorities(device, &raw mut least, &raw mut greatest))?;
        if greatest > 0 || least < 0 {
            return fail!(
                DTL_ERROR_NATIVE_BACKEND,
                "backend {}: exec.stream_priorities wrote {least} to {greatest}: the range from \
                 the greatest to the least priority contains 0, and lower is higher",
                self.owner.name
            );
        }
        Ok((least, greatest))
    }

    fn stream_create(&self, device: i32, flags: u64, priority: i32) -> Result<Token> {
        let mut stream = std::ptr::null_mut();
        let out = &raw mut stream;
        if priority == 0 {
            call!(self.exec.stream_create(device, flags, out))?;
            return self.owner.not_null("exec.stream_create", stream);
        }
        call!(self.exec.stream_create_with_priority(device, flags, priority, out))?;
        self.owner.not_null("exec.stream_create_with_priority", stream)
    }

    fn stream_destroy(&self, stream: Token) -> Result<()> {
        call!(self.exec.stream_destroy(stream.ptr()))
    }

    fn stream_synchronize(&self, stream: Token) -> Result<()> {
        call!(self.exec.stream_synchronize(stream.ptr()))
    }

    fn stream_query(&self, stream: Token) -> Result<Option<bool>> {
        let mut done = 0;
        call!(self.exec.stream_query?(stream.ptr(), &raw mut done))?;
        self.owner.boolean("exec.stream_query", done).map(Some)
    }

    fn stream_wait_event(&self, stream: Token, event: Token) -> Result<Option<()>> {
        call!(self.exec.stream_wait_event?(stream.ptr(), event.ptr())).map(Some)
    }

    fn stream_host_callback(&self, stream: Token, (task, user): TaskCall) -> Result<Option<()>> {
        call!(self.exec.stream_host_callback?(stream.ptr(), task, user.ptr())).map(Some)
    }

    fn event_create(&self, flags: u64) -> Result<Token> {
        let mut event = std::ptr::null_mut();
        call!(self.exec.event_create(flags, &raw mut event))?;
        self.owner.not_null("exec.event_create", event)
    }

    fn event_destroy(&self, event: Token) -> Result<()> {
        call!(self.exec.event_destroy(event.ptr()))
    }

    #[inline]
    fn event_record(&self, event: Token, stream: Token) -> Result<()> {
        call!(self.exec.event_record(event.ptr(), stream.ptr()))
    }

    fn event_query(&self, event: Token) -> Result<bool> {
        let mut done = 0;
        call!(self.exec.event_query(event.ptr(), &raw mut done))?;
        self.owner.boolean("exec.event_query", done)
    }

    fn event_sync(&self, event: Token) -> Result<Option<()>> {
        call!(self.exec.event_sync?(event.ptr())).map(Some)
    }

    fn event_elapsed(&self, start: Token, stop: Token) -> Result<Option<u64>> {
        let mut ns = 0;
        call!(self.exec.event_elapsed?(start.ptr(), stop.ptr(), &raw mut ns)).map(|()| Some(ns))
    }

    fn launch(&self, stream: Token, launch: &Launch<'_>) -> Result<Option<()>> {
        call!(self.exec.launch?(
            stream.ptr(),
            launch.shape,
            launch.function,
            launch.user.ptr(),
            // An `Addr` has the layout of a pointer, so an array of them is an array of pointers.
            launch.args.as_ptr().cast(),
            launch.sizes.as_ptr(),
            launch.args.len() as u64
        ))
        .map(Some)
    }
}

impl HostExec for NativeComponent<dtl_exec_vtable_t> {
    fn execute(&self, (task, user): TaskCall) -> Result<()> {
        call!(self.exec.execute(task, user.ptr()))
    }

    fn parallel_for(&self, (begin, end): (u64, u64), grain: u64, body: RangeCall) -> Result<()> {
        let (body, user) = body;
        call!(self.exec.parallel_for(begin, end, grain, body, user.ptr()))
    }

    fn max_parallelism(&self) -> Result<u32> {
        let mut threads = 0;
        call!(self.exec.max_parallelism(&raw mut threads))?;
        Ok(threads.max(1))
    }

    fn suggested_parallelism(&self) -> Result<Option<u32>> {
        let mut threads = 0;
        call!(self.exec.suggested_parallelism?(&raw mut threads))?;
        Ok(Some(threads.max(1)))
    }
}
