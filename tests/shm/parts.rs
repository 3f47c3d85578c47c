//! Code of the ranks in tests of memory that all ranks load and store.

use crate::cases::barrier;
use crate::forbid::forbid;
use crate::rank::*;
use dtl::abi::status::*;
use dtl::abi::word::{DTL_DTYPE_UINT64, DTL_OP_SUM};
use dtl::runtime::comm::rma::robust_rwlock::SharedLock;
use dtl::runtime::component::{PART_WORDS, PartKey, SharedOffer, SharedRegion};
use dtl::sys::compute::elements;
use dtl::sys::memory::buf::{Region, Scratch};
use std::sync::atomic::Ordering;

const LEN: usize = 5000;
const TIMES: u64 = 2000;
const LOCK: usize = 0;
const GUARDED: usize = 48;

fn words(buffer: &Buffer) -> PartKey {
    let word =
        |at: usize| u64::from_ne_bytes(buffer.bytes()[at..at + 8].try_into().expect("eight"));
    [word(0), word(8)]
}

/// Offers a part and finds the parts of all ranks, by rank.
fn all_parts(comm: &Rank) -> Vec<Box<dyn SharedRegion>> {
    let own =
        shared_memory(comm).offer_part(SharedOffer::Fresh(LEN)).expect("provided").expect("memory");
    let key = Buffer::new(16);
    key.region().copy_from(Scratch::of_words(&own.key()).expect("memory").region());
    let sends: Vec<_> = (0..comm.size()).map(|rank| send(comm, &key, rank, 7)).collect();
    let find = |rank| {
        let theirs = Buffer::new(16);
        assert_eq!(wait(comm, receive(comm, &theirs, from(rank, 7))).status, DTL_SUCCESS);
        shared_memory(comm).find_part(rank, words(&theirs)).expect("find")
    };
    let parts = (0..comm.size()).map(find).collect();
    sends.into_iter().for_each(|op| assert_eq!(wait(comm, op).status, DTL_SUCCESS));
    barrier(comm);
    parts
}

fn lock(part: &dyn SharedRegion) -> SharedLock<'_> {
    SharedLock::new(&part.words()[LOCK..GUARDED]).expect("words")
}

/// Writes to the memory of all ranks, increments counters in it, and changes two words of it under
/// a lock.
pub(crate) fn shared() {
    let comm = &open();
    let (me, size) = (comm.rank() as usize, comm.size() as usize);
    let parts = all_parts(comm);
    let data = Buffer::filled(100, me as u64 + 1);
    for part in &parts {
        assert_eq!((part.region().len(), part.words().len()), (LEN, PART_WORDS));
        part.region().part(100 * (me + 1), 100).copy_from(data.region());
    }
    let mut one = 1_u64;
    // SAFETY: it lives as long as it is added.
    let one = unsafe { Region::new((&raw mut one).cast(), 8) };
    let add = elements::update(DTL_DTYPE_UINT64, DTL_OP_SUM).expect("goes together");
    for _ in 0..TIMES {
        add.apply(parts[0].region().part(0, 8), one, Region::EMPTY);
        let last = &*parts[size - 1];
        until(|| lock(last).try_exclusive(me, false).then_some(()));
        let [first, second] = [&last.words()[GUARDED], &last.words()[GUARDED + 1]];
        first.store(first.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        second.store(second.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        assert_eq!(first.load(Ordering::Relaxed), second.load(Ordering::Relaxed));
        lock(last).leave(me);
    }
    barrier(comm);
    for part in &parts {
        for rank in 0..size {
            let there = Buffer::new(100);
            there.region().copy_from(part.region().part(100 * (rank + 1), 100));
            assert!(there.holds(100, rank as u64 + 1));
        }
    }
    let sum = Scratch::copy_of(parts[0].region().part(0, 8)).expect("memory").words();
    let guarded = parts[size - 1].words()[GUARDED].load(Ordering::Relaxed);
    assert_eq!((sum, guarded), (vec![TIMES * size as u64], TIMES * size as u64));
    barrier(comm);
    let key = parts[0].key();
    drop(parts);
    barrier(comm);
    assert_eq!(
        shared_memory(comm).find_part(0, key).err().expect("gone").status(),
        DTL_ERROR_NOT_FOUND
    );
    // Memory of the program's own is in its process alone.
    assert!(shared_memory(comm).offer_part(SharedOffer::Own(data.region())).is_none());
    comm.close().expect("close");
    assert_eq!(
        shared_memory(comm).find_part(0, key).err().expect("closed").status(),
        DTL_ERROR_INVALID_STATE
    );
}

/// Tests that unavailable memory is reported by a status, whatever the cause, and that no signal
/// ends the rank.
pub(crate) fn missing() {
    let comm = &open();
    let offer = |len| shared_memory(comm).offer_part(SharedOffer::Fresh(len)).expect("provided");
    let refused = |len| offer(len).err().expect("no memory");
    offer(8).expect("memory");
    let error = refused(1 << 60);
    assert_eq!(error.status(), DTL_ERROR_OUT_OF_MEMORY, "{error}");
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: writes one rlimit.
    assert_eq!(unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &raw mut limit) }, 0);
    let before = limit;
    limit.rlim_cur = 1 << 20;
    // SAFETY: reads one rlimit.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit) }, 0);
    let error = refused(1 << 20);
    assert_eq!(error.status(), DTL_ERROR_LIMIT, "{error}");
    assert!(
        error.text().contains("1048576 bytes of shared memory: ")
            && error.text().contains("ulimit -f"),
        "{error}"
    );
    // SAFETY: reads one rlimit.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &raw const before) }, 0);
    offer(1 << 20).expect("memory");
    forbid(libc::SYS_fallocate, libc::ENOSPC);
    let error = refused(8);
    assert_eq!(error.status(), DTL_ERROR_OUT_OF_MEMORY, "{error}");
}

/// Kills rank 1 while it has a lock of rank 0's part: a waiting rank finds the holder and detects
/// that it is dead.
pub(crate) fn killed_with_lock() {
    let comm = &open();
    let parts = all_parts(comm);
    let lock = lock(&*parts[0]);
    if comm.rank() == 1 {
        assert!(lock.try_exclusive(1, false));
        barrier(comm);
        // SAFETY: ends this process, which is what the case is about.
        unsafe { libc::raise(libc::SIGKILL) };
    }
    barrier(comm);
    let me = comm.rank() as usize;
    until(|| {
        assert!(!lock.try_shared(me, true));
        comm.progress();
        (lock.is_in_the_way(1, false) && shared_memory(comm).has_left(1)).then_some(())
    });
    lock.leave_line(me);
    assert!(!lock.is_in_the_way(0, false) && !lock.is_in_the_way(2, false));
    // What the dead rank's memory has is still there.
    parts[1].region().fill(1);
}
