//! The calls of the C interface that dtl-info makes, with texts and failures as values.

use dtl::abi::device::{
    DTL_COMPONENT_COMM, DTL_COMPONENT_DEVICE, DTL_COMPONENT_EXEC, DTL_COMPONENT_MEMORY,
    DTL_COMPONENT_TRANSFER, dtl_backend_info_t, dtl_device_info_t, dtl_mem_kind_info_t,
};
use dtl::abi::enums::DTL_ENUM_MEMORY;
use dtl::abi::environment::dtl_environment_info_t;
use dtl::abi::handle::dtl_backend_t;
use dtl::abi::plugin::dtl_plugin_info_t;
use dtl::abi::status::{DTL_SUCCESS, dtl_status_t};
use dtl::abi::topology::dtl_topology_t;
use dtl::abi::word::dtl_enum_word_t;
use dtl::ffi;
use dtl::tooling::Error;
use std::ffi::{CStr, CString, c_char};
use std::fmt;
use std::ptr;

/// Room for a reason that the library cuts to fit.
const REASON_BYTES: usize = 64 << 10;

/// A call that failed.
pub(crate) struct Failure {
    pub(crate) status: dtl_status_t,
    pub(crate) text: String,
}

pub(crate) type Result<T> = std::result::Result<T, Failure>;

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", status_name(self.status), self.text)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Failure { status: error.status(), text: error.text().to_owned() }
    }
}

fn done(status: dtl_status_t) -> Result<()> {
    if status == DTL_SUCCESS {
        return Ok(());
    }
    Err(Failure { status, text: text_at(ffi::runtime::dtl_last_error()) })
}

/// Name of a status.
pub(crate) fn status_name(status: dtl_status_t) -> String {
    text_at(ffi::runtime::dtl_status_name(status))
}

