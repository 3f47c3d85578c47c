//! MPI of this process: loading, initialization, finalization, and which threads may call MPI.
//!
//! This library never finalizes MPI if the program has initialized it. If this library has
//! initialized MPI, it finalizes MPI when the last [`Hold`] is dropped. The last `Hold` belongs to
//! the backend (dropped in the last dtl_finalize), or to a transport that a blocked thread still
//! uses.
//!
//! One word, which every call reads, records whether MPI is initialized and which threads may call
//! it. A delete callback of an attribute of MPI_COMM_SELF sets this word to the finalized state:
//! MPI_Finalize deletes this attribute before anything else.
//!
//! `discovery` finds the library, and `errors` converts error codes.

use super::abi::{Abi, DRAFT_ERRORS_RETURN, Family, Int};
use super::constants::Constants;
use super::discovery::{self, FoundLibrary};
use super::functions::{Functions, Handle};
use super::launcher;
use crate::backend::symbol_table::SymbolTable as _;
use crate::error::{Error, Result, fail, failure};
use crate::runtime::{explain, log, settings};
use crate::sys::compute::callback::ForeignTester;
use crate::sys::os::process;
use crate::sys::sync::lock::{Mutex, MutexGuard};
use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// Calls a function of MPI, and converts its code into a `Result` whose error names the function.
/// The call is unsafe: `unsafe { checked!(mpi, MPI_Comm_size(comm, &raw mut size)) }`.
macro_rules! checked {
    ($mpi:expr, $function:ident($($arg:expr),* $(,)?)) => {
        $mpi.check(stringify!($function), ($mpi.call.$function)($($arg),*))
    };
}
pub(in crate::backend::mpi) use checked;

/// Function that returns an attribute of a communicator or of a window, with its name.
type GetAttribute =
    (&'static str, unsafe extern "C" fn(Handle, c_int, *mut c_void, *mut c_int) -> c_int);

/// MPI library of this process. The fields that every message needs come first, in one cache line.
#[repr(C, align(64))]
pub struct Mpi {
    /// State of MPI: one of the constants from `UNSTARTED` to `OVER`.
    state: AtomicU32,
    /// Thread level that MPI provided: `SINGLE` to `MULTIPLE`, or `UNSTARTED` until it is known.
    /// Finalization of MPI does not change this field.
    level: AtomicU32,
    /// Copy of `k.byte` (MPI_BYTE). The field `status_ignore` is a copy of `k.status_ignore`
    /// (MPI_STATUS_IGNORE).
    pub byte: Handle,
    pub(crate) status_ignore: crate::sys::memory::buf::Addr,
    /// Functions of MPI, callable only while a guard from [`Mpi::enter`] exists.
    pub call: Functions,
    /// Constants of MPI.
    pub k: Constants,
    /// ABI of the MPI library.
    pub abi: Abi,
    /// File name of the library.
    pub file: String,
    /// Reason why this library was chosen, for messages.
    why: String,
    /// First line of the library's version string.
    pub version: String,
    /// Short form of `version`, for descriptions.
    pub name: String,
    /// True if libdtl has initialized MPI.
    is_ours: AtomicBool,
    /// ID of the process in which libdtl found MPI initialized.
    process: AtomicI32,
    /// Error handler that returns errors to the caller.
    quiet: AtomicU64,
    /// Lock that serializes calls to MPI if the thread level is MPI_THREAD_SERIALIZED.
    turn: Mutex<()>,
    /// Objects to free, left by threads that may not call MPI.
    left: Mutex<Vec<PendingFree>>,
    /// Lock for initialization and finalization.
    change: Mutex<()>,
}

// Values of `state`. The values of thread levels begin with 1.
const UNSTARTED: u32 = 0;
const SINGLE: u32 = 1;
const FUNNELED: u32 = 2;
const SERIALIZED: u32 = 3;
const MULTIPLE: u32 = 4;
const OVER: u32 = 5;

/// MPI object that belongs to the library, is no longer in use, and must be freed.
pub enum PendingFree {
    /// Communicator to free.
    Comm(Handle),
    /// Persistent request to free.
    Request(Handle),
    /// Completed request, which MPI_Wait releases.
    Over(Handle),
}

/// Guard that permits calls to MPI until it is dropped.
#[must_use]
pub struct MpiGuard<'a> {
    _others_wait: Option<MutexGuard<'a, ()>>,
}

