//! Transport that passes messages directly to MPI, for communicators without time limits: MPI
//! matches the messages, and a send that MPI has started cannot be canceled. A communicator of the
//! library consists of two MPI communicators: one carries the program's messages, which are
//! distinguished by their tags alone; the other carries the library's internal messages.
//!
//! The ID of an operation encodes MPI's request handle (`ids`), so most operations allocate no
//! memory and acquire no lock. `op_extras` contains all state of an operation in addition to its
//! request.
//!
//! `completion` completes operations, `framed` is for communicators with time limits, `collective`
//! implements the collectives, `discovery` and `mpi_library` choose the MPI library.

use super::comm::grow::MpiGrow;
use super::comm::{duplicate, of_ranks, or_free, place_in, stale_messages};
use super::ids::{id_of, request_of};
use super::library::functions::{Handle, Status};
use super::library::mpi_library::{Hold, Mpi, PendingFree, checked};
use super::locality::Node;
use super::message::{self, Envelope, LARGE, tag_limit};
use super::op_extras::{OpExtra, OpExtras};
use super::status::Reader;
use super::window;
use crate::abi::comm::communicator::{DTL_ANY_SOURCE, DTL_TAG_MAX};
use crate::error::{Result, fail};
use crate::runtime::component::{
    Completion, Dest, Groups, Matched, OpId, Properties, RecvMode, Selector, SendMode, ThreadCheck,
    Transport,
};
use crate::sys::compute::callback::ForeignTester;
use crate::sys::memory::buf::{Region, Scratch};
use crate::sys::sync::lock::Mutex;
use std::ffi::c_int;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;

/// Message classes, stored in bits 28 to 31 of the match bits.
const USER: u64 = 0;
const COLLECTIVE: u64 = 1;
const SERVICE: u64 = 2;

/// Transport of one communicator. The fields that every message uses come first, in one cache line.
#[repr(C, align(64))]
pub(super) struct MpiTransport {
    pub(super) mpi: &'static Mpi,
    /// MPI communicator for the program's messages and for the collectives that MPI executes.
    pub(super) user: Handle,
    /// Request handle that MPI returns for every send that completes immediately
    /// (`message::over_at_once`), or MPI_REQUEST_NULL if there is no such request.
    over_at_once: Handle,
    /// Highest tag of this MPI.
    tag_limit: c_int,
    /// Highest tag, at most DTL_TAG_MAX, that the loaded MPI library supports for the application's
    /// messages.
    user_limit: u32,
    pub(super) rank: c_int,
    pub(super) reader: Reader,
    /// Object that tests this transport's operations for completion by calling MPI's test function
    /// directly.
    pub(super) asking: Arc<ForeignTester>,
    pub(super) extras: OpExtras,
    /// MPI communicator that carries the library's internal messages.
    inner: Handle,
    pub(super) size: c_int,
    /// True if this transport owns `user` and frees it.
    owns_user: bool,
    /// True if the communicator is revoked.
    pub(super) is_revoked: AtomicBool,
    pub(super) is_intel: bool,
    /// Reason why MPI's windows are not used; `Ok` if they are.
    windows: Result<(), &'static str>,
    properties: Properties,
    /// Messages that a matched probe has matched and that have not been received, with their sizes
    /// in bytes.
    taken: Mutex<Vec<(Handle, u64)>>,
    /// Reference to MPI, dropped after all other fields: if the library initialized MPI, MPI is
    /// finalized when the last `Hold` is dropped.
    _hold: Hold,
}

impl MpiTransport {
    /// Opens a transport over two MPI communicators with the same ranks; collective over these
    /// ranks. If `is_borrowed` is true, the program still owns `user`. If opening fails, the
    /// communicators that the library owns are freed. Requires an `MpiGuard`.
    pub(super) fn open(
        mpi: &'static Mpi,
        user: Handle,
        inner: Handle,
        is_borrowed: bool,
    ) -> Result<Self> {
        let both = [inner, user];
        let ours = both.get(..2 - usize::from(is_borrowed)).unwrap_or(&both);
        let opened = stale_messages::discard(mpi, ours)
            .and_then(|()| MpiTransport::over(mpi, user, inner, is_borrowed));
        or_free(mpi, ours, opened)
    }

