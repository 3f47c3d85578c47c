//! Memory of the ranks of an open window (`window`).

use super::memory::reg_cache::Registered;
use super::protocol::eager_slots::RAILS;
use crate::sys::memory::buf::Region;

/// Open window.
pub(crate) struct RdmaWindow {
    pub(crate) number: usize,
    pub(crate) memory: Region,
    #[allow(dead_code, reason = "keeps its memory registered")]
    pub(crate) registered: Option<Registered>,
    /// Memory of the other ranks, by rank.
    pub(crate) remotes: Vec<Option<RemoteRegion>>,
}

/// Window memory of a rank.
#[derive(Clone, Copy)]
pub(crate) struct RemoteRegion {
    pub(crate) addr: u64,
    pub(crate) keys: [u32; RAILS],
}
