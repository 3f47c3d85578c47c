//! Dispatcher: keys, queries, handlers, and what the library's own operations hand to them.
//! dtl: section(ffi/dispatch/library_ops)

use super::exec::{dtl_launch_t, dtl_source_t};
use crate::abi::handle::{dtl_backend_t, dtl_event_t, dtl_kernel_t, dtl_module_t, dtl_stream_t};
use crate::abi::status::dtl_status_t;
use crate::abi::word::dtl_enum_word_t;
use std::ffi::{c_char, c_void};

/// In a key: every value, also those that are registered later. In a query: there is none.
pub const DTL_DISPATCH_ANY: dtl_enum_word_t = 0;

/// Flag of `dtl_dispatcher_create`: a key whose predicates are all false hides the predicated
/// handlers of later keys (rule 2), as in DaCe.
pub const DTL_DISPATCHER_STRICT_DACE: u64 = 1;

/// Flag of a handler without a predicate: it stands before the one of the same key, until it is
/// unregistered.
pub const DTL_DISPATCH_REPLACE: u64 = 1;
/// Flag of a handler that refuses: a query that selects it fails with its reason (rule 7).
pub const DTL_DISPATCH_ILLEGAL: u64 = 2;
/// Flag of a handler that is the default of its operation (rule 4): its key has DTL_DISPATCH_ANY in
/// all three slots.
pub const DTL_DISPATCH_DEFAULT: u64 = 4;

/// What a handler is for. An element of an array: it never grows.
///
/// A slot is a plain member, a template, an instance of one, or DTL_DISPATCH_ANY. A template's key
/// (lower 32 bits 0) fits the template and every instance of it; an instance's key fits that
/// instance alone.
///
/// Rules by which a dispatcher chooses:
///
///  1. Keys are walked from specific to general, with s = source, d = destination, h = schedule:
///     (s,d,h) (s,d,any) (s,any,h) (s,any,any) (any,d,h) (any,d,any) (any,any,h) (any,any,any).
///     Within one of these forms a key with an instance comes before one with its template; where
///     keys have instances in different slots, the source counts first, then the destination.
///  2. Handlers with a predicate come first. At the first key where a predicate is true the highest
///     priority wins; if two have that priority and both are true, the query is DTL_ERROR_AMBIGUOUS
///     and the text names both. A key whose predicates are all false does not hide the keys after
///     it (it does with DTL_DISPATCHER_STRICT_DACE).
///  3. Then handlers without a predicate, by the same walk.
///  4. Then the default of the operation (DTL_DISPATCH_DEFAULT).
///  5. Then DTL_ERROR_NOT_FOUND: the text names source, destination and schedule.
///  6. Two handlers without a predicate for one key, or two defaults of one operation, are
///     DTL_ERROR_ALREADY_EXISTS, unless the new one has DTL_DISPATCH_REPLACE. Of several keys that
///     are registered at once all are taken or none.
///  7. A handler can be DTL_DISPATCH_ILLEGAL: where it is chosen, the query fails with
///     DTL_ERROR_NOT_SUPPORTED and its reason.
///  8. Predicates run without any lock, each at most once for a query, and may query the dispatcher
///     themselves. A predicate that fails (below 0) ends the query with its status.
///  9. A handler may be unregistered while it runs: from then on it is not chosen any more, and
///     `destroy` of its data runs after the last user has left.
/// 10. DTL_DISPATCH_ANY also fits values that are registered later.
///
/// Source of the rules: DaCe's TargetDispatcher, without what goes wrong there: the order of
/// registration never decides.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct dtl_dispatch_key_t {
    /// DTL_OPERATION_... or a registered one of DTL_ENUM_OPERATION; not an instance, not 0.
    /// dtl: values(DTL_OPERATION_)
    pub operation: dtl_enum_word_t,
    /// Where data comes from: a word of any enumeration that was given out in this process, or
    /// DTL_DISPATCH_ANY. In keys of the library's own operations a slot takes only words of the
    /// enumeration that dtl_dispatch_query_t lists for it, and `schedule` takes only schedules.
    pub source: dtl_enum_word_t,
    /// Where it goes, or DTL_DISPATCH_ANY.
    pub destination: dtl_enum_word_t,
    /// How work is run, or DTL_DISPATCH_ANY.
    pub schedule: dtl_enum_word_t,
    /// Must be 0.
    pub reserved: [u64; 2],
}