    fn over(mpi: &'static Mpi, user: Handle, inner: Handle, is_borrowed: bool) -> Result<Self> {
        let ((rank, size), tag_limit) = (place_in(mpi, inner)?, tag_limit(mpi)?);
        let node = Node::of(mpi, inner, rank, size)?;
        // This is the last call that can fail, because its request would have to be freed.
        let over_at_once = message::over_at_once(mpi, inner, rank)?;
        // 200 attempts take some ten microseconds; a shared processor is needed by other ranks.
        let asking = Arc::new(mpi.asking(if node.is_oversubscribed { 1 } else { 200 }));
        Ok(MpiTransport {
            mpi,
            user,
            inner,
            owns_user: !is_borrowed,
            is_revoked: AtomicBool::new(false),
            rank,
            size,
            reader: Reader::of(mpi),
            tag_limit,
            user_limit: tag_limit.min(DTL_TAG_MAX).unsigned_abs(),
            extras: OpExtras::new(Arc::clone(&asking)),
            asking,
            over_at_once: over_at_once.unwrap_or(mpi.k.request_null),
            is_intel: mpi.version.starts_with("Intel"),
            windows: window::support(mpi),
            properties: Properties {
                grow: Some(Arc::new(MpiGrow(mpi, inner))),
                ..properties(mpi, (rank, size), node)
            },
            taken: Mutex::new(Vec::new()),
            _hold: Hold::new(),
        })
    }

    /// Returns the envelope (peer, tag, communicator) of a message with match bits `word` to or
    /// from `peer`.
    pub(super) fn envelope(&self, peer: c_int, word: u64) -> Result<Envelope> {
        let tag = (word & DTL_TAG_MAX as u64) as c_int;
        // Mask of the bits that every supported tag has.
        let mask = || (1 << (31 - self.tag_limit.saturating_add(1).leading_zeros())) - 1;
        let class = word >> 28 & 0xF;
        if class == USER && tag > self.tag_limit {
            return fail!(
                DTL_ERROR_INVALID_ARGUMENT,
                "tag {tag}: this MPI ({}) takes tags up to {}",
                self.mpi.version,
                self.tag_limit
            );
        }
        let (tag, comm) = match class {
            USER => (tag, self.user),
            // The three kinds of library messages have odd tags, tag 0, and tags 2 modulo 4.
            COLLECTIVE => ((tag & mask() >> 1) << 1 | 1, self.inner),
            SERVICE => (0, self.inner),
            _ => ((tag & mask() >> 2) << 2 | 2, self.inner),
        };
        Ok(Envelope { peer, tag, comm })
    }

    /// Returns true if a message with match bits `word` is passed to MPI directly, with `word` as
    /// the tag. This requires that the message is not an internal message of the library, that it
    /// has at most `LARGE` bytes, and that threads may call MPI concurrently (MPI_THREAD_MULTIPLE).
    #[inline(always)] // row: mpi_message_8
    fn is_plain(&self, data: Region, word: u64) -> bool {
        // The upper bits of the match word are its class, which is 0 for the program's messages.
        word as u32 <= self.user_limit && data.len() <= LARGE && self.mpi.is_multiple()
    }

    /// Returns the envelope (source, tag, communicator) for a receive with the selector `select`.
    pub(super) fn wanted(&self, select: Selector) -> Result<Envelope> {
        let Selector { source, match_bits: word, ignore } = select;
        let peer = if source == DTL_ANY_SOURCE { self.mpi.k.any_source } else { source };
        let mut envelope = self.envelope(peer, word)?;
        if ignore != 0 && word >> 28 & 0xF == USER {
            envelope.tag = self.mpi.k.any_tag;
        }
        Ok(envelope)
    }

