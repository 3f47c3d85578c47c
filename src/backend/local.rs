//! Ranks within one process: kind "self" is one rank that sends to itself.
//!
//! Written for n endpoints over one lock. Not tuned for many threads; not for processes (`shm`).

use super::matching::{Matcher, Message as Unexpected};
use super::operations::Operations;
use crate::abi::comm::DTL_ANY_SOURCE;
use crate::abi::status::*;
use crate::error::{Result, fail};
use crate::runtime::backend::{Comm, Done, Matched, OpId, OpenArgs, Presence, Selector, SendMode, Transport};
use crate::runtime::registry::Backend;
use crate::sys::buf::{Region, Scratch};
use crate::sys::lock::Mutex;
use std::sync::Arc;

/// The kind "self".
pub struct SelfComm;

/// The backend named "self".
#[must_use]
pub fn backend() -> Backend {
    let mut backend = Backend::new(c"self", i32::MIN, true, Box::new(SelfComm));
    backend.comm = Some(Box::new(SelfComm));
    backend
}

impl Presence for SelfComm {}

impl Comm for SelfComm {
    fn open(&self, args: &OpenArgs) -> Result<Box<dyn Transport>> {
        if let Some((rank, size)) = args.named {
            if (rank, size) != (0, 1) {
                return fail!(
                    DTL_ERROR_INVALID_ARGUMENT,
                    "rank {rank} of {size}: kind \"self\" has one rank, 0 of 1; choose kind \"shm\" or \"auto\""
                );
            }
        }
        match endpoints(1).pop() {
            Some(endpoint) => Ok(Box::new(endpoint)),
            None => fail!(DTL_ERROR_INTERNAL, "no endpoint was made"),
        }
    }
}

/// Messages up to this size are copied when nobody waits for them, and their sends are over.
const EAGER: usize = 4096;

/// Endpoints of `count` ranks that live in this process, in the order of their ranks.
#[must_use]
pub fn endpoints(count: i32) -> Vec<Endpoint> {
    let sides = (0..count).map(|_| Side::new(count)).collect();
    let fabric = Arc::new(Fabric { size: count, sides: Mutex::new(sides) });
    (0..count).map(|rank| Endpoint { rank, fabric: Arc::clone(&fabric) }).collect()
}

/// One rank's side of the ranks of this process.
pub struct Endpoint {
    rank: i32,
    fabric: Arc<Fabric>,
}

struct Fabric {
    size: i32,
    sides: Mutex<Vec<Side>>,
}

struct Side {
    operations: Operations<Operation>,
    matcher: Matcher<OpId, Message>,
    open: bool,
}

impl Side {
    fn new(ranks: i32) -> Self {
        Side {
            operations: Operations::new(),
            matcher: Matcher::new(usize::try_from(ranks).unwrap_or(0)),
            open: true,
        }
    }

    fn finish(&mut self, id: OpId, done: Done) {
        if let Some(operation) = self.operations.get_mut(id) {
            *operation = Operation::Done(done);
        }
    }
}

enum Operation {
    Send {
        dest: i32,
    },
    Receive {
        into: Region,
    },
    /// A message that was taken for a receive to come.
    Taken(Unexpected<Message>),
    Done(Done),
}

/// A message that nobody has asked for yet.
enum Message {
    /// A copy of it; its send is over.
    Copied(Scratch),
    /// The sender's own bytes; its send ends when they are taken.
    Lent(Region, OpId),
}

fn side(sides: &mut [Side], rank: i32) -> Result<&mut Side> {
    let ranks = sides.len();
    match usize::try_from(rank).ok().and_then(|rank| sides.get_mut(rank)) {
        Some(side) => Ok(side),
        None => fail!(DTL_ERROR_INVALID_RANK, "rank {rank} is not in 0 … {}", ranks.saturating_sub(1)),
    }
}

fn sent(rank: i32, word: u64, data: Region) -> Done {
    Done { source: rank, status: DTL_SUCCESS, word, size: data.len() as u64 }
}

/// The size of a message that nobody has received yet.
fn size_of(message: &Message) -> u64 {
    match message {
        Message::Copied(copy) => copy.region().len() as u64,
        Message::Lent(region, _) => region.len() as u64,
    }
}

/// Copies what fits.
fn received(into: Region, data: Region, source: i32, word: u64) -> Done {
    into.copy_from(data);
    let status = if data.len() > into.len() { DTL_ERROR_TRUNCATED } else { DTL_SUCCESS };
    Done { source, status, word, size: data.len() as u64 }
}

