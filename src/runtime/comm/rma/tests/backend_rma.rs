//! Tests of the choice between the transport's native one-sided operations and the library's own
//! implementation of these operations. The test transport has one rank; its window defers
//! operations until they are polled and has atomics on INT64 only.

use super::*;
use crate::abi::status::DTL_ERROR_CANCELED;
use crate::abi::status::DTL_SUCCESS;
use crate::abi::word::{
    DTL_DTYPE_FLOAT64, DTL_DTYPE_INT64, DTL_DTYPE_UINT64, DTL_OP_NO_OP, DTL_OP_SUM, dtl_dtype_t,
};
use crate::backend::in_process;
use crate::error::fail;
use crate::runtime::comm::rma::rma_ops::change;
use crate::runtime::comm::rma::select::{OfferMemory, PathChoice, choose};
use crate::runtime::comm::rma::{WindowOffer, rma_progress as serving};
use crate::runtime::component::{
    Completion, Dest, Groups, Matched, Properties, RecvMode, Rma, Selector, SendMode,
    SharedOffer as Memory, Swap, Transport, WindowPart, poll_of,
};
use crate::runtime::types::reduction;
use std::collections::VecDeque;
use std::task::Poll;

/// Log of the calls to the methods of the test window.
#[derive(Default)]
struct Log {
    calls: Vec<&'static str>,
    /// Deferred copies, as pairs of destination and source.
    later: Vec<(Region, Region)>,
}

struct Mock {
    log: Arc<Mutex<Log>>,
    memory: Region,
}

impl Mock {
    fn copy(&self, name: &'static str, pair: (Region, Region)) -> Result<Option<OpId>> {
        let mut log = self.log.lock();
        log.calls.push(name);
        log.later.push(pair);
        Ok(Some(OpId(7)))
    }

    fn log(&self, name: &'static str) -> Result<()> {
        self.log.lock().calls.push(name);
        Ok(())
    }
}

impl component::Window for Mock {
    fn describe(&self) -> &'static str {
        "a mock"
    }
    fn memory(&self) -> Region {
        self.memory
    }
    fn start(&self, at: TargetRange, op: &RmaOp, _asked: bool) -> Result<Option<OpId>> {
        let target = self.memory.part(at.offset, at.len);
        match *op {
            RmaOp::Put(from) => return self.copy("put", (target, from)),
            RmaOp::Get(into) => return self.copy("get", (into, target)),
            RmaOp::Accumulate { from, result, by } => {
                if !result.is_empty() {
                    result.copy_from(target);
                }
                reduction(by.dtype, by.op)?.apply(target, from);
                self.log("accumulate")?;
            }
            RmaOp::CompareAndSwap(_) => self.log("swap")?,
        }
        Ok(None)
    }
    fn test(&self, _op: OpId) -> Result<bool> {
        let mut log = self.log.lock();
        let over = log.later.is_empty();
        log.later.drain(..).for_each(|(to, from)| to.copy_from(from));
        Ok(over)
    }
    fn flush(&self, target: Option<i32>, _reach: FlushScope) -> Result<Option<OpId>> {
        assert_eq!(target, Some(0));
        self.log("flush").map(|()| Some(OpId(9)))
    }
    fn has_atomics(&self, dtype: dtl_dtype_t) -> bool {
        dtype == DTL_DTYPE_INT64
    }
    fn close(&self, together: bool) {
        drop(self.log(if together { "end" } else { "drop" }));
    }
}

/// Test transport whose only rank sends messages to itself.
struct Loop {
    queue: Mutex<VecDeque<(u64, Scratch)>>,
    log: Arc<Mutex<Log>>,
    /// Window support of the transport: `Ok(true)` if the transport allocates the memory of
    /// windows, `Ok(false)` if it needs existing memory, `Err` with the reason if it has no
    /// windows.
    windows: std::result::Result<bool, &'static str>,
    properties: Properties,
    receives: Mutex<Vec<Option<(Region, u64)>>>,
}

