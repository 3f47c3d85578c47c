//! Null backend, which serves to measure call overhead and as a template for backend authors.
//! Memory is host memory; streams, events and launches do nothing. Automatic backend selection
//! ("auto") never selects this backend.

use crate::abi::backend::vtable::DTL_BACKEND_NO_COMPUTE;
use crate::abi::devices::device::*;
use crate::abi::word::*;
use crate::error::{Result, fail, failure};
use crate::runtime::component::{
    BackendProbe, CopySide, Device, Exec, ExecGroups, Extent, HostExec, Launch, Memory, RangeCall,
    TaskCall, Token, Transfer,
};
use crate::runtime::copy_text;
use crate::runtime::device::new_kind_info;
use crate::runtime::enums::describe;
use crate::runtime::registry::Backend;
use crate::sys::memory::buf::{self, Addr};

/// Creates the backend named "null".
pub fn backend() -> Backend {
    let mut backend = Backend::new(c"null", i32::MIN, true, Box::new(Null));
    backend.flags = DTL_BACKEND_NO_COMPUTE;
    backend.device = Some(Box::new(Null));
    backend.memory = Some(Box::new(Null));
    backend.transfer = Some(Box::new(Null));
    backend.exec = Some(Box::new(Null));
    backend
}

struct Null;

/// Returns the placeholder handle that this backend uses for every stream and event.
fn token() -> Token {
    Addr::new(std::ptr::without_provenance_mut(1))
}

impl BackendProbe for Null {
    fn supports(&self, feature: &str) -> Option<Result<bool>> {
        Some(Ok(feature == "no_compute"))
    }
}

impl Device for Null {
    fn info(&self, _device: i32, out: &mut dtl_device_info_t) -> Result<()> {
        out.kind = DTL_DEVICE_NONE;
        (out.max_block_threads, out.max_block, out.max_grid) = (1024, [1024; 3], [u32::MAX; 3]);
        copy_text(&mut out.name, "null device (computes nothing)");
        Ok(())
    }
}

impl Memory for Null {
    fn alloc(&self, Extent { kind, size, align }: Extent) -> Result<Addr> {
        if kind != DTL_MEMORY_HOST && kind != DTL_MEMORY_DEVICE {
            return fail!(
                DTL_ERROR_NOT_SUPPORTED,
                "backend null has no memory kind {}: use HOST or DEVICE",
                describe(kind)
            );
        }
        buf::alloc(size, align)
            .ok_or_else(|| failure!(DTL_ERROR_OUT_OF_MEMORY, "no {size} bytes aligned to {align}"))
    }

    fn free(&self, addr: Addr, Extent { size, align, .. }: Extent) -> Result<()> {
        buf::free(addr, size, align);
        Ok(())
    }

    fn kind_info(&self, kind: dtl_enum_word_t) -> Result<Option<dtl_mem_kind_info_t>> {
        let name = match kind {
            DTL_MEMORY_HOST => "null host memory",
            DTL_MEMORY_DEVICE => "null device memory",
            _ => {
                return fail!(
                    DTL_ERROR_NOT_SUPPORTED,
                    "backend null has no memory kind {}",
                    describe(kind)
                );
            }
        };
        let properties =
            DTL_MEMORY_HOST_ACCESSIBLE | DTL_MEMORY_DEVICE_ACCESSIBLE | DTL_MEMORY_THREAD_SAFE;
        Ok(Some(new_kind_info(properties, 1, name)))
    }
}

impl Transfer for Null {
    fn copy(&self, dst: CopySide, src: CopySide) -> Result<()> {
        dst.region.copy_from(src.region);
        Ok(())
    }

    fn copy_async(&self, _stream: Token, dst: CopySide, src: CopySide) -> Result<Option<()>> {
        self.copy(dst, src).map(Some)
    }

    fn fill(&self, dst: CopySide, value: u8) -> Result<Option<()>> {
        dst.region.fill(value);
        Ok(Some(()))
    }
}

impl Exec for Null {
    fn groups(&self) -> ExecGroups {
        ExecGroups { streams: true, events: true }
    }

    fn host(&self) -> Option<&dyn HostExec> {
        Some(self)
    }

    fn stream_create(&self, _device: i32, _flags: u64, _priority: i32) -> Result<Token> {
        Ok(token())
    }

    fn stream_destroy(&self, _stream: Token) -> Result<()> {
        Ok(())
    }

    fn stream_synchronize(&self, _stream: Token) -> Result<()> {
        Ok(())
    }

    fn stream_query(&self, _stream: Token) -> Result<Option<bool>> {
        Ok(Some(true))
    }

    fn stream_wait_event(&self, _stream: Token, _event: Token) -> Result<Option<()>> {
        Ok(Some(()))
    }

    fn event_create(&self, _flags: u64) -> Result<Token> {
        Ok(token())
    }

    fn event_destroy(&self, _event: Token) -> Result<()> {
        Ok(())
    }

    fn event_record(&self, _event: Token, _stream: Token) -> Result<()> {
        Ok(())
    }

    fn event_query(&self, _event: Token) -> Result<bool> {
        Ok(true)
    }

    fn launch(&self, _stream: Token, _launch: &Launch<'_>) -> Result<Option<()>> {
        Ok(Some(()))
    }
}

impl HostExec for Null {
    fn execute(&self, _task: TaskCall) -> Result<()> {
        Ok(())
    }

    fn parallel_for(&self, _range: (u64, u64), _grain: u64, _body: RangeCall) -> Result<()> {
        Ok(())
    }

    fn max_parallelism(&self) -> Result<u32> {
        Ok(1)
    }

    fn suggested_parallelism(&self) -> Result<Option<u32>> {
        Ok(None)
    }
}
