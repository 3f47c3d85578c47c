//! Queue pair: one side of a reliable connection to a peer.

use super::errors::{call_failed, last_failed};
use super::functions::*;
use super::port_select;
use super::rail::{Completions, Rail};
use super::types::*;
use crate::backend::rdma::config::Config;
use crate::error::{Result, fail};
use crate::sys::memory::buf::Region;
use std::ffi::c_int;
use std::sync::Arc;

/// Maximum number of RDMA reads and atomics in flight per queue pair and direction.
const READS: u8 = 16;
/// Minimum RNR NAK timer in verbs encoding: 12 means that the sender retries after 0.64 ms.
const RECEIVER_PAUSE: u8 = 12;
/// Number of send queue entries per receive queue entry of a queue pair.
pub(crate) const SENDS: u32 = 4;
/// Hop limit of a routed packet.
const HOPS: u8 = 64;

/// Queue pair, one side of a reliable connection to a peer; dropped before its completion queue.
pub(crate) struct QueuePair {
    qp: *mut Qp,
    pub(crate) completions: Arc<Completions>,
    pub(crate) number: u32,
    /// Maximum number of bytes that a work request carries inline.
    pub(crate) inline: usize,
    /// Maximum number of work requests in flight.
    pub(crate) room: usize,
    first_packet: u32,
}

// SAFETY: verbs are thread safe.
unsafe impl Send for QueuePair {}
// SAFETY: verbs are thread safe, so shared references may be used from several threads at once.
unsafe impl Sync for QueuePair {}

/// Attributes of this side's queue pair that the peer needs to connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QpAttributes {
    pub(crate) number: u32,
    pub(crate) first_packet: u32,
    pub(crate) lid: u16,
    /// Maximum number of RDMA reads and atomics from the peer that may be in flight.
    pub(crate) reads: u8,
    pub(crate) mtu: u32,
    pub(crate) gid: Gid,
}

/// Range of a local memory region (MR), with the local key of the region.
#[derive(Clone, Copy)]
pub(crate) struct MrRange {
    pub(crate) region: Region,
    pub(crate) lkey: u32,
    /// True for device memory, which cannot be sent inline, because the CPU cannot read it.
    pub(crate) is_device: bool,
}

impl MrRange {
    pub(crate) const EMPTY: MrRange = MrRange { region: Region::EMPTY, lkey: 0, is_device: false };
}

/// Memory of the peer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Remote {
    pub(crate) addr: u64,
    pub(crate) rkey: u32,
}

/// Kind of a work request with its operands.
#[derive(Clone, Copy)]
pub(crate) enum WorkRequest {
    Send,
    /// Send with immediate data.
    SendNotify(u32),
    Write(Remote),
    WriteNotify(Remote, u32),
    Read(Remote),
    FetchAdd(Remote, u64),
    CompareSwap(Remote, u64, u64),
}

/// Work request with the local memory that it sends or fills.
pub(crate) type Work = (WorkRequest, MrRange);

impl WorkRequest {
    /// Returns true if the request consumes a receive that the peer has posted.
    pub(crate) fn notifies(&self) -> bool {
        use WorkRequest::{Send, SendNotify, WriteNotify};
        matches!(self, Send | SendNotify(_) | WriteNotify(..))
    }

    /// Returns true if the peer's response carries data.
    pub(crate) fn has_response_data(&self) -> bool {
        use WorkRequest::{CompareSwap, FetchAdd, Read};
        matches!(self, Read(_) | FetchAdd(..) | CompareSwap(..))
    }
}

impl QueuePair {
    /// Creates a queue pair to which up to `config.depth` receives can be posted.
    pub(crate) fn make(completions: &Arc<Completions>, config: &Config) -> Result<QueuePair> {
        let receives = config.depth;
        let rail = &completions.rail;
        let most = rail.limits.max_qp_wr.max(1).unsigned_abs();
        let mut inline = config.inline;
        let sends = (SENDS * receives).min(most);
        let (qp, cap) = loop {
            let mut attr = QpInitAttr::zeroed();
            (attr.send_cq, attr.recv_cq) = (completions.cq, completions.cq);
            attr.cap = QpCap {
                max_send_wr: sends,
                max_recv_wr: receives.min(most),
                max_send_sge: 1,
                max_recv_sge: 1,
                max_inline_data: inline,
            };
            attr.qp_type = TYPE_RC;
            // SAFETY: the protection domain and completion queue are alive; the struct is complete.
            let qp = unsafe { (rail.calls.ibv_create_qp)(rail.pd, &raw mut attr) };
            if !qp.is_null() {
                break (qp, attr.cap);
            }
            if inline == 0 {
                return Err(last_failed("ibv_create_qp").within(&rail.name));
            }
            // The device may support fewer inline bytes, or none.
            inline /= 2;
        };
        // SAFETY: the queue pair has just been created.
        let number = unsafe { (*qp).qp_num };
        let first_packet = crate::sys::os::process::random_u64().unwrap_or(0) as u32 & 0x00FF_FFFF;
        let queue = QueuePair {
            qp,
            completions: Arc::clone(completions),
            number,
            inline: cap.max_inline_data as usize,
            room: sends.min(cap.max_send_wr.max(1)) as usize,
            first_packet,
        };
        if cap.max_recv_wr < receives {
            return fail!(
                DTL_ERROR_LIMIT,
                "{} has queue pairs of {} receives, {receives} are wanted: lower DTL_RDMA_DEPTH",
                rail.name,
                cap.max_recv_wr
            );
        }
        queue.initialise(config)?;
        Ok(queue)
    }

