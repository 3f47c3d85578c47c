//! Fake backends for the tests of `exec`: one without an exec component, and one whose streams run
//! work synchronously and whose optional functions can be omitted.

use crate::abi::devices::device::dtl_device_info_t;
use crate::abi::status::DTL_SUCCESS;
use crate::error::{Error, Result};
use crate::runtime::component::{
    BackendProbe, Device, Exec, ExecGroups, HostExec, Launch, RangeCall, TaskCall, Token,
};
use crate::runtime::registry::Backend;
use crate::sys::memory::buf::Addr;
use crate::sys::sync::lock::Mutex;
use std::ffi::CStr;
use std::ptr::without_provenance_mut;
use std::sync::Arc;

/// Creates a backend without an exec component and with a device that has launch limits.
pub(super) fn named(name: &CStr) -> Arc<Backend> {
    let mut backend = Backend::new(name, 0, false, Box::new(Here));
    backend.device = Some(Box::new(Here));
    Arc::new(backend)
}

pub(super) fn plain() -> Arc<Backend> {
    named(c"plain")
}

struct Here;

impl BackendProbe for Here {}

impl Device for Here {
    fn info(&self, _device: i32, out: &mut dtl_device_info_t) -> Result<()> {
        (out.max_block_threads, out.max_block) = (1024, [1024, 1024, 64]);
        Ok(())
    }
}

/// Exec component that records the name of each of its functions when the function is called. All
/// work completes synchronously, except that events stay incomplete while `stalled` is true.
pub(super) struct Mock {
    /// Groups of functions that the backend implements. If it does not implement streams, it
    /// implements host execution instead.
    pub(super) groups: ExecGroups,
    pub(super) optional: bool,
    pub(super) calls: Mutex<Vec<&'static str>>,
    pub(super) stalled: Mutex<bool>,
}

pub(super) fn mock(groups: ExecGroups, optional: bool) -> Arc<Mock> {
    Arc::new(Mock { groups, optional, calls: Mutex::default(), stalled: Mutex::default() })
}

impl Mock {
    fn note(&self, call: &'static str) {
        self.calls.lock().push(call);
    }
    pub(super) fn count(&self, call: &str) -> usize {
        self.calls.lock().iter().filter(|seen| **seen == call).count()
    }
    fn optional<T>(&self, call: &'static str, value: T) -> Result<Option<T>> {
        Ok(self.optional.then(|| {
            self.note(call);
            value
        }))
    }
}

fn token(number: usize) -> Result<Token> {
    Ok(Addr::new(without_provenance_mut(number)))
}

/// Creates the backend "mock" with `mock` as its exec component.
pub(super) fn home_of(mock: &Arc<Mock>) -> Arc<Backend> {
    let mut backend = Backend::new(c"mock", 0, false, Box::new(Here));
    backend.exec = Some(Box::new(Arc::clone(mock)));
    Arc::new(backend)
}

impl Exec for Arc<Mock> {
    fn groups(&self) -> ExecGroups {
        self.groups
    }
    fn host(&self) -> Option<&dyn HostExec> {
        (!self.groups.streams).then_some(self as _)
    }
    fn stream_create(&self, _device: i32, _flags: u64, _priority: i32) -> Result<Token> {
        self.note("stream_create");
        token(16)
    }
    fn stream_destroy(&self, _stream: Token) -> Result<()> {
        self.note("stream_destroy");
        Ok(())
    }
    fn stream_synchronize(&self, _stream: Token) -> Result<()> {
        self.note("stream_synchronize");
        Ok(())
    }
    fn stream_query(&self, _stream: Token) -> Result<Option<bool>> {
        self.optional("stream_query", true)
    }
    fn stream_wait_event(&self, _stream: Token, _event: Token) -> Result<Option<()>> {
        self.optional("stream_wait_event", ())
    }
    fn stream_host_callback(&self, _stream: Token, (task, user): TaskCall) -> Result<Option<()>> {
        let called = self.optional("stream_host_callback", ())?;
        if called.is_some() {
            task.unwrap()(user.ptr());
        }
        Ok(called)
    }
    fn event_create(&self, _flags: u64) -> Result<Token> {
        self.note("event_create");
        token(32)
    }
    fn event_destroy(&self, _event: Token) -> Result<()> {
        self.note("event_destroy");
        Ok(())
    }
    fn event_record(&self, _event: Token, _stream: Token) -> Result<()> {
        self.note("event_record");
        Ok(())
    }
    fn event_query(&self, _event: Token) -> Result<bool> {
        self.note("event_query");
        Ok(!*self.stalled.lock())
    }
    fn event_sync(&self, _event: Token) -> Result<Option<()>> {
        self.optional("event_sync", ())
    }
    fn event_elapsed(&self, _start: Token, _stop: Token) -> Result<Option<u64>> {
        self.optional("event_elapsed", 5)
    }
    fn launch(&self, _stream: Token, launch: &Launch<'_>) -> Result<Option<()>> {
        assert_eq!(launch.args.len(), launch.sizes.len());
        self.optional("launch", ())
    }
}

impl HostExec for Arc<Mock> {
    fn execute(&self, (task, user): TaskCall) -> Result<()> {
        match task.unwrap()(user.ptr()) {
            DTL_SUCCESS => Ok(()),
            status => Err(Error::new(status, "execute")),
        }
    }
    fn parallel_for(&self, range: (u64, u64), grain: u64, (body, user): RangeCall) -> Result<()> {
        let mut at = range.0;
        while at < range.1 {
            let end = range.1.min(at.saturating_add(grain));
            let status = body.unwrap()(at, end, user.ptr());
            if status != DTL_SUCCESS {
                return Err(Error::new(status, "parallel_for"));
            }
            at = end;
        }
        Ok(())
    }
    fn max_parallelism(&self) -> Result<u32> {
        Ok(3)
    }
    fn suggested_parallelism(&self) -> Result<Option<u32>> {
        Ok(None)
    }
}
