//! Creation of communicators from other communicators: duplicates, splits, and communicators that
//! consist of a given list of ranks. A new communicator uses the transport of its parent, and a
//! separate context isolates its messages, unless a separate transport is opened for it
//! (`SharedTransport::subset`).

use super::shrinking::MailboxReservation;
use crate::abi::comm::communicator::DTL_UNDEFINED;
use crate::abi::handle::dtl_comm_t;
use crate::error::{Result, fail, failure};
use crate::runtime::comm::Comm;
use crate::runtime::comm::coll::{allgather_words, coll_device};
use crate::runtime::comm::comm_table::{OPEN, insert, put};
use crate::runtime::comm::diagnostics::hang_report::{self, reports::Revocation};
use crate::runtime::comm::op_desc::Kind;
use crate::runtime::comm::rank_map::Members;
use crate::sys::os::process;
use std::sync::Arc;

/// Reservation of a mailbox slot (shared memory for small collectives) for this rank, and the slot
/// numbers of all members of a new communicator.
type MailboxSlots = (MailboxReservation, Vec<u32>);

/// Gathers, from all ranks, the data needed to create a communicator and the `N` 64-bit words in
/// `payload`. Returns the context that rank 0 has assigned, the mailbox slots, and the words of all
/// ranks.
fn exchange<const N: usize>(
    comm: &Comm,
    kind: Kind,
    payload: [u64; N],
) -> Result<(u32, MailboxSlots, Vec<[u64; N]>)> {
    let reservation = MailboxReservation::reserve(&comm.link);
    // 0 if no context is left, and on all other ranks.
    let context = if comm.rank == 0 { comm.link.new_context().map_or(0, u64::from) } else { 0 };
    let mine: Vec<u64> =
        [context, u64::from(reservation.place)].into_iter().chain(payload).collect();
    let words = allgather_words(comm, kind, &mine)?;
    let context = words.first().map_or(0, |context| *context as u32);
    if context == 0 {
        return fail!(
            DTL_ERROR_LIMIT,
            "rank 0 has no context left for another communicator: open a new one"
        );
    }
    let places = words.iter().skip(1).step_by(mine.len()).map(|place| *place as u32);
    let payloads = words.chunks_exact(mine.len()).filter_map(<[u64]>::last_chunk).copied();
    Ok((context, (reservation, places.collect()), payloads.collect()))
}

/// Returns `made`, the result of creating a communicator on this rank. If it is an error, notifies
/// the other ranks, on which the creation may have succeeded. `number` is the number of the
/// collective that creates the communicator.
#[inline]
pub(super) fn or_absent<T>(comm: &Comm, number: u64, made: Result<T>) -> Result<T> {
    made.inspect_err(|_| hang_report::absent(comm, number))
}

/// Returns the position of `rank` in `ranks`. In a communicator of these ranks, this position is
/// the new rank.
fn place_of(rank: i32, ranks: &[i32]) -> Option<i32> {
    (0..).zip(ranks).find(|(_, member)| **member == rank).map(|(place, _)| place)
}

/// Creates a communicator of the members `ranks` of `comm`, which include this rank. `number` is
/// the number of the collective that creates the communicator.
pub(crate) fn derive(
    comm: &Comm,
    ranks: &[i32],
    context: u32,
    (mut reservation, places): MailboxSlots,
    number: u64,
) -> Result<Comm> {
    let rank = place_of(comm.rank, ranks)
        .ok_or_else(|| failure!(DTL_ERROR_INTERNAL, "this rank is not in its own group"))?;
    let outer: Vec<i32> = ranks.iter().map(|member| comm.to_world(*member)).collect();
    let size = i32::try_from(ranks.len()).unwrap_or(i32::MAX);
    if let Some(own) = comm.link.subset(&outer, context)? {
        return Comm::new(own, 0, None, (rank, size), comm.timeout_ns)
            .with_mailboxes(std::iter::repeat(0));
    }
    let members = Members::new(outer, comm.link.transport.size());
    let made = Comm::new(Arc::clone(&comm.link), context, members, (rank, size), comm.timeout_ns);
    let made = made.made_by(comm, number);
    // Mailboxes are for communicators all of whose ranks have a slot (0: none).
    if places.contains(&0) {
        return Ok(made);
    }
    reservation.place = 0;
    made.with_mailboxes(places.into_iter())
}

/// Duplicates a communicator. The copy callback of each attribute key decides whether the attribute
/// is copied.
pub fn dup(comm: &Comm, handle: dtl_comm_t) -> Result<dtl_comm_t> {
    let copy = internal_dup(comm, Kind::Dup)?;
    let number = comm.latest_number();
    let copied = coll_device::pass_on(comm, copy).and_then(|copy| {
        comm.attributes.copy_to(&copy.attributes, handle)?;
        insert(copy)
    });
    or_absent(comm, number, copied)
}

/// Creates a communicator of the same ranks with a new context, without copying attributes.
pub(crate) fn internal_dup(comm: &Comm, kind: Kind) -> Result<Comm> {
    Ok(dup_and_exchange(comm, kind, [])?.0)
}

