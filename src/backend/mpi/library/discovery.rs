//! Discovery of the MPI library: the library that is already in the process, otherwise the
//! configured library, otherwise the library that fits the launcher (`launcher`). A second MPI
//! would abort the process, so a second one is never loaded.
//!
//! `mpi_library` uses the library that is found here.

use super::abi::{self, Abi};
use super::functions::Functions;
use super::launcher::{self, Candidate};
use crate::error::{Error, Result, fail, failure};
use crate::from_c::text_in;
use crate::sys::memory::buf::Addr;
use crate::sys::os::dl::{self, SharedObject};
use std::ffi::{CStr, OsStr, c_int};
use std::path::{Path, PathBuf};

/// MPI library in this process.
pub struct FoundLibrary {
    place: SymbolScope,
    /// File that contains the library's functions.
    pub file: PathBuf,
    /// Reason why this library was chosen, for messages.
    pub why: String,
}

enum SymbolScope {
    /// The default symbol lookup of the process finds the library. Data symbols must use the same
    /// lookup: a program that is linked with the library can have its own copy of a data symbol
    /// (copy relocations).
    Process,
    /// Symbols are found only through the library's dlopen handle, because the library was loaded
    /// with local scope.
    Module(SharedObject),
}

/// Function whose presence identifies a library as an MPI library.
const MARK: &CStr = c"MPI_Comm_rank";
/// Name of the function `MARK` in MPI's profiling interface, which tools do not intercept.
const OWN_MARK: &CStr = c"PMPI_Comm_rank";

impl FoundLibrary {
    /// Looks up a symbol of the library.
    pub fn symbol(&self, name: &CStr) -> Option<Addr> {
        match &self.place {
            SymbolScope::Process => dl::process_symbol(name),
            SymbolScope::Module(module) => module.symbol(name),
        }
    }

    /// Returns the MPI library in the scope `place`; `None` if the scope does not contain an MPI
    /// library. `why` is the reason for choosing the library.
    fn at(place: SymbolScope, why: &str) -> Option<Self> {
        let mut found = FoundLibrary { place, file: PathBuf::new(), why: why.to_owned() };
        let mark = found.symbol(MARK)?;
        found.file = dl::file_of(found.symbol(OWN_MARK).unwrap_or(mark))?;
        Some(found)
    }

    /// Makes the library's symbols global, for components that the library loads at initialization.
    /// Afterwards the default symbol lookup of the process finds the library too.
    pub fn publish(&self) {
        if matches!(self.place, SymbolScope::Module(_)) {
            // The library is loaded already, so opening it again cannot fail.
            let _ = dl::SharedObject::make_global(&self.file);
        }
    }
}

/// Returns the MPI library that is already loaded in this process, whether the program or libdtl
/// loaded it.
pub fn present() -> Option<FoundLibrary> {
    let why = "it is in this process already: the program is linked with it or has loaded it";
    FoundLibrary::at(SymbolScope::Process, why).or_else(|| {
        let mut files = dl::loaded_files();
        files.retain(|file| is_called_as_an_mpi(file));
        files.iter().find_map(|file| {
            FoundLibrary::at(SymbolScope::Module(SharedObject::loaded(file)?), why)
        })
    })
}

/// Returns true if the file has the name of an MPI library, such as libmpi.so.12, libmpich.so.12,
/// libmpi_abi.so.1 or libmpi_cray.so.
fn is_called_as_an_mpi(file: &Path) -> bool {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    name.starts_with("libmpi") && name.contains(".so")
}

/// Returns the MPI library that is present in this process; if there is none, finds and loads one.
/// `named` is the value of DTL_MPI_LIBRARY.
pub fn locate(named: Option<&str>) -> Result<FoundLibrary> {
    match (present(), named) {
        (Some(found), None) => Ok(found),
        (Some(found), Some(name)) => check_same(name, &found.file).map(|()| found),
        (None, Some(name)) => load_named(name, "DTL_MPI_LIBRARY names it").map_err(|why| {
            failure!(
                DTL_ERROR_UNAVAILABLE,
                "no MPI: DTL_MPI_LIBRARY={name}: {why}; set it to the path or soname of an MPI \
                 library of this machine (libmpi.so.40, libmpich.so.12 …), or unset it"
            )
        }),
        (None, None) => search(),
    }
}

/// Returns an error if `name` denotes a file other than `file`, the file of the MPI library in this
/// process.
pub fn check_same(name: &str, file: &Path) -> Result<()> {
    let named = SharedObject::loaded(Path::new(name))
        .and_then(|module| FoundLibrary::at(SymbolScope::Module(module), ""));
    if named.is_some_and(|named| named.file == file) {
        return Ok(());
    }
    fail!(
        DTL_ERROR_UNAVAILABLE,
        "DTL_MPI_LIBRARY={name} would be a second MPI in this process, which has {}: unset it, or \
         set it to that file",
        file.display()
    )
}