impl Loop {
    fn receive(&self, data: Region, word: u64) -> Option<Completion> {
        let mut queue = self.queue.lock();
        let at = queue.iter().position(|(sent, _)| *sent == word)?;
        let (_, message) = queue.remove(at)?;
        data.copy_from(message.region());
        Some(Completion {
            source: 0,
            status: DTL_SUCCESS,
            match_bits: word,
            size: message.region().len() as u64,
        })
    }
}

impl Transport for Loop {
    fn properties(&self) -> &Properties {
        &self.properties
    }
    fn groups(&self) -> Groups<'_> {
        Groups { rma: self.windows.map(|_| self as _), ..Groups::NONE }
    }
    fn start_send(
        &self,
        data: Region,
        to: Dest,
        _mode: SendMode,
        _may_block: bool,
    ) -> Result<OpId> {
        self.queue.lock().push_back((to.word, Scratch::copy_of(data).unwrap()));
        Ok(OpId(0))
    }
    fn start_recv(&self, data: Region, select: Selector, _mode: RecvMode<'_>) -> Result<OpId> {
        let mut receives = self.receives.lock();
        receives.push(Some((data, select.match_bits)));
        Ok(OpId(receives.len() as u64))
    }
    fn probe(&self, _select: Selector) -> Result<Option<Completion>> {
        Ok(None)
    }
    fn take(&self, select: Selector) -> Result<Option<Matched>> {
        let is_there = self.queue.lock().iter().any(|(word, _)| *word == select.match_bits);
        let done =
            Completion { source: 0, status: DTL_SUCCESS, match_bits: select.match_bits, size: 0 };
        Ok(is_there.then_some(Matched { message: OpId(select.match_bits), done }))
    }
    fn receive_matched(&self, message: OpId, data: Region) -> Result<OpId> {
        self.start_recv(
            data,
            Selector { source: 0, match_bits: message.0, ignore: 0 },
            RecvMode::Request,
        )
    }
    fn test(&self, op: OpId, completion: &mut Completion) -> Poll<Result<()>> {
        let mut test = || -> Result<bool> {
            if op.0 == 0 {
                *completion = Completion { source: 0, ..Completion::NOBODY };
                return Ok(true);
            }
            let known = self.receives.lock()[op.0 as usize - 1].unwrap();
            Ok(self.receive(known.0, known.1).map(|done| *completion = done).is_some())
        };
        poll_of(test())
    }
    fn progress(&self) {}
    fn cancel(&self, _op: OpId) -> Result<()> {
        Ok(())
    }
    fn close(&self) -> Result<()> {
        Ok(())
    }
}

impl Rma for Loop {
    fn allocates(&self) -> bool {
        self.windows == Ok(true)
    }
    fn window(&self, part: WindowPart<'_>) -> Result<Box<dyn component::Window>> {
        match part.memory {
            Some(memory) => Ok(Box::new(Mock { log: Arc::clone(&self.log), memory })),
            None => fail!(DTL_ERROR_OUT_OF_MEMORY, "no {} bytes", part.sizes[0]),
        }
    }
}

/// Creates a window over `memory` on a test transport with the window support `windows`. Returns
/// the selected RMA path and the log of the calls to the window.
fn make(
    windows: std::result::Result<bool, &'static str>,
    memory: Memory,
) -> (PathChoice, Arc<Mutex<Log>>) {
    let log = Arc::new(Mutex::new(Log::default()));
    let (queue, receives) = (Mutex::default(), Mutex::default());
    let properties = Properties::new(0, 1, "loop");
    let transport = Box::new(Loop { queue, log: Arc::clone(&log), windows, properties, receives });
    let comm = Arc::new(in_process::comm_over(transport));
    let had = OfferMemory::of(&comm, WindowOffer { memory, disp_unit: 1 }).unwrap();
    let [size, unit, place, check, windows, base] = had.words();
    let chosen = choose(&comm, had, &[[0, 1, size, unit, place, check, windows, base]]).unwrap();
    // Any waiting call serves all windows in the list.
    serving::add(&chosen.path, false).unwrap();
    (chosen, log)
}

fn words(values: &[u64]) -> Scratch {
    Scratch::of_words(values).unwrap()
}

const FIRST: TargetRange = TargetRange { target: 0, offset: 0, len: 8 };

