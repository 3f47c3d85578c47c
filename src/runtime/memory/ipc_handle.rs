//! Memory handles for other processes: `dtl_mem_export`, `dtl_mem_import`.
//!
//! A handle consists of the `Head`, which the library checks before it calls a backend, and the
//! ticket (data that only the backend interprets). The backend implements the sharing of memory
//! between processes.

use super::{Allocation, LEDGER, admit, check, device_only, find, registered};
use crate::abi::devices::device::{DTL_MEM_HANDLE_ROOM, dtl_mem_handle_t};
use crate::abi::status::DTL_ERROR_LIMIT;
use crate::error::{Error, Result, fail, failure};
use crate::runtime::component::{Exports, Extent, Ticket};
use crate::runtime::device;
use crate::runtime::registry::{self, Backend};
use crate::sys::handles::epoch::Guard;
use crate::sys::memory::buf::{Addr, fnv1a};
use crate::sys::os::process;

const WORDS: usize = 16;
const TICKET_WORDS: usize = DTL_MEM_HANDLE_ROOM as usize / 8;
/// Number of bytes of the backend's name in the handle. The name is for error messages.
const NAME: usize = 16;
/// Magic number "DTLM"; VERSION is the version of the handle format.
const MAGIC: u64 = 0x4D4C_5444;
const VERSION: u64 = 1;

/// Words of a memory handle before the backend's ticket (data that only the backend interprets), in
/// this order:
///
/// - format: magic number in the lower half, version in the upper half
/// - checksum of all other words
/// - node
/// - memory kind
/// - size in bytes
/// - base-2 logarithm of the alignment in the lowest byte; hash of the complete backend name in
///   the other bytes
/// - first bytes of the backend's name, two words
type Head = [u64; WORDS - TICKET_WORDS];
/// Index of the checksum in a handle.
const CHECKSUM: usize = 1;

fn name_words(name: &str) -> [u64; 2] {
    let mut bytes = [0; NAME];
    bytes.iter_mut().zip(name.bytes()).for_each(|(to, from)| *to = from);
    let word = |part: &[u8]| part.try_into().map_or(0, u64::from_ne_bytes);
    let (first, second) = bytes.split_at(NAME / 2);
    [word(first), word(second)]
}

fn align_and_name(align: u64, name: &str) -> u64 {
    fnv1a(name.as_bytes()) & !0xFF | u64::from(align.trailing_zeros())
}

/// Returns the checksum of a handle, computed with 0 in place of the stored checksum.
fn sum(handle: &dtl_mem_handle_t) -> u64 {
    let mut words = handle.opaque;
    words[CHECKSUM] = 0;
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    fnv1a(&bytes)
}

fn node() -> Result<u64> {
    let node = process::node_id();
    node.map_err(|error| match process::fd_shortage(&error) {
        Some(text) => Error::new(DTL_ERROR_LIMIT, text),
        None => {
            failure!(DTL_ERROR_UNAVAILABLE, "which node this is cannot be told (/proc): {error}")
        }
    })
}

fn exports(backend: &Backend) -> Result<&dyn Exports> {
    backend.memory()?.exports().ok_or_else(|| {
        failure!(
            DTL_ERROR_NOT_SUPPORTED,
            "backend {} has no memory that other processes can reach (it has no export_handle)",
            backend.name()
        )
    })
}

/// Creates a handle that another process can use to access an allocation.
pub fn export(inside: &Guard, addr: Addr) -> Result<dtl_mem_handle_t> {
    let Some((base, allocation)) = find(addr) else {
        return fail!(
            DTL_ERROR_NOT_FOUND,
            "{addr:?} lies in no live allocation of the library: export what dtl_mem_alloc gave"
        );
    };
    if let Some(text) = registered::describe(addr) {
        return fail!(DTL_ERROR_NOT_SUPPORTED, "{text}; export what dtl_mem_alloc gave");
    }
    if base != addr.get() {
        return fail!(
            DTL_ERROR_INVALID_ARGUMENT,
            "{addr:?} is {} bytes behind the first byte of its allocation: export {base:#x} and \
             send the offset too",
            addr.get() - base
        );
    }
    if allocation.imported {
        return fail!(
            DTL_ERROR_NOT_SUPPORTED,
            "{addr:?} was imported: pass on the handle that it came from (copy it; it works as \
             often as needed)"
        );
    }
    if allocation.is_of_pool() {
        return fail!(
            DTL_ERROR_NOT_SUPPORTED,
            "{addr:?} belongs to a pool, which gives it to others later: export what dtl_mem_alloc \
             gave"
        );
    }
    let backend = registry::find(inside, allocation.backend)?;
    let extent = allocation.extent();
    let ticket = exports(backend)?.export(addr, extent)?;
    let [first, second] = name_words(backend.name());
    let head: Head = [
        MAGIC | VERSION << 32,
        0,
        node()?,
        extent.kind,
        extent.size,
        align_and_name(extent.align, backend.name()),
        first,
        second,
    ];
    let mut handle = dtl_mem_handle_t { opaque: [0; WORDS] };
    handle.opaque.iter_mut().zip(head.iter().chain(&ticket)).for_each(|(to, from)| *to = *from);
    handle.opaque[CHECKSUM] = sum(&handle);
    Ok(handle)
}

