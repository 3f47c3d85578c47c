//! Functions of libibverbs, resolved by name in the loaded library, and the constants of verbs.h
//! that this library uses. `tests/rdma_constants.rs` has the C compiler compare all of them with
//! verbs.h.

use super::types::*;
use crate::backend::symbol_table::function_table;
use std::ffi::{c_char, c_int};

function_table! {
    required {
        ibv_get_device_list(*mut c_int) -> *mut DeviceIn;
        ibv_free_device_list(*mut DeviceIn) -> ();
        ibv_get_device_name(DeviceIn) -> *const c_char;
        ibv_open_device(DeviceIn) -> ContextIn;
        ibv_close_device(ContextIn) -> c_int;
        ibv_query_device(ContextIn, *mut DeviceAttr) -> c_int;
        ibv_query_port(ContextIn, u8, *mut PortAttr) -> c_int;
        ibv_query_gid(ContextIn, u8, c_int, *mut Gid) -> c_int;
        ibv_alloc_pd(ContextIn) -> PdIn;
        ibv_dealloc_pd(PdIn) -> c_int;
        ibv_reg_mr(PdIn, At, usize, c_int) -> *mut Mr;
        ibv_dereg_mr(*mut Mr) -> c_int;
        ibv_create_comp_channel(ContextIn) -> ChannelIn;
        ibv_destroy_comp_channel(ChannelIn) -> c_int;
        ibv_create_cq(ContextIn, c_int, At, ChannelIn, c_int) -> CqIn;
        ibv_destroy_cq(CqIn) -> c_int;
        ibv_get_cq_event(ChannelIn, *mut CqIn, *mut At) -> c_int;
        ibv_ack_cq_events(CqIn, u32) -> ();
        ibv_create_qp(PdIn, *mut QpInitAttr) -> QpIn;
        ibv_modify_qp(QpIn, *mut QpAttr, c_int) -> c_int;
        ibv_destroy_qp(QpIn) -> c_int;
        ibv_get_async_event(ContextIn, *mut AsyncEvent) -> c_int;
        ibv_ack_async_event(*mut AsyncEvent) -> ();
        ibv_wc_status_str(u32) -> *const c_char;
    }
    optional {
        ibv_event_type_str(u32) -> *const c_char;
        ibv_reg_dmabuf_mr(PdIn, u64, usize, u64, c_int, c_int) -> *mut Mr;
        _ibv_query_gid_ex(ContextIn, u32, u32, *mut GidEntry, u32, usize) -> c_int;
    }
}

