//! Environments: prerequisites of backends and kernel sources, started once and shared.
//! dtl: header(dtl_select.h)

use crate::abi::backend::environment::{dtl_environment_desc_t, dtl_environment_info_t};
use crate::abi::status::dtl_status_t;
use crate::backend::vtable_backend;
use crate::error::{Error, Result, fail};
use crate::ffi::args::{self, Out};
use crate::ffi::guard::Entry;
use crate::runtime::environment::{self, Description, Lists, Requirement};
use crate::sys::memory::buf::Addr;
use std::ffi::{c_char, c_void};

const MOST_STATE: u64 = 1 << 30;
const MOST_ALIGN: u64 = 4096;

/// Adds an environment: what has to be there before backends, or kernels compiled from source, can
/// do their work (a library that wants to be initialised once, say). Nothing of it is called yet,
/// and what it depends on may be registered later.
///
/// @param desc  start from DTL_ENVIRONMENT_DESC_INIT. Everything but what `user` points to is
///              copied.
/// @return DTL_SUCCESS also if the very same is registered already. DTL_ERROR_ALREADY_EXISTS:
///         another one has the name (the text names the difference). DTL_ERROR_INVALID_ARGUMENT: a
///         name, a version, a path, alignment; the text has it.
///         DTL_ERROR_LIMIT: 4096 there are, or more than 256 entries in a list, or a state of more
///         than 2^30 bytes.
/// Registrations end with the last dtl_finalize, as those of backends do.
/// Threads: any. Equivalent: DaCe's environments.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_environment_register(
    desc: *const dtl_environment_desc_t,
) -> dtl_status_t {
    Entry("dtl_environment_register").call(|_| {
        // SAFETY: the caller's contract.
        environment::register(unsafe { describe(desc) }?).map(drop)
    })
}

/// Reads the struct and checks it.
///
/// # Safety
/// `desc` is null or as long as its struct_size; its pointers are null or valid as it describes.
pub(crate) unsafe fn describe(desc: *const dtl_environment_desc_t) -> Result<Description> {
    // SAFETY: the caller's contract.
    let desc = unsafe { args::take(desc, "desc") }?;
    // SAFETY: a NUL-terminated text or null.
    let name = unsafe { args::text(desc.name, "dtl_environment_desc_t.name") }?;
    // SAFETY: as above.
    let version = unsafe { args::text_or_null(desc.version, "dtl_environment_desc_t.version") }?;
    version.map_or(Ok(()), |version| environment::check_version(name, version))?;
    args::check_reserved(desc.reserved, "dtl_environment_desc_t.reserved")?;
    check_state(name, desc.state_size, desc.state_align)?;
    // SAFETY: as many texts as are said, or null.
    let read = |list, count, name: &str| unsafe { args::texts(list, count, name) };
    let depends = read(desc.depends, desc.depends_count, "dtl_environment_desc_t.depends")?;
    let packages = read(desc.packages, desc.packages_count, "dtl_environment_desc_t.packages")?;
    let headers = read(desc.headers, desc.headers_count, "dtl_environment_desc_t.headers")?;
    let libraries = read(desc.libraries, desc.libraries_count, "dtl_environment_desc_t.libraries")?;
    check_paths(name, &headers, &libraries)?;
    Ok(Description {
        name: name.to_owned(),
        version: version.unwrap_or_default().to_owned(),
        depends: depends.iter().map(|text| Requirement::parse(text)).collect::<Result<_>>()?,
        lists: Lists { packages, headers, libraries },
        state_size: desc.state_size,
        state_align: if desc.state_align == 0 { 16 } else { desc.state_align },
        calls: vtable_backend::environment_calls(&desc),
    })
}

