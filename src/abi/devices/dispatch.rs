//! Dispatchers: keys, queries, handlers, arguments of the library's own operations.
//! dtl: section(ffi/dispatch/library_ops)

use super::exec::{dtl_launch_t, dtl_source_t};
use crate::abi::handle::{dtl_backend_t, dtl_event_t, dtl_kernel_t, dtl_module_t, dtl_stream_t};
use crate::abi::status::dtl_status_t;
use crate::abi::word::dtl_enum_word_t;
use std::ffi::{c_char, c_void};

/// In a key: every value, including those registered later. In a query: no value.
pub const DTL_DISPATCH_ANY: dtl_enum_word_t = 0;

/// Flag of `dtl_dispatcher_create`: a key whose predicates are all false hides the handlers with
/// predicates of later keys (rule 2), as in DaCe.
pub const DTL_DISPATCHER_STRICT_DACE: u64 = 1;

/// Flag of a handler without a predicate: it overrides the one with the same key until it is
/// unregistered.
pub const DTL_DISPATCH_REPLACE: u64 = 1;
/// Flag of a handler that refuses: a query that selects it fails with its reason (rule 7).
pub const DTL_DISPATCH_ILLEGAL: u64 = 2;
/// Flag of a handler that is the default of its operation (rule 4). Its key has DTL_DISPATCH_ANY in
/// source, destination and schedule.
pub const DTL_DISPATCH_DEFAULT: u64 = 4;

/// Key under which a handler is registered. It is an element of an array, so it never grows.
///
/// A field is a plain member, a template, an instance of a template, or DTL_DISPATCH_ANY. The key
/// of a template (lower 32 bits 0) matches the template and all its instances; that of an instance
/// matches this instance alone.
///
/// A dispatcher chooses by these rules:
///
///  1. Keys are tried from specific to general, with s = source, d = destination, h = schedule:
///     (s,d,h) (s,d,any) (s,any,h) (s,any,any) (any,d,h) (any,d,any) (any,any,h) (any,any,any).
///     Within one of these forms a key with an instance precedes the key with its template. If keys
///     have instances in different slots, the source counts first, then the destination.
///  2. Handlers with a predicate come first. At the first key with a true predicate the highest
///     priority wins. If two handlers with this priority both have true predicates, the query fails
///     with DTL_ERROR_AMBIGUOUS, and the text names both. A key whose predicates are all false does
///     not hide later keys (with DTL_DISPATCHER_STRICT_DACE it does).
///  3. Then come handlers without a predicate, in the same order of keys.
///  4. Then comes the default of the operation (DTL_DISPATCH_DEFAULT).
///  5. Otherwise the query fails with DTL_ERROR_NOT_FOUND. The text names source, destination and
///     schedule.
///  6. A second handler without a predicate for a key, and a second default of an operation, are
///     refused with DTL_ERROR_ALREADY_EXISTS, unless the new one has DTL_DISPATCH_REPLACE. Of
///     several keys that are registered at once, either all are registered or none.
///  7. If a DTL_DISPATCH_ILLEGAL handler is chosen, the query fails with DTL_ERROR_NOT_SUPPORTED
///     and the reason of the handler.
///  8. Predicates run without a lock, each at most once per query, and may query the dispatcher
///     themselves. A predicate that fails (below 0) ends the query with its status.
///  9. A handler may be unregistered while it runs. From then on it is not chosen, and `destroy`
///     runs after its last user has returned.
/// 10. DTL_DISPATCH_ANY also matches values that are registered later.
///
/// The rules come from the TargetDispatcher of DaCe, with one correction: the order of registration
/// never decides.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct dtl_dispatch_key_t {
    /// DTL_OPERATION_... or a registered member of DTL_ENUM_OPERATION; not an instance, not 0.
    /// dtl: values(DTL_OPERATION_)
    pub operation: dtl_enum_word_t,
    /// Origin of the data, or DTL_DISPATCH_ANY. Any word that an enumeration in this process has
    /// assigned. For the library's own operations, a field accepts only words of the enumeration
    /// that dtl_dispatch_query_t lists for it, and `schedule` accepts only schedules.
    pub source: dtl_enum_word_t,
    /// Destination of the data, or DTL_DISPATCH_ANY.
    pub destination: dtl_enum_word_t,
    /// How the work runs, or DTL_DISPATCH_ANY.
    pub schedule: dtl_enum_word_t,
    /// Must be 0.
    pub reserved: [u64; 2],
}

