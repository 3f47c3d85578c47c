//! Memory of a rank, computed from the sizes of the library's own structures in this build. The
//! memory of an underlying MPI or device library and the overhead of the allocator are not
//! included.

use super::count::Counts;
use super::wanted::Kind;
use dtl::tooling::schedules::{
    CollectivePlan, DryRunJob, STEP_BYTES, comm_bytes, hier, p2p_protocol, rdma, shm,
};

/// Maximum number of ranks of a communicator of kind "shm".
pub(crate) const SHM_RANKS: i32 = shm::MOST_RANKS as i32;

/// Returns true if communicators of this kind, with this number of ranks, run the collective
/// through mailboxes in shared memory instead of messages.
pub(crate) fn uses_mailboxes(kind: Kind, job: &DryRunJob, plan: &CollectivePlan) -> bool {
    let ranks = job.ranks.unsigned_abs() as usize;
    kind == Kind::Shm && ranks <= shm::MAILBOX_RANKS && plan.prefers_mailboxes(shm::MAILBOX_ROOM)
}

/// Memory of one rank in bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Memory {
    /// Number of bytes that the communicator and its transport occupy before the first message.
    pub(crate) comm: u64,
    /// Number of bytes that the transport allocates for the partners of a rank (the ranks with
    /// which it exchanges messages). The number of partners is the maximum over all ranks in this
    /// collective.
    pub(crate) partners: u64,
    /// Maximum size in bytes of the rank's list of steps (operations to execute) during the
    /// collective.
    pub(crate) list: u64,
    /// Maximum size in bytes of the scratch memory during the collective.
    pub(crate) scratch: u64,
}

impl Memory {
    pub(crate) fn of(kind: Kind, job: &DryRunJob, counts: &Counts) -> Memory {
        let ranks = u64::from(job.ranks.unsigned_abs());
        let (fixed, each, partner) = match kind {
            Kind::Mpi => {
                (p2p_protocol::FIXED_BYTES, p2p_protocol::RANK_BYTES, p2p_protocol::PARTNER_BYTES)
            }
            Kind::Rdma => (rdma::FIXED_BYTES, rdma::RANK_BYTES, rdma::PARTNER_BYTES),
            Kind::Shm => {
                (shm::FIXED_BYTES, shm::RANK_BYTES, shm::PARTNER_BYTES + 2 * shm::RING_BYTES)
            }
        };
        let nodes = match job.per_node.unsigned_abs() {
            0 => 1,
            each => ranks.div_ceil(each.into()),
        };
        // Over several nodes the table of who is where, and another transport within the node.
        let inside = if nodes > 1 {
            let local = u64::from(job.per_node.unsigned_abs());
            ranks * hier::RANK_BYTES as u64
                + shm::FIXED_BYTES as u64
                + local * shm::RANK_BYTES as u64
        } else {
            0
        };
        Memory {
            comm: comm_bytes(ranks, nodes, false) + fixed as u64 + ranks * each as u64 + inside,
            partners: counts.most_partners * partner as u64,
            list: counts.most_steps * STEP_BYTES as u64,
            scratch: counts.most_scratch,
        }
    }
}
