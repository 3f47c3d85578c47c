//! State that communicators share: an open transport, and contexts that separate their messages.
//!
//! The match bits of a message consist of a context (upper 32 bits), a class (4 bits) and a tag
//! (lower 28 bits). Each communicator on a transport has a context of its own. Classes separate
//! internal messages of a communicator from the user's messages.

use crate::abi::comm::communicator::DTL_TAG_MAX;
use crate::abi::handle::dtl_backend_t;
use crate::error::{Result, failure};
use crate::runtime::comm::failure::missing_ranks::Retired;
use crate::runtime::comm::progress_count;
use crate::runtime::component::{Direct, ForeignTest, Liveness, SharedMemory, Transport};
use crate::runtime::registry::{self, Backend};
use crate::runtime::{explain, log};
use crate::sys::handles::handle_table::OwningRef;
use crate::sys::sync::AtomicUpdate;
use crate::sys::sync::wait::{Backoff, SpinLimit};
use std::ffi::CStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

/// Class of a message. Messages of different classes never match, so a user's receive with
/// DTL_ANY_TAG cannot match a collective's message.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Class {
    User = 0,
    Collective = 1,
    /// Messages of the hang report: queries, and reports of a rank's operations or of a collective
    /// that it has abandoned.
    Service = 2,
    /// Messages of the survivors' agreement on the set of survivors.
    Agreement = 3,
}

/// Mask of the tag in the match bits of a message.
pub(crate) const TAG_BITS: u64 = DTL_TAG_MAX as u64;

/// Returns the match bits that encode a context, a class and a tag. The tag is in the range 0 to
/// DTL_TAG_MAX, which is checked on entry to the library.
pub(crate) fn match_bits(context: u32, class: Class, tag: i32) -> u64 {
    u64::from(context) << 32 | (class as u64) << 28 | (u64::from(tag as u32) & TAG_BITS)
}

/// Open transport. It is closed when the last communicator that uses it is dropped.
pub(crate) struct SharedTransport {
    pub(crate) transport: Arc<dyn Transport>,
    // Capability groups of the transport.
    pub(crate) liveness: Option<OwningRef<dyn Liveness, dyn Transport>>,
    pub(crate) shared_memory: Option<OwningRef<dyn SharedMemory, dyn Transport>>,
    pub(crate) foreign_test: Option<OwningRef<dyn ForeignTest, dyn Transport>>,
    /// Backend of the transport; this reference keeps the backend registered.
    backend: Arc<Backend>,
    pub(crate) kind: &'static CStr,
    /// Flags of the description (`dtl_comm_desc_t`) that opened the transport.
    pub(crate) flags: u64,
    /// True if reductions must give results that are bitwise identical to those of communicators
    /// that use other transports.
    pub(crate) is_deterministic: bool,
    /// Backend whose device memory the transport accepts without staging; `None` if it stages all
    /// device memory.
    pub(crate) direct: Option<dtl_backend_t>,
    /// True if large messages in the memory of any device may use the transport's [`Direct`]
    /// interface, without staging.
    is_direct: bool,
    /// Number of polls for which a waiting call spins before it first yields the processor.
    spins: SpinLimit,
    /// Number of contexts that this rank has assigned. The first rank of a new communicator assigns
    /// the context of the communicator.
    contexts: AtomicU32,
    /// Contexts of recently destroyed communicators, for which messages of the hang report may
    /// still arrive.
    pub(crate) retired: Retired,
    /// True if the transport failed to cancel an operation and may still access the buffer of that
    /// operation.
    lost: AtomicBool,
}

impl SharedTransport {
    pub(crate) fn new(
        transport: Box<dyn Transport>,
        backend: Arc<Backend>,
        is_deterministic: bool,
    ) -> Self {
        let transport: Arc<dyn Transport> = Arc::from(transport);
        let kind = crate::runtime::for_ever(&backend.name);
        let spins = SpinLimit::new(transport.properties().is_oversubscribed);
        if transport.groups().native_collectives.is_some() {
            let text = format!("{}'s own, where it has them", kind.to_string_lossy());
            explain::chose("collectives", &text);
        }
        let link = SharedTransport {
            liveness: OwningRef::find(Arc::clone(&transport), |of| of.groups().liveness),
            shared_memory: OwningRef::find(Arc::clone(&transport), |of| of.groups().shared_memory),
            foreign_test: OwningRef::find(Arc::clone(&transport), |of| of.groups().foreign_test),
            transport,
            backend,
            kind,
            flags: 0,
            is_deterministic,
            direct: None,
            is_direct: false,
            spins,
            contexts: AtomicU32::new(0),
            retired: Retired::default(),
            lost: AtomicBool::new(false),
        };
        link.count(true);
        link
    }