/// Query for a handler. Start from DTL_DISPATCH_QUERY_INIT. The library itself makes these queries
/// to the default dispatcher:
///
///     operation              source       destination  schedule        args
///     DTL_OPERATION_ALLOC    -            memory kind  -               dtl_dispatch_alloc_t
///     DTL_OPERATION_COPY     memory kind  memory kind  -               dtl_dispatch_copy_t
///     DTL_OPERATION_LAUNCH   -            -            of the launch   dtl_dispatch_launch_t
///     DTL_OPERATION_COMPILE  language     -            -               dtl_dispatch_compile_t
///     DTL_OPERATION_FREE     memory kind  -            -               dtl_dispatch_free_t
///
/// The schedule of a launch is dtl_launch_t.schedule. The program itself makes the following
/// queries, with dtl_dispatch_invoke. They choose a provider by the kind of instrumentation:
///
///     DTL_OPERATION_INSTRUMENT       instrumentation       -  -  dtl_dispatch_instrument_t
///     DTL_OPERATION_INSTRUMENT_DATA  data instrumentation  -  -  dtl_dispatch_instrument_t
///
/// The library provides DTL_INSTRUMENTATION_NONE and TIMER, and DTL_DATA_INSTRUMENTATION_NONE. Any
/// other kind, also a registered one, fails with DTL_ERROR_NOT_SUPPORTED until a provider is
/// registered for it.
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
    /// A value, or DTL_DISPATCH_ANY: no value, so only keys with DTL_DISPATCH_ANY match.
    pub source: dtl_enum_word_t,
    /// A value, or DTL_DISPATCH_ANY: no value, so only keys with DTL_DISPATCH_ANY match.
    pub destination: dtl_enum_word_t,
    /// A value, or DTL_DISPATCH_ANY: no value, so only keys with DTL_DISPATCH_ANY match.
    pub schedule: dtl_enum_word_t,
    /// Struct of the operation, passed unchanged to predicates and to the handler. May be NULL if
    /// nothing is invoked.
    /// dtl: inout len(?) opt
    pub args: *mut c_void,
}

/// Returns whether a handler accepts a query: above 0 = yes, 0 = no, below 0 = minus a status, with
/// which the query fails.
///
/// The text of the failure is that of dtl_backend_set_error, or of the dtl_ call that returned the
/// status. Thread: the one that makes the query. Locks held: none. It may call dtl_ functions, even
/// those of this dispatcher. It should not block and must not throw.
/// dtl:user opaque
pub type dtl_dispatch_predicate_fn_t =
    Option<unsafe extern "C" fn(query: *const dtl_dispatch_query_t, user: *mut c_void) -> i32>;

/// Performs the requested operation.
///
/// Thread: the one that makes the query. Locks held: none. It may block and call dtl_ functions. It
/// must not throw. If the handler makes a call that would select the handler again, the library
/// performs that call itself.
/// @param out_event  Event for the end of work that continues after the return; the caller of
///                   dtl_dispatch_invoke owns it. If it stays null, all work is complete. Anything
///                   but a live event fails with DTL_ERROR_NATIVE_BACKEND. The pointer is NULL if
///                   nothing waits for an event, as in every query of the library itself: complete
///                   all work before returning.
/// dtl:user opaque
/// dtl:out_event out opt owned(dtl_event_destroy)
pub type dtl_dispatch_fn_t = Option<
    unsafe extern "C" fn(
        query: *const dtl_dispatch_query_t,
        out_event: *mut dtl_event_t,
        user: *mut c_void,
    ) -> dtl_status_t,
>;

/// Frees the data of a handler after its last use.
///
/// Thread: the one that unregistered the handler, or the last one that used it, when it leaves the
/// library. Locks held: none. It may call dtl_ functions (during dtl_finalize they fail). It must
/// not throw.
/// dtl:user opaque
pub type dtl_dispatch_destroy_fn_t = Option<unsafe extern "C" fn(user: *mut c_void)>;

