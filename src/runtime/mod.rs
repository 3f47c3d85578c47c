//! Core of the library: objects, registry, generic algorithms. It does not refer to any specific
//! backend and has no unsafe code.
//!
//! In reading order:
//! - `lifecycle`: init, finalize and fork; admission of calls
//! - `open_state`: state of the library, which determines whether calls are admitted
//! - `hot_globals`: flags that are read for every message, in one cache line
//! - `settings`: environment variables and the configuration of dtl_init
//! - `log`: log lines
//! - `explain`: choices that the library has made automatically
//! - `launch`: rank, size and job from the launcher
//! - `append_only_table`: tables with lock-free reads
//! - `id_table`: objects identified by small numbers
//! - `types`: dtypes and reduction operations
//! - `op_kind`: kinds of operations of a communicator
//! - `memory_place`: backend, kind and device of memory
//! - `component`: the traits that backends implement
//! - `environment`: environments (external prerequisites) that backends and kernels require
//! - `registry`: backends, and their lookup by name
//! - `plugins`: plugin files and their state
//! - `enums`: extensible enumerations
//! - `device`: devices, and the current device of each thread
//! - `exec`: streams, events, executors, kernels
//! - `memory`: allocation, table of allocations, copies
//! - `dispatch`: selection of the handler of an operation
//! - `library_ops`: queries of the dispatcher by the library's own operations
//! - `array`: arrays and DLPack
//! - `policy`: selection of the resource that runs a task
//! - `comm`: communicators
//! - `topology`: placement of ranks and threads; Cartesian grids
//! - `trace`: records of calls, for files and tools
//! - `self_test`: quick conformance test of a backend
#![forbid(unsafe_code)]

mod append_only_table;
pub mod array;
pub mod comm;
pub mod component;
pub mod device;
pub mod dispatch;
pub mod enums;
pub mod environment;
pub mod exec;
pub mod explain;
mod hot_globals;
mod id_table;
pub mod launch;
pub mod library_ops;
pub mod lifecycle;
pub mod log;
pub mod memory;
mod memory_place;
mod op_kind;
pub mod open_state;
pub mod plugins;
pub mod policy;
pub mod registry;
pub mod self_test;
pub mod settings;
pub mod topology;
pub mod trace;
pub mod types;

use crate::abi::handle::dtl_request_t;
use crate::error::{Error, Result, fail, failure};
use crate::sys::sync::lock::Mutex;
use std::collections::BTreeSet;
use std::ffi::{CStr, CString};

/// Shutdown functions of one kind of object. The first, called at finalize, destroys every live
/// object. The second, called in a forked child, drops all handles without accessing the objects.
pub type Shutdown = (fn(), fn());

/// Shutdown functions of all kinds of objects. A kind whose objects use objects of another kind
/// precedes that kind.
pub const SHUTDOWN: &[Shutdown] = &[
    (comm::rma::destroy_all, comm::rma::forget_all),
    (comm::p2p::matched_message::destroy_all, comm::p2p::matched_message::forget_all),
    (comm::p2p::request::destroy_all, comm::p2p::request::forget_all),
    (comm::delete_attributes, comm::open::attribute::forget_all),
    (comm::destroy_all, comm::forget_all),
    (types::destroy_all, types::destroy_all),
    (policy::destroy_all, policy::forget_all),
    (exec::handles::destroy_all, exec::handles::forget_all),
    (exec::launch_history::close, exec::launch_history::close),
    (dispatch::destroy_all, dispatch::forget_all),
    (array::destroy_all, array::forget_all),
    (memory::mem_pool::destroy_all, memory::mem_pool::forget_all),
    (memory::destroy_all, memory::forget_all),
    (plugins::settle, plugins::settle),
    (trace::close, trace::forget),
];