    /// Opens a separate transport for the listed ranks.
    pub(super) fn of_some(&self, ranks: &[i32], number: u32) -> Result<MpiTransport> {
        let _turn = self.mpi.enter()?;
        let everybody = ranks.len() == self.size.unsigned_abs() as usize
            && (0..).zip(ranks).all(|(at, rank)| at == *rank);
        let comm = if everybody {
            duplicate(self.mpi, self.user)?
        } else {
            let tag = (number % self.tag_limit.unsigned_abs()) as c_int;
            of_ranks(self.mpi, self.inner, ranks, tag)?
        };
        let copy = or_free(self.mpi, &[comm], duplicate(self.mpi, comm))?;
        let mut some = MpiTransport::open(self.mpi, comm, copy, false)?;
        // The ranks that are not members continue to run on the same processors.
        let is_oversubscribed =
            [&some, self].iter().any(|of| of.properties.is_oversubscribed == Some(true));
        some.properties.is_oversubscribed = Some(is_oversubscribed);
        some.asking.limit(self.asking.often());
        Ok(some)
    }

    #[cold]
    #[inline(never)]
    fn send_checked(
        &self,
        data: Region,
        to: Dest,
        mode: SendMode,
        may_block: bool,
    ) -> Result<OpId> {
        let to = self.envelope(to.rank, to.word)?;
        let _turn = self.mpi.enter()?;
        self.send_on(to, data, mode, may_block)
    }

    #[cold]
    #[inline(never)]
    fn recv_checked(&self, data: Region, select: Selector, mode: RecvMode<'_>) -> Result<OpId> {
        let wanted = self.wanted(select)?;
        let _turn = self.mpi.enter()?;
        self.recv_on(wanted, data, mode)
    }

    /// Sends a message on a communicator. Requires an `MpiGuard`.
    #[inline(always)] // row: mpi_message_8
    fn send_on(&self, to: Envelope, data: Region, mode: SendMode, may_block: bool) -> Result<OpId> {
        if data.len() <= LARGE && may_block {
            return message::send(self.mpi, to, data, mode).map(|()| OpId::COMPLETED);
        }
        let request = message::start_send(self.mpi, to, data, mode)?;
        if request == self.over_at_once {
            return message::wait(self.mpi, request).map(|()| OpId::COMPLETED);
        }
        Ok(id_of(request, true))
    }

    /// Posts a receive. If `mode` is `Block` and `data` has at most `LARGE` bytes, waits until the
    /// message has been received. Requires an `MpiGuard`.
    #[inline(always)] // row: mpi_message_8
    fn recv_on(&self, from: Envelope, data: Region, mode: RecvMode<'_>) -> Result<OpId> {
        match mode {
            RecvMode::Block(completion) if data.len() <= LARGE => {
                let mut status = Status::new();
                match message::recv(self.mpi, from, data, &mut status) {
                    0 if completion.is_unasked() => {}
                    0 => self.reader.tell(self.mpi, &status, completion),
                    code => *completion = self.failed("MPI_Recv", code, &status),
                }
                Ok(OpId::COMPLETED)
            }
            _ => {
                let request = message::start_recv(self.mpi, from, data)?;
                Ok(id_of(request, false))
            }
        }
    }
}

fn properties(mpi: &Mpi, (rank, size): (c_int, c_int), node: Node) -> Properties {
    // True if MPI accepts pointers to CUDA device memory.
    let takes_cuda = message::takes_cuda(mpi);
    let device = if takes_cuda { "; takes memory of CUDA's devices" } else { "" };
    let description =
        format!("{}; MPI's own messages and collectives; {}{device}", mpi.name, mpi.level());
    Properties {
        needs_progress: false,
        // Below MPI_THREAD_MULTIPLE, calls of the program and of the library could overlap.
        allows_progress_thread: mpi.is_multiple(),
        is_one_node: node.has_all,
        is_oversubscribed: Some(node.is_oversubscribed),
        device_memory_of: takes_cuda.then_some("cuda"),
        ..Properties::new(rank, size, description)
    }
}

impl Transport for MpiTransport {
    fn properties(&self) -> &Properties {
        &self.properties
    }