/// Creates a communicator of the same ranks with a new context, without copying attributes. Also
/// gathers the `N` 64-bit words `payload` of every rank, and returns them in rank order.
fn dup_and_exchange<const N: usize>(
    comm: &Comm,
    kind: Kind,
    payload: [u64; N],
) -> Result<(Comm, Vec<[u64; N]>)> {
    let (context, slots, exchanged) = exchange(comm, kind, payload)?;
    let ranks: Vec<i32> = (0..comm.size).collect();
    let number = comm.latest_number();
    let made = derive(comm, &ranks, context, slots, number);
    Ok((or_absent(comm, number, made)?, exchanged))
}

/// Creates a communicator of the same ranks for internal use; its handle is never returned to the
/// program. Also gathers the `N` 64-bit words `payload` of every rank, and returns them in rank
/// order. Revoking or destroying `ends_with` also ends the collectives of the new communicator.
pub(crate) fn private<const N: usize>(
    comm: &Comm,
    kind: Kind,
    payload: [u64; N],
    ends_with: Option<Arc<Comm>>,
) -> Result<(Arc<Comm>, Vec<[u64; N]>)> {
    let (mut made, exchanged) = dup_and_exchange(comm, kind, payload)?;
    let number = comm.latest_number();
    (made.window_of, made.ends_with) = (Some(comm.handle().id), ends_with);
    let made = Arc::new(made);
    OPEN.add(&made);
    // A revocation that another thread has recorded before `add` has not reached `made`.
    if let Some(by @ Revocation::Rank(_)) = comm.reports.revocation() {
        hang_report::revoke(&made, by);
    }
    or_absent(comm, number, put(&made))?;
    Ok((made, exchanged))
}

/// Creates one communicator for each color, with its ranks ordered by key. Returns the null handle
/// if `color` is DTL_UNDEFINED.
pub fn split(comm: &Comm, color: i32, key: i32) -> Result<dtl_comm_t> {
    split_as(Kind::Split, comm, color, key)
}

fn split_as(kind: Kind, comm: &Comm, color: i32, key: i32) -> Result<dtl_comm_t> {
    if color < 0 && color != DTL_UNDEFINED {
        return fail!(DTL_ERROR_INVALID_ARGUMENT, "color {color}: use 0 or more, or DTL_UNDEFINED");
    }
    let payload = [color as u32 as u64, key as u32 as u64];
    let (context, (reservation, places), all) = exchange(comm, kind, payload)?;
    if color == DTL_UNDEFINED {
        return Ok(dtl_comm_t { id: 0 });
    }
    let all = (0..).zip(places).zip(all);
    let same = all.filter(|(_, [its, _])| *its as u32 as i32 == color);
    let mut same: Vec<(i32, i32, u32)> =
        same.map(|((rank, place), [_, key])| (key as u32 as i32, rank, place)).collect();
    same.sort_unstable();
    let (ranks, places): (Vec<i32>, Vec<u32>) =
        same.into_iter().map(|(_, rank, place)| (rank, place)).unzip();
    let number = comm.latest_number();
    let made = derive(comm, &ranks, context, (reservation, places), number)
        .and_then(|made| coll_device::pass_on(comm, made))
        .and_then(insert);
    or_absent(comm, number, made)
}

/// Creates one communicator for each node, with its ranks ordered by key.
pub fn split_node(comm: &Comm, key: i32) -> Result<dtl_comm_t> {
    let node = match comm.nodes() {
        Some(nodes) => nodes.get(comm.rank as usize).copied().unwrap_or(0),
        None => node_by_id(comm)?,
    };
    split(comm, node, key)
}

/// Returns the lowest rank on the node of this rank. Ranks are on the same node if the kernel
/// reports the same boot id to them. Collective.
fn node_by_id(comm: &Comm) -> Result<i32> {
    let id = process::node_id();
    // All ranks make the same sequence of calls, also if a rank has no node id.
    let ids = allgather_words(comm, Kind::Split, &[*id.as_ref().unwrap_or(&0)])?;
    if ids.contains(&0) {
        let why =
            id.map_or_else(|error| error.to_string(), |_| "another rank cannot read it".to_owned());
        return fail!(
            DTL_ERROR_NOT_SUPPORTED,
            "the nodes cannot be told apart without the kernel's boot id: {why}"
        );
    }
    let own = ids.get(comm.rank as usize);
    let first = ids.iter().position(|id| Some(id) == own).unwrap_or(0);
    Ok(i32::try_from(first).unwrap_or(0))
}

/// Creates a communicator of the ranks in `ranks`, in list order. All ranks of `comm` must call
/// this function with the same list. Returns the null handle on ranks that are not listed.
pub fn create(comm: &Comm, ranks: &[i32]) -> Result<dtl_comm_t> {
    let mut seen = vec![false; comm.size as usize];
    for rank in ranks {
        match usize::try_from(*rank).ok().and_then(|rank| seen.get_mut(rank)) {
            Some(seen) if !*seen => *seen = true,
            Some(_) => return fail!(DTL_ERROR_INVALID_ARGUMENT, "ranks: {rank} is listed twice"),
            None => {
                return fail!(
                    DTL_ERROR_INVALID_RANK,
                    "ranks: {rank} is none; the communicator has ranks 0 to {}",
                    comm.size - 1
                );
            }
        }
    }
    let place = place_of(comm.rank, ranks);
    let (color, key) = place.map_or((DTL_UNDEFINED, 0), |place| (0, place));
    split_as(Kind::GroupCreate, comm, color, key)
}
