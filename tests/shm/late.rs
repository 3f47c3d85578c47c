//! Code of the ranks in tests of an allreduce that reduces its messages as they arrive: a rank is
//! late, or passes another count. The ranks use the C interface, because time limits and reports
//! belong to the communicator.

use crate::large::{mark, wait_for_mark};
use crate::rank::*;
use dtl::abi::comm::communicator::dtl_comm_desc_t;
use dtl::abi::handle::{dtl_comm_t, dtl_request_t};
use dtl::abi::runtime::DTL_TIMEOUT_INFINITE;
use dtl::abi::status::*;
use dtl::abi::word::{DTL_DTYPE_UINT64, DTL_OP_MAX, DTL_OP_SUM};
use dtl::ffi::comm::collective::{dtl_comm_allreduce, dtl_comm_barrier};
use dtl::ffi::comm::collective_start::dtl_comm_iallreduce;
use dtl::ffi::comm::communicator::{dtl_comm_destroy, dtl_comm_open, dtl_comm_rank, dtl_comm_size};
use dtl::ffi::comm::p2p_start::{dtl_comm_irecv, dtl_comm_isend};
use dtl::ffi::comm::request::dtl_request_wait;
use dtl::ffi::library::runtime::dtl_last_error;
use std::ffi::CStr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Sizes of the data in bytes. Two ranks exchange the first two in one message each, and the last
/// one in halves.
const SIZES: [usize; 3] = [256 << 10, 2 << 20, 8 << 20];

#[derive(Clone, Copy)]
struct Comm(dtl_comm_t);

impl Comm {
    fn open(limit: Duration) -> Comm {
        // SAFETY: the struct consists of numbers and of pointers that may be null.
        let mut desc: dtl_comm_desc_t = unsafe { std::mem::zeroed() };
        desc.struct_size = size_of::<dtl_comm_desc_t>() as u32;
        desc.kind = c"shm".as_ptr();
        desc.timeout_ns = limit.as_nanos() as u64;
        let mut comm = dtl_comm_t { id: 0 };
        // SAFETY: both pointers are valid during the call.
        let status = unsafe { dtl_comm_open(&raw const desc, &raw mut comm) };
        assert_eq!(status, DTL_SUCCESS, "{}", last_error());
        Comm(comm)
    }

    fn rank(self) -> i32 {
        let mut rank = -1;
        // SAFETY: writes one integer.
        assert_eq!(unsafe { dtl_comm_rank(self.0, &raw mut rank) }, DTL_SUCCESS);
        rank
    }

    fn size(self) -> i32 {
        let mut size = -1;
        // SAFETY: writes one integer.
        assert_eq!(unsafe { dtl_comm_size(self.0, &raw mut size) }, DTL_SUCCESS);
        size
    }

    fn barrier(self) -> dtl_status_t {
        dtl_comm_barrier(self.0)
    }

    /// Sums the words of a buffer, and returns the status.
    fn sum(self, data: &Buffer, into: &Buffer, len: usize) -> dtl_status_t {
        let (data, into) = (data.region().addr().ptr(), into.region().addr().ptr());
        let count = len as u64 / 8;
        // SAFETY: both buffers have this number of elements and outlive the call.
        unsafe {
            dtl_comm_allreduce(
                self.0,
                data.cast(),
                into.cast(),
                count,
                DTL_DTYPE_UINT64,
                DTL_OP_SUM,
            )
        }
    }

    fn start_sum(self, data: &Buffer, into: &Buffer, len: usize) -> dtl_request_t {
        let (data, into) = (data.region().addr().ptr(), into.region().addr().ptr());
        let (count, mut request) = (len as u64 / 8, dtl_request_t { id: 0 });
        // SAFETY: both buffers have this number of elements, and the cases keep them until the
        // request is complete.
        let status = unsafe {
            dtl_comm_iallreduce(
                self.0,
                data.cast(),
                into.cast(),
                count,
                DTL_DTYPE_UINT64,
                DTL_OP_SUM,
                &raw mut request,
            )
        };
        assert_eq!(status, DTL_SUCCESS, "{}", last_error());
        request
    }

    /// Sends a word to the next rank and receives one, which also advances everything that the
    /// transport has not completed.
    fn pass_around(self) {
        let (sent, mut got) = (7_u64, 0_u64);
        let (me, size) = (self.rank(), self.size());
        let mut requests = [dtl_request_t { id: 0 }; 2];
        let [send, recv] = &mut requests;
        let (to, by) = ((me + 1) % size, (me + size - 1) % size);
        let into = (&raw mut got).cast();
        // SAFETY: the word lives until the request is complete.
        let status = unsafe { dtl_comm_irecv(self.0, into, 1, DTL_DTYPE_UINT64, by, 1, recv) };
        assert_eq!(status, DTL_SUCCESS, "{}", last_error());
        let data = (&raw const sent).cast();
        // SAFETY: as above.
        let status = unsafe { dtl_comm_isend(self.0, data, 1, DTL_DTYPE_UINT64, to, 1, send) };
        assert_eq!(status, DTL_SUCCESS, "{}", last_error());
        for request in requests {
            assert_eq!(wait_for_request(request, None), DTL_SUCCESS, "{}", last_error());
        }
        assert_eq!(got, sent);
    }

