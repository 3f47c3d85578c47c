//! The types of libibverbs.
//!
//! They are those of rdma-core's verbs.h, made by bindgen and cut to what is used here;
//! `tests/rdma_constants.rs` has the C compiler compare them. Of objects that the library makes
//! only the beginning is written down, up to the last field that is read. Results and codes stay
//! plain integers: a newer library may return values that are in no list.
//!
//! The calls of the data path (post_send, post_recv, poll_cq, req_notify_cq) are inline functions
//! in C that go through the tables in an opened device; so they do here.

use std::ffi::{c_char, c_int, c_uint, c_void};

/// `int`
pub type Int = c_int;
/// `int *`
pub type IntOut = *mut c_int;
/// `void`
pub type Nothing = ();
/// `size_t`
pub type Size = usize;
/// `void *`
pub type At = *mut c_void;
/// `const char *`
pub type Text = *const c_char;
/// `uint8_t`
pub type Byte = u8;
/// `uint32_t`
pub type Uint = u32;
/// `uint64_t`
pub type Long = u64;
/// `__be16 *`
pub type ShortOut = *mut u16;
/// `struct ibv_device *`
pub type DeviceIn = *mut c_void;
/// `struct ibv_device **`
pub type Devices = *mut *mut c_void;
/// `struct ibv_context *`
pub type ContextIn = *mut Context;
/// `struct ibv_pd *`
pub type PdIn = *mut c_void;
/// `struct ibv_mr *`
pub type MrIn = *mut Mr;
/// `struct ibv_cq *`
pub type CqIn = *mut c_void;
/// `struct ibv_cq **`
pub type CqOut = *mut CqIn;
/// `void **`
pub type AtOut = *mut At;
/// `struct ibv_comp_channel *`
pub type ChannelIn = *mut Channel;
/// `struct ibv_qp *`
pub type QpIn = *mut Qp;
/// `struct ibv_device_attr *`
pub type DeviceAttrOut = *mut DeviceAttr;
/// `struct ibv_port_attr *`
pub type PortAttrOut = *mut PortAttr;
/// `union ibv_gid *`
pub type GidOut = *mut Gid;
/// `struct ibv_gid_entry *`
pub type GidEntryOut = *mut GidEntry;
/// `struct ibv_qp_init_attr *`
pub type QpInitAttrIn = *mut QpInitAttr;
/// `struct ibv_qp_attr *`
pub type QpAttrIn = *mut QpAttr;
/// `struct ibv_async_event *`
pub type EventOut = *mut AsyncEvent;

/// `union ibv_gid`: the bytes as they travel.
pub type Gid = [u8; 16];

/// `struct ibv_context`, an opened device: the beginning.
#[repr(C)]
#[allow(missing_docs, reason = "as in verbs.h")]
pub struct Context {
    pub device: DeviceIn,
    pub ops: Ops,
    pub cmd_fd: c_int,
    pub async_fd: c_int,
    pub num_comp_vectors: c_int,
}

/// `int (*poll_cq)(struct ibv_cq *, int, struct ibv_wc *)`
pub type PollCq = unsafe extern "C" fn(CqIn, c_int, *mut Wc) -> c_int;
/// `int (*req_notify_cq)(struct ibv_cq *, int)`
pub type ReqNotifyCq = unsafe extern "C" fn(CqIn, c_int) -> c_int;
/// `int (*post_send)(struct ibv_qp *, struct ibv_send_wr *, struct ibv_send_wr **)`
pub type PostSend = unsafe extern "C" fn(QpIn, *mut SendWr, *mut *mut SendWr) -> c_int;
/// `int (*post_recv)(struct ibv_qp *, struct ibv_recv_wr *, struct ibv_recv_wr **)`
pub type PostRecv = unsafe extern "C" fn(QpIn, *mut RecvWr, *mut *mut RecvWr) -> c_int;

/// `struct ibv_context_ops`: what is behind the inline functions; the others are compatibility's.
#[repr(C)]
#[derive(Clone, Copy)]
#[allow(missing_docs, reason = "as in verbs.h")]
pub struct Ops {
    _before: [At; 11],
    pub poll_cq: Option<PollCq>,
    pub req_notify_cq: Option<ReqNotifyCq>,
    _between: [At; 12],
    pub post_send: Option<PostSend>,
    pub post_recv: Option<PostRecv>,
    _behind: [At; 5],
}

