//! Libraries of functions that backends load when they are first needed: which were opened, and
//! which process called them.

use crate::error::{Result, fail};
use crate::sys::buf::Addr;
use crate::sys::dl::Module;
use crate::sys::lock::{Mutex, RwLock};
use crate::sys::{process, trust};
use std::collections::BTreeMap;
use std::ffi::CStr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

/// One kind of library (CUDA's driver, say) and the tables of those that were opened, which are
/// never closed.
pub struct VendorLib<F: 'static> {
    /// What messages call it, "OpenCL", and what it is of that, "loader".
    name: &'static str,
    part: &'static str,
    opened: Mutex<BTreeMap<String, &'static F>>,
    /// The process that first called one.
    used_by: AtomicI32,
    /// How often one was begun with.
    generation: AtomicU64,
}

/// Makes a table of what finds functions by name.
pub type Resolve<'a, F> = &'a dyn Fn(&dyn Fn(&CStr) -> Option<Addr>) -> Result<F>;

impl<F: Send + Sync> VendorLib<F> {
    /// One of which none has been opened yet.
    #[must_use]
    pub const fn new(name: &'static str, part: &'static str) -> Self {
        VendorLib {
            name,
            part,
            opened: Mutex::new(BTreeMap::new()),
            used_by: AtomicI32::new(0),
            generation: AtomicU64::new(0),
        }
    }

    /// Whether this process may call such a library: it has no rights that its user has not, and is
    /// no fork of one that called it.
    pub fn may_be_called(&self) -> std::result::Result<(), String> {
        if trust::is_privileged() {
            return Err(format!(
                "this program runs with raised privileges, and variables of its user decide what \
                 {} loads: it is not \
                 used",
                self.name
            ));
        }
        let used_by = self.used_by.load(Ordering::Relaxed);
        if used_by != 0 && used_by != process::own_pid() {
            return Err(format!(
                "this process is a fork of one that used {}, which does not survive that: use it \
                 after the fork only, \
                 or start the process with exec",
                self.name
            ));
        }
        Ok(())
    }

    /// The table of a library, by path or soname. The text says why there is none.
    ///
    /// # Safety
    /// Its constructors run: it is what its name says, or what the user says.
    pub unsafe fn open(
        &self,
        file: &str,
        resolve: Resolve<'_, F>,
    ) -> std::result::Result<&'static F, String> {
        let mut opened = self.opened.lock();
        if let Some(table) = opened.get(file) {
            return Ok(table);
        }
        let path = trust::library_path(file)?;
        // SAFETY: the caller answers for its constructors.
        let module = unsafe { Module::open(Path::new(&path)) }?;
        let table = resolve(&|name| module.symbol(name));
        let table = table.map_err(|error| {
            format!("{file} is no {} {} ({})", self.name, self.part, error.text())
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

/// What is looked for when somebody asks for it and is there for good once it was found.
pub struct OnDemand<D> {
    find: fn() -> std::result::Result<D, String>,
    found: RwLock<Option<Arc<D>>>,
    /// Held while it is looked for.
    finding: Mutex<()>,
}

impl<D> OnDemand<D> {
    /// `find` says why there is none; it is asked again then, the next time.
    pub fn new(find: fn() -> std::result::Result<D, String>) -> Self {
        OnDemand { find, found: RwLock::new(None), finding: Mutex::new(()) }
    }

    /// It, if it was found before.
    pub fn known(&self) -> Option<Arc<D>> {
        self.found.read().clone()
    }

    /// It, or why there is none.
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

    /// As `look`, for a call that cannot do without.
    pub fn get(&self) -> Result<Arc<D>> {
        match self.look() {
            Ok(found) => Ok(found),
            Err(why) => fail!(DTL_ERROR_UNAVAILABLE, "{why}"),
        }
    }
}