/// A text of the library's; NULL is empty.
pub(crate) fn text_at(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: not NULL, so a NUL-terminated text; those that are read here outlive the call.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

/// A NUL-terminated field as text.
pub(crate) fn text_of(field: &[c_char]) -> String {
    let bytes: Vec<u8> = field.iter().take_while(|&&c| c != 0).map(|&c| c as u8).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// A struct for the library to fill in: zeros, which every integer and pointer in it may be, and its
/// size.
macro_rules! empty {
    ($type:ty) => {{
        // SAFETY: a struct of integers, pointers and arrays of them: zeros are one of its values.
        let mut info: $type = unsafe { std::mem::zeroed() };
        info.struct_size = size_of::<$type>() as u32;
        info
    }};
}

/// Answer of a call that returns yes or no with a reason; `None` = yes.
fn reason(ask: impl FnOnce(*mut i32, *mut c_char, u64) -> dtl_status_t) -> Result<Option<String>> {
    let (mut yes, mut why) = (0, vec![0; REASON_BYTES]);
    done(ask(&raw mut yes, why.as_mut_ptr(), REASON_BYTES as u64))?;
    Ok((yes == 0).then(|| text_of(&why)))
}

/// A registered backend. The program unregisters none, so it stays valid.
#[derive(Clone, Copy)]
pub(crate) struct Backend(dtl_backend_t);

impl Backend {
    /// All backends, in the order of their registration. The first call opens the library.
    pub(crate) fn all() -> Result<Vec<Backend>> {
        let mut count = 0;
        // SAFETY: a local that is written.
        done(unsafe { ffi::backend::dtl_backend_count(&raw mut count) })?;
        (0..count).map(Self::at).collect()
    }

    fn at(index: u64) -> Result<Backend> {
        let mut handle = dtl_backend_t { id: 0 };
        // SAFETY: a local that is written.
        done(unsafe { ffi::backend::dtl_backend_at(index, &raw mut handle) })?;
        Ok(Backend(handle))
    }

    /// The backend of a name, or the default one.
    pub(crate) fn named(name: Option<&str>) -> Result<Backend> {
        let name = name.map(|name| CString::new(name).unwrap_or_default());
        let name = name.as_ref().map_or(ptr::null(), |name| name.as_ptr());
        let mut handle = dtl_backend_t { id: 0 };
        // SAFETY: NULL or a NUL-terminated name, and a local that is written.
        done(unsafe { ffi::backend::dtl_backend_get(name, &raw mut handle) })?;
        Ok(Backend(handle))
    }

    pub(crate) fn info(self) -> Result<dtl_backend_info_t> {
        let mut info = empty!(dtl_backend_info_t);
        // SAFETY: a local of the size that it says.
        done(unsafe { ffi::backend::dtl_backend_info(self.0, &raw mut info) })?;
        Ok(info)
    }

    pub(crate) fn name(self) -> String {
        text_at(ffi::backend::dtl_backend_name(self.0))
    }

    /// Why it cannot run here; `None` = it can. An invalid answer is a reason.
    pub(crate) fn unavailable(self) -> Option<String> {
        let answer = reason(|yes, why, cap| {
            // SAFETY: a local, and a buffer of `cap` bytes.
            unsafe { ffi::backend::dtl_backend_is_available(self.0, yes, why, cap) }
        });
        answer.unwrap_or_else(|failure| Some(failure.text))
    }

    pub(crate) fn device_count(self) -> Result<i32> {
        let mut count = 0;
        // SAFETY: a local that is written.
        done(unsafe { ffi::device::dtl_backend_device_count(self.0, &raw mut count) })?;
        Ok(count)
    }

    pub(crate) fn device_info(self, index: i32) -> Result<dtl_device_info_t> {
        let mut info = empty!(dtl_device_info_t);
        info.numa_node = -1;
        // SAFETY: a local of the size that it says.
        done(unsafe { ffi::device::dtl_device_info(self.0, index, &raw mut info) })?;
        Ok(info)
    }

    /// Free and total bytes of a device.
    pub(crate) fn device_memory(self, index: i32) -> Result<(u64, u64)> {
        let (mut free, mut total) = (0, 0);
        // SAFETY: two locals that are written.
        done(unsafe {
            ffi::device::dtl_device_memory_info(self.0, index, &raw mut free, &raw mut total)
        })?;
        Ok((free, total))
    }

    pub(crate) fn memory_kind(self, kind: dtl_enum_word_t) -> Result<dtl_mem_kind_info_t> {
        let mut info = empty!(dtl_mem_kind_info_t);
        // SAFETY: a local of the size that it says.
        done(unsafe { ffi::memory::dtl_mem_kind_info(self.0, kind, &raw mut info) })?;
        Ok(info)
    }
}

/// Names of components: DTL_COMPONENT_... ored.
pub(crate) fn component_names(components: u32) -> Vec<&'static str> {
    const NAMES: [(u32, &str); 5] = [
        (DTL_COMPONENT_DEVICE, "device"),
        (DTL_COMPONENT_MEMORY, "memory"),
        (DTL_COMPONENT_TRANSFER, "transfer"),
        (DTL_COMPONENT_EXEC, "exec"),
        (DTL_COMPONENT_COMM, "comm"),
    ];
    NAMES.iter().filter(|(bit, _)| components & bit != 0).map(|(_, name)| *name).collect()
}

/// The members of the enumeration of memory kinds.
pub(crate) fn memory_words() -> Vec<dtl_enum_word_t> {
    let mut count = 0;
    // SAFETY: a local that is written.
    let status = unsafe { ffi::enums::dtl_enum_count(DTL_ENUM_MEMORY, &raw mut count) };
    let at = |index| {
        let mut word = 0;
        // SAFETY: a local that is written.
        let status = unsafe { ffi::enums::dtl_enum_at(DTL_ENUM_MEMORY, index, &raw mut word) };
        done(status).ok().map(|()| word)
    };
    (0..done(status).map_or(0, |()| count)).filter_map(at).collect()
}

/// The name that a word is registered under.
pub(crate) fn name_of_word(word: dtl_enum_word_t) -> Option<String> {
    let mut name = ptr::null();
    // SAFETY: a local that is written.
    done(unsafe { ffi::enums::dtl_ev_name(word, &raw mut name) }).ok().map(|()| text_at(name))
}

/// What the library has tried to load.
pub(crate) fn plugins() -> Vec<dtl_plugin_info_t> {
    let mut count = 0;
    // SAFETY: a local that is written.
    let status = unsafe { ffi::plugin::dtl_plugin_count(&raw mut count) };
    let at = |index| {
        let mut info = empty!(dtl_plugin_info_t);
        // SAFETY: a local of the size that it says.
        done(unsafe { ffi::plugin::dtl_plugin_at(index, &raw mut info) }).ok().map(|()| info)
    };
    (0..done(status).map_or(0, |()| count)).filter_map(at).collect()
}

/// The registered environments.
pub(crate) fn environments() -> Vec<dtl_environment_info_t> {
    let mut count = 0;
    // SAFETY: a local that is written.
    let status = unsafe { ffi::environment::dtl_environment_count(&raw mut count) };
    let at = |index| {
        let mut info = empty!(dtl_environment_info_t);
        // SAFETY: a local of the size that it says.
        let status = unsafe { ffi::environment::dtl_environment_at(index, &raw mut info) };
        done(status).ok().map(|()| info)
    };
    (0..done(status).map_or(0, |()| count)).filter_map(at).collect()
}

/// Why an environment cannot be used here; `None` = it can.
pub(crate) fn environment_unavailable(name: &str) -> Option<String> {
    let name = CString::new(name).unwrap_or_default();
    let answer = reason(|yes, why, cap| {
        // SAFETY: a NUL-terminated name, a local, and a buffer of `cap` bytes.
        unsafe { ffi::environment::dtl_environment_is_available(name.as_ptr(), yes, why, cap) }
    });
    answer.unwrap_or_else(|failure| Some(failure.text))
}

/// This node; `None` where the library does not open.
pub(crate) fn topology() -> Result<dtl_topology_t> {
    let mut topology = empty!(dtl_topology_t);
    // SAFETY: a local of the size that it says.
    done(unsafe { ffi::topology::dtl_topology(&raw mut topology) })?;
    Ok(topology)
}

/// The CPUs that this program may run on.
pub(crate) fn affinity() -> Result<Vec<i32>> {
    let mut count = 0;
    // SAFETY: no room and a local that is written.
    done(unsafe { ffi::topology::dtl_affinity(ptr::null_mut(), 0, &raw mut count) })?;
    let mut cpus = vec![0; count as usize];
    // SAFETY: room for `count` numbers, and a local that is written.
    done(unsafe { ffi::topology::dtl_affinity(cpus.as_mut_ptr(), count, &raw mut count) })?;
    Ok(cpus)
}

/// What was chosen under a topic, and its reason.
pub(crate) fn explained(topic: &str) -> Option<String> {
    let mut length = 0;
    // SAFETY: no room and a local that is written.
    let status = unsafe { ffi::runtime::dtl_explain(ptr::null_mut(), 0, &raw mut length) };
    done(status).ok()?;
    let mut room = vec![0; length as usize + 1];
    // SAFETY: room for the text and its NUL.
    let status =
        unsafe { ffi::runtime::dtl_explain(room.as_mut_ptr(), room.len() as u64, ptr::null_mut()) };
    done(status).ok()?;
    let start = format!("{topic}: ");
    text_of(&room).lines().find_map(|line| line.strip_prefix(&start)).map(str::to_owned)
}

/// Ends the library.
pub(crate) fn finalize() -> Result<()> {
    done(ffi::runtime::dtl_finalize())
}