/// `struct ibv_device_attr`
#[repr(C)]
#[derive(Clone, Copy)]
#[allow(missing_docs, reason = "as in verbs.h")]
pub struct DeviceAttr {
    pub fw_ver: [c_char; 64],
    pub node_guid: u64,
    pub sys_image_guid: u64,
    pub max_mr_size: u64,
    pub page_size_cap: u64,
    pub vendor_id: u32,
    pub vendor_part_id: u32,
    pub hw_ver: u32,
    pub max_qp: c_int,
    pub max_qp_wr: c_int,
    pub device_cap_flags: c_uint,
    pub max_sge: c_int,
    pub max_sge_rd: c_int,
    pub max_cq: c_int,
    pub max_cqe: c_int,
    pub max_mr: c_int,
    pub max_pd: c_int,
    pub max_qp_rd_atom: c_int,
    pub max_ee_rd_atom: c_int,
    pub max_res_rd_atom: c_int,
    pub max_qp_init_rd_atom: c_int,
    pub max_ee_init_rd_atom: c_int,
    pub atomic_cap: c_uint,
    _rest: [c_int; 14],
    pub max_pkeys: u16,
    pub local_ca_ack_delay: u8,
    pub phys_port_cnt: u8,
}

/// `struct ibv_port_attr`
#[repr(C)]
#[derive(Clone, Copy)]
#[allow(missing_docs, reason = "as in verbs.h")]
pub struct PortAttr {
    pub state: c_uint,
    pub max_mtu: c_uint,
    pub active_mtu: c_uint,
    pub gid_tbl_len: c_int,
    pub port_cap_flags: u32,
    pub max_msg_sz: u32,
    pub bad_pkey_cntr: u32,
    pub qkey_viol_cntr: u32,
    pub pkey_tbl_len: u16,
    pub lid: u16,
    pub sm_lid: u16,
    pub lmc: u8,
    pub max_vl_num: u8,
    pub sm_sl: u8,
    pub subnet_timeout: u8,
    pub init_type_reply: u8,
    pub active_width: u8,
    pub active_speed: u8,
    pub phys_state: u8,
    pub link_layer: u8,
    pub flags: u8,
    pub port_cap_flags2: u16,
    /// Behind: room for a library whose struct has grown.
    _more: [u32; 16],
}

/// `struct ibv_gid_entry`
#[repr(C)]
#[derive(Clone, Copy)]
#[allow(missing_docs, reason = "as in verbs.h")]
pub struct GidEntry {
    pub gid: [u64; 2],
    pub gid_index: u32,
    pub port_num: u32,
    pub gid_type: u32,
    pub ndev_ifindex: u32,
}

/// `struct ibv_mr`
#[repr(C)]
#[allow(missing_docs, reason = "as in verbs.h")]
pub struct Mr {
    pub context: ContextIn,
    pub pd: PdIn,
    pub addr: At,
    pub length: usize,
    pub handle: u32,
    pub lkey: u32,
    pub rkey: u32,
}

/// `struct ibv_comp_channel`: the beginning.
#[repr(C)]
#[allow(missing_docs, reason = "as in verbs.h")]
pub struct Channel {
    pub context: ContextIn,
    pub fd: c_int,
}

/// `struct ibv_qp`: the beginning.
#[repr(C)]
#[allow(missing_docs, reason = "as in verbs.h")]
pub struct Qp {
    pub context: ContextIn,
    pub qp_context: At,
    pub pd: PdIn,
    pub send_cq: CqIn,
    pub recv_cq: CqIn,
    pub srq: At,
    pub handle: u32,
    pub qp_num: u32,
}

/// `struct ibv_qp_cap`
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "as in verbs.h")]
pub struct QpCap {
    pub max_send_wr: u32,
    pub max_recv_wr: u32,
    pub max_send_sge: u32,
    pub max_recv_sge: u32,
    pub max_inline_data: u32,
}

/// `struct ibv_qp_init_attr`
#[repr(C)]
#[derive(Clone, Copy)]
#[allow(missing_docs, reason = "as in verbs.h")]
pub struct QpInitAttr {
    pub qp_context: At,
    pub send_cq: CqIn,
    pub recv_cq: CqIn,
    pub srq: At,
    pub cap: QpCap,
    pub qp_type: c_uint,
    pub sq_sig_all: c_int,
}

