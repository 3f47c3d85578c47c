//! Memory handles for other processes: `dtl_mem_export`, `dtl_mem_import`.
//!
//! The words of a handle are the `Head`, which the library checks before it calls a backend,
//! followed by the ticket of the backend. The backend implements the transfer of memory between
//! processes.

use super::{Allocation, LEDGER, admit, check, device_only, find, registered};
use crate::abi::devices::device::{DTL_MEM_HANDLE_ROOM, dtl_mem_handle_t};
use crate::abi::status::DTL_ERROR_LIMIT;
use crate::error::{Error, Result, fail, failure};
use crate::runtime::component::{Exports, Extent, Ticket};
use crate::runtime::device;
use crate::runtime::registry::{self, Backend};
use crate::sys::{
    handles::epoch::Guard,
    memory::buf::{Addr, fnv1a},
    os::process,
};

const WORDS: usize = 16;
const TICKET_WORDS: usize = DTL_MEM_HANDLE_ROOM as usize / 8;
const HEAD_WORDS: usize = WORDS - TICKET_WORDS;
/// Bytes of the backend's name in the handle, for error texts.
const NAME: usize = 16;
/// Magic number "DTLM"; VERSION is the version of the format that follows.
const MAGIC: u64 = 0x4D4C_5444;
const VERSION: u64 = 1;

/// Header of a memory handle: the words before the backend's ticket, in this order.
struct Head {
    /// Magic number in the lower half, version in the upper half.
    format: u64,
    /// Checksum of all other words.
    sum: u64,
    node: u64,
    kind: u64,
    size: u64,
    /// Base-2 logarithm of the alignment in the lowest byte; hash of the complete backend name in
    /// the other bytes.
    align_and_name: u64,
    name: [u64; 2],
}

impl Head {
    fn words(&self) -> [u64; HEAD_WORDS] {
        let [first, second] = self.name;
        [self.format, self.sum, self.node, self.kind, self.size, self.align_and_name, first, second]
    }

    fn of(
        [format, sum, node, kind, size, align_and_name, first, second]: [u64; HEAD_WORDS],
    ) -> Self {
        Head { format, sum, node, kind, size, align_and_name, name: [first, second] }
    }

    /// Returns the first bytes of the backend's name.
    fn name(&self) -> String {
        let bytes: Vec<u8> = self.name.iter().flat_map(|word| word.to_ne_bytes()).collect();
        String::from_utf8_lossy(&bytes).trim_end_matches('\0').to_owned()
    }
}

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

fn sum(head: &Head, ticket: &Ticket) -> u64 {
    let head = Head { sum: 0, name: head.name, ..*head }.words();
    let bytes: Vec<u8> = head.iter().chain(ticket).flat_map(|word| word.to_ne_bytes()).collect();
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

/// Creates a handle by which another process can access an allocation.
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
    let mut head = Head {
        format: MAGIC | VERSION << 32,
        sum: 0,
        node: node()?,
        kind: extent.kind,
        size: extent.size,
        align_and_name: align_and_name(extent.align, backend.name()),
        name: name_words(backend.name()),
    };
    head.sum = sum(&head, &ticket);
    let mut opaque = [0; WORDS];
    opaque.iter_mut().zip(head.words().iter().chain(&ticket)).for_each(|(to, from)| *to = *from);
    Ok(dtl_mem_handle_t { opaque })
}

/// Imports an allocation of another process. Returns its address in this process and its size in
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
    let mut words = [0; HEAD_WORDS];
    let mut ticket: Ticket = [0; TICKET_WORDS];
    words.iter_mut().chain(&mut ticket).zip(&handle.opaque).for_each(|(to, from)| *to = *from);
    let head = Head::of(words);
    if head.format & u64::from(u32::MAX) != MAGIC {
        return fail!(
            DTL_ERROR_INVALID_ARGUMENT,
            "handle is none: dtl_mem_export did not write these bytes"
        );
    }
    if head.format >> 32 != VERSION {
        return fail!(
            DTL_ERROR_INCOMPATIBLE_ABI,
            "handle has format {}, this library reads {VERSION}: use one version of the library on \
             all ranks",
            head.format >> 32
        );
    }
    if head.sum != sum(&head, &ticket) {
        return fail!(
            DTL_ERROR_INVALID_ARGUMENT,
            "handle is damaged: send and keep all its {} bytes (sizeof(dtl_mem_handle_t))",
            WORDS * 8
        );
    }
    if head.name != name_words(backend.name())
        || head.align_and_name & !0xFF != align_and_name(1, backend.name())
    {
        return fail!(
            DTL_ERROR_INVALID_ARGUMENT,
            "handle is of memory of backend \"{}\", not of {}: import it with that one",
            head.name(),
            backend.name()
        );
    }
    if head.node != node()? {
        return fail!(
            DTL_ERROR_NOT_SUPPORTED,
            "handle comes from another node (or from before this one booted): import it on its own \
             node (dtl_comm_split_node), and send data between nodes"
        );
    }
    let align = 1_u64.checked_shl((head.align_and_name & 0xFF) as u32).unwrap_or(u64::MAX);
    let extent = Extent { kind: head.kind, size: head.size, align: check(head.size, align)? };
    Ok((extent, ticket))
}

/// Enters imported memory into the ledger. Returns false if the ledger already has an allocation at
/// this address.
fn enter_new(addr: Addr, mut allocation: Allocation) -> bool {
    let mut ledger = LEDGER.write();
    let is_new = !ledger.contains_key(&addr.get());
    if is_new {
        device_only::comes(addr.get(), &mut allocation);
        ledger.insert(addr.get(), allocation);
    }
    is_new
}
