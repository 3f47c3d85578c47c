//! Communicator kind "minimal", which has only the five required functions of a communicator's
//! vtable. Ranks are threads of this process; messages are copied into a queue of the receiver.
//!
//! It shows what the library provides for a minimal backend; it is not meant to be fast.
//! docs/how-to/register-a-backend.md describes real backends.

use crate::kit::outcome::{Called, output};
use crate::kit::vtables;
use crate::sample::window::Waiting;
use crate::sample::{Const, Out, Ptr, Status, fault, if_fault, put, window_work};
use dtl_sys::*;
use std::collections::{HashMap, VecDeque};
use std::ffi::{CStr, c_void};
use std::ptr;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Size in bytes above which the kind "faulty" changes the last byte of a message.
const FAULTY_BYTES: u64 = 1000;

/// State shared by all ranks. The vtable functions receive a pointer to it as `self`.
pub(crate) struct Job {
    queues: Vec<Mutex<VecDeque<Message>>>,
    /// For each rank: the lock that is held while an element of its windows is changed.
    locks: Vec<Mutex<()>>,
    is_faulty: bool,
}

struct Message {
    source: i32,
    word: u64,
    bytes: Vec<u8>,
    /// Address of the sender's buffer, for an injected fault that reads the buffer only when the
    /// message is delivered; 0 if the message has its own copy.
    from: usize,
}

impl Message {
    fn start(&self) -> *const u8 {
        if self.from == 0 { self.bytes.as_ptr() } else { ptr::with_exposed_provenance(self.from) }
    }
}

/// Returns the message as a transport with the currently injected fault would deliver it.
fn spoiled(mut message: Message) -> Message {
    let size = message.bytes.len();
    if_fault!("comm.isend.one_short" if size > 10_000 => message.bytes.truncate(size - 1));
    if_fault!("comm.isend.cut_at_64_kib" => message.bytes.truncate(65_536));
    if let Some(last) = message.bytes.last_mut().filter(|_| fault::is("comm.isend.last_byte_wrong"))
    {
        *last ^= 1;
    }
    message
}

/// Adds a message to the receiver's queue. `op` is the number of the send among the sender's
/// operations, for injected faults that affect only some messages.
fn put_into(queue: &Mutex<VecDeque<Message>>, message: Message, op: u64) {
    if_fault!("comm.isend.loses_one" if op % 500 == 499 => return);
    let twice = fault::is("comm.isend.sends_twice") && op % 50 == 49;
    let again = Message { bytes: message.bytes.clone(), ..message };
    let mut queue = lock(queue);
    if fault::is("comm.isend.overtakes") && op % 20 == 19 {
        queue.push_front(message);
    } else {
        queue.push_back(message);
    }
    if twice {
        queue.push_back(again);
    }
    drop(queue);
    if_fault!("comm.isend.blocks" => std::thread::sleep(std::time::Duration::from_secs(20)));
}

/// Pending receive. The caller of irecv must keep the memory at `buffer` valid until the receive is
/// complete.
struct Posted {
    op: u64,
    buffer: *mut u8,
    room: usize,
    source: i32,
    word: u64,
    ignore: u64,
}

/// State of one rank, used by one thread at a time.
pub(crate) struct Rank {
    pub(crate) rank: i32,
    job: &'static Job,
    arrived: VecDeque<Message>,
    posted: VecDeque<Posted>,
    done: HashMap<u64, dtl_comm_done_t>,
    last_op: u64,
    /// Pending one-sided operations; used only by the backend "sample".
    pub(crate) waiting: VecDeque<Waiting>,
    /// Number of calls to `test` so far.
    pub(crate) turns: u64,
}

impl Job {
    pub(crate) fn new(ranks: u64, is_faulty: bool) -> Job {
        let locks = (0..ranks).map(|_| Mutex::default()).collect();
        Job { queues: (0..ranks).map(|_| Mutex::default()).collect(), locks, is_faulty }
    }
}

/// Returns the vtable of a minimal communicator, which contains only the five required functions.
/// Their argument `self` points to a [`Job`], or to a structure that begins with one.
pub(crate) fn table() -> dtl_comm_vtable_t {
    dtl_comm_vtable_t {
        open: Some(open),
        close: Some(close),
        isend: Some(isend),
        irecv: Some(irecv),
        test: Some(test),
        ..DTL_COMM_VTABLE_INIT
    }
}