/// Imports an allocation from another process. Returns its address in this process and its size in
/// bytes.
pub fn import(backend: &Backend, handle: &dtl_mem_handle_t) -> Result<(Addr, u64)> {
    let exports = exports(backend)?;
    let (extent, ticket) = read(backend, handle)?;
    let device = device::get_or_first(backend)?;
    let addr = admit(backend, extent.size, || {
        let addr = map(backend, exports, &ticket, extent)?;
        let new = Allocation { imported: true, ..Allocation::new(backend, device, extent) };
        if enter_new(addr, new) {
            return Ok(addr);
        }
        exports.close(addr, extent)?;
        fail!(DTL_ERROR_ALREADY_EXISTS, "it is imported here already, at {addr:?}: use that")
    })?;
    Ok((addr, extent.size))
}

fn map(backend: &Backend, exports: &dyn Exports, ticket: &Ticket, extent: Extent) -> Result<Addr> {
    let addr = exports.import(ticket, extent)?;
    if !addr.is_null() && addr.get() as u64 % extent.align == 0 {
        return Ok(addr);
    }
    if !addr.is_null() {
        exports.close(addr, extent)?;
    }
    fail!(
        DTL_ERROR_NATIVE_BACKEND,
        "backend {} imported {} bytes aligned to {} at {addr:?}",
        backend.name(),
        extent.size,
        extent.align
    )
}

/// Decodes a handle. Fails if the handle is not for this backend on this node.
fn read(backend: &Backend, handle: &dtl_mem_handle_t) -> Result<(Extent, Ticket)> {
    if handle.opaque == [0; WORDS] {
        return fail!(DTL_ERROR_INVALID_HANDLE, "handle is null: dtl_mem_export fills one in");
    }
    let [format, checksum, its_node, kind, size, its_align_and_name, first, second, ticket @ ..] =
        handle.opaque;
    if format & u64::from(u32::MAX) != MAGIC {
        return fail!(
            DTL_ERROR_INVALID_ARGUMENT,
            "handle is none: dtl_mem_export did not write these bytes"
        );
    }
    if format >> 32 != VERSION {
        return fail!(
            DTL_ERROR_INCOMPATIBLE_ABI,
            "handle has format {}, this library reads {VERSION}: use one version of the library on \
             all ranks",
            format >> 32
        );
    }
    if checksum != sum(handle) {
        return fail!(
            DTL_ERROR_INVALID_ARGUMENT,
            "handle is damaged: send and keep all its {} bytes (sizeof(dtl_mem_handle_t))",
            WORDS * 8
        );
    }
    if [first, second] != name_words(backend.name())
        || its_align_and_name & !0xFF != align_and_name(1, backend.name())
    {
        let bytes = [first, second].map(u64::to_ne_bytes).concat();
        return fail!(
            DTL_ERROR_INVALID_ARGUMENT,
            "handle is of memory of backend \"{}\", not of {}: import it with that one",
            String::from_utf8_lossy(&bytes).trim_end_matches('\0'),
            backend.name()
        );
    }
    if its_node != node()? {
        return fail!(
            DTL_ERROR_NOT_SUPPORTED,
            "handle comes from another node (or from before this one booted): import it on its own \
             node (dtl_comm_split_node), and send data between nodes"
        );
    }
    let align = 1_u64.checked_shl((its_align_and_name & 0xFF) as u32).unwrap_or(u64::MAX);
    Ok((Extent { kind, size, align: check(size, align)? }, ticket))
}

/// Enters imported memory into the ledger (the table of live allocations). Returns false if the
/// ledger already has an allocation at this address.
fn enter_new(addr: Addr, mut allocation: Allocation) -> bool {
    let mut ledger = LEDGER.write();
    let is_new = !ledger.contains_key(&addr.get());
    if is_new {
        device_only::comes(addr.get(), &mut allocation);
        ledger.insert(addr.get(), allocation);
    }
    is_new
}