/// What a handler is wanted for. Start from DTL_DISPATCH_QUERY_INIT.
///
/// What the library asks the default dispatcher itself:
///
///     operation              source        destination   schedule                args
///     DTL_OPERATION_ALLOC    -             memory kind   -
///                            dtl_dispatch_alloc_t
///     DTL_OPERATION_COPY     memory kind   memory kind   -
///                            dtl_dispatch_copy_t
///     DTL_OPERATION_LAUNCH   -             -             dtl_launch_t.schedule
///                            dtl_dispatch_launch_t
///     DTL_OPERATION_COMPILE  language      -             -
///                            dtl_dispatch_compile_t
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct dtl_dispatch_query_t {
    /// sizeof(dtl_dispatch_query_t), set by DTL_DISPATCH_QUERY_INIT.
    pub struct_size: u32,
    /// Must be 0.
    pub reserved: u32,
    /// DTL_OPERATION_... or a registered one.
    /// dtl: values(DTL_OPERATION_)
    pub operation: dtl_enum_word_t,
    /// A value, or DTL_DISPATCH_ANY: there is none, and only keys with DTL_DISPATCH_ANY fit.
    pub source: dtl_enum_word_t,
    /// As source.
    pub destination: dtl_enum_word_t,
    /// As source.
    pub schedule: dtl_enum_word_t,
    /// Handed to predicates and to the handler as it is: the operation's own struct. May be NULL
    /// for a mere question.
    /// dtl: inout len(?) opt
    pub args: *mut c_void,
}

/// Whether a handler takes a query: above 0 = yes, 0 = no, below 0 = minus a status, with which the
/// query fails (its text: dtl_backend_set_error, or that of the dtl_ call which gave the status).
/// Thread: the one that asks. Locks held: none. It may call dtl_ functions, also on the dispatcher;
/// it should not block and must not throw.
/// dtl:user opaque
pub type dtl_dispatch_predicate_fn_t =
    Option<unsafe extern "C" fn(query: *const dtl_dispatch_query_t, user: *mut c_void) -> i32>;

/// Performs the requested operation.
/// @param out_event  an event for the end of work that goes on after the return; the caller of
///                   dtl_dispatch_invoke then owns it. Left null: all is done. Anything but a live
///                   event: DTL_ERROR_NATIVE_BACKEND. NULL (the pointer): nothing waits for an
///                   event, so do all before returning; that is the case in every query of the
///                   library itself.
/// Thread: the one that makes the query. Locks held: none. It may block and call dtl_ functions; it
/// must not throw. A call of the library that would lead to the handler which makes it goes the
/// library's own way instead.
/// dtl:user opaque
/// dtl:out_event out opt owned(dtl_event_destroy)
pub type dtl_dispatch_fn_t = Option<
    unsafe extern "C" fn(
        query: *const dtl_dispatch_query_t,
        out_event: *mut dtl_event_t,
        user: *mut c_void,
    ) -> dtl_status_t,
>;

/// The handler's data are used no more. Thread: the one that unregistered it, or the last one that
/// used it when that leaves the library. Locks held: none. It may call dtl_ functions (during
/// dtl_finalize they fail); it must not throw.
/// dtl:user opaque
pub type dtl_dispatch_destroy_fn_t = Option<unsafe extern "C" fn(user: *mut c_void)>;

/// A handler. Start from DTL_DISPATCH_HANDLER_INIT.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct dtl_dispatch_handler_t {
    /// sizeof(dtl_dispatch_handler_t), set by DTL_DISPATCH_HANDLER_INIT.
    pub struct_size: u32,
    /// Among handlers with a predicate of the same key the higher one wins.
    pub priority: i32,
    /// DTL_DISPATCH_REPLACE, DTL_DISPATCH_ILLEGAL, DTL_DISPATCH_DEFAULT.
    /// dtl: flags(DTL_DISPATCH_REPLACE|DTL_DISPATCH_ILLEGAL|DTL_DISPATCH_DEFAULT)
    pub flags: u64,
    /// For texts, 1 to 127 bytes of UTF-8; copied, need not be unique.
    pub name: *const c_char,
    /// Why what it is chosen for cannot be done, for DTL_DISPATCH_ILLEGAL; copied. Else NULL.
    /// dtl: opt((flags&DTL_DISPATCH_ILLEGAL)==0)
    pub reason: *const c_char,
    /// NULL = it takes every query that its keys fit.
    /// dtl: opt until(last_use)
    pub predicate: dtl_dispatch_predicate_fn_t,
    /// Performs the operation. NULL where `backend` or DTL_DISPATCH_ILLEGAL determines the result.
    /// dtl: opt until(last_use)
    pub invoke: dtl_dispatch_fn_t,
    /// NULL = there is nothing to destroy.
    /// dtl: opt until(last_use)
    pub destroy: dtl_dispatch_destroy_fn_t,
    /// Handed to the three.
    /// dtl: opaque until(slot:destroy)
    pub user: *mut c_void,
    /// Instead of `invoke`, for DTL_OPERATION_ALLOC, DTL_OPERATION_COPY and DTL_OPERATION_COMPILE:
    /// this backend's memory, transfer or compiler does it. The backend cannot be unregistered
    /// before the handler. Else null.
    pub backend: dtl_backend_t,
}

