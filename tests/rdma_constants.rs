//! What is written down of libibverbs is that of its header: a C program is made of the lists of functions, constants and fields, and
//! the C compiler says which row is wrong. A function's type is compared as its call goes, and as its address is taken. The header
//! is rdma-core's, Debian's libibverbs-dev.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test fails by panicking and speaks to its reader"
)]

use dtl::backend::rdma::verbs::functions::{CONSTANTS, FUNCTIONS, LAYOUT};
use dtl::backend::symbol_table::Function;
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

const HEADER: &str = "/usr/include/infiniband/verbs.h";

/// The C types of the lists. Two functions have macros over them, which call newer ones where the compiler sees more; the library's own of
/// these names are called here. ibv_query_port fills in an older struct, the beginning of ibv_port_attr.
const TYPES: &str = "#include <infiniband/verbs.h>
#undef ibv_reg_mr
#undef ibv_query_port
typedef int Int; typedef int *IntOut; typedef void Nothing; typedef size_t Size; typedef void *At; typedef const char *Text;
typedef uint8_t Byte; typedef uint32_t Uint; typedef uint64_t Long; typedef __be16 *ShortOut; typedef struct ibv_device *DeviceIn;
typedef struct ibv_device **Devices; typedef struct ibv_context *ContextIn; typedef struct ibv_pd *PdIn;
typedef struct ibv_mr *MrIn; typedef struct ibv_cq *CqIn; typedef struct ibv_cq **CqOut; typedef void **AtOut;
typedef struct ibv_comp_channel *ChannelIn; typedef struct ibv_qp *QpIn; typedef struct ibv_device_attr *DeviceAttrOut;
typedef struct _compat_ibv_port_attr *PortAttrOut; typedef union ibv_gid *GidOut; typedef struct ibv_gid_entry *GidEntryOut;
typedef struct ibv_qp_init_attr *QpInitAttrIn; typedef struct ibv_qp_attr *QpAttrIn;
typedef struct ibv_async_event *EventOut; typedef struct ibv_send_wr *SendWr; typedef struct ibv_recv_wr *RecvWr;
_Static_assert(sizeof(Uint) == sizeof(enum ibv_wc_status) && sizeof(Uint) == sizeof(enum ibv_event_type), \"widths\");
/* The calls of the data path. */
int (*poll_cq(struct ibv_context *c))(CqIn, int, struct ibv_wc *) { return c->ops.poll_cq; }
int (*req_notify_cq(struct ibv_context *c))(CqIn, int) { return c->ops.req_notify_cq; }
int (*post_send(struct ibv_context *c))(QpIn, SendWr, SendWr *) { return c->ops.post_send; }
int (*post_recv(struct ibv_context *c))(QpIn, RecvWr, RecvWr *) { return c->ops.post_recv; }
";

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
    let (name, result) = (function.name, function.result);
    let types: Vec<&str> =
        function.parameters.split(", ").filter(|kind| !kind.is_empty()).collect();
    let list: Vec<String> =
        types.iter().enumerate().map(|(at, kind)| format!("{kind} a{at}")).collect();
    let names: Vec<String> = (0..types.len()).map(|at| format!("a{at}")).collect();
    let back = if result == "Nothing" { "" } else { "return " };
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
        parameters: "ContextIn, Byte, Int, ShortOut",
        result: "Int",
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