static LOADED: OnceLock<&'static Mpi> = OnceLock::new();

/// Value of DTL_MPI_LIBRARY during the last failed search for an MPI library, and the error from
/// that search.
static FAILED: Mutex<Option<(Option<String>, Error)>> = Mutex::new(None);

/// Returns the MPI library of this process. The first call finds and loads the library, but does
/// not initialize it. A failure is cached until DTL_MPI_LIBRARY changes or another MPI is loaded
/// into the process.
pub fn loaded() -> Result<&'static Mpi> {
    let named = settings::current().mpi_library;
    if let Some(mpi) = LOADED.get() {
        return named
            .map_or(Ok(()), |name| discovery::check_same(&name, mpi.file.as_ref()))
            .map(|()| *mpi);
    }
    let mut failed = FAILED.lock();
    if let Some((tried, why)) = failed.as_ref() {
        if *tried == named && discovery::present().is_none() {
            return Err(why.clone());
        }
    }
    // Another thread may have loaded the library meanwhile.
    let mpi = match LOADED.get() {
        Some(mpi) => Ok(*mpi),
        None => discovery::locate(named.as_deref()).and_then(|found| Mpi::of(&found)),
    };
    let mpi = mpi.inspect_err(|why| *failed = Some((named, why.clone())))?;
    *failed = None;
    Ok(LOADED.get_or_init(|| mpi))
}