    /// Returns a time limit that all ranks are sure to keep if they come together: half a second,
    /// or more on a busy machine.
    fn limit(self) -> Duration {
        assert_eq!(self.barrier(), DTL_SUCCESS);
        let started = Instant::now();
        Comm::open(Duration::from_secs(60)).destroy();
        let own = (20 * started.elapsed()).max(Duration::from_millis(500)).as_nanos() as u64;
        let mut limit = 0_u64;
        let (own, most) = ((&raw const own).cast(), (&raw mut limit).cast());
        // SAFETY: both are one word.
        let status =
            unsafe { dtl_comm_allreduce(self.0, own, most, 1, DTL_DTYPE_UINT64, DTL_OP_MAX) };
        assert_eq!(status, DTL_SUCCESS, "{}", last_error());
        Duration::from_nanos(limit)
    }

    fn destroy(self) {
        assert_eq!(dtl_comm_destroy(self.0), DTL_SUCCESS);
    }
}

fn wait_for_request(request: dtl_request_t, limit: Option<Duration>) -> dtl_status_t {
    let limit = limit.map_or(DTL_TIMEOUT_INFINITE, |limit| limit.as_nanos() as u64);
    // SAFETY: no info is requested.
    unsafe { dtl_request_wait(request, limit, std::ptr::null_mut()) }
}

fn last_error() -> String {
    // SAFETY: the text is valid until the next call of this thread.
    unsafe { CStr::from_ptr(dtl_last_error()) }.to_string_lossy().into_owned()
}

/// Returns true if a message can only be received while its sender makes calls: with the other
/// methods, the receiver reads the message from the memory of a sender that makes none.
fn is_through_cells() -> bool {
    std::env::var("DTL_SHM_COPY").is_ok_and(|method| method == "cells")
}

fn data_of(rank: i32, len: usize) -> Buffer {
    Buffer::filled(len, 3 + 2 * rank as u64)
}

fn words(bytes: &[u8]) -> impl Iterator<Item = u64> {
    bytes.chunks_exact(8).map(|word| u64::from_ne_bytes(word.try_into().expect("eight")))
}

/// Returns true if `into` has the sum of the data of the first `size` ranks.
fn is_sum(into: &Buffer, size: i32, len: usize) -> bool {
    let all: Vec<Buffer> = (0..size).map(|rank| data_of(rank, len)).collect();
    let mut parts: Vec<_> = all.iter().map(|data| words(data.bytes())).collect();
    let mut sum =
        || parts.iter_mut().fold(0_u64, |sum, part| sum.wrapping_add(part.next().unwrap()));
    words(&into.bytes()[..len]).all(|word| word == sum())
}

/// Tests that a collective that failed at the time limit uses no buffer any more, and that the
/// communicator refuses the next collective but still carries messages.
fn is_over(comm: Comm, meet: Comm, (data, into): (&Buffer, &Buffer), len: usize) {
    assert_eq!(comm.barrier(), DTL_ERROR_INVALID_STATE, "{}", last_error());
    into.region().fill(0xEE);
    assert_eq!(meet.barrier(), DTL_SUCCESS);
    comm.pass_around();
    assert_eq!(meet.barrier(), DTL_SUCCESS);
    assert!(into.bytes().iter().all(|&byte| byte == 0xEE), "{len}: written to after the end");
    assert!(data.bytes() == data_of(comm.rank(), len).bytes(), "{len}: the operand is changed");
}

/// Tests that the last rank begins an allreduce when the time limit of the others has passed.
pub(crate) fn late() {
    let meet = Comm::open(Duration::from_secs(60));
    for len in SIZES {
        let comm = Comm::open(meet.limit());
        let (me, size) = (comm.rank(), comm.size());
        let (data, into) = (data_of(me, len), Buffer::new(len));
        let is_late = me == size - 1;
        if is_late {
            assert_eq!(meet.barrier(), DTL_SUCCESS);
        }
        assert_eq!(comm.sum(&data, &into, len), DTL_ERROR_TIMEOUT, "{}", last_error());
        let text = last_error();
        assert!(text.contains("allreduce"), "{text}");
        if !is_late {
            // The limit passes first on one of these ranks, which notifies the others.
            assert!(text.contains("is not over after") || text.contains("gave up"), "{text}");
            assert_eq!(meet.barrier(), DTL_SUCCESS);
        }
        is_over(comm, meet, (&data, &into), len);
        comm.destroy();
    }
    meet.destroy();
}