fn found_message(source: i32, word: u64, what: &Message) -> Done {
    Done { source, status: DTL_SUCCESS, word, size: size_of(what) }
}

fn check_source(sides: &mut [Side], source: i32) -> Result<()> {
    if source != DTL_ANY_SOURCE {
        side(sides, source)?;
    }
    Ok(())
}

/// Ends a receive of `rank` with a message, and the send if that waits for it.
fn deliver(sides: &mut [Side], rank: i32, id: OpId, message: Unexpected<Message>) -> Result<()> {
    let (source, word) = (message.source, message.word);
    let own = side(sides, rank)?;
    let Some(&Operation::Receive { into }) = own.operations.get(id) else { return Ok(()) };
    let bytes = match &message.what {
        Message::Copied(copy) => copy.region(),
        Message::Lent(region, _) => *region,
    };
    own.finish(id, received(into, bytes, source, word));
    if let Message::Lent(bytes, send) = message.what {
        side(sides, source)?.finish(send, sent(source, word, bytes));
    }
    Ok(())
}

impl Transport for Endpoint {
    fn rank(&self) -> i32 {
        self.rank
    }

    fn size(&self) -> i32 {
        self.fabric.size
    }

    fn isend(&self, data: Region, dest: i32, word: u64, mode: SendMode) -> Result<OpId> {
        let mut sides = self.fabric.sides.lock();
        let done = Operation::Done(sent(self.rank, word, data));
        let target = side(&mut sides, dest)?;
        if !target.open {
            return fail!(DTL_ERROR_RANK_FAILURE, "rank {dest} has closed the communicator");
        }
        if let Some(posted) = target.matcher.take_posted(self.rank, word) {
            if let Some(&Operation::Receive { into }) = target.operations.get(posted) {
                target.finish(posted, received(into, data, self.rank, word));
            }
            return side(&mut sides, self.rank)?.operations.add(done);
        }
        let copy =
            if data.len() <= EAGER && mode == SendMode::Standard { Scratch::copy_of(data) } else { None };
        let own = &mut side(&mut sides, self.rank)?.operations;
        // Without memory for a copy the sender's bytes are lent, as those of a large message.
        let (id, message) = match copy {
            Some(copy) => (own.add(done)?, Message::Copied(copy)),
            None => {
                let id = own.add(Operation::Send { dest })?;
                (id, Message::Lent(data, id))
            }
        };
        side(&mut sides, dest)?.matcher.arrive(self.rank, word, message);
        Ok(id)
    }

    fn irecv(&self, data: Region, select: Selector) -> Result<OpId> {
        let mut sides = self.fabric.sides.lock();
        check_source(&mut sides, select.source)?;
        let own = side(&mut sides, self.rank)?;
        let id = own.operations.add(Operation::Receive { into: data })?;
        let Some(message) = own.matcher.take_unexpected(&select) else {
            own.matcher.post(select, id);
            return Ok(id);
        };
        deliver(&mut sides, self.rank, id, message)?;
        Ok(id)
    }

    fn probe(&self, select: Selector) -> Result<Option<Done>> {
        let mut sides = self.fabric.sides.lock();
        check_source(&mut sides, select.source)?;
        let found = side(&mut sides, self.rank)?.matcher.peek(&select);
        Ok(found.map(|message| found_message(message.source, message.word, &message.what)))
    }

    fn take(&self, select: Selector) -> Result<Option<Matched>> {
        let mut sides = self.fabric.sides.lock();
        check_source(&mut sides, select.source)?;
        let own = side(&mut sides, self.rank)?;
        let Some(found) = own.matcher.peek(&select) else { return Ok(None) };
        let done = found_message(found.source, found.word, &found.what);
        let message = own.operations.add(Operation::Done(done))?;
        if let (Some(place), Some(taken)) =
            (own.operations.get_mut(message), own.matcher.take_unexpected(&select))
        {
            *place = Operation::Taken(taken);
        }
        Ok(Some(Matched { message, done }))
    }

    fn receive_matched(&self, message: OpId, data: Region) -> Result<OpId> {
        let mut sides = self.fabric.sides.lock();
        let own = side(&mut sides, self.rank)?;
        let Some(place @ Operation::Taken(_)) = own.operations.get_mut(message) else {
            return fail!(DTL_ERROR_INVALID_HANDLE, "message {:#x} was received or never taken", message.0);
        };
        let taken = std::mem::replace(place, Operation::Receive { into: data });
        if let Operation::Taken(taken) = taken {
            deliver(&mut sides, self.rank, message, taken)?;
        }
        Ok(message)
    }

