//! Start of a collective: checks the arguments, then tries the implementations (stages) in order:
//! device library, staging, native collective, own algorithms.

use super::algorithms::args::area;
use super::algorithms::choice::{Algorithm, Allowed, choose};
use super::algorithms::{self as algorithm, AlgorithmChoice};
use super::coll_exec::{CallMode, StartedColl};
use super::{Buffer, CollArgs, Root, coll_device, coll_native, coll_staging};
use crate::error::{Result, fail};
use crate::runtime::comm::Comm;
use crate::runtime::comm::op_desc::{Kind, OpDesc};
use crate::runtime::comm::posted::Posted;
use crate::runtime::explain;
use crate::runtime::memory::device_only;
use crate::sys::memory::buf::Scratch;
use std::ffi::CStr;
use std::sync::atomic::Ordering;

/// Bits of `Comm::chosen` for native collectives of the transport and of the device's library; the
/// others are those of `Algorithm`.
const NATIVE: u32 = 1 << 31;
const ON_DEVICE: u32 = 1 << 30;

/// Checks the requirements that all algorithms share: a valid root, and buffers that do not
/// overlap.
#[inline]
fn check(comm: &Comm, args: &CollArgs) -> Result<()> {
    if args.row.root != Root::None {
        check_root(comm, args)?;
    }
    match (&args.send, &args.recv) {
        _ if args.in_place => Ok(()),
        (Buffer::Whole(send), Buffer::Whole(recv)) if !send.overlaps(*recv) => Ok(()),
        _ => check_apart(comm, args),
    }
}

fn check_root(comm: &Comm, args: &CollArgs) -> Result<()> {
    let root = args.root;
    if !(0..comm.size).contains(&root) {
        return fail!(
            DTL_ERROR_INVALID_RANK,
            "root {root}: the communicator has ranks 0 to {}",
            comm.size - 1
        );
    }
    if args.in_place && comm.rank != root {
        let name = if args.row.root == Root::Send { "rbuf" } else { "sbuf" };
        return fail!(
            DTL_ERROR_INVALID_ARGUMENT,
            "{name}: DTL_IN_PLACE is for the root (rank {root}) only"
        );
    }
    Ok(())
}

/// Checks that send and receive buffers do not overlap, and that the peers of a neighborhood
/// collective are valid.
#[inline(never)]
fn check_apart(comm: &Comm, args: &CollArgs) -> Result<()> {
    let (send, recv) = (args.send.ranges(), args.recv.ranges());
    // The two areas are usually disjoint, which is cheap to check.
    if let (Some(out), Some(into)) = (area(send), area(recv)) {
        let is_near = out.0.get() < into.1 && into.0.get() < out.1;
        if is_near && send.iter().any(|out| recv.iter().any(|into| out.overlaps(*into))) {
            return fail!(
                DTL_ERROR_INVALID_ARGUMENT,
                "the send and receive buffers overlap: use two buffers, or DTL_IN_PLACE"
            );
        }
    }
    let Some(neighbors) = &args.neighbors else { return Ok(()) };
    neighbors.dests.iter().try_for_each(|rank| comm.check_peer("dests", *rank, false))?;
    neighbors.sources.iter().try_for_each(|rank| comm.check_peer("sources", *rank, false))
}

/// Starts a collective.
#[inline(always)] // row: bcast_8
pub fn begin(comm: &Comm, mode: CallMode, args: &CollArgs) -> Result<StartedColl> {
    check(comm, args)?;
    if device_only::is_any() {
        begin_hidden(comm, mode, args)
    } else {
        begin_on_host(comm, mode, args)
    }
}

/// Starts a collective whose buffers may be device memory: on that memory if the communicator has
/// collectives for the device, otherwise on staging buffers in host memory.
#[cold]
#[inline(never)]
fn begin_hidden(comm: &Comm, mode: CallMode, args: &CollArgs) -> Result<StartedColl> {
    if let Some(begun) = coll_device::begin(comm, args)? {
        return Ok(begun);
    }
    if let Some(begun) = coll_native::begin_on_device(comm, args)? {
        return Ok(begun);
    }
    let (args, stage) = coll_staging::stage(comm, args.clone())?;
    let begun = begin_on_host(comm, mode, &args)?;
    if stage.is_empty() { Ok(begun) } else { begun.with(stage) }
}

/// Starts a collective on memory that the host can access: a native collective if the transport has
/// one, otherwise an algorithm of the library.
#[inline(always)] // row: bcast_8
fn begin_on_host(comm: &Comm, mode: CallMode, args: &CollArgs) -> Result<StartedColl> {
    if let Some(native) = &comm.native_collectives {
        if let Some(begun) = coll_native::begin(comm, native.part(), mode, args)? {
            return Ok(begun);
        }
    }
    let how = comm.choose(args);
    if let Some(mailboxes) = comm.mailboxes.as_ref().filter(|_| how == Algorithm::Mailbox) {
        return comm.prepare_flat(args, mailboxes);
    }
    begin_by_steps(comm, how, args)
}