    fn groups(&self) -> Groups<'_> {
        Groups {
            rma: self.windows.map(|()| self as _),
            native_collectives: Some(self),
            persistent: Some(self),
            foreign_test: Some(self),
            thread_check: Some(self),
            diagnostics: Some(self),
            ..Groups::NONE
        }
    }

    #[unsafe(link_section = ".text.hot.dtl")]
    fn start_send(&self, data: Region, to: Dest, mode: SendMode, may_block: bool) -> Result<OpId> {
        if mode != SendMode::Synchronous && self.is_plain(data, to.word) {
            let to = Envelope { peer: to.rank, tag: to.word as c_int, comm: self.user };
            return self.send_on(to, data, mode, may_block);
        }
        self.send_checked(data, to, mode, may_block)
    }

    #[unsafe(link_section = ".text.hot.dtl")]
    fn start_recv(&self, data: Region, select: Selector, mode: RecvMode<'_>) -> Result<OpId> {
        let Selector { source, match_bits: word, ignore } = select;
        if source >= 0 && ignore == 0 && self.is_plain(data, word) {
            let from = Envelope { peer: source, tag: word as c_int, comm: self.user };
            return self.recv_on(from, data, mode);
        }
        self.recv_checked(data, select, mode)
    }

    fn probe(&self, select: Selector) -> Result<Option<Completion>> {
        let from = self.wanted(select)?;
        let _turn = self.mpi.enter()?;
        let mut status = Status::new();
        let is_found = message::probe(self.mpi, from, &mut status)?;
        Ok(is_found.then(|| self.done(false, &status)))
    }

    fn take(&self, select: Selector) -> Result<Option<Matched>> {
        let from = self.wanted(select)?;
        let _turn = self.mpi.enter()?;
        let mut status = Status::new();
        let Some(message) = message::take(self.mpi, from, &mut status)? else { return Ok(None) };
        let done = self.done(false, &status);
        self.taken.lock().push((message, done.size));
        Ok(Some(Matched { message: OpId(message), done }))
    }

    fn receive_matched(&self, taken: OpId, data: Region) -> Result<OpId> {
        let _turn = self.mpi.enter()?;
        let size = {
            let mut all = self.taken.lock();
            let at = all.iter().position(|(known, _)| *known == taken.0);
            at.map_or(0, |at| all.swap_remove(at).1)
        };
        // MPI does not define the contents of a receive buffer that is too short: the message is
        // received into a buffer for the whole message, and the bytes that fit are copied.
        let is_cut = size > data.len() as u64;
        let room =
            if is_cut { Scratch::new(usize::try_from(size).unwrap_or(usize::MAX)) } else { None };
        let into = room.as_ref().map_or(data, Scratch::region);
        let request = message::start_matched(self.mpi, taken.0, into)?;
        if let Some(room) = room {
            self.extras.add(request, OpExtra::Roomy { room, into: data });
        }
        Ok(id_of(request, false))
    }

    fn test(&self, op: OpId, completion: &mut Completion) -> Poll<Result<()>> {
        self.test_one(op, completion)
    }

    fn progress(&self) {
        let Ok(_turn) = self.mpi.enter() else { return };
        let from = Envelope { peer: self.mpi.k.any_source, tag: 0, comm: self.inner };
        // The result is ignored: the call only makes MPI progress.
        let _ = message::probe(self.mpi, from, &mut Status::new());
    }

    fn cancel(&self, op: OpId) -> Result<()> {
        let (mut request, is_send) = request_of(op);
        if is_send && !self.mpi.is_over() {
            return fail!(
                DTL_ERROR_NOT_SUPPORTED,
                "{} does not give a message back once its send has begun: wait for it (its \
                 receiver must take it), or use communicators with a time limit",
                self.mpi.version
            );
        }
        let Some(_turn) = self.mpi.enter_unless_over()? else { return Ok(()) };
        if !self.extras.cancel(request) {
            return Ok(());
        }
        // SAFETY: the request is a receive in flight.
        unsafe { checked!(self.mpi, MPI_Cancel(&raw mut request)) }
    }

    fn close(&self) -> Result<()> {
        if self.over_at_once != self.mpi.k.request_null {
            self.mpi.free_soon(PendingFree::Over(self.over_at_once))?;
        }
        // The ranks close a revoked communicator at different times. MPI gives the context of a
        // freed one to a new one, which would receive the messages that are still to arrive.
        if self.is_revoked.load(Ordering::Relaxed) {
            return Ok(());
        }
        self.mpi.free_soon(PendingFree::Comm(self.inner))?;
        if self.owns_user { self.mpi.free_soon(PendingFree::Comm(self.user)) } else { Ok(()) }
    }
}

impl ThreadCheck for MpiTransport {
    fn admit(&self) -> Result<()> {
        self.mpi.enter().map(drop)
    }
}