    /// Returns true if `qp` is this queue pair.
    pub(crate) fn is(&self, qp: QpIn) -> bool {
        self.qp == qp
    }

    fn rail(&self) -> &Arc<Rail> {
        &self.completions.rail
    }

    /// Moves the queue pair to the error state, so that every work request in flight completes with
    /// an error.
    pub(crate) fn stop(&self) -> Result<()> {
        let mut attr = QpAttr::zeroed();
        attr.qp_state = STATE_ERR;
        self.modify(&mut attr, QP_STATE, "its end")
    }

    /// Returns the attributes that the peer needs to connect to this queue pair.
    pub(crate) fn end(&self) -> QpAttributes {
        let rail = self.rail();
        QpAttributes {
            number: self.number,
            first_packet: self.first_packet,
            lid: rail.lid,
            reads: reads(rail.limits.max_qp_rd_atom),
            mtu: rail.mtu,
            gid: rail.gid,
        }
    }

    fn modify(&self, attr: &mut QpAttr, mask: u32, what: &str) -> Result<()> {
        // SAFETY: this library created the queue pair; the struct is complete.
        let code = unsafe { (self.rail().calls.ibv_modify_qp)(self.qp, attr, mask as c_int) };
        match code {
            0 => Ok(()),
            code => {
                Err(call_failed("ibv_modify_qp", code.abs()).within(what).within(&self.rail().name))
            }
        }
    }

    fn initialise(&self, config: &Config) -> Result<()> {
        let mut attr = QpAttr::zeroed();
        attr.qp_state = STATE_INIT;
        attr.pkey_index = config.pkey_index;
        attr.port_num = self.rail().port;
        attr.qp_access_flags = ACCESS_REMOTE_WRITE | ACCESS_REMOTE_READ | ACCESS_REMOTE_ATOMIC;
        let mask = QP_STATE | QP_PKEY_INDEX | QP_PORT | QP_ACCESS_FLAGS;
        self.modify(&mut attr, mask, "a new queue pair")
    }

    /// Connects the queue pair to the peer's queue pair.
    pub(crate) fn connect(&self, to: &QpAttributes, config: &Config) -> Result<()> {
        let rail = self.rail();
        let mut attr = QpAttr::zeroed();
        attr.qp_state = STATE_RTR;
        attr.path_mtu = rail.mtu.min(to.mtu).max(MTU_256);
        attr.dest_qp_num = to.number;
        attr.rq_psn = to.first_packet;
        attr.max_dest_rd_atomic = reads(rail.limits.max_qp_rd_atom);
        attr.min_rnr_timer = RECEIVER_PAUSE;
        attr.ah_attr.sl = config.service_level;
        attr.ah_attr.port_num = rail.port;
        attr.ah_attr.dlid = to.lid;
        if config.gid_index.is_some() || port_select::needs_route(rail.layer, &rail.gid, &to.gid) {
            attr.ah_attr.is_global = 1;
            attr.ah_attr.dgid = to.gid;
            attr.ah_attr.sgid_index = rail.gid_index;
            attr.ah_attr.hop_limit = HOPS;
            attr.ah_attr.traffic_class = config.traffic_class;
        }
        let mask = QP_STATE
            | QP_AV
            | QP_PATH_MTU
            | QP_DEST_QPN
            | QP_RQ_PSN
            | QP_MAX_DEST_RD_ATOMIC
            | QP_MIN_RNR_TIMER;
        self.modify(&mut attr, mask, "ready to receive")?;
        let mut attr = QpAttr::zeroed();
        attr.qp_state = STATE_RTS;
        attr.timeout = config.timeout;
        attr.retry_cnt = config.retries;
        attr.rnr_retry = config.receiver_retries;
        attr.sq_psn = self.first_packet;
        attr.max_rd_atomic = reads(rail.limits.max_qp_init_rd_atom).min(to.reads.max(1));
        let mask =
            QP_STATE | QP_TIMEOUT | QP_RETRY_CNT | QP_RNR_RETRY | QP_SQ_PSN | QP_MAX_QP_RD_ATOMIC;
        self.modify(&mut attr, mask, "ready to send")
    }

