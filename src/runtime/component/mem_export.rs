//! Memory that crosses from one process to another.

use crate::abi::devices::device::DTL_MEM_HANDLE_ROOM;
use crate::abi::word::dtl_enum_word_t;
use crate::error::Result;
use crate::sys::memory::buf::Addr;

/// Backend-specific reference to an allocation, for the same backend in another process of the
/// node.
pub type Ticket = [u64; DTL_MEM_HANDLE_ROOM as usize / 8];

/// Properties of an allocation that are equal on both sides of an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// The kind of memory.
    pub kind: dtl_enum_word_t,
    /// Requested bytes (> 0).
    pub size: u64,
    /// Requested alignment (a power of two).
    pub align: u64,
}

/// Allocations that other processes of the node can have too.
pub trait Exports: Send + Sync {
    /// Returns the ticket by which another process reaches memory from `alloc`.
    fn export(&self, addr: Addr, extent: Extent) -> Result<Ticket>;
    /// Makes another process' allocation one of this one, at an address of its own.
    fn import(&self, ticket: &Ticket, extent: Extent) -> Result<Addr>;
    /// Lets go of what `import` gave.
    fn close(&self, addr: Addr, extent: Extent) -> Result<()>;
}
