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

/// Registers an environment: something that must be present before backends, or kernels compiled
/// from source, can work (for example a library that must be initialised once).
///
/// None of its functions is called yet, and its dependencies may be registered later. Registering
/// an identical environment again succeeds. Registrations end with the last dtl_finalize, as those
/// of backends do.
///
/// @param desc  Start from DTL_ENVIRONMENT_DESC_INIT. Everything is copied except the data behind
///              `user`.
/// @return DTL_ERROR_ALREADY_EXISTS: a different environment has the name. The text names the
///         difference.
///         DTL_ERROR_INVALID_ARGUMENT: a name, a version, a path or the alignment is not allowed.
///         The text names it.
///         DTL_ERROR_LIMIT: 4096 environments are registered, a list has more than 256 entries, or
///         the state is larger than 2^30 bytes. Threads: any. Equivalent: DaCe's environments.
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

/// Removes an environment. Environments that depend on it can no longer be required.
///
/// @return DTL_ERROR_NOT_FOUND: there is no such name. DTL_ERROR_BUSY: the environment is required.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_environment_unregister(name: *const c_char) -> dtl_status_t {
    Entry("dtl_environment_unregister").call(|_| {
        // SAFETY: the caller's contract: a NUL-terminated text or null.
        environment::unregister(unsafe { args::text(name, "name") }?)
    })
}

/// Starts an environment, or increments the use count of one that is started. Each success needs
/// one dtl_environment_release.
///
/// 1. Its dependencies start first, in the order of the lists, each of them once. Then its probe is
///    called, then its init, with a zeroed state block.
/// 2. It is started once. Later calls return at once.
/// 3. The whole dependency graph is checked before any function is called: for unknown names (after
///    a search for plugins if that was not done yet), insufficient versions and cycles.
/// 4. If a probe or an init fails, the environments that this call started end again in reverse
///    order. Others stay.
/// 5. If several threads call at once, one calls init. The others wait and get its result, even a
///    failure.
/// 6. An init may require other environments. A cycle that arises in this way is a failure, even
///    across threads.
/// 7. A failure is not permanent: the next call tries again.
///
/// No lock is held while functions of environments are called.
///
/// @param name  "name" or "name>=version".
/// @return DTL_ERROR_NOT_FOUND: the environment or a dependency is not registered.
///         DTL_ERROR_INVALID_ARGUMENT: `name` is not well-formed, or the dependencies form a cycle.
///         DTL_ERROR_UNAVAILABLE: a version is too low, or a probe reports that its environment
///         cannot be used here. DTL_ERROR_LIMIT: dependencies are nested more than 64 deep.
///         DTL_ERROR_INVALID_STATE: the call is made inside its own init or finalize (rule 6).
///         DTL_ERROR_OUT_OF_MEMORY: there is no memory for the state.
///         Otherwise the status of the probe or init that failed. The text names the environments:
///         the one that failed, and those that needed it. Threads: any.
/// dtl:call blocks
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_environment_require(name: *const c_char) -> dtl_status_t {
    // SAFETY: the caller's contract: a NUL-terminated text or null.
    let name = unsafe { args::text(name, "name") };
    Entry("dtl_environment_require")
        .wait(|_| Requirement::parse(name?), |need| environment::require(&need))
}

/// Undoes one dtl_environment_require.
///
/// The last release ends the environment, and those of its dependencies that nothing else requires,
/// in exactly the reverse order of their start. dtl_finalize ends whatever is still required, in
/// the same order.
///
/// @return DTL_ERROR_NOT_FOUND: there is no such name.
///         DTL_ERROR_INVALID_STATE: no dtl_environment_require is left to undo.
///         Otherwise the first failure of a finalize function; the environment has been released
///         nevertheless. Threads: any, not only the one that required it.
/// dtl:call blocks
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_environment_release(name: *const c_char) -> dtl_status_t {
    // SAFETY: the caller's contract: a NUL-terminated text or null.
    let name = unsafe { args::text(name, "name") };
    Entry("dtl_environment_release").wait(|_| name, environment::release)
}

/// Returns the state block of a started environment. The address does not change until the
/// environment ends, so one call is enough.
///
/// @param out  The block that was passed to init; NULL if state_size is 0.
/// @return DTL_ERROR_NOT_FOUND: there is no such name.
///         DTL_ERROR_INVALID_STATE: the environment is not started.
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

/// Checks whether an environment could be required, and starts nothing.
///
/// It can be required if it and all of its dependencies are registered, the versions are high
/// enough, and the probes of those that are not started yet succeed.
///
/// @param name     "name" or "name>=version".
/// @param out_yes  1 or 0.
/// @param why      Receives the reason if the result is 0, cut to fit, with its NUL; otherwise an
///                 empty text. May be NULL.
/// @param cap      Size of `why` in bytes.
/// @param out_len  Length of the whole reason in bytes, without the NUL; may be NULL.
/// @return DTL_ERROR_NOT_FOUND: there is no such name.
///         DTL_ERROR_INVALID_ARGUMENT: `name` is not well-formed.
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

/// Returns the number of registered environments. Searches for plugins if that was not done yet.
/// dtl:call blocks
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_environment_count(out_count: *mut u64) -> dtl_status_t {
    Entry("dtl_environment_count")
        .wait(|_| Out::new(out_count, "out_count"), |out| out.put(Ok(environment::count() as u64)))
}

/// Describes the environment with an index, in the order of registration.
///
/// @param index     0 to the count - 1.
/// @param out_info  Start from DTL_ENVIRONMENT_INFO_INIT.
/// @return DTL_ERROR_OUT_OF_BOUNDS: there is no such index.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_environment_at(
    index: u64,
    out_info: *mut dtl_environment_info_t,
) -> dtl_status_t {
    // SAFETY: the caller's contract.
    Entry("dtl_environment_at")
        .call(|_| unsafe { args::fill(out_info, "out_info", || environment::at(index)) })
}

/// Describes the environment with a name.
///
/// @param out_info  Start from DTL_ENVIRONMENT_INFO_INIT.
/// @return DTL_ERROR_NOT_FOUND: there is no such name.
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