/// Tests that rank 1 stops in the middle of an allreduce until the time limit of rank 0 has passed.
/// Through cells, rank 0 has matched its message and can only complete it with rank 1: its call
/// ends when rank 1 continues. Otherwise rank 0 reads the message without rank 1.
pub(crate) fn late_in_the_middle() {
    let meet = Comm::open(Duration::from_secs(60));
    for len in [SIZES[0], SIZES[1]] {
        let limit = meet.limit();
        let comm = Comm::open(limit);
        let (data, into) = (data_of(comm.rank(), len), Buffer::new(len));
        if comm.rank() == 1 {
            let request = comm.start_sum(&data, &into, len);
            std::fs::write(mark("begun"), "").expect("mark");
            // Makes no calls: there is no progress.
            assert!(wait_for_mark("passed", Duration::from_secs(60)), "rank 0 has not begun");
            let status = wait_for_request(request, None);
            // Its own part may be complete.
            assert!([DTL_SUCCESS, DTL_ERROR_TIMEOUT].contains(&status), "{}", last_error());
            assert!(status != DTL_SUCCESS || is_sum(&into, 2, len));
            if status == DTL_SUCCESS {
                assert_eq!(comm.barrier(), DTL_ERROR_TIMEOUT, "{}", last_error());
            }
        } else {
            assert!(wait_for_mark("begun", Duration::from_secs(60)), "rank 1 has not begun");
            let has_passed = AtomicBool::new(false);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    std::thread::sleep(2 * limit);
                    has_passed.store(true, Ordering::Relaxed);
                    std::fs::write(mark("passed"), "").expect("mark");
                });
                assert_eq!(comm.sum(&data, &into, len), DTL_ERROR_TIMEOUT, "{}", last_error());
                let text = last_error();
                assert!(text.contains("allreduce") && text.contains("is not over after"), "{text}");
                assert!(has_passed.load(Ordering::Relaxed) || !is_through_cells(), "{text}");
            });
        }
        is_over(comm, meet, (&data, &into), len);
        comm.destroy();
    }
    meet.destroy();
}

/// Tests that a request of an allreduce continues after a wait for it has ended at its time limit,
/// in the middle of a message.
pub(crate) fn late_for_a_wait() {
    let meet = Comm::open(Duration::from_secs(60));
    for len in SIZES {
        let (data, into) = (data_of(meet.rank(), len), Buffer::new(len));
        let mut status = DTL_ERROR_TIMEOUT;
        let request = if meet.rank() == 1 {
            let request = meet.start_sum(&data, &into, len);
            std::fs::write(mark("begun"), "").expect("mark");
            // Makes no calls: there is no progress.
            assert!(wait_for_mark("waited", Duration::from_secs(60)), "rank 0 has not begun");
            request
        } else {
            assert!(wait_for_mark("begun", Duration::from_secs(60)), "rank 1 has not begun");
            let request = meet.start_sum(&data, &into, len);
            for _ in 0..3 {
                if status == DTL_ERROR_TIMEOUT {
                    status = wait_for_request(request, Some(Duration::from_millis(30)));
                }
                assert!(status == DTL_ERROR_TIMEOUT || !is_through_cells(), "{}", last_error());
            }
            std::fs::write(mark("waited"), "").expect("mark");
            request
        };
        if status == DTL_ERROR_TIMEOUT {
            status = wait_for_request(request, None);
        }
        assert_eq!(status, DTL_SUCCESS, "{}", last_error());
        assert!(is_sum(&into, 2, len), "{len}");
        into.region().fill(0);
        assert_eq!(meet.sum(&data, &into, len), DTL_SUCCESS, "{}", last_error());
        assert!(is_sum(&into, 2, len), "{len}");
    }
    meet.destroy();
}

/// Tests that ranks that pass different counts get a status that says so, and that nothing is
/// written beyond the shorter buffer.
pub(crate) fn other_count() {
    const BEYOND: usize = 4096;
    let meet = Comm::open(Duration::from_secs(60));
    for (small, large) in [
        (40_000, 60_000),
        (SIZES[0], SIZES[0] + 8),
        (SIZES[0], SIZES[1]),
        (SIZES[2] - 80_000, SIZES[2]),
    ] {
        let comm = Comm::open(Duration::from_secs(60));
        let me = comm.rank();
        let len = if me == 0 { small } else { large };
        let (data, into) = (data_of(me, len), Buffer::filled(len + BEYOND, 5));
        let status = comm.sum(&data, &into, len);
        assert_eq!(status, DTL_ERROR_INVALID_ARGUMENT, "{}", last_error());
        let text = last_error();
        assert!(text.contains("allreduce") && text.contains("count"), "{text}");
        let before = Buffer::filled(len + BEYOND, 5);
        assert!(into.bytes()[len..] == before.bytes()[len..], "{len}: written beyond the buffer");
        is_over(comm, meet, (&data, &into), len);
        comm.destroy();
    }
    meet.destroy();
}