/// Registers the communicator kind "faulty" or "minimal" for a job with `ranks` ranks.
pub(crate) fn register(kind: &str, ranks: u64) -> Called {
    let is_faulty = kind == "faulty";
    // Backends live until the process ends.
    let job = Box::leak(Box::new(Job::new(ranks, is_faulty)));
    let comm = table();
    let table = dtl_backend_vtable_t {
        auto_priority: i32::MIN,
        comm: &raw const comm,
        ..DTL_BACKEND_VTABLE_INIT
    };
    let (own, name) = (ptr::from_mut(job).cast(), if is_faulty { c"faulty" } else { c"minimal" });
    output!(DTL_BACKEND_NULL, dtl_backend_register(name.as_ptr(), &raw const table, own, 0))?;
    // SAFETY: the tables that were registered just now.
    unsafe { vtables::keep(&raw const table, own) };
    Ok(())
}

fn lock(queue: &Mutex<VecDeque<Message>>) -> MutexGuard<'_, VecDeque<Message>> {
    queue.lock().unwrap_or_else(PoisonError::into_inner)
}

unsafe extern "C" fn open(
    own: Ptr,
    args: *const dtl_comm_open_t,
    out_comm: Out,
    out_rank: *mut i32,
    out_size: *mut i32,
) -> Status {
    // SAFETY: `own` is what was registered.
    let job = unsafe { &*own.cast::<Job>() };
    // SAFETY: the library passes a valid description.
    let dtl_comm_open_t { rank, job: name, .. } = unsafe { *args };
    // SAFETY: the job's name ends with NUL.
    if job.queues.len() > 1 && unsafe { CStr::from_ptr(name) }.is_empty() {
        return DTL_ERROR_INVALID_ARGUMENT; // as a table whose ranks meet by that name
    }
    if rank < 0 || rank as usize >= job.queues.len() {
        return DTL_ERROR_INVALID_ARGUMENT;
    }
    let (arrived, posted, done, waiting) = Default::default();
    let opened = Box::new(Rank { rank, job, arrived, posted, done, last_op: 0, waiting, turns: 0 });
    put(out_comm, Box::into_raw(opened).cast());
    put(out_rank, fault::or("comm.open.wrong_rank", 0, rank));
    put(out_size, fault::or("comm.open.wrong_size", rank, job.queues.len() as i32))
}

unsafe extern "C" fn close(_: Ptr, comm: Ptr) -> Status {
    // SAFETY: what `open` gave, closed once.
    drop(unsafe { Box::from_raw(comm.cast::<Rank>()) });
    DTL_SUCCESS
}

/// # Safety
/// `comm` must point to the state of a rank that `open` has created, and the library must not call
/// functions concurrently for this rank.
pub(crate) unsafe fn rank<'a>(comm: *mut c_void) -> &'a mut Rank {
    // SAFETY: the caller's contract.
    unsafe { &mut *comm.cast::<Rank>() }
}

unsafe extern "C" fn isend(
    _: Ptr,
    comm: Ptr,
    buffer: Const,
    size_bytes: u64,
    dest: i32,
    word: u64,
    out_op: *mut u64,
) -> Status {
    // SAFETY: the library's call.
    let rank = unsafe { rank(comm) };
    let mut bytes = vec![0; size_bytes as usize];
    if !bytes.is_empty() {
        // SAFETY: the library's buffer has `size_bytes`, as has the copy.
        unsafe { ptr::copy_nonoverlapping(buffer.cast(), bytes.as_mut_ptr(), bytes.len()) };
    }
    if let Some(last) = bytes.last_mut().filter(|_| rank.job.is_faulty && size_bytes > FAULTY_BYTES)
    {
        *last ^= 1;
    }
    let dest = if fault::is("comm.isend.misroutes") { 0 } else { dest };
    let Some(queue) = rank.job.queues.get(dest as usize) else { return DTL_ERROR_INVALID_ARGUMENT };
    let late = fault::is("comm.isend.reads_late") && size_bytes > 10_000;
    let from = if late { buffer.expose_provenance() } else { 0 };
    if_fault!("comm.isend.leaks" => std::hint::black_box(Box::leak(Box::new(word))));
    let message = spoiled(Message { source: rank.rank, word, bytes, from });
    let op = rank.next_op();
    put_into(queue, message, op);
    rank.finish(op, (0, 0, 0), DTL_SUCCESS);
    put(out_op, op)
}

