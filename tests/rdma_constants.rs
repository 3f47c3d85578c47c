//! Compares the declarations of libibverbs with its header. A C program is generated from the lists
//! of functions, constants and fields, and the C compiler reports wrong rows. The type of a
//! function is checked by a call and by its address. The header is that of rdma-core (Debian's
//! libibverbs-dev).
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test fails by panicking and speaks to its reader"
)]

use dtl::backend::rdma::verbs::functions::{CONSTANTS, FUNCTIONS};
use dtl::backend::rdma::verbs::types::*;
use dtl::backend::symbol_table::Function;
use std::fmt::Write as _;
use std::mem::offset_of;
use std::path::Path;
use std::process::Command;

const HEADER: &str = "/usr/include/infiniband/verbs.h";

/// Types of Rust in the lists, and their C types. The other types of the lists are types of [`TYPES`].
const TRANSLATED: &[(&str, &str)] = &[
    ("()", "void"),
    ("c_int", "int"),
    ("*mut c_int", "int *"),
    ("usize", "size_t"),
    ("*const c_char", "const char *"),
    ("u8", "uint8_t"),
    ("u32", "uint32_t"),
    ("u64", "uint64_t"),
    ("*mut u16", "uint16_t *"),
    ("*mut DeviceIn", "struct ibv_device **"),
    ("*mut Mr", "struct ibv_mr *"),
    ("*mut CqIn", "struct ibv_cq **"),
    ("*mut At", "void **"),
    ("*mut DeviceAttr", "struct ibv_device_attr *"),
    ("*mut PortAttr", "struct _compat_ibv_port_attr *"),
    ("*mut Gid", "union ibv_gid *"),
    ("*mut GidEntry", "struct ibv_gid_entry *"),
    ("*mut QpInitAttr", "struct ibv_qp_init_attr *"),
    ("*mut QpAttr", "struct ibv_qp_attr *"),
    ("*mut AsyncEvent", "struct ibv_async_event *"),
];

fn in_c(kind: &str) -> &str {
    TRANSLATED.iter().find(|(rust, _)| *rust == kind).map_or(kind, |(_, c)| c)
}

