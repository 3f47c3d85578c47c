//! Export and import of memory between processes.

use crate::abi::devices::device::DTL_MEM_HANDLE_ROOM;
use crate::abi::word::dtl_enum_word_t;
use crate::error::Result;
use crate::sys::memory::buf::Addr;

/// Serialized reference to an allocation. The same backend can use it to import the allocation into
/// another process on the node.
pub type Ticket = [u64; DTL_MEM_HANDLE_ROOM as usize / 8];

/// Properties of an allocation. The exporting and the importing process use equal values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Kind of memory.
    pub kind: dtl_enum_word_t,
    /// Requested size in bytes (> 0).
    pub size: u64,
    /// Requested alignment in bytes (a power of two).
    pub align: u64,
}

/// Export and import of allocations between processes of the node.
pub trait Exports: Send + Sync {
    /// Exports the memory at `addr`, an address that `alloc` has returned. Returns the ticket that
    /// another process uses to import this memory.
    fn export(&self, addr: Addr, extent: Extent) -> Result<Ticket>;
    /// Maps an allocation of another process into this process and returns the address in this
    /// process.
    fn import(&self, ticket: &Ticket, extent: Extent) -> Result<Addr>;
    /// Unmaps the imported allocation at `addr`, the address that `import` returned.
    fn close(&self, addr: Addr, extent: Extent) -> Result<()>;
}
