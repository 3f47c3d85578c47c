//! Tests of `shm_segment`.

use super::*;
use std::sync::atomic::Ordering;

#[test]
fn two_mappings_see_each_other() {
    let one = SharedMapping::create(1 << 16).expect("memfd");
    let two =
        SharedMapping::attach(one.descriptor().expect("file").try_clone_to_owned().expect("dup"))
            .expect("attach");
    one.commit(0, 4096).expect("commit");
    one.word(8).expect("inside").store(42, Ordering::Release);
    assert_eq!(two.word(8).expect("inside").load(Ordering::Acquire), 42);
    let span = two.span(0, 64).expect("inside");
    assert_eq!(span.word(8).expect("inside").load(Ordering::Acquire), 42);
    let ([_, second], bytes) = span.block(0, 48).expect("inside");
    assert_eq!((second.load(Ordering::Acquire), bytes.len()), (42, 48));
    assert!(span.block(8, 48).is_none() && span.block(4, 0).is_none());
}

#[test]
fn the_outside_is_refused() {
    let memory = SharedMapping::create(4096).expect("memfd");
    assert!(
        memory.word(4096).is_none()
            && memory.word(4).is_none()
            && memory.word(usize::MAX - 7).is_none()
    );
    assert!(memory.span(4088, 16).is_none());
    assert!(
        memory.commit(4096, 4096).is_err() && memory.commit(usize::MAX, 2).is_err(),
        "beyond its end"
    );
    let file = File::from(memory.descriptor().expect("file").try_clone_to_owned().expect("dup"));
    assert!(file.set_len(0).is_err(), "the size is sealed");
}

/// Returns the number of bytes of the memfd that have allocated pages.
fn held(memory: &SharedMapping) -> u64 {
    use std::os::unix::fs::MetadataExt;
    memory.file.as_ref().expect("file").metadata().expect("metadata").blocks() * 512
}

#[test]
fn ranges_come_and_go() {
    let (page, one) = (page_size(), SharedMapping::create(1 << 16).expect("memfd"));
    let two =
        SharedMapping::attach(one.descriptor().expect("file").try_clone_to_owned().expect("dup"))
            .expect("attach");
    assert!(two.range(1 << 16, page).is_err(), "nobody made it");
    let made = one.extend(4 << 20, 10 * page).expect("extend");
    let is_what_was_asked_for = |bytes: u64| (10 * page as u64..=4 << 20).contains(&bytes);
    assert!(is_what_was_asked_for(held(&one)), "{} bytes", held(&one));
    let found = two.range(4 << 20, 10 * page).expect("range");
    let words = |memory: &Arc<SharedMapping>| memory.span(0, 10 * page).expect("inside");
    let (mine, theirs) = (words(&made), words(&found));
    mine.words(8, 2).expect("inside")[1].store(7, Ordering::Release);
    assert_eq!(theirs.word(16).expect("inside").load(Ordering::Acquire), 7);
    assert!(mine.words(10 * page - 8, 2).is_none() && mine.words(4, 1).is_none());
    assert!(mine.words(0, usize::MAX).is_none());
    let mut bytes = [0; 8];
    one.peek((4 << 20) + 16, &mut bytes).expect("peek");
    assert_eq!(u64::from_ne_bytes(bytes), 7);
    found.discard();
    one.peek((4 << 20) + 16, &mut bytes).expect("peek");
    assert!(bytes == [0; 8] && one.peek(1 << 40, &mut bytes).is_err());
    assert_eq!(held(&one), 0);
    made.commit(0, page).expect("commit");
    assert_eq!(mine.word(16).expect("inside").load(Ordering::Acquire), 0);
    assert!(
        made.commit(9 * page, 2 * page).is_err() && one.extend(usize::MAX - 4095, 8192).is_err()
    );
    assert!(two.range(usize::MAX - 4095, 8192).is_err());
    let (_, total) = hwinfo::memory();
    let refused = one.extend(4 << 20, total as usize + page).err().expect("more than there is");
    assert!(refused.raw_os_error() == Some(libc::ENOMEM) && held(&one) < 4 << 20);
    assert!(SharedMapping::private(page).expect("memory").extend(0, page).is_err());
}

#[test]
fn memory_of_this_process_has_no_descriptor() {
    let memory = SharedMapping::private(1 << 20).expect("memory");
    let word = memory.word((1 << 20) - 8).expect("inside");
    assert!(memory.descriptor().is_none() && word.load(Ordering::Relaxed) == 0);
    memory.commit(0, 4096).expect("nothing to do");
    assert!(SharedMapping::reserved(1 << 20).is_ok() && SharedMapping::reserved(1 << 60).is_err());
}

#[test]
fn an_unsealed_file_is_refused() {
    let file = File::open("/proc/self/exe").expect("open");
    assert!(SharedMapping::attach(OwnedFd::from(file)).is_err());
}
