//! The MPI of this process: loaded, started, entered, ended.
//!
//! MPI that the program has initialised is never finalised here. What is initialised here is
//! finalised once, when the last [`Hold`] goes: the one of the backend (in the last dtl_finalize),
//! or that of a transport which a blocked thread keeps longer.
//!
//! Whether MPI runs, and which threads may call it, is one word that every call reads. An attribute
//! of MPI_COMM_SELF ends it: MPI_Finalize deletes that before anything else.
//!
//! Not here: which library (`discovery`), errors (`errors`).

use super::abi::{DRAFT_ERRORS_RETURN, Family};
use super::constants::Constants;
use super::discovery::{self, FoundLibrary};
use super::functions::{Functions, Handle};
use super::launcher;
pub use super::thread_level::ThreadLevel;
use crate::backend::mpi::{comm, message};
use crate::backend::symbol_table::SymbolTable as _;
use crate::error::{Error, Result, fail};
use crate::runtime::{explain, log, settings};
use crate::sys::compute::foreign_test::ForeignTester;
use crate::sys::os::process;
use crate::sys::sync::lock::{Mutex, MutexGuard};
use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// The MPI of this process. What every message needs stands first, in one line of the cache.
#[repr(C, align(64))]
pub struct Mpi {
    /// One of the words below.
    state: AtomicU32,
    /// The value of `state` that holds the thread level; the end of MPI does not change it.
    level: AtomicU32,
    /// MPI_BYTE and MPI_STATUS_IGNORE, once more.
    pub byte: Handle,
    pub(in crate::backend::mpi) status_ignore: crate::sys::memory::buf::Addr,
    /// Its functions. Call them between [`Mpi::enter`] and the drop of what that gives.
    pub call: Functions,
    /// Its constants.
    pub k: Constants,
    /// Its binary interface.
    pub family: Family,
    /// The library's file.
    pub file: String,
    /// Reason why it was taken, for messages.
    why: String,
    /// First line of the library's version text.
    pub version: String,
    /// Short form of `version`, for descriptions.
    pub name: String,
    /// Whether it was initialised here.
    is_ours: AtomicBool,
    /// The process in which it was found running.
    process: AtomicI32,
    /// The error handler that returns.
    quiet: AtomicU64,
    /// For MPI_THREAD_SERIALIZED.
    turn: Mutex<()>,
    /// What a thread which may not call MPI has done with.
    left: Mutex<Vec<PendingFree>>,
    /// Starting and ending.
    change: Mutex<()>,
}

// Values of `state`. Levels begin with 1.
const UNSTARTED: u32 = 0;
const SINGLE: u32 = 1;
const FUNNELED: u32 = 2;
const SERIALIZED: u32 = 3;
const MULTIPLE: u32 = 4;
const OVER: u32 = 5;

/// Something of ours that nobody needs any more.
pub enum PendingFree {
    /// A communicator.
    Comm(Handle),
    /// A persistent request.
    Request(Handle),
    /// A request that is over.
    Over(Handle),
}

/// The right to call MPI, until it is dropped.
#[must_use]
pub struct MpiGuard<'a> {
    _others_wait: Option<MutexGuard<'a, ()>>,
}

static LOADED: OnceLock<&'static Mpi> = OnceLock::new();

/// Why the last search failed, and with which DTL_MPI_LIBRARY.
static FAILED: Mutex<Option<(Option<String>, Error)>> = Mutex::new(None);

/// The MPI of this process, found and loaded by the first call. Does not start it. A failure is
/// remembered, and tried again once another library is named or one has come into the process.
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
    // Another thread may have been faster.
    let mpi = match LOADED.get() {
        Some(mpi) => Ok(*mpi),
        None => discovery::locate(named.as_deref()).and_then(|found| Mpi::of(&found)),
    };
    match mpi {
        Ok(mpi) => {
            *failed = None;
            Ok(LOADED.get_or_init(|| mpi))
        }
        Err(why) => {
            *failed = Some((named, why.clone()));
            Err(why)
        }
    }
}

impl Mpi {
    fn of(found: &FoundLibrary) -> Result<&'static Mpi> {
        let file = found.file.display().to_string();
        let within = |error: Error| error.within(&format!("no MPI that can be used: {file}"));
        let symbol = |name: &std::ffi::CStr| found.symbol(name);
        // SAFETY: the functions of one MPI library, by the names of the standard.
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
            family: abi.family,
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