/// Loads a library by path or soname. Fails if other users could have written the file at the path.
fn load_named(name: &str, why: &str) -> Result<FoundLibrary, String> {
    load(&dl::library_path(name)?, why)
}

/// Loads a library with local symbol scope. The symbols become global (`publish`) only after the
/// library has proved usable.
fn load(path: &Path, why: &str) -> Result<FoundLibrary, String> {
    // SAFETY: constructors may run: an MPI by its name, or the user vouches for the library.
    let module = unsafe { SharedObject::open(path) }?;
    FoundLibrary::at(SymbolScope::Module(module), why)
        .ok_or_else(|| "no MPI library (it has no function MPI_Comm_rank)".into())
}

fn search() -> Result<FoundLibrary> {
    let mut tried = Vec::new();
    let around = launcher::LaunchContext::of_this_process();
    for Candidate { name, why } in launcher::candidates(&around) {
        match load_named(&name.to_string_lossy(), &why) {
            Ok(found) => return Ok(found),
            // The loader's error message names the file; the text of a rejected path may not.
            Err(error) if name.is_absolute() => tried.push(format!("{}: {error}", name.display())),
            // A program without a dynamic loader gets one error for all names.
            Err(error) if tried.last() == Some(&error) => {}
            Err(error) => tried.push(error),
        }
    }
    fail!(
        DTL_ERROR_UNAVAILABLE,
        "no MPI: {}; install one, put its folder into LD_LIBRARY_PATH, or set DTL_MPI_LIBRARY to \
         its libmpi",
        tried.join("; ")
    )
}

/// Returns the version string of the library (MPI_Get_library_version).
pub fn version_text(call: &Functions) -> Result<String> {
    // MPI_MAX_LIBRARY_VERSION_STRING is at most 8192.
    let mut text = [0_u8; 8192 + 1];
    let mut length: c_int = 0;
    // SAFETY: `text` has room for the longest text; MPI allows the call at any time.
    let code = unsafe { (call.MPI_Get_library_version)(text.as_mut_ptr().cast(), &raw mut length) };
    if code != 0 {
        return fail!(DTL_ERROR_UNAVAILABLE, "MPI_Get_library_version fails ({code})");
    }
    Ok(text_in(&text))
}

/// Returns the first line of `text`, with runs of blanks replaced by single blanks.
pub(crate) fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or("").split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Shortens a version string to a name: "Open MPI 4.1.4", "MPICH 4.0.2", "Intel MPI 2021.19.0".
pub(crate) fn short_name(version: &str) -> String {
    let line = first_line(version).replace("(R)", "").replace(" Library ", " ");
    let name = line.split([',', '*']).next().unwrap_or_default().trim_end_matches(" for Linux");
    name.replace(" Version:", "").replace(" Version :", "").replace("Open MPI v", "Open MPI ")
}

/// Returns the ABI of an MPI library.
pub fn interface(found: &FoundLibrary, call: &Functions, version: &str) -> Result<Abi> {
    let name = found.file.file_name().unwrap_or_default();
    if is_standard_file(name) || speaks_standard(call) {
        return Ok(abi::STANDARD);
    }
    if found.symbol(c"ompi_mpi_comm_world").is_some() {
        return Ok(abi::OPENMPI);
    }
    if is_mpich(version) {
        return Ok(abi::MPICH);
    }
    Err(unknown(version))
}

/// Returns true if `name` is the file name of a library with the standard ABI. The library with the
/// native ABI of the same MPI has another name.
fn is_standard_file(name: &OsStr) -> bool {
    name.to_string_lossy().starts_with("libmpi_abi")
}

/// Returns true if the handles of the library are those of the standard ABI. A library with other
/// handles may also have MPI_Abi_get_version, which then reports version -1.
fn speaks_standard(call: &Functions) -> bool {
    let Some(version) = call.MPI_Abi_get_version else { return false };
    let (mut major, mut minor): (c_int, c_int) = (-1, -1);
    // SAFETY: both numbers are writable locals; MPI allows the call at any time.
    let code = unsafe { version(&raw mut major, &raw mut minor) };
    code == 0 && major >= 1
}

/// Returns true if the library has the same ABI as MPICH.
fn is_mpich(version: &str) -> bool {
    let version = version.to_lowercase();
    ["mpich", "intel(r) mpi", "mvapich", "cray", "parastation"]
        .iter()
        .any(|name| version.contains(name))
}

fn unknown(version: &str) -> Error {
    failure!(
        DTL_ERROR_UNAVAILABLE,
        "it calls itself \"{}\", whose binary interface is not known (Open MPI, the MPICH \
         family and libmpi_abi are); use dtl_mpi (find_package(dtl COMPONENTS MPI)) with it",
        first_line(version)
    )
}

#[cfg(test)]
#[path = "tests/discovery.rs"]
mod tests;
