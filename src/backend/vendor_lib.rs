//! Vendor libraries that backends load on first use: function tables of the opened libraries, and
//! detection of a fork after the first call to a vendor library.

use super::symbol_table::SymbolTable;
use super::try_once::TryOnce;
use crate::error::{Result, failure};
use crate::sys::os::dl::{self, SharedObject};
use crate::sys::os::process;
use crate::sys::sync::lock::Mutex;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

/// Names of a vendor library for error messages, and advice on how to install it.
pub struct Names {
    /// Name of the library, such as "OpenCL".
    pub name: &'static str,
    /// Word for the file that is loaded, such as "loader" in "OpenCL loader".
    pub part: &'static str,
    /// Default soname of the library.
    pub soname: &'static str,
    /// Environment variable that holds the path or soname of a library to open instead of the
    /// default.
    pub variable: &'static str,
    /// Description of the library that the environment variable must name.
    pub wanted: &'static str,
    /// Advice on how to install the library.
    pub advice: &'static str,
}

/// A vendor library, such as the CUDA driver, and the function tables of all library files that
/// were opened for it. Opened libraries are never closed.
pub struct VendorLib<F: 'static> {
    names: Names,
    opened: Mutex<BTreeMap<String, &'static F>>,
    /// Process ID of the process that first called the library; 0 before the first call.
    used_by: AtomicI32,
}

impl<F: SymbolTable> VendorLib<F> {
    /// Creates the object for a vendor library, without opening a library file.
    pub const fn new(names: Names) -> Self {
        VendorLib { names, opened: Mutex::new(BTreeMap::new()), used_by: AtomicI32::new(0) }
    }

    /// Returns advice on how to install the library.
    pub const fn advice(&self) -> &'static str {
        self.names.advice
    }

    /// Returns the file to open: `named`, or the default soname if `named` is `None`.
    pub fn file<'a>(&self, named: Option<&'a str>) -> &'a str {
        named.unwrap_or(self.names.soname)
    }

    /// Checks that this process may call the library. If it may not, returns the reason: the
    /// process runs with elevated privileges (set-uid, set-gid), or it was forked from a process
    /// that has called the library.
    pub fn may_be_called(&self) -> Result<(), String> {
        if dl::is_privileged() {
            return Err(format!(
                "this program runs with raised privileges, and variables of its user decide what \
                 {} loads: it is not used",
                self.names.name
            ));
        }
        let used_by = self.used_by.load(Ordering::Relaxed);
        if used_by != 0 && used_by != process::own_pid() {
            return Err(format!(
                "this process is a fork of one that used {}, which does not survive that: use it \
                 after the fork only, or start the process with exec",
                self.names.name
            ));
        }
        Ok(())
    }

    /// Opens the library like [`Self::open_named`] and records that this process uses it. Fails if
    /// this process may not call the library.
    ///
    /// # Safety
    /// This function runs the library's constructors, and callers call the library's functions
    /// through the signatures in the table. So the file must be the vendor library that this object
    /// names. If the user has chosen the file, the user must guarantee this.
    pub unsafe fn load(&self, named: Option<&str>) -> Result<&'static F, String> {
        self.may_be_called()?;
        // SAFETY: the caller vouches for the library.
        let table = unsafe { self.open_named(named) }?;
        self.used_by.store(process::own_pid(), Ordering::Relaxed);
        Ok(table)
    }

    /// Opens the library `named`, or the default soname if `named` is `None`. Returns its function
    /// table, or a description of the failure and its remedy.
    ///
    /// # Safety
    /// This function runs the library's constructors, and callers call the library's functions
    /// through the signatures in the table. So the file must be the vendor library that this object
    /// names. If the user has chosen the file, the user must guarantee this.
    pub unsafe fn open_named(&self, named: Option<&str>) -> Result<&'static F, String> {
        let Names { name, variable, wanted, advice, .. } = self.names;
        // SAFETY: the caller vouches for the library.
        unsafe { self.open(self.file(named)) }.map_err(|why| match named {
            Some(file) => format!(
                "{variable}={file}: {why}; set it to the path or soname of {wanted}, or unset it"
            ),
            None => format!("no {name}: {why}; {advice}"),
        })
    }

    /// Opens a library by path or soname. A library that is already open under this name is not
    /// opened again. Returns the library's function table, or the reason for the failure.
    ///
    /// # Safety
    /// This function runs the library's constructors, and callers call the library's functions
    /// through the signatures in the table. So the file must be the vendor library that this object
    /// names. If the user has chosen the file, the user must guarantee this.
    pub unsafe fn open(&self, file: &str) -> Result<&'static F, String> {
        let mut opened = self.opened.lock();
        if let Some(table) = opened.get(file) {
            return Ok(table);
        }
        let path = dl::library_path(file)?;
        // SAFETY: the caller vouches for the constructors of the library.
        let module = unsafe { SharedObject::open(Path::new(&path)) }?;
        // SAFETY: the caller vouches for the functions of the library, and no library is ever
        // closed.
        let table = unsafe { F::resolve(&|name| module.symbol(name)) };
        let table = table.map_err(|error| {
            format!("{file} is no {} {} ({})", self.names.name, self.names.part, error.text())
        })?;
        let table: &'static F = Box::leak(Box::new(table));
        opened.insert(file.to_owned(), table);
        Ok(table)
    }
}

/// Lazily initialized object. The first call to `look` or `get` searches for it, and an object that
/// was found is cached.
pub struct OnDemand<D> {
    find: fn() -> Result<D, String>,
    found: TryOnce<Arc<D>>,
}

impl<D> OnDemand<D> {
    /// Creates an `OnDemand` without searching for its object. `find` returns the object or the
    /// reason why there is none. After a failure, the next call to `look` or `get` calls `find`
    /// again.
    pub fn new(find: fn() -> Result<D, String>) -> Self {
        OnDemand { find, found: TryOnce::default() }
    }

    /// Returns the object if an earlier search found it, else `None`.
    pub fn known(&self) -> Option<Arc<D>> {
        self.found.get().cloned()
    }

    /// Returns the object, searching for it if necessary, or the reason why the search failed.
    pub fn look(&self) -> Result<Arc<D>, String> {
        self.found.get_or_make(|| (self.find)().map(Arc::new)).cloned()
    }

    /// Returns the object, searching for it if necessary. Fails with DTL_ERROR_UNAVAILABLE if there
    /// is no such object.
    pub fn get(&self) -> Result<Arc<D>> {
        self.look().map_err(|why| failure!(DTL_ERROR_UNAVAILABLE, "{why}"))
    }
}
