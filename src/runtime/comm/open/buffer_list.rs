//! Data about the buffers that the program has registered with a communicator (`buffers`).

use crate::runtime::component::Hold;
use crate::sys::memory::buf::Region;
use std::collections::BTreeMap;

/// Registered buffers of a communicator, by the address of their first byte. They do not overlap.
pub(crate) type Buffers = BTreeMap<usize, Buffer>;

/// Registered buffer.
pub(crate) struct Buffer {
    pub(super) region: Region,
    pub(super) state: BufferState,
}

/// Registration of a buffer.
pub(super) enum BufferState {
    /// A call of another thread is registering the buffer.
    Pending,
    /// Nothing had to be registered, or the transport has registered the whole allocation.
    Kept { _hold: Option<Hold> },
    /// The transport has registered the buffer.
    Transport(Hold),
    /// The device communicator has registered the buffer.
    Device(Hold),
}
