//! Loading of the NCCL library by file name, with a check of its version.

use super::symbols::*;
use crate::backend::vendor_lib::{Names, VendorLib};
use crate::runtime::settings;
use crate::sys::memory::buf::Addr;
use crate::sys::os::dl;
use std::path::PathBuf;

static LIBRARY: VendorLib<Functions> = VendorLib::new(Names {
    name: "NCCL",
    part: "library",
    soname: "libnccl.so.2",
    variable: "DTL_NCCL_LIBRARY",
    wanted: "NVIDIA's NCCL (libnccl.so.2)",
    advice: "install it (Debian of NVIDIA's: libnccl2, PyPI: nvidia-nccl-cu12) where the loader \
             finds it, or name its libnccl.so.2 with DTL_NCCL_LIBRARY",
});

/// Loaded NCCL library: its functions and its version.
pub struct Nccl {
    /// Functions of NCCL.
    pub calls: &'static Functions,
    /// Version as ncclGetVersion encodes it.
    pub version: i32,
}

impl Nccl {
    /// Returns the version as a string, such as "2.26.2".
    pub fn number(&self) -> String {
        number(self.version)
    }

    /// Returns the path of the library's file.
    pub fn file(&self) -> PathBuf {
        let function: *const c_void = self.calls.ncclGetVersion as *const c_void;
        dl::file_of(Addr::new(function.cast_mut())).unwrap_or_default()
    }
}

fn number(version: i32) -> String {
    // Before 2.9 the major version was multiplied by 1000, not by 10000.
    let thousand = if version < 10_000 { 1000 } else { 10_000 };
    format!("{}.{}.{}", version / thousand, version % thousand / 100, version % 100)
}

/// Opens the NCCL library. On failure, returns the reason as a string.
pub fn find() -> std::result::Result<Nccl, String> {
    let named = settings::current().collectives_library;
    // SAFETY: the library is NCCL by its name, or the user vouches for the library.
    let calls = unsafe { LIBRARY.load(named.as_deref()) }?;
    let mut version = 0;
    // SAFETY: `version` has room for an int.
    let code = unsafe { (calls.ncclGetVersion)(&raw mut version) };
    if code != ncclSuccess {
        return Err(calls.error(code, "ncclGetVersion").text().to_owned());
    }
    let nccl = Nccl { calls, version };
    if !(OLDEST..TOO_NEW).contains(&version) {
        return Err(format!(
            "it is NCCL {} ({}), and a version from {} up to, without, {} is needed: install one, \
             or name it with DTL_NCCL_LIBRARY",
            number(version),
            nccl.file().display(),
            number(OLDEST),
            number(TOO_NEW)
        ));
    }
    Ok(nccl)
}

#[cfg(test)]
#[path = "tests/discovery.rs"]
mod tests;