    /// Posts a receive; `into` is `None` for a receive that accepts only immediate data.
    pub(crate) fn receive(&self, id: u64, into: Option<MrRange>) -> Result<()> {
        let mut sge = into.map_or(Sge { addr: 0, length: 0, lkey: 0 }, sge_of);
        let mut wr = RecvWr {
            wr_id: id,
            next: std::ptr::null_mut(),
            sg_list: &raw mut sge,
            num_sge: c_int::from(into.is_some()),
        };
        let mut bad = std::ptr::null_mut();
        // SAFETY: this library created the queue pair; the list has one entry, whose buffer belongs
        // to this library until the receive completes.
        match unsafe { (self.rail().post_recv)(self.qp, &raw mut wr, &raw mut bad) } {
            0 => Ok(()),
            code => Err(call_failed("ibv_post_recv", code.abs()).within(&self.rail().name)),
        }
    }

    /// Posts a work request; returns true if the request carries the bytes of `local` inline. This
    /// function is out of line, because its callers are off the fast path.
    #[cold]
    #[inline(never)]
    pub(crate) fn start_rarely(&self, id: u64, work: Work, signaled: bool) -> Result<bool> {
        self.start(id, work, signaled)
    }

    /// Posts a work request; returns true if the request carries the bytes of `local` inline, so
    /// that the caller may overwrite that memory immediately.
    pub(crate) fn start(&self, id: u64, (work, local): Work, signaled: bool) -> Result<bool> {
        let mut sge = sge_of(local);
        let mut wr = SendWr::zeroed();
        wr.wr_id = id;
        wr.sg_list = &raw mut sge;
        wr.num_sge = c_int::from(!local.region.is_empty());
        let (opcode, remote, takes) = match work {
            WorkRequest::Send => (WR_SEND, None, true),
            WorkRequest::SendNotify(word) => {
                wr.imm_data = word.to_be();
                (WR_SEND_WITH_IMM, None, true)
            }
            WorkRequest::Write(remote) => (WR_RDMA_WRITE, Some(remote), true),
            WorkRequest::WriteNotify(remote, word) => {
                wr.imm_data = word.to_be();
                (WR_RDMA_WRITE_WITH_IMM, Some(remote), true)
            }
            WorkRequest::Read(remote) => (WR_RDMA_READ, Some(remote), false),
            WorkRequest::FetchAdd(remote, add) => {
                wr.rkey_or_compare = add;
                (WR_FETCH_AND_ADD, Some(remote), false)
            }
            WorkRequest::CompareSwap(remote, compare, swap) => {
                (wr.rkey_or_compare, wr.swap) = (compare, swap);
                (WR_COMPARE_AND_SWAP, Some(remote), false)
            }
        };
        wr.opcode = opcode;
        if let Some(remote) = remote {
            wr.remote_addr = remote.addr;
            match work {
                WorkRequest::FetchAdd(..) | WorkRequest::CompareSwap(..) => {
                    wr.atomic_rkey = remote.rkey
                }
                _ => wr.rkey_or_compare = first_half(remote.rkey),
            }
        }
        let inline = takes && !local.is_device && local.region.len() <= self.inline;
        wr.send_flags = if inline && !local.region.is_empty() { SEND_INLINE } else { 0 };
        wr.send_flags |= if signaled { SEND_SIGNALED } else { 0 };
        let mut bad = std::ptr::null_mut();
        // SAFETY: this library created the queue pair; the list has one entry, whose buffer belongs
        // to the caller until the request completes.
        match unsafe { (self.rail().post_send)(self.qp, &raw mut wr, &raw mut bad) } {
            0 => Ok(inline),
            code => Err(call_failed("ibv_post_send", code.abs()).within(&self.rail().name)),
        }
    }
}

impl Drop for QueuePair {
    fn drop(&mut self) {
        // SAFETY: this library created the queue pair; afterwards the device accesses no memory for
        // it, neither for this rank nor for the peer.
        unsafe { (self.rail().calls.ibv_destroy_qp)(self.qp) };
    }
}

/// Returns the number of reads and atomic requests that may be in flight: the device's `limit`,
/// clamped to the range from 1 to `READS`.
fn reads(limit: c_int) -> u8 {
    u8::try_from(limit.clamp(1, c_int::from(READS))).unwrap_or(1)
}

/// Returns a word whose first four bytes in memory are `key`.
fn first_half(key: u32) -> u64 {
    if cfg!(target_endian = "little") { u64::from(key) } else { u64::from(key) << 32 }
}

fn sge_of(local: MrRange) -> Sge {
    Sge {
        addr: local.region.addr().get() as u64,
        length: u32::try_from(local.region.len()).unwrap_or(u32::MAX),
        lkey: local.lkey,
    }
}