    /// Records for `dtl_explain` which library was taken, and why.
    pub fn explain(&self) {
        explain::chose("mpi", &format!("{}, {} ({})", self.file, self.version, self.why));
    }

    /// Whether MPI is initialised, by whomever, and not finalised.
    pub fn is_running(&self) -> Result<bool> {
        let (mut begun, mut over): (c_int, c_int) = (0, 0);
        // SAFETY: a writable number; MPI allows the call at any time.
        self.check("MPI_Initialized", unsafe { (self.call.MPI_Initialized)(&raw mut begun) })?;
        // SAFETY: a writable number; MPI allows the call at any time.
        self.check("MPI_Finalized", unsafe { (self.call.MPI_Finalized)(&raw mut over) })?;
        if over != 0 {
            self.state.store(OVER, Ordering::Release);
        }
        Ok(begun != 0 && over == 0)
    }

    /// Initialises MPI with MPI_THREAD_MULTIPLE, collectively, unless the program has. The caller
    /// has a [`Hold`].
    pub fn start(&'static self) -> Result<()> {
        let _one_changes = self.change.lock();
        match self.state.load(Ordering::Acquire) {
            UNSTARTED => {}
            OVER => return over(),
            _ => return self.check_process(),
        }
        if !self.is_running()? {
            if self.state.load(Ordering::Acquire) == OVER {
                return over();
            }
            launcher::check_launcher(self.is_open_mpi(), &self.file, &|name| {
                std::env::var(name).ok()
            })?;
            let mut level = 0;
            let (argc, argv, wanted) = (ptr::null_mut(), ptr::null_mut(), self.k.thread_multiple);
            // SAFETY: MPI takes NULL for both arguments of main.
            let code = unsafe { (self.call.MPI_Init_thread)(argc, argv, wanted, &raw mut level) };
            self.check("MPI_Init_thread", code)?;
            self.is_ours.store(true, Ordering::Relaxed);
        }
        self.take_in()
    }

    /// Adopts an MPI that is running already, as `start` does, but never initialises it: fails if
    /// the program has not.
    pub fn start_running(&'static self) -> Result<()> {
        if self.state.load(Ordering::Acquire) == UNSTARTED && !self.is_running()? {
            return self.stopped().map(drop);
        }
        self.start()
    }

    /// Records the thread level of an MPI that runs, and arranges that its end is noticed.
    fn take_in(&'static self) -> Result<()> {
        let mut level = 0;
        // SAFETY: a writable number; MPI runs.
        self.check("MPI_Query_thread", unsafe { (self.call.MPI_Query_thread)(&raw mut level) })?;
        let k = &self.k;
        let state = match level {
            level if level == k.thread_multiple => MULTIPLE,
            level if level == k.thread_serialized => SERIALIZED,
            level if level == k.thread_funneled => FUNNELED,
            _ => SINGLE,
        };
        let _others_wait = self.admit(state)?;
        let quiet = self.errors_return()?;
        self.quiet.store(quiet, Ordering::Release);
        if self.is_ours.load(Ordering::Relaxed) {
            self.make_quiet(k.comm_world)?;
            self.make_quiet(k.comm_self)?;
        }
        let mut key = 0;
        let own = ptr::from_ref(self).cast_mut().cast::<c_void>();
        // SAFETY: two functions of the right kind, and `self`, live for ever.
        let code = unsafe {
            (self.call.MPI_Comm_create_keyval)(copy_nothing, note_end, &raw mut key, own)
        };
        self.check("MPI_Comm_create_keyval", code)?;
        // SAFETY: the key made above; the value is not read by MPI.
        let code = unsafe { (self.call.MPI_Comm_set_attr)(k.comm_self, key, own) };
        self.check("MPI_Comm_set_attr", code)?;
        self.process.store(process::own_pid(), Ordering::Relaxed);
        self.level.store(state, Ordering::Relaxed);
        self.state.store(state, Ordering::Release);
        Ok(())
    }

    /// MPI_ERRORS_RETURN. Of the standard's binary interface there is a library (Intel's) that
    /// follows a draft, where it has another value, and this one ends the process; the draft's key
    /// of MPI_LASTUSEDCODE is another too. (An error handler of our own that does nothing would do,
    /// but MPICH 5.0 then returns success.)
    fn errors_return(&self) -> Result<Handle> {
        let (mut value, mut is_set) = (ptr::null_mut::<c_int>(), 0);
        let (comm, at) = (self.k.comm_world, (&raw mut value).cast());
        // SAFETY: the attribute's value is written to a writable local.
        let code = unsafe {
            (self.call.MPI_Comm_get_attr)(comm, self.k.lastusedcode, at, &raw mut is_set)
        };
        let is_known = code == 0 && is_set != 0 && !value.is_null();
        // SAFETY: an attribute that is set is the address of a number that lives as long as MPI
        // does.
        let is_final = is_known && unsafe { value.read() } >= self.k.err_lastcode;
        let is_draft = self.family == Family::Standard && !is_final;
        Ok(if is_draft { DRAFT_ERRORS_RETURN } else { self.k.errors_return })
    }

