//! Vendor libraries that backends load on first use: tables of the opened libraries, and the
//! process that called them.

use super::symbol_table::SymbolTable;
use crate::error::{Result, fail};
use crate::sys::os::dl::SharedObject;
use crate::sys::os::{process, secure_path};
use crate::sys::sync::lock::{Mutex, RwLock};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

/// Names of a kind of vendor library for messages, and advice on how to install it.
#[derive(Clone, Copy)]
pub struct Names {
    /// Name of the library, such as "OpenCL".
    pub name: &'static str,
    /// Part of the library that is loaded, such as "loader".
    pub part: &'static str,
    /// Default soname of the library.
    pub soname: &'static str,
    /// Environment variable that names another file.
    pub variable: &'static str,
    /// Description of the file whose path or soname the environment variable expects.
    pub wanted: &'static str,
    /// Advice on how to install the library.
    pub advice: &'static str,
}

/// One kind of vendor library, such as CUDA's driver, and the function tables of the opened
/// libraries. The libraries are never closed.
pub struct VendorLib<F: 'static> {
    names: Names,
    opened: Mutex<BTreeMap<String, &'static F>>,
    /// Id of the process that first called one of the libraries; 0 if none has.
    used_by: AtomicI32,
    /// Number of calls of `begin`.
    generation: AtomicU64,
}

impl<F: SymbolTable> VendorLib<F> {
    /// Creates a kind of library of which none is open yet.
    #[must_use]
    pub const fn new(names: Names) -> Self {
        VendorLib {
            names,
            opened: Mutex::new(BTreeMap::new()),
            used_by: AtomicI32::new(0),
            generation: AtomicU64::new(0),
        }
    }

    /// Returns advice on how to install the library.
    pub const fn advice(&self) -> &'static str {
        self.names.advice
    }

    /// Returns the file to open: `named` if present, else the default soname.
    pub fn file<'a>(&self, named: Option<&'a str>) -> &'a str {
        named.unwrap_or(self.names.soname)
    }

    /// Checks that this process may call the library: the process has no more privileges than its
    /// user and is not a fork of a process that called the library. Returns the reason if it may
    /// not.
    pub fn may_be_called(&self) -> std::result::Result<(), String> {
        if secure_path::is_privileged() {
            return Err(format!(
                "this program runs with raised privileges, and variables of its user decide what \
                 {} loads: it is not \
                 used",
                self.names.name
            ));
        }
        let used_by = self.used_by.load(Ordering::Relaxed);
        if used_by != 0 && used_by != process::own_pid() {
            return Err(format!(
                "this process is a fork of one that used {}, which does not survive that: use it \
                 after the fork only, \
                 or start the process with exec",
                self.names.name
            ));
        }
        Ok(())
    }

    /// Opens the library `named`, or the default library if `named` is `None`, and returns its
    /// function table. The error text gives the reason for a failure and the remedy.
    ///
    /// # Safety
    /// The constructors of the library run, and its functions are called by the types of the table:
    /// the library is what its name denotes, or the user vouches for it.
    pub unsafe fn open_named(
        &self,
        named: Option<&str>,
    ) -> std::result::Result<&'static F, String> {
        let Names { name, variable, wanted, advice, .. } = self.names;
        // SAFETY: the caller vouches for the library.
        unsafe { self.open(self.file(named)) }.map_err(|why| match named {
            Some(file) => format!(
                "{variable}={file}: {why}; set it to the path or soname of {wanted}, or unset it"
            ),
            None => format!("no {name}: {why}; {advice}"),
        })
    }

    /// Opens a library by path or soname and returns its function table. The error text gives the
    /// reason for a failure.
    ///
    /// # Safety
    /// The constructors of the library run, and its functions are called by the types of the table:
    /// the library is what its name denotes, or the user vouches for it.
    pub unsafe fn open(&self, file: &str) -> std::result::Result<&'static F, String> {
        let mut opened = self.opened.lock();
        if let Some(table) = opened.get(file) {
            return Ok(table);
        }
        let path = secure_path::library_path(file)?;
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

    /// Records the calling process as the user of the library; called before the first call of a
    /// function. Returns a number that no earlier call returned.
    pub fn begin(&self) -> u64 {
        self.used_by.store(process::own_pid(), Ordering::Relaxed);
        self.generation.fetch_add(1, Ordering::Relaxed) + 1
    }
}

/// Lazily found object: the first request searches for it, and a found object is retained.
pub struct OnDemand<D> {
    find: fn() -> std::result::Result<D, String>,
    found: RwLock<Option<Arc<D>>>,
    /// Locked during the search, so that only one thread searches.
    finding: Mutex<()>,
}

impl<D> OnDemand<D> {
    /// Creates the object without searching for it. `find` returns the reason for a failure; the
    /// next request then calls `find` again.
    pub fn new(find: fn() -> std::result::Result<D, String>) -> Self {
        OnDemand { find, found: RwLock::new(None), finding: Mutex::new(()) }
    }

    /// Returns the object if an earlier search found it.
    pub fn known(&self) -> Option<Arc<D>> {
        self.found.read().clone()
    }

    /// Returns the object, searching for it if necessary, or the reason for a failed search.
    pub fn look(&self) -> std::result::Result<Arc<D>, String> {
        if let Some(found) = self.known() {
            return Ok(found);
        }
        let _finding = self.finding.lock();
        if let Some(found) = self.known() {
            return Ok(found);
        }
        let found = Arc::new((self.find)()?);
        *self.found.write() = Some(Arc::clone(&found));
        Ok(found)
    }

    /// Returns the object, searching for it if necessary; a failed search is DTL_ERROR_UNAVAILABLE.
    pub fn get(&self) -> Result<Arc<D>> {
        match self.look() {
            Ok(found) => Ok(found),
            Err(why) => fail!(DTL_ERROR_UNAVAILABLE, "{why}"),
        }
    }
}