/// Name of a kind of object, and a function that returns true if a handle of that kind is live.
type Noun = (&'static str, fn(u64) -> bool);

/// Kinds of objects, indexed by the type byte of their handles.
const NOUNS: [Noun; 16] = [
    ("", |_| false),
    ("backend", |id| registry::TABLE.is_live(id)),
    ("stream", exec::handles::is_live::<exec::stream::Stream>),
    ("event", exec::handles::is_live::<exec::event::Event>),
    ("executor", exec::handles::is_live::<exec::executor::Executor>),
    ("kernel", exec::handles::is_live::<exec::kernel::Kernel>),
    ("communicator", comm::is_live),
    ("request", |id| comm::p2p::request::is_alive(dtl_request_t { id })),
    ("message", comm::p2p::matched_message::is_live),
    ("pool", |id| memory::mem_pool::POOLS.is_live(id)),
    ("window", comm::rma::is_live),
    ("module", exec::handles::is_live::<exec::module::Module>),
    ("array", |id| array::ARRAYS.is_live(id)),
    ("policy", |id| policy::POLICIES.is_live(id)),
    ("dispatcher", |id| dispatch::DISPATCHERS.is_live(id)),
    ("registration", |id| dispatch::REGISTRATIONS.is_live(id)),
];

/// Creates the error for an invalid handle: null, stale, of another type, or never created.
#[cold]
pub fn invalid_handle(noun: &str, tag: u8, id: u64) -> Error {
    let other = crate::sys::handles::handle_table::tag_of(id);
    let text = match NOUNS.get(usize::from(other)) {
        _ if id == 0 => format!("the {noun} handle is null"),
        Some(_) if other == tag => {
            format!("{noun} handle {id:#x} is stale: it was destroyed, or completed, or never made")
        }
        Some((name, is_live)) if is_live(id) => {
            format!("handle {id:#x} is {}, not {}", one(name), one(noun))
        }
        _ => format!(
            "no such handle: {id:#x} is no {noun}, and nothing else of this library that is there"
        ),
    };
    Error::new(crate::abi::status::DTL_ERROR_INVALID_HANDLE, text)
}

/// Returns a noun with its indefinite article.
fn one(noun: &str) -> String {
    let article = if noun.starts_with(['a', 'e']) { "an" } else { "a" };
    format!("{article} {noun}")
}

/// Copies `text` into a NUL-terminated field of fixed size; truncates at a character boundary.
pub fn copy_text(field: &mut [std::ffi::c_char], text: &str) {
    let mut end = text.len().min(field.len().saturating_sub(1));
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    field.fill(0);
    for (to, from) in field.iter_mut().zip(text.bytes().take(end)) {
        *to = from as std::ffi::c_char;
    }
}

/// Returns a copy of `text` that is never freed, for C programs that store the pointer. Equal
/// strings share one copy, so the memory is bounded by the number of different strings.
pub fn for_ever(text: &CStr) -> &'static CStr {
    static TEXTS: Mutex<BTreeSet<&'static CStr>> = Mutex::new(BTreeSet::new());
    let mut texts = TEXTS.lock();
    if let Some(known) = texts.get(text) {
        return known;
    }
    let kept: &'static CStr = Box::leak(text.to_owned().into_boxed_c_str());
    texts.insert(kept);
    kept
}

/// Returns a copy of `text` that is never freed, for a field of a C struct; a NUL becomes '?'.
pub fn c_text_for_ever(text: &str) -> *const std::ffi::c_char {
    for_ever(&CString::new(text.replace('\0', "?")).unwrap_or_default()).as_ptr()
}

/// Returns the entry of `list` at an index that a C program has passed.
pub fn entry_at<'a, T>(list: &'a [T], index: u64, noun: &str) -> Result<&'a T> {
    let entry = usize::try_from(index).ok().and_then(|index| list.get(index));
    entry.ok_or_else(|| {
        let count = list.len();
        failure!(DTL_ERROR_OUT_OF_BOUNDS, "{noun} index {index}: there are {count}")
    })
}

/// Checks that `flags` has no bits other than those of `known`, a constant with the name
/// `known_name`.
pub fn check_flags(
    name: &str,
    flags: impl Into<u64>,
    known: impl Into<u64>,
    known_name: &str,
) -> Result<()> {
    let flags = flags.into();
    if flags & !known.into() == 0 {
        return Ok(());
    }
    fail!(DTL_ERROR_INVALID_ARGUMENT, "{name} {flags:#x}: only {known_name} is known")
}

/// Checks the name of a backend, plugin or environment.
pub fn check_name(noun: &str, name: &str) -> Result<()> {
    let good = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
    if name.is_empty() || name.len() > 63 || !name.chars().all(good) || name == "auto" {
        return fail!(
            DTL_ERROR_INVALID_ARGUMENT,
            "{noun} name \"{name}\": use 1 to 63 letters, digits, '_', '-' or '.', and not \"auto\""
        );
    }
    Ok(())
}
