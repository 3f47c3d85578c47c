//! Libraries of functions that backends load when they are first needed: which were opened, and
//! which process called them.

use super::symbol_table::SymbolTable;
use crate::error::{Result, fail};
use crate::sys::os::dl::SharedObject;
use crate::sys::os::{process, secure_path};
use crate::sys::sync::lock::{Mutex, RwLock};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

/// Names of a kind of library in messages, and how a user provides it.
#[derive(Clone, Copy)]
pub struct Names {
    /// Its name, such as "OpenCL".
    pub name: &'static str,
    /// The part that is loaded, such as "loader".
    pub part: &'static str,
    /// Its usual soname.
    pub soname: &'static str,
    /// Environment variable that names another file.
    pub variable: &'static str,
    /// What the variable has the path or soname of.
    pub wanted: &'static str,
    /// How to get the library.
    pub advice: &'static str,
}

/// One kind of vendor library, such as CUDA's driver, and the tables of those that were opened.
/// They are never closed.
pub struct VendorLib<F: 'static> {
    names: Names,
    opened: Mutex<BTreeMap<String, &'static F>>,
    /// The process that first called one.
    used_by: AtomicI32,
    /// How often one was begun with.
    generation: AtomicU64,
}

impl<F: SymbolTable> VendorLib<F> {
    /// A kind of which no library has been opened yet.
    #[must_use]
    pub const fn new(names: Names) -> Self {
        VendorLib {
            names,
            opened: Mutex::new(BTreeMap::new()),
            used_by: AtomicI32::new(0),
            generation: AtomicU64::new(0),
        }
    }

    /// How to get the library.
    pub const fn advice(&self) -> &'static str {
        self.names.advice
    }

    /// The file to open: the one that is named, else the usual one.
    pub fn file<'a>(&self, named: Option<&'a str>) -> &'a str {
        named.unwrap_or(self.names.soname)
    }

    /// Whether this process may call such a library: it has no rights that its user has not, and is
    /// no fork of one that called it.
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

    /// Opens the library that is named, else the usual one, and returns its table. The error text
    /// gives the reason for a failure and the remedy.
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

    /// Opens a library, by path or soname, and returns its table. The error text gives the reason
    /// for a failure.
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
        // SAFETY: the caller vouches for its constructors.
        let module = unsafe { SharedObject::open(Path::new(&path)) }?;
        // SAFETY: the caller vouches for its functions, and no library is ever closed.
        let table = unsafe { F::resolve(&|name| module.symbol(name)) };
        let table = table.map_err(|error| {
            format!("{file} is no {} {} ({})", self.names.name, self.names.part, error.text())
        })?;
        let table: &'static F = Box::leak(Box::new(table));
        opened.insert(file.to_owned(), table);
        Ok(table)
    }

    /// Before the first call of a function: the calling process is the one that uses it. A number
    /// that no earlier call gave.
    pub fn begin(&self) -> u64 {
        self.used_by.store(process::own_pid(), Ordering::Relaxed);
        self.generation.fetch_add(1, Ordering::Relaxed) + 1
    }
}

/// Something that is looked for on the first request and kept for good once it was found.
pub struct OnDemand<D> {
    find: fn() -> std::result::Result<D, String>,
    found: RwLock<Option<Arc<D>>>,
    /// Held while it is looked for.
    finding: Mutex<()>,
}

impl<D> OnDemand<D> {
    /// Makes one that is not found yet. `find` returns the reason for a failure; the next request
    /// then calls it again.
    pub fn new(find: fn() -> std::result::Result<D, String>) -> Self {
        OnDemand { find, found: RwLock::new(None), finding: Mutex::new(()) }
    }

    /// Returns it, if it was found before.
    pub fn known(&self) -> Option<Arc<D>> {
        self.found.read().clone()
    }

    /// Returns it, looking for it if necessary, or the reason why there is none.
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

    /// Returns it, looking for it if necessary; if there is none, that is DTL_ERROR_UNAVAILABLE.
    pub fn get(&self) -> Result<Arc<D>> {
        match self.look() {
            Ok(found) => Ok(found),
            Err(why) => fail!(DTL_ERROR_UNAVAILABLE, "{why}"),
        }
    }
}