/// Handler of a dispatcher. Start from DTL_DISPATCH_HANDLER_INIT.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct dtl_dispatch_handler_t {
    /// sizeof(dtl_dispatch_handler_t), set by DTL_DISPATCH_HANDLER_INIT.
    pub struct_size: u32,
    /// Priority among handlers with a predicate of the same key: the highest wins.
    pub priority: i32,
    /// DTL_DISPATCH_REPLACE, DTL_DISPATCH_ILLEGAL and DTL_DISPATCH_DEFAULT, ORed.
    /// dtl: flags(DTL_DISPATCH_REPLACE|DTL_DISPATCH_ILLEGAL|DTL_DISPATCH_DEFAULT)
    pub flags: u64,
    /// Name for texts, 1 to 127 bytes of UTF-8. Copied. It need not be unique.
    pub name: *const c_char,
    /// Reason for the refusal of a DTL_DISPATCH_ILLEGAL handler. Copied. Otherwise NULL.
    /// dtl: opt((flags&DTL_DISPATCH_ILLEGAL)==0)
    pub reason: *const c_char,
    /// Predicate. NULL = the handler accepts every query that its keys match.
    /// dtl: opt until(last_use)
    pub predicate: dtl_dispatch_predicate_fn_t,
    /// Performs the operation. NULL if `backend` or DTL_DISPATCH_ILLEGAL determines the result.
    /// dtl: opt until(last_use)
    pub invoke: dtl_dispatch_fn_t,
    /// Frees `user`. NULL = nothing to do.
    /// dtl: opt until(last_use)
    pub destroy: dtl_dispatch_destroy_fn_t,
    /// Passed to `predicate`, `invoke` and `destroy`.
    /// dtl: opaque until(slot:destroy)
    pub user: *mut c_void,
    /// Backend whose memory, transfer or compiler performs the operation instead of `invoke`, for
    /// DTL_OPERATION_ALLOC, DTL_OPERATION_COPY and DTL_OPERATION_COMPILE. It cannot be unregistered
    /// before the handler. Otherwise null.
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
    /// Requested backend; that of the stream if there is one.
    pub backend: dtl_backend_t,
    /// Requested memory kind.
    /// dtl: values(DTL_MEMORY_)
    pub kind: dtl_enum_word_t,
    /// Size in bytes, at least 1.
    pub size_bytes: u64,
    /// Power of two in bytes; 0 = that of the kind.
    pub alignment: u64,
    /// Result, set by the handler: memory from dtl_mem_alloc, or from dtl_mem_alloc_async on
    /// `stream`, of any backend. (Exception: memory of "host" for another backend. Set
    /// dtl_dispatch_handler_t.backend to "host" instead.) The program frees it by dtl_mem_free with
    /// the backend that it requested or with that of the memory. The library owns it once the
    /// handler succeeds. If its size or alignment is insufficient, it is refused with
    /// DTL_ERROR_NATIVE_BACKEND, and freed if it came from dtl_mem_alloc.
    /// dtl: out address owned(dtl_mem_free)
    pub ptr: *mut c_void,
    /// Stream in whose order the memory is requested (dtl_mem_alloc_async). Memory that is
    /// available immediately is sufficient. Null = no stream.
    /// cbindgen:appended
    pub stream: dtl_stream_t,
}