    fn test(&self, op: OpId) -> Result<Option<Done>> {
        let mut sides = self.fabric.sides.lock();
        let own = &mut side(&mut sides, self.rank)?.operations;
        match own.get(op) {
            None => fail!(DTL_ERROR_INVALID_HANDLE, "operation {:#x} is over or never was", op.0),
            Some(&Operation::Done(done)) => {
                own.remove(op);
                Ok(Some(done))
            }
            Some(_) => Ok(None),
        }
    }

    /// There is nothing to move: who starts the second half of a message ends it.
    fn progress(&self) {}

    fn cancel(&self, op: OpId) -> Result<()> {
        let mut sides = self.fabric.sides.lock();
        let own = side(&mut sides, self.rank)?;
        let withdrawn = match own.operations.get(op) {
            Some(Operation::Receive { .. }) => own.matcher.withdraw(&op),
            Some(&Operation::Send { dest }) => {
                let target = &mut side(&mut sides, dest)?.matcher;
                let is = |message: &Message| matches!(message, Message::Lent(_, send) if *send == op);
                target.remove_unexpected(self.rank, is).is_some()
            }
            Some(Operation::Taken(_) | Operation::Done(_)) | None => false,
        };
        if withdrawn {
            let done = Done { source: self.rank, status: DTL_ERROR_CANCELED, word: 0, size: 0 };
            side(&mut sides, self.rank)?.finish(op, done);
        }
        Ok(())
    }

    fn describe(&self) -> String {
        "copies within this process".to_string()
    }

