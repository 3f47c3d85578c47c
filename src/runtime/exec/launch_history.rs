//! Launch history: the last kernel launches of this process, recorded once a program has set
//! a capacity.
//!
//! Until then a launch costs one load and one branch. A recorded launch writes one entry of a ring,
//! without an allocation and without waiting: if another thread reads or writes the entry at that
//! moment, the record is dropped. Launches of other threads reach the same entry only after as many
//! launches as the ring has entries.

use super::kernel::Kernel;
use super::stream::Stream;
use crate::abi::devices::exec::{dtl_launch_record_t, dtl_launch_t};
use crate::abi::handle::{dtl_kernel_t, dtl_stream_t};
use crate::abi::status::DTL_SUCCESS;
use crate::error::{Error, Result, fail, failure};
use crate::runtime::{copy_text, explain};
use crate::sys::handles::epoch::{self, Guard};
use crate::sys::handles::handle_table::Rcu;
use crate::sys::sync::lock::Mutex;
use crate::sys::sync::wait::now_ns;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Maximum number of entries.
const MOST: u64 = 1 << 20;

/// The history. Empty before a program sets a capacity for the first time.
static HISTORY: OnceLock<Rcu<History>> = OnceLock::new();

/// Ring of records; without entries while the history is off.
#[derive(Default)]
pub struct History {
    launches: AtomicU64,
    entries: Vec<Mutex<Option<dtl_launch_record_t>>>,
}

/// Returns the history; `None` if it is off.
#[inline]
pub fn current(inside: &Guard) -> Option<&History> {
    HISTORY.get().map(|history| history.get(inside)).filter(|history| !history.entries.is_empty())
}

/// Starts an empty history of the last `capacity` launches; 0 ends the history.
pub fn set_capacity(capacity: u64) -> Result<()> {
    if capacity > MOST {
        return fail!(DTL_ERROR_LIMIT, "capacity is {capacity}; pass at most {MOST} launches");
    }
    let mut history = History::default();
    history.entries.try_reserve_exact(capacity as usize).map_err(|_| {
        failure!(DTL_ERROR_OUT_OF_MEMORY, "no memory for a history of {capacity} launches")
    })?;
    history.entries.resize_with(capacity as usize, Mutex::default);
    HISTORY.get_or_init(|| Rcu::new(History::default())).replace(history, epoch::enter());
    let kept =
        if capacity == 0 { "off".to_owned() } else { format!("the last {capacity} launches") };
    explain::chose("launch history", &kept);
    Ok(())
}

/// Ends the history, at finalize and in a forked child.
pub fn close() {
    if let Some(history) = HISTORY.get() {
        history.replace(History::default(), epoch::enter());
    }
}

impl History {
    /// Runs the launch `act` and records it with its times and its status.
    #[cold]
    pub fn record(
        &self,
        (stream, on): (dtl_stream_t, &Stream),
        (kernel, launched): (dtl_kernel_t, &Kernel),
        shape: &dtl_launch_t,
        act: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let call_begin_ns = now_ns();
        let done = act();
        let mut record = dtl_launch_record_t {
            number: self.launches.fetch_add(1, Ordering::Relaxed) + 1,
            call_begin_ns,
            call_end_ns: now_ns(),
            backend: on.backend().handle(),
            stream,
            kernel,
            grid: shape.grid,
            block: shape.block,
            shared_bytes: shape.shared_bytes,
            device: on.device(),
            status: done.as_ref().map_or_else(Error::status, |()| DTL_SUCCESS),
            reserved0: 0,
            name: [0; 64],
            reserved1: [0; 2],
        };
        copy_text(&mut record.name, launched.name());
        let index = record.number % self.entries.len() as u64;
        let entry = self.entries.get(index as usize).and_then(Mutex::try_lock);
        if let Some(mut entry) = entry {
            // A thread that was delayed for a whole round has the older launch.
            *entry = entry.filter(|newer| newer.number > record.number).or(Some(record));
        }
        done
    }

    /// Returns the recorded launches, the oldest first; if `kernel` is given, only those of kernels
    /// of that name.
    pub fn read(&self, kernel: Option<&str>) -> Vec<dtl_launch_record_t> {
        let mut wanted = [0; 64];
        copy_text(&mut wanted, kernel.unwrap_or_default());
        let mut records: Vec<_> = self.entries.iter().filter_map(|entry| *entry.lock()).collect();
        records.retain(|record| kernel.is_none() || record.name == wanted);
        records.sort_unstable_by_key(|record| record.number);
        records
    }
}
