//! State that communicators share: an open transport, and contexts that keep their messages apart.
//!
//! A match word is `context 32 | class 4 | tag 28`. Each communicator on a transport has a context
//! of its own; classes keep a communicator's own messages from its user's.

use crate::abi::comm::communicator::DTL_TAG_MAX;
use crate::abi::handle::dtl_backend_t;
use crate::error::{Result, fail};
use crate::runtime::comm::diagnostics::hang_report;
use crate::runtime::comm::progress;
use crate::runtime::component::{Direct, ForeignTest, Liveness, SharedMemory, Transport};
use crate::runtime::explain;
use crate::runtime::registry::{self, Backend};
use crate::sys::handles::owning_ref::OwningRef;
use crate::sys::sync::atomic_update::AtomicUpdate;
use crate::sys::sync::backoff::{self, Backoff};
use std::ffi::CStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

/// Whose message it is: classes never match across, so a user's DTL_ANY_TAG cannot take a
/// collective's message.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::runtime::comm) enum Class {
    User = 0,
    Collective = 1,
    /// Reports: which rank is in which operation, which rank gave up.
    Service = 2,
    /// Survivors agreeing on who they are.
    Agreement = 3,
}

/// Bits of a match word that hold the tag.
pub(in crate::runtime::comm) const TAG_BITS: u64 = DTL_TAG_MAX as u64;

/// The match word of a tag (0 ... DTL_TAG_MAX, checked where it came in).
pub(in crate::runtime::comm) fn match_bits(context: u32, class: Class, tag: i32) -> u64 {
    u64::from(context) << 32 | (class as u64) << 28 | (u64::from(tag as u32) & TAG_BITS)
}

/// An opened transport. Closes with the last communicator on it.
pub(in crate::runtime::comm) struct SharedTransport {
    pub(in crate::runtime::comm) transport: Arc<dyn Transport>,
    // Groups of the transport.
    pub(in crate::runtime::comm) liveness: Option<OwningRef<dyn Liveness, dyn Transport>>,
    pub(in crate::runtime::comm) shared_memory: Option<OwningRef<dyn SharedMemory, dyn Transport>>,
    pub(in crate::runtime::comm) foreign_test: Option<OwningRef<dyn ForeignTest, dyn Transport>>,
    /// Its share keeps the backend registered.
    backend: Arc<Backend>,
    pub(in crate::runtime::comm) kind: &'static CStr,
    /// Whether reductions are to be bitwise the same as on other kinds.
    pub(in crate::runtime::comm) is_deterministic: bool,
    /// The backend whose device memory the transport takes as it is; `None`: all is staged.
    pub(in crate::runtime::comm) direct: Option<dtl_backend_t>,
    /// Whether it moves large messages of any device's memory as it is, if it can.
    is_direct: bool,
    /// Polls that spin before the first yield.
    spins: u32,
    /// Contexts that this rank has given to communicators whose first rank it was.
    contexts: AtomicU32,
    /// Contexts to which notices may still come.
    pub(in crate::runtime::comm) retired: hang_report::Retired,
    /// Set when the transport failed to cancel an operation: it may still use the buffer.
    lost: AtomicBool,
}

impl SharedTransport {
    pub(in crate::runtime::comm) fn new(
        transport: Box<dyn Transport>,
        backend: Arc<Backend>,
        is_deterministic: bool,
    ) -> Self {
        let transport: Arc<dyn Transport> = Arc::from(transport);
        let kind = crate::runtime::for_ever(&backend.name);
        let spins = backoff::spins(transport.properties().is_oversubscribed);
        let (direct, is_direct, contexts) = (None, false, AtomicU32::new(0));
        if transport.groups().native_collectives.is_some() {
            explain::chose(
                "collectives",
                &format!("{}'s own, where it has them", kind.to_string_lossy()),
            );
        }
        let lost = AtomicBool::new(false);
        let retired = hang_report::Retired::default();
        let link = SharedTransport {
            liveness: OwningRef::find(Arc::clone(&transport), |of| of.groups().liveness),
            shared_memory: OwningRef::find(Arc::clone(&transport), |of| of.groups().shared_memory),
            foreign_test: OwningRef::find(Arc::clone(&transport), |of| of.groups().foreign_test),
            transport,
            backend,
            kind,
            is_deterministic,
            direct,
            is_direct,
            spins,
            contexts,
            retired,
            lost,
        };
        progress::count(&link, true);
        link
    }