macro_rules! constants {
    ($($name:ident $c:ident = $value:expr;)+) => {
        $(#[doc = concat!("`", stringify!($c), "`")] pub const $name: u32 = $value;)+

        /// Names and values of all constants, for the test that compares them with verbs.h.
        pub const CONSTANTS: &[(&str, i64)] = &[$((stringify!($c), $value),)+];
    };
}

constants! {
    ACCESS_LOCAL_WRITE IBV_ACCESS_LOCAL_WRITE = 1;
    ACCESS_REMOTE_WRITE IBV_ACCESS_REMOTE_WRITE = 2;
    ACCESS_REMOTE_READ IBV_ACCESS_REMOTE_READ = 4;
    ACCESS_REMOTE_ATOMIC IBV_ACCESS_REMOTE_ATOMIC = 8;
    PORT_ACTIVE IBV_PORT_ACTIVE = 4;
    LINK_INFINIBAND IBV_LINK_LAYER_INFINIBAND = 1;
    LINK_ETHERNET IBV_LINK_LAYER_ETHERNET = 2;
    GID_TYPE_IB IBV_GID_TYPE_IB = 0;
    GID_TYPE_ROCE_V1 IBV_GID_TYPE_ROCE_V1 = 1;
    GID_TYPE_ROCE_V2 IBV_GID_TYPE_ROCE_V2 = 2;
    ATOMIC_NONE IBV_ATOMIC_NONE = 0;
    MTU_256 IBV_MTU_256 = 1;
    TYPE_RC IBV_QPT_RC = 2;
    STATE_INIT IBV_QPS_INIT = 1;
    STATE_RTR IBV_QPS_RTR = 2;
    STATE_RTS IBV_QPS_RTS = 3;
    STATE_ERR IBV_QPS_ERR = 6;
    QP_STATE IBV_QP_STATE = 1;
    QP_ACCESS_FLAGS IBV_QP_ACCESS_FLAGS = 1 << 3;
    QP_PKEY_INDEX IBV_QP_PKEY_INDEX = 1 << 4;
    QP_PORT IBV_QP_PORT = 1 << 5;
    QP_AV IBV_QP_AV = 1 << 7;
    QP_PATH_MTU IBV_QP_PATH_MTU = 1 << 8;
    QP_TIMEOUT IBV_QP_TIMEOUT = 1 << 9;
    QP_RETRY_CNT IBV_QP_RETRY_CNT = 1 << 10;
    QP_RNR_RETRY IBV_QP_RNR_RETRY = 1 << 11;
    QP_RQ_PSN IBV_QP_RQ_PSN = 1 << 12;
    QP_MAX_QP_RD_ATOMIC IBV_QP_MAX_QP_RD_ATOMIC = 1 << 13;
    QP_MIN_RNR_TIMER IBV_QP_MIN_RNR_TIMER = 1 << 15;
    QP_SQ_PSN IBV_QP_SQ_PSN = 1 << 16;
    QP_MAX_DEST_RD_ATOMIC IBV_QP_MAX_DEST_RD_ATOMIC = 1 << 17;
    QP_DEST_QPN IBV_QP_DEST_QPN = 1 << 20;
    WR_RDMA_WRITE IBV_WR_RDMA_WRITE = 0;
    WR_RDMA_WRITE_WITH_IMM IBV_WR_RDMA_WRITE_WITH_IMM = 1;
    WR_SEND IBV_WR_SEND = 2;
    WR_SEND_WITH_IMM IBV_WR_SEND_WITH_IMM = 3;
    WR_RDMA_READ IBV_WR_RDMA_READ = 4;
    WR_COMPARE_AND_SWAP IBV_WR_ATOMIC_CMP_AND_SWP = 5;
    WR_FETCH_AND_ADD IBV_WR_ATOMIC_FETCH_AND_ADD = 6;
    SEND_SIGNALED IBV_SEND_SIGNALED = 2;
    SEND_INLINE IBV_SEND_INLINE = 8;
    WC_SUCCESS IBV_WC_SUCCESS = 0;
    WC_LOC_QP_OP_ERR IBV_WC_LOC_QP_OP_ERR = 2;
    WC_WR_FLUSH_ERR IBV_WC_WR_FLUSH_ERR = 5;
    WC_REM_ACCESS_ERR IBV_WC_REM_ACCESS_ERR = 10;
    WC_REM_OP_ERR IBV_WC_REM_OP_ERR = 11;
    WC_RETRY_EXC_ERR IBV_WC_RETRY_EXC_ERR = 12;
    WC_RNR_RETRY_EXC_ERR IBV_WC_RNR_RETRY_EXC_ERR = 13;
    WC_REM_ABORT_ERR IBV_WC_REM_ABORT_ERR = 16;
    WC_FATAL_ERR IBV_WC_FATAL_ERR = 19;
    WC_RESP_TIMEOUT_ERR IBV_WC_RESP_TIMEOUT_ERR = 20;
    WC_GENERAL_ERR IBV_WC_GENERAL_ERR = 21;
    WC_WITH_IMM IBV_WC_WITH_IMM = 2;
    WC_RECV_RDMA_WITH_IMM IBV_WC_RECV_RDMA_WITH_IMM = 129;
    EVENT_CQ_ERR IBV_EVENT_CQ_ERR = 0;
    EVENT_QP_FATAL IBV_EVENT_QP_FATAL = 1;
    EVENT_QP_REQ_ERR IBV_EVENT_QP_REQ_ERR = 2;
    EVENT_QP_ACCESS_ERR IBV_EVENT_QP_ACCESS_ERR = 3;
    EVENT_DEVICE_FATAL IBV_EVENT_DEVICE_FATAL = 8;
    EVENT_PORT_ACTIVE IBV_EVENT_PORT_ACTIVE = 9;
    EVENT_PORT_ERR IBV_EVENT_PORT_ERR = 10;
}
