//! Functions that the cases share: opening, waiting with a time limit, buffers with known contents.

use dtl::abi::comm::communicator::DTL_ANY_SOURCE;
use dtl::backend::shm::Shm;
use dtl::error::Result;
use dtl::runtime::component::{
    Comm, Completion, OpId, OpenArgs, Selector, SendMode, SharedMemory, Transport,
};
use dtl::sys::memory::buf::{Addr, Region, Scratch};
use dtl::sys::sync::wait::Backoff;
use std::time::{Duration, Instant};

pub(crate) type Rank = Box<dyn Transport>;

pub(crate) fn try_open() -> Result<Rank> {
    let millis = std::env::var("DTL_TEST_TIMEOUT_MS").ok().and_then(|text| text.parse().ok());
    try_open_for(millis.unwrap_or(20_000))
}

pub(crate) fn try_open_for(millis: u64) -> Result<Rank> {
    let args = OpenArgs {
        flags: 0,
        named: None,
        launched: None,
        job: c"".to_owned(),
        is_only_open: false,
        timeout_ns: Duration::from_millis(millis).as_nanos() as u64,
        settings: Addr::NULL,
        grown: None,
        watch: None,
        own_algorithms: false,
        device_pci: None,
        over: None,
    };
    Shm.open(&args)
}

pub(crate) fn open() -> Rank {
    try_open().expect("open")
}

pub(crate) fn failed_ranks(comm: &Rank) -> Vec<i32> {
    comm.groups().liveness.expect("provided").failed_ranks()
}

pub(crate) fn failed_count(comm: &Rank) -> usize {
    comm.groups().liveness.expect("provided").failed_count()
}

pub(crate) fn shared_memory(comm: &Rank) -> &dyn SharedMemory {
    comm.groups().shared_memory.expect("provided")
}

/// Waits for an operation, with the time limit of all tests.
pub(crate) fn wait(comm: &Rank, op: OpId) -> Completion {
    wait_for(comm, op, Duration::from_secs(600)).expect("an operation does not end")
}

pub(crate) fn wait_for(comm: &Rank, op: OpId, limit: Duration) -> Option<Completion> {
    let (mut backoff, started) = (Backoff::new(), Instant::now());
    loop {
        if let Some(done) = comm.outcome(op).expect("test") {
            return Some(done);
        }
        if started.elapsed() > limit {
            return None;
        }
        backoff.pause();
    }
}

/// Polls until there is a result.
pub(crate) fn until<T>(mut ask: impl FnMut() -> Option<T>) -> T {
    let mut backoff = Backoff::new();
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        backoff.pause();
    }
}

pub(crate) fn from(source: i32, word: u64) -> Selector {
    Selector { source, match_bits: word, ignore: 0 }
}

pub(crate) fn from_any(word: u64) -> Selector {
    from(DTL_ANY_SOURCE, word)
}

pub(crate) fn send(comm: &Rank, data: &Buffer, dest: i32, word: u64) -> OpId {
    comm.isend(data.region(), dest, word, SendMode::Standard).expect("isend")
}

/// Performs a synchronous send.
pub(crate) fn ssend(comm: &Rank, data: &Buffer, dest: i32, word: u64) -> OpId {
    comm.isend(data.region(), dest, word, SendMode::Synchronous).expect("isend")
}

pub(crate) fn receive(comm: &Rank, into: &Buffer, select: Selector) -> OpId {
    comm.irecv(into.region(), select).expect("irecv")
}

/// Buffer whose contents are derived from a number.
pub(crate) struct Buffer(Scratch);

impl Buffer {
    pub(crate) fn new(len: usize) -> Buffer {
        Buffer(Scratch::new(len).expect("memory"))
    }

    pub(crate) fn filled(len: usize, seed: u64) -> Buffer {
        let buffer = Buffer::new(len);
        let bytes = pattern(len, seed);
        // SAFETY: the vector is valid while it is copied from.
        let source = unsafe { Region::new(bytes.as_ptr().cast_mut().cast(), len) };
        buffer.region().copy_from(source);
        buffer
    }

    pub(crate) fn region(&self) -> Region {
        self.0.region()
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: the cases look at a buffer only when no operation on it is under way.
        unsafe { self.region().as_slice() }
    }

    pub(crate) fn holds(&self, len: usize, seed: u64) -> bool {
        self.bytes()[..len] == pattern(len, seed)[..]
    }
}

fn pattern(len: usize, seed: u64) -> Vec<u8> {
    let mut random = Random(seed | 1);
    // Word by word: an iterator over the bytes takes seconds in a debug build.
    let mut bytes = vec![0; len.next_multiple_of(8)];
    for word in bytes.chunks_exact_mut(8) {
        word.copy_from_slice(&random.next().to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

/// Random number generator with equal numbers on all ranks (xorshift64*).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        (self.next() >> 16) % limit
    }
}
