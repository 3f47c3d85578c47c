//! Modules: kernels from source.

use crate::abi::devices::dispatch::{DTL_DISPATCH_ANY, dtl_dispatch_compile_t};
use crate::abi::devices::exec::{dtl_source_file_t, dtl_source_t};
use crate::abi::handle::{dtl_backend_t, dtl_kernel_t, dtl_module_t};
use crate::abi::status::{DTL_ERROR_COMPILE_FAILED, dtl_status_t};
use crate::abi::word::*;
use crate::error::{Error, Result, fail};
use crate::ffi::args::{self, Out};
use crate::ffi::guard::Entry;
use crate::from_c::blank;
use crate::runtime::component::{KERNEL_HEADER, KernelQuery, Source, SourceFile};
use crate::runtime::dispatch::{self, Action, Query, Registration};
use crate::runtime::environment::Requirement;
use crate::runtime::exec::handles;
use crate::runtime::exec::module::Module;
use crate::runtime::library_ops;
use crate::runtime::registry::Backend;
use crate::sys::handles::epoch::{self, Guard};
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char};
use std::sync::Arc;

/// Maximum size in bytes of a source, and of its files together; maximum number of options, and of
/// files.
const MOST_BYTES: u64 = 1 << 30;
const MOST_ENTRIES: u32 = 1024;
/// Maximum length in bytes of the name of a file, and of a part of it, that every file system
/// accepts.
const LONGEST_NAME: usize = 1023;
const LONGEST_PART: usize = 255;

