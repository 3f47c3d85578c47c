//! Built-in operations of the library, with the arguments that a handler of a dispatcher receives.
//! Exports no symbol.

use crate::abi::devices::dispatch::*;
use crate::abi::word::*;
use crate::error::{Result, fail};
use crate::ffi::args;
use crate::ffi::exec::{kernel, module, stream};
use crate::ffi::memory::transfer;
use crate::runtime::dispatch::snapshot::check_enumerations;
use crate::runtime::dispatch::{Query, bitmap_index};
use crate::runtime::registry::Backend;
use crate::runtime::{device, enums, memory};
use crate::sys::handles::epoch;
use crate::sys::memory::buf::Addr;
use crate::sys::sync::wait::now_ns;
use std::sync::Arc;

/// Performs a built-in operation: by the backend `by` of a handler, or by the requested one.
///
/// # Safety
/// The query's args are null or the operation's struct, with what that promises.
pub(crate) unsafe fn perform(query: &Query, by: Option<&Arc<Backend>>) -> Result<()> {
    match bitmap_index::template(query.operation) {
        // SAFETY: passed on.
        DTL_OPERATION_ALLOC => unsafe { alloc(query.args.cast(), by) },
        // SAFETY: as above.
        DTL_OPERATION_COPY => unsafe { copy(query.args.cast(), by) },
        // SAFETY: as above.
        DTL_OPERATION_LAUNCH => unsafe { launch(query.args.cast()) },
        // SAFETY: as above.
        DTL_OPERATION_COMPILE => unsafe { compile(query.args.cast(), by) },
        // SAFETY: as above.
        DTL_OPERATION_FREE => unsafe { free(query.args.cast()) },
        DTL_OPERATION_INSTRUMENT | DTL_OPERATION_INSTRUMENT_DATA => {
            // SAFETY: as above.
            unsafe { instrument(query, query.args.cast()) }
        }
        _ => fail!(DTL_ERROR_INTERNAL, "operation {:#x} is not the library's", query.operation),
    }
}

unsafe fn alloc(out: *mut dtl_dispatch_alloc_t, by: Option<&Arc<Backend>>) -> Result<()> {
    let inside = epoch::enter();
    // SAFETY: the caller's contract.
    let args = unsafe { args::take(out, "args") }?;
    let order = if args.stream.id == 0 { None } else { Some(stream::find(&inside, args.stream)?) };
    let requested = match order {
        Some(stream) => stream.backend(),
        None => device::backend(&inside, args.backend)?,
    };
    let wanted = memory::Request { kind: args.kind, size: args.size_bytes, align: args.alignment };
    let from = by.map_or(requested, |by| by);
    let addr =
        memory::handlers::alloc_from(memory::Owner::Program, requested, from, &wanted, order)?;
    // SAFETY: `take` has read the struct here, and the field is in every version of it.
    unsafe { (*out).ptr = addr.ptr() };
    Ok(())
}

unsafe fn copy(args: *const dtl_dispatch_copy_t, by: Option<&Arc<Backend>>) -> Result<()> {
    let inside = epoch::enter();
    // SAFETY: the caller's contract.
    let args = unsafe { args::take(args, "args") }?;
    if args.ndim != 0 {
        let sides = (args.dst, args.dst_strides, args.src, args.src_strides);
        let shape = (args.shape, args.ndim);
        // SAFETY: the caller's contract: `ndim` counts and strides, and the elements they lead to.
        return unsafe { transfer::strided(&inside, sides, shape, args.element_bytes) };
    }
    // SAFETY: the caller's contract: both sides hold size_bytes.
    let dst = unsafe { args::region(args.dst, args.size_bytes, "dst") }?;
    // SAFETY: as above.
    let src = unsafe { args::region(args.src, args.size_bytes, "src") }?;
    match by {
        None => crate::runtime::memory::transfer::copy(&inside, dst, src),
        Some(by) => {
            let dst = memory::locate(&inside, "destination", dst)?;
            let src = memory::locate(&inside, "source", src)?;
            memory::handlers::copy_by(by, &dst, &src)
        }
    }
}

unsafe fn launch(args: *const dtl_dispatch_launch_t) -> Result<()> {
    let inside = epoch::enter();
    // SAFETY: the caller's contract.
    let args = unsafe { args::take(args, "args") }?;
    let given = (args.args, args.sizes, args.count);
    // SAFETY: the caller's contract: what dtl_kernel_launch wants.
    unsafe { kernel::launch(&inside, args.stream, args.kernel, args.launch, given) }
}

unsafe fn free(args: *const dtl_dispatch_free_t) -> Result<()> {
    // SAFETY: the caller's contract.
    let args = unsafe { args::take(args, "args") }?;
    let inside = epoch::enter();
    let backend = device::backend(&inside, args.backend)?;
    memory::free(memory::Owner::Program, backend, Addr::new(args.ptr))
}

/// Performs the measurements that the library provides.
///
/// # Safety
/// `out` is null or a struct as long as its struct_size.
unsafe fn instrument(query: &Query, out: *mut dtl_dispatch_instrument_t) -> Result<()> {
    let kind = query.source;
    check_enumerations(query.operation, [kind, DTL_DISPATCH_ANY, DTL_DISPATCH_ANY])?;
    // SAFETY: the caller's contract.
    let args = unsafe { args::take(out, "args") }?;
    if args.phase > DTL_INSTRUMENT_END {
        return fail!(
            DTL_ERROR_INVALID_ARGUMENT,
            "dtl_dispatch_instrument_t.phase is {}: use DTL_INSTRUMENT_BEGIN or DTL_INSTRUMENT_END",
            args.phase
        );
    }
    match kind {
        DTL_INSTRUMENTATION_NONE | DTL_DATA_INSTRUMENTATION_NONE => Ok(()),
        DTL_INSTRUMENTATION_TIMER => {
            if args.stream.id != 0 {
                stream::find(&epoch::enter(), args.stream)?;
            }
            let now = now_ns();
            if args.phase == DTL_INSTRUMENT_BEGIN {
                // SAFETY: `take` has read the struct here, and the field is in every version of it.
                unsafe { (*out).state = now };
            } else {
                // SAFETY: as above.
                unsafe { (*out).elapsed_ns = now.saturating_sub(args.state) };
            }
            Ok(())
        }
        _ => fail!(
            DTL_ERROR_NOT_SUPPORTED,
            "{}: no provider of this instrumentation is registered; dtl_dispatch_register adds one \
             to the default dispatcher",
            enums::describe(kind)
        ),
    }
}

unsafe fn compile(out: *mut dtl_dispatch_compile_t, by: Option<&Arc<Backend>>) -> Result<()> {
    // SAFETY: the caller's contract.
    let args = unsafe { args::take(out, "args") }?;
    // SAFETY: the caller's contract: a source as for dtl_module_compile.
    let module = unsafe { module::compile(args.backend, by, args.device, args.source) }?;
    // SAFETY: `take` has read the struct here, and the field is in every version of it.
    unsafe { (*out).module = module };
    Ok(())
}