/// Arguments of DTL_OPERATION_ALLOC. Start from DTL_DISPATCH_ALLOC_INIT.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct dtl_dispatch_alloc_t {
    /// sizeof(dtl_dispatch_alloc_t), set by DTL_DISPATCH_ALLOC_INIT.
    pub struct_size: u32,
    /// Must be 0.
    pub reserved: u32,
    /// The requested backend; the stream's, where there is one.
    pub backend: dtl_backend_t,
    /// The requested kind.
    /// dtl: values(DTL_MEMORY_)
    pub kind: dtl_enum_word_t,
    /// At least 1.
    pub size_bytes: u64,
    /// A power of two; 0 = the kind's own.
    pub alignment: u64,
    /// Set by the handler: memory from dtl_mem_alloc, or from dtl_mem_alloc_async on `stream`, of
    /// any backend (not of backend "host" for another: name that in
    /// dtl_dispatch_handler_t.backend). The program frees it by dtl_mem_free with the backend that
    /// it requested, or the memory's own. The library owns it once the handler succeeds. If it
    /// lacks that size or alignment, it is refused with DTL_ERROR_NATIVE_BACKEND, and freed if
    /// dtl_mem_alloc gave it.
    /// dtl: out address owned(dtl_mem_free)
    pub ptr: *mut c_void,
    /// In whose order the memory is wanted (dtl_mem_alloc_async): memory that is there at once will
    /// do. Null = in no stream's.
    /// cbindgen:appended
    pub stream: dtl_stream_t,
}

/// Arguments of DTL_OPERATION_COPY. Start from DTL_DISPATCH_COPY_INIT.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct dtl_dispatch_copy_t {
    /// sizeof(dtl_dispatch_copy_t), set by DTL_DISPATCH_COPY_INIT.
    pub struct_size: u32,
    /// 0: size_bytes in a row; else axes of `shape` and of the strides.
    pub ndim: i32,
    /// Where the first element goes.
    /// dtl: out len(?) opt(size_bytes==0)
    pub dst: *mut c_void,
    /// Where it is.
    /// dtl: len(?) opt(size_bytes==0)
    pub src: *const c_void,
    /// Bytes of all elements.
    pub size_bytes: u64,
    /// Whose memory dst is; null = the program's own.
    pub dst_backend: dtl_backend_t,
    /// Whose memory src is; null = the program's own.
    pub src_backend: dtl_backend_t,
    /// Bytes of an element.
    pub element_bytes: u64,
    /// Elements along each axis.
    /// dtl: len(ndim) opt(ndim==0)
    pub shape: *const i64,
    /// Elements from one element to the next along each axis.
    /// dtl: len(ndim) opt
    pub dst_strides: *const i64,
    /// As dst_strides.
    /// dtl: len(ndim) opt
    pub src_strides: *const i64,
}

/// Arguments of DTL_OPERATION_LAUNCH: those of dtl_kernel_launch. Start from
/// DTL_DISPATCH_LAUNCH_INIT.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct dtl_dispatch_launch_t {
    /// sizeof(dtl_dispatch_launch_t), set by DTL_DISPATCH_LAUNCH_INIT.
    pub struct_size: u32,
    /// 0.
    pub reserved: u32,
    /// The stream.
    pub stream: dtl_stream_t,
    /// The kernel.
    pub kernel: dtl_kernel_t,
    /// The grid, with the schedule.
    pub launch: *const dtl_launch_t,
    /// Pointers to the arguments.
    /// dtl: len(count) opt(count==0)
    pub args: *const *const c_void,
    /// Their sizes in bytes.
    /// dtl: len(count) opt(count==0)
    pub sizes: *const u64,
    /// Number of arguments.
    pub count: u64,
}

/// Arguments of DTL_OPERATION_COMPILE: those of dtl_module_compile. Start from
/// DTL_DISPATCH_COMPILE_INIT.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct dtl_dispatch_compile_t {
    /// sizeof(dtl_dispatch_compile_t), set by DTL_DISPATCH_COMPILE_INIT.
    pub struct_size: u32,
    /// The device.
    pub device: i32,
    /// The requested backend.
    pub backend: dtl_backend_t,
    /// The source.
    pub source: *const dtl_source_t,
    /// Set by the handler: the module, which becomes the caller's.
    /// dtl: out owned(dtl_module_destroy)
    pub module: dtl_module_t,
}