fn check_state(name: &str, size: u64, align: u64) -> Result<()> {
    if size > MOST_STATE {
        return fail!(
            DTL_ERROR_LIMIT,
            "environment {name}: state_size is {size}; at most {MOST_STATE} bytes are kept"
        );
    }
    if align != 0 && (!align.is_power_of_two() || align > MOST_ALIGN) {
        return fail!(
            DTL_ERROR_INVALID_ARGUMENT,
            "environment {name}: state_align is {align}: use a power of two up to {MOST_ALIGN}, or \
             0 for 16"
        );
    }
    Ok(())
}

fn check_paths(name: &str, headers: &[String], libraries: &[String]) -> Result<()> {
    if let Some(folder) = headers.iter().find(|folder| !folder.starts_with('/')) {
        return fail!(
            DTL_ERROR_INVALID_ARGUMENT,
            "environment {name}: header folder \"{folder}\": give a path from '/'"
        );
    }
    let bad = |library: &&String| {
        library.is_empty()
            || library.starts_with('-')
            || library.contains(char::is_control)
            || (library.contains('/') && !library.starts_with('/'))
    };
    match libraries.iter().find(bad) {
        Some(library) => fail!(
            DTL_ERROR_INVALID_ARGUMENT,
            "environment {name}: library \"{library}\": give a path from '/', or a name as after -l"
        ),
        None => Ok(()),
    }
}

/// Takes an environment away. What depends on it cannot be required any more.
///
/// @return DTL_ERROR_NOT_FOUND: there is none of this name. DTL_ERROR_BUSY: somebody requires it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_environment_unregister(name: *const c_char) -> dtl_status_t {
    Entry("dtl_environment_unregister").call(|_| {
        // SAFETY: the caller's contract: a NUL-terminated text or null.
        environment::unregister(unsafe { args::text(name, "name") }?)
    })
}

/// Starts an environment, or counts one more that requires it. Rules:
///
/// 1. What it depends on comes first, in the order of the lists, each once however often it is
///    named; then its probe, then its init, with a zeroed state block.
/// 2. It is started once: whoever requires it next has it at once. Each success wants one
///    dtl_environment_release.
/// 3. Before anything is called all of it is looked at: an unknown name (plugins that were not
///    searched for yet are), a version that is too low, a circle.
/// 4. If a probe or an init fails, what this call has started ends again, what started last first;
///    others stay.
/// 5. Several threads at once: one calls init, the others wait and have its result, a failure too.
/// 6. An init may require others; a circle that comes about in that way is a failure, also over
///    several threads.
/// 7. A failure is not for ever: the next call tries again.
///
/// @param name  "name", or "name>=version".
/// @return DTL_ERROR_NOT_FOUND: it, or one that it depends on, is not registered;
///         DTL_ERROR_INVALID_ARGUMENT: no such name can be, or a circle of dependencies;
///         DTL_ERROR_UNAVAILABLE: a version is too low, or a probe reports that it cannot be used
///         here; DTL_ERROR_LIMIT: more than 64 dependencies below each other;
///         DTL_ERROR_INVALID_STATE: inside its own start or end (6); DTL_ERROR_OUT_OF_MEMORY: for
///         the state. Else the status of the probe or init that failed. The text names the members:
///         which one, and on whose behalf.
/// Threads: any. No lock is held while functions of environments are called.
/// dtl:call blocks
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_environment_require(name: *const c_char) -> dtl_status_t {
    // SAFETY: the caller's contract: a NUL-terminated text or null.
    let name = unsafe { args::text(name, "name") };
    Entry("dtl_environment_require")
        .wait(|_| Requirement::parse(name?), |need| environment::require(&need))
}

/// Takes one require back. With the last one, the environment and what it depended on (and nobody
/// else requires) end: in exactly the reverse order of how they started. dtl_finalize ends in the
/// same order what is still required.
///
/// @return DTL_ERROR_NOT_FOUND: there is none of this name. DTL_ERROR_INVALID_STATE: nobody has
///         required it by dtl_environment_require. Else the first failure of a finalize: it has
///         been released all the same.
/// Threads: any, not only the one that required it.
/// dtl:call blocks
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_environment_release(name: *const c_char) -> dtl_status_t {
    // SAFETY: the caller's contract: a NUL-terminated text or null.
    let name = unsafe { args::text(name, "name") };
    Entry("dtl_environment_release").wait(|_| name, environment::release)
}

