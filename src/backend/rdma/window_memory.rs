//! Memory of the ranks of an open window (`window`).

use super::memory::reg_cache::Registered;
use super::verbs::qp::Remote;
use crate::sys::memory::buf::Region;

/// Open window.
pub(crate) struct RdmaWindow {
    pub(crate) number: usize,
    pub(crate) memory: Region,
    #[allow(dead_code, reason = "keeps its memory registered")]
    pub(crate) registered: Option<Registered>,
    /// Memory of the other ranks, by rank, with its key on the first rail.
    pub(crate) remotes: Vec<Option<Remote>>,
}