    /// Lets errors on a communicator of ours return.
    pub fn make_quiet(&self, comm: Handle) -> Result<()> {
        // SAFETY: a live communicator and MPI's own error handler.
        let code = unsafe {
            (self.call.MPI_Comm_set_errhandler)(comm, self.quiet.load(Ordering::Acquire))
        };
        self.check("MPI_Comm_set_errhandler", code)
    }

    /// Lets errors on a window of ours return.
    pub fn make_window_quiet(&self, win: Handle) -> Result<()> {
        // SAFETY: a live window and MPI's own error handler.
        let code =
            unsafe { (self.call.MPI_Win_set_errhandler)(win, self.quiet.load(Ordering::Acquire)) };
        self.check("MPI_Win_set_errhandler", code)
    }

    /// A fork has MPI's memory, but neither its connections nor its threads.
    fn check_process(&self) -> Result<()> {
        let process = self.process.load(Ordering::Relaxed);
        if process == process::own_pid() {
            return Ok(());
        }
        fail!(
            DTL_ERROR_INVALID_STATE,
            "MPI was started in process {process}, of which this one is a fork: MPI does not \
             survive that; open kind \
             \"mpi\" in processes of their own"
        )
    }

    /// Checks that this thread may call MPI now, and waits for its turn if threads take turns (else
    /// it costs a load).
    #[inline]
    pub fn enter(&self) -> Result<MpiGuard<'_>> {
        if self.state.load(Ordering::Acquire) == MULTIPLE {
            return Ok(MpiGuard { _others_wait: None });
        }
        self.enter_by_level()
    }

    #[cold]
    fn enter_by_level(&self) -> Result<MpiGuard<'_>> {
        let turn = self.admit(self.state.load(Ordering::Acquire))?;
        // It may have ended while this thread waited.
        if self.is_over() {
            return self.stopped();
        }
        let left = std::mem::take(&mut *self.left.lock());
        left.into_iter().try_for_each(|left| self.free_now(left))?;
        Ok(turn)
    }

    /// Enters MPI for calls of this thread, waiting for a turn where threads take turns; `None`:
    /// MPI is over, and with it all that was in flight.
    #[inline]
    pub fn enter_unless_over(&self) -> Result<Option<MpiGuard<'_>>> {
        match self.enter() {
            Ok(turn) => Ok(Some(turn)),
            Err(_) if self.is_over() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Ends something of ours. Where this thread may not call MPI, the next one that may does. In
    /// no turn.
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

    fn free_now(&self, left: PendingFree) -> Result<()> {
        match left {
            PendingFree::Comm(comm) => comm::free(self, comm),
            PendingFree::Over(request) => message::wait(self, request),
            PendingFree::Request(mut request) => {
                // SAFETY: a persistent request of ours, freed once.
                self.check("MPI_Request_free", unsafe {
                    (self.call.MPI_Request_free)(&raw mut request)
                })
            }
        }
    }

    fn admit(&self, state: u32) -> Result<MpiGuard<'_>> {
        match state {
            MULTIPLE => Ok(MpiGuard { _others_wait: None }),
            SERIALIZED => Ok(MpiGuard { _others_wait: Some(self.turn.lock()) }),
            SINGLE | FUNNELED if self.is_main_thread()? => Ok(MpiGuard { _others_wait: None }),
            SINGLE | FUNNELED => {
                let level = if state == SINGLE { "SINGLE" } else { "FUNNELED" };
                fail!(
                    DTL_ERROR_NOT_SUPPORTED,
                    "MPI gave MPI_THREAD_{level}, and this is not the thread that initialised it: \
                     call from that one, or \
                     initialise MPI with MPI_Init_thread and MPI_THREAD_MULTIPLE"
                )
            }
            _ => self.stopped(),
        }
    }

    fn stopped(&self) -> Result<MpiGuard<'_>> {
        if self.state.load(Ordering::Acquire) == OVER {
            return over().map(|()| MpiGuard { _others_wait: None });
        }
        fail!(DTL_ERROR_INVALID_STATE, "MPI is not initialised: call MPI_Init_thread first")
    }

    fn is_main_thread(&self) -> Result<bool> {
        let mut is_main = 0;
        // SAFETY: a writable number; MPI runs, and allows the call in any thread.
        self.check("MPI_Is_thread_main", unsafe {
            (self.call.MPI_Is_thread_main)(&raw mut is_main)
        })?;
        Ok(is_main != 0)
    }

    /// Whether MPI is finalised, or about to be: then nothing of MPI may be called, and nothing
    /// need be freed.
    #[inline]
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.state.load(Ordering::Acquire) == OVER
    }

    /// The test of MPI's operations; `often` is the number of attempts for a patient caller.
    pub(in crate::backend::mpi) fn asking(&'static self, often: u32) -> ForeignTester {
        // SAFETY: MPI_Test, of requests of MPI's; the words are those of `ids`. Where all threads
        // may call MPI it is called without a turn.
        unsafe {
            ForeignTester::new(self.call.MPI_Test, self.status_ignore, &self.state, MULTIPLE, often)
        }
    }

    /// Whether all threads may call MPI at once.
    #[inline]
    #[must_use]
    pub fn is_multiple(&self) -> bool {
        self.state.load(Ordering::Acquire) == MULTIPLE
    }

    /// The level that MPI gave, even after its end.
    #[must_use]
    pub fn level(&self) -> ThreadLevel {
        match self.level.load(Ordering::Relaxed) {
            MULTIPLE => ThreadLevel::Multiple,
            SERIALIZED => ThreadLevel::Serialized,
            FUNNELED => ThreadLevel::Funneled,
            _ => ThreadLevel::Single,
        }
    }

    /// Whether it is Open MPI, whatever its binary interface.
    #[must_use]
    pub fn is_open_mpi(&self) -> bool {
        self.family == Family::OpenMpi || self.version.starts_with("Open MPI")
    }

    /// Finalises what was initialised here, if nobody holds it any more.
    fn end(&self) {
        let _one_changes = self.change.lock();
        let state = self.state.load(Ordering::Acquire);
        let runs = state != UNSTARTED && state != OVER;
        let is_held = HELD.load(Ordering::Acquire) != 0;
        if !runs
            || is_held
            || !self.is_ours.load(Ordering::Relaxed)
            || self.check_process().is_err()
        {
            return;
        }
        let outcome = self.enter().and_then(|_turn| {
            // SAFETY: MPI runs, was initialised here, and this thread may call it.
            self.check("MPI_Finalize", unsafe { (self.call.MPI_Finalize)() })
        });
        self.state.store(OVER, Ordering::Release);
        if let Err(error) = outcome {
            log::warning!("MPI was initialised by the library and could not be finalised: {error}");
        }
    }
}