#[test]
fn data_and_some_atomics_are_the_transports() {
    let (PathChoice { path, memory, kept: _kept, .. }, log) = make(Ok(false), Memory::Fresh(16));
    assert_eq!((path.describe(), memory.len()), ("a mock", 16));
    let (from, into) = (words(&[5]), words(&[0]));
    let int = change(DTL_DTYPE_INT64, DTL_OP_SUM).unwrap();
    let real = change(DTL_DTYPE_FLOAT64, DTL_OP_NO_OP).unwrap();
    path.lock(0..1, true).unwrap();
    assert!(path.start(FIRST, &RmaOp::Put(from.region()), false).is_ok());
    path.flush(0..1, FlushScope::Target).unwrap();
    let result = into.region();
    let add = RmaOp::Accumulate { from: from.region(), result, by: int };
    path.start(FIRST, &add, false).unwrap();
    assert_eq!(into.words(), [5]);
    let read = RmaOp::Accumulate { from: Region::EMPTY, result, by: real };
    path.start(FIRST, &read, false).unwrap();
    assert_eq!(into.words(), [10]);
    let (value, expected, result) = (words(&[3]), words(&[10]), words(&[0]));
    let [value, expected, result] = [&value, &expected, &result].map(Scratch::region);
    for dtype in [DTL_DTYPE_INT64, DTL_DTYPE_UINT64] {
        let swap = RmaOp::CompareAndSwap(Swap { value, expected, result, dtype });
        path.start(FIRST, &swap, false).unwrap();
    }
    path.flush(0..1, FlushScope::Target).unwrap();
    path.leave(0..1).unwrap();
    assert_eq!(log.lock().calls, ["put", "flush", "accumulate", "swap", "flush"]);
    path.start(FIRST, &RmaOp::Get(into.region()), false).unwrap();
    path.flush(0..1, FlushScope::Local).unwrap();
    assert_eq!(into.words(), [3], "what was swapped by a message is in the same memory");
}

#[test]
fn who_asks_hears_and_nobody_after_the_end() {
    for together in [true, false] {
        let (PathChoice { path, memory, kept: _kept, .. }, log) = make(Ok(false), Memory::Fresh(8));
        let (first, second) = (words(&[1]), words(&[2]));
        let Some(ticket) = path.start(FIRST, &RmaOp::Put(first.region()), true).unwrap() else {
            panic!("over")
        };
        assert!(!path.is_over(ticket).unwrap() && path.is_over(ticket).unwrap());
        let Some(ticket) = path.start(FIRST, &RmaOp::Put(second.region()), true).unwrap() else {
            panic!("over")
        };
        path.cancel(ticket).unwrap();
        let into = words(&[0]);
        into.region().copy_from(memory);
        assert_eq!(into.words(), [2]);
        let Some(ticket) = path.start(FIRST, &RmaOp::Get(into.region()), true).unwrap() else {
            panic!("over")
        };
        path.flush(0..1, FlushScope::Target).unwrap();
        path.close(together);
        path.close(!together);
        assert_eq!(log.lock().calls.last(), Some(&if together { "end" } else { "drop" }));
        match path.is_over(ticket) {
            Ok(is_over) => assert!(is_over && together),
            Err(error) => assert!(error.status() == DTL_ERROR_CANCELED && !together),
        }
    }
}

#[test]
fn without_a_window_of_the_transports_there_are_messages() {
    for (windows, path) in [
        (Ok(false), "a mock"),
        // The mock window has no memory of its own, so it gets memory of the library.
        (Ok(true), "a mock"),
        (Err("as it is one"), "messages, served by whoever waits in this process"),
    ] {
        let (PathChoice { path: chosen, memory, kept: _kept, .. }, _) =
            make(windows, Memory::Fresh(24));
        assert_eq!((chosen.describe(), memory.len()), (path, 24));
        let from = words(&[4]);
        chosen.start(FIRST, &RmaOp::Put(from.region()), false).unwrap();
        chosen.flush(0..1, FlushScope::Target).unwrap();
        let into = words(&[0]);
        into.region().copy_from(memory);
        assert_eq!(into.words(), [4]);
    }
}