    /// Enables direct transfers of device memory, without staging, if the transport has them.
    pub(in crate::runtime::comm) fn with_direct(mut self) -> Self {
        let named = self.transport.properties().device_memory_of.and_then(registry::lookup);
        self.direct = named.map(|backend| backend.handle());
        self.is_direct = self.transport.groups().device_memory.is_some();
        self
    }

    /// Whether the transport may still use the buffer of an operation that it failed to cancel. In
    /// that case memory that was lent to operations of this link is leaked instead of freed.
    pub(in crate::runtime::comm) fn has_lost(&self) -> bool {
        self.lost.load(Ordering::Relaxed)
    }

    /// Records that the library gave up an operation which the transport may still carry out.
    pub(in crate::runtime::comm) fn lose(&self) {
        self.lost.store(true, Ordering::Relaxed);
    }

    /// How large messages of device memory go as they are.
    pub(in crate::runtime::comm) fn direct(&self) -> Option<&dyn Direct> {
        if self.is_direct { self.transport.groups().device_memory } else { None }
    }

    /// The link of a communicator of some of the ranks, with the context in it: a transport of its
    /// own if there is such, else this one.
    pub(in crate::runtime::comm) fn subset(
        self: &Arc<Self>,
        ranks: &[i32],
        context: u32,
    ) -> Result<Option<Arc<Self>>> {
        let Some(native) = self.transport.groups().native_collectives else { return Ok(None) };
        let transport = native.subset(ranks, context)?;
        let mut link =
            SharedTransport::new(transport, Arc::clone(&self.backend), self.is_deterministic);
        (link.direct, link.is_direct) = (self.direct, self.is_direct);
        Ok(Some(Arc::new(link)))
    }

    /// The transport's own text about what has just failed.
    pub(in crate::runtime::comm) fn failure_text(&self) -> Option<String> {
        self.transport.groups().diagnostics?.failure_text()
    }

    /// A context that no other communicator on this transport has or had: numbers of different
    /// ranks never meet, as each is congruent to its maker's rank.
    pub(in crate::runtime::comm) fn new_context(&self) -> Result<u32> {
        let (rank, size) =
            (self.transport.rank().unsigned_abs(), self.transport.size().unsigned_abs());
        let next = |made: u32| made.checked_add(1);
        let made = self.contexts.checked_update(Ordering::Relaxed, Ordering::Relaxed, next);
        // 0 is the opened communicator's.
        let context =
            made.ok().and_then(|made| made.checked_mul(size)?.checked_add(rank)?.checked_add(1));
        match context {
            Some(context) => Ok(context),
            None => fail!(
                DTL_ERROR_LIMIT,
                "this rank has made {} communicators from one: open a new one (dtl_comm_open)",
                u32::MAX / size.max(1)
            ),
        }
    }

    /// Pauses between two polls of an operation.
    pub(in crate::runtime::comm) fn pause(&self, backoff: &mut Backoff) {
        // Progress of the other ranks on started collectives does not wake a thread that waits for
        // something else.
        self.pause_with(backoff, |seen, limit| {
            let wakeup = self.transport.groups().wakeup;
            !progress::has_running() && wakeup.is_some_and(|wakeup| wakeup.rest(seen, limit))
        });
    }

    /// Pauses between two polls of something else than an operation, with `rest` as its sleep.
    #[inline]
    pub(in crate::runtime::comm) fn pause_with(
        &self,
        backoff: &mut Backoff,
        rest: impl FnOnce(&mut u64, Duration) -> bool,
    ) {
        backoff.pause_on(self.spins, rest);
    }
}

impl Drop for SharedTransport {
    fn drop(&mut self) {
        progress::count(self, false);
        if let Err(error) = self.transport.close() {
            crate::runtime::log::warning!(
                "closing a communicator of kind {}: {error}",
                self.kind.to_string_lossy()
            );
        }
    }
}