/// Said of everything after MPI_Finalize.
pub const OVER_TEXT: &str = "MPI is finalised: it cannot be started twice in a process; use \
    communicators over MPI \
                             before MPI_Finalize, or the last dtl_finalize if MPI was initialised \
                             by the library";

fn over() -> Result<()> {
    fail!(DTL_ERROR_INVALID_STATE, "{OVER_TEXT}")
}

/// Counts those that use MPI. MPI that was initialised here ends with the last.
#[derive(Debug)]
pub struct Hold(());

static HELD: AtomicUsize = AtomicUsize::new(0);

impl Hold {
    /// One more.
    #[must_use]
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

/// The attribute of MPI_COMM_SELF stays with it.
unsafe extern "C" fn copy_nothing(
    _comm: Handle,
    _key: c_int,
    _extra: *mut c_void,
    _value: *mut c_void,
    _out: *mut c_void,
    out_copy: *mut c_int,
) -> c_int {
    // SAFETY: MPI hands in a writable number.
    unsafe { *out_copy = 0 };
    0
}

/// MPI_Finalize has begun.
unsafe extern "C" fn note_end(
    _comm: Handle,
    _key: c_int,
    value: *mut c_void,
    _extra: *mut c_void,
) -> c_int {
    // SAFETY: the value is the `Mpi` that set the attribute; it lives for ever.
    let mpi = unsafe { &*value.cast::<Mpi>().cast_const() };
    crate::backend::mpi::reduce_op::release_all(mpi);
    crate::backend::mpi::window::release_all(mpi);
    mpi.state.store(OVER, Ordering::Release);
    0
}