#[inline(never)]
fn begin_by_steps(comm: &Comm, how: Algorithm, args: &CollArgs) -> Result<StartedColl> {
    let choice = AlgorithmChoice { how, levels: comm.levels.as_ref() };
    comm.prepare(OpDesc::of(args), args.reduction, |s, g| (args.row.list)(s, g, choice, args))
}

/// Starts a barrier that is recorded as an operation of kind `kind`. It uses the library's own
/// algorithms, so that this rank serves requests from other ranks while it waits.
pub(crate) fn start_barrier(comm: &Comm, kind: Kind) -> Result<StartedColl> {
    let args = CollArgs::new(kind);
    match &comm.mailboxes {
        Some(mailboxes) => comm.prepare_flat(&args, mailboxes),
        None => comm.prepare(OpDesc::of(&args), None, |s, g| algorithm::barrier(s, g)),
    }
}

/// Executes a barrier.
#[inline]
pub fn barrier(comm: &Comm) -> Result<()> {
    const ARGS: &CollArgs = &CollArgs::new(Kind::Barrier);
    wait(comm, begin_on_host(comm, CallMode::Blocking, ARGS))
}

/// Waits for a collective to complete. If the start of the collective failed, returns the error in
/// `begun`. After a failure, nothing accesses the caller's buffers.
pub fn wait(comm: &Comm, mut begun: Result<StartedColl>) -> Result<()> {
    match &mut begun {
        Ok(StartedColl::Over(_)) => {
            // `Over` owns nothing, and dropping it would be a function call.
            std::mem::forget(begun);
            Ok(())
        }
        Ok(StartedColl::Going(run)) => run.wait(comm),
        Err(_) => begun.map(drop),
    }
}

impl Comm {
    /// Selects the algorithm for a call. Records the first use of each algorithm for `dtl_explain`.
    #[inline]
    fn choose(&self, args: &CollArgs) -> Algorithm {
        let (kind, commutes) = (args.kind, args.commutes());
        let bytes = args.row.deciding_bytes(args.bytes);
        let allowed = Allowed {
            two_level: self
                .levels
                .as_ref()
                .is_some_and(|levels| levels.suit(kind, commutes, self.link.is_deterministic)),
            // Data in a mailbox is aligned to 16 bytes.
            mailboxes: self.mailboxes.as_ref().is_some_and(|mailboxes| bytes <= mailboxes.most)
                && !args.reduction.is_some_and(|by| by.may_need_alignment()),
        };
        let algorithm = choose(kind, self.size, bytes, commutes, allowed);
        let bit = 1_u32 << (algorithm as u32);
        let chosen = self.chosen.get(kind as usize);
        if let Some(chosen) = chosen.filter(|chosen| chosen.load(Ordering::Relaxed) & bit == 0) {
            chosen.fetch_or(bit, Ordering::Relaxed);
            self.explain_choice(kind, algorithm, bytes);
        }
        algorithm
    }

    /// Records the first use of a native collective of the transport, or of the device's library if
    /// `by_device` is true, for `dtl_explain`.
    #[inline]
    pub(super) fn explain_native(&self, kind: Kind, by_device: bool) {
        let Some(chosen) = self.chosen.get(kind as usize) else { return };
        let bit = if by_device { ON_DEVICE } else { NATIVE };
        if chosen.load(Ordering::Relaxed) & bit == 0 {
            chosen.fetch_or(bit, Ordering::Relaxed);
            let by = if by_device { self.kind() } else { self.link.kind };
            self.explain_executor(kind, by);
        }
    }

    #[cold]
    fn explain_executor(&self, kind: Kind, by: &CStr) {
        let text = format!("executed by the backend itself, first over {} ranks", self.size);
        explain::chose(&format!("{} by {}", kind.name(), by.to_string_lossy()), &text);
    }

    #[cold]
    fn explain_choice(&self, kind: Kind, algorithm: Algorithm, bytes: usize) {
        let topic = format!("{} {}", kind.name(), algorithm.name());
        let kind = self.link.kind.to_string_lossy();
        let text = format!("first used with {bytes} bytes over {} ranks ({kind})", self.size);
        explain::chose(&topic, &text);
    }
}

/// Gathers a few 64-bit words from each rank and returns, on every rank, all words in rank order.
/// Uses Bruck's algorithm, because a ring needs as many rounds, and as many steps, as there are
/// ranks.
pub(crate) fn allgather_words(comm: &Comm, kind: Kind, mine: &[u64]) -> Result<Vec<u64>> {
    let memory =
        |scratch| Posted::lent(&comm.link, scratch, "an allgather of a few words per rank");
    let all = memory(Scratch::new(size_of_val(mine) * comm.size as usize))?;
    let mine = memory(Scratch::of_words(mine))?;
    let (send, recv) = (mine.region(), all.region());
    let begun = comm.prepare(OpDesc::new(kind), None, |s, g| {
        algorithm::allgather(s, g, Algorithm::Bruck, (send, recv))
    });
    wait(comm, begun)?;
    Ok(all.words())
}