impl Mpi {
    fn of(found: &FoundLibrary) -> Result<&'static Mpi> {
        let file = found.file.display().to_string();
        let within = |error: Error| error.within(&format!("no MPI that can be used: {file}"));
        let symbol = |name: &std::ffi::CStr| found.symbol(name);
        // SAFETY: the functions belong to one MPI library and have the names of the standard.
        let call = unsafe { Functions::resolve(&symbol) }.map_err(within)?;
        let version = discovery::version_text(&call).map_err(within)?;
        let abi = discovery::interface(found, &call, &version).map_err(within)?;
        let k = Constants::resolve(&abi, &symbol).map_err(within)?;
        found.publish();
        Ok(Box::leak(Box::new(Mpi {
            byte: k.byte,
            status_ignore: k.status_ignore,
            call,
            k,
            abi,
            version: discovery::first_line(&version),
            name: discovery::short_name(&version),
            file,
            why: found.why.clone(),
            state: AtomicU32::new(UNSTARTED),
            level: AtomicU32::new(UNSTARTED),
            is_ours: AtomicBool::new(false),
            process: AtomicI32::new(0),
            quiet: AtomicU64::new(0),
            turn: Mutex::new(()),
            left: Mutex::new(Vec::new()),
            change: Mutex::new(()),
        })))
    }

    /// Records, for `dtl_explain`, which library was chosen and why.
    pub fn explain(&self) {
        explain::chose("mpi", &format!("{}, {} ({})", self.file, self.version, self.why));
    }

    /// Returns true if MPI is initialized, by the program or the library, and not finalized.
    pub fn is_running(&self) -> Result<bool> {
        let (mut begun, mut over): (c_int, c_int) = (0, 0);
        // SAFETY: `begun` is a writable number; MPI allows the call at any time.
        unsafe { checked!(self, MPI_Initialized(&raw mut begun)) }?;
        // SAFETY: `over` is a writable number; MPI allows the call at any time.
        unsafe { checked!(self, MPI_Finalized(&raw mut over)) }?;
        if over != 0 {
            self.state.store(OVER, Ordering::Release);
        }
        Ok(begun != 0 && over == 0)
    }

    /// Initializes MPI with MPI_THREAD_MULTIPLE, collectively, unless the program has initialized
    /// it. The caller must have a [`Hold`].
    pub fn start(&'static self) -> Result<()> {
        let _one_changes = self.change.lock();
        match self.state.load(Ordering::Acquire) {
            UNSTARTED => {}
            OVER => return Err(self.stopped()),
            _ => return self.check_process(),
        }
        if !self.is_running()? {
            if self.is_over() {
                return Err(self.stopped());
            }
            launcher::check_launcher(self.is_open_mpi(), &self.file, &|name| {
                std::env::var(name).ok()
            })?;
            let mut level = 0;
            let (argc, argv, wanted) =
                (ptr::null_mut(), ptr::null_mut(), self.abi.int(Int::ThreadMultiple));
            // SAFETY: MPI accepts NULL for both arguments of main.
            unsafe { checked!(self, MPI_Init_thread(argc, argv, wanted, &raw mut level)) }?;
            self.is_ours.store(true, Ordering::Relaxed);
        }
        self.take_in()
    }

    /// Prepares the use of MPI as `start` does, but returns an error if MPI is not initialized yet.
    pub fn start_running(&'static self) -> Result<()> {
        if self.state.load(Ordering::Acquire) == UNSTARTED && !self.is_running()? {
            return Err(self.stopped());
        }
        self.start()
    }

    /// Records the thread level of MPI, which is already initialized, and registers a callback for
    /// the finalization of MPI.
    fn take_in(&'static self) -> Result<()> {
        let mut level = 0;
        // SAFETY: `level` is a writable number; MPI is initialized.
        unsafe { checked!(self, MPI_Query_thread(&raw mut level)) }?;
        let state = match level {
            level if level == self.abi.int(Int::ThreadMultiple) => MULTIPLE,
            level if level == self.abi.int(Int::ThreadSerialized) => SERIALIZED,
            level if level == self.abi.int(Int::ThreadFunneled) => FUNNELED,
            _ => SINGLE,
        };
        let _others_wait = self.admit(state)?;
        let quiet = self.errors_return();
        self.quiet.store(quiet, Ordering::Release);
        if self.is_ours.load(Ordering::Relaxed) {
            self.make_quiet(self.k.comm_world)?;
            self.make_quiet(self.k.comm_self)?;
        }
        let mut key = 0;
        let own = ptr::from_ref(self).cast_mut().cast::<c_void>();
        // SAFETY: both functions have the required signatures; they and `self` are never freed.
        unsafe {
            checked!(self, MPI_Comm_create_keyval(copy_nothing, note_end, &raw mut key, own))
        }?;
        // SAFETY: the key was created above; MPI does not read the value.
        unsafe { checked!(self, MPI_Comm_set_attr(self.k.comm_self, key, own)) }?;
        self.process.store(process::own_pid(), Ordering::Relaxed);
        self.level.store(state, Ordering::Relaxed);
        self.state.store(state, Ordering::Release);
        Ok(())
    }

    /// Returns MPI_ERRORS_RETURN. The standard-ABI library of Intel MPI follows a draft of that
    /// ABI, in which this constant has another value. In the draft, the value from the final ABI
    /// denotes an error handler that aborts the process. The draft is detected by the attribute
    /// MPI_LASTUSEDCODE, whose key also differs. (A user-defined error handler that does nothing is
    /// no alternative, because MPICH 5.0 then returns success.)
    fn errors_return(&self) -> Handle {
        let get = ("MPI_Comm_get_attr", self.call.MPI_Comm_get_attr);
        let last_used = self.attribute(get, self.k.comm_world, Int::Lastusedcode).unwrap_or(None);
        let is_final = last_used.is_some_and(|code| code >= self.abi.int(Int::ErrLastcode));
        let is_draft = self.abi.family == Family::Standard && !is_final;
        if is_draft { DRAFT_ERRORS_RETURN } else { self.k.errors_return }
    }

    /// Returns the value of the predefined attribute `key`, an `int`, of a communicator or window;
    /// `None` if the attribute is not set.
    pub fn attribute(&self, get: GetAttribute, of: Handle, key: Int) -> Result<Option<c_int>> {
        let (mut value, mut is_set) = (ptr::null::<c_int>(), 0);
        let at = (&raw mut value).cast();
        // SAFETY: the attribute's value is written to a writable local.
        self.check(get.0, unsafe { get.1(of, self.abi.int(key), at, &raw mut is_set) })?;
        if is_set == 0 {
            return Ok(None);
        }
        // SAFETY: a set attribute is the address of a number that lives as long as `of` does.
        Ok(unsafe { value.as_ref() }.copied())
    }

    /// Sets the error handler of a communicator so that MPI functions return errors to the caller.
    pub fn make_quiet(&self, comm: Handle) -> Result<()> {
        // SAFETY: the communicator is alive, and the error handler is MPI's own.
        unsafe { checked!(self, MPI_Comm_set_errhandler(comm, self.quiet.load(Ordering::Acquire))) }
    }

    /// Sets the error handler of a window so that MPI functions return errors to the caller.
    pub fn make_window_quiet(&self, win: Handle) -> Result<()> {
        // SAFETY: the window is alive, and the error handler is MPI's own.
        unsafe { checked!(self, MPI_Win_set_errhandler(win, self.quiet.load(Ordering::Acquire))) }
    }

    /// Returns an error in a forked process, which lacks MPI's connections and threads.
    fn check_process(&self) -> Result<()> {
        let process = self.process.load(Ordering::Relaxed);
        if process == process::own_pid() {
            return Ok(());
        }
        fail!(
            DTL_ERROR_INVALID_STATE,
            "MPI was started in process {process}, of which this one is a fork: MPI does not \
             survive that; open kind \"mpi\" in processes of their own"
        )
    }

    /// Checks that this thread may call MPI now; with MPI_THREAD_SERIALIZED, waits until no other
    /// thread is inside MPI. With MPI_THREAD_MULTIPLE the cost is one load.
    pub fn enter(&self) -> Result<MpiGuard<'_>> {
        if self.state.load(Ordering::Acquire) == MULTIPLE {
            return Ok(MpiGuard { _others_wait: None });
        }
        self.enter_by_level()
    }

    #[cold]
    fn enter_by_level(&self) -> Result<MpiGuard<'_>> {
        let turn = self.admit(self.state.load(Ordering::Acquire))?;
        // MPI may have been finalized while this thread waited.
        if self.is_over() {
            return Err(self.stopped());
        }
        let left = std::mem::take(&mut *self.left.lock());
        left.into_iter().try_for_each(|left| self.free_now(left))?;
        Ok(turn)
    }

    /// Checks that this thread may call MPI and returns a guard; returns `None` if MPI is
    /// finalized, because no operation is in flight then.
    pub fn enter_unless_over(&self) -> Result<Option<MpiGuard<'_>>> {
        match self.enter() {
            Ok(turn) => Ok(Some(turn)),
            Err(_) if self.is_over() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Frees an MPI object that belongs to the library. If this thread may not call MPI, the next
    /// thread that may call MPI frees the object. The caller must not hold an `MpiGuard`.
    pub fn free_soon(&self, left: PendingFree) -> Result<()> {
        match self.enter_unless_over() {
            Ok(Some(_turn)) => self.free_now(left),
            Ok(None) => Ok(()),
            Err(_) => {
                self.left.lock().push(left);
                Ok(())
            }
        }
    }

    fn admit(&self, state: u32) -> Result<MpiGuard<'_>> {
        match state {
            MULTIPLE => Ok(MpiGuard { _others_wait: None }),
            SERIALIZED => Ok(MpiGuard { _others_wait: Some(self.turn.lock()) }),
            SINGLE | FUNNELED if self.is_main_thread()? => Ok(MpiGuard { _others_wait: None }),
            SINGLE | FUNNELED => {
                fail!(
                    DTL_ERROR_NOT_SUPPORTED,
                    "MPI gave {}, and this is not the thread that initialised it: call from that \
                     one, or initialise MPI with MPI_Init_thread and MPI_THREAD_MULTIPLE",
                    level_name(state)
                )
            }
            _ => Err(self.stopped()),
        }
    }

    /// Returns the error for a call that is made while MPI is not running.
    fn stopped(&self) -> Error {
        if self.is_over() {
            failure!(DTL_ERROR_INVALID_STATE, "{OVER_TEXT}")
        } else {
            failure!(DTL_ERROR_INVALID_STATE, "MPI is not initialised: call MPI_Init_thread first")
        }
    }

    fn is_main_thread(&self) -> Result<bool> {
        let mut is_main = 0;
        // SAFETY: `is_main` is writable; MPI is initialized, and allows the call in any thread.
        unsafe { checked!(self, MPI_Is_thread_main(&raw mut is_main)) }?;
        Ok(is_main != 0)
    }

    /// Returns true if MPI is finalized, or is being finalized: MPI functions must not be called
    /// then, and MPI objects must not be freed.
    pub fn is_over(&self) -> bool {
        self.state.load(Ordering::Acquire) == OVER
    }

    /// Creates the object that tests requests with MPI_Test. `often` is the maximum number of
    /// MPI_Test calls in one test by a waiting thread.
    pub(crate) fn asking(&'static self, often: u32) -> ForeignTester {
        // SAFETY: the function is MPI_Test, for requests of MPI; the words are those of `ids`. It
        // is called without a guard only where all threads may call MPI.
        unsafe {
            ForeignTester::new(self.call.MPI_Test, self.status_ignore, &self.state, MULTIPLE, often)
        }
    }

    /// Returns true if threads may call MPI concurrently (MPI_THREAD_MULTIPLE).
    pub fn is_multiple(&self) -> bool {
        self.state.load(Ordering::Acquire) == MULTIPLE
    }

    /// Returns true if threads may call MPI one at a time (MPI_THREAD_SERIALIZED).
    pub fn is_serialized(&self) -> bool {
        self.state.load(Ordering::Acquire) == SERIALIZED
    }

    /// Returns MPI's name for the thread level that MPI provided, even after MPI is finalized.
    pub fn level(&self) -> &'static str {
        level_name(self.level.load(Ordering::Relaxed))
    }

    /// Returns true if the library is Open MPI, whichever ABI it has.
    pub fn is_open_mpi(&self) -> bool {
        self.abi.family == Family::OpenMpi || self.version.starts_with("Open MPI")
    }

    /// Finalizes MPI if this library initialized it and no `Hold` is left.
    fn end(&self) {
        let _one_changes = self.change.lock();
        let state = self.state.load(Ordering::Acquire);
        let runs = state != UNSTARTED && state != OVER;
        let is_held = HELD.load(Ordering::Acquire) != 0;
        let is_ours = self.is_ours.load(Ordering::Relaxed);
        if !runs || is_held || !is_ours || self.check_process().is_err() {
            return;
        }
        let outcome = self.enter().and_then(|_turn| {
            // SAFETY: MPI is running, was initialized here, and this thread may call it.
            unsafe { checked!(self, MPI_Finalize()) }
        });
        self.state.store(OVER, Ordering::Release);
        log::failure("MPI was initialised by the library and could not be finalised", outcome);
    }
}