/// `struct ibv_ah_attr`, with its `struct ibv_global_route`.
#[repr(C)]
#[derive(Clone, Copy)]
#[allow(missing_docs, reason = "as in verbs.h")]
pub struct AhAttr {
    /// As two words: the C union has their alignment.
    pub dgid: [u64; 2],
    pub flow_label: u32,
    pub sgid_index: u8,
    pub hop_limit: u8,
    pub traffic_class: u8,
    pub dlid: u16,
    pub sl: u8,
    pub src_path_bits: u8,
    pub static_rate: u8,
    pub is_global: u8,
    pub port_num: u8,
}

/// `struct ibv_qp_attr`
#[repr(C)]
#[derive(Clone, Copy)]
#[allow(missing_docs, reason = "as in verbs.h")]
pub struct QpAttr {
    pub qp_state: c_uint,
    pub cur_qp_state: c_uint,
    pub path_mtu: c_uint,
    pub path_mig_state: c_uint,
    pub qkey: u32,
    pub rq_psn: u32,
    pub sq_psn: u32,
    pub dest_qp_num: u32,
    pub qp_access_flags: c_uint,
    pub cap: QpCap,
    pub ah_attr: AhAttr,
    pub alt_ah_attr: AhAttr,
    pub pkey_index: u16,
    pub alt_pkey_index: u16,
    pub en_sqd_async_notify: u8,
    pub sq_draining: u8,
    pub max_rd_atomic: u8,
    pub max_dest_rd_atomic: u8,
    pub min_rnr_timer: u8,
    pub port_num: u8,
    pub timeout: u8,
    pub retry_cnt: u8,
    pub rnr_retry: u8,
    pub alt_port_num: u8,
    pub alt_timeout: u8,
    pub rate_limit: u32,
}

/// `struct ibv_sge`
#[repr(C)]
#[derive(Clone, Copy)]
#[allow(missing_docs, reason = "as in verbs.h")]
pub struct Sge {
    pub addr: u64,
    pub length: u32,
    pub lkey: u32,
}

/// `struct ibv_send_wr`; its unions are words here.
#[repr(C)]
#[derive(Clone, Copy)]
#[allow(missing_docs, reason = "as in verbs.h")]
pub struct SendWr {
    pub wr_id: u64,
    pub next: *mut SendWr,
    pub sg_list: *mut Sge,
    pub num_sge: c_int,
    pub opcode: c_uint,
    pub send_flags: c_uint,
    /// Big endian.
    pub imm_data: u32,
    /// `wr.rdma.remote_addr`, `wr.atomic.remote_addr`
    pub remote_addr: u64,
    /// `wr.rdma.rkey` (in its first four bytes), `wr.atomic.compare_add`
    pub rkey_or_compare: u64,
    /// `wr.atomic.swap`
    pub swap: u64,
    /// `wr.atomic.rkey`
    pub atomic_rkey: u32,
    _padding: u32,
    _qp_type: u64,
    _rest: [u64; 6],
}

/// `struct ibv_recv_wr`
#[repr(C)]
#[derive(Clone, Copy)]
#[allow(missing_docs, reason = "as in verbs.h")]
pub struct RecvWr {
    pub wr_id: u64,
    pub next: *mut RecvWr,
    pub sg_list: *mut Sge,
    pub num_sge: c_int,
}

/// `struct ibv_wc`
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "as in verbs.h")]
pub struct Wc {
    pub wr_id: u64,
    pub status: c_uint,
    pub opcode: c_uint,
    pub vendor_err: u32,
    pub byte_len: u32,
    /// Big endian.
    pub imm_data: u32,
    pub qp_num: u32,
    pub src_qp: u32,
    pub wc_flags: c_uint,
    pub pkey_index: u16,
    pub slid: u16,
    pub sl: u8,
    pub dlid_path_bits: u8,
}

/// `struct ibv_async_event`
#[repr(C)]
#[derive(Clone, Copy)]
#[allow(missing_docs, reason = "as in verbs.h")]
pub struct AsyncEvent {
    pub element: At,
    pub event_type: c_uint,
}

/// A struct of C that is plain data, all 0: a value of each of its fields.
pub trait Zeroed: Sized {
    /// All 0.
    #[must_use]
    fn zeroed() -> Self {
        // SAFETY: implemented below for structs of integers, pointers and arrays of those.
        unsafe { std::mem::zeroed() }
    }
}
impl Zeroed for DeviceAttr {}
impl Zeroed for PortAttr {}
impl Zeroed for GidEntry {}
impl Zeroed for QpInitAttr {}
impl Zeroed for QpAttr {}
impl Zeroed for SendWr {}
impl Zeroed for Wc {}
impl Zeroed for AsyncEvent {}