/// Gives the state block of an environment that is started. It stays where it is until the
/// environment ends, so ask once.
///
/// @param out  the block that init was given; NULL if state_size is 0.
/// @return DTL_ERROR_NOT_FOUND: there is none of this name. DTL_ERROR_INVALID_STATE: it is not
///         started.
/// dtl:out borrowed
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_environment_state(
    name: *const c_char,
    out: *mut *mut c_void,
) -> dtl_status_t {
    Entry("dtl_environment_state").call(|_| {
        let out = Out::new(out, "out")?;
        // SAFETY: the caller's contract: a NUL-terminated text or null.
        let name = unsafe { args::text(name, "name") }?;
        out.put(environment::state(name).map(Addr::ptr))
    })
}

/// Whether an environment could be required: it and everything that it depends on is registered,
/// the versions are high enough, and the probes of what is not started yet say so. Starts nothing.
///
/// @param name     "name", or "name>=version".
/// @param out_yes  1 or 0.
/// @param why      why not, cut to fit, with its NUL; may be NULL. Empty if it could be.
/// @param cap      bytes of room in `why`.
/// @param out_len  bytes of the whole reason, without its NUL; may be NULL.
/// @return DTL_ERROR_NOT_FOUND: there is none of this name.
/// dtl:out_yes bool
/// dtl:why out len(cap) opt
/// dtl:out_len opt
/// dtl:call blocks
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_environment_is_available(
    name: *const c_char,
    out_yes: *mut i32,
    why: *mut c_char,
    cap: u64,
    out_len: *mut u64,
) -> dtl_status_t {
    // SAFETY: the caller's contract: a NUL-terminated text or null.
    let name = unsafe { args::text(name, "name") };
    Entry("dtl_environment_is_available").wait(
        |_| Ok((Requirement::parse(name?)?, Out::new(out_yes, "out_yes")?)),
        |(need, out)| {
            let answer = environment::availability(&need);
            environment::info(&need.name)?;
            let reason = answer.as_ref().map_or_else(Error::text, |()| "");
            // SAFETY: the caller's contract: null, or `cap` bytes of room.
            unsafe { args::put_reason(reason, why, cap, out_len) }?;
            out.set(i32::from(answer.is_ok()));
            Ok(())
        },
    )
}

/// Number of environments that are registered. Searches for plugins if that was not done yet.
/// dtl:call blocks
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_environment_count(out_count: *mut u64) -> dtl_status_t {
    Entry("dtl_environment_count")
        .wait(|_| Out::new(out_count, "out_count"), |out| out.put(Ok(environment::count() as u64)))
}

/// How the environment of an index is, 0 ... count-1, in the order of registration.
///
/// @param out_info  start from DTL_ENVIRONMENT_INFO_INIT.
/// @return DTL_ERROR_OUT_OF_BOUNDS: no such index.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_environment_at(
    index: u64,
    out_info: *mut dtl_environment_info_t,
) -> dtl_status_t {
    // SAFETY: the caller's contract.
    Entry("dtl_environment_at")
        .call(|_| unsafe { args::fill(out_info, "out_info", || environment::at(index)) })
}

/// How the environment of a name is.
///
/// @param out_info  start from DTL_ENVIRONMENT_INFO_INIT.
/// @return DTL_ERROR_NOT_FOUND: there is none of this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_environment_info(
    name: *const c_char,
    out_info: *mut dtl_environment_info_t,
) -> dtl_status_t {
    Entry("dtl_environment_info").call(|_| {
        // SAFETY: the caller's contract: a NUL-terminated text or null.
        let name = unsafe { args::text(name, "name") }?;
        // SAFETY: the caller's contract.
        unsafe { args::fill(out_info, "out_info", || environment::info(name)) }
    })
}