/// Arguments of DTL_OPERATION_COPY. Start from DTL_DISPATCH_COPY_INIT.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct dtl_dispatch_copy_t {
    /// sizeof(dtl_dispatch_copy_t), set by DTL_DISPATCH_COPY_INIT.
    pub struct_size: u32,
    /// Number of axes in `shape` and strides; 0 = `size_bytes` contiguous bytes.
    pub ndim: i32,
    /// First element of the destination.
    /// dtl: out len(?) opt(size_bytes==0)
    pub dst: *mut c_void,
    /// First element of the source.
    /// dtl: len(?) opt(size_bytes==0)
    pub src: *const c_void,
    /// Size of all elements together in bytes.
    pub size_bytes: u64,
    /// Backend of the destination; null = memory of the program.
    pub dst_backend: dtl_backend_t,
    /// Backend of the source; null = memory of the program.
    pub src_backend: dtl_backend_t,
    /// Size of an element in bytes.
    pub element_bytes: u64,
    /// Number of elements along each axis.
    /// dtl: len(ndim) opt(ndim==0)
    pub shape: *const i64,
    /// Distances in the destination from one element to the next along each axis, in elements.
    /// dtl: len(ndim) opt
    pub dst_strides: *const i64,
    /// Distances in the source from one element to the next along each axis, in elements.
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
    /// Always 0.
    pub reserved: u32,
    /// The stream.
    pub stream: dtl_stream_t,
    /// The kernel.
    pub kernel: dtl_kernel_t,
    /// Grid and block dimensions, with the schedule.
    pub launch: *const dtl_launch_t,
    /// Pointers to the arguments.
    /// dtl: len(count) opt(count==0)
    pub args: *const *const c_void,
    /// Sizes of the arguments in bytes.
    /// dtl: len(count) opt(count==0)
    pub sizes: *const u64,
    /// Number of arguments.
    pub count: u64,
}

/// Arguments of DTL_OPERATION_FREE. Start from DTL_DISPATCH_FREE_INIT.
///
/// dtl_mem_free makes the query, for all memory except that of kind HOST of backend "host". The
/// handler becomes the owner of the memory: it frees it, or keeps it for later allocations. To free
/// it, it calls dtl_mem_free, which runs the library's own implementation on the handler's thread.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct dtl_dispatch_free_t {
    /// sizeof(dtl_dispatch_free_t), set by DTL_DISPATCH_FREE_INIT.
    pub struct_size: u32,
    /// Always 0.
    pub reserved: u32,
    /// Backend that the caller passed.
    pub backend: dtl_backend_t,
    /// Memory kind.
    /// dtl: values(DTL_MEMORY_)
    pub kind: dtl_enum_word_t,
    /// First byte of the allocation.
    /// dtl: address
    pub ptr: *mut c_void,
    /// Size in bytes.
    pub size_bytes: u64,
}

/// Value of dtl_dispatch_instrument_t.phase: the measurement begins.
pub const DTL_INSTRUMENT_BEGIN: u32 = 0;
/// Value of dtl_dispatch_instrument_t.phase: the measurement ends.
pub const DTL_INSTRUMENT_END: u32 = 1;

/// Arguments of DTL_OPERATION_INSTRUMENT and DTL_OPERATION_INSTRUMENT_DATA. Start from
/// DTL_DISPATCH_INSTRUMENT_INIT, and pass the same struct at the beginning and at the end.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct dtl_dispatch_instrument_t {
    /// sizeof(dtl_dispatch_instrument_t), set by DTL_DISPATCH_INSTRUMENT_INIT.
    pub struct_size: u32,
    /// DTL_INSTRUMENT_BEGIN or DTL_INSTRUMENT_END.
    pub phase: u32,
    /// Name of the measured part or data; NULL = none.
    /// dtl: opt
    pub name: *const c_char,
    /// Stream whose work is measured; null = the calling thread.
    pub stream: dtl_stream_t,
    /// First byte of the data; NULL = none.
    /// dtl: inout address opt
    pub data: *mut c_void,
    /// Size of the data in bytes.
    pub size_bytes: u64,
    /// For use by the provider, which may store a value here at the beginning and read it at the
    /// end.
    pub state: u64,
    /// Result at the end, set by the provider: time in nanoseconds, or 0.
    pub elapsed_ns: u64,
}

/// Arguments of DTL_OPERATION_COMPILE: those of dtl_module_compile. Start from
/// DTL_DISPATCH_COMPILE_INIT.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct dtl_dispatch_compile_t {
    /// sizeof(dtl_dispatch_compile_t), set by DTL_DISPATCH_COMPILE_INIT.
    pub struct_size: u32,
    /// Requested device.
    pub device: i32,
    /// Requested backend.
    pub backend: dtl_backend_t,
    /// The source.
    pub source: *const dtl_source_t,
    /// Result, set by the handler: the module. The caller of dtl_module_compile owns it.
    /// dtl: out owned(dtl_module_destroy)
    pub module: dtl_module_t,
}