unsafe extern "C" fn irecv(
    _: Ptr,
    comm: Ptr,
    buffer: Ptr,
    size_bytes: u64,
    source: i32,
    word: u64,
    ignore: u64,
    out_op: *mut u64,
) -> Status {
    // SAFETY: the library's call.
    let rank = unsafe { rank(comm) };
    let op = rank.next_op();
    let posted =
        Posted { op, buffer: buffer.cast(), room: size_bytes as usize, source, word, ignore };
    let found = rank.arrived.iter().position(|message| posted.takes(message));
    match found.and_then(|at| rank.arrived.remove(at)) {
        Some(message) => rank.deliver(&posted, &message),
        None => rank.posted.push_back(posted),
    }
    put(out_op, op)
}

unsafe extern "C" fn test(
    _: Ptr,
    comm: Ptr,
    op: u64,
    out_done: *mut i32,
    out_result: *mut dtl_comm_done_t,
) -> Status {
    // SAFETY: the library's call.
    let rank = unsafe { rank(comm) };
    if_fault!("comm.test.fails" => return DTL_ERROR_BACKEND);
    if_fault!("comm.test.crashes" => std::process::abort());
    while fault::is("comm.test.hangs") {
        std::thread::sleep(std::time::Duration::from_secs(1));
    }
    rank.take_in();
    window_work::go_on(rank);
    if fault::is("comm.test.done_early") {
        let is_it = |posted: &Posted| posted.op == op && posted.room > 10_000;
        let at = rank.posted.iter().position(is_it);
        if let Some(one) = at.and_then(|at| rank.posted.remove(at)) {
            rank.finish(op, (one.source, one.word, one.room as u64), DTL_SUCCESS);
        }
    }
    let (result, yes) = (rank.done.remove(&op), fault::or("comm.test.odd_boolean", 2, 1));
    put(out_done, yes * i32::from(result.is_some()));
    if let Some(mut result) = result {
        result.match_word ^= u64::from(fault::is("comm.test.another_word"));
        put(out_result, result);
    }
    DTL_SUCCESS
}

impl Posted {
    fn takes(&self, message: &Message) -> bool {
        let from_there = self.source == DTL_ANY_SOURCE || self.source == message.source;
        if fault::is("comm.irecv.ignores_word") {
            return from_there && message.bytes.len() <= self.room;
        }
        from_there && (self.word ^ message.word) & !self.ignore == 0
    }
}

impl Rank {
    pub(crate) fn ranks(&self) -> usize {
        self.job.queues.len()
    }

    pub(crate) fn lock_of(&self, rank: i32) -> Option<&'static Mutex<()>> {
        self.job.locks.get(usize::try_from(rank).ok()?)
    }

    pub(crate) fn last_op(&self) -> u64 {
        self.last_op
    }

    pub(crate) fn next_op(&mut self) -> u64 {
        self.last_op += 1;
        self.last_op
    }

    /// Matches the messages in this rank's queue with the posted receives.
    fn take_in(&mut self) {
        let Some(queue) = self.job.queues.get(self.rank as usize) else { return };
        loop {
            let Some(message) = lock(queue).pop_front() else { return };
            let found = self.posted.iter().position(|posted| posted.takes(&message));
            match found.and_then(|at| self.posted.remove(at)) {
                Some(posted) => self.deliver(&posted, &message),
                None => self.arrived.push_back(message),
            }
        }
    }

    fn deliver(&mut self, posted: &Posted, message: &Message) {
        let size = message.bytes.len();
        let source = if fault::is("comm.test.wrong_source") { self.rank } else { message.source };
        if size > 0 && posted.room > 0 {
            let count = size.min(posted.room);
            // SAFETY: the receive's buffer has `room` bytes until it is done, the message `size`.
            unsafe { ptr::copy_nonoverlapping(message.start(), posted.buffer, count) };
        }
        let status = if size > posted.room { DTL_ERROR_TRUNCATED } else { DTL_SUCCESS };
        self.finish(posted.op, (source, message.word, size as u64), status);
    }

    pub(crate) fn finish(
        &mut self,
        op: u64,
        (source, match_word, size_bytes): (i32, u64, u64),
        status: dtl_status_t,
    ) {
        self.done.insert(op, dtl_comm_done_t { source, status, match_word, size_bytes });
    }
}
