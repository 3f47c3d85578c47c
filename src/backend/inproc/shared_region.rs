//! Memory of one rank that all ranks of this process access with loads and stores. The ranks share
//! one address space, so the application may have allocated the memory. This module finds shared
//! regions by their keys and allocates the synchronization words of each region.

use crate::error::{Result, fail};
use crate::runtime::component::{self, PART_WORDS, PartKey, SharedOffer, part_is_gone};
use crate::sys::memory::buf::Region;
use crate::sys::os::shm_segment::{SharedMapping, Span};
use crate::sys::sync::lock::Mutex;
use std::collections::HashMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Weak};

const WORDS_BYTES: usize = 8 * PART_WORDS;

/// Shared regions of all ranks of a communicator, keyed by region number.
#[derive(Clone, Default)]
pub(super) struct Parts(Arc<Mutex<Numbered>>);

#[derive(Default)]
struct Numbered {
    last: u64,
    all: HashMap<u64, Weak<Made>>,
}

/// A shared region. The memory that the library allocated for the region is freed when the last
/// rank releases the region.
struct Made {
    /// Number of the region: the first word of the region's key.
    number: u64,
    rank: i32,
    bytes: Region,
    words: Span,
    among: Parts,
}

struct InprocRegion(Arc<Made>);

impl Parts {
    pub(super) fn offer(
        &self,
        rank: i32,
        offer: SharedOffer,
    ) -> Result<Box<dyn component::SharedRegion>> {
        let len = if let SharedOffer::Fresh(len) = offer { len } else { 0 };
        let memory = WORDS_BYTES.checked_add(len).and_then(|len| SharedMapping::reserved(len).ok());
        let Some(memory) = memory else {
            return fail!(
                DTL_ERROR_OUT_OF_MEMORY,
                "no {len} bytes for all ranks; free memory or raise the limit (ulimit)"
            );
        };
        let spans = memory.span(0, WORDS_BYTES).zip(memory.span(WORDS_BYTES, len));
        let Some((words, fresh)) = spans else {
            return fail!(DTL_ERROR_INTERNAL, "a part lies outside of its memory");
        };
        let bytes = if let SharedOffer::Own(bytes) = offer { bytes } else { fresh.region() };
        let mut numbered = self.0.lock();
        numbered.last += 1;
        let made =
            Arc::new(Made { number: numbered.last, rank, bytes, words, among: self.clone() });
        numbered.all.insert(made.number, Arc::downgrade(&made));
        Ok(Box::new(InprocRegion(made)))
    }

    pub(super) fn find(&self, rank: i32, key: PartKey) -> Result<Box<dyn component::SharedRegion>> {
        let made = self.0.lock().all.get(&key[0]).and_then(Weak::upgrade);
        match made.filter(|made| made.rank == rank && key[1] == made.check()) {
            Some(made) => Ok(Box::new(InprocRegion(made))),
            None => Err(part_is_gone(rank)),
        }
    }
}

impl Made {
    /// Returns the second word of the region's key. A key whose second word differs was not
    /// obtained from this region and is rejected.
    fn check(&self) -> u64 {
        self.words.region().addr().get() as u64
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        self.among.0.lock().all.remove(&self.number);
    }
}

impl component::SharedRegion for InprocRegion {
    fn region(&self) -> Region {
        self.0.bytes
    }

    fn words(&self) -> &[AtomicU64] {
        self.0.words.words(0, PART_WORDS).unwrap_or_default()
    }

    fn key(&self) -> PartKey {
        [self.0.number, self.0.check()]
    }
}
