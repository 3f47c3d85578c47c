//! The named tests, one file for each part of the interface. A test is a short function whose name
//! is the last part of the test's name. The table at the top of a file lists the tests. For each
//! test, `catalog.txt` describes what is checked and names the rule in the header that requires it.

use crate::kit::catalog::Body;
use crate::kit::stress;
use crate::kit::subject::KINDS;

pub(crate) mod abi;
pub(crate) mod abi_answers;
pub(crate) mod abi_calls;
pub(crate) mod abi_windows;
pub(crate) mod coll_call;
pub(crate) mod coll_limits;
pub(crate) mod coll_slots;
pub(crate) mod collective;
pub(crate) mod comm_lifecycle;
pub(crate) mod comm_open;
pub(crate) mod comm_slots;
pub(crate) mod device;
pub(crate) mod device_info;
pub(crate) mod event;
pub(crate) mod executor;
pub(crate) mod kernel;
pub(crate) mod leak;
pub(crate) mod lifecycle;
pub(crate) mod limits;
pub(crate) mod matching;
pub(crate) mod mem_buffers;
pub(crate) mod mem_call;
pub(crate) mod mem_slots;
pub(crate) mod memory;
pub(crate) mod memory_handles;
pub(crate) mod memory_kinds;
pub(crate) mod memory_stream;
pub(crate) mod module;
pub(crate) mod module_launch;
pub(crate) mod p2p;
pub(crate) mod p2p_requests;
pub(crate) mod placement;
pub(crate) mod slots;
pub(crate) mod stream;
pub(crate) mod stream_priority;
pub(crate) mod stream_wait;
pub(crate) mod transfer;
pub(crate) mod transfer_pitched;
pub(crate) mod win;
pub(crate) mod win_atomics;
pub(crate) mod win_sync;
pub(crate) mod window;

const TABLES: &[&[(&str, Body)]] = &[
    abi::TESTS,
    abi::REQUIRED,
    abi_answers::TESTS,
    abi_calls::TESTS,
    abi_windows::HALF,
    abi_windows::TESTS,
    slots::TESTS,
    comm_slots::TESTS,
    coll_slots::SUPPORTS,
    coll_slots::RIGHT,
    coll_slots::TESTS,
    mem_slots::TESTS,
    lifecycle::TESTS,
    device::TESTS,
    device_info::TESTS,
    memory::TESTS,
    memory_handles::TESTS,
    memory_stream::TESTS,
    placement::TESTS,
    transfer::TESTS,
    transfer_pitched::TESTS,
    stream::TESTS,
    stream_priority::TESTS,
    stream_wait::TESTS,
    event::TESTS,
    executor::TESTS,
    kernel::TESTS,
    module::TESTS,
    module_launch::TESTS,
    comm_lifecycle::TESTS,
    comm_open::TESTS,
    p2p::TESTS,
    p2p_requests::TESTS,
    leak::TESTS,
    matching::TESTS,
    collective::TESTS,
    collective::RANDOM,
    coll_limits::TESTS,
    mem_buffers::TESTS,
    window::TESTS,
    win::TESTS,
    win_sync::TESTS,
    win_atomics::TESTS,
    stress::TESTS,
];

/// Returns the names and functions of all tests, except those that run for each memory kind.
pub(crate) fn functions() -> impl Iterator<Item = &'static (&'static str, Body)> {
    TABLES.iter().copied().flatten()
}

/// Returns the function of the test with this name; `None` if there is none.
pub(crate) fn body(name: &str) -> Option<Body> {
    let exact = functions().find(|(known, _)| *known == name);
    exact.map(|(_, body)| *body).or_else(|| of_kinds(name))
}

/// Returns the function of a test whose name contains one or two memory kinds:
/// memory.host.aligned_as_asked, transfer.copy.program_to_device.large.
fn of_kinds(name: &str) -> Option<Body> {
    fn find<F: Copy>(table: &[(&str, F)], test: &str) -> Option<F> {
        table.iter().find(|(known, _)| *known == test).map(|(_, function)| *function)
    }
    let kind = |name: &str| match name {
        "program" => Some(transfer::PLAIN),
        _ => KINDS.iter().find(|(_, known)| *known == name).map(|(kind, _)| *kind),
    };
    let (rest, test) = name.rsplit_once('.')?;
    let (slot, kinds) = rest.rsplit_once('.')?;
    if let Some((from, to)) = kinds.split_once("_to_") {
        let copies = if slot == "transfer.copy" {
            transfer::COPIES
        } else {
            transfer_pitched::PITCHED_COPIES
        };
        return Some(Body::Between(find(copies, test)?, (kind(from)?, kind(to)?)));
    }
    let table = if slot == "memory" { memory_kinds::OF_KIND } else { transfer_pitched::FILLS };
    Some(Body::OfKind(find(table, test)?, kind(kinds)?))
}