    fn close(&self) -> Result<()> {
        side(&mut self.fabric.sides.lock(), self.rank)?.open = false;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn buffer(bytes: &[u8]) -> Scratch {
        // SAFETY: the slice outlives the copy made here; `copy_of` only reads it.
        Scratch::copy_of(unsafe { Region::new(bytes.as_ptr().cast_mut().cast(), bytes.len()) })
            .expect("memory")
    }

    fn bytes(scratch: &Scratch) -> &[u8] {
        // SAFETY: the tests read a buffer only after the operation on it is over.
        unsafe { scratch.region().as_slice() }
    }

    fn from(source: i32, word: u64) -> Selector {
        Selector { source, word, ignore: 0 }
    }

    fn open_self() -> Box<dyn Transport> {
        let args = OpenArgs {
            flags: 0,
            named: None,
            launched: None,
            job: c"".to_owned(),
            timeout_ns: u64::MAX,
            native: crate::sys::buf::Addr::NULL,
        };
        SelfComm.open(&args).expect("self")
    }

    #[test]
    fn self_sends_to_itself_before_and_after_the_receive() {
        let comm = open_self();
        for size in [0, 1, EAGER, EAGER + 1, 100_000] {
            let (data, into) = (buffer(&vec![size as u8 | 1; size]), buffer(&vec![0; size]));
            for receive_first in [true, false] {
                into.region().fill(0);
                let early = receive_first.then(|| comm.irecv(into.region(), from(0, 3)).expect("irecv"));
                let send = comm.isend(data.region(), 0, 3, SendMode::Standard).expect("isend");
                let receive = early.unwrap_or_else(|| comm.irecv(into.region(), from(0, 3)).expect("irecv"));
                let done = comm.test(receive).expect("test").expect("over");
                assert_eq!(done, Done { source: 0, status: DTL_SUCCESS, word: 3, size: size as u64 });
                assert_eq!(comm.test(send).expect("test").expect("over").status, DTL_SUCCESS);
                assert_eq!(bytes(&into), bytes(&data));
                assert_eq!(comm.test(send).expect_err("stale").status(), DTL_ERROR_INVALID_HANDLE);
            }
        }
        comm.close().expect("close");
    }

    #[test]
    fn truncation_cancel_and_bad_ranks() {
        let comm = open_self();
        let (data, into) = (buffer(&[9; 5000]), buffer(&[0; 10]));
        let send = comm.isend(data.region(), 0, 1, SendMode::Standard).expect("isend");
        assert_eq!(comm.test(send).expect("test"), None);
        let receive = comm.irecv(into.region(), from(DTL_ANY_SOURCE, 1)).expect("irecv");
        let done = comm.test(receive).expect("test").expect("over");
        assert_eq!((done.status, done.size, bytes(&into)), (DTL_ERROR_TRUNCATED, 5000, &[9; 10][..]));
        assert!(comm.test(send).expect("test").is_some());
        for op in [
            comm.isend(data.region(), 0, 1, SendMode::Standard).expect("isend"),
            comm.irecv(into.region(), from(0, 2)).expect("irecv"),
        ] {
            comm.cancel(op).expect("cancel");
            assert_eq!(comm.test(op).expect("test").expect("over").status, DTL_ERROR_CANCELED);
        }
        let late = comm.irecv(into.region(), from(0, 1)).expect("irecv");
        assert_eq!(comm.test(late).expect("test"), None, "the cancelled send is gone");
        assert_eq!(
            comm.isend(data.region(), 1, 1, SendMode::Standard).expect_err("rank").status(),
            DTL_ERROR_INVALID_RANK
        );
        assert_eq!(
            comm.irecv(into.region(), from(-7, 1)).expect_err("rank").status(),
            DTL_ERROR_INVALID_RANK
        );
    }

    #[test]
    fn a_synchronous_send_is_over_when_received_and_may_be_withdrawn() {
        let comm = open_self();
        for size in [0, 10] {
            let (data, into) = (buffer(&vec![7; size]), buffer(&vec![0; size]));
            let start = || comm.isend(data.region(), 0, 4, SendMode::Synchronous).expect("isend");
            let send = start();
            assert_eq!(comm.test(send).expect("test"), None);
            comm.cancel(send).expect("cancel");
            assert_eq!(comm.test(send).expect("test").expect("over").status, DTL_ERROR_CANCELED);
            let send = start();
            let receive = comm.irecv(into.region(), from(0, 4)).expect("irecv");
            assert_eq!(comm.test(receive).expect("test").expect("over").size, size as u64);
            assert_eq!(comm.test(send).expect("test").expect("over").status, DTL_SUCCESS);
        }
    }

    #[test]
    fn a_taken_message_is_for_one_receive() {
        let comm = open_self();
        let (data, into) = (buffer(&[7; 10]), buffer(&[0; 4]));
        let any = Selector { source: DTL_ANY_SOURCE, word: 0, ignore: 0xFF };
        assert_eq!((comm.probe(any).expect("probe"), comm.take(any).expect("take")), (None, None));
        let send = comm.isend(data.region(), 0, 9, SendMode::Synchronous).expect("isend");
        let seen = comm.probe(any).expect("probe").expect("a message");
        assert_eq!(seen, Done { source: 0, status: DTL_SUCCESS, word: 9, size: 10 });
        let taken = comm.take(any).expect("take").expect("a message");
        assert_eq!((taken.done, comm.probe(any).expect("probe")), (seen, None));
        comm.cancel(send).expect("too late is no error");
        assert_eq!(comm.test(send).expect("test"), None);
        let receive = comm.receive_matched(taken.message, into.region()).expect("receive");
        let done = comm.test(receive).expect("test").expect("over");
        assert_eq!((done.status, done.size, bytes(&into)), (DTL_ERROR_TRUNCATED, 10, &[7; 4][..]));
        assert_eq!(comm.test(send).expect("test").expect("over").status, DTL_SUCCESS);
        let error = comm.receive_matched(taken.message, into.region()).expect_err("received");
        assert_eq!(error.status(), DTL_ERROR_INVALID_HANDLE);
    }

    #[test]
    fn three_endpoints_exchange() {
        let ends = endpoints(3);
        let data: Vec<_> = (0..3).map(|rank| buffer(&[rank as u8 + 1; 6000])).collect();
        let into: Vec<_> = (0..3).map(|_| buffer(&[0; 6000])).collect();
        let sends: Vec<_> = (0..3)
            .map(|rank| {
                ends[rank]
                    .isend(data[rank].region(), (rank as i32 + 1) % 3, 1, SendMode::Standard)
                    .expect("isend")
            })
            .collect();
        for rank in 0..3 {
            let receive = ends[rank].irecv(into[rank].region(), from(DTL_ANY_SOURCE, 1)).expect("irecv");
            let done = ends[rank].test(receive).expect("test").expect("over");
            assert_eq!(done.source, (rank as i32 + 2) % 3);
            assert_eq!(bytes(&into[rank])[0], done.source as u8 + 1);
        }
        for rank in 0..3 {
            assert!(ends[rank].test(sends[rank]).expect("test").is_some());
        }
        ends[1].close().expect("close");
        assert_eq!(
            ends[0].isend(Region::EMPTY, 1, 1, SendMode::Standard).expect_err("left").status(),
            DTL_ERROR_RANK_FAILURE
        );
    }
}
