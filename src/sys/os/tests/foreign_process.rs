//! Tests of `foreign_process`.

use super::*;
use crate::sys::memory::buf::Scratch;
use crate::sys::os::process::{PidFd, exit_now, own_pid};

#[test]
fn reads_own_memory() {
    let (from, to) = (Scratch::new(100).expect("memory"), Scratch::new(100).expect("memory"));
    from.region().fill(7);
    let address = from.region().addr().get() as u64;
    let halves = [(address, to.region().part(0, 50)), (address + 50, to.region().part(50, 50))];
    assert_eq!(read_memory(own_pid(), halves).expect("own memory"), 100);
    // SAFETY: no code writes `to` while it is read.
    assert!(unsafe { to.region().as_slice() }.iter().all(|&byte| byte == 7));
    assert!(read_memory(own_pid(), [(0, to.region())]).is_err());
}

/// Forks a child process, which has a copy of `memory` at the same address. The child calls `then`
/// when the first byte of its copy changes.
fn child_with(memory: Region, then: impl FnOnce()) -> i32 {
    // SAFETY: the child makes system calls only.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: valid and aligned for a byte; the parent changes it through the kernel.
        while unsafe { memory.addr().ptr().cast::<u8>().read_volatile() } == 7 {
            std::thread::yield_now();
        }
        then();
        exit_now(0);
    }
    child
}

#[test]
fn memory_stays_that_of_the_program_it_was_opened_for() {
    let (memory, copy) =
        (Scratch::new(10_000).expect("memory"), Scratch::new(10_000).expect("memory"));
    memory.region().fill(7);
    let exec = || {
        let arguments = [c"sleep".as_ptr(), c"1000".as_ptr(), std::ptr::null()];
        // SAFETY: strings and an array, terminated as required; returns only on failure.
        unsafe { libc::execvp(c"sleep".as_ptr(), arguments.as_ptr()) };
    };
    let (child, address) = (child_with(memory.region(), exec), memory.region().addr().get() as u64);
    let foreign = ForeignMemory::open(child).expect("opened");
    let held = PidFd::open(child).expect("held");
    assert_eq!(foreign.read(address, copy.region()).expect("read"), 10_000);
    // SAFETY: no code writes `copy` while it is read.
    assert!(unsafe { copy.region().as_slice() }.iter().all(|&byte| byte == 7));
    assert!(foreign.write(8, copy.region()).is_err(), "nothing is mapped there");
    copy.region().fill(9);
    assert_eq!(foreign.write(address, copy.region()).expect("written"), 10_000);
    // The child now runs another program: its old memory is unmapped, but the process lives.
    while foreign.read(address, copy.region()).expect("no error") > 0 {
        std::thread::yield_now();
    }
    assert_eq!(foreign.write(address, copy.region()).expect("no error"), 0);
    assert!(!held.exited());
    held.kill();
    held.reap();
    assert_eq!(foreign.write(address, copy.region()).expect("no error"), 0);
    assert_eq!(memory.region().first_words(), [0x0707_0707_0707_0707], "the parent's is its own");
}

#[test]
fn a_glimpse_does_not_open_and_stays_what_it_was() {
    let own = own_pid();
    let folder = File::open("/").expect("a folder");
    let seen = PathFd::of(own, folder.as_raw_fd()).expect("own descriptor");
    drop(folder);
    assert_eq!(seen.name().expect("still held").as_os_str(), "/");
    assert!(seen.open().is_err(), "it cannot be written");
    assert_eq!(
        PathFd::of(own, 1 << 20).err().map(|error| error.kind()),
        Some(io::ErrorKind::NotFound)
    );
}