/// C program before the checks. Two functions are hidden by macros that call newer functions; here the
/// library's functions of these names are called. ibv_query_port fills in an older struct, which is
/// the beginning of ibv_port_attr.
const TYPES: &str = "#include <infiniband/verbs.h>
#undef ibv_reg_mr
#undef ibv_query_port
typedef void *At; typedef struct ibv_device *DeviceIn; typedef struct ibv_context *ContextIn; typedef struct ibv_pd *PdIn;
typedef struct ibv_cq *CqIn; typedef struct ibv_comp_channel *ChannelIn; typedef struct ibv_qp *QpIn;
typedef struct ibv_send_wr *SendWr; typedef struct ibv_recv_wr *RecvWr;
_Static_assert(sizeof(uint32_t) == sizeof(enum ibv_wc_status) && sizeof(uint32_t) == sizeof(enum ibv_event_type), \"widths\");
/* The calls of the data path. */
int (*poll_cq(struct ibv_context *c))(CqIn, int, struct ibv_wc *) { return c->ops.poll_cq; }
int (*req_notify_cq(struct ibv_context *c))(CqIn, int) { return c->ops.req_notify_cq; }
int (*post_send(struct ibv_context *c))(QpIn, SendWr, SendWr *) { return c->ops.post_send; }
int (*post_recv(struct ibv_context *c))(QpIn, RecvWr, RecvWr *) { return c->ops.post_recv; }
";

/// Layout of the structs: a C expression for each value and the number that this library uses. The
/// size of a struct is omitted where only its first fields are declared.
const LAYOUT: &[(&str, usize)] = &[
    ("offsetof(struct ibv_context, ops)", offset_of!(Context, ops)),
    ("offsetof(struct ibv_context, async_fd)", offset_of!(Context, async_fd)),
    ("sizeof(struct ibv_context_ops)", size_of::<Ops>()),
    ("offsetof(struct ibv_context_ops, poll_cq)", offset_of!(Ops, poll_cq)),
    ("offsetof(struct ibv_context_ops, req_notify_cq)", offset_of!(Ops, req_notify_cq)),
    ("offsetof(struct ibv_context_ops, post_send)", offset_of!(Ops, post_send)),
    ("offsetof(struct ibv_context_ops, post_recv)", offset_of!(Ops, post_recv)),
    ("sizeof(struct ibv_device_attr)", size_of::<DeviceAttr>()),
    ("offsetof(struct ibv_device_attr, max_mr_size)", offset_of!(DeviceAttr, max_mr_size)),
    ("offsetof(struct ibv_device_attr, max_qp_wr)", offset_of!(DeviceAttr, max_qp_wr)),
    ("offsetof(struct ibv_device_attr, max_sge)", offset_of!(DeviceAttr, max_sge)),
    ("offsetof(struct ibv_device_attr, max_cqe)", offset_of!(DeviceAttr, max_cqe)),
    ("offsetof(struct ibv_device_attr, max_qp_rd_atom)", offset_of!(DeviceAttr, max_qp_rd_atom)),
    (
        "offsetof(struct ibv_device_attr, max_qp_init_rd_atom)",
        offset_of!(DeviceAttr, max_qp_init_rd_atom),
    ),
    ("offsetof(struct ibv_device_attr, atomic_cap)", offset_of!(DeviceAttr, atomic_cap)),
    ("offsetof(struct ibv_device_attr, phys_port_cnt)", offset_of!(DeviceAttr, phys_port_cnt)),
    ("offsetof(struct ibv_port_attr, active_mtu)", offset_of!(PortAttr, active_mtu)),
    ("offsetof(struct ibv_port_attr, gid_tbl_len)", offset_of!(PortAttr, gid_tbl_len)),
    ("offsetof(struct ibv_port_attr, max_msg_sz)", offset_of!(PortAttr, max_msg_sz)),
    ("offsetof(struct ibv_port_attr, lid)", offset_of!(PortAttr, lid)),
    ("offsetof(struct ibv_port_attr, link_layer)", offset_of!(PortAttr, link_layer)),
    ("sizeof(union ibv_gid)", size_of::<Gid>()),
    ("sizeof(struct ibv_gid_entry)", size_of::<GidEntry>()),
    ("offsetof(struct ibv_gid_entry, gid_index)", offset_of!(GidEntry, gid_index)),
    ("offsetof(struct ibv_gid_entry, gid_type)", offset_of!(GidEntry, gid_type)),
    ("sizeof(struct ibv_mr)", size_of::<Mr>()),
    ("offsetof(struct ibv_mr, lkey)", offset_of!(Mr, lkey)),
    ("offsetof(struct ibv_mr, rkey)", offset_of!(Mr, rkey)),
    ("offsetof(struct ibv_comp_channel, fd)", offset_of!(Channel, fd)),
    ("offsetof(struct ibv_qp, qp_num)", offset_of!(Qp, qp_num)),
    ("sizeof(struct ibv_qp_init_attr)", size_of::<QpInitAttr>()),
    ("offsetof(struct ibv_qp_init_attr, cap)", offset_of!(QpInitAttr, cap)),
    ("offsetof(struct ibv_qp_init_attr, qp_type)", offset_of!(QpInitAttr, qp_type)),
    ("offsetof(struct ibv_qp_cap, max_inline_data)", offset_of!(QpCap, max_inline_data)),
    ("sizeof(struct ibv_ah_attr)", size_of::<AhAttr>()),
    ("offsetof(struct ibv_ah_attr, grh.sgid_index)", offset_of!(AhAttr, sgid_index)),
    ("offsetof(struct ibv_ah_attr, grh.traffic_class)", offset_of!(AhAttr, traffic_class)),
    ("offsetof(struct ibv_ah_attr, dlid)", offset_of!(AhAttr, dlid)),
    ("offsetof(struct ibv_ah_attr, is_global)", offset_of!(AhAttr, is_global)),
    ("offsetof(struct ibv_ah_attr, port_num)", offset_of!(AhAttr, port_num)),
    ("sizeof(struct ibv_qp_attr)", size_of::<QpAttr>()),
    ("offsetof(struct ibv_qp_attr, dest_qp_num)", offset_of!(QpAttr, dest_qp_num)),
    ("offsetof(struct ibv_qp_attr, ah_attr)", offset_of!(QpAttr, ah_attr)),
    ("offsetof(struct ibv_qp_attr, pkey_index)", offset_of!(QpAttr, pkey_index)),
    ("offsetof(struct ibv_qp_attr, max_rd_atomic)", offset_of!(QpAttr, max_rd_atomic)),
    ("offsetof(struct ibv_qp_attr, min_rnr_timer)", offset_of!(QpAttr, min_rnr_timer)),
    ("offsetof(struct ibv_qp_attr, rnr_retry)", offset_of!(QpAttr, rnr_retry)),
    ("sizeof(struct ibv_sge)", size_of::<Sge>()),
    ("offsetof(struct ibv_sge, lkey)", offset_of!(Sge, lkey)),
    ("sizeof(struct ibv_send_wr)", size_of::<SendWr>()),
    ("offsetof(struct ibv_send_wr, opcode)", offset_of!(SendWr, opcode)),
    ("offsetof(struct ibv_send_wr, imm_data)", offset_of!(SendWr, imm_data)),
    ("offsetof(struct ibv_send_wr, wr.rdma.remote_addr)", offset_of!(SendWr, remote_addr)),
    ("offsetof(struct ibv_send_wr, wr.rdma.rkey)", offset_of!(SendWr, rkey_or_compare)),
    ("offsetof(struct ibv_send_wr, wr.atomic.compare_add)", offset_of!(SendWr, rkey_or_compare)),
    ("offsetof(struct ibv_send_wr, wr.atomic.swap)", offset_of!(SendWr, swap)),
    ("offsetof(struct ibv_send_wr, wr.atomic.rkey)", offset_of!(SendWr, atomic_rkey)),
    ("sizeof(struct ibv_recv_wr)", size_of::<RecvWr>()),
    ("sizeof(struct ibv_wc)", size_of::<Wc>()),
    ("offsetof(struct ibv_wc, imm_data)", offset_of!(Wc, imm_data)),
    ("offsetof(struct ibv_wc, wc_flags)", offset_of!(Wc, wc_flags)),
    ("sizeof(struct ibv_async_event)", size_of::<AsyncEvent>()),
    ("offsetof(struct ibv_async_event, event_type)", offset_of!(AsyncEvent, event_type)),
];

fn compiles(program: &str) -> Result<(), String> {
    let source = format!("rdma_{}_{:?}.c", std::process::id(), std::thread::current().id());
    let source = Path::new(env!("CARGO_TARGET_TMPDIR")).join(source);
    std::fs::write(&source, program).unwrap();
    let output = Command::new("cc")
        .args(["-fsyntax-only", "-Werror", "-Wall", "-Wno-array-bounds"])
        .arg(&source)
        .output()
        .expect("a C compiler");
    std::fs::remove_file(&source).unwrap();
    if output.status.success() {
        Ok(())
    } else {
        Err(String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

fn call(function: &Function) -> String {
    let (name, result) = (function.name, in_c(function.result));
    let types: Vec<&str> =
        function.parameters.split(", ").filter(|kind| !kind.is_empty()).map(in_c).collect();
    let list: Vec<String> =
        types.iter().enumerate().map(|(at, kind)| format!("{kind} a{at}")).collect();
    let names: Vec<String> = (0..types.len()).map(|at| format!("a{at}")).collect();
    let back = if result == "void" { "" } else { "return " };
    format!("{result} call_{name}({}) {{ {back}{name}({}); }}\n", list.join(", "), names.join(", "))
}

fn program(constants: &[(&str, i64)], layout: &[(&str, usize)], functions: &[Function]) -> String {
    let mut text = TYPES.to_owned();
    for (name, value) in constants {
        writeln!(text, "_Static_assert((long long)({name}) == {value}ll, \"{name}\");").unwrap();
    }
    for (expression, value) in layout {
        writeln!(text, "_Static_assert({expression} == {value}, \"{expression}\");").unwrap();
    }
    text.extend(functions.iter().map(call));
    text
}

#[test]
fn the_lists_are_those_of_the_header() {
    if !Path::new(HEADER).is_file() {
        println!("skipped: no {HEADER} (Debian: libibverbs-dev)");
        return;
    }
    if let Err(why) = compiles(&program(CONSTANTS, LAYOUT, FUNCTIONS)) {
        panic!("{why}");
    }
    let wrong = Function {
        name: "ibv_query_gid",
        parameters: "ContextIn, u8, c_int, *mut u16",
        result: "c_int",
        required: true,
    };
    for bad in [
        program(&[("IBV_WC_RETRY_EXC_ERR", 13)], &[], &[]),
        program(&[], &[("offsetof(struct ibv_wc, imm_data)", 28)], &[]),
        program(&[], &[], &[wrong]),
    ] {
        assert!(compiles(&bad).is_err(), "a wrong row is not seen");
    }
}