    /// If this transport's operations progress only during calls, increments (`comes` is true) or
    /// decrements (`comes` is false) the number of such transports.
    fn count(&self, comes: bool) {
        if self.transport.properties().needs_progress {
            progress_count::count_transport(comes);
        }
    }

    /// Enables direct transfers of device memory, without staging, if the transport supports them.
    pub(crate) fn with_direct(mut self) -> Self {
        let named = self.transport.properties().device_memory_of.and_then(registry::lookup);
        self.direct = named.map(|backend| backend.handle());
        self.is_direct = self.transport.groups().device_memory.is_some();
        self
    }

    /// Returns true if the transport may still access the buffer of an operation that it failed to
    /// cancel. Memory that was passed to operations of this transport is then leaked instead of
    /// freed.
    pub(crate) fn has_lost(&self) -> bool {
        self.lost.load(Ordering::Relaxed)
    }

    /// Records that the library abandoned an operation which the transport may still carry out.
    pub(crate) fn lose(&self) {
        self.lost.store(true, Ordering::Relaxed);
    }

    /// Returns the transport's interface for transfers of large messages in device memory without
    /// staging, if it has one and its use is enabled.
    pub(crate) fn direct(&self) -> Option<&dyn Direct> {
        if self.is_direct { self.transport.groups().device_memory } else { None }
    }

    /// Opens a separate transport for the communicator of `ranks` with the context `context`.
    /// Returns `None` if the communicator shares this transport.
    pub(crate) fn subset(
        self: &Arc<Self>,
        ranks: &[i32],
        context: u32,
    ) -> Result<Option<Arc<Self>>> {
        let Some(native) = self.transport.groups().native_collectives else { return Ok(None) };
        let Some(transport) = native.subset(ranks, context)? else { return Ok(None) };
        let mut link =
            SharedTransport::new(transport, Arc::clone(&self.backend), self.is_deterministic);
        (link.direct, link.is_direct, link.flags) = (self.direct, self.is_direct, self.flags);
        Ok(Some(Arc::new(link)))
    }

    /// Returns the transport's description of its latest failure.
    pub(crate) fn failure_text(&self) -> Option<String> {
        self.transport.groups().diagnostics?.failure_text()
    }

    /// Returns a context that no communicator on this transport has had before. Contexts that
    /// different ranks allocate never collide, because each is congruent to its allocating rank
    /// plus 1, modulo the number of ranks.
    #[inline]
    pub(crate) fn new_context(&self) -> Result<u32> {
        let (rank, size) =
            (self.transport.rank().unsigned_abs(), self.transport.size().unsigned_abs());
        let next = |made: u32| made.checked_add(1);
        let made = self.contexts.checked_update(Ordering::Relaxed, Ordering::Relaxed, next);
        // Context 0 belongs to the communicator that opened the transport.
        let context =
            made.ok().and_then(|made| made.checked_mul(size)?.checked_add(rank)?.checked_add(1));
        context.ok_or_else(|| {
            failure!(
                DTL_ERROR_LIMIT,
                "this rank has made {} communicators from one: open a new one (dtl_comm_open)",
                u32::MAX / size.max(1)
            )
        })
    }

    /// Pauses between two polls of an operation.
    pub(crate) fn pause(&self, backoff: &mut Backoff) {
        // Other ranks' progress on collectives wakes no thread that waits for another event.
        self.pause_with(backoff, |seen, limit| {
            let wakeup = self.transport.groups().wakeup;
            !progress_count::has_running() && wakeup.is_some_and(|wakeup| wakeup.rest(seen, limit))
        });
    }

    /// Pauses between two polls of an arbitrary condition; `rest` puts the thread to sleep.
    pub(crate) fn pause_with(
        &self,
        backoff: &mut Backoff,
        rest: impl FnOnce(&mut u64, Duration) -> bool,
    ) {
        if backoff.is_long() {
            log::deliver(1);
        }
        backoff.pause_on(&self.spins, rest);
    }
}

impl Drop for SharedTransport {
    fn drop(&mut self) {
        self.count(false);
        let (kind, closed) = (self.kind.to_string_lossy(), self.transport.close());
        log::failure(format_args!("closing a communicator of kind {kind}"), closed);
    }
}