/// Error message for a call that requires MPI but is made after MPI_Finalize.
pub const OVER_TEXT: &str = "MPI is finalised: it cannot be started twice in a process; use \
    communicators over MPI before MPI_Finalize, or the last dtl_finalize if MPI was initialised by \
    the library";

/// Returns MPI's name for the thread level that `state` represents.
fn level_name(state: u32) -> &'static str {
    match state {
        MULTIPLE => "MPI_THREAD_MULTIPLE",
        SERIALIZED => "MPI_THREAD_SERIALIZED",
        FUNNELED => "MPI_THREAD_FUNNELED",
        _ => "MPI_THREAD_SINGLE",
    }
}

/// Counted reference to MPI. If this library initialized MPI, dropping the last `Hold` finalizes
/// MPI.
#[derive(Debug)]
pub struct Hold(());

static HELD: AtomicUsize = AtomicUsize::new(0);

impl Hold {
    /// Adds a user of MPI.
    #[allow(clippy::new_without_default, reason = "it counts")]
    pub fn new() -> Self {
        HELD.fetch_add(1, Ordering::AcqRel);
        Hold(())
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if HELD.fetch_sub(1, Ordering::AcqRel) == 1 {
            if let Some(mpi) = LOADED.get() {
                mpi.end();
            }
        }
    }
}

/// Attribute copy callback: the attribute of MPI_COMM_SELF is not copied to duplicates.
unsafe extern "C" fn copy_nothing(
    _comm: Handle,
    _key: c_int,
    _extra: *mut c_void,
    _value: *mut c_void,
    _out: *mut c_void,
    out_copy: *mut c_int,
) -> c_int {
    // SAFETY: MPI passes the address of a writable number.
    unsafe { *out_copy = 0 };
    0
}

/// Attribute delete callback, which MPI_Finalize calls first: marks MPI as finalized.
unsafe extern "C" fn note_end(
    _comm: Handle,
    _key: c_int,
    value: *mut c_void,
    _extra: *mut c_void,
) -> c_int {
    // SAFETY: the value is the `Mpi` that set the attribute, which is never freed.
    let mpi = unsafe { &*value.cast::<Mpi>().cast_const() };
    mpi.free_reductions();
    mpi.free_windows();
    mpi.state.store(OVER, Ordering::Release);
    0
}
