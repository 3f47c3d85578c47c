//! Implementation of the trait `Window` of `runtime::component` on the windows of a raw transport
//! (`Wire`). It locks the protocol engine for each call, and exchanges the keys that ranks need to
//! access each other's memory.

use super::SharedEngine;
use super::rma::Begin;
use crate::abi::backend::vtable::DTL_WIN_KEY_BYTES;
use crate::abi::word::{DTL_DTYPE_INT64_INT64, dtl_dtype_t};
use crate::error::{Result, fail};
use crate::runtime::component::{FlushScope, OpId, RmaOp, TargetRange, Window, WindowPart};
use crate::sys::memory::buf::Region;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU64, Ordering};

/// Size of a window key, in 64-bit words.
const KEY: usize = DTL_WIN_KEY_BYTES as usize / 8;
/// Size, in 64-bit words, of the record that each rank sends to the others when a window is
/// created: bit set of the datatypes with native atomics, length of the key in bytes, and the key.
const WORDS: usize = 2 + KEY;
/// Range of the built-in datatypes.
const DTYPES: RangeInclusive<dtl_dtype_t> = 0..=DTL_DTYPE_INT64_INT64;
const _: () = assert!(DTL_DTYPE_INT64_INT64 < 64);

struct RmaAdapter {
    engine: SharedEngine,
    number: u64,
    memory: Region,
    key: Vec<u8>,
    /// Bit set of datatypes with native atomics on all ranks; 0 until the ranks have exchanged
    /// their own bit sets.
    atomics: AtomicU64,
}

/// Creates this rank's window on `part.memory`, which must be `Some`.
pub(super) fn open(engine: &SharedEngine, part: WindowPart<'_>) -> Result<Box<dyn Window>> {
    let Some(memory) = part.memory else {
        return fail!(
            DTL_ERROR_NOT_SUPPORTED,
            "a registered backend's windows are of memory that is there"
        );
    };
    let number = u64::from(part.number);
    let key = engine.with(|engine| engine.open_window(number, memory))?;
    Ok(Box::new(RmaAdapter {
        engine: engine.clone(),
        number,
        memory,
        key,
        atomics: AtomicU64::new(0),
    }))
}

impl RmaAdapter {
    /// Returns the bit set of the datatypes for which this rank has native atomics.
    fn own_atomics(&self) -> Result<u64> {
        let number = self.number;
        self.engine.with(|engine| {
            DTYPES.clone().try_fold(0, |all, dtype| {
                let has = engine
                    .ask_windows(number, |windows, window| windows.has_atomics(window, dtype))?;
                Ok(all | u64::from(has) << dtype)
            })
        })
    }
}

impl Window for RmaAdapter {
    fn describe(&self) -> &'static str {
        match self.atomics.load(Ordering::Relaxed) {
            0 => "the backend's own put and get, the rest by messages",
            _ => "the backend's own put, get and atomics, locks by messages",
        }
    }

    fn memory(&self) -> Region {
        self.memory
    }

    fn local_record(&self) -> Result<Vec<u64>> {
        let mut words = vec![self.own_atomics()?, self.key.len() as u64];
        words.extend(self.key.chunks(8).map(|bytes| {
            let mut word = [0; 8];
            word.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
            u64::from_ne_bytes(word)
        }));
        words.resize(WORDS, 0);
        Ok(words)
    }

    fn set_records(&self, records: &[u64]) -> Result<()> {
        let mut common = u64::MAX;
        for (rank, words) in (0..).zip(records.chunks_exact(WORDS)) {
            let [atomics, bytes, key @ ..] = words else { continue };
            common &= atomics;
            let attach = |windows: &mut dyn super::WireWindows, window| {
                windows.attach(window, rank, key, *bytes as usize)
            };
            self.engine.with(|engine| engine.ask_windows(self.number, attach))?;
        }
        self.atomics.store(common, Ordering::Relaxed);
        Ok(())
    }

    fn start(&self, at: TargetRange, op: &RmaOp, wants_op: bool) -> Result<Option<OpId>> {
        let begin = Begin::Op(at, *op);
        self.engine.with(|engine| engine.begin_on_window(self.number, begin, wants_op))
    }

    fn test(&self, op: OpId) -> Result<bool> {
        self.engine.with(|engine| engine.test_window(self.number, op))
    }

    fn flush(&self, target: Option<i32>, reach: FlushScope) -> Result<Option<OpId>> {
        self.engine.with(|engine| {
            engine.on_window(self.number, |open, hand| open.flush(target, reach, hand))
        })
    }

    fn has_atomics(&self, dtype: dtl_dtype_t) -> bool {
        DTYPES.contains(&dtype) && self.atomics.load(Ordering::Relaxed) >> dtype & 1 != 0
    }

    fn close(&self, _together: bool) {
        let closed = self.engine.with(|engine| engine.close_window(self.number));
        crate::runtime::log::failure("closing a window", closed);
    }
}

impl Drop for RmaAdapter {
    fn drop(&mut self) {
        // Does nothing if the window is already closed, or if the communicator is closed and the
        // window with it.
        drop(self.engine.with(|engine| engine.close_window(self.number)));
    }
}