thread_local! {
    /// Log of the last compilation that failed in this thread.
    static LAST_LOG: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Compiles source for a device into a module, and blocks until that is done.
///
/// The backend may cache the result: that of "host" is stored in a folder on disk and reused the
/// next time (docs/how-to/kernels-from-source.md). If the default dispatcher has a handler for the
/// language (DTL_OPERATION_COMPILE), that handler compiles, and the module is the one it returns,
/// whatever backend it belongs to. Loading the module may wait for all work of the device (CUDA),
/// so do not compile while a stream waits for the calling thread.
///
/// @param backend  A backend with "modules" (dtl_backend_supports).
/// @param device   0 to the device count - 1. 0 for a backend without devices.
/// @param source   Start from DTL_SOURCE_INIT. Read during the call only.
/// @param out      The module. The caller owns it; destroy it with dtl_module_destroy.
/// @return DTL_ERROR_COMPILE_FAILED: the source has errors, or a symbol is undefined.
///         dtl_last_error has the first errors, dtl_module_log the whole log.
///         DTL_ERROR_NOT_SUPPORTED: the backend does not compile, or not this language. The text
///         lists the languages that it compiles.
///         DTL_ERROR_UNAVAILABLE: there is no compiler, or no folder for its output. The text names
///         the remedy.
///         DTL_ERROR_ALREADY_EXISTS: two files have the same name, or the name of one is a folder
///         of the other.
///         DTL_ERROR_INVALID_ARGUMENT: the text is empty or contains a NUL, or a name, a file or a
///         reserved field is not valid.
///         DTL_ERROR_OUT_OF_BOUNDS: there is no such device.
///         DTL_ERROR_TIMEOUT: the compiler took longer than DTL_COMPILE_TIMEOUT.
///         DTL_ERROR_LIMIT: the disk is full, files are limited in size (ulimit -f), the source or
///         its files exceed 1 GiB, or there are more than 1024 options or files.
///         DTL_ERROR_NOT_FOUND, DTL_ERROR_UNAVAILABLE, DTL_ERROR_INVALID_STATE or the status of a
///         probe or init: an environment cannot be required (see dtl_environment_require).
/// Threads: any, several at once. Equivalent: nvrtcCompileProgram and cuModuleLoadData.
/// dtl:out owned(dtl_module_destroy)
/// dtl:call blocks
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_module_compile(
    backend: dtl_backend_t,
    device: i32,
    source: *const dtl_source_t,
    out: *mut dtl_module_t,
) -> dtl_status_t {
    Entry("dtl_module_compile").wait(
        |inside| {
            let out = Out::new(out, "out")?;
            let owner = handles::backend_of(inside, backend)?;
            handles::check_device(&owner, device)?;
            // SAFETY: the caller's contract: a struct as long as its struct_size.
            let language = unsafe { args::take(source, "source") }?.language;
            let mut wanted = dtl_dispatch_compile_t { device, backend, source, ..blank() };
            Ok((out, by_language(inside, language, &mut wanted)?, wanted))
        },
        |(out, theirs, wanted)| {
            let by = match theirs.as_deref().map(|handler| (handler, &handler.action)) {
                Some((_, Action::Backend(by))) => Some(by),
                Some((handler, _)) => return out.put(compile_by(handler, wanted)),
                None => None,
            };
            // SAFETY: the caller's contract: what the struct points to is there.
            out.put(unsafe { compile(backend, by, device, source) })
        },
    )
}

/// Returns the handler of the program for a language, if there is one.
fn by_language(
    inside: &Guard,
    language: dtl_enum_word_t,
    wanted: &mut dtl_dispatch_compile_t,
) -> Result<Option<Arc<Registration>>> {
    if !library_ops::is_taken(DTL_OPERATION_COMPILE) {
        return Ok(None);
    }
    let found = library_ops::theirs(inside, &compile_query(language, wanted))?;
    Ok(found.and_then(|found| dispatch::pin(inside, found.handle())))
}

fn compile_query(language: dtl_enum_word_t, wanted: &mut dtl_dispatch_compile_t) -> Query {
    let slots = [language, DTL_DISPATCH_ANY, DTL_DISPATCH_ANY];
    library_ops::query(DTL_OPERATION_COMPILE, slots, std::ptr::from_mut(wanted).cast())
}

/// Compiles through a handler of the program.
fn compile_by(handler: &Registration, mut wanted: dtl_dispatch_compile_t) -> Result<dtl_module_t> {
    // SAFETY: taken over once already; the caller's contract holds until its call returns.
    let language = unsafe { args::take(wanted.source, "source") }?.language;
    handler.invoke(&compile_query(language, &mut wanted), None)?;
    if !handles::is_live::<Module>(wanted.module.id) {
        return fail!(
            DTL_ERROR_NATIVE_BACKEND,
            "handler \"{}\" gave {:#x}, which is no module",
            handler.name,
            wanted.module.id
        );
    }
    Ok(wanted.module)
}

/// Compiles by the backend that a handler names, else by the requested one.
///
/// # Safety
/// `source` is null or as long as its struct_size; its pointers are null or valid as it describes.
pub(crate) unsafe fn compile(
    requested: dtl_backend_t,
    by: Option<&Arc<Backend>>,
    device: i32,
    source: *const dtl_source_t,
) -> Result<dtl_module_t> {
    let owner = match by {
        Some(by) => Arc::clone(by),
        None => handles::backend_of(&epoch::enter(), requested)?,
    };
    handles::check_device(&owner, device)?;
    // SAFETY: the caller's contract: a struct as long as its struct_size.
    let source = unsafe { args::take(source, "source") }?;
    // SAFETY: the caller's contract: what the struct points to is there.
    let needs = unsafe {
        args::texts(source.environments, source.environment_count, "dtl_source_t.environments")
    }?;
    let needs = needs.iter().map(|need| Requirement::parse(need)).collect::<Result<Vec<_>>>()?;
    // SAFETY: as above.
    let mut source = unsafe { take_over(&source) }?;
    let mut log = String::new();
    let module = Module::compile(owner, device, &mut source, &needs, &mut log)
        .map_err(|error| failed(&source, error, log))?;
    handles::insert(module).map(|id| dtl_module_t { id })
}

/// Stores the log and adds its first errors to the text of the error.
fn failed(source: &Source, mut error: Error, log: String) -> Error {
    if error.status() == DTL_ERROR_COMPILE_FAILED {
        let (name, text) = (source.name.to_string_lossy(), error.text());
        let text = match first_errors(&log).as_str() {
            "" => format!("{name}: {text}"),
            first => format!("{name}: {text}: {first} (all of the log: dtl_module_log)"),
        };
        error = Error::new(DTL_ERROR_COMPILE_FAILED, text);
    }
    let _ = LAST_LOG.try_with(|last| last.replace(log));
    error
}

/// Returns the first lines of a log that describe an error, or its first line if there are none.
fn first_errors(log: &str) -> String {
    const MOST: usize = 3;
    // Linkers do not always print "error", and the compiler that called one prints only that it
    // failed.
    const SIGNS: [&str; 4] = ["error", "undefined reference", "annot find", "ld: "];
    const NO_NEWS: [&str; 2] = ["ld returned", "linker command failed"];
    let has = |line: &str, signs: &[&str]| signs.iter().any(|sign| line.contains(sign));
    let lines = || log.lines().map(str::trim).filter(|line| !line.is_empty());
    let wrong: Vec<_> =
        lines().filter(|line| has(line, &SIGNS) && !has(line, &NO_NEWS)).take(MOST).collect();
    if wrong.is_empty() { lines().next().unwrap_or_default().to_owned() } else { wrong.join("; ") }
}

/// Copies what the struct points to.
///
/// # Safety
/// Its pointers are null or valid as its fields describe.
unsafe fn take_over(source: &dtl_source_t) -> Result<Source> {
    if source.text.is_null() {
        return fail!(DTL_ERROR_NULL_POINTER, "dtl_source_t.text is NULL");
    }
    // SAFETY: without a size the text is NUL-terminated, by the contract.
    let size = unsafe { size_of_text(source.text.cast(), source.size_bytes) };
    if size == 0 {
        return fail!(DTL_ERROR_INVALID_ARGUMENT, "dtl_source_t.text is empty");
    }
    if size > MOST_BYTES {
        return fail!(
            DTL_ERROR_LIMIT,
            "dtl_source_t.size_bytes is {size}; at most {MOST_BYTES} bytes are compiled"
        );
    }
    // SAFETY: `size` bytes by the contract.
    let bytes = unsafe { std::slice::from_raw_parts(source.text.cast::<u8>(), size as usize) };
    if let Some(at) = bytes.iter().position(|byte| *byte == 0).filter(|_| is_text(source.language))
    {
        return fail!(
            DTL_ERROR_INVALID_ARGUMENT,
            "dtl_source_t.text has a NUL at {at} of its {size} size_bytes, where some compilers \
             would end it; give the bytes before it, or 0"
        );
    }
    // SAFETY: a NUL-terminated text or null.
    let name = unsafe { args::text_or_null(source.name, "dtl_source_t.name") }?.unwrap_or("source");
    if name.chars().any(char::is_control) {
        return fail!(
            DTL_ERROR_INVALID_ARGUMENT,
            "dtl_source_t.name has control characters; use a file's name"
        );
    }
    // SAFETY: `option_count` texts.
    let options = unsafe { take_options(source) }?;
    let mut taken =
        Source::new(source.language, bytes, options, CString::new(name).unwrap_or_default());
    // SAFETY: `file_count` files.
    taken.files = unsafe { take_files(source) }?;
    Ok(taken)
}

/// Returns the size of a text in bytes: `size`, or its length if `size` is 0.
///
/// # Safety
/// If `size` is 0, `text` is null or NUL-terminated.
unsafe fn size_of_text(text: *const c_char, size: u64) -> u64 {
    if size > 0 || text.is_null() {
        return size;
    }
    // SAFETY: not null, so the text is NUL-terminated by the contract.
    unsafe { CStr::from_ptr(text) }.count_bytes() as u64
}

/// Reads a list of the source's options or files.
///
/// # Safety
/// `list` is null or has `count` entries that do not change during `'a`.
unsafe fn entries<'a, T>(list: *const T, count: u32, noun: &str) -> Result<&'a [T]> {
    if list.is_null() && count > 0 {
        return fail!(DTL_ERROR_NULL_POINTER, "dtl_source_t.{noun} is NULL for {count} {noun}");
    }
    if count > MOST_ENTRIES {
        return fail!(DTL_ERROR_LIMIT, "{count} {noun}; at most {MOST_ENTRIES} are taken");
    }
    // SAFETY: `list` has `count` entries by the contract.
    unsafe { args::array(list, count as usize, noun) }
}

/// Returns true if source in a language is text. The format of other languages is unknown.
fn is_text(language: dtl_enum_word_t) -> bool {
    [0, DTL_LANGUAGE_C, DTL_LANGUAGE_CUDA, DTL_LANGUAGE_OPENCL].contains(&language)
}

/// Copies the files.
///
/// # Safety
/// `files` has `file_count` files whose pointers are null or lead to what they say, or is null.
unsafe fn take_files(source: &dtl_source_t) -> Result<Vec<SourceFile>> {
    // SAFETY: `file_count` files by the contract.
    let files = unsafe { entries(source.files, source.file_count, "files") }?;
    let mut taken: Vec<SourceFile> = Vec::new();
    let mut room = MOST_BYTES;
    for (index, file) in files.iter().enumerate() {
        // SAFETY: what the file points to is there.
        let file = unsafe { take_file(file, index, &mut room) }?;
        if let Some(known) = taken.iter().find(|known| clash(&known.name, &file.name)) {
            let (known, new) = (&known.name, &file.name);
            let what = match known == new {
                true => format!("there are two files {new:?}"),
                false => format!("of {known:?} and {new:?} one is a file and the other's folder"),
            };
            return fail!(
                DTL_ERROR_ALREADY_EXISTS,
                "dtl_source_t.files[{index}]: {what}; give each another name"
            );
        }
        taken.push(file);
    }
    Ok(taken)
}

/// Returns true if two names cannot coexist in one folder: they are equal, or one is a folder of
/// the other.
fn clash(one: &str, other: &str) -> bool {
    let is_in = |file: &str, folder: &str| {
        file.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'))
    };
    one == other || is_in(one, other) || is_in(other, one)
}

/// Copies a file, if there is room for its bytes.
///
/// # Safety
/// Its pointers are null or valid as its fields describe.
unsafe fn take_file(file: &dtl_source_file_t, index: usize, room: &mut u64) -> Result<SourceFile> {
    let place = format!("dtl_source_t.files[{index}]");
    // SAFETY: a NUL-terminated text or null.
    let name = unsafe { args::text(file.name, &format!("{place}.name")) }?;
    let parts = || name.split('/');
    let bad = name.contains(|letter: char| letter.is_control() || "\"\\<>".contains(letter));
    let bad = bad || name.len() > LONGEST_NAME || parts().any(|part| part.len() > LONGEST_PART);
    if bad
        || parts().any(|part| part.is_empty() || part == "." || part == "..")
        || name == "dtl_kernel.h"
    {
        return fail!(
            DTL_ERROR_INVALID_ARGUMENT,
            "{place}.name is \"{name}\": use a name such as \"x.h\" or \"folder/x.h\", of at most \
             {LONGEST_NAME} bytes and {LONGEST_PART} between two '/', not dtl_kernel.h"
        );
    }
    args::check_reserved(file.reserved, &format!("{place}.reserved"))?;
    // SAFETY: without a size the text is NUL-terminated, by the contract.
    let size = unsafe { size_of_text(file.text.cast(), file.size_bytes) };
    if size > 0 && file.text.is_null() {
        return fail!(DTL_ERROR_NULL_POINTER, "{place}.text is NULL for {size} bytes");
    }
    let Some(rest) = room.checked_sub(size) else {
        return fail!(
            DTL_ERROR_LIMIT,
            "{place}: all files together have more than {MOST_BYTES} bytes"
        );
    };
    *room = rest;
    // SAFETY: `size` bytes by the contract.
    let bytes = unsafe { args::array(file.text.cast::<u8>(), size as usize, "text") }?;
    let Ok(text) = CString::new(bytes) else {
        return fail!(
            DTL_ERROR_INVALID_ARGUMENT,
            "{place}.text has a NUL in its size_bytes bytes: files are text"
        );
    };
    Ok(SourceFile { name: name.to_owned(), text })
}

/// Copies the options.
///
/// # Safety
/// `options` has `option_count` texts, or is null.
unsafe fn take_options(source: &dtl_source_t) -> Result<Vec<CString>> {
    // SAFETY: `option_count` pointers by the contract.
    let options = unsafe { entries(source.options, source.option_count, "options") }?;
    let read = |(index, option): (usize, &*const c_char)| {
        // SAFETY: a NUL-terminated text by the contract.
        let text = unsafe { args::text(*option, &format!("dtl_source_t.options[{index}]")) }?;
        Ok(CString::new(text).unwrap_or_default())
    };
    options.iter().enumerate().map(read).collect()
}

/// Returns the output of the compiler, including warnings.
///
/// @param module   DTL_MODULE_NULL = the log of the last dtl_module_compile that failed in the
///                 calling thread; empty if none did.
/// @param buf      Buffer for the text and its NUL. NULL with cap 0 to query only the length.
/// @param cap      Size of `buf` in bytes.
/// @param out_len  Length of the text in bytes without the NUL; may be NULL.
/// @return DTL_ERROR_BUFFER_TOO_SMALL: `cap` is too small. *out_len was written.
/// Equivalent: nvrtcGetProgramLog, CL_PROGRAM_BUILD_LOG.
/// dtl:buf out len(cap) opt(cap==0)
/// dtl:out_len opt
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_module_log(
    module: dtl_module_t,
    buf: *mut c_char,
    cap: u64,
    out_len: *mut u64,
) -> dtl_status_t {
    Entry("dtl_module_log").call(|inside| {
        if module.id != 0 {
            let log = &handles::find::<Module>(inside, module.id)?.log;
            // SAFETY: the caller's contract: `cap` bytes of room, a place for the length.
            return unsafe { args::put_text(log, buf, cap, out_len) };
        }
        let log = LAST_LOG.try_with(|last| last.borrow().clone()).unwrap_or_default();
        // SAFETY: as above.
        unsafe { args::put_text(&log, buf, cap, out_len) }
    })
}

/// Returns the text of dtl_kernel.h, NUL-terminated.
///
/// For backends that have their own compiler: they pass the macros of their dialect, followed by
/// this text, as the file that `#include "dtl_kernel.h"` in a source finds
/// (docs/how-to/kernels-for-a-vendor-compiler.md). A plugin calls dtl_host_api_t.kernel_header. The
/// text belongs to the library that is loaded, not to the header that the caller was compiled with.
/// It is valid until the process ends. Works in every state.
/// dtl:return lives(forever)
#[unsafe(no_mangle)]
pub extern "C" fn dtl_kernel_header() -> *const c_char {
    KERNEL_HEADER.as_ptr()
}

/// Destroys a module. Kernels obtained from it remain valid: they keep the resources that they
/// need.
///
/// Host code that was loaded stays loaded until the process ends. Destroying DTL_MODULE_NULL
/// succeeds.
///
/// Equivalent: cuModuleUnload.
#[unsafe(no_mangle)]
pub extern "C" fn dtl_module_destroy(module: dtl_module_t) -> dtl_status_t {
    Entry("dtl_module_destroy")
        .call(|inside| handles::remove::<Module>(inside, module.id).map(drop))
}

/// Returns a kernel of a module. dtl_kernel_launch launches it like one created from a function.
///
/// The signature has a letter for the type of each argument. "pfI" is a pointer, a float and an
/// unsigned int.
///
///     p pointer   b B 8 bits   h H 16 bits   i I 32 bits   l L 64 bits   (upper case: unsigned)
///     e f d floats of 16, 32 and 64 bits     [n] a struct of n bytes
///
/// @param name       Name of the kernel in the source.
/// @param signature  Types of the arguments, against which launches are checked. NULL = launches
///                   are checked against the sizes that the module has ("host" and "cuda" have all
///                   of them, OpenCL those of its own types).
/// @param out        The kernel. The caller owns it; destroy it with dtl_kernel_destroy.
/// @return DTL_ERROR_NOT_FOUND: the module has no such kernel.
///         DTL_ERROR_INVALID_ARGUMENT: the signature is malformed or does not match the source (the
///         text names the argument), or it is required because the module has no information about
///         the arguments. Also if the source declares more shared memory (OpenCL `__local`,
///         DTL_SHARED) than the device has for a block.
/// Threads: any. Does not block. Equivalent: cuModuleGetFunction, clCreateKernel.
/// dtl:signature opt
/// dtl:out owned(dtl_kernel_destroy)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_kernel_get(
    module: dtl_module_t,
    name: *const c_char,
    signature: *const c_char,
    out: *mut dtl_kernel_t,
) -> dtl_status_t {
    Entry("dtl_kernel_get").call(|inside| {
        let out = Out::new(out, "out")?;
        let module: Arc<Module> = handles::pin(inside, module.id)?;
        // SAFETY: the caller's contract: a NUL-terminated text or null.
        let name = unsafe { args::text(name, "name") }?;
        // SAFETY: as above.
        let signature = unsafe { args::text_or_null(signature, "signature") }?;
        let kernel = module.kernel(KernelQuery { name, signature })?;
        out.put(handles::insert(kernel).map(|id| dtl_kernel_t { id }))
    })
}
