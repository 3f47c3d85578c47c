//! [`MemoryPlace`]: the backend, the kind and the device of memory.

use crate::abi::handle::dtl_backend_t;
use crate::abi::word::dtl_enum_word_t;

/// Backend, kind and device of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryPlace {
    /// Backend that owns the memory.
    pub backend: dtl_backend_t,
    /// Memory kind.
    pub kind: dtl_enum_word_t,
    /// Device on which the memory was allocated.
    pub device: i32,
}
